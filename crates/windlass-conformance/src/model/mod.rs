//! A second, naive telling of the store's contract, to compare stores with.
//! It is plain data: maps, lists and scans, and its rules are written anew from
//! the contract instead of being called from core, so that a mistake there does
//! not hide itself. [`Model::apply`] does what a store would do and says what it
//! would answer; [`Model::compare`] reads a store back and names the first
//! difference.

mod change;
mod claim;
mod compare;
mod node;
mod outbox;
mod record;
mod row;
mod submit;
mod upkeep;

pub use compare::Scope;
pub use row::{Row, Run, Step};

use node::Host;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use windlass_core::checkpoint::Version;
use windlass_core::clock::Timestamp;
use windlass_core::control::Changed;
use windlass_core::error::{Code, Result};
use windlass_core::event::{EventName, Position};
use windlass_core::id::{NodeId, TaskId};
use windlass_core::lease::{Requests, Token};
use windlass_core::state::State;
use windlass_core::store::{
    Change, Claim, Claimed, Job, NewNode, OutboxOp, OutboxRow, Renewal, Renewed, Submitted, Upkept,
    Write, Written,
};
use windlass_core::task::{NewTask, QueueName};

/// How many operations an error message shows.
const SHOWN: usize = 20;
/// Longer operations are cut in an error message; the seed shows them whole.
const LINE_MAX: usize = 1500;

/// One call of a store.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// `id` and `slot` are the store's to give; here they are what it gave.
    Join {
        node: NewNode,
        id: NodeId,
        slot: u16,
    },
    Submit(Vec<NewTask>),
    Claim(Claim),
    Renew(Renewal),
    Record(Vec<Write>),
    Change(Change),
    Upkeep {
        job: Job,
        limit: usize,
    },
    /// The job, called again until it finds nothing more.
    Exhaust {
        job: Job,
        limit: usize,
    },
    /// What `Take` gives is checked by [`Model::check_letters`].
    Outbox(OutboxOp),
}

/// What a store answers, without what it is free to choose.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// Until when, and whether the slot was free.
    Joined(Timestamp, bool),
    Submitted(Result<Vec<Submitted>, Code>),
    Claimed(Result<Vec<Took>, Code>),
    Renewed(Result<Renewed, Code>),
    Recorded(Result<Vec<Result<Written, Code>>, Code>),
    Changed(Vec<Result<Changed, Code>>),
    Upkept(Result<Upkept, Code>),
    /// The rows are compared apart.
    Outbox(Result<Vec<OutboxRow>, Code>),
    /// Nothing to compare.
    Done,
}

/// A claimed task, in the words that matter.
#[derive(Debug, Clone, PartialEq)]
pub struct Took {
    pub task: TaskId,
    pub state: State,
    pub token: Token,
    pub run: u32,
    pub attempt: u32,
    pub retries: u32,
    pub version: Version,
    pub requests: Requests,
    pub alone: bool,
    pub payload: String,
    /// Names and versions of the checkpoint.
    pub steps: Vec<(String, u64)>,
}

impl From<&Claimed> for Took {
    fn from(claimed: &Claimed) -> Self {
        let standing = &claimed.task.standing;
        let entries = claimed.checkpoint.iter().flat_map(|c| &c.entries);
        Took {
            task: claimed.task.id,
            state: standing.state,
            token: standing.token,
            run: standing.run,
            attempt: standing.attempt,
            retries: standing.retries,
            version: standing.version,
            requests: standing.requests,
            alone: claimed.alone,
            payload: claimed.task.payload.as_str().to_owned(),
            steps: entries.map(|e| (e.record.name.clone(), e.record.version.0)).collect(),
        }
    }
}

impl Answer {
    /// The store's word as the model would say it. The order of queues that got
    /// work is nobody's business.
    pub fn upkept(answer: Result<Upkept>) -> Answer {
        Answer::Upkept(answer.map_err(|e| e.code()).map(|mut upkept| {
            upkept.ready.sort();
            upkept
        }))
    }

