//! The contract of every store: few methods, batches only, object-safe. A store
//! writes what the rules in this crate decided and refuses what they refuse; it
//! computes no retry, no backoff, no cron. [`Store`] is for the engine,
//! [`Reader`] for everything that only looks. The conformance suite is the
//! other half of this file: every promise here is a case there.

use crate::access::AccessToken;
use crate::batch::{BatchStep, Order};
use crate::checkpoint::{Checkpoint, StepRecord, Version};
use crate::clock::{Now, Timestamp};
use crate::control::{Changed, TaskChange};
use crate::error::Result;
use crate::hash::Fnv;
use crate::id::{BatchId, NodeId, TaskId};
use crate::json::Json;
use crate::lease::{ClaimNo, LeaseKey, PoisonRule, Requests, Token};
use crate::limits::Limit;
use crate::schedule::Schedule;
use crate::settle::Settlement;
use crate::state::State;
use crate::task::{Kind, NewTask, Progress, QueueName, Task};
use std::fmt;
use std::future::Future;
use std::hash::{Hash, Hasher};
use std::pin::Pin;
use std::time::Duration;

pub use crate::read::{
    Attempt, AttemptEnd, AuditRow, Batches, DeadLetter, NodeInfo, Page, Query, QueueInfo, Reader,
    Stats,
};

/// One allocation per batch buys object safety.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Most rows one page of a list may have.
pub const PAGE_MAX: usize = 500;
/// Most tasks one claim may take.
pub const CLAIM_MAX: usize = 1000;
/// Most writes one record call, tasks one change, or ids one claim may name.
pub const CALL_MAX: usize = 10_000;
/// Most pieces one upkeep call does, and rows one outbox call gives; larger
/// limits count as this.
pub const PIECES_MAX: usize = 10_000;

/// What a store can do beyond the common ground. The suite skips a case only by
/// one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// The feature's, folder's and URL scheme's name.
    pub name: &'static str,
    /// Survives the end of the process.
    pub durable: bool,
    /// More than one process may use it at once.
    pub shared: bool,
}

/// A node that wants to take part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewNode {
    pub name: String,
    /// A worker in another process that claims over the API.
    pub remote: bool,
    pub queues: Vec<QueueName>,
    pub version: String,
    pub lease: Duration,
    /// Nobody else can own this store: leases of earlier incarnations that are
    /// not remote are void at once. Remote ones that lived when anybody was last
    /// heard of live for `lease` from now: nobody could take their heartbeats.
    pub sole: bool,
    /// The process had this identity before and lost its lease, but did not
    /// die: what it held is taken over without counting a crash.
    pub instead_of: Option<NodeId>,
}

/// The identity a node got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Joined {
    pub node: NodeId,
    /// For this node's [`crate::id::IdMint`].
    pub slot: u16,
    pub lease_until: Timestamp,
}

/// A batch of tasks, all or nothing.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Submit {
    pub tasks: Vec<NewTask>,
    /// Moves a schedule on in the same transaction.
    pub fires: Option<Fire>,
}

impl From<Vec<NewTask>> for Submit {
    fn from(tasks: Vec<NewTask>) -> Self {
        Submit { tasks, fires: None }
    }
}

/// A schedule that fires: refused with `Conflict` when its `next_at` is no
/// longer the expected one, so that each instant fires once across nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fire {
    pub schedule: String,
    pub expected: Option<Timestamp>,
    pub next_at: Option<Timestamp>,
    pub last_at: Option<Timestamp>,
}

/// The answer for one submitted task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Submitted {
    /// Written now, or written before by this very submission.
    New { id: TaskId, state: State },
    /// The idempotency key was answered before.
    Replayed { id: TaskId },
    /// The unique key is held by this task.
    Existing { id: TaskId },
}

impl Submitted {
    pub fn id(self) -> TaskId {
        match self {
            Submitted::New { id, .. } | Submitted::Replayed { id } | Submitted::Existing { id } => {
                id
            }
        }
    }
}

/// One queue a node serves, and how much of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lane {
    pub queue: QueueName,
    pub max: usize,
    pub kinds: Kinds,
}

/// The kinds a node serves in a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kinds {
    Any,
    /// Only these, each at most so many times.
    Only(Vec<(Kind, usize)>),
}

impl Kinds {
    /// How many of `kind` may be taken in one claim.
    pub fn max(&self, kind: &Kind) -> usize {
        match self {
            Kinds::Any => usize::MAX,
            Kinds::Only(list) => list.iter().find(|(k, _)| k == kind).map_or(0, |(_, max)| *max),
        }
    }
}

