//! From what user code said to what is written: pure, so that every rule about
//! retries and ends can be tested without a clock, a store or a runtime. The
//! engine calls [`settle`] once per attempt; the store writes the verdict it
//! gets, choosing only by the requests that came in meanwhile.

use crate::clock::Timestamp;
use crate::json::Json;
use crate::outcome::{Class, Failure, Outcome, Reason, StepRef, TaskError, WaitingOn};
use crate::retry::{Jitter, RetryPolicy};
use crate::state::State;

/// What an error of unknown nature means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnknownErrors {
    #[default]
    Retry,
    Fail,
}

/// What `settle` needs to know about the kind.
#[derive(Debug, Clone, Copy)]
pub struct Rules<'a> {
    pub retry: &'a dyn RetryPolicy,
    pub unknown_errors: UnknownErrors,
}

/// What `settle` needs to know about the attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempted {
    /// `Running` or `RollingBack`.
    pub state: State,
    /// Retries burnt before this attempt.
    pub retries: u32,
}

/// Where a task goes when its lease ends.
#[derive(Debug, Clone, PartialEq, Hash)]
pub struct Verdict {
    pub to: State,
    /// When it becomes ready again, for states that wait for a time.
    pub due_at: Option<Timestamp>,
    pub result: Option<Json>,
    pub failure: Option<Failure>,
    pub waiting_on: Option<WaitingOn>,
    /// Counts against the task's retries.
    pub burns_retry: bool,
}

impl Verdict {
    pub fn to(state: State) -> Self {
        Verdict {
            to: state,
            due_at: None,
            result: None,
            failure: None,
            waiting_on: None,
            burns_retry: false,
        }
    }

    fn later(state: State, at: Timestamp, waiting_on: WaitingOn) -> Self {
        Verdict { due_at: Some(at), waiting_on: Some(waiting_on), ..Verdict::to(state) }
    }

    fn failed(reason: Reason, error: TaskError) -> Self {
        Verdict { failure: Some(Failure::ended(reason, error)), ..Verdict::to(State::Failed) }
    }
}

/// A verdict with its alternatives for what was asked for while the attempt
/// ran. The store picks by the request flags of the lease and computes nothing.
#[derive(Debug, Clone, PartialEq, Hash)]
pub struct Settlement {
    pub verdict: Verdict,
    /// Instead, when a cancel was requested meanwhile.
    pub if_cancelled: Option<Verdict>,
    /// Instead, when a pause was requested meanwhile (and nothing else).
    pub if_paused: Option<Verdict>,
    /// Instead, when a rollback was requested meanwhile; goes before a cancel.
    pub if_rolled_back: Option<Verdict>,
}

impl Settlement {
    /// The verdict and its alternatives.
    pub fn verdicts(&self) -> impl Iterator<Item = &Verdict> {
        let others = [&self.if_cancelled, &self.if_paused, &self.if_rolled_back];
        std::iter::once(&self.verdict).chain(others.into_iter().flatten())
    }
}

/// Turns an outcome into a settlement.
pub fn settle(
    outcome: Outcome,
    rules: Rules<'_>,
    attempted: Attempted,
    now: Timestamp,
    jitter: Jitter,
) -> Settlement {
    let verdict = match attempted.state {
        State::RollingBack => judge_rollback(outcome, rules, attempted, now, jitter),
        _ => judge(outcome, rules, attempted, now, jitter),
    };
    with_alternatives(verdict, attempted)
}

/// What a lease that ends without a word from user code leads to: back to
/// where the task came from, or where people wanted it.
pub fn released(state: State) -> Settlement {
    let back = if state == State::RollingBack { State::RollingBack } else { State::Queued };
    with_alternatives(Verdict::to(back), Attempted { state, retries: 0 })
}

