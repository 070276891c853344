//! How a worker's words become what is written: steps, and the end of an attempt.
//! The end is settled by core with the rules of the kind, as it is for code in this
//! process; afterwards whoever waits for it is told. Nothing here speaks to a
//! worker.

use super::known::{Given, Worker};
use super::{Finish, Step, Trouble, Workers};
use crate::parts::{Parts, bump};
use crate::record::count;
use crate::wake::Wake;
use std::time::Duration;
use windlass_core::checkpoint::{StepOutcome, StepRecord, Version};
use windlass_core::clock::check_duration;
use windlass_core::error::{Code, Error, ErrorKind, Result};
use windlass_core::id::NodeId;
use windlass_core::json::Json;
use windlass_core::lease::LeaseKey;
use windlass_core::outcome::{Class, Outcome, StepRef, TaskError as Cause};
use windlass_core::retry::{Jitter, RetryPolicy};
use windlass_core::settle::{Attempted, Rules, settle};
use windlass_core::state::State;
use windlass_core::store::{Write, Written};
use windlass_core::task::NAME_MAX;

/// Longest detail of an error, in bytes.
const DETAIL_MAX: usize = 16 * 1024;

/// The end of an attempt on its way to the store.
pub(super) struct Ending {
    pub(super) write: Write,
    pub(super) given: Given,
}

impl Workers {
    /// What ending a lease with `outcome` writes.
    pub(super) fn ending(&self, key: LeaseKey, given: Given, outcome: Outcome) -> Ending {
        let parts = &self.parts;
        let rules = parts.registry.rules_or_usual(&given.kind);
        let own = given.retry.as_ref().map(|own| own as &dyn RetryPolicy);
        let retry = own.unwrap_or(rules.retry.as_ref());
        let rules = Rules { retry, unknown_errors: rules.unknown_errors };
        let attempted = Attempted { state: given.state, retries: given.retries };
        let (now, jitter) = (parts.clock.now(), Jitter::new(rand::random()));
        let settlement = settle(outcome, rules, attempted, now, jitter);
        Ending { write: Write::settling(key, settlement), given }
    }

    /// Writes ends, one answer for each.
    pub(super) async fn record_ends(
        &self,
        id: NodeId,
        ends: Vec<Ending>,
    ) -> Result<Vec<Result<Written>>> {
        let parts = &self.parts;
        if ends.is_empty() {
            return Ok(vec![]);
        }
        let writes = ends.iter().map(|end| end.write.clone()).collect();
        let answers = parts.store.record(writes, parts.now()).await?;
        for (end, answer) in ends.iter().zip(&answers) {
            self.ended(id, end, answer);
        }
        self.told();
        Ok(answers)
    }

    /// The store has answered: whoever waits for this end hears of it, once.
    pub(super) fn ended(&self, id: NodeId, end: &Ending, answer: &Result<Written>) {
        let parts = &self.parts;
        let (key, given) = (end.write.lease, &end.given);
        count(parts, &end.write, answer);
        let known = &parts.remote.known;
        let took = parts.clock.now().since(given.started_at);
        match answer {
            Ok(written) if written.repeated => {}
            Ok(written) => {
                known.take(key);
                known.worker(id, |w: &mut Worker| {
                    w.consumed += 1;
                    w.failed += u64::from(written.state == State::Failed);
                    w.holds = w.holds.saturating_sub(1);
                    w.alone.take_if(|alone| alone.task == key.task);
                });
                self.settled(end, *written, took);
            }
            Err(refused) if refused.kind() == ErrorKind::LeaseLost => {
                tracing::warn!(task = %key.task, node = %id, "a late end of a worker was refused");
                if known.take(key).is_some() {
                    self.lost(given);
                }
            }
            Err(refused) => {
                tracing::error!(task = %key.task, error = %refused, "an end was not recorded");
            }
        }
    }

    /// A lease that this process gave is lost.
    pub(super) fn lost(&self, given: &Given) {
        given.meters.lost(self.parts.clock.now().since(given.started_at));
        bump(&self.parts.counters.leases_lost, 1);
    }

    fn settled(&self, end: &Ending, written: Written, took: Duration) {
        let (parts, given) = (&self.parts, &end.given);
        let task = end.write.lease.task;
        if matches!(written.state, State::Queued | State::RollingBack) {
            parts.bell.ring(Wake::Work);
            parts.remote.hub.wake(&given.queue, &given.kind, 1);
        }
        if let Some(settlement) = &end.write.settle {
            let age = parts.clock.now().since(given.created_at);
            given.meters.settled(settlement, written.state, took, age);
            if let Some(at) = settlement.verdict.due_at {
                parts.due.note(at);
            }
        }
        if written.state.is_ended() {
            parts.waiters.tell(task);
            if given.family {
                parts.family_now.notify_one();
            }
        }
    }

