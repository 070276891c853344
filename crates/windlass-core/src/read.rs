//! What readers ask of a store and what they see: tasks and their attempts, dead
//! letters, queues, nodes, the audit list, counts. [`Reader`] is one half of the
//! contract in `store.rs`, which gives these names out again; API, CLI and
//! dashboard read through it. Nothing here writes.

use crate::access::AccessToken;
use crate::batch::Batch;
use crate::checkpoint::{Checkpoint, StepEntry};
use crate::children::Totals;
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::event::{Event, Position};
use crate::filter::Filter;
use crate::id::{BatchId, DeadId, NodeId, TaskId};
use crate::json::Json;
use crate::lease::Token;
use crate::limits::Limit;
use crate::outcome::{Class, Failure, Reason};
use crate::schedule::Schedule;
use crate::state::State;
use crate::store::{Actor, BoxFuture, Stage};
use crate::task::{Kind, QueueName, Task};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One run of a task on one node.
#[derive(Debug, Clone, PartialEq)]
pub struct Attempt {
    pub token: Token,
    pub run: u32,
    pub attempt: u32,
    pub node: NodeId,
    pub started_at: Timestamp,
    /// `None` while it runs.
    pub ended: Option<(AttemptEnd, Timestamp)>,
    pub failure: Option<Failure>,
    pub steps: Vec<StepEntry>,
    /// [`Write::fingerprint`](crate::store::Write::fingerprint) of the write that ended it; 0: none did.
    pub settled: u64,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AttemptEnd {
    /// The task went to this state.
    Settled(State),
    /// Its node died.
    Lost,
    /// The claim's answer never arrived.
    GivenBack,
}

impl AttemptEnd {
    /// For a store's column; state codes are not negative.
    pub fn code(self) -> i64 {
        match self {
            AttemptEnd::Settled(state) => state.code(),
            AttemptEnd::Lost => -1,
            AttemptEnd::GivenBack => -2,
        }
    }

    pub fn from_code(code: i64) -> Result<Self> {
        match code {
            -1 => Ok(AttemptEnd::Lost),
            -2 => Ok(AttemptEnd::GivenBack),
            code => State::from_code(code).map(AttemptEnd::Settled),
        }
    }
}

/// A failed task, or a foreign message, waiting for a person.
#[derive(Debug, Clone, PartialEq)]
pub struct DeadLetter {
    pub id: DeadId,
    pub task: Option<TaskId>,
    pub kind: Kind,
    pub queue: QueueName,
    pub reason: Reason,
    pub class: Class,
    pub message: String,
    pub step: Option<String>,
    pub attempts: u32,
    pub node: Option<NodeId>,
    pub at: Timestamp,
    pub correlation_id: Option<Arc<str>>,
    pub trace_id: Option<String>,
    pub payload: Json,
}

impl DeadLetter {
    /// The dead letter of a failed task.
    pub fn of(task: &Task) -> Result<DeadLetter> {
        let missing =
            || Error::corrupt("dead letter", format!("{} failed without a failure", task.id));
        let failure = task.standing.failure.as_ref().ok_or_else(missing)?;
        Ok(DeadLetter {
            id: task.id.into(),
            task: Some(task.id),
            kind: task.kind.clone(),
            queue: task.queue.clone(),
            reason: failure.reason.ok_or_else(missing)?,
            class: failure.error.class,
            message: failure.error.message.clone(),
            step: failure.error.step.as_ref().map(|s| s.name.clone()),
            attempts: task.standing.attempt,
            node: task.standing.node,
            at: task.standing.finished_at.ok_or_else(missing)?,
            correlation_id: task.card().correlation_id,
            trace_id: task.trace_id().map(str::to_owned),
            payload: task.payload.clone(),
        })
    }

