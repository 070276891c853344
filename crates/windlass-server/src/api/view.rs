//! Things as users see them: the JSON of tasks, checkpoints, attempts, queues
//! and nodes, with the names of the interface. Views are made from what the
//! store says and the registry knows; nothing is decided here.

use super::App;
use super::problem::Answer;
use super::sight::Sight;
use crate::access::Caller;
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::time::Duration;
use utoipa::ToSchema;
use windlass::core::checkpoint::{Checkpoint, StepEntry, StepOutcome};
use windlass::core::children::Totals;
use windlass::core::clock::format_duration;
use windlass::core::outcome::{Failure, WaitingOn};
use windlass::core::store::{Attempt, AttemptEnd, NodeInfo, QueueInfo, Stage};
use windlass::core::task::Unique;
use windlass::{Json, Progress, State, Task, Timestamp};

/// The states of a task.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[allow(dead_code)] // Only its schema is used.
pub(super) enum StateWord {
    Scheduled,
    Queued,
    Running,
    Retrying,
    Waiting,
    Paused,
    RollingBack,
    Completed,
    CompletedWithErrors,
    Failed,
    Cancelled,
    RolledBack,
}

/// One task.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Task)]
pub struct TaskView {
    pub id: String,
    pub kind: String,
    pub queue: String,
    #[schema(value_type = StateWord)]
    pub state: &'static str,
    /// -10 to 10, higher first.
    pub priority: i8,
    #[schema(value_type = Value)]
    pub payload: Json,
    /// What the finished steps gave, merged.
    pub context: Map<String, Value>,
    /// The plan, when the task has one.
    pub steps: Vec<String>,
    /// Index of the first step that is not finished.
    pub next_step: usize,
    pub labels: BTreeMap<String, String>,
    /// Rises with each requeue.
    pub run: u32,
    pub attempt: u32,
    /// Null when the kind's own policy does not count.
    pub retries_left: Option<u32>,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub due_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub finished_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub deadline: Option<Timestamp>,
    pub parent: Option<String>,
    pub rerun_of: Option<String>,
    pub children: ChildrenView,
    pub children_policy: Option<String>,
    pub progress: Option<ProgressView>,
    #[schema(value_type = Option<Value>)]
    pub result: Option<Json>,
    pub failure: Option<FailureView>,
    pub waiting_on: Option<WaitingView>,
    pub unique: Option<UniqueView>,
    #[schema(value_type = Option<Value>)]
    pub input: Option<Value>,
    pub node: Option<String>,
    pub user_id: Option<String>,
    pub correlation_id: Option<String>,
    pub trace_id: Option<String>,
    pub version: u64,
}

#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = Children)]
pub struct ChildrenView {
    pub total: u64,
    pub completed: u64,
    pub failed: u64,
    pub cancelled: u64,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Progress)]
pub struct ProgressView {
    pub done: u64,
    pub total: u64,
    pub note: Option<String>,
    #[schema(value_type = Option<Value>)]
    pub data: Option<Json>,
}

/// The latest error. `reason` is null while the task may still succeed.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Failure)]
pub struct FailureView {
    pub reason: Option<&'static str>,
    pub class: &'static str,
    pub message: String,
    pub detail: Option<String>,
    pub step: Option<String>,
    pub step_index: Option<u32>,
}

/// What a task that does not run waits for.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WaitingOn)]
pub struct WaitingView {
    /// children, signal, limit, handler, time or person
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub name: Option<String>,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub until: Option<Timestamp>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = UniqueKey)]
pub struct UniqueView {
    pub key: String,
    /// `live`, or a duration
    #[serde(rename = "for")]
    pub for_: String,
}

impl From<&Unique> for UniqueView {
    fn from(unique: &Unique) -> Self {
        let for_ = unique.for_.map_or_else(|| "live".to_owned(), format_duration);
        UniqueView { key: unique.key.clone(), for_ }
    }
}