/// Where a claim looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// The heads of the queues: priority first, then age.
    Ready,
    /// These tasks, if they are ready (a hint, or a direct dispatch).
    Ids(Vec<TaskId>),
    /// Running tasks whose node's lease has ended.
    Expired,
}

/// A node asks for work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub node: NodeId,
    /// Rises with each claim of this node; see [`Renewal::answered`].
    pub number: ClaimNo,
    pub wanted: Wanted,
    pub lanes: Vec<Lane>,
    /// At most [`CLAIM_MAX`].
    pub max: usize,
    pub poison: PoisonRule,
    /// The tasks begin at once: a death of the node counts as a crash inside a
    /// step. Otherwise the first [`Write`] that begins or records says so. A
    /// task that must run alone never begins with its claim: it waits until its
    /// node is empty, and the node's death meanwhile is not its fault.
    pub begins: bool,
}

/// A task with its lease.
#[derive(Debug, Clone, PartialEq)]
pub struct Claimed {
    /// Its standing holds the token, attempt and run.
    pub task: Task,
    /// What it resumes from, without logs; `None` when it has recorded nothing.
    pub checkpoint: Option<Checkpoint>,
    /// It may have killed its node before: run nothing beside it, and say with
    /// a [`Write`] that it begins.
    pub alone: bool,
}

/// A node's heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renewal {
    pub node: NodeId,
    pub lease: Duration,
    /// What the node really holds.
    pub held: Vec<(TaskId, Token)>,
    /// Every claim up to this number was answered or given up. Tasks of those
    /// claims that are not in `held` go back to their queue, nothing burnt;
    /// tasks of later claims may still be on their way.
    pub answered: ClaimNo,
    pub stage: Stage,
    pub consumed: u64,
    pub failed: u64,
    pub tally: Tally,
}

/// How a heartbeat counts attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Tally {
    /// Since the node joined.
    #[default]
    Total,
    /// Since the last heartbeat: for nodes that speak through several processes,
    /// none of which knows the total.
    More,
}

impl Tally {
    /// The count after a heartbeat that says `said`.
    pub fn count(self, before: u64, said: u64) -> u64 {
        match self {
            Tally::Total => said,
            Tally::More => before.saturating_add(said),
        }
    }
}

impl Renewal {
    /// Whether a task of this claim that is not held must go back. A node that
    /// leaves waits for no answer any more.
    pub fn has_answer(&self, claim: ClaimNo) -> bool {
        claim <= self.answered || self.stage == Stage::Leaving
    }
}

/// Where a node is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    Serving,
    Draining,
    /// The last word: what is not held goes back, the node's row goes away once
    /// nothing is held.
    Leaving,
}

/// The answer to a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Renewed {
    pub lease_until: Timestamp,
    /// Held by the node's word, but no longer in the store.
    pub lost: Vec<TaskId>,
    /// What people want of held tasks.
    pub requests: Vec<(TaskId, Requests)>,
    /// Tasks of lost claim answers that went back.
    pub given_back: usize,
    /// People paused or drained this node.
    pub paused: bool,
    pub draining: bool,
}

/// One write about a running task. All of it happens, or nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    pub lease: LeaseKey,
    /// The task has entered a step: a death of the node now counts as a crash.
    pub begins: bool,
    /// On resume: keep only so many finished steps, and say why.
    pub keep_steps: Option<(usize, String)>,
    /// In order, each with a version greater than the one before.
    pub steps: Vec<StepRecord>,
    pub progress: Option<Progress>,
    /// Written with the step that made them, unique under their parent.
    pub children: Vec<NewTask>,
    /// Ends the lease.
    pub settle: Option<Settlement>,
}

impl Write {
    pub fn new(lease: LeaseKey) -> Self {
        Write {
            lease,
            begins: false,
            keep_steps: None,
            steps: vec![],
            progress: None,
            children: vec![],
            settle: None,
        }
    }

    /// What makes a write this very write: a store keeps it with the attempt
    /// that a write ends, and knows the same write again by it. Never 0.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = Fnv::default();
        (self.lease, &self.keep_steps, &self.steps, &self.progress).hash(&mut hasher);
        self.children.iter().for_each(|child| child.id.hash(&mut hasher));
        self.settle.hash(&mut hasher);
        hasher.finish().max(1)
    }

    pub fn settling(lease: LeaseKey, settlement: Settlement) -> Self {
        Write { settle: Some(settlement), ..Write::new(lease) }
    }
}

