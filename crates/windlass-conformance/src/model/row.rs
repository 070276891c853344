//! One task of the model: its fields, its own table of transitions, and what
//! each transition does to it. What follows for other tasks, keys and dead
//! letters is `follow_up` in `mod.rs`.

use super::has_ended;
use std::time::Duration;
use windlass_core::checkpoint::{StepRecord, Version};
use windlass_core::children::{Policy, Totals};
use windlass_core::clock::Timestamp;
use windlass_core::event::EventName;
use windlass_core::id::{NodeId, TaskId};
use windlass_core::json::Json;
use windlass_core::lease::{ClaimNo, LeaseKey, Requests, Token};
use windlass_core::outcome::{Class, Failure, Reason, TaskError, WaitingOn};
use windlass_core::settle::{Settlement, Verdict};
use windlass_core::state::State::{self, *};
use windlass_core::store::{AttemptEnd, Write};
use windlass_core::task::{NewTask, Progress, Start};

/// Which state may follow which, as section 2 of the contract tells it.
const TABLE: &[(State, &[State])] = &[
    (Scheduled, &[Queued, Paused, Cancelled, Failed]),
    (Queued, &[Running, Scheduled, Paused, Cancelled, Failed]),
    (Running, &[Running, Queued, Scheduled, Retrying, Waiting, Paused, RollingBack]),
    (Running, &[Completed, CompletedWithErrors, Failed, Cancelled]),
    (Retrying, &[Queued, Paused, Cancelled, RollingBack]),
    (Waiting, &[Queued, Paused, Completed, CompletedWithErrors, Failed, Cancelled]),
    (Paused, &[Queued, Scheduled, Retrying, Waiting, RollingBack, Cancelled]),
    (RollingBack, &[RollingBack, Paused, RolledBack, Failed]),
    (Failed, &[Queued, RollingBack]),
    (Cancelled, &[Queued, RollingBack]),
];

pub(super) fn allowed(from: State, to: State) -> bool {
    TABLE.iter().any(|(state, next)| *state == from && next.contains(&to))
}

/// One recorded step.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    pub record: StepRecord,
    pub token: Token,
    pub live: bool,
}

/// One attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    pub token: Token,
    pub run: u32,
    pub attempt: u32,
    pub node: NodeId,
    pub started_at: Timestamp,
    pub ended: Option<(AttemptEnd, Timestamp)>,
    pub failure: Option<Failure>,
}

/// One task.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// As submitted, but for an edited payload.
    pub new: NewTask,
    pub created_at: Timestamp,
    pub deadline: Option<Timestamp>,
    pub state: State,
    pub due_at: Timestamp,
    pub run: u32,
    pub attempt: u32,
    pub retries: u32,
    pub crashes: u32,
    pub token: Token,
    pub version: Version,
    pub leased: bool,
    pub node: Option<NodeId>,
    pub claim: ClaimNo,
    pub in_step: bool,
    pub alone: bool,
    pub requests: Requests,
    pub held_from: Option<State>,
    /// A rollback that waits for its backoff.
    pub backing_off: bool,
    pub waiting_on: Option<WaitingOn>,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    pub result: Option<Json>,
    pub failure: Option<Failure>,
    pub progress: Option<Progress>,
    pub totals: Option<Totals>,
    pub steps: Vec<Step>,
    pub attempts: Vec<Run>,
    pub events: Vec<EventName>,
    /// Every write that was accepted, to know its repetition.
    pub writes: Vec<Write>,
    /// How many of its events the feed has shown so far.
    pub(super) fed: usize,
}

