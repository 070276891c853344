//! One write transaction: the connection, the few things remembered between
//! transactions, and the events collected so far. The functions that write
//! (`write.rs`, `claim.rs`, `change.rs`, `upkeep.rs`, `settings.rs`) are
//! methods on it, so they work on the writer's connection and on a caller's own
//! transaction alike.

use super::error::sql;
use super::pack::Packer;
use super::rows::{Held, LEASE, Lanes, TASK, held_from, task_from, whole_task};
use crate::store::event_json;
use crate::store::guards::Guards;
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::HashMap;
use std::sync::LazyLock;
use windlass_core::clock::Timestamp;
use windlass_core::event::{Event, Position};
use windlass_core::id::TaskId;
use windlass_core::json::Json;
use windlass_core::standing::Events;
use windlass_core::store::{OutboxRule, OutboxTopic, outbox_lane};
use windlass_core::task::{QueueName, Task};
use windlass_core::{Error, Result};

static SELECT_LEASE: LazyLock<String> =
    LazyLock::new(|| format!("SELECT {LEASE} FROM lease e WHERE e.task = ?1"));
static SELECT_FREE: LazyLock<String> =
    LazyLock::new(|| format!("SELECT {TASK} FROM task t WHERE t.id = ?1"));
/// Also the text readers use for one task.
pub(super) static SELECT_WHOLE: LazyLock<String> = LazyLock::new(|| {
    format!("SELECT {TASK}, {LEASE} FROM task t LEFT JOIN lease e ON e.task = t.id WHERE t.id = ?1")
});

/// A pack of events is closed when it has this many bytes.
const PACK_BYTES: usize = 128 * 1024;

/// What is remembered between transactions; all of it can be forgotten.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) guards: Guards,
    pub(super) lanes: Lanes,
    /// Depth of limited queues and when it was counted.
    pub(super) depths: HashMap<QueueName, (u64, Timestamp)>,
    outbox_rule: Option<OutboxRule>,
    /// Only filled while the events guard is broken.
    late: Events,
    /// Where the next look for tasks to purge starts.
    pub(super) purge_from: i64,
}

impl Memory {
    pub(super) fn new(guards: Guards) -> Self {
        Memory { guards, ..Memory::default() }
    }

    /// After a rollback nothing remembered can be trusted.
    pub(super) fn forget(&mut self) {
        self.lanes.clear();
        self.depths.clear();
        self.outbox_rule = None;
    }
}

pub(super) struct Tx<'c> {
    pub(super) conn: &'c Connection,
    pub(super) memory: &'c mut Memory,
    pub(super) out: Events,
    /// By how much the number of completed tasks changes.
    pub(super) completed: i64,
}

impl<'c> Tx<'c> {
    pub(super) fn new(conn: &'c Connection, memory: &'c mut Memory) -> Self {
        Tx { conn, memory, out: vec![], completed: 0 }
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
        let mut statement = self.conn.prepare_cached(&SELECT_LEASE).map_err(sql("lease"))?;
        let mut rows = statement.query(params![id.key()]).map_err(sql("lease"))?;
        match rows.next().map_err(sql("lease"))? {
            Some(row) => held_from(self.conn, &mut self.memory.lanes, row, 0).map(Some),
            None => Ok(None),
        }
    }

    /// A task with its lease, and its lane.
    pub(super) fn task(&mut self, id: TaskId) -> Result<Option<(Task, i64)>> {
        let mut statement = self.conn.prepare_cached(&SELECT_WHOLE).map_err(sql("task"))?;
        let mut rows = statement.query(params![id.key()]).map_err(sql("task"))?;
        match rows.next().map_err(sql("task"))? {
            Some(row) => whole_task(self.conn, &mut self.memory.lanes, row).map(Some),
            None => Ok(None),
        }
    }

    /// A task that nobody holds.
    pub(super) fn free_task(&mut self, id: TaskId) -> Result<Option<(Task, i64)>> {
        let mut statement = self.conn.prepare_cached(&SELECT_FREE).map_err(sql("task"))?;
        let mut rows = statement.query(params![id.key()]).map_err(sql("task"))?;
        match rows.next().map_err(sql("task"))? {
            Some(row) => task_from(self.conn, &mut self.memory.lanes, row).map(Some),
            None => Ok(None),
        }
    }

    /// Writes what the transaction collected; the last thing before its commit.
    pub(super) fn finish(&mut self) -> Result<()> {
        if self.completed != 0 {
            let text = "INSERT INTO meta (key, value) VALUES ('completed', ?1)
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
        Ok(())
    }

    fn next_position(&self) -> Result<i64> {
        let next = self
            .conn
            .prepare_cached("SELECT position + count FROM event ORDER BY position DESC LIMIT 1")
            .and_then(|mut s| s.query_row([], |r| r.get(0)).optional())
            .map_err(sql("events"))?;
        Ok(next.unwrap_or(1))
    }

    /// Writes as many events as fit one row; returns the rest.
    fn write_pack<'e>(&self, events: &'e [Event]) -> Result<&'e [Event]> {
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
        self.run(
            "events",
            "INSERT INTO event (position, count, at, body) VALUES (?1, ?2, ?3, ?4)",
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
            "INSERT INTO outbox (lane, topic, task, body) VALUES (?1, ?2, ?3, ?4)",
            params![outbox_lane(task), topic, task.map(TaskId::key), body.as_str()],
        )?;
        Ok(())
    }

    pub(super) fn meta(&self, key: &str) -> Result<Option<i64>> {
        self.conn
            .prepare_cached("SELECT value FROM meta WHERE key = ?1")
            .and_then(|mut s| s.query_row([key], |r| r.get(0)).optional())
            .map_err(sql("meta"))
    }

    pub(super) fn set_meta(&self, key: &str, value: i64) -> Result<()> {
        self.run(
            "meta",
            "INSERT OR REPLACE INTO meta (key, value) VALUES (?1, ?2)",
            params![key, value],
        )?;
        Ok(())
    }
}
