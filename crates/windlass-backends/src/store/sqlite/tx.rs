//! One write transaction: the connection, the few things remembered between
//! transactions, and the events collected so far. The functions that write
//! (`submit.rs`, `record.rs`, `claim.rs`, `change.rs` and so on) are
//! methods on it, so they work on the writer's connection and on a caller's own
//! transaction alike.

use super::error::sql;
use super::pack::Packer;
use super::rows::{Held, Lanes, fresh_from, held_from, one_task, task_from};
use super::statements::{Hot, Statements};
use crate::store::event_json;
use crate::store::guards::Guards;
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::HashMap;
use windlass_core::clock::Timestamp;
use windlass_core::event::{Event, Position};
use windlass_core::hash::IdMap;
use windlass_core::id::TaskId;
use windlass_core::json::Json;
use windlass_core::standing::Events;
use windlass_core::store::{OutboxRule, OutboxTopic, outbox_lane};
use windlass_core::task::{QueueName, Task};
use windlass_core::{Error, Result};

/// A pack of events is closed when it has this many bytes.
const PACK_BYTES: usize = 128 * 1024;

/// Room for so many events is kept between transactions, not more.
const SPARE_EVENTS: usize = 16 * 1024;

/// Most leases kept in mind.
const LEASES_MAX: usize = 20_000;

/// What is remembered between transactions; all of it can be forgotten.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) guards: Guards,
    pub(super) lanes: Lanes,
    /// Leases this writer gave: ending a task then need not read its lease.
    pub(super) leases: IdMap<TaskId, Held>,
    /// Depth of limited queues and when it was counted.
    pub(super) depths: HashMap<QueueName, (u64, Timestamp)>,
    outbox_rule: Option<OutboxRule>,
    /// Only filled while the events guard is broken.
    late: Events,
    /// Room for events, kept so that it need not grow in each transaction.
    spare: Events,
    /// Where the next look for tasks to purge starts.
    pub(super) purge_from: i64,
}

impl Memory {
    pub(super) fn new(guards: Guards) -> Self {
        Memory { guards, ..Memory::default() }
    }

    /// Keeps a lease in mind; what is not kept is read again.
    pub(super) fn keep_lease(&mut self, id: TaskId, held: Held) {
        if self.leases.len() >= LEASES_MAX {
            self.leases.clear();
        }
        self.leases.insert(id, held);
    }

    /// After a rollback nothing remembered can be trusted.
    pub(super) fn forget(&mut self) {
        self.lanes.clear();
        self.leases.clear();
        self.depths.clear();
        self.outbox_rule = None;
    }
}

pub(super) struct Tx<'t, 'c> {
    pub(super) conn: &'c Connection,
    pub(super) hot: &'t mut Statements<'c>,
    pub(super) memory: &'t mut Memory,
    pub(super) out: Events,
    /// By how much the number of completed tasks changes.
    pub(super) completed: i64,
    /// A command was refused after it had written: the transaction must go.
    pub(super) dirty: bool,
}

impl<'t, 'c> Tx<'t, 'c> {
    pub(super) fn new(hot: &'t mut Statements<'c>, memory: &'t mut Memory) -> Self {
        let out = std::mem::take(&mut memory.spare);
        Tx { conn: hot.conn(), hot, memory, out, completed: 0, dirty: false }
    }

    pub(super) fn events(&self) -> usize {
        self.out.len()
    }

    pub(super) fn forget_events_after(&mut self, mark: usize) {
        self.out.truncate(mark);
    }

    /// Runs one cached statement.
    pub(super) fn run(
        &self,
        op: &'static str,
        text: &str,
        params: impl rusqlite::Params,
    ) -> Result<usize> {
        self.conn.prepare_cached(text).and_then(|mut s| s.execute(params)).map_err(sql(op))
    }

    /// The lease of a task, if a node holds it.
    pub(super) fn held(&mut self, id: TaskId) -> Result<Option<Held>> {
        if let Some(held) = self.memory.leases.get(&id) {
            return Ok(Some(held.clone()));
        }
        let conn = self.conn;
        let mut rows = self.hot.get(Hot::Lease)?.query([id.key()]).map_err(sql("lease"))?;
        let row = rows.next().map_err(sql("lease"))?;
        row.map(|row| held_from(conn, &mut self.memory.lanes, row, 0)).transpose()
    }

    /// A task with its lease or its end, and its lane.
    pub(super) fn task(&mut self, id: TaskId) -> Result<Option<(Task, i64)>> {
        one_task(self.conn, &mut self.memory.lanes, id)
    }

    /// A task that is neither held nor done, and its lane.
    pub(super) fn free_task(&mut self, id: TaskId) -> Result<Option<(Task, i64)>> {
        let conn = self.conn;
        let mut rows = self.hot.get(Hot::Task)?.query([id.key()]).map_err(sql("task"))?;
        let row = rows.next().map_err(sql("task"))?;
        row.map(|row| task_from(conn, &mut self.memory.lanes, row)).transpose()
    }