    /// The body users and brokers see. `message_id` and `source` tell of foreign
    /// messages; a task has none.
    pub fn to_json(&self) -> Json {
        let about = serde_json::json!({
            "id": self.id, "task": self.task, "kind": self.kind, "queue": self.queue,
            "reason": self.reason, "class": self.class, "message": self.message,
            "step": self.step, "attempts": self.attempts, "node": self.node, "at": self.at,
            "correlation_id": self.correlation_id, "trace_id": self.trace_id,
            "message_id": null, "source": null,
        });
        // The payload is carried, not looked into.
        let mut text = about.to_string();
        text.truncate(text.len() - 1);
        text.push_str(",\"payload\":");
        text.push_str(self.payload.as_str());
        text.push('}');
        Json::trusted(text)
    }
}

/// A page of a list, newest first.
#[derive(Debug, Clone, PartialEq)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Continue with tasks older than this. A page may be short, even empty,
    /// and still have one: a scan is bounded.
    pub next: Option<TaskId>,
}

/// What a list asks for; by default everything, in pages of a hundred.
#[derive(Debug, Clone)]
pub struct Query {
    pub filter: Filter,
    /// Only tasks older than this one.
    pub before: Option<TaskId>,
    /// 1 to [`PAGE_MAX`](crate::store::PAGE_MAX).
    pub limit: usize,
}

impl Default for Query {
    fn default() -> Self {
        Query { filter: Filter::default(), before: None, limit: 100 }
    }
}

/// A queue as readers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueInfo {
    pub name: QueueName,
    /// Nothing of it is claimed.
    pub paused: bool,
    /// It takes no new tasks; what is in it goes on.
    pub draining: bool,
    pub concurrency: Option<u32>,
    pub depth_max: Option<u64>,
    /// Tasks that have not ended, by state; states without tasks are absent.
    pub states: BTreeMap<State, u64>,
    /// Held by nodes, running or rolling back: what `concurrency` bounds.
    pub leased: u64,
    pub dead_letters: u64,
    /// Since when a task of it is ready to be claimed; `None`: no task is. A
    /// store may look only at the oldest task of each kind and priority, so an
    /// older task that became ready late may hide how long a younger one waits.
    pub oldest_ready: Option<Timestamp>,
}

impl QueueInfo {
    /// A queue of which nothing is known but its name.
    pub fn empty(name: QueueName) -> QueueInfo {
        QueueInfo {
            name,
            paused: false,
            draining: false,
            concurrency: None,
            depth_max: None,
            states: BTreeMap::new(),
            leased: 0,
            dead_letters: 0,
            oldest_ready: None,
        }
    }

    /// How many of its tasks are in `state`, which is not an ended one.
    pub fn count(&self, state: State) -> u64 {
        self.states.get(&state).copied().unwrap_or(0)
    }
}

/// A node as readers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeInfo {
    pub id: NodeId,
    pub slot: u16,
    pub name: String,
    pub remote: bool,
    pub queues: Vec<QueueName>,
    pub version: String,
    pub joined_at: Timestamp,
    pub heartbeat_at: Timestamp,
    pub lease_until: Timestamp,
    pub stage: Stage,
    pub paused: bool,
    pub active: u64,
    pub consumed: u64,
    pub failed: u64,
}

/// One operator action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRow {
    pub seq: i64,
    pub at: Timestamp,
    pub by: Actor,
    pub action: String,
    pub target: String,
    pub outcome: String,
}

/// Which bulk jobs a list has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Batches {
    All,
    Running,
}

/// Counts for overviews.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stats {
    /// Tasks in the store, by state; states without tasks are absent.
    pub states: BTreeMap<State, u64>,
    pub dead_letters: u64,
    pub outbox: u64,
    pub newest_event: Position,
}

/// Reads for API, CLI and dashboard: cannot write. Every read is bounded.
pub trait Reader: Send + Sync {
    fn task(&self, id: TaskId) -> BoxFuture<'_, Result<Option<Task>>>;

    /// Tasks that match, newest first. `now` is for ages in the filter.
    fn tasks(&self, query: Query, now: Timestamp) -> BoxFuture<'_, Result<Page<Task>>>;

