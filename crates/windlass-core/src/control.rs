//! What a person may do to a task, and what follows in which state. One table
//! for CLI, API, dashboard and every store: the store loads a standing, asks
//! here, and writes the answer with its audit row.

use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::event::{EventData, EventName};
use crate::json::Json;
use crate::lease::Requests;
use crate::outcome::WaitingOn;
use crate::standing::{Events, Standing};
use crate::state::State;
use crate::task::Card;
use serde_json::json;

/// A change that a person asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum TaskChange {
    Cancel,
    Pause,
    Resume,
    /// Runs a failed or cancelled task again: a new run, its history kept.
    Requeue {
        from_step: Option<String>,
        payload: Option<Json>,
    },
    /// Undoes the finished steps in reverse.
    Rollback,
    /// Takes a failed task off the dead-letter list.
    Discard,
    EditPayload(Json),
}

impl TaskChange {
    /// The verb, as in CLI, API and audit.
    pub fn verb(&self) -> &'static str {
        match self {
            TaskChange::Cancel => "cancel",
            TaskChange::Pause => "pause",
            TaskChange::Resume => "resume",
            TaskChange::Requeue { .. } => "requeue",
            TaskChange::Rollback => "rollback",
            TaskChange::Discard => "discard",
            TaskChange::EditPayload(_) => "edit",
        }
    }
}

/// What a change did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changed {
    /// The task changed here and now.
    Done,
    /// The node that holds the task is asked; it takes effect there.
    Requested,
    /// It was so already.
    Already,
}

/// Applies a change to a standing. `has_dead_letter` is what the store knows.
/// A refusal says why and changes nothing.
pub fn apply(
    change: &TaskChange,
    card: &Card,
    standing: &mut Standing,
    has_dead_letter: bool,
    now: Timestamp,
    out: &mut Events,
) -> Result<Changed> {
    let mut hand = Hand { card, standing, now, out };
    match change {
        TaskChange::Cancel => hand.cancel(),
        TaskChange::Pause => hand.pause(),
        TaskChange::Resume => hand.resume(),
        TaskChange::Requeue { .. } => hand.requeue(),
        TaskChange::Rollback => hand.rollback(),
        TaskChange::Discard => hand.discard(has_dead_letter),
        TaskChange::EditPayload(_) => hand.edit(),
    }
}

struct Hand<'a> {
    card: &'a Card,
    standing: &'a mut Standing,
    now: Timestamp,
    out: &'a mut Events,
}