    /// The order in which lost leases and requests are told is the store's.
    pub fn renewed(answer: Result<Renewed>) -> Answer {
        Answer::Renewed(answer.map_err(|e| e.code()).map(|mut renewed| {
            renewed.lost.sort();
            renewed.requests.sort_by_key(|(id, _)| *id);
            renewed
        }))
    }

    /// Changes of one thing may refuse as a whole or as their only item.
    pub fn changed(answer: Result<Vec<Result<Changed>>>) -> Answer {
        Answer::Changed(match answer {
            Ok(items) => items.into_iter().map(|item| item.map_err(|e| e.code())).collect(),
            Err(error) => vec![Err(error.code())],
        })
    }
}

#[derive(Debug, Clone, PartialEq)]
struct Idempotent {
    body: u128,
    task: TaskId,
    until: Timestamp,
}

#[derive(Debug, Clone, PartialEq)]
struct UniqueHold {
    task: TaskId,
    /// Absent: while its task lives.
    until: Option<Timestamp>,
}

/// What a store must hold after the operations so far.
#[derive(Debug, Clone)]
pub struct Model {
    pub tasks: BTreeMap<TaskId, Row>,
    pub nodes: BTreeMap<NodeId, Host>,
    pub paused: BTreeSet<QueueName>,
    /// Queues that take no new tasks.
    pub draining: BTreeSet<QueueName>,
    /// Failed tasks that a person has not yet dealt with.
    pub dead: BTreeSet<TaskId>,
    idempotency: BTreeMap<String, Idempotent>,
    unique: BTreeMap<String, UniqueHold>,
    parents_due: BTreeSet<TaskId>,
    children_of: BTreeMap<TaskId, Vec<TaskId>>,
    outbox: outbox::Outbox,
    /// Events about queues and nodes.
    places: Vec<EventName>,
    /// Changed since the latest comparison.
    touched: BTreeSet<TaskId>,
    seed: u64,
    done: usize,
    latest: VecDeque<(Timestamp, Op)>,
    seen: Position,
    seen_places: usize,
}

impl Model {
    pub fn new(seed: u64) -> Self {
        Model {
            tasks: BTreeMap::new(),
            nodes: BTreeMap::new(),
            paused: BTreeSet::new(),
            draining: BTreeSet::new(),
            dead: BTreeSet::new(),
            idempotency: BTreeMap::new(),
            unique: BTreeMap::new(),
            parents_due: BTreeSet::new(),
            children_of: BTreeMap::new(),
            outbox: outbox::Outbox::default(),
            places: vec![],
            touched: BTreeSet::new(),
            seed,
            done: 0,
            latest: VecDeque::new(),
            seen: Position::START,
            seen_places: 0,
        }
    }

    /// Does the operation and says what a store must answer.
    pub fn apply(&mut self, op: &Op, now: Timestamp) -> Answer {
        self.done += 1;
        if self.latest.len() == SHOWN {
            self.latest.pop_front();
        }
        self.latest.push_back((now, op.clone()));
        match op {
            Op::Join { node, id, slot } => self.join(node, *id, *slot, now),
            Op::Submit(tasks) => Answer::Submitted(self.submit(tasks, now)),
            Op::Claim(claim) => Answer::Claimed(self.claim(claim, now)),
            Op::Renew(renewal) => Answer::Renewed(self.renew(renewal, now)),
            Op::Record(writes) => Answer::Recorded(self.record(writes, now)),
            Op::Change(change) => Answer::Changed(self.change(change, now)),
            Op::Upkeep { job, limit } => Answer::Upkept(Ok(self.upkeep(*job, *limit, now))),
            Op::Exhaust { job, limit } => {
                while self.upkeep(*job, *limit, now).done > 0 {}
                Answer::Done
            }
            Op::Outbox(op) => {
                self.outbox(op, now);
                Answer::Done
            }
        }
    }