impl Row {
    pub(super) fn born(new: &NewTask, now: Timestamp) -> Row {
        let wanted = match new.start {
            Start::Now => now,
            Start::At(at) => at,
            Start::After(delay) => now.plus(delay),
        };
        let empty_plan = new.extras.as_ref().and_then(|e| e.steps.as_ref()).map(Vec::is_empty);
        let (state, due_at) = match empty_plan {
            Some(true) => (Completed, now),
            _ if wanted > now => (Scheduled, wanted),
            _ => (Queued, now),
        };
        let mut row = Row {
            new: new.clone(),
            created_at: now,
            deadline: new.deadline.map(|d: Duration| due_at.plus(d)),
            state,
            due_at,
            run: 1,
            attempt: 0,
            retries: 0,
            crashes: 0,
            token: Token(0),
            version: Version(0),
            leased: false,
            node: None,
            claim: ClaimNo(0),
            in_step: false,
            alone: false,
            requests: Requests::NONE,
            held_from: None,
            backing_off: false,
            waiting_on: (state == Scheduled).then_some(WaitingOn::Time { until: due_at }),
            started_at: None,
            finished_at: (state == Completed).then_some(now),
            result: None,
            failure: None,
            progress: None,
            totals: None,
            steps: vec![],
            attempts: vec![],
            events: vec![EventName::Submitted],
            writes: vec![],
            fed: 0,
        };
        row.announce();
        row
    }

    /// Whether a submission asks for this very task. One whose payload people
    /// edited is another.
    pub(super) fn is_from(&self, new: &NewTask) -> bool {
        self.new.kind == new.kind
            && self.new.queue == new.queue
            && self.new.priority == new.priority
            && self.new.payload == new.payload
            && self.new.extras == new.extras
            && self.parent() == new.child_of.as_ref().map(|c| c.parent)
    }

    pub fn id(&self) -> TaskId {
        self.new.id
    }

    pub fn parent(&self) -> Option<TaskId> {
        self.new.child_of.as_ref().map(|c| c.parent)
    }

    pub fn policy(&self) -> Policy {
        self.new.extras.as_ref().and_then(|e| e.children_policy).unwrap_or(Policy::AllowErrors)
    }

    /// The key it holds while it lives.
    pub(super) fn unique_key(&self) -> Option<String> {
        self.new.unique().filter(|u| u.for_.is_none()).map(|u| u.key.clone())
    }

    /// The lease somebody has now.
    pub fn lease(&self) -> Option<LeaseKey> {
        let node = self.node.filter(|_| self.leased)?;
        Some(LeaseKey { task: self.id(), node, token: self.token })
    }

    pub fn is_ready(&self) -> bool {
        match self.state {
            Queued => true,
            RollingBack => !self.leased && !self.backing_off,
            _ => false,
        }
    }

    /// Waits for a time that `promote` will see.
    pub fn waits_for_time(&self) -> bool {
        match self.state {
            Scheduled | Retrying => true,
            RollingBack => !self.leased && self.backing_off,
            _ => false,
        }
    }

    /// Past its deadline before its first start. Whoever requeues an expired
    /// task wants it to run: its first run is over.
    pub fn too_late(&self, now: Timestamp) -> bool {
        let first = self.attempt == 0 && self.run == 1;
        let unstarted = first && matches!(self.state, Queued | Scheduled);
        unstarted && self.deadline.is_some_and(|d| d < now)
    }

    pub(super) fn tell(&mut self, name: EventName) {
        self.events.push(name);
    }

    /// The event of the state it is in.
    pub(super) fn announce(&mut self) {
        let name = match self.state {
            Queued | Running => return,
            Scheduled => EventName::Scheduled,
            Retrying => EventName::Retrying,
            Waiting => EventName::Waiting,
            Paused => EventName::Paused,
            RollingBack => EventName::RollingBack,
            Completed => EventName::Completed,
            CompletedWithErrors => EventName::CompletedWithErrors,
            Failed => EventName::Failed,
            Cancelled => EventName::Cancelled,
            RolledBack => EventName::RolledBack,
        };
        self.tell(name);
        if self.state == Failed {
            self.tell(EventName::DeadLetterEntered);
        }
    }

