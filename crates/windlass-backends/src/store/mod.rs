//! The stores, and the few things all of them share: the switchable guards that
//! prove the suite, what a batch means, and checks of input that need no row.
//! Each store has the same files, named after what they write or read; `mod.rs`
//! opens it and keeps the contract.

pub(crate) mod batch;
pub mod guards;
pub mod memory;
#[cfg(feature = "sqlite")]
pub mod sqlite;

use std::collections::HashSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use windlass_core::batch::{Batch, RUNNING_MAX};
use windlass_core::checkpoint::{LOG_MAX, StepEntry, StepRecord, tail};
use windlass_core::clock::{Now, Timestamp};
use windlass_core::control::Changed;
use windlass_core::event::{Event, EventData, EventName};
use windlass_core::id::{NodeId, OWN_SLOTS, SLOTS};
use windlass_core::json::Json;
use windlass_core::lease::LeaseKey;
use windlass_core::outcome::Failure;
use windlass_core::schedule::Schedule;
use windlass_core::standing::Standing;
use windlass_core::state::State;
use windlass_core::store::{
    Attempt, AttemptEnd, CALL_MAX, Change, Claim, NodeChange, NodeInfo, QueueChange, Renewal,
    Renewed, Setting, Stage, Submit, Wanted, Write,
};
use windlass_core::task::{Extras, NewTask, PAYLOAD_MAX, QueueName, SUBMIT_MAX, Task};
use windlass_core::{Code, Error, Result};

/// A node's row stays for this long after its lease ended, so that people see
/// what was lost.
pub(crate) const NODE_KEPT: Duration = Duration::from_secs(60);

/// The instant a call goes by. Stores without a clock of their own take the
/// machine's.
pub(crate) fn instant(now: Now) -> Timestamp {
    match now {
        Now::At(at) => at,
        Now::Store => {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            Timestamp::ZERO.plus(since)
        }
    }
}

/// Checks everything about a batch that can be checked without a row.
pub(crate) fn check_batch(batch: &Submit) -> Result<()> {
    if batch.tasks.len() > SUBMIT_MAX {
        let message = format!("{} tasks in one call, at most {SUBMIT_MAX}", batch.tasks.len());
        return Err(Error::invalid("submit", message));
    }
    batch.tasks.iter().try_for_each(|task| task.validate(PAYLOAD_MAX))
}

/// Numbers that a database keeps as signed: a larger one could be written and
/// never read again.
const NUMBER_MAX: u64 = i64::MAX as u64;

/// A number small enough to be stored; counters end there.
pub(crate) fn storable(number: u64) -> i64 {
    number.min(NUMBER_MAX).cast_signed()
}

fn check_count(op: &'static str, what: &str, count: usize) -> Result<()> {
    if count <= CALL_MAX {
        return Ok(());
    }
    Err(Error::invalid(op, format!("{count} {what} in one call, at most {CALL_MAX}")))
}

/// Checks what a claim asks for.
pub(crate) fn check_claim(claim: &Claim) -> Result<()> {
    if let Wanted::Ids(ids) = &claim.wanted {
        check_count("claim", "ids", ids.len())?;
    }
    if claim.number.0 > NUMBER_MAX {
        return Err(Error::invalid("claim", "the claim's number is out of range"));
    }
    check_count("claim", "lanes", claim.lanes.len())
}

pub(crate) fn check_writes(writes: &[Write]) -> Result<()> {
    check_count("record", "writes", writes.len())
}

pub(crate) fn check_change(change: &Change) -> Result<()> {
    match change {
        Change::Tasks { ids, .. } => check_count("change", "tasks", ids.len()),
        Change::Batch(order) => order.validate(),
        _ => Ok(()),
    }
}

