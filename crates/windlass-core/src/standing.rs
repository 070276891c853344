//! What changes about a task, and the rules that change it. Every store loads a
//! [`Standing`], calls one of these functions, and writes what came out together
//! with the events that were pushed; no store changes a field by itself. All
//! functions are pure: time, node and token come in as arguments.

use crate::checkpoint::{StepOutcome, StepRecord, Version};
use crate::children::{Resolution, Totals};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::event::{Event, EventData, EventName, RESULT_MAX};
use crate::id::NodeId;
use crate::json::Json;
use crate::lease::{AfterCrash, PoisonRule, Requests, Token};
use crate::outcome::{Class, Failure, Reason, TaskError, WaitingOn};
use crate::settle::{Settlement, Verdict, released};
use crate::state::State;
use crate::task::{Card, Progress};
use serde_json::json;

/// The changing part of a task. `result`, `failure` and `progress` are the
/// latest ones; while a lease is held they may be absent here, which means
/// unchanged.
#[derive(Debug, Clone, PartialEq)]
pub struct Standing {
    pub state: State,
    /// Since when it is ready, or when it becomes so.
    pub due_at: Timestamp,
    /// Rises when a person requeues the task.
    pub run: u32,
    /// How many times a node took it, in all runs.
    pub attempt: u32,
    /// Retries burnt in this run.
    pub retries: u32,
    /// Nodes that died while it was inside a step, since its last recorded step.
    pub crashes: u32,
    pub token: Token,
    pub version: Version,
    /// Number of its latest event.
    pub event_n: u32,
    /// A node holds it now.
    pub leased: bool,
    /// What people asked of that node.
    pub requests: Requests,
    /// Fingerprint of the write that ended the latest attempt; 0: none did.
    pub settled: u64,
    /// While paused: the state to go back to.
    pub held_from: Option<State>,
    /// Of the latest attempt.
    pub node: Option<NodeId>,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    pub updated_at: Timestamp,
    pub waiting_on: Option<WaitingOn>,
    pub result: Option<Json>,
    pub failure: Option<Failure>,
    pub progress: Option<Progress>,
    /// Has had children: their totals and their fate matter when it ends.
    pub has_children: bool,
    /// Frozen when the parent ends; counted from the children before that.
    pub children: Option<Totals>,
}

/// Where a task is found while it is not at rest. A task is in one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Ended, paused or waiting for something that is not a time.
    Nowhere,
    /// In its queue.
    Ready,
    /// Waits for this time.
    Due(Timestamp),
    /// Held by a node.
    Leased,
}

/// Where events go while a transaction is being made.
pub type Events = Vec<Event>;

/// What a reader of the table asks before a state is written. Stores pass
/// [`State::check`]; a test may pass a broken guard to prove that the suite
/// notices.
pub type Guard = fn(State, State) -> Result<()>;

impl Standing {
    pub fn born(state: State, due_at: Timestamp, now: Timestamp) -> Self {
        let ended = state.is_ended();
        let waits = state == State::Scheduled;
        Standing {
            state,
            due_at,
            run: 1,
            attempt: 0,
            retries: 0,
            crashes: 0,
            token: Token::default(),
            version: Version::default(),
            event_n: 0,
            leased: false,
            requests: Requests::NONE,
            settled: 0,
            held_from: None,
            node: None,
            started_at: None,
            finished_at: ended.then_some(now),
            updated_at: now,
            waiting_on: waits.then_some(WaitingOn::Time { until: due_at }),
            result: None,
            failure: None,
            progress: None,
            has_children: false,
            children: None,
        }
    }

    /// Which of the small tables a store keeps beside the task row holds it.
    pub fn place(&self) -> Place {
        match self.state {
            _ if self.leased => Place::Leased,
            State::Queued => Place::Ready,
            State::Scheduled | State::Retrying => Place::Due(self.due_at),
            // A rollback that backs off keeps its state; `promote` touches it.
            State::RollingBack if self.due_at > self.updated_at => Place::Due(self.due_at),
            State::RollingBack => Place::Ready,
            _ => Place::Nowhere,
        }
    }

    /// Numbers and pushes an event of this task.
    pub fn tell(
        &mut self,
        card: &Card,
        name: EventName,
        now: Timestamp,
        data: EventData,
        out: &mut Events,
    ) {
        self.event_n += 1;
        out.push(Event::of_task(card, self.event_n, name, now, data));
    }

