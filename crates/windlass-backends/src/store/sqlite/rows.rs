//! Between rows and the words of core: the columns of a task, of a lease, of a
//! step, each list in one place with the function that reads it. Names of
//! queues and kinds are looked up once and shared from then on.

use super::error::sql;
use crate::store::QueueRules;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use windlass_core::checkpoint::{StepEntry, StepOutcome, StepRecord, Version};
use windlass_core::clock::Timestamp;
use windlass_core::id::{NodeId, TaskId};
use windlass_core::json::Json;
use windlass_core::lease::{ClaimNo, Requests, Token};
use windlass_core::standing::Standing;
use windlass_core::state::State;
use windlass_core::store::{NodeInfo, Stage};
use windlass_core::task::{Card, Kind, QueueName, Task};
use windlass_core::{Error, Result};

/// The names behind lane numbers. Lanes are never renamed or deleted.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    by_id: HashMap<i64, (QueueName, Kind)>,
    by_name: HashMap<QueueName, HashMap<Kind, i64>>,
}

impl Lanes {
    /// Forgets everything: a transaction that made lanes was rolled back.
    pub(super) fn clear(&mut self) {
        *self = Lanes::default();
    }

    pub(super) fn names(&mut self, conn: &Connection, lane: i64) -> Result<(QueueName, Kind)> {
        if let Some(names) = self.by_id.get(&lane) {
            return Ok(names.clone());
        }
        let names = conn
            .prepare_cached("SELECT queue, kind FROM windlass_lane WHERE id = ?1")
            .and_then(|mut s| {
                s.query_row([lane], |r| Ok((r.get::<_, String>(0)?, r.get::<_, String>(1)?)))
            })
            .map_err(sql("lane"))?;
        let names = (QueueName::trusted(names.0), Kind::trusted(names.1));
        self.keep(lane, &names.0, &names.1);
        Ok(names)
    }

    /// The lane of a queue and a kind, if anything was ever submitted to it.
    pub(super) fn find(
        &mut self,
        conn: &Connection,
        queue: &QueueName,
        kind: &Kind,
    ) -> Result<Option<i64>> {
        if let Some(lane) = self.by_name.get(queue).and_then(|kinds| kinds.get(kind)) {
            return Ok(Some(*lane));
        }
        let lane = conn
            .prepare_cached("SELECT id FROM windlass_lane WHERE queue = ?1 AND kind = ?2")
            .and_then(|mut s| s.query_row([queue.as_str(), kind.as_str()], |r| r.get(0)).optional())
            .map_err(sql("lane"))?;
        if let Some(lane) = lane {
            self.keep(lane, queue, kind);
        }
        Ok(lane)
    }

    /// The same, made when missing.
    pub(super) fn make(
        &mut self,
        conn: &Connection,
        queue: &QueueName,
        kind: &Kind,
    ) -> Result<i64> {
        if let Some(lane) = self.find(conn, queue, kind)? {
            return Ok(lane);
        }
        conn.prepare_cached("INSERT INTO windlass_lane (queue, kind) VALUES (?1, ?2)")
            .and_then(|mut s| s.execute([queue.as_str(), kind.as_str()]))
            .map_err(sql("lane"))?;
        let lane = conn.last_insert_rowid();
        self.keep(lane, queue, kind);
        Ok(lane)
    }

    /// All lanes of a queue.
    pub(super) fn of_queue(
        &mut self,
        conn: &Connection,
        queue: &QueueName,
    ) -> Result<Vec<(i64, Kind)>> {
        let mut statement = conn
            .prepare_cached("SELECT id, kind FROM windlass_lane WHERE queue = ?1")
            .map_err(sql("lane"))?;
        let rows = statement
            .query_map([queue.as_str()], |r| Ok((r.get(0)?, Kind::trusted(r.get::<_, String>(1)?))))
            .map_err(sql("lane"))?;
        rows.collect::<rusqlite::Result<_>>().map_err(sql("lane"))
    }