/// Checks the parts of a write that need no row: versions that rise, children
/// that belong to the writer.
pub(crate) fn check_write(write: &Write) -> Result<()> {
    let rises = write.steps.windows(2).all(|pair| pair[0].version < pair[1].version);
    if !rises {
        return Err(Error::invalid("record", "versions of the steps in one write must rise"));
    }
    if write.steps.iter().any(|step| step.version.0 > NUMBER_MAX) {
        return Err(Error::invalid("record", "a step's version is out of range"));
    }
    check_count("record", "children", write.children.len())?;
    for child in &write.children {
        child.validate(PAYLOAD_MAX)?;
        if child.child_of.as_ref().is_none_or(|c| c.parent != write.lease.task) {
            return Err(Error::invalid("record", "a child must name the writing task as parent"));
        }
    }
    Ok(())
}

/// Whether a stored task is what `new` asked for: a repeat of its submission.
pub(crate) fn same_submission(stored: &Task, new: &NewTask) -> Result<()> {
    let same = stored.kind == new.kind
        && stored.queue == new.queue
        && stored.priority == new.priority
        && stored.payload == new.payload
        && extras_text(stored.extras.as_deref()) == extras_text(new.extras.as_deref())
        && stored.parent == new.child_of.as_ref().map(|c| c.parent);
    if same {
        return Ok(());
    }
    Err(Error::conflict("submit", format!("{} exists and is another task", new.id)))
}

/// Nothing is left to resume, and nothing to undo.
pub(crate) fn clears_checkpoint(state: State) -> bool {
    matches!(state, State::Completed | State::CompletedWithErrors | State::RolledBack)
}

/// A step as every store keeps it: durations to the microsecond, the end of a
/// long log.
pub(crate) fn kept(step: &StepRecord) -> StepRecord {
    let micros = u64::try_from(step.duration.as_micros()).unwrap_or(u64::MAX);
    let duration = Duration::from_micros(storable(micros).cast_unsigned());
    StepRecord { duration, log: kept_log(step).map(str::to_owned), ..step.clone() }
}

pub(crate) fn kept_log(step: &StepRecord) -> Option<&str> {
    step.log.as_deref().map(|log| tail(log, LOG_MAX))
}

pub(crate) fn lease_lost(key: &LeaseKey) -> Error {
    let message = format!("{} is no longer held with token {}", key.task, key.token.0);
    Error::lease_lost("record", message)
}

/// Extras as they are stored: durations lose what their text does not keep.
fn extras_text(extras: Option<&Extras>) -> Option<Json> {
    extras.and_then(|extras| Json::of(extras).ok())
}

pub(crate) fn no_such(what: &'static str, name: impl std::fmt::Display) -> Error {
    Error::not_found(what, format!("there is no {what} {name}"))
}

/// The word for the audit list.
pub(crate) fn outcome_word(result: &Result<Changed>) -> &'static str {
    match result {
        Ok(Changed::Done) => "done",
        Ok(Changed::Requested) => "requested",
        Ok(Changed::Already) => "already",
        Err(error) => error.code().as_str(),
    }
}

/// How many finished steps stay when a task is requeued from a named step;
/// `None`: all of them. The name may also be the step it stopped at.
pub(crate) fn steps_before(
    steps: &[StepEntry],
    task: &Task,
    from_step: Option<&str>,
) -> Result<Option<usize>> {
    let Some(name) = from_step else { return Ok(None) };
    let mut finished = steps.iter().filter(|e| e.live && e.record.outcome.is_finished());
    if let Some(keep) = finished.position(|e| e.record.name == name) {
        return Ok(Some(keep));
    }
    let failed = task.standing.failure.as_ref().and_then(|f| f.error.step.as_ref());
    let planned = task.steps().is_some_and(|plan| plan.iter().any(|s| s == name));
    if planned || failed.is_some_and(|s| s.name == name) {
        return Ok(None);
    }
    Err(Error::invalid("requeue", format!("the task has no step `{name}`")))
}

/// A new payload must be as good as one that is submitted.
pub(crate) fn check_payload(payload: Option<&Json>) -> Result<()> {
    match payload {
        Some(json) if json.is_null() => Err(Error::invalid("change", "payload is null")),
        Some(json) if json.as_str().len() > PAYLOAD_MAX => {
            let message = format!("payload has more than {PAYLOAD_MAX} bytes");
            Err(Error::new(Code::PayloadTooLarge, "change", message))
        }
        _ => Ok(()),
    }
}