    /// The events of a birth.
    pub fn submitted(&mut self, card: &Card, now: Timestamp, out: &mut Events) {
        self.tell(card, EventName::Submitted, now, EventData::None, out);
        match self.state {
            State::Scheduled => self.tell_state(card, now, out),
            State::Completed => self.tell_state(card, now, out),
            _ => {}
        }
    }

    /// A node takes the task.
    pub fn claim(
        &mut self,
        card: &Card,
        node: NodeId,
        now: Timestamp,
        guard: Guard,
        out: &mut Events,
    ) -> Result<()> {
        if self.state != State::RollingBack {
            guard(self.state, State::Running)?;
            self.state = State::Running;
        }
        self.begin(card, node, now, out);
        Ok(())
    }

    fn begin(&mut self, card: &Card, node: NodeId, now: Timestamp, out: &mut Events) {
        self.token = self.token.next();
        self.attempt += 1;
        self.leased = true;
        self.node = Some(node);
        self.started_at = Some(now);
        self.updated_at = now;
        self.requests = Requests::NONE;
        self.settled = 0;
        self.waiting_on = None;
        let data = EventData::Started { run: self.run, attempt: self.attempt, node };
        self.tell(card, EventName::Started, now, data, out);
    }

    /// The holder's node died. Either the task may be taken again (the caller
    /// then calls [`Standing::take_over`]), or it has ended as poisoned.
    pub fn crashed(
        &mut self,
        card: &Card,
        rule: PoisonRule,
        was: Inside,
        now: Timestamp,
        out: &mut Events,
    ) -> AfterCrash {
        let fate = rule.after_crash(self.crashes, was.in_step, was.alone);
        let (AfterCrash::Again { crashes }
        | AfterCrash::Alone { crashes }
        | AfterCrash::Poisoned { crashes }) = fate;
        self.crashes = crashes;
        let data = json!({"node": self.node, "attempt": self.attempt, "crashes": crashes});
        self.tell(card, EventName::LeaseLost, now, EventData::of(&data), out);
        if let AfterCrash::Poisoned { .. } = fate {
            let message = format!("{crashes} nodes died while running this task");
            let error = TaskError::new(Class::Lost, message);
            let reason = match self.state {
                State::RollingBack => Reason::Rollback,
                _ => Reason::Poisoned,
            };
            self.fail(card, reason, error, now, out);
        }
        fate
    }

    /// A node takes the task over from a dead one. What people asked of the
    /// dead node still counts.
    pub fn take_over(&mut self, card: &Card, node: NodeId, now: Timestamp, out: &mut Events) {
        let requests = self.requests;
        self.begin(card, node, now, out);
        self.requests = requests;
    }

    /// A claim whose answer got lost: back to where the task came from, nothing
    /// burnt. What people asked of it meanwhile happens now.
    pub fn give_back(
        &mut self,
        card: &Card,
        now: Timestamp,
        guard: Guard,
        out: &mut Events,
    ) -> Result<()> {
        self.close(card, &released(self.state), now, guard, out)
    }

    /// A recorded step: the version rises, the crash counter falls.
    pub fn step(&mut self, card: &Card, step: &StepRecord, now: Timestamp, out: &mut Events) {
        self.version = step.version;
        self.crashes = 0;
        let name = match step.outcome {
            StepOutcome::Done | StepOutcome::Undone => EventName::StepCompleted,
            StepOutcome::Skipped => EventName::StepSkipped,
            StepOutcome::Failed => EventName::StepFailed,
        };
        let mut data = json!({"step": step.name, "version": step.version});
        if let Some(reason) = &step.reason {
            data["reason"] = json!(reason);
        }
        if let Some(class) = step.class {
            data["class"] = json!(class);
        }
        if step.outcome == StepOutcome::Undone {
            data["undone"] = json!(true);
        }
        self.tell(card, name, now, EventData::of(&data), out);
    }

    pub fn progressed(
        &mut self,
        card: &Card,
        progress: &Progress,
        now: Timestamp,
        out: &mut Events,
    ) {
        self.progress = Some(progress.clone());
        self.tell(card, EventName::Progress, now, EventData::of(progress), out);
    }