    fn keep(&mut self, lane: i64, queue: &QueueName, kind: &Kind) {
        self.by_id.insert(lane, (queue.clone(), kind.clone()));
        self.by_name.entry(queue.clone()).or_default().insert(kind.clone(), lane);
    }
}

/// The columns [`task_from`] reads, of a table called `t`.
pub(super) const TASK: &str = "t.id, t.lane, t.state, t.priority, t.created_at, t.due_at, \
     t.updated_at, t.started_at, t.finished_at, t.node, t.run, t.attempt, t.retries, t.crashes, \
     t.token, t.version, t.event_n, t.has_children, t.held_from, t.deadline, t.parent, t.extras, \
     t.payload, t.waiting_on, t.progress, t.failure, t.children, t.result, t.settled";

/// How many columns that is.
const TASK_WIDTH: usize = 29;

/// The columns [`held_from`] reads, of a table called `e`.
pub(super) const LEASE: &str = "e.task, e.node, e.token, e.claim, e.in_step, e.alone, e.requests, \
     e.lane, e.priority, e.state, e.due_at, e.started_at, e.run, e.attempt, e.retries, e.crashes, \
     e.version, e.event_n, e.has_children, e.has_unique, e.parent, e.correlation";

/// How many columns that is.
const LEASE_WIDTH: usize = 22;

fn torn(what: &str) -> Error {
    Error::corrupt("read", format!("a stored {what} cannot be read"))
}

fn json<T: DeserializeOwned>(row: &Row<'_>, i: usize, what: &str) -> Result<Option<T>> {
    match row.get_ref(i).and_then(|v| Ok(v.as_str_or_null()?)).map_err(sql("read"))? {
        Some(text) => serde_json::from_str(text).map(Some).map_err(|e| torn(what).because(e)),
        None => Ok(None),
    }
}

fn text(row: &Row<'_>, i: usize) -> Result<Option<Json>> {
    let text = row.get_ref(i).and_then(|v| Ok(v.as_str_or_null()?)).map_err(sql("read"))?;
    Ok(text.map(Json::trusted))
}

/// The integers of a row, `get` after `get`.
fn int(row: &Row<'_>, i: usize) -> Result<i64> {
    row.get(i).map_err(sql("read"))
}

fn small(row: &Row<'_>, i: usize) -> Result<u32> {
    u32::try_from(int(row, i)?).map_err(|_| torn("number"))
}

fn big(row: &Row<'_>, i: usize) -> Result<u64> {
    u64::try_from(int(row, i)?).map_err(|_| torn("number"))
}

fn time(row: &Row<'_>, i: usize) -> Result<Timestamp> {
    int(row, i).map(Timestamp::from_micros)
}

fn priority(row: &Row<'_>, i: usize) -> Result<i8> {
    i8::try_from(int(row, i)?).map_err(|_| torn("priority"))
}

fn optional<T>(row: &Row<'_>, i: usize, make: impl FnOnce(i64) -> T) -> Result<Option<T>> {
    Ok(row.get::<_, Option<i64>>(i).map_err(sql("read"))?.map(make))
}

/// Reads a task that nobody holds. Its lane comes with it.
pub(super) fn task_from(
    conn: &Connection,
    lanes: &mut Lanes,
    row: &Row<'_>,
) -> Result<(Task, i64)> {
    let lane = int(row, 1)?;
    let (queue, kind) = lanes.names(conn, lane)?;
    let payload = text(row, 22)?.ok_or_else(|| torn("payload"))?;
    let extras = json::<windlass_core::task::Extras>(row, 21, "extras")?.map(Arc::new);
    let task = Task {
        id: TaskId::from_key(int(row, 0)?),
        kind,
        queue,
        payload,
        priority: priority(row, 3)?,
        parent: optional(row, 20, TaskId::from_key)?,
        extras,
        created_at: time(row, 4)?,
        deadline: optional(row, 19, Timestamp::from_micros)?,
        standing: standing_from(row)?,
    };
    Ok((task, lane))
}

