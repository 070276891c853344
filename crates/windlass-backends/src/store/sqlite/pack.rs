//! Packing the events of one transaction into one row, and back. A row of its
//! own per event would cost more than the task's own rows; packed, an event of
//! an ordinary life takes about thirty bytes. Names that repeat are written
//! once per pack, so a pack can be read without any other table.

use std::collections::HashMap;
use std::sync::Arc;
use windlass_core::clock::Timestamp;
use windlass_core::event::{Event, EventData, EventName, Position};
use windlass_core::id::{NodeId, TaskId};
use windlass_core::json::Json;
use windlass_core::task::{Kind, QueueName};
use windlass_core::{Error, Result};

const FORMAT: u8 = 1;
const HAS_TASK: u8 = 1;
const HAS_KIND: u8 = 2;
const HAS_QUEUE: u8 = 4;
const HAS_CORRELATION: u8 = 8;

/// Collects events for one row.
#[derive(Debug)]
pub(super) struct Packer {
    body: Vec<u8>,
    names: HashMap<Arc<str>, u64>,
    /// The last two names: a task's kind and queue come again and again.
    recent: [Option<(Arc<str>, u64)>; 2],
    at: i64,
    pub(super) count: i64,
}

impl Packer {
    pub(super) fn new() -> Self {
        Packer { body: vec![FORMAT], names: HashMap::new(), recent: [None, None], at: 0, count: 0 }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.body
    }

    pub(super) fn push(&mut self, event: &Event) {
        let flag = |on: bool, bit: u8| if on { bit } else { 0 };
        self.count += 1;
        self.body.push(event.name.code());
        self.body.push(
            flag(event.task.is_some(), HAS_TASK)
                | flag(event.kind.is_some(), HAS_KIND)
                | flag(event.queue.is_some(), HAS_QUEUE)
                | flag(event.correlation_id.is_some(), HAS_CORRELATION),
        );
        let at = event.at.as_micros();
        // Differences of a time to the one before fit into a byte or two.
        self.number(zigzag(at.wrapping_sub(self.at)));
        self.at = at;
        if let Some(task) = event.task {
            self.body.extend_from_slice(&task.key().to_le_bytes());
            self.number(u64::from(event.n));
        }
        if let Some(kind) = &event.kind {
            self.name(kind.as_str());
        }
        if let Some(queue) = &event.queue {
            self.name(queue.as_str());
        }
        if let Some(correlation) = &event.correlation_id {
            self.text(correlation);
        }
        self.data(&event.data);
    }

    fn data(&mut self, data: &EventData) {
        match data {
            EventData::None => self.body.push(0),
            EventData::Started { run, attempt, node } => {
                self.body.push(1);
                self.number(u64::from(*run));
                self.number(u64::from(*attempt));
                self.body.extend_from_slice(&node.key().to_le_bytes());
            }
            EventData::Result(json) => {
                self.body.push(2);
                self.text(json.as_str());
            }
            EventData::Json(json) => {
                self.body.push(3);
                self.text(json.as_str());
            }
        }
    }

    /// A name by its number; a new one stands behind its number once.
    fn name(&mut self, text: &str) {
        if let Some((_, number)) = self.recent.iter().flatten().find(|(name, _)| **name == *text) {
            let number = *number;
            return self.number(number);
        }
        let next = self.names.len() as u64;
        let known = self.names.get_key_value(text).map(|(name, number)| (name.clone(), *number));
        let (name, number) = known.unwrap_or_else(|| (text.into(), next));
        self.number(number);
        if number == next {
            self.text(text);
            self.names.insert(name.clone(), number);
        }
        self.recent.swap(0, 1);
        self.recent[0] = Some((name, number));
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.body.extend_from_slice(text.as_bytes());
    }

    fn number(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.body.push((n & 0x7f) as u8 | 0x80);
            n >>= 7;
        }
        self.body.push(n as u8);
    }
}

fn zigzag(n: i64) -> u64 {
    ((n << 1) ^ (n >> 63)).cast_unsigned()
}

fn unzigzag(n: u64) -> i64 {
    (n >> 1).cast_signed() ^ -(n & 1).cast_signed()
}

/// Reads a pack whose first event has position `first`.
pub(super) fn unpack(body: &[u8], first: i64, count: i64) -> Result<Vec<Event>> {
    let mut reader = Unpacker { body, names: vec![], at: 0 };
    if reader.byte()? != FORMAT {
        return Err(torn());
    }
    (0..count).map(|i| reader.event(Position(first + i))).collect()
}

fn torn() -> Error {
    Error::corrupt("events", "a row of the event feed cannot be read")
}

struct Unpacker<'a> {
    body: &'a [u8],
    names: Vec<Arc<str>>,
    at: i64,
}