/// A bulk job's task is looked at again where it is changed.
pub(crate) fn check_taken(batch: &Batch, task: &Task, has_dead_letter: bool) -> Result<()> {
    if batch.takes(task, has_dead_letter) {
        return Ok(());
    }
    Err(Error::conflict("batch", format!("{} no longer matches", task.id)))
}

/// Whether one more bulk job may begin beside so many.
pub(crate) fn check_running(running: usize) -> Result<()> {
    if running < RUNNING_MAX {
        return Ok(());
    }
    let message = format!("{running} batches are running, which is the most; stop one, or wait");
    Err(Error::conflict("batch", message))
}

/// What has begun, for the audit list.
pub(crate) fn batch_words(batch: &Batch) -> String {
    format!("{} {}", batch.id(), batch.order.filter)
}

/// What people have said about a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct QueueRules {
    pub(crate) paused: bool,
    pub(crate) draining: bool,
    pub(crate) concurrency: Option<u32>,
    pub(crate) depth_max: Option<u64>,
}

impl QueueRules {
    /// Refuses a new task of a queue that drains.
    pub(crate) fn check_open(&self, op: &'static str, name: &QueueName) -> Result<()> {
        if !self.draining {
            return Ok(());
        }
        let message =
            format!("queue `{name}` is draining and takes no new tasks; resume reopens it");
        Err(Error::new(Code::StateConflict, op, message))
    }
}

pub(crate) fn change_queue(
    rules: &mut QueueRules,
    name: &QueueName,
    change: QueueChange,
    now: Timestamp,
) -> (Changed, Option<Event>) {
    let before = *rules;
    match change {
        QueueChange::Pause => rules.paused = true,
        QueueChange::Drain => rules.draining = true,
        QueueChange::Resume => (rules.paused, rules.draining) = (false, false),
        QueueChange::Concurrency(n) => rules.concurrency = n,
        QueueChange::DepthMax(n) => rules.depth_max = n,
    }
    if before == *rules {
        return (Changed::Already, None);
    }
    let event = match change {
        QueueChange::Pause => Some(EventName::QueuePaused),
        QueueChange::Resume => Some(EventName::QueueResumed),
        _ => None,
    };
    let tell = |e| Event::of_place(e, now, Some(name.clone()), EventData::None);
    (Changed::Done, event.map(tell))
}

pub(crate) fn change_node(
    node: &mut NodeInfo,
    change: NodeChange,
    now: Timestamp,
) -> (Changed, Option<Event>) {
    let (paused, stage, name) = match change {
        NodeChange::Pause => (true, node.stage, EventName::NodePaused),
        NodeChange::Resume => (false, Stage::Serving, EventName::NodeResumed),
        NodeChange::Drain => (node.paused, Stage::Draining, EventName::NodeDraining),
    };
    if (node.paused, node.stage) == (paused, stage) {
        return (Changed::Already, None);
    }
    (node.paused, node.stage) = (paused, stage);
    (Changed::Done, Some(node_event(name, node.id, now)))
}

