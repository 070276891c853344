//! Short words for what cases hand to a store: tasks, steps, outcomes and
//! settlements. Settlements come from core's own rules with the default retry
//! policy and no jitter, so a case can name the exact instant it expects.

use std::time::Duration;
use windlass_core::checkpoint::{StepOutcome, StepRecord, Version};
use windlass_core::children::{Policy, Then};
use windlass_core::clock::Timestamp;
use windlass_core::control::TaskChange;
use windlass_core::id::TaskId;
use windlass_core::json::Json;
use windlass_core::lease::LeaseKey;
use windlass_core::outcome::{Class, Outcome, TaskError, WaitingOn};
use windlass_core::retry::{Exponential, Jitter};
use windlass_core::settle::{Attempted, Rules, Settlement, UnknownErrors, settle};
use windlass_core::store::{Claimed, Kinds, Lane, Write};
use windlass_core::task::{ChildOf, IdempotencyKey, Kind, NewTask, QueueName, Start, Unique};

pub const SECOND: Duration = Duration::from_secs(1);
pub const MINUTE: Duration = Duration::from_secs(60);
pub const HOUR: Duration = Duration::from_secs(3600);
pub const DAY: Duration = Duration::from_secs(86_400);

pub fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub fn kind(name: &str) -> Kind {
    Kind::new(name).expect("a kind's name")
}

pub fn queue(name: &str) -> QueueName {
    QueueName::new(name).expect("a queue's name")
}

pub fn json(text: &str) -> Json {
    Json::parse(text).expect("JSON")
}

/// A lane that takes every kind.
pub fn lane(name: &str, max: usize) -> Lane {
    Lane { queue: queue(name), max, kinds: Kinds::Any }
}

/// A lane that takes only these kinds, each at most so many times.
pub fn lane_of(name: &str, max: usize, kinds: &[(&str, usize)]) -> Lane {
    let kinds = kinds.iter().map(|(name, max)| (kind(name), *max)).collect();
    Lane { queue: queue(name), max, kinds: Kinds::Only(kinds) }
}

/// A task to submit, one word per wish.
pub trait Shape: Sized {
    fn kind(self, name: &str) -> Self;
    fn queue(self, name: &str) -> Self;
    fn payload(self, text: &str) -> Self;
    fn priority(self, priority: i8) -> Self;
    fn after(self, delay: Duration) -> Self;
    fn deadline(self, within: Duration) -> Self;
    fn plan(self, steps: &[&str]) -> Self;
    fn label(self, name: &str, value: &str) -> Self;
    fn unique_live(self, key: &str) -> Self;
    fn unique_for(self, key: &str, time: Duration) -> Self;
    /// An idempotency key for a day.
    fn keyed(self, key: &str, body: u128) -> Self;
    fn under(self, parent: TaskId, key: &str) -> Self;
    fn policy(self, policy: Policy) -> Self;
}

impl Shape for NewTask {
    fn kind(mut self, name: &str) -> Self {
        self.kind = kind(name);
        self
    }

    fn queue(mut self, name: &str) -> Self {
        self.queue = queue(name);
        self
    }

    fn payload(mut self, text: &str) -> Self {
        self.payload = json(text);
        self
    }

    fn priority(mut self, priority: i8) -> Self {
        self.priority = priority;
        self
    }

    fn after(mut self, delay: Duration) -> Self {
        self.start = Start::After(delay);
        self
    }

    fn deadline(mut self, within: Duration) -> Self {
        self.deadline = Some(within);
        self
    }

    fn plan(mut self, steps: &[&str]) -> Self {
        self.extras_mut().steps = Some(steps.iter().map(|s| (*s).to_owned()).collect());
        self
    }

    fn label(mut self, name: &str, value: &str) -> Self {
        self.extras_mut().labels.insert(name.to_owned(), value.to_owned());
        self
    }