/// A write that is in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    pub state: State,
    pub version: Version,
    /// What people want of the task meanwhile.
    pub requests: Requests,
    /// It had been written before; nothing changed now.
    pub repeated: bool,
}

/// Who changes something, for the audit list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    pub who: String,
    /// Address or program it came from.
    pub origin: String,
}

impl Actor {
    /// Windlass itself.
    pub fn engine() -> Self {
        Actor { who: "windlass".to_owned(), origin: "engine".to_owned() }
    }
}

/// What an operator changes.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    Tasks {
        ids: Vec<TaskId>,
        change: TaskChange,
    },
    /// A new task with the given id that does the work of an ended one again.
    Rerun {
        of: TaskId,
        id: TaskId,
    },
    Queue {
        name: QueueName,
        change: QueueChange,
    },
    Node {
        id: NodeId,
        change: NodeChange,
    },
    /// Begins a bulk job; the same order again is `Already`. `StateConflict` when
    /// [`RUNNING_MAX`](crate::batch::RUNNING_MAX) of them run.
    Batch(Box<Order>),
    /// Does a piece of a bulk job: its tasks change and the job moves on, or
    /// nothing happens, with `VersionConflict` when it was not made from the job
    /// as it is. A task that no longer matches is not touched. One answer per
    /// target; the job's end has an audit row in the name of who began it.
    Step(Box<BatchStep>),
    StopBatch(BatchId),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueChange {
    /// Nothing of the queue is claimed.
    Pause,
    /// Submissions and reruns are refused; what is in the queue goes on: its
    /// tasks run, retry, are requeued and write children.
    Drain,
    /// Ends a pause and a drain.
    Resume,
    /// Across the cluster; `None`: no limit.
    Concurrency(Option<u32>),
    /// Submissions beyond it are refused; `None`: no limit.
    DepthMax(Option<u64>),
}

impl QueueChange {
    pub fn verb(self) -> &'static str {
        match self {
            QueueChange::Pause => "pause",
            QueueChange::Drain => "drain",
            QueueChange::Resume => "resume",
            QueueChange::Concurrency(_) => "concurrency",
            QueueChange::DepthMax(_) => "depth_max",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeChange {
    Pause,
    Resume,
    Drain,
}

impl NodeChange {
    pub fn verb(self) -> &'static str {
        match self {
            NodeChange::Pause => "pause",
            NodeChange::Resume => "resume",
            NodeChange::Drain => "drain",
        }
    }
}

/// Small periodic work, safe on every node at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Job {
    /// Moves tasks whose time has come to their queue.
    Promote,
    /// Fails tasks that did not start before their deadline.
    Expire,
    /// Judges parents whose children ended, and ends the children of parents
    /// that ended first.
    Children,
    /// Deletes what retention no longer wants.
    Purge(Retention),
    /// Forgets idempotency and unique keys whose time is over.
    Keys,
    /// Announces nodes whose lease ended, and forgets those that left nothing.
    Nodes,
}

/// How long ended things are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    pub ended: Duration,
    pub dead_letters: Duration,
    pub events: Duration,
    pub audit: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        let days = |n: u64| Duration::from_secs(n * 86_400);
        Retention { ended: days(7), dead_letters: days(14), events: days(7), audit: days(90) }
    }
}

/// What a job did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Upkept {
    pub done: usize,
    /// The limit was reached: call again.
    pub more: bool,
    /// Queues that got work.
    pub ready: Vec<QueueName>,
}

/// A stored setting.
#[derive(Debug, Clone, PartialEq)]
pub enum Setting {
    Value {
        key: String,
        value: Option<Json>,
    },
    /// Keeps `next_at` and `last_at` of an existing schedule whose `when` did
    /// not change.
    Schedule(Schedule),
    DeleteSchedule(String),
    Limit(Limit),
    DeleteLimit(String),
    /// A new access token: `Conflict` when one that is live has its name.
    Token(AccessToken),
    /// `NotFound` when there is none of this name.
    RevokeToken(String),
    /// Which facts leave the store through the outbox.
    Outbox(OutboxRule),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutboxRule {
    pub dead_letters: bool,
    pub events: bool,
}

/// What an outbox row is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OutboxTopic {
    DeadLetter,
    Event,
}

/// A fact on its way out, in order within its lane.
#[derive(Debug, Clone, PartialEq)]
pub struct OutboxRow {
    pub seq: i64,
    pub lane: u8,
    pub topic: OutboxTopic,
    pub task: Option<TaskId>,
    pub body: Json,
}

/// How many lanes the outbox has; all rows of a task share one.
pub const OUTBOX_LANES: u8 = 16;