impl From<&Progress> for ProgressView {
    fn from(p: &Progress) -> Self {
        let Progress { done, total, note, data } = p.clone();
        ProgressView { done, total, note, data }
    }
}

impl From<&Failure> for FailureView {
    fn from(failure: &Failure) -> Self {
        let error = &failure.error;
        FailureView {
            reason: failure.reason.map(|r| r.as_str()),
            class: error.class.as_str(),
            message: error.message.clone(),
            detail: error.detail.clone(),
            step: error.step.as_ref().map(|s| s.name.clone()),
            step_index: error.step.as_ref().map(|s| s.index),
        }
    }
}

impl From<Totals> for ChildrenView {
    fn from(t: Totals) -> Self {
        ChildrenView {
            total: t.total,
            completed: t.completed,
            failed: t.failed,
            cancelled: t.cancelled,
        }
    }
}

impl From<&WaitingOn> for WaitingView {
    fn from(on: &WaitingOn) -> Self {
        let (kind, name, until) = match on {
            WaitingOn::Children { .. } => ("children", None, None),
            WaitingOn::Signal { name } => ("signal", Some(name.clone()), None),
            WaitingOn::Limit { name, until } => ("limit", Some(name.clone()), Some(*until)),
            WaitingOn::Handler => ("handler", None, None),
            WaitingOn::Time { until } => ("time", None, Some(*until)),
            WaitingOn::Person { why } => ("person", Some(why.clone()), None),
        };
        WaitingView { kind, name, until }
    }
}

/// A task with what its plan and its checkpoint add.
pub(super) async fn task(app: &App, caller: &Caller, task: Task) -> Answer<TaskView> {
    Ok(Sight::of(app, caller).task(whole_task(app, task).await?))
}

async fn whole_task(app: &App, task: Task) -> Answer<TaskView> {
    let steps = app.engine.plan_of(&task).unwrap_or_default();
    let (next_step, context) = advance(app, &task, &steps).await?;
    let standing = &task.standing;
    let children = match standing.children {
        Some(totals) => totals.into(),
        None if standing.has_children => app.reader().children(task.id).await?.into(),
        None => ChildrenView::default(),
    };
    let mut waiting_on = standing.waiting_on.as_ref().map(WaitingView::from);
    if standing.state == State::Queued && !app.engine.serves(task.kind.as_str()) {
        let name = Some(task.kind.to_string());
        waiting_on = Some(WaitingView { kind: "handler", name, until: None });
    }
    let extras = task.extras.as_deref().cloned().unwrap_or_default();
    let retries = extras.retry.map(|r| r.retries).or_else(|| app.retries_of(&task.kind));
    Ok(TaskView {
        id: task.id.to_string(),
        kind: task.kind.to_string(),
        queue: task.queue.to_string(),
        state: standing.state.as_str(),
        priority: task.priority,
        payload: task.payload.clone(),
        context,
        steps,
        next_step,
        labels: extras.labels,
        run: standing.run,
        attempt: standing.attempt,
        retries_left: retries.map(|r| r.saturating_sub(standing.retries)),
        created_at: task.created_at,
        updated_at: standing.updated_at,
        due_at: standing.due_at,
        started_at: standing.started_at,
        finished_at: standing.finished_at,
        deadline: task.deadline,
        parent: task.parent.map(|p| p.to_string()),
        rerun_of: extras.rerun_of.map(|id| id.to_string()),
        children,
        children_policy: extras.children_policy.map(String::from),
        progress: standing.progress.as_ref().map(ProgressView::from),
        result: standing.result.clone(),
        failure: standing.failure.as_ref().map(FailureView::from),
        waiting_on,
        unique: extras.unique.as_ref().map(UniqueView::from),
        input: extras.input.map(|i| serde_json::json!({"uri": i.uri, "sha256": i.sha256})),
        node: standing.node.map(|n| n.to_string()),
        user_id: extras.user_id,
        correlation_id: extras.correlation_id,
        trace_id: task.trace_id().map(str::to_owned),
        version: standing.version.0,
    })
}