impl Hand<'_> {
    fn enter(&mut self, to: State) -> Result<Changed> {
        self.standing.state.check(to)?;
        self.standing.state = to;
        self.standing.updated_at = self.now;
        self.standing.finished_at = to.is_ended().then_some(self.now);
        self.standing.tell_state(self.card, self.now, self.out);
        Ok(Changed::Done)
    }

    fn ask(&mut self, wish: impl FnOnce(&mut Requests)) -> Result<Changed> {
        let before = self.standing.requests;
        wish(&mut self.standing.requests);
        let same = before == self.standing.requests;
        Ok(if same { Changed::Already } else { Changed::Requested })
    }

    fn cancel(&mut self) -> Result<Changed> {
        match self.standing.state {
            State::Cancelled => Ok(Changed::Already),
            State::Running => self.ask(|r| r.cancel = true),
            _ => {
                self.standing.state.check(State::Cancelled)?;
                self.standing.waiting_on = None;
                self.standing.held_from = None;
                self.enter(State::Cancelled)
            }
        }
    }

    fn pause(&mut self) -> Result<Changed> {
        if self.standing.state == State::Paused {
            return Ok(Changed::Already);
        }
        if self.standing.leased {
            return self.ask(|r| r.pause = true);
        }
        let from = self.standing.state;
        from.check(State::Paused)?;
        self.standing.held_from = Some(from);
        // Children and signals stay named: resuming goes back to waiting.
        if from != State::Waiting {
            self.standing.waiting_on = Some(WaitingOn::Person { why: "requested".to_owned() });
        }
        self.enter(State::Paused)
    }

    fn resume(&mut self) -> Result<Changed> {
        if self.standing.leased && self.standing.requests.pause {
            self.standing.requests.pause = false;
            return Ok(Changed::Done);
        }
        if self.standing.state != State::Paused {
            let state = self.standing.state;
            return Err(Error::conflict("resume", format!("a {state} task is not paused")));
        }
        let ahead = self.standing.due_at > self.now;
        let to = match self.standing.held_from.take() {
            Some(State::Waiting) => State::Waiting,
            Some(State::RollingBack) => State::RollingBack,
            Some(s @ (State::Scheduled | State::Retrying)) if ahead => s,
            _ => State::Queued,
        };
        self.standing.state.check(to)?;
        if to != State::Waiting {
            let until = self.standing.due_at;
            self.standing.waiting_on = ahead.then_some(WaitingOn::Time { until });
        }
        self.standing.state = to;
        self.standing.updated_at = self.now;
        self.standing.tell(self.card, EventName::Resumed, self.now, EventData::None, self.out);
        Ok(Changed::Done)
    }

    fn requeue(&mut self) -> Result<Changed> {
        let from = self.standing.state;
        if !matches!(from, State::Failed | State::Cancelled) {
            let hint = "only failed and cancelled tasks can be requeued; use rerun for a new task";
            return Err(Error::conflict("requeue", format!("the task is {from}; {hint}")));
        }
        let s = &mut *self.standing;
        s.state = State::Queued;
        s.run += 1;
        s.retries = 0;
        s.crashes = 0;
        s.due_at = self.now;
        s.updated_at = self.now;
        s.finished_at = None;
        s.children = None;
        s.waiting_on = None;
        let data = EventData::of(&json!({"run": s.run}));
        s.tell(self.card, EventName::Requeued, self.now, data, self.out);
        if from == State::Failed {
            s.tell(self.card, EventName::DeadLetterRequeued, self.now, EventData::None, self.out);
        }
        Ok(Changed::Done)
    }

    fn rollback(&mut self) -> Result<Changed> {
        match self.standing.state {
            State::RollingBack => Ok(Changed::Already),
            State::Running => self.ask(|r| r.rollback = true),
            from => {
                from.check(State::RollingBack)?;
                let s = &mut *self.standing;
                s.retries = 0;
                s.crashes = 0;
                s.due_at = self.now;
                s.waiting_on = None;
                s.held_from = None;
                // Totals are frozen only while a task has ended.
                s.children = None;
                self.enter(State::RollingBack)
            }
        }
    }

    fn discard(&mut self, has_dead_letter: bool) -> Result<Changed> {
        if self.standing.state != State::Failed {
            let state = self.standing.state;
            return Err(Error::conflict("discard", format!("a {state} task has no dead letter")));
        }
        if !has_dead_letter {
            return Ok(Changed::Already);
        }
        let data = EventData::None;
        self.standing.tell(self.card, EventName::DeadLetterDiscarded, self.now, data, self.out);
        Ok(Changed::Done)
    }

    fn edit(&mut self) -> Result<Changed> {
        let editable = [
            State::Scheduled,
            State::Queued,
            State::Retrying,
            State::Paused,
            State::Failed,
            State::Cancelled,
        ];
        if !editable.contains(&self.standing.state) {
            let state = self.standing.state;
            let message = format!("the payload of a {state} task cannot be edited");
            return Err(Error::conflict("edit", message));
        }
        self.standing.updated_at = self.now;
        Ok(Changed::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{NodeId, TaskId};
    use crate::task::{Kind, QueueName};
    use std::time::Duration;

    const T: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    fn card() -> Card {
        Card {
            id: TaskId::from_key(1),
            kind: Kind::trusted("k"),
            queue: QueueName::default(),
            priority: 0,
            parent: None,
            unique: false,
            correlation_id: None,
        }
    }

    fn standing(state: State) -> Standing {
        let mut s = Standing::born(state, T, T);
        s.leased = state == State::Running;
        s
    }

    fn requeue() -> TaskChange {
        TaskChange::Requeue { from_step: None, payload: None }
    }

    fn word(state: State, change: &TaskChange) -> String {
        let mut s = standing(state);
        match apply(change, &card(), &mut s, true, T, &mut vec![]) {
            Ok(Changed::Done) => s.state.to_string(),
            Ok(Changed::Requested) => "asked".to_owned(),
            Ok(Changed::Already) => "already".to_owned(),
            Err(_) => "-".to_owned(),
        }
    }

    #[test]
    fn every_change_in_every_state() {
        use State::*;
        let changes = [
            TaskChange::Cancel,
            TaskChange::Pause,
            TaskChange::Resume,
            requeue(),
            TaskChange::Rollback,
            TaskChange::Discard,
            TaskChange::EditPayload(Json::default()),
        ];
        //           cancel       pause      resume    requeue   rollback        discard   edit
        let table = [
            (Scheduled, ["cancelled", "paused", "-", "-", "-", "-", "scheduled"]),
            (Queued, ["cancelled", "paused", "-", "-", "-", "-", "queued"]),
            (Running, ["asked", "asked", "-", "-", "asked", "-", "-"]),
            (Retrying, ["cancelled", "paused", "-", "-", "rolling_back", "-", "retrying"]),
            (Waiting, ["cancelled", "paused", "-", "-", "-", "-", "-"]),
            (Paused, ["cancelled", "already", "queued", "-", "rolling_back", "-", "paused"]),
            (RollingBack, ["-", "paused", "-", "-", "already", "-", "-"]),
            (Completed, ["-", "-", "-", "-", "-", "-", "-"]),
            (CompletedWithErrors, ["-", "-", "-", "-", "-", "-", "-"]),
            (Failed, ["-", "-", "-", "queued", "rolling_back", "failed", "failed"]),
            (Cancelled, ["already", "-", "-", "queued", "rolling_back", "-", "cancelled"]),
            (RolledBack, ["-", "-", "-", "-", "-", "-", "-"]),
        ];
        for (state, expected) in table {
            let got: Vec<String> = changes.iter().map(|c| word(state, c)).collect();
            assert_eq!(got, expected, "{state}");
        }
    }

    #[test]
    fn a_refusal_changes_nothing() {
        for state in State::ALL {
            for change in [TaskChange::Cancel, TaskChange::Pause, TaskChange::Resume, requeue()] {
                let mut s = standing(state);
                let mut out = vec![];
                if apply(&change, &card(), &mut s, false, T, &mut out).is_err() {
                    assert_eq!(s, standing(state), "{change:?}");
                    assert!(out.is_empty());
                }
            }
        }
    }

    #[test]
    fn resuming_goes_back_to_where_the_pause_found_it() {
        let later = T.plus(Duration::from_secs(60));
        let after = later.plus(Duration::from_secs(1));
        for (state, due, now, expected) in [
            (State::Retrying, later, T, State::Retrying),
            (State::Retrying, later, after, State::Queued),
            (State::Scheduled, later, T, State::Scheduled),
            (State::Waiting, T, T, State::Waiting),
            (State::RollingBack, T, T, State::RollingBack),
            (State::Queued, T, T, State::Queued),
        ] {
            let mut s = standing(state);
            s.due_at = due;
            s.waiting_on = Some(WaitingOn::Signal { name: "s".into() });
            apply(&TaskChange::Pause, &card(), &mut s, false, T, &mut vec![]).unwrap();
            apply(&TaskChange::Resume, &card(), &mut s, false, now, &mut vec![]).unwrap();
            assert_eq!(s.state, expected);
            assert_eq!(s.held_from, None);
            if state == State::Waiting {
                assert_eq!(s.waiting_on, Some(WaitingOn::Signal { name: "s".into() }));
            }
        }
    }

    #[test]
    fn asking_twice_is_already_so() {
        let mut s = standing(State::Running);
        s.node = Some(NodeId::from_key(1));
        let mut ask = |c: &TaskChange| apply(c, &card(), &mut s, false, T, &mut vec![]).unwrap();
        assert_eq!(ask(&TaskChange::Cancel), Changed::Requested);
        assert_eq!(ask(&TaskChange::Cancel), Changed::Already);
        assert_eq!(ask(&TaskChange::Pause), Changed::Requested);
        assert_eq!(ask(&TaskChange::Resume), Changed::Done);
        assert!(!s.requests.pause && s.requests.cancel);
    }

    #[test]
    fn a_requeue_is_a_new_run_with_its_history() {
        let mut s = standing(State::Failed);
        (s.retries, s.crashes, s.attempt) = (15, 2, 16);
        let mut out = vec![];
        apply(&requeue(), &card(), &mut s, true, T, &mut out).unwrap();
        assert_eq!((s.run, s.retries, s.crashes, s.attempt), (2, 0, 0, 16));
        let names: Vec<&str> = out.iter().map(|e| e.name.as_str()).collect();
        assert_eq!(names, ["task.requeued", "dead_letter.requeued"]);
    }
}