fn judge(
    outcome: Outcome,
    rules: Rules<'_>,
    attempted: Attempted,
    now: Timestamp,
    jitter: Jitter,
) -> Verdict {
    match outcome {
        Outcome::Done { output } => Verdict { result: output, ..Verdict::to(State::Completed) },
        Outcome::Fail { reason, step } => Verdict::failed(
            Reason::Fatal,
            TaskError { step, ..TaskError::new(Class::Fatal, reason) },
        ),
        Outcome::Error(error) => judge_error(error, rules, attempted, now, jitter),
        Outcome::Timeout { step } => Verdict::failed(Reason::Timeout, timed_out(step)),
        Outcome::Snooze { until } => {
            Verdict::later(State::Scheduled, until, WaitingOn::Time { until })
        }
        Outcome::Limited { name, until } => {
            Verdict::later(State::Scheduled, until, WaitingOn::Limit { name, until })
        }
        Outcome::Wait(on) => Verdict { waiting_on: Some(on), ..Verdict::to(State::Waiting) },
        Outcome::Release => Verdict::to(State::Queued),
        Outcome::Pause { why } => paused(why),
        Outcome::Cancelled => Verdict::to(State::Cancelled),
        Outcome::RollBack | Outcome::RolledBack => Verdict::to(State::RollingBack),
    }
}

/// A rollback backs off like a run, but its state stays `RollingBack`, and
/// giving up is a dead letter of its own.
fn judge_rollback(
    outcome: Outcome,
    rules: Rules<'_>,
    attempted: Attempted,
    now: Timestamp,
    jitter: Jitter,
) -> Verdict {
    match outcome {
        Outcome::Done { .. } | Outcome::RolledBack => Verdict::to(State::RolledBack),
        Outcome::Pause { why } => paused(why),
        Outcome::Snooze { until } | Outcome::Limited { until, .. } => {
            Verdict::later(State::RollingBack, until, WaitingOn::Time { until })
        }
        Outcome::Release | Outcome::Cancelled | Outcome::RollBack | Outcome::Wait(_) => {
            Verdict::to(State::RollingBack)
        }
        Outcome::Fail { reason, step } => Verdict::failed(
            Reason::Rollback,
            TaskError { step, ..TaskError::new(Class::Fatal, reason) },
        ),
        Outcome::Timeout { step } => Verdict::failed(Reason::Rollback, timed_out(step)),
        Outcome::Error(error) => match judge_error(error, rules, attempted, now, jitter) {
            retry if retry.to == State::Retrying => Verdict { to: State::RollingBack, ..retry },
            mut failed => {
                if let Some(failure) = &mut failed.failure {
                    failure.reason = Some(Reason::Rollback);
                }
                failed
            }
        },
    }
}

fn judge_error(
    error: TaskError,
    rules: Rules<'_>,
    attempted: Attempted,
    now: Timestamp,
    jitter: Jitter,
) -> Verdict {
    let reason = error.reason.unwrap_or(match error.class {
        Class::Persistence => Reason::Persistence,
        _ => Reason::Fatal,
    });
    let may_retry = error.reason.is_none()
        && match error.class {
            Class::Retryable | Class::Timeout | Class::Lost => true,
            Class::Unknown | Class::Panic => rules.unknown_errors == UnknownErrors::Retry,
            Class::Fatal | Class::Output | Class::Persistence => false,
        };
    if !may_retry {
        return Verdict::failed(reason, error);
    }
    let Some(delay) = rules.retry.delay(attempted.retries.saturating_add(1), &error, jitter) else {
        return Verdict::failed(Reason::Exhausted, error);
    };
    // The other side's wish counts only when it is longer than our own delay.
    let until = now.plus(delay.max(error.retry_after.unwrap_or_default()));
    Verdict {
        failure: Some(Failure::latest(error)),
        burns_retry: true,
        ..Verdict::later(State::Retrying, until, WaitingOn::Time { until })
    }
}

fn timed_out(step: Option<StepRef>) -> TaskError {
    TaskError { step, ..TaskError::new(Class::Timeout, "the task ran longer than its timeout") }
}

fn paused(why: String) -> Verdict {
    let waiting_on = Some(WaitingOn::Person { why });
    Verdict { waiting_on, ..Verdict::to(State::Paused) }
}