/// How far the plan is, and the context so far. Only a task that recorded
/// something and has not completed needs a look at its checkpoint.
async fn advance(app: &App, task: &Task, steps: &[String]) -> Answer<(usize, Map<String, Value>)> {
    let standing = &task.standing;
    if matches!(standing.state, State::Completed | State::CompletedWithErrors) {
        let result = standing.result.as_ref().filter(|_| !steps.is_empty());
        let context = result.and_then(|json| json.to().ok()).unwrap_or_default();
        return Ok((steps.len(), context));
    }
    if standing.version.0 == 0 {
        return Ok((0, Map::new()));
    }
    let checkpoint = app.reader().checkpoint(task.id).await?.unwrap_or_default();
    Ok((checkpoint.finished().count(), checkpoint.context()?))
}

/// What a task resumes from.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Checkpoint)]
pub struct CheckpointView {
    pub version: u64,
    pub completed: Vec<FinishedStep>,
    pub data: Map<String, Value>,
    pub failures: Vec<FailedTry>,
    pub node: Option<String>,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub saved_at: Option<Timestamp>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct FinishedStep {
    pub name: String,
    /// done or skipped
    pub outcome: StepOutcomeWord,
    pub duration_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct FailedTry {
    pub step: String,
    pub attempt: u32,
    pub class: Option<&'static str>,
    pub message: Option<String>,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    pub node: String,
}

/// How one try of a step ended.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StepOutcomeWord {
    Done,
    Skipped,
    Failed,
    Undone,
}

impl StepOutcomeWord {
    pub(super) fn as_str(&self) -> &'static str {
        match self {
            StepOutcomeWord::Done => "done",
            StepOutcomeWord::Skipped => "skipped",
            StepOutcomeWord::Failed => "failed",
            StepOutcomeWord::Undone => "undone",
        }
    }
}

impl From<StepOutcome> for StepOutcomeWord {
    fn from(outcome: StepOutcome) -> Self {
        match outcome {
            StepOutcome::Done => StepOutcomeWord::Done,
            StepOutcome::Skipped => StepOutcomeWord::Skipped,
            StepOutcome::Failed => StepOutcomeWord::Failed,
            StepOutcome::Undone => StepOutcomeWord::Undone,
        }
    }
}

fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn checkpoint(checkpoint: &Checkpoint) -> Answer<CheckpointView> {
    let finished = checkpoint.finished().map(|e| FinishedStep {
        name: e.record.name.clone(),
        outcome: e.record.outcome.into(),
        duration_ms: millis(e.record.duration),
        reason: e.record.reason.clone(),
    });
    let failed = checkpoint.failures().map(|e| FailedTry {
        step: e.record.name.clone(),
        attempt: e.attempt,
        class: e.record.class.map(|c| c.as_str()),
        message: e.record.reason.clone(),
        at: e.at,
        node: e.node.to_string(),
    });
    let latest = checkpoint.entries.last();
    Ok(CheckpointView {
        version: checkpoint.version.0,
        completed: finished.collect(),
        data: checkpoint.context()?,
        failures: failed.collect(),
        node: latest.map(|e| e.node.to_string()),
        saved_at: latest.map(|e| e.at),
    })
}

/// One run of a task on one node.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Attempt)]
pub struct AttemptView {
    pub run: u32,
    pub attempt: u32,
    pub token: u64,
    pub node: String,
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
    /// The state the task went to, `lost`, or `given_back`; null while it runs.
    pub outcome: Option<&'static str>,
    pub failure: Option<FailureView>,
    pub steps: Vec<StepView>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Step)]