/// The columns [`fresh_from`] reads, of a table called `t`.
pub(super) const FRESH: &str = "t.lane, t.priority, t.created_at, t.due_at, t.event_n, \
     t.has_children, t.deadline, t.parent, t.extras, t.payload";

/// A queued task that was never claimed nor requeued: everything else about it
/// is as it was born.
pub(super) fn fresh_from(
    conn: &Connection,
    lanes: &mut Lanes,
    id: TaskId,
    row: &Row<'_>,
) -> Result<(Task, i64)> {
    let lane = int(row, 0)?;
    let (queue, kind) = lanes.names(conn, lane)?;
    let created_at = time(row, 2)?;
    let mut standing = Standing::born(State::Queued, time(row, 3)?, created_at);
    standing.event_n = small(row, 4)?;
    standing.has_children = int(row, 5)? != 0;
    let task = Task {
        id,
        kind,
        queue,
        payload: text(row, 9)?.ok_or_else(|| torn("payload"))?,
        priority: priority(row, 1)?,
        parent: optional(row, 7, TaskId::from_key)?,
        extras: json::<windlass_core::task::Extras>(row, 8, "extras")?.map(Arc::new),
        created_at,
        deadline: optional(row, 6, Timestamp::from_micros)?,
        standing,
    };
    Ok((task, lane))
}

fn standing_from(row: &Row<'_>) -> Result<Standing> {
    Ok(Standing {
        state: State::from_code(int(row, 2)?)?,
        due_at: time(row, 5)?,
        run: small(row, 10)?,
        attempt: small(row, 11)?,
        retries: small(row, 12)?,
        crashes: small(row, 13)?,
        token: Token(big(row, 14)?),
        version: Version(big(row, 15)?),
        event_n: small(row, 16)?,
        leased: false,
        settled: int(row, 28)?.cast_unsigned(),
        requests: Requests::NONE,
        held_from: optional(row, 18, State::from_code)?.transpose()?,
        node: optional(row, 9, NodeId::from_key)?,
        started_at: optional(row, 7, Timestamp::from_micros)?,
        finished_at: optional(row, 8, Timestamp::from_micros)?,
        updated_at: time(row, 6)?,
        waiting_on: json(row, 23, "waiting_on")?,
        result: text(row, 27)?,
        failure: json(row, 25, "failure")?,
        progress: json(row, 24, "progress")?,
        has_children: int(row, 17)? != 0,
        children: json(row, 26, "children")?,
    })
}

/// What is known about a held task without its payload.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) card: Card,
    pub(super) lane: i64,
    pub(super) standing: Standing,
    pub(super) claim: ClaimNo,
    pub(super) in_step: bool,
    pub(super) alone: bool,
}

/// Reads a lease whose columns start at `at`.
pub(super) fn held_from(
    conn: &Connection,
    lanes: &mut Lanes,
    row: &Row<'_>,
    at: usize,
) -> Result<Held> {
    let lane = int(row, at + 7)?;
    let (queue, kind) = lanes.names(conn, lane)?;
    let card = Card {
        id: TaskId::from_key(int(row, at)?),
        kind,
        queue,
        priority: priority(row, at + 8)?,
        parent: optional(row, at + 20, TaskId::from_key)?,
        unique: int(row, at + 19)? != 0,
        correlation_id: row.get(at + 21).map_err(sql("read"))?,
    };
    let started = time(row, at + 11)?;
    let mut standing =
        Standing::born(State::from_code(int(row, at + 9)?)?, time(row, at + 10)?, started);
    standing.run = small(row, at + 12)?;
    standing.attempt = small(row, at + 13)?;
    standing.retries = small(row, at + 14)?;
    standing.crashes = small(row, at + 15)?;
    standing.token = Token(big(row, at + 2)?);
    standing.version = Version(big(row, at + 16)?);
    standing.event_n = small(row, at + 17)?;
    standing.leased = true;
    standing.requests = Requests::from_bits(int(row, at + 6)?);
    standing.node = Some(NodeId::from_key(int(row, at + 1)?));
    standing.started_at = Some(started);
    standing.has_children = int(row, at + 18)? != 0;
    Ok(Held {
        card,
        lane,
        standing,
        claim: ClaimNo(big(row, at + 3)?),
        in_step: int(row, at + 4)? != 0,
        alone: int(row, at + 5)? != 0,
    })
}

