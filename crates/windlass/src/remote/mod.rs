//! Workers in other processes: what they ask and say, as plain values, whatever
//! carries them. Each worker is a node of its own in the store. It leases tasks,
//! reports steps, progress and ends with the token of its lease, and names what it
//! holds: that is its heartbeat. Nothing here is a session: any engine on the same
//! store may take any call, and what one remembers only saves reads.

mod asks;
mod attend;
mod finish;
mod give;
mod hub;
mod known;
mod lease;
mod report;

pub use asks::Listening;
pub(crate) use attend::attend;

use crate::engine::Engine;
use crate::parts::Parts;
use asks::Asks;
use hub::Hub;
use known::Known;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use windlass_core::checkpoint::{Checkpoint, StepOutcome};
use windlass_core::clock::Timestamp;
use windlass_core::error::Result;
use windlass_core::id::{NodeId, TaskId};
use windlass_core::json::Json;
use windlass_core::lease::{ClaimNo, Token};
use windlass_core::outcome::Class;
use windlass_core::store::NodeChange;
use windlass_core::task::{Kind, Progress, QueueName, Task};

/// Most kinds and queues a worker may ask for.
pub const KINDS_MAX: usize = 256;
pub const QUEUES_MAX: usize = 64;
/// Most tasks one lease call gives.
pub const LEASES_MAX: usize = 1000;
/// Longest wait of a lease call.
pub const WAIT_MAX: Duration = Duration::from_secs(60);
/// Most reports, and most held tasks, in one report call.
pub const REPORTS_MAX: usize = 1000;
pub const HELD_MAX: usize = 10_000;

/// A worker asks for work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRequest {
    /// Its name in lists of nodes.
    pub worker: String,
    /// Given by the first answer; without it the worker joins as a new node.
    pub id: Option<NodeId>,
    pub kinds: Vec<Kind>,
    /// Empty: `default`, and the queues that the kinds' rules name.
    pub queues: Vec<QueueName>,
    /// 1 to [`LEASES_MAX`]: its free slots.
    pub max: usize,
    /// Answer when there is work, or after this time; at most [`WAIT_MAX`].
    pub wait: Duration,
    /// Of the worker's program, for lists of nodes.
    pub version: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct LeaseAnswer {
    pub id: NodeId,
    /// How long its leases last without a report.
    pub lease: Duration,
    pub leases: Vec<Lease>,
}

/// A task that the worker holds now.
#[derive(Debug, Clone, PartialEq)]
pub struct Lease {
    pub task: Task,
    pub token: Token,
    /// What it resumes from; `None` when it has recorded nothing.
    pub checkpoint: Option<Checkpoint>,
    pub step_timeout: Duration,
    pub task_timeout: Duration,
    /// It may have killed its workers before: nothing may run beside it.
    pub alone: bool,
}

/// A worker says what it did and what it holds.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReportRequest {
    /// Everything it holds. What the store knows beyond that goes back.
    pub held: Vec<(TaskId, Token)>,
    pub reports: Vec<Report>,
    /// It stops: what it does not hold any more goes back, and so does its row
    /// once nothing is held.
    pub leaving: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    pub task: TaskId,
    pub token: Token,
    pub said: Said,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    Step(Step),
    Progress(Progress),
    Finish(Finish),
}

/// One step, or one failed try of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    pub name: String,
    pub outcome: StepOutcome,
    pub output: Option<Json>,
    /// Why it was skipped or failed.
    pub reason: Option<String>,
    /// Greater than the checkpoint's; the first is one more.
    pub version: u64,
    pub duration: Duration,
}

/// How an attempt ended, in the worker's words.
#[derive(Debug, Clone, PartialEq)]
pub enum Finish {
    /// Without an output the result is what the steps gave, merged.
    Done {
        output: Option<Json>,
    },
    Fail(Trouble),
    /// Try again, not before `delay` is over.
    Retry {
        trouble: Trouble,
        delay: Option<Duration>,
    },
    Snooze {
        delay: Duration,
    },
    /// Back to the queue, nothing burnt.
    Release,
}

/// An error, in the worker's words.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Trouble {
    pub message: String,
    pub class: Option<Class>,
    pub detail: Option<String>,
    pub step: Option<String>,
}

#[derive(Debug)]
pub struct ReportAnswer {
    /// One for each report, in order.
    pub results: Vec<Result<()>>,
    pub requests: Vec<Asked>,
}

/// What is wanted of a held task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    pub task: TaskId,
    pub what: Wish,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// Stop, and say so with any finish; people want it ended.
    Cancel,
    /// Stop after the step and release it.
    Pause,
    /// Stop: it is not this worker's any more, and nothing it says is heard.
    Lost,
}

/// What an engine knows of workers in other processes.
#[derive(Debug, Default)]
pub(crate) struct Remote {
    pub(crate) hub: Hub,
    known: Known,
    pub(crate) asks: Asks,
    /// The newest number of a claim.
    claims: AtomicU64,
    /// The queue that is asked first next time.
    turn: AtomicUsize,
}

impl Remote {
    /// Claims are numbered by the clock, so that a heartbeat through any engine can
    /// say which answers must have arrived by now.
    fn next_claim(&self, now: Timestamp) -> ClaimNo {
        let number = by_clock(now);
        let step = |before: u64| Some(number.max(before + 1));
        let order = Ordering::AcqRel;
        let before = self.claims.fetch_update(order, Ordering::Acquire, step).unwrap_or_default();
        ClaimNo(number.max(before + 1))
    }

    /// A person changed a node.
    pub(crate) fn changed(&self, id: NodeId, change: NodeChange) {
        let held_back = change != NodeChange::Resume;
        self.known.worker(id, |worker| worker.held_back = held_back);
        self.hub.call_worker(id);
    }

    pub(crate) fn serves(&self, kind: &str, uptime: Duration) -> bool {
        self.known.serves(kind, uptime)
    }
}

fn by_clock(at: Timestamp) -> u64 {
    u64::try_from(at.as_micros()).unwrap_or_default()
}

/// What workers in other processes may do; see [`Engine::workers`].
#[derive(Debug, Clone)]
pub struct Workers {
    parts: Arc<Parts>,
}

impl Engine {
    /// For servers that let workers in other processes take part.
    pub fn workers(&self) -> Workers {
        Workers { parts: self.parts.clone() }
    }
}
