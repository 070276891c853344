//! The story of a task, told from its own rows instead of the feed: events may
//! have been purged, the attempts and steps of a task stay as long as it does.
//! Takes what a reader gave, oldest first, and puts it into the words of events.

use crate::checkpoint::{StepEntry, StepOutcome};
use crate::clock::{Timestamp, duration_text};
use crate::event::EventName;
use crate::id::NodeId;
use crate::outcome::Failure;
use crate::read::{Attempt, AttemptEnd};
use crate::state::State;
use crate::task::Task;
use serde::Serialize;
use std::time::Duration;

/// The attempt ended without burning anything; no event tells of it.
const RELEASED: &str = "task.released";

/// One thing that happened to a task.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub struct Entry {
    pub at: Timestamp,
    /// An event's name, or `task.released`.
    pub what: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Of a step, or of the attempt that ended.
    #[serde(skip_serializing_if = "Option::is_none", with = "duration_text::optional")]
    pub duration: Option<Duration>,
}

impl Entry {
    fn new(at: Timestamp, what: &'static str) -> Entry {
        Entry {
            at,
            what,
            run: None,
            attempt: None,
            node: None,
            step: None,
            message: None,
            duration: None,
        }
    }

    fn of(attempt: &Attempt, at: Timestamp, what: &'static str) -> Entry {
        Entry {
            run: Some(attempt.run),
            attempt: Some(attempt.attempt),
            node: Some(attempt.node),
            ..Entry::new(at, what)
        }
    }
}

/// Everything the rows of a task tell, oldest first. Attempts stand in their
/// order even where the clocks of their nodes disagree.
pub fn history(task: &Task, attempts: &[Attempt]) -> Vec<Entry> {
    let mut story = vec![Entry::new(task.created_at, EventName::Submitted.as_str())];
    for attempt in attempts {
        story.push(Entry::of(attempt, attempt.started_at, EventName::Started.as_str()));
        story.extend(attempt.steps.iter().map(|step| step_entry(attempt, step)));
        story.extend(end_of(attempt));
    }
    story.extend(end_without_attempt(task, attempts));
    story
}

fn step_entry(attempt: &Attempt, step: &StepEntry) -> Entry {
    let record = &step.record;
    let name = match record.outcome {
        StepOutcome::Done | StepOutcome::Undone => EventName::StepCompleted,
        StepOutcome::Skipped => EventName::StepSkipped,
        StepOutcome::Failed => EventName::StepFailed,
    };
    let undone = (record.outcome == StepOutcome::Undone).then(|| "undone".to_owned());
    Entry {
        step: Some(record.name.clone()),
        message: record.reason.clone().or(undone),
        duration: Some(record.duration),
        ..Entry::of(attempt, step.at, name.as_str())
    }
}

fn end_of(attempt: &Attempt) -> Option<Entry> {
    let (end, at) = attempt.ended?;
    let (what, note) = match end {
        AttemptEnd::Settled(state) => (entered(state), None),
        AttemptEnd::Lost => (EventName::LeaseLost.as_str(), Some("its node died")),
        AttemptEnd::GivenBack => (RELEASED, Some("the answer to its claim was lost")),
    };
    Some(Entry {
        message: message_of(attempt.failure.as_ref()).or(note.map(str::to_owned)),
        duration: Some(at.since(attempt.started_at)),
        ..Entry::of(attempt, at, what)
    })
}

/// The end of a task that no attempt brought: a cancel while it waited, a
/// deadline, its children.
fn end_without_attempt(task: &Task, attempts: &[Attempt]) -> Option<Entry> {
    let standing = &task.standing;
    let at = standing.finished_at.filter(|_| standing.state.is_ended())?;
    let told = attempts.last().and_then(|a| a.ended);
    if told == Some((AttemptEnd::Settled(standing.state), at)) {
        return None;
    }
    let failure = standing.failure.as_ref().filter(|_| standing.state == State::Failed);
    Some(Entry {
        run: Some(standing.run),
        message: message_of(failure),
        ..Entry::new(at, entered(standing.state))
    })
}

fn message_of(failure: Option<&Failure>) -> Option<String> {
    failure.map(|f| f.error.message.clone())
}