/// Lays what the lease knows over a task row.
pub(super) fn lay_over(task: &mut Task, held: Held) {
    let row = std::mem::replace(&mut task.standing, held.standing);
    let standing = &mut task.standing;
    standing.result = row.result;
    standing.failure = row.failure;
    standing.progress = row.progress;
    standing.children = row.children;
    standing.held_from = row.held_from;
}

/// The columns that say how a task completed, of a table called `d`.
const DONE: &str = "d.id, d.node, d.started_at, d.finished_at, d.run, d.attempt, d.retries, \
     d.crashes, d.token, d.version, d.event_n, d.settled, d.result";

/// Lays the end of a completed task over its row.
fn lay_done(task: &mut Task, row: &Row<'_>, at: usize) -> Result<()> {
    let finished = time(row, at + 3)?;
    let standing = &mut task.standing;
    standing.state = State::Completed;
    standing.node = Some(NodeId::from_key(int(row, at + 1)?));
    standing.started_at = Some(time(row, at + 2)?);
    standing.finished_at = Some(finished);
    standing.due_at = finished;
    standing.updated_at = finished;
    standing.run = small(row, at + 4)?;
    standing.attempt = small(row, at + 5)?;
    standing.retries = small(row, at + 6)?;
    standing.crashes = small(row, at + 7)?;
    standing.token = Token(big(row, at + 8)?);
    standing.version = Version(big(row, at + 9)?);
    standing.event_n = small(row, at + 10)?;
    standing.settled = int(row, at + 11)?.cast_unsigned();
    standing.result = text(row, at + 12)?;
    standing.waiting_on = None;
    Ok(())
}

/// Selects whole tasks; conditions follow. Read by [`whole_task`].
pub(super) static WHOLE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {TASK}, {LEASE}, {DONE} FROM windlass_task t LEFT JOIN windlass_lease e ON e.task = t.id
         LEFT JOIN windlass_done d ON d.id = t.id"
    )
});

/// Reads a task with what its lease or its end says.
pub(super) fn whole_task(
    conn: &Connection,
    lanes: &mut Lanes,
    row: &Row<'_>,
) -> Result<(Task, i64)> {
    let (mut task, lane) = task_from(conn, lanes, row)?;
    let (lease, done) = (TASK_WIDTH, TASK_WIDTH + LEASE_WIDTH);
    if optional(row, lease, |id| id)?.is_some() {
        lay_over(&mut task, held_from(conn, lanes, row, lease)?);
    } else if optional(row, done, |id| id)?.is_some() {
        lay_done(&mut task, row, done)?;
    }
    Ok((task, lane))
}

/// One whole task, and its lane.
pub(super) fn one_task(
    conn: &Connection,
    lanes: &mut Lanes,
    id: TaskId,
) -> Result<Option<(Task, i64)>> {
    let text = format!("{} WHERE t.id = ?1", *WHOLE);
    let mut statement = conn.prepare_cached(&text).map_err(sql("task"))?;
    let mut rows = statement.query([id.key()]).map_err(sql("task"))?;
    rows.next().map_err(sql("task"))?.map(|row| whole_task(conn, lanes, row)).transpose()
}