    /// Something was written about tasks.
    pub(super) fn told(&self) {
        self.parts.feed.changed();
    }
}

/// A step as it is recorded, or why it cannot be.
pub(super) fn step_record(parts: &Parts, step: Step) -> Result<StepRecord> {
    let Step { name, outcome, output, reason, version, duration } = step;
    if name.is_empty() || name.len() > NAME_MAX || name.chars().any(char::is_control) {
        return Err(invalid(format!("step.name `{name:.40}`: use 1 to {NAME_MAX} characters")));
    }
    if version == 0 || version > i64::MAX as u64 {
        return Err(invalid("step.version must be greater than the checkpoint's".to_owned()));
    }
    check_duration("step.duration_ms", Some(duration))?;
    let output = check_output(parts, "step.output", output)?;
    let failed = outcome == StepOutcome::Failed;
    // Cut like every other message.
    let reason = reason.map(|text| Cause::new(Class::Unknown, text).message);
    Ok(StepRecord {
        name,
        outcome,
        version: Version(version),
        output: output.filter(|_| outcome == StepOutcome::Done),
        reason,
        class: failed.then_some(Class::Unknown),
        duration,
        log: None,
    })
}

/// From a worker's words to an outcome. An output that cannot be kept is a failure.
pub(super) fn outcome_of(parts: &Parts, given: &Given, finish: Finish) -> Result<Outcome> {
    Ok(match finish {
        // The work is done, and nobody can give it again in a better form.
        Finish::Done { output } => match check_output(parts, "finish.output", output) {
            Ok(output) => Outcome::Done { output },
            Err(refused) => Outcome::Error(Cause::new(Class::Output, refused.message())),
        },
        Finish::Fail(trouble) => Outcome::Error(error_of(given, trouble, Class::Fatal)?),
        Finish::Retry { trouble, delay } => {
            check_duration("finish.delay", delay)?;
            let error = error_of(given, trouble, Class::Retryable)?;
            Outcome::Error(Cause { retry_after: delay, ..error })
        }
        Finish::Snooze { delay } => {
            check_duration("finish.delay", Some(delay))?;
            Outcome::Snooze { until: parts.clock.now().plus(delay) }
        }
        Finish::Release => Outcome::Release,
    })
}

/// The class may say more than the outcome, and nothing else than it.
fn error_of(given: &Given, trouble: Trouble, usual: Class) -> Result<Cause> {
    let Trouble { message, class, detail, step } = trouble;
    let fits: &[Class] = match usual {
        Class::Fatal => &[Class::Fatal, Class::Output],
        _ => &[Class::Retryable, Class::Timeout, Class::Unknown, Class::Panic],
    };
    let class = class.unwrap_or(usual);
    if !fits.contains(&class) {
        let words: Vec<&str> = fits.iter().map(|c| c.as_str()).collect();
        let message = format!("error.class `{class}` does not fit; use {}", words.join(", "));
        return Err(invalid(message));
    }
    if detail.as_ref().is_some_and(|detail| detail.len() > DETAIL_MAX) {
        return Err(invalid(format!("error.detail has more than {DETAIL_MAX} bytes")));
    }
    if step.as_ref().is_some_and(|step| step.len() > NAME_MAX) {
        return Err(invalid(format!("error.step has more than {NAME_MAX} bytes")));
    }
    let message = if message.is_empty() { "the worker gave no reason".to_owned() } else { message };
    let step = step.map(|name| {
        let place = given.steps.iter().flatten().position(|planned| *planned == name);
        StepRef { name, index: u32::try_from(place.unwrap_or(0)).unwrap_or(u32::MAX) }
    });
    Ok(Cause { detail, step, ..Cause::new(class, message) })
}

/// What a worker gives is kept like a payload; keys that ask for something have to
/// wait until this version can do it, and names with `_` are ours.
fn check_output(parts: &Parts, field: &str, output: Option<Json>) -> Result<Option<Json>> {
    let Some(output) = output else { return Ok(None) };
    let (size, max) = (output.as_str().len(), parts.settings.payload_max);
    if size > max {
        let message = format!("{field} has {size} bytes, at most {max} are allowed");
        return Err(Error::new(Code::PayloadTooLarge, "report", message));
    }
    if output.as_str().trim_start().starts_with('{') {
        let fields: serde_json::Map<String, serde_json::Value> = output.to()?;
        if fields.contains_key("children") {
            return Err(invalid(format!(
                "{field}: children are not supported by this version yet"
            )));
        }
        if let Some(key) = fields.keys().find(|key| key.starts_with('_')) {
            let message = format!("{field}: names that start with `_` are reserved: `{key}`");
            return Err(invalid(message));
        }
    }
    Ok(Some(output))
}

pub(super) fn invalid(message: String) -> Error {
    Error::invalid("report", message)
}