/// The lane of a task's rows.
pub fn outbox_lane(task: Option<TaskId>) -> u8 {
    let key = task.map_or(0, |t| t.key().cast_unsigned());
    // The low bits are a sequence that restarts each millisecond; mix them.
    let mixed = key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56;
    u8::try_from(mixed % u64::from(OUTBOX_LANES)).unwrap_or(0)
}

/// Work on the outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutboxOp {
    /// Takes free lanes for `hold` and gives their oldest rows.
    Take { node: NodeId, hold: Duration, max: usize },
    /// The broker confirmed these.
    Done { node: NodeId, seqs: Vec<i64> },
    /// The lane of this row waits until `at`.
    Later { node: NodeId, seq: i64, at: Timestamp },
}

/// The store, for the engine. After an error of kind `Unavailable` a call may
/// have been written or not, and may be repeated: `submit` and a `record` with
/// steps or a settlement answer as written, `renew` and `upkeep` simply do what
/// is left, a change answers `Already` or says that the state has moved on, a
/// second `join` is a second node, and a claim whose answer was lost is given
/// back by the next renewal. Progress that is sent again is told again.
pub trait Store: Reader + fmt::Debug {
    fn capabilities(&self) -> Capabilities;

    /// Brings the schema up to date; killed at any statement, it is completed
    /// by the next call. Safe to call again.
    fn migrate(&self) -> BoxFuture<'_, Result<Migrated>>;

    /// Gives a node its identity and slot.
    fn join(&self, node: NewNode, now: Now) -> BoxFuture<'_, Result<Joined>>;

    /// Writes tasks, keys and events in one transaction, all or nothing. One
    /// answer per task, in order. `Invalid` names the first bad task;
    /// `KeyReused` when an idempotency key was used with another body;
    /// `QueueFull` when a queue is over its depth limit; `StateConflict` when it
    /// drains and takes no new tasks, not even a schedule's, which then keeps its
    /// place;
    /// `NotFound` or `Conflict` when a parent is missing or has ended.
    fn submit(&self, batch: Submit, now: Now) -> BoxFuture<'_, Result<Vec<Submitted>>>;

    /// Gives leases with new tokens, each task to one caller. Highest priority
    /// first, then oldest. Paused queues and kinds not served are passed over;
    /// tasks past their deadline fail here instead of starting. `LeaseLost`
    /// when the node's own lease has ended.
    fn claim(&self, claim: Claim, now: Now) -> BoxFuture<'_, Result<Vec<Claimed>>>;

    /// Extends the node's lease. `LeaseLost` when it has ended: an incarnation
    /// is never revived.
    fn renew(&self, renewal: Renewal, now: Now) -> BoxFuture<'_, Result<Renewed>>;

    /// Writes about running tasks, each item by itself: `LeaseLost` for a stale
    /// token, `VersionConflict` for an old version, `Conflict` for a transition
    /// the table does not have. The same write again answers `repeated`.
    fn record(&self, writes: Vec<Write>, now: Now) -> BoxFuture<'_, Result<Vec<Result<Written>>>>;

    /// An operator's change with its audit row, one answer per task. A bulk job
    /// has rows for its beginning, its end and a stop, not for each task.
    fn change(
        &self,
        change: Change,
        by: Actor,
        now: Now,
    ) -> BoxFuture<'_, Result<Vec<Result<Changed>>>>;

    /// Does at most `limit` pieces of a job, [`PIECES_MAX`] at the most.
    fn upkeep(&self, job: Job, limit: usize, now: Now) -> BoxFuture<'_, Result<Upkept>>;

    /// Writes a setting with its audit row.
    fn put(&self, setting: Setting, by: Actor, now: Now) -> BoxFuture<'_, Result<()>>;

    /// Facts on their way out. `Take` returns rows in order per lane.
    fn outbox(&self, op: OutboxOp, now: Now) -> BoxFuture<'_, Result<Vec<OutboxRow>>>;
}

/// What `migrate` did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migrated {
    pub from: u32,
    pub to: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_traits_are_object_safe_and_a_store_is_a_reader() {
        fn reader_of(store: &dyn Store) -> &dyn Reader {
            store
        }
        let _ = reader_of;
    }

    #[test]
    fn lanes_spread_and_stay() {
        let lanes: std::collections::BTreeSet<u8> =
            (0..200).map(|k| outbox_lane(Some(TaskId::from_key(k << 12)))).collect();
        assert!(lanes.len() > 8, "{lanes:?}");
        assert!(lanes.iter().all(|l| *l < OUTBOX_LANES));
    }
}