    /// Steps were dropped from the checkpoint on resume.
    pub fn discarded(
        &mut self,
        card: &Card,
        keep: usize,
        why: &str,
        now: Timestamp,
        out: &mut Events,
    ) {
        let data = json!({"kept": keep, "why": why});
        self.tell(card, EventName::CheckpointDiscarded, now, EventData::of(&data), out);
    }

    /// Ends the attempt: picks the verdict by what was requested meanwhile and
    /// goes where it says.
    pub fn close(
        &mut self,
        card: &Card,
        settlement: &Settlement,
        now: Timestamp,
        guard: Guard,
        out: &mut Events,
    ) -> Result<()> {
        let verdict = self.pick(settlement);
        guard(self.state, verdict.to)?;
        self.held_from = (verdict.to == State::Paused).then_some(match settlement.verdict.to {
            State::Paused if self.state == State::RollingBack => State::RollingBack,
            State::Paused => State::Queued,
            other => other,
        });
        self.follow(card, verdict, now, out);
        Ok(())
    }

    fn pick<'a>(&self, settlement: &'a Settlement) -> &'a Verdict {
        let alternative = match self.requests {
            r if r.rollback => &settlement.if_rolled_back,
            r if r.cancel => &settlement.if_cancelled,
            r if r.pause => &settlement.if_paused,
            _ => &None,
        };
        alternative.as_ref().unwrap_or(&settlement.verdict)
    }

    fn follow(&mut self, card: &Card, verdict: &Verdict, now: Timestamp, out: &mut Events) {
        let rolling_on = self.state == State::RollingBack && verdict.to == State::RollingBack;
        self.state = verdict.to;
        self.leased = false;
        self.due_at = verdict.due_at.unwrap_or(now);
        self.updated_at = now;
        self.retries += u32::from(verdict.burns_retry);
        if verdict.to == State::RollingBack && !rolling_on {
            // Undoing is other work than what failed: it has its own retries.
            (self.retries, self.crashes) = (0, 0);
        }
        self.requests = Requests::NONE;
        self.waiting_on.clone_from(&verdict.waiting_on);
        self.result.clone_from(&verdict.result);
        if verdict.failure.is_some() {
            self.failure.clone_from(&verdict.failure);
        }
        if self.state.is_ended() {
            self.finished_at = Some(now);
        }
        if rolling_on && verdict.failure.is_some() {
            self.tell(card, EventName::Retrying, now, self.retry_data(), out);
        } else if !rolling_on {
            self.tell_state(card, now, out);
        }
    }

    /// Ends the task as failed, with its dead letter.
    pub fn fail(
        &mut self,
        card: &Card,
        reason: Reason,
        error: TaskError,
        now: Timestamp,
        out: &mut Events,
    ) {
        let failure = Some(Failure::ended(reason, error));
        self.follow(card, &Verdict { failure, ..Verdict::to(State::Failed) }, now, out);
    }

    /// The time of a waiting task has come. A rollback's backoff ends without
    /// a change of state.
    pub fn promote(&mut self, now: Timestamp, guard: Guard) -> Result<()> {
        if self.state != State::RollingBack {
            guard(self.state, State::Queued)?;
            self.state = State::Queued;
        }
        self.waiting_on = None;
        self.updated_at = now;
        Ok(())
    }

    /// Not started before its deadline.
    pub fn expire(
        &mut self,
        card: &Card,
        deadline: Timestamp,
        now: Timestamp,
        guard: Guard,
        out: &mut Events,
    ) -> Result<()> {
        guard(self.state, State::Failed)?;
        let error =
            TaskError::new(Class::Timeout, format!("not started before its deadline {deadline}"));
        self.fail(card, Reason::Expired, error, now, out);
        Ok(())
    }

    /// A task past its deadline that never started is not started any more,
    /// unless a person asked for it again.
    pub fn is_expired(&self, deadline: Option<Timestamp>, now: Timestamp) -> bool {
        self.attempt == 0
            && self.run == 1
            && matches!(self.state, State::Queued | State::Scheduled)
            && deadline.is_some_and(|d| d < now)
    }

    /// A parent's children have been judged. `Wait` changes nothing.
    pub fn children_ended(
        &mut self,
        card: &Card,
        resolution: Resolution,
        totals: Totals,
        now: Timestamp,
        out: &mut Events,
    ) {
        let verdict = match resolution {
            Resolution::Wait => return,
            Resolution::Resume => Verdict::to(State::Queued),
            Resolution::Completed => Verdict::to(State::Completed),
            Resolution::CompletedWithErrors => Verdict::to(State::CompletedWithErrors),
            Resolution::Failed => {
                let lost = totals.failed + totals.cancelled;
                let message = format!("{lost} of {} children did not complete", totals.total);
                let error = TaskError::new(Class::Fatal, message);
                let failure = Some(Failure::ended(Reason::Children, error));
                Verdict { failure, ..Verdict::to(State::Failed) }
            }
        };
        // Totals freeze when the parent ends, not while it goes on.
        self.children = verdict.to.is_ended().then_some(totals);
        self.follow(card, &verdict, now, out);
    }

    fn retry_data(&self) -> EventData {
        EventData::of(
            &json!({"until": self.due_at, "retries": self.retries, "failure": self.failure}),
        )
    }

    /// Tells of the state just entered.
    pub(crate) fn tell_state(&mut self, card: &Card, now: Timestamp, out: &mut Events) {
        let (name, data) = match self.state {
            // Back in line is no news: starting again will be.
            State::Queued | State::Running => return,
            State::Scheduled => {
                (EventName::Scheduled, EventData::of(&json!({"until": self.due_at})))
            }
            State::Retrying => (EventName::Retrying, self.retry_data()),
            State::Waiting => (EventName::Waiting, EventData::of(&json!({"on": self.waiting_on}))),
            State::Paused => (EventName::Paused, EventData::of(&json!({"on": self.waiting_on}))),
            State::RollingBack => (EventName::RollingBack, EventData::None),
            State::RolledBack => (EventName::RolledBack, EventData::None),
            State::Cancelled => (EventName::Cancelled, EventData::None),
            State::Completed => (EventName::Completed, self.result_data()),
            State::CompletedWithErrors => {
                (EventName::CompletedWithErrors, EventData::of(&json!({"children": self.children})))
            }
            State::Failed => (EventName::Failed, EventData::of(&json!({"failure": self.failure}))),
        };
        self.tell(card, name, now, data, out);
        if self.state == State::Failed {
            let data =
                EventData::of(&json!({"reason": self.failure.as_ref().and_then(|f| f.reason)}));
            self.tell(card, EventName::DeadLetterEntered, now, data, out);
        }
    }

    fn result_data(&self) -> EventData {
        match &self.result {
            Some(result) if result.as_str().len() <= RESULT_MAX => {
                EventData::Result(result.clone())
            }
            _ => EventData::None,
        }
    }
}