    /// A ready task and its lane. Most are as they were born, and of those a
    /// third of the columns says everything.
    pub(super) fn ready_task(&mut self, id: TaskId) -> Result<Option<(Task, i64)>> {
        let conn = self.conn;
        let mut rows = self.hot.get(Hot::FreshTask)?.query([id.key()]).map_err(sql("task"))?;
        if let Some(row) = rows.next().map_err(sql("task"))? {
            return fresh_from(conn, &mut self.memory.lanes, id, row).map(Some);
        }
        drop(rows);
        self.free_task(id)
    }

    /// Writes what the transaction collected; the last thing before its commit.
    pub(super) fn finish(&mut self) -> Result<()> {
        if self.completed != 0 {
            let text = "INSERT INTO windlass_meta (key, value) VALUES ('completed', ?1)
                        ON CONFLICT (key) DO UPDATE SET value = value + ?1";
            self.run("meta", text, params![self.completed])?;
        }
        self.write_events()
    }

    /// Gives the collected events their positions and writes them in packs.
    fn write_events(&mut self) -> Result<()> {
        let mut events = std::mem::take(&mut self.out);
        if !self.memory.guards.events {
            events = std::mem::replace(&mut self.memory.late, events);
        }
        if events.is_empty() {
            self.memory.spare = events;
            return Ok(());
        }
        let first = self.next_position()?;
        for (event, position) in events.iter_mut().zip(first..) {
            event.position = Position(position);
        }
        let mut rest = events.as_slice();
        while !rest.is_empty() {
            rest = self.write_pack(rest)?;
        }
        if self.outbox_rule()?.events {
            for event in &events {
                self.send_out(OutboxTopic::Event, event.task, &event_json(event))?;
            }
        }
        events.clear();
        if events.capacity() <= SPARE_EVENTS {
            self.memory.spare = events;
        }
        Ok(())
    }

    fn next_position(&mut self) -> Result<i64> {
        let statement = self.hot.get(Hot::NextPosition)?;
        let next = statement.query_row([], |r| r.get(0)).optional().map_err(sql("events"))?;
        Ok(next.unwrap_or(1))
    }

    /// Writes as many events as fit one row; returns the rest.
    fn write_pack<'e>(&mut self, events: &'e [Event]) -> Result<&'e [Event]> {
        let mut packer = Packer::new();
        let mut taken = 0;
        while taken < events.len() && packer.bytes().len() < PACK_BYTES {
            packer.push(&events[taken]);
            taken += 1;
        }
        let (pack, rest) = events.split_at(taken);
        let (Some(first), Some(last)) = (pack.first(), pack.last()) else {
            return Err(Error::corrupt("events", "an empty pack"));
        };
        self.hot.run(
            Hot::InsertEvents,
            params![first.position.0, packer.count, last.at.as_micros(), packer.bytes()],
        )?;
        Ok(rest)
    }

    pub(super) fn outbox_rule(&mut self) -> Result<OutboxRule> {
        if let Some(rule) = self.memory.outbox_rule {
            return Ok(rule);
        }
        let bits = self.meta("outbox")?.unwrap_or(0);
        let rule = OutboxRule { dead_letters: bits & 1 != 0, events: bits & 2 != 0 };
        self.memory.outbox_rule = Some(rule);
        Ok(rule)
    }

    pub(super) fn set_outbox_rule(&mut self, rule: OutboxRule) -> Result<()> {
        self.set_meta("outbox", i64::from(rule.dead_letters) | i64::from(rule.events) << 1)?;
        self.memory.outbox_rule = Some(rule);
        Ok(())
    }

    /// Adds an outbox row; whether such facts leave is the caller's question.
    pub(super) fn send_out(
        &self,
        topic: OutboxTopic,
        task: Option<TaskId>,
        body: &Json,
    ) -> Result<()> {
        let topic = match topic {
            OutboxTopic::DeadLetter => 0,
            OutboxTopic::Event => 1,
        };
        self.run(
            "outbox",
            "INSERT INTO windlass_outbox (lane, topic, task, body) VALUES (?1, ?2, ?3, ?4)",
            params![outbox_lane(task), topic, task.map(TaskId::key), body.as_str()],
        )?;
        Ok(())
    }

    pub(super) fn meta(&self, key: &str) -> Result<Option<i64>> {
        self.conn
            .prepare_cached("SELECT value FROM windlass_meta WHERE key = ?1")
            .and_then(|mut s| s.query_row([key], |r| r.get(0)).optional())
            .map_err(sql("meta"))
    }

    pub(super) fn set_meta(&self, key: &str, value: i64) -> Result<()> {
        self.run(
            "meta",
            "INSERT OR REPLACE INTO windlass_meta (key, value) VALUES (?1, ?2)",
            params![key, value],
        )?;
        Ok(())
    }
}