    pub(super) fn start(&mut self, node: NodeId, claim: ClaimNo, now: Timestamp) {
        if self.state != RollingBack {
            self.state = Running;
        }
        self.token = Token(self.token.0 + 1);
        self.attempt += 1;
        self.leased = true;
        self.node = Some(node);
        self.claim = claim;
        self.started_at = Some(now);
        self.waiting_on = None;
        self.tell(EventName::Started);
        let (token, run, attempt) = (self.token, self.run, self.attempt);
        let ended = None;
        let failure = None;
        self.attempts.push(Run { token, run, attempt, node, started_at: now, ended, failure });
    }

    pub(super) fn end_attempt(&mut self, how: AttemptEnd, now: Timestamp) {
        if let Some(latest) = self.attempts.last_mut().filter(|a| a.ended.is_none()) {
            latest.ended = Some((how, now));
        }
        self.leased = false;
        self.requests = Requests::NONE;
    }

    /// The answer of its claim got lost: back to where it came from, or where
    /// people wanted it meanwhile. A rollback can only be paused.
    pub(super) fn give_back(&mut self, now: Timestamp) {
        let Requests { cancel, pause, rollback } = self.requests;
        let back = if self.state == RollingBack { RollingBack } else { Queued };
        let to = match self.state {
            Running if rollback => RollingBack,
            Running if cancel => Cancelled,
            _ if pause && !(cancel || rollback) => Paused,
            _ => back,
        };
        self.end_attempt(AttemptEnd::GivenBack, now);
        self.held_from = (to == Paused).then_some(back);
        let person = WaitingOn::Person { why: "requested".to_owned() };
        let waiting_on = (to == Paused).then_some(person);
        self.go(&Verdict { waiting_on, ..Verdict::to(to) }, now);
    }

    /// The verdict that counts, by what people asked for meanwhile.
    pub(super) fn chosen<'a>(&self, settlement: &'a Settlement) -> &'a Verdict {
        let Requests { cancel, pause, rollback } = self.requests;
        let other = if rollback {
            settlement.if_rolled_back.as_ref()
        } else if cancel {
            settlement.if_cancelled.as_ref()
        } else if pause {
            settlement.if_paused.as_ref()
        } else {
            None
        };
        other.unwrap_or(&settlement.verdict)
    }

    pub(super) fn settle(&mut self, settlement: &Settlement, now: Timestamp) {
        let verdict = self.chosen(settlement).clone();
        self.held_from = match (verdict.to, settlement.verdict.to) {
            (Paused, Paused) if self.state == RollingBack => Some(RollingBack),
            (Paused, Paused) => Some(Queued),
            (Paused, instead_of) => Some(instead_of),
            _ => None,
        };
        self.end_attempt(AttemptEnd::Settled(verdict.to), now);
        if let Some(latest) = self.attempts.last_mut() {
            latest.failure = verdict.failure.clone();
        }
        self.go(&verdict, now);
    }

    /// Goes where a verdict says.
    pub(super) fn go(&mut self, verdict: &Verdict, now: Timestamp) {
        let rolls_on = self.state == RollingBack && verdict.to == RollingBack;
        self.state = verdict.to;
        self.due_at = verdict.due_at.unwrap_or(now);
        self.backing_off = verdict.to == RollingBack && self.due_at > now;
        self.waiting_on = verdict.waiting_on.clone();
        self.result = verdict.result.clone();
        if verdict.burns_retry {
            self.retries += 1;
        }
        if verdict.to == RollingBack && !rolls_on {
            // Undoing is work of its own, with retries of its own.
            (self.retries, self.crashes) = (0, 0);
        }
        if let Some(failure) = &verdict.failure {
            self.failure = Some(failure.clone());
        }
        if has_ended(self.state) {
            self.finished_at = Some(now);
        }
        match (rolls_on, verdict.failure.is_some()) {
            (true, true) => self.tell(EventName::Retrying),
            (true, false) => {}
            (false, _) => self.announce(),
        }
    }

    pub(super) fn fail(&mut self, reason: Reason, class: Class, now: Timestamp) {
        let failure = Failure::ended(reason, TaskError::new(class, ""));
        self.go(&Verdict { failure: Some(failure), ..Verdict::to(Failed) }, now);
    }
}