/// The word for entering a state.
fn entered(state: State) -> &'static str {
    let name = match state {
        State::Queued => return RELEASED,
        State::Running => EventName::Started,
        State::Scheduled => EventName::Scheduled,
        State::Retrying => EventName::Retrying,
        State::Waiting => EventName::Waiting,
        State::Paused => EventName::Paused,
        State::RollingBack => EventName::RollingBack,
        State::Completed => EventName::Completed,
        State::CompletedWithErrors => EventName::CompletedWithErrors,
        State::Failed => EventName::Failed,
        State::Cancelled => EventName::Cancelled,
        State::RolledBack => EventName::RolledBack,
    };
    name.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::{StepRecord, Version};
    use crate::id::TaskId;
    use crate::json::Json;
    use crate::lease::Token;
    use crate::outcome::{Class, Reason, TaskError};
    use crate::task::{Kind, NewTask};

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_millis(1_800_000_000_000).plus(Duration::from_secs(secs))
    }

    fn task(state: State, finished: Option<u64>) -> Task {
        let new = NewTask::new(TaskId::from_key(1), Kind::trusted("a.b"), Json::default());
        let mut task = Task::born(&new, at(0));
        task.standing.state = state;
        task.standing.finished_at = finished.map(at);
        task
    }

    fn attempt(n: u32, from: u64, ended: Option<(AttemptEnd, u64)>) -> Attempt {
        Attempt {
            token: Token(u64::from(n)),
            run: 1,
            attempt: n,
            node: NodeId::from_key(i64::from(n)),
            started_at: at(from),
            ended: ended.map(|(end, secs)| (end, at(secs))),
            failure: None,
            steps: vec![],
            settled: 0,
        }
    }

    fn step(name: &str, outcome: StepOutcome, secs: u64) -> StepEntry {
        let record = StepRecord {
            name: name.to_owned(),
            outcome,
            version: Version(1),
            output: None,
            reason: (outcome == StepOutcome::Failed).then(|| "reset".to_owned()),
            class: None,
            duration: Duration::from_millis(1500),
            log: None,
        };
        StepEntry {
            record,
            run: 1,
            attempt: 1,
            node: NodeId::from_key(1),
            at: at(secs),
            live: true,
        }
    }

    fn failure(message: &str) -> Option<Failure> {
        Some(Failure::ended(Reason::Fatal, TaskError::new(Class::Fatal, message)))
    }

    fn words(story: &[Entry]) -> Vec<&'static str> {
        story.iter().map(|e| e.what).collect()
    }

    #[test]
    fn a_life_is_told_from_birth_to_end() {
        let mut first = attempt(1, 1, Some((AttemptEnd::Settled(State::Retrying), 4)));
        first.failure = failure("busy");
        first.steps =
            vec![step("fetch", StepOutcome::Done, 2), step("scale", StepOutcome::Failed, 3)];
        let mut second = attempt(2, 10, Some((AttemptEnd::Settled(State::Completed), 12)));
        second.steps =
            vec![step("scale", StepOutcome::Skipped, 11), step("fetch", StepOutcome::Undone, 11)];
        let story = history(&task(State::Completed, Some(12)), &[first, second]);
        let expected = [
            "task.submitted",
            "task.started",
            "task.step_completed",
            "task.step_failed",
            "task.retrying",
            "task.started",
            "task.step_skipped",
            "task.step_completed",
            "task.completed",
        ];
        assert_eq!(words(&story), expected);
        assert!(story.windows(2).all(|pair| pair[0].at <= pair[1].at));
        let failed = &story[3];
        assert_eq!(
            (failed.step.as_deref(), failed.message.as_deref()),
            (Some("scale"), Some("reset"))
        );
        let retrying = &story[4];
        assert_eq!((retrying.attempt, retrying.node), (Some(1), Some(NodeId::from_key(1))));
        assert_eq!(retrying.message.as_deref(), Some("busy"));
        assert_eq!(retrying.duration, Some(Duration::from_secs(3)));
        assert_eq!(story[7].message.as_deref(), Some("undone"));
    }

    #[test]
    fn every_end_of_an_attempt_has_its_word() {
        let table = [
            (AttemptEnd::Lost, "task.lease_lost"),
            (AttemptEnd::GivenBack, "task.released"),
            (AttemptEnd::Settled(State::Queued), "task.released"),
            (AttemptEnd::Settled(State::Scheduled), "task.scheduled"),
            (AttemptEnd::Settled(State::Waiting), "task.waiting"),
            (AttemptEnd::Settled(State::Paused), "task.paused"),
            (AttemptEnd::Settled(State::RollingBack), "task.rolling_back"),
        ];
        for (end, word) in table {
            let story = history(&task(State::Queued, None), &[attempt(1, 1, Some((end, 2)))]);
            assert_eq!(words(&story), ["task.submitted", "task.started", word]);
        }
        let running = history(&task(State::Running, None), &[attempt(1, 1, None)]);
        assert_eq!(words(&running), ["task.submitted", "task.started"]);
    }

    #[test]
    fn an_end_that_no_attempt_brought_is_told_once() {
        let born = history(&task(State::Completed, Some(0)), &[]);
        assert_eq!(words(&born), ["task.submitted", "task.completed"]);
        let waited = [attempt(1, 1, Some((AttemptEnd::Settled(State::Retrying), 2)))];
        let story = history(&task(State::Cancelled, Some(5)), &waited);
        assert_eq!(words(&story)[2..], ["task.retrying", "task.cancelled"]);
        for state in State::ALL.into_iter().filter(|s| s.is_ended()) {
            let last = [attempt(1, 1, Some((AttemptEnd::Settled(state), 5)))];
            assert_eq!(history(&task(state, Some(5)), &last).len(), 3, "{state}");
        }
        let mut expired = task(State::Failed, Some(9));
        expired.standing.failure = failure("not started before its deadline");
        let story = history(&expired, &[]);
        assert_eq!(story[1].message.as_deref(), Some("not started before its deadline"));
    }

    #[test]
    fn absent_parts_are_not_written() {
        let mut first = attempt(1, 1, None);
        first.steps = vec![step("fetch", StepOutcome::Done, 2)];
        let story = history(&task(State::Running, None), &[first]);
        let text = serde_json::to_value(&story).unwrap();
        let submitted = serde_json::json!({"at": at(0), "what": "task.submitted"});
        assert_eq!(text[0], submitted);
        let expected = serde_json::json!({
            "at": at(2), "what": "task.step_completed", "run": 1, "attempt": 1,
            "node": NodeId::from_key(1), "step": "fetch", "duration": "1s500ms",
        });
        assert_eq!(text[2], expected);
    }
}
