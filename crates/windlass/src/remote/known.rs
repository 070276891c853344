//! What this process remembers of workers and of the leases it gave. All of it
//! can be forgotten at any time and is read again from the store: any process may
//! take any call. It saves a read for each finished task, and keeps what only
//! makes sense in one process: when a worker was told to stop, which progress
//! waits to be written.

use super::hub::Interest;
use crate::meters::Pair;
use crate::run::PROGRESS_EVERY;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use windlass_core::clock::Timestamp;
use windlass_core::hash::IdMap;
use windlass_core::id::{NodeId, TaskId};
use windlass_core::lease::{LeaseKey, Requests, Token};
use windlass_core::retry::Exponential;
use windlass_core::state::State;
use windlass_core::store::NodeInfo;
use windlass_core::store::Stage;
use windlass_core::task::{Kind, Progress, QueueName, Task};

/// Most workers and leases that are remembered.
const WORKERS_MAX: usize = 4096;
const GIVEN_MAX: usize = 100_000;

/// A worker, as far as this process has heard of it. Instants are uptimes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Worker {
    /// Its lease has not ended before this.
    pub(crate) alive_until: Duration,
    /// When the store was last asked about it.
    pub(crate) seen: Duration,
    /// When it was last renewed from here.
    pub(crate) renewed: Option<Duration>,
    pub(crate) joined_at: Timestamp,
    /// A person paused or drained it.
    pub(crate) held_back: bool,
    pub(crate) interest: Option<Arc<Interest>>,
    /// When it last looked for what dead nodes left.
    pub(crate) looked: Option<Duration>,
    /// Attempts that ended, which the store has not heard of.
    pub(crate) consumed: u64,
    pub(crate) failed: u64,
    /// It holds this one, and gets nothing beside it.
    pub(crate) alone: Option<Alone>,
    /// It is being emptied for this one.
    pub(crate) suspect: Option<TaskId>,
    /// How many it held when it last said so.
    pub(crate) holds: usize,
}

/// A task that its worker runs alone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Alone {
    pub(crate) task: TaskId,
    /// When it was given.
    pub(crate) since: Duration,
}

impl Worker {
    pub(crate) fn learn(&mut self, info: &NodeInfo, now: Timestamp, uptime: Duration) {
        self.alive_until = uptime + info.lease_until.since(now);
        self.seen = uptime;
        self.joined_at = info.joined_at;
        self.held_back = info.paused || info.stage != Stage::Serving;
        self.holds = usize::try_from(info.active).unwrap_or(usize::MAX);
    }
}

/// A lease that was given, and what its end needs.
#[derive(Debug, Clone)]
pub(crate) struct Given {
    /// Who has it.
    node: Option<NodeId>,
    token: Token,
    pub(crate) kind: Kind,
    pub(crate) queue: QueueName,
    pub(crate) state: State,
    pub(crate) retries: u32,
    /// The task's own policy.
    pub(crate) retry: Option<Exponential>,
    pub(crate) task_timeout: Duration,
    pub(crate) created_at: Timestamp,
    pub(crate) started_at: Timestamp,
    /// It has a parent or children, who want to know of its end.
    pub(crate) family: bool,
    pub(crate) meters: Arc<Pair>,
    /// The plan it was submitted with.
    pub(crate) steps: Option<Vec<String>>,
    /// What people want of it, and since when its worker knows.
    pub(crate) asked: Option<(Requests, Duration)>,
    pending: Option<Progress>,
    sent: Option<Duration>,
}

impl Given {
    pub(crate) fn of(task: &Task, task_timeout: Duration, meters: Arc<Pair>) -> Given {
        let standing = &task.standing;
        let rolls_back = standing.state == State::RollingBack;
        Given {
            node: standing.node,
            token: standing.token,
            kind: task.kind.clone(),
            queue: task.queue.clone(),
            state: if rolls_back { State::RollingBack } else { State::Running },
            retries: standing.retries,
            retry: task.extras.as_ref().and_then(|e| e.retry),
            task_timeout,
            created_at: task.created_at,
            started_at: standing.started_at.unwrap_or(standing.updated_at),
            family: task.parent.is_some() || standing.has_children,
            meters,
            steps: task.steps().map(<[String]>::to_vec),
            asked: None,
            pending: None,
            sent: None,
        }
    }

    fn is(&self, key: &LeaseKey) -> bool {
        self.token == key.token && self.node == Some(key.node)
    }

    /// Takes progress that may be written now; otherwise it waits here.
    pub(crate) fn progressed(&mut self, progress: Progress, now: Duration) -> Option<Progress> {
        self.pending = Some(progress);
        self.due_progress(now)
    }

    /// Progress that waits, unless one was written just now.
    pub(crate) fn due_progress(&mut self, now: Duration) -> Option<Progress> {
        let fresh = self.sent.is_some_and(|sent| now.saturating_sub(sent) < PROGRESS_EVERY);
        if fresh { None } else { self.last_progress(now) }
    }

    /// Progress that waits: the attempt ends.
    pub(crate) fn last_progress(&mut self, now: Duration) -> Option<Progress> {
        let pending = self.pending.take()?;
        self.sent = Some(now);
        Some(pending)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Known {
    workers: Mutex<HashMap<NodeId, Worker>>,
    given: Mutex<IdMap<TaskId, Given>>,
}

impl Known {
    /// Reads or changes what is known of a worker.
    pub(crate) fn worker<T>(&self, id: NodeId, look: impl FnOnce(&mut Worker) -> T) -> Option<T> {
        self.workers.lock().get_mut(&id).map(look)
    }

    /// The same, for one that may be new here. Those that were not heard of for
    /// longest make room.
    pub(crate) fn note<T>(&self, id: NodeId, look: impl FnOnce(&mut Worker) -> T) -> T {
        let mut workers = self.workers.lock();
        if workers.len() >= WORKERS_MAX && !workers.contains_key(&id) {
            let oldest = workers.iter().min_by_key(|(_, w)| w.alive_until).map(|(id, _)| *id);
            oldest.and_then(|id| workers.remove(&id));
        }
        look(workers.entry(id).or_default())
    }

    pub(crate) fn forget(&self, id: NodeId) {
        self.workers.lock().remove(&id);
    }

    /// Whether a living worker asked for this kind.
    pub(crate) fn serves(&self, kind: &str, uptime: Duration) -> bool {
        let wants = |i: &Arc<Interest>| i.kinds.iter().any(|k| k.as_str() == kind);
        let workers = self.workers.lock();
        workers.values().any(|w| w.alive_until > uptime && w.interest.as_ref().is_some_and(wants))
    }

    pub(crate) fn give(&self, id: TaskId, given: Given) {
        let mut all = self.given.lock();
        if all.len() >= GIVEN_MAX {
            // Most of them are of workers that died: what still lives is read again.
            all.clear();
        }
        all.insert(id, given);
    }

    /// Reads or changes a lease that was given to this node with this token.
    pub(crate) fn given<T>(&self, key: LeaseKey, look: impl FnOnce(&mut Given) -> T) -> Option<T> {
        self.given.lock().get_mut(&key.task).filter(|given| given.is(&key)).map(look)
    }

    pub(crate) fn take(&self, key: LeaseKey) -> Option<Given> {
        let mut all = self.given.lock();
        all.get(&key.task).filter(|given| given.is(&key))?;
        all.remove(&key.task)
    }
}