impl Unpacker<'_> {
    fn event(&mut self, position: Position) -> Result<Event> {
        let name = EventName::from_code(self.byte()?)?;
        let flags = self.byte()?;
        self.at = self.at.wrapping_add(unzigzag(self.number()?));
        let mut event =
            Event::of_place(name, Timestamp::from_micros(self.at), None, EventData::None);
        event.position = position;
        if flags & HAS_TASK != 0 {
            event.task = Some(TaskId::from_key(self.key()?));
            event.n = u32::try_from(self.number()?).map_err(|_| torn())?;
        }
        if flags & HAS_KIND != 0 {
            event.kind = Some(Kind::trusted(self.name()?));
        }
        if flags & HAS_QUEUE != 0 {
            event.queue = Some(QueueName::trusted(self.name()?));
        }
        if flags & HAS_CORRELATION != 0 {
            event.correlation_id = Some(self.text()?);
        }
        event.data = self.data()?;
        Ok(event)
    }

    fn data(&mut self) -> Result<EventData> {
        Ok(match self.byte()? {
            0 => EventData::None,
            1 => {
                let small = |n: u64| u32::try_from(n).map_err(|_| torn());
                let (run, attempt) = (small(self.number()?)?, small(self.number()?)?);
                EventData::Started { run, attempt, node: NodeId::from_key(self.key()?) }
            }
            2 => EventData::Result(Json::trusted(self.text()?)),
            3 => EventData::Json(Json::trusted(self.text()?)),
            _ => return Err(torn()),
        })
    }

    fn name(&mut self) -> Result<Arc<str>> {
        let number = usize::try_from(self.number()?).map_err(|_| torn())?;
        if number == self.names.len() {
            let text = self.text()?;
            self.names.push(text);
        }
        self.names.get(number).cloned().ok_or_else(torn)
    }

    fn text(&mut self) -> Result<Arc<str>> {
        let length = usize::try_from(self.number()?).map_err(|_| torn())?;
        let bytes = self.take(length)?;
        std::str::from_utf8(bytes).map(Arc::from).map_err(|_| torn())
    }

    fn key(&mut self) -> Result<i64> {
        let bytes: [u8; 8] = self.take(8)?.try_into().map_err(|_| torn())?;
        Ok(i64::from_le_bytes(bytes))
    }

    fn number(&mut self) -> Result<u64> {
        let mut n = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            n |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(n);
            }
        }
        Err(torn())
    }

    fn byte(&mut self) -> Result<u8> {
        self.take(1).map(|b| b[0])
    }

    fn take(&mut self, length: usize) -> Result<&[u8]> {
        if self.body.len() < length {
            return Err(torn());
        }
        let (head, rest) = self.body.split_at(length);
        self.body = rest;
        Ok(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events() -> Vec<Event> {
        let mut all = vec![];
        for (i, name) in EventName::ALL.iter().enumerate() {
            let at = Timestamp::from_micros(1_800_000_000_000_000 + 7 * i as i64);
            let queue = (i % 3 > 0).then(|| QueueName::trusted("media"));
            let data = match i % 4 {
                0 => EventData::None,
                1 => EventData::Started { run: 1, attempt: 300, node: NodeId::from_key(i64::MAX) },
                2 => EventData::Result(Json::trusted("[1,2]")),
                _ => EventData::Json(Json::trusted(r#"{"a":"ü"}"#)),
            };
            let mut event = Event::of_place(*name, at, queue, data);
            if i % 2 == 0 {
                event.task = Some(TaskId::from_key(1 << 62 | i as i64));
                event.n = 200 * i as u32;
                event.kind = Some(Kind::trusted(["a", "b"][i / 2 % 2]));
                event.correlation_id = (i % 4 == 0).then(|| Arc::from("c-1"));
            }
            event.position = Position(41 + i as i64);
            all.push(event);
        }
        all
    }

    #[test]
    fn what_is_packed_reads_back() {
        let mut packer = Packer::new();
        let all = events();
        all.iter().for_each(|e| packer.push(e));
        assert_eq!(unpack(packer.bytes(), 41, packer.count).unwrap(), all);
    }

    #[test]
    fn a_torn_pack_is_an_error_not_a_panic() {
        let mut packer = Packer::new();
        events().iter().for_each(|e| packer.push(e));
        for cut in 0..packer.bytes().len() {
            assert!(unpack(&packer.bytes()[..cut], 1, packer.count).is_err(), "{cut}");
        }
    }

    #[test]
    fn an_ordinary_event_is_small() {
        let mut packer = Packer::new();
        let mut event = events().remove(0);
        event.kind = Some(Kind::trusted("image.resize"));
        event.queue = Some(QueueName::default());
        packer.push(&event);
        let first = packer.bytes().len();
        packer.push(&event);
        assert!(packer.bytes().len() - first < 32);
    }
}