pub struct StepView {
    pub name: String,
    pub outcome: StepOutcomeWord,
    pub version: u64,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    pub duration_ms: u64,
    pub class: Option<&'static str>,
    pub reason: Option<String>,
    #[schema(value_type = Option<Value>)]
    pub output: Option<Json>,
}

impl From<&StepEntry> for StepView {
    fn from(entry: &StepEntry) -> Self {
        let record = &entry.record;
        StepView {
            name: record.name.clone(),
            outcome: record.outcome.into(),
            version: record.version.0,
            at: entry.at,
            duration_ms: millis(record.duration),
            class: record.class.map(|c| c.as_str()),
            reason: record.reason.clone(),
            output: record.output.clone(),
        }
    }
}

impl From<&Attempt> for AttemptView {
    fn from(attempt: &Attempt) -> Self {
        AttemptView {
            run: attempt.run,
            attempt: attempt.attempt,
            token: attempt.token.0,
            node: attempt.node.to_string(),
            started_at: attempt.started_at,
            ended_at: attempt.ended.map(|(_, at)| at),
            outcome: attempt.ended.map(|(end, _)| match end {
                AttemptEnd::Settled(state) => state.as_str(),
                AttemptEnd::Lost => "lost",
                AttemptEnd::GivenBack => "given_back",
            }),
            failure: attempt.failure.as_ref().map(FailureView::from),
            steps: attempt.steps.iter().map(StepView::from).collect(),
        }
    }
}

/// One queue.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Queue)]
pub struct QueueView {
    pub name: String,
    pub paused: bool,
    pub draining: bool,
    /// Across all nodes; null: no limit.
    pub concurrency: Option<u32>,
    /// Submissions beyond it are refused; null: no limit.
    pub depth_max: Option<u64>,
    /// Tasks that have not ended, by state.
    pub tasks: BTreeMap<&'static str, u64>,
    pub dead_letters: u64,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub oldest_ready_at: Option<Timestamp>,
}

impl From<&QueueInfo> for QueueView {
    fn from(info: &QueueInfo) -> Self {
        QueueView {
            name: info.name.to_string(),
            paused: info.paused,
            draining: info.draining,
            concurrency: info.concurrency,
            depth_max: info.depth_max,
            tasks: info.states.iter().map(|(state, n)| (state.as_str(), *n)).collect(),
            dead_letters: info.dead_letters,
            oldest_ready_at: info.oldest_ready,
        }
    }
}

/// One running process.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Node)]
pub struct NodeView {
    pub id: String,
    pub name: String,
    pub version: String,
    /// serving, draining, leaving or lost
    pub stage: &'static str,
    pub paused: bool,
    /// Tasks it holds.
    pub active: u64,
    /// Attempts that ended there.
    pub consumed: u64,
    /// Tasks that failed for good there.
    pub failed: u64,
    pub remote: bool,
    pub queues: Vec<String>,
    #[schema(value_type = String, format = DateTime)]
    pub joined_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub heartbeat_at: Timestamp,
    /// Seconds since the last heartbeat.
    pub heartbeat_age: f64,
    #[schema(value_type = String, format = DateTime)]
    pub lease_until: Timestamp,
}

pub(super) fn node(info: &NodeInfo, now: Timestamp) -> NodeView {
    let stage = match info.stage {
        _ if info.lease_until <= now => "lost",
        Stage::Serving => "serving",
        Stage::Draining => "draining",
        Stage::Leaving => "leaving",
    };
    NodeView {
        id: info.id.to_string(),
        name: info.name.clone(),
        version: info.version.clone(),
        stage,
        paused: info.paused,
        active: info.active,
        consumed: info.consumed,
        failed: info.failed,
        remote: info.remote,
        queues: info.queues.iter().map(ToString::to_string).collect(),
        joined_at: info.joined_at,
        heartbeat_at: info.heartbeat_at,
        heartbeat_age: now.since(info.heartbeat_at).as_secs_f64(),
        lease_until: info.lease_until,
    }
}
