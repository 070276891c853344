//! A store in this process's memory: for tests, for trying things out, and for
//! work that may be lost with the process. One lock around plain maps; every
//! call checks first and writes after, so a refused call leaves nothing behind.

mod batches;
mod change;
mod claim;
mod outbox;
mod read;
mod record;
mod settings;
mod standing;
mod submit;
mod upkeep;

use crate::store::guards::Guards;
use crate::store::{QueueRules, check_change, check_writes, instant};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use windlass_core::Result;
use windlass_core::access::AccessToken;
use windlass_core::batch::Batch;
use windlass_core::checkpoint::StepEntry;
use windlass_core::clock::{Now, Timestamp};
use windlass_core::control::Changed;
use windlass_core::event::{Event, Position};
use windlass_core::id::{BatchId, NodeId, TaskId};
use windlass_core::json::Json;
use windlass_core::lease::ClaimNo;
use windlass_core::limits::Limit;
use windlass_core::schedule::Schedule;
use windlass_core::standing::Events;
use windlass_core::store::{
    Actor, Attempt, AuditRow, BoxFuture, Capabilities, Change, Claim, Claimed, Job, Joined,
    Migrated, NewNode, NodeInfo, OutboxOp, OutboxRow, OutboxRule, PIECES_MAX, Renewal, Renewed,
    Setting, Store, Submit, Submitted, Upkept, Write, Written,
};
use windlass_core::task::{Kind, QueueName, Task};

/// The store.
#[derive(Debug, Default)]
pub struct MemoryStore {
    inner: Mutex<Inner>,
}

impl MemoryStore {
    pub fn new() -> Self {
        MemoryStore::default()
    }

    /// A store with one guard switched off, to prove that the suite notices.
    #[cfg(feature = "sabotage")]
    pub fn sabotaged(guards: Guards) -> Self {
        MemoryStore { inner: Mutex::new(Inner { guards, ..Inner::default() }) }
    }

    fn with<T: Send + 'static>(&self, f: impl FnOnce(&mut Inner) -> T) -> BoxFuture<'_, T> {
        let answer = f(&mut self.inner.lock());
        Box::pin(std::future::ready(answer))
    }
}

/// All that is known about one task.
#[derive(Debug)]
struct Row {
    task: Task,
    child_key: Option<String>,
    held: Option<Held>,
    steps: Vec<StepEntry>,
    /// Attempts that ended while the task went on; the latest one is in the
    /// task's standing.
    attempts: Vec<Attempt>,
    dead_letter: bool,
}

/// What the store knows about a lease beside the standing.
#[derive(Debug, Clone, Copy)]
struct Held {
    claim: ClaimNo,
    in_step: bool,
    alone: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct OutboxLane {
    node: Option<NodeId>,
    until: Timestamp,
    not_before: Timestamp,
}

/// Key order of the ready set is claim order.
type ReadyKey = (QueueName, i8, TaskId);

#[derive(Debug, Default)]
struct Inner {
    guards: Guards,
    tasks: BTreeMap<TaskId, Row>,
    ready: BTreeSet<ReadyKey>,
    /// How many of each kind are ready in a queue.
    ready_kinds: BTreeMap<(QueueName, Kind), usize>,
    due: BTreeSet<(Timestamp, TaskId)>,
    leased: BTreeSet<TaskId>,
    children: BTreeMap<TaskId, BTreeMap<String, TaskId>>,
    /// Parents to be judged.
    parents_due: BTreeSet<TaskId>,
    idempotency: HashMap<String, (u128, TaskId, Timestamp)>,
    /// Key to holder, and until when for keys that hold for a duration.
    unique: HashMap<String, (TaskId, Option<Timestamp>)>,
    nodes: BTreeMap<NodeId, NodeInfo>,
    announced_lost: BTreeSet<NodeId>,
    newest_node: i64,
    queues: BTreeMap<QueueName, QueueRules>,
    events: VecDeque<Event>,
    newest: Position,
    /// Only filled while the events guard is broken.
    late_events: Events,
    audit: VecDeque<AuditRow>,
    audit_seq: i64,
    settings: BTreeMap<String, Json>,
    schedules: BTreeMap<String, Schedule>,
    limits: BTreeMap<String, Limit>,
    tokens: BTreeMap<String, AccessToken>,
    batches: BTreeMap<BatchId, Batch>,
    outbox_rule: OutboxRule,
    outbox: BTreeMap<i64, OutboxRow>,
    outbox_seq: i64,
    outbox_lanes: BTreeMap<u8, OutboxLane>,
}

impl Store for MemoryStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities { name: "memory", durable: false, shared: false }
    }

    fn migrate(&self) -> BoxFuture<'_, Result<Migrated>> {
        Box::pin(std::future::ready(Ok(Migrated { from: 1, to: 1 })))
    }

    fn join(&self, node: NewNode, now: Now) -> BoxFuture<'_, Result<Joined>> {
        self.with(|inner| inner.join(node, instant(now)))
    }

    fn submit(&self, batch: Submit, now: Now) -> BoxFuture<'_, Result<Vec<Submitted>>> {
        self.with(|inner| inner.submit(&batch, instant(now)))
    }

    fn claim(&self, claim: Claim, now: Now) -> BoxFuture<'_, Result<Vec<Claimed>>> {
        self.with(|inner| inner.claim(&claim, instant(now)))
    }

    fn renew(&self, renewal: Renewal, now: Now) -> BoxFuture<'_, Result<Renewed>> {
        self.with(|inner| inner.renew(&renewal, instant(now)))
    }

    fn record(&self, writes: Vec<Write>, now: Now) -> BoxFuture<'_, Result<Vec<Result<Written>>>> {
        self.with(|inner| {
            check_writes(&writes)?;
            Ok(writes.iter().map(|w| inner.record(w, instant(now))).collect())
        })
    }

    fn change(
        &self,
        change: Change,
        by: Actor,
        now: Now,
    ) -> BoxFuture<'_, Result<Vec<Result<Changed>>>> {
        self.with(|inner| {
            check_change(&change)?;
            inner.change(&change, &by, instant(now))
        })
    }

    fn upkeep(&self, job: Job, limit: usize, now: Now) -> BoxFuture<'_, Result<Upkept>> {
        self.with(|inner| inner.upkeep(job, limit.min(PIECES_MAX), instant(now)))
    }

    fn put(&self, setting: Setting, by: Actor, now: Now) -> BoxFuture<'_, Result<()>> {
        self.with(|inner| inner.put(setting, &by, instant(now)))
    }

    fn outbox(&self, op: OutboxOp, now: Now) -> BoxFuture<'_, Result<Vec<OutboxRow>>> {
        self.with(|inner| inner.outbox(&op, instant(now)))
    }
}