    fn unique_live(mut self, key: &str) -> Self {
        self.extras_mut().unique = Some(Unique { key: key.to_owned(), for_: None });
        self
    }

    fn unique_for(mut self, key: &str, time: Duration) -> Self {
        self.extras_mut().unique = Some(Unique { key: key.to_owned(), for_: Some(time) });
        self
    }

    fn keyed(mut self, key: &str, body: u128) -> Self {
        self.idempotency = Some(IdempotencyKey { key: key.to_owned(), body, ttl: DAY });
        self
    }

    fn under(mut self, parent: TaskId, key: &str) -> Self {
        self.child_of = Some(ChildOf { parent, key: key.to_owned() });
        self
    }

    fn policy(mut self, policy: Policy) -> Self {
        self.extras_mut().children_policy = Some(policy);
        self
    }
}

/// The lease of a claimed task.
pub fn lease(claimed: &Claimed) -> LeaseKey {
    let standing = &claimed.task.standing;
    let node = standing.node.expect("a claimed task has a node");
    LeaseKey { task: claimed.task.id, node, token: standing.token }
}

/// A write that only records steps.
pub fn steps(claimed: &Claimed, steps: Vec<StepRecord>) -> Write {
    Write { steps, ..Write::new(lease(claimed)) }
}

fn record(name: &str, outcome: StepOutcome, version: u64) -> StepRecord {
    StepRecord {
        name: name.to_owned(),
        outcome,
        version: Version(version),
        output: None,
        reason: None,
        class: None,
        duration: Duration::from_millis(10 * version),
        log: None,
    }
}

/// A failed try that left something to read.
pub fn logged(name: &str, version: u64, log: &str) -> StepRecord {
    StepRecord { log: Some(log.to_owned()), ..failed_try(name, version) }
}

/// A finished step whose output is `{name: version}`.
pub fn step(name: &str, version: u64) -> StepRecord {
    step_giving(name, version, &format!(r#"{{"{name}":{version}}}"#))
}

pub fn step_giving(name: &str, version: u64, output: &str) -> StepRecord {
    StepRecord { output: Some(json(output)), ..record(name, StepOutcome::Done, version) }
}

pub fn skipped(name: &str, version: u64) -> StepRecord {
    StepRecord {
        reason: Some("not needed".to_owned()),
        ..record(name, StepOutcome::Skipped, version)
    }
}

pub fn failed_try(name: &str, version: u64) -> StepRecord {
    StepRecord {
        reason: Some("connection reset".to_owned()),
        class: Some(Class::Retryable),
        ..record(name, StepOutcome::Failed, version)
    }
}

pub fn undone(name: &str, version: u64) -> StepRecord {
    record(name, StepOutcome::Undone, version)
}

pub fn done() -> Outcome {
    Outcome::Done { output: None }
}

pub fn done_with(result: &str) -> Outcome {
    Outcome::Done { output: Some(json(result)) }
}

pub fn fails() -> Outcome {
    Outcome::Fail { reason: "no such file".to_owned(), step: None }
}

pub fn retryable() -> Outcome {
    Outcome::Error(TaskError::new(Class::Retryable, "busy"))
}

pub fn waits(then: Then) -> Outcome {
    Outcome::Wait(WaitingOn::Children { then })
}

/// What core makes of an outcome of this attempt.
pub fn settled(claimed: &Claimed, outcome: Outcome, at: Timestamp) -> Settlement {
    let standing = &claimed.task.standing;
    let rules = Rules { retry: &Exponential::TASK, unknown_errors: UnknownErrors::Retry };
    let attempted = Attempted { state: standing.state, retries: standing.retries };
    settle(outcome, rules, attempted, at, Jitter::NONE)
}

/// A requeue that keeps everything.
pub fn requeue() -> TaskChange {
    TaskChange::Requeue { from_step: None, payload: None }
}

pub fn requeue_from(step: &str) -> TaskChange {
    TaskChange::Requeue { from_step: Some(step.to_owned()), payload: None }
}