    /// What the task would resume from, without logs; `None` when it has
    /// recorded nothing, has completed, or was rolled back.
    fn checkpoint(&self, id: TaskId) -> BoxFuture<'_, Result<Option<Checkpoint>>>;

    /// All attempts with their steps and the steps' logs, oldest first.
    fn attempts(&self, id: TaskId) -> BoxFuture<'_, Result<Vec<Attempt>>>;

    /// Children counted by how they stand.
    fn children(&self, parent: TaskId) -> BoxFuture<'_, Result<Totals>>;

    /// Dead letters whose task matches, newest task first.
    fn dead_letters(&self, query: Query, now: Timestamp)
    -> BoxFuture<'_, Result<Page<DeadLetter>>>;

    /// Events after `after`, in order.
    fn events(&self, after: Position, limit: usize) -> BoxFuture<'_, Result<Vec<Event>>>;

    /// Every queue that has a task, a dead letter or a setting, by name; a store
    /// may also list those that once had.
    fn queues(&self) -> BoxFuture<'_, Result<Vec<QueueInfo>>>;

    /// Queues that are not paused and kinds of which something is ready in them,
    /// in no order. Nothing is counted: a deep queue costs as much as one task.
    fn ready_kinds(&self) -> BoxFuture<'_, Result<Vec<(QueueName, Kind)>>>;
    fn nodes(&self) -> BoxFuture<'_, Result<Vec<NodeInfo>>>;

    /// When the next waiting task becomes due.
    fn next_due(&self) -> BoxFuture<'_, Result<Option<Timestamp>>>;

    /// Newest first, older than `before`.
    fn audit(&self, before: Option<i64>, limit: usize) -> BoxFuture<'_, Result<Vec<AuditRow>>>;

    fn setting(&self, key: String) -> BoxFuture<'_, Result<Option<Json>>>;
    fn schedules(&self) -> BoxFuture<'_, Result<Vec<Schedule>>>;
    fn limits(&self) -> BoxFuture<'_, Result<Vec<Limit>>>;
    /// Access tokens by name, expired ones too.
    fn tokens(&self) -> BoxFuture<'_, Result<Vec<AccessToken>>>;

    fn batch(&self, id: BatchId) -> BoxFuture<'_, Result<Option<Batch>>>;

    /// Newest first, older than `before`.
    fn batches(
        &self,
        which: Batches,
        before: Option<BatchId>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<Batch>>>;

    fn stats(&self) -> BoxFuture<'_, Result<Stats>>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::TaskError;
    use crate::task::NewTask;

    #[test]
    fn a_dead_letter_has_every_field() {
        let mut new = NewTask::new(TaskId::from_key(1), Kind::trusted("a.b"), Json::default());
        new.extras_mut().trace =
            Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned());
        let mut task = Task::born(&new, Timestamp::ZERO);
        task.standing.finished_at = Some(Timestamp::ZERO);
        task.standing.failure =
            Some(Failure::ended(Reason::Fatal, TaskError::new(Class::Fatal, "no such file")));
        let body: serde_json::Value = DeadLetter::of(&task).unwrap().to_json().to().unwrap();
        let mut fields: Vec<&str> = body.as_object().unwrap().keys().map(String::as_str).collect();
        fields.sort_unstable();
        let expected = "at attempts class correlation_id id kind message message_id node payload \
                        queue reason source step task trace_id";
        assert_eq!(fields.join(" "), expected);
        assert_eq!(body["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
        assert!(body["message_id"].is_null() && body["source"].is_null());
    }

    #[test]
    fn ends_of_attempts_read_back() {
        let mut ends = vec![AttemptEnd::Lost, AttemptEnd::GivenBack];
        ends.extend(State::ALL.map(AttemptEnd::Settled));
        for end in ends {
            assert_eq!(AttemptEnd::from_code(end.code()).unwrap(), end);
        }
        assert!(AttemptEnd::from_code(-3).is_err());
    }
}