    /// A difference, with what led to it.
    pub fn complain(&self, what: &str) -> String {
        let mut text = format!("seed {}, operation {}: {what}\n", self.seed, self.done);
        text.push_str("the latest operations:\n");
        for (n, (at, op)) in self.latest.iter().enumerate() {
            let mut line = format!("  {at} {op:?}");
            // The last one is shown whole: it is the one that differs.
            if n + 1 < self.latest.len() && line.len() > LINE_MAX {
                line.truncate(
                    (0..=LINE_MAX).rev().find(|i| line.is_char_boundary(*i)).unwrap_or(0),
                );
                line.push('…');
            }
            text.push_str(&line);
            text.push('\n');
        }
        text
    }

    /// A number that changes with almost every change: to see that a repeated
    /// call changed nothing.
    pub fn fingerprint(&self) -> u64 {
        let mut sum = self.places.len() as u64;
        let mut add = |n: u64| sum = sum.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(n);
        for row in self.tasks.values() {
            add(row.state.code().cast_unsigned());
            add(row.token.0);
            add(row.version.0);
            add(row.events.len() as u64);
            add(u64::from(row.retries) << 1 | u64::from(row.leased));
            add(row.due_at.as_micros().cast_unsigned());
        }
        add(self.idempotency.len() as u64);
        add(self.unique.len() as u64);
        add(self.dead.len() as u64);
        sum
    }

    /// What follows from a task's new state for keys, parents and dead letters.
    fn follow_up(&mut self, id: TaskId, before: State) {
        self.touched.insert(id);
        let row = self.tasks.get_mut(&id).expect("a task that just changed");
        let after = row.state;
        if after == before {
            return;
        }
        if matches!(after, State::Completed | State::CompletedWithErrors | State::RolledBack) {
            row.steps.iter_mut().for_each(|step| step.live = false);
        }
        if !has_ended(after) {
            // Totals are frozen only while a task has ended.
            row.totals = None;
        }
        if after == State::Waiting {
            self.parents_due.insert(id);
        }
        let (unique, parent) = (row.unique_key(), row.parent());
        if after == State::Failed {
            self.dead.insert(id);
            self.post(id);
        } else if before == State::Failed {
            self.dead.remove(&id);
        }
        match (has_ended(before), has_ended(after)) {
            (false, true) => self.ended(id, unique, parent),
            (true, false) => {
                let hold = UniqueHold { task: id, until: None };
                self.unique.extend(unique.map(|key| (key, hold)));
            }
            _ => {}
        }
    }

    fn ended(&mut self, id: TaskId, unique: Option<String>, parent: Option<TaskId>) {
        if let Some(key) = unique {
            let own = self.unique.get(&key).is_some_and(|h| h.task == id && h.until.is_none());
            if own {
                self.unique.remove(&key);
            }
        }
        if let Some(parent) = parent {
            self.parents_due.insert(parent);
        }
        if self.children_of.contains_key(&id) {
            self.parents_due.insert(id);
            let totals = self.totals(id);
            self.tasks.get_mut(&id).expect("a known parent").totals = Some(totals);
        }
    }

    fn children(&self, parent: TaskId) -> impl Iterator<Item = &Row> {
        self.children_of.get(&parent).into_iter().flatten().map(|id| &self.tasks[id])
    }

    fn child(&self, parent: TaskId, key: &str) -> Option<TaskId> {
        let same = |row: &&Row| row.new.child_of.as_ref().is_some_and(|c| c.key == key);
        self.children(parent).find(same).map(|row| row.new.id)
    }
}

/// The five states nothing leaves by itself.
pub fn has_ended(state: State) -> bool {
    matches!(
        state,
        State::Completed
            | State::CompletedWithErrors
            | State::Failed
            | State::Cancelled
            | State::RolledBack
    )
}