/// The columns [`step_from`] reads; the log, or nothing in its place, follows.
const STEP: &str =
    "version, live, outcome, run, attempt, node, at, duration, name, class, reason, output";

/// Whether the logs of steps are wanted: only people read them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Logs {
    Read,
    Left,
}

fn step_from(row: &Row<'_>) -> Result<StepEntry> {
    let class: Option<String> = row.get(9).map_err(sql("read"))?;
    let record = StepRecord {
        name: row.get(8).map_err(sql("read"))?,
        outcome: StepOutcome::from_code(int(row, 2)?)?,
        version: Version(big(row, 0)?),
        output: text(row, 11)?,
        reason: row.get(10).map_err(sql("read"))?,
        class: class.map(|c| c.parse()).transpose()?,
        duration: Duration::from_micros(big(row, 7)?),
        log: row.get(12).map_err(sql("read"))?,
    };
    Ok(StepEntry {
        record,
        live: int(row, 1)? != 0,
        run: small(row, 3)?,
        attempt: small(row, 4)?,
        node: NodeId::from_key(int(row, 5)?),
        at: time(row, 6)?,
    })
}

/// All steps ever recorded for a task, in order.
pub(super) fn steps_of(conn: &Connection, task: TaskId, logs: Logs) -> Result<Vec<StepEntry>> {
    let log = if logs == Logs::Read { "log" } else { "NULL" };
    let text = format!("SELECT {STEP}, {log} FROM windlass_step WHERE task = ?1 ORDER BY version");
    let mut statement = conn.prepare_cached(&text).map_err(sql("steps"))?;
    let mut rows = statement.query(params![task.key()]).map_err(sql("steps"))?;
    let mut steps = vec![];
    while let Some(row) = rows.next().map_err(sql("steps"))? {
        steps.push(step_from(row)?);
    }
    Ok(steps)
}

/// The columns [`queue_rules_from`] reads, of a table called `q`.
pub(super) const QUEUE: &str = "q.paused, q.draining, q.concurrency, q.depth_max";

/// Reads a queue's settings whose columns start at `at`.
pub(super) fn queue_rules_from(row: &Row<'_>, at: usize) -> rusqlite::Result<QueueRules> {
    Ok(QueueRules {
        paused: row.get(at)?,
        draining: row.get(at + 1)?,
        concurrency: row.get(at + 2)?,
        depth_max: row.get::<_, Option<i64>>(at + 3)?.map(i64::cast_unsigned),
    })
}

/// The columns [`node_from`] reads, of a table called `n`.
pub(super) const NODE: &str = "n.id, n.slot, n.name, n.remote, n.queues, n.version, n.joined_at, \
     n.heartbeat_at, n.lease_until, n.stage, n.paused, n.consumed, n.failed";

pub(super) fn stage_code(stage: Stage) -> i64 {
    match stage {
        Stage::Serving => 0,
        Stage::Draining => 1,
        Stage::Leaving => 2,
    }
}

pub(super) fn node_from(row: &Row<'_>) -> Result<NodeInfo> {
    let stage = match int(row, 9)? {
        0 => Stage::Serving,
        1 => Stage::Draining,
        2 => Stage::Leaving,
        _ => return Err(torn("node")),
    };
    Ok(NodeInfo {
        id: NodeId::from_key(int(row, 0)?),
        slot: u16::try_from(int(row, 1)?).map_err(|_| torn("node"))?,
        name: row.get(2).map_err(sql("read"))?,
        remote: int(row, 3)? != 0,
        queues: json(row, 4, "node")?.unwrap_or_default(),
        version: row.get(5).map_err(sql("read"))?,
        joined_at: time(row, 6)?,
        heartbeat_at: time(row, 7)?,
        lease_until: time(row, 8)?,
        stage,
        paused: int(row, 10)? != 0,
        active: 0,
        consumed: big(row, 11)?,
        failed: big(row, 12)?,
    })
}