/// Work that is done stays done: a cancel or pause that came too late changes
/// nothing. A rollback cannot be cancelled, only paused.
fn with_alternatives(verdict: Verdict, attempted: Attempted) -> Settlement {
    let finished = matches!(verdict.to, State::Completed | State::RolledBack | State::Cancelled);
    let cancel = !finished && attempted.state != State::RollingBack;
    let pause = !finished && !verdict.to.is_ended();
    let if_cancelled = cancel
        .then(|| Verdict { failure: verdict.failure.clone(), ..Verdict::to(State::Cancelled) });
    let if_rolled_back = cancel
        .then(|| Verdict { failure: verdict.failure.clone(), ..Verdict::to(State::RollingBack) });
    // A paused task keeps its time: resuming goes back there. It waits for a
    // person now, unless it waited for something that can come meanwhile.
    let waits = match verdict.to {
        State::Waiting | State::Paused => verdict.waiting_on.clone(),
        _ => Some(WaitingOn::Person { why: "requested".to_owned() }),
    };
    let if_paused =
        pause.then(|| Verdict { to: State::Paused, waiting_on: waits, ..verdict.clone() });
    Settlement { verdict, if_cancelled, if_paused, if_rolled_back }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retry::Exponential;
    use proptest::prelude::*;
    use std::time::Duration;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);
    const RUN: Attempted = Attempted { state: State::Running, retries: 0 };

    fn by(outcome: Outcome, attempted: Attempted) -> Settlement {
        let rules = Rules { retry: &Exponential::TASK, unknown_errors: UnknownErrors::Retry };
        settle(outcome, rules, attempted, NOW, Jitter::NONE)
    }

    fn error(class: Class) -> Outcome {
        Outcome::Error(TaskError::new(class, "x"))
    }

    fn reason(s: &Settlement) -> Option<Reason> {
        s.verdict.failure.as_ref().and_then(|f| f.reason)
    }

    #[test]
    fn classes_lead_where_the_contract_says() {
        for class in [Class::Retryable, Class::Timeout, Class::Unknown, Class::Panic, Class::Lost] {
            let s = by(error(class), RUN);
            assert_eq!(s.verdict.to, State::Retrying, "{class}");
            assert_eq!(s.verdict.due_at, Some(NOW.plus(Duration::from_secs(5))));
            assert!(s.verdict.burns_retry);
            assert_eq!(reason(&s), None);
        }
        for (class, why) in [
            (Class::Fatal, Reason::Fatal),
            (Class::Output, Reason::Fatal),
            (Class::Persistence, Reason::Persistence),
        ] {
            let s = by(error(class), RUN);
            assert_eq!((s.verdict.to, reason(&s)), (State::Failed, Some(why)), "{class}");
        }
    }

    #[test]
    fn unknown_errors_can_be_told_to_fail() {
        let rules = Rules { retry: &Exponential::TASK, unknown_errors: UnknownErrors::Fail };
        let s = settle(error(Class::Unknown), rules, RUN, NOW, Jitter::NONE);
        assert_eq!((s.verdict.to, reason(&s)), (State::Failed, Some(Reason::Fatal)));
        let s = settle(error(Class::Retryable), rules, RUN, NOW, Jitter::NONE);
        assert_eq!(s.verdict.to, State::Retrying);
    }

    #[test]
    fn the_sixteenth_failure_is_exhausted() {
        let s = by(error(Class::Retryable), Attempted { retries: 15, ..RUN });
        assert_eq!((s.verdict.to, reason(&s)), (State::Failed, Some(Reason::Exhausted)));
        assert!(!s.verdict.burns_retry);
    }

    #[test]
    fn a_longer_retry_after_wins_a_shorter_one_does_not() {
        for (wish, expected) in [(60, 60), (1, 5)] {
            let mut e = TaskError::new(Class::Retryable, "busy");
            e.retry_after = Some(Duration::from_secs(wish));
            let s = by(Outcome::Error(e), RUN);
            assert_eq!(s.verdict.due_at, Some(NOW.plus(Duration::from_secs(expected))));
        }
    }

    #[test]
    fn an_undecodable_payload_never_retries() {
        let mut e = TaskError::new(Class::Unknown, "no such field");
        e.reason = Some(Reason::Undecodable);
        let s = by(Outcome::Error(e), RUN);
        assert_eq!((s.verdict.to, reason(&s)), (State::Failed, Some(Reason::Undecodable)));
    }

    #[test]
    fn a_task_timeout_fails_without_retry() {
        let s = by(Outcome::Timeout { step: None }, RUN);
        assert_eq!((s.verdict.to, reason(&s)), (State::Failed, Some(Reason::Timeout)));
    }

    #[test]
    fn release_and_snooze_burn_nothing() {
        for outcome in [Outcome::Release, Outcome::Snooze { until: NOW }] {
            assert!(!by(outcome, RUN).verdict.burns_retry);
        }
    }

    #[test]
    fn a_late_cancel_does_not_undo_done_work() {
        assert_eq!(by(Outcome::Done { output: None }, RUN).if_cancelled, None);
        for outcome in [error(Class::Retryable), error(Class::Fatal), Outcome::Release] {
            let s = by(outcome, RUN);
            assert_eq!(s.if_cancelled.map(|v| v.to), Some(State::Cancelled));
        }
    }

    #[test]
    fn a_pause_holds_a_retry_with_its_time_and_its_cost() {
        let s = by(error(Class::Retryable), RUN);
        let paused = s.if_paused.unwrap();
        assert_eq!(paused.to, State::Paused);
        assert!(paused.burns_retry);
        assert_eq!(paused.due_at, s.verdict.due_at);
        assert_eq!(by(error(Class::Fatal), RUN).if_paused, None);
    }

    #[test]
    fn rollback_backs_off_and_fails_by_its_own_name() {
        let back = Attempted { state: State::RollingBack, retries: 0 };
        let s = by(error(Class::Retryable), back);
        assert_eq!(s.verdict.to, State::RollingBack);
        assert!(s.verdict.due_at.is_some());
        assert_eq!(s.if_cancelled, None);
        let s = by(error(Class::Fatal), back);
        assert_eq!((s.verdict.to, reason(&s)), (State::Failed, Some(Reason::Rollback)));
        assert_eq!(by(Outcome::RolledBack, back).verdict.to, State::RolledBack);
    }

    fn outcomes() -> impl Strategy<Value = Outcome> {
        let class = prop::sample::select(Class::ALL.to_vec());
        prop_oneof![
            Just(Outcome::Done { output: None }),
            Just(Outcome::Fail { reason: "r".into(), step: None }),
            class.prop_map(|c| Outcome::Error(TaskError::new(c, "m"))),
            Just(Outcome::Timeout { step: None }),
            (0i64..100)
                .prop_map(|s| Outcome::Snooze { until: NOW.plus(Duration::from_secs(s as u64)) }),
            Just(Outcome::Release),
            Just(Outcome::Pause { why: "p".into() }),
            Just(Outcome::Cancelled),
            Just(Outcome::RollBack),
            Just(Outcome::RolledBack),
        ]
    }

    proptest! {
        /// Whatever user code says, the verdict and both alternatives are
        /// transitions of the one table, and a waiting state has its time.
        #[test]
        fn every_settlement_is_a_legal_transition(
            outcome in outcomes(),
            retries in 0u32..40,
            unit in 0.0f64..1.0,
            rolling in any::<bool>(),
        ) {
            let state = if rolling { State::RollingBack } else { State::Running };
            let rules = Rules { retry: &Exponential::TASK, unknown_errors: UnknownErrors::Retry };
            let s = settle(outcome, rules, Attempted { state, retries }, NOW, Jitter::new(unit));
            for v in s.verdicts() {
                prop_assert!(state.allows(v.to), "{} -> {}", state, v.to);
                prop_assert!(v.due_at.is_some() || !matches!(v.to, State::Retrying | State::Scheduled));
                prop_assert!(v.to != State::Failed || v.failure.as_ref().is_some_and(|f| f.reason.is_some()));
            }
        }
    }
}