/// What a task was doing when its node died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inside {
    pub in_step: bool,
    pub alone: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::TaskId;
    use crate::outcome::Outcome;
    use crate::retry::{Exponential, Jitter};
    use crate::settle::{Attempted, Rules, UnknownErrors, settle};
    use crate::task::{Kind, QueueName};
    use proptest::prelude::*;

    const T: Timestamp = Timestamp::from_millis(1_800_000_000_000);
    const NODE: NodeId = NodeId::from_key(1);

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

    fn settled(outcome: Outcome, s: &Standing) -> Settlement {
        let rules = Rules { retry: &Exponential::TASK, unknown_errors: UnknownErrors::Retry };
        settle(outcome, rules, Attempted { state: s.state, retries: s.retries }, T, Jitter::NONE)
    }

    fn running(out: &mut Events) -> Standing {
        let mut s = Standing::born(State::Queued, T, T);
        s.submitted(&card(), T, out);
        s.claim(&card(), NODE, T, State::check, out).unwrap();
        s
    }

    fn names(out: &Events) -> Vec<&str> {
        out.iter().map(|e| e.name.as_str()).collect()
    }

    #[test]
    fn a_plain_life() {
        let mut out = vec![];
        let mut s = running(&mut out);
        let done = settled(Outcome::Done { output: Some(Json::trusted("7")) }, &s);
        s.close(&card(), &done, T, State::check, &mut out).unwrap();
        assert_eq!(s.state, State::Completed);
        assert_eq!(s.result, Some(Json::trusted("7")));
        assert_eq!(names(&out), ["task.submitted", "task.started", "task.completed"]);
        assert_eq!(out.iter().map(|e| e.n).collect::<Vec<_>>(), [1, 2, 3]);
        assert!(s.claim(&card(), NODE, T, State::check, &mut out).is_err());
    }

    #[test]
    fn a_failure_enters_the_dead_letters() {
        let mut out = vec![];
        let mut s = running(&mut out);
        let failed = settled(Outcome::Fail { reason: "no".into(), step: None }, &s);
        s.close(&card(), &failed, T, State::check, &mut out).unwrap();
        assert_eq!(names(&out)[2..], ["task.failed", "dead_letter.entered"]);
    }

    #[test]
    fn a_pause_remembers_where_to_go_back() {
        let mut out = vec![];
        let mut s = running(&mut out);
        s.requests.pause = true;
        let retry = settled(Outcome::Error(TaskError::new(Class::Retryable, "x")), &s);
        s.close(&card(), &retry, T, State::check, &mut out).unwrap();
        assert_eq!((s.state, s.held_from, s.retries), (State::Paused, Some(State::Retrying), 1));
    }

    #[test]
    fn crashes_are_cleared_by_a_recorded_step_and_poison_at_the_limit() {
        let mut out = vec![];
        let mut s = running(&mut out);
        let rule = PoisonRule::default();
        let company = Inside { in_step: true, alone: false };
        let alone = Inside { in_step: true, alone: true };
        assert_eq!(
            s.crashed(&card(), rule, company, T, &mut out),
            AfterCrash::Again { crashes: 1 }
        );
        s.take_over(&card(), NODE, T, &mut out);
        let step = StepRecord {
            name: "a".into(),
            outcome: StepOutcome::Done,
            version: Version(1),
            output: None,
            reason: None,
            class: None,
            duration: std::time::Duration::ZERO,
            log: None,
        };
        s.step(&card(), &step, T, &mut out);
        assert_eq!(s.crashes, 0);
        for expected in [AfterCrash::Again { crashes: 1 }, AfterCrash::Alone { crashes: 2 }] {
            assert_eq!(s.crashed(&card(), rule, company, T, &mut out), expected);
            s.take_over(&card(), NODE, T, &mut out);
        }
        assert_eq!(
            s.crashed(&card(), rule, alone, T, &mut out),
            AfterCrash::Poisoned { crashes: 3 }
        );
        assert_eq!(s.state, State::Failed);
        assert_eq!(s.failure.unwrap().reason, Some(Reason::Poisoned));
    }

    #[test]
    fn only_a_task_that_never_started_expires() {
        let mut s = Standing::born(State::Queued, T, T);
        let late = T.plus(std::time::Duration::from_secs(9));
        assert!(s.is_expired(Some(T), late));
        assert!(!s.is_expired(Some(late), late));
        assert!(!s.is_expired(None, late));
        s.attempt = 1;
        assert!(!s.is_expired(Some(T), late));
        (s.attempt, s.run) = (0, 2);
        assert!(!s.is_expired(Some(T), late), "a person asked for it again");
    }

    proptest! {
        /// Any sequence of claims and outcomes keeps the table, numbers events
        /// without gaps and never gives a token twice.
        #[test]
        fn random_lives_keep_their_numbers(choices in prop::collection::vec(0u8..8, 1..60)) {
            let mut out = vec![];
            let mut s = Standing::born(State::Queued, T, T);
            s.submitted(&card(), T, &mut out);
            for choice in choices {
                let before = s.clone();
                match s.state {
                    State::Queued => s.claim(&card(), NODE, T, State::check, &mut out).unwrap(),
                    State::Scheduled | State::Retrying => s.promote(T, State::check).unwrap(),
                    State::Running | State::RollingBack => {
                        let outcome = match choice {
                            0 => Outcome::Done { output: None },
                            1 => Outcome::Release,
                            2 => Outcome::Snooze { until: T },
                            3 => Outcome::RollBack,
                            4 => Outcome::Fail { reason: "x".into(), step: None },
                            _ => Outcome::Error(TaskError::new(Class::Retryable, "x")),
                        };
                        let verdict = settled(outcome, &s);
                        s.close(&card(), &verdict, T, State::check, &mut out).unwrap();
                        if s.state == State::RollingBack {
                            s.claim(&card(), NODE, T, State::check, &mut out).unwrap();
                        }
                    }
                    _ => break,
                }
                prop_assert!(before.state == s.state || before.state.allows(s.state));
                prop_assert!(s.token >= before.token);
            }
            let numbers: Vec<u32> = out.iter().map(|e| e.n).collect();
            prop_assert_eq!(numbers, (1..=s.event_n).collect::<Vec<_>>());
        }
    }
}