pub(crate) fn node_event(name: EventName, node: NodeId, now: Timestamp) -> Event {
    let data = Json::trusted(format!(r#"{{"node":"{node}"}}"#));
    Event::of_place(name, now, None, EventData::Json(data))
}

/// The slot of one more node, by the (slot, remote) of those that have one.
pub(crate) fn free_slot(taken: &[(u16, bool)], remote: bool) -> Result<u16> {
    let most = usize::from(SLOTS - OWN_SLOTS);
    if remote && taken.iter().filter(|(_, remote)| *remote).count() >= most {
        let message = format!(
            "{most} workers have joined already, and {OWN_SLOTS} of {SLOTS} slots are kept for other nodes; stop some, or ask with the worker_id of before"
        );
        return Err(Error::unavailable("join", message));
    }
    let taken: HashSet<u16> = taken.iter().map(|(slot, _)| *slot).collect();
    let free = (0..SLOTS).find(|slot| !taken.contains(slot));
    free.ok_or_else(|| Error::unavailable("join", format!("all {SLOTS} node slots are taken")))
}

/// The body of an event as users and brokers see it.
pub(crate) fn event_json(event: &Event) -> Json {
    let value = serde_json::json!({
        "id": event.id(), "position": event.position, "task": event.task, "n": event.n,
        "type": event.name.as_str(), "at": event.at, "kind": event.kind, "queue": event.queue,
        "correlation_id": event.correlation_id, "data": event.data.to_json(),
    });
    Json::trusted(value.to_string())
}

/// What a heartbeat changes about its node and tells it.
pub(crate) fn renew_node(
    node: &mut NodeInfo,
    renewal: &Renewal,
    renewed: &mut Renewed,
    now: Timestamp,
) {
    node.heartbeat_at = now;
    node.lease_until = now.plus(renewal.lease);
    // A drain that people asked for stays; the node's own word can only go on.
    if renewal.stage != Stage::Serving {
        node.stage = renewal.stage;
    }
    node.consumed = renewal.tally.count(node.consumed, renewal.consumed);
    node.failed = renewal.tally.count(node.failed, renewal.failed);
    renewed.lease_until = node.lease_until;
    renewed.paused = node.paused;
    renewed.draining = node.stage != Stage::Serving;
}

pub(crate) fn limit_event(name: &str, now: Timestamp) -> Event {
    let data = Json::trusted(serde_json::json!({"limit": name}).to_string());
    Event::of_place(EventName::LimitChanged, now, None, EventData::Json(data))
}

pub(crate) fn check_setting(setting: &Setting) -> Result<()> {
    match setting {
        Setting::Schedule(schedule) => schedule.validate(),
        Setting::Limit(limit) => limit.validate(),
        Setting::Token(token) => token.validate(),
        Setting::Value { key, .. } if key.is_empty() => {
            Err(Error::invalid("put", "a setting needs a key"))
        }
        _ => Ok(()),
    }
}

/// Action and target for the audit list.
pub(crate) fn setting_words(setting: &Setting) -> (&'static str, String) {
    match setting {
        Setting::Value { key, value: Some(_) } => ("set", format!("setting {key}")),
        Setting::Value { key, value: None } => ("delete", format!("setting {key}")),
        Setting::Schedule(schedule) => ("set", format!("schedule {}", schedule.name)),
        Setting::DeleteSchedule(name) => ("delete", format!("schedule {name}")),
        Setting::Limit(limit) => ("set", format!("limit {}", limit.name)),
        Setting::DeleteLimit(name) => ("delete", format!("limit {name}")),
        Setting::Token(token) => ("create", format!("token {} ({})", token.name, token.role)),
        Setting::RevokeToken(name) => ("revoke", format!("token {name}")),
        Setting::Outbox(_) => ("set", "outbox".to_owned()),
    }
}

/// A schedule whose times did not change goes on where it was.
pub(crate) fn keep_place(schedule: &mut Schedule, stored: Option<&Schedule>) {
    if let Some(stored) = stored.filter(|s| s.when == schedule.when) {
        schedule.next_at = stored.next_at;
        schedule.last_at = stored.last_at;
    }
}

/// The attempt a standing tells of.
pub(crate) fn attempt_of(
    standing: &Standing,
    ended: Option<(AttemptEnd, Timestamp)>,
    failure: Option<Failure>,
) -> Attempt {
    Attempt {
        token: standing.token,
        run: standing.run,
        attempt: standing.attempt,
        node: standing.node.unwrap_or(NodeId::from_key(0)),
        started_at: standing.started_at.unwrap_or(standing.updated_at),
        ended,
        failure,
        steps: vec![],
        settled: if ended.is_some() { standing.settled } else { 0 },
    }
}
