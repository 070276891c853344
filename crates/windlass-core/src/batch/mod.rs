//! Bulk verbs: one action on every task that a filter matches, as a job that can
//! be resumed. Here is the order, what is kept of it, and every decision about
//! it: which tasks it takes, how many now, when next, when it has ended, when it
//! gives up. A store changes the tasks of a step and moves the batch on in one
//! transaction; the engine reads tasks and keeps time.

use crate::clock::Timestamp;
use crate::control::{Changed, TaskChange, apply};
use crate::error::{Code, Error, ErrorKind, Result};
use crate::filter::Filter;
use crate::id::{BatchId, TaskId};
use crate::limits::Rate;
use crate::state::State;
use crate::store::Actor;
use crate::task::{NAME_MAX, Task};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Most tasks of one step, which is one transaction.
pub const CHUNK_MAX: usize = 500;
/// Most batches that may run at once.
pub const RUNNING_MAX: usize = 100;
/// Errors that are kept with the task they are about.
pub const ERRORS_MAX: usize = 10;
/// With a rule to stop by, at most so many tasks are on their way at once.
pub const WATCHED_MAX: usize = 200;
/// As many go ahead, and as many must have an answer before the rule counts.
pub const FIRST: usize = 10;
/// A rate is kept in pieces of this length.
const SLICE: Duration = Duration::from_millis(250);

/// What a batch does to each task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    Cancel,
    Pause,
    Resume,
    Requeue,
    Rerun,
    Discard,
}

impl Action {
    pub const ALL: [Action; 6] = [
        Action::Cancel,
        Action::Pause,
        Action::Resume,
        Action::Requeue,
        Action::Rerun,
        Action::Discard,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Action::Cancel => "cancel",
            Action::Pause => "pause",
            Action::Resume => "resume",
            Action::Requeue => "requeue",
            Action::Rerun => "rerun",
            Action::Discard => "discard",
        }
    }

    /// It lets work be done again, which may fail again.
    pub fn sends_again(self) -> bool {
        matches!(self, Action::Requeue | Action::Rerun)
    }

    /// Where it looks unless somebody says otherwise.
    pub fn place(self) -> Among {
        if self == Action::Discard { Among::DeadLetters } else { Among::Tasks }
    }
}

/// Where a batch looks for its tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Among {
    Tasks,
    /// Only tasks that are on the dead-letter list.
    DeadLetters,
}

/// What somebody wants done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Order {
    pub id: BatchId,
    pub action: Action,
    pub among: Among,
    pub filter: Filter,
    /// No more than so many tasks are changed.
    pub rate: Option<Rate>,
    /// For a requeue.
    pub from_step: Option<String>,
    /// Stops when more than so many percent of what was sent again fail again.
    pub stop_above: Option<u8>,
}

impl Order {
    /// Everything a filter matches, as fast as it goes.
    pub fn new(id: BatchId, action: Action, filter: Filter) -> Self {
        let among = action.place();
        Order { id, action, among, filter, rate: None, from_step: None, stop_above: None }
    }

    pub fn validate(&self) -> Result<()> {
        let refuse = |message: &str| Err(Error::invalid("batch", message.to_owned()));
        let action = self.action;
        if self.filter.terms().is_empty() {
            return refuse("q is empty and would match every task; `age:>=0s` says so on purpose");
        }
        match self.among {
            Among::Tasks if action == Action::Discard => {
                return refuse("of: only dead letters can be discarded");
            }
            Among::DeadLetters if !action.sends_again() && action != Action::Discard => {
                return refuse("of: dead letters can be requeued, rerun or discarded");
            }
            _ => {}
        }
        if self.from_step.is_some() && action != Action::Requeue {
            return refuse("from_step is for requeue only");
        }
        if self.from_step.as_ref().is_some_and(|s| s.is_empty() || s.len() > NAME_MAX) {
            return refuse("from_step needs the name of a step");
        }
        if self.stop_above.is_some() && !action.sends_again() {
            return refuse("stop_above is for requeue and rerun, whose tasks may fail again");
        }
        if self.stop_above.is_some_and(|percent| percent > 99) {
            return refuse("stop_above is a percentage from 0 to 99");
        }
        Ok(())
    }

    /// What a task goes through; a rerun makes a new task instead.
    pub fn change(&self) -> Option<TaskChange> {
        match self.action {
            Action::Cancel => Some(TaskChange::Cancel),
            Action::Pause => Some(TaskChange::Pause),
            Action::Resume => Some(TaskChange::Resume),
            Action::Requeue => {
                Some(TaskChange::Requeue { from_step: self.from_step.clone(), payload: None })
            }
            Action::Discard => Some(TaskChange::Discard),
            Action::Rerun => None,
        }
    }

    /// Whether a task's state lets it be done, as far as the task itself says.
    pub fn allows(&self, task: &Task, now: Timestamp) -> bool {
        let Some(change) = self.change() else { return task.state().is_ended() };
        let mut standing = task.standing.clone();
        let dead = self.among == Among::DeadLetters;
        apply(&change, &task.card(), &mut standing, dead, now, &mut vec![]).is_ok()
    }
}

/// Where a batch is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchState {
    Running,
    /// It has looked at everything.
    Done,
    /// A person, or its own rule, ended it before.
    Stopped,
}

impl BatchState {
    pub fn as_str(self) -> &'static str {
        match self {
            BatchState::Running => "running",
            BatchState::Done => "done",
            BatchState::Stopped => "stopped",
        }
    }
}

/// What became of the tasks that matched; the other counts add up to `matched`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    pub matched: u64,
    pub changed: u64,
    /// The nodes that hold them were asked.
    pub requested: u64,
    pub already: u64,
    /// Their state did not allow it, or no longer.
    pub skipped: u64,
    pub failed: u64,
}

/// What became of tasks that were sent again; counted while a rule wants to know.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Again {
    /// They ended, or failed for the first time.
    pub answered: u64,
    pub failed: u64,
    /// On their way, [`WATCHED_MAX`] at the most.
    pub watched: Vec<TaskId>,
}

/// A task that could not be changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    pub task: TaskId,
    pub code: String,
    pub message: String,
}

/// A batch as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    pub order: Order,
    pub who: String,
    pub origin: String,
    /// Tasks made later are not touched, and ages in the filter count from here.
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub finished_at: Option<Timestamp>,
    pub state: BatchState,
    /// Why it was stopped.
    pub reason: Option<String>,
    /// Rises with each write: a step names the one it was made from.
    pub version: u64,
    /// Only older tasks are left; `None` at the start.
    pub before: Option<TaskId>,
    /// The rate lets nothing happen earlier.
    pub next_at: Timestamp,
    pub counts: Counts,
    pub again: Again,
    /// The first of them.
    pub errors: Vec<Trouble>,
}

/// One task of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    pub task: TaskId,
    /// The id of the new task that a rerun makes.
    pub again: Option<TaskId>,
}

/// How far a step has looked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Walk {
    /// Nowhere.
    Stay,
    /// Everything down to this task.
    To(TaskId),
    /// All there is.
    End,
}

/// What became of a task that a batch had sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Well,
    Failed,
    /// There is no such task any more.
    Gone,
}

impl Verdict {
    /// `None`: nothing can be said yet. Its first failed attempt is enough: with
    /// its retries a task may take hours to fail for good.
    pub fn of(task: Option<&Task>) -> Option<Verdict> {
        let Some(task) = task else { return Some(Verdict::Gone) };
        match task.state() {
            State::Failed => Some(Verdict::Failed),
            _ if task.standing.retries > 0 => Some(Verdict::Failed),
            state => state.is_ended().then_some(Verdict::Well),
        }
    }
}

/// A piece of a batch, all or nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchStep {
    pub batch: BatchId,
    /// The [`Batch::version`] it was made from.
    pub version: u64,
    pub verdicts: Vec<(TaskId, Verdict)>,
    /// At most [`CHUNK_MAX`].
    pub targets: Vec<Target>,
    /// Matched, but their state did not allow it when they were read.
    pub skipped: u64,
    pub walk: Walk,
}

/// What may happen to a batch now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// So many tasks.
    Tasks(usize),
    /// Nothing before this time.
    At(Timestamp),
    /// Nothing until tasks that were sent again have an answer.
    Answers,
}

impl Batch {
    pub fn new(order: Order, by: &Actor, now: Timestamp) -> Self {
        Batch {
            order,
            who: by.who.clone(),
            origin: by.origin.clone(),
            created_at: now,
            updated_at: now,
            finished_at: None,
            state: BatchState::Running,
            reason: None,
            version: 0,
            before: None,
            next_at: now,
            counts: Counts::default(),
            again: Again::default(),
            errors: vec![],
        }
    }

    pub fn id(&self) -> BatchId {
        self.order.id
    }

    pub fn is_running(&self) -> bool {
        self.state == BatchState::Running
    }

    /// In whose name it acts.
    pub fn by(&self) -> Actor {
        Actor { who: self.who.clone(), origin: self.origin.clone() }
    }

    /// Whether a task is one of those that were meant.
    pub fn takes(&self, task: &Task, has_dead_letter: bool) -> bool {
        task.created_at <= self.created_at
            && (has_dead_letter || self.order.among == Among::Tasks)
            && self.order.filter.matches(task, self.created_at)
    }

    pub fn room(&self, now: Timestamp) -> Room {
        if now < self.next_at {
            return Room::At(self.next_at);
        }
        let paced = self.order.rate.map_or(CHUNK_MAX, in_a_slice);
        if self.order.stop_above.is_none() {
            return Room::Tasks(paced);
        }
        let answered = usize::try_from(self.again.answered).unwrap_or(FIRST);
        let most = if answered < FIRST { FIRST - answered } else { WATCHED_MAX };
        match most.saturating_sub(self.again.watched.len()) {
            0 => Room::Answers,
            free => Room::Tasks(free.min(paced)),
        }
    }

    /// Whether a step was made from the batch as it is. `VersionConflict`: it was
    /// written already, or somebody else was faster.
    pub fn check(&self, step: &BatchStep) -> Result<()> {
        if step.targets.len() > CHUNK_MAX {
            let message = format!("{} tasks in one step, at most {CHUNK_MAX}", step.targets.len());
            return Err(Error::invalid("batch", message));
        }
        let rerun = self.order.action == Action::Rerun;
        if step.targets.iter().any(|target| target.again.is_some() != rerun) {
            return Err(Error::invalid(
                "batch",
                "a rerun, and nothing else, needs ids of new tasks",
            ));
        }
        if !self.is_running() {
            let message = format!("{} is {}", self.id(), self.state.as_str());
            return Err(Error::conflict("batch", message));
        }
        if self.version != step.version {
            let message = format!("{} has moved on", self.id());
            return Err(Error::new(Code::VersionConflict, "batch", message));
        }
        Ok(())
    }

    /// Moves on after a step whose targets were answered like this.
    pub fn took(&mut self, step: &BatchStep, answers: &[Result<Changed>], now: Timestamp) {
        self.version += 1;
        self.updated_at = now;
        self.judge(&step.verdicts);
        self.counts.matched += step.skipped + step.targets.len() as u64;
        self.counts.skipped += step.skipped;
        let mut sent = 0;
        for (target, answer) in step.targets.iter().zip(answers) {
            sent += u32::from(matches!(answer, Ok(Changed::Done | Changed::Requested)));
            self.count(target, answer);
        }
        if let Some(rate) = self.order.rate {
            // A piece that came late may be followed a little sooner.
            let from = self.next_at.max(now.minus(SLICE));
            self.next_at = from.plus(rate.per * sent / rate.count.max(1));
        }
        match step.walk {
            Walk::Stay => {}
            Walk::To(task) => self.before = Some(task),
            Walk::End => self.end(BatchState::Done, None, now),
        }
        if let Some(reason) = self.gives_up() {
            self.end(BatchState::Stopped, Some(reason), now);
        }
    }

    /// What is known about tasks that were sent again.
    pub fn judge(&mut self, verdicts: &[(TaskId, Verdict)]) {
        for (task, verdict) in verdicts {
            let Some(at) = self.again.watched.iter().position(|w| w == task) else { continue };
            self.again.watched.swap_remove(at);
            self.again.answered += u64::from(*verdict != Verdict::Gone);
            self.again.failed += u64::from(*verdict == Verdict::Failed);
        }
    }

    /// Why it must go no further.
    pub fn gives_up(&self) -> Option<String> {
        let percent = u64::from(self.order.stop_above?);
        let Again { answered, failed, .. } = self.again;
        let too_many = answered >= FIRST as u64 && failed * 100 > percent * answered;
        too_many.then(|| {
            format!("{failed} of {answered} tasks failed again, which is more than {percent} %")
        })
    }

    fn count(&mut self, target: &Target, answer: &Result<Changed>) {
        match answer {
            Ok(Changed::Done) => {
                self.counts.changed += 1;
                if self.order.stop_above.is_some() {
                    self.again.watched.push(target.again.unwrap_or(target.task));
                }
            }
            Ok(Changed::Requested) => self.counts.requested += 1,
            Ok(Changed::Already) => self.counts.already += 1,
            Err(e) if matches!(e.kind(), ErrorKind::Conflict | ErrorKind::NotFound) => {
                self.counts.skipped += 1;
            }
            Err(error) => {
                self.counts.failed += 1;
                if self.errors.len() < ERRORS_MAX {
                    let (code, message) = (error.code().as_str(), error.message());
                    let (code, message) = (code.to_owned(), message.to_owned());
                    self.errors.push(Trouble { task: target.task, code, message });
                }
            }
        }
    }

    /// A person ends it. What was done stays done.
    pub fn stop(&mut self, by: &Actor, now: Timestamp) -> Result<Changed> {
        match self.state {
            BatchState::Stopped => Ok(Changed::Already),
            BatchState::Done => {
                Err(Error::conflict("stop", format!("{} has ended by itself", self.id())))
            }
            BatchState::Running => {
                self.version += 1;
                self.updated_at = now;
                self.end(BatchState::Stopped, Some(format!("stopped by {}", by.who)), now);
                Ok(Changed::Done)
            }
        }
    }

    fn end(&mut self, state: BatchState, reason: Option<String>, now: Timestamp) {
        self.state = state;
        self.reason = reason;
        self.finished_at = Some(now);
    }

    /// The last word, for the audit list.
    pub fn summary(&self) -> String {
        let Counts { changed, requested, already, skipped, failed, .. } = self.counts;
        format!(
            "{}: {changed} changed, {requested} requested, {already} already, {skipped} skipped, \
             {failed} failed",
            self.state.as_str()
        )
    }
}

/// How many tasks a rate lets pass in one piece.
fn in_a_slice(rate: Rate) -> usize {
    let per = rate.per.as_millis().max(1);
    let fits = u128::from(rate.count) * SLICE.as_millis() / per;
    usize::try_from(fits).unwrap_or(CHUNK_MAX).clamp(1, CHUNK_MAX)
}

/// What a batch would meet, by state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Preview {
    pub states: BTreeMap<State, Allowed>,
    /// Counting ended before the tasks did: there may be more.
    pub more: bool,
}

/// Tasks in one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Allowed {
    pub eligible: u64,
    pub ineligible: u64,
}

impl Preview {
    pub fn add(&mut self, state: State, eligible: bool) {
        let seen = self.states.entry(state).or_default();
        seen.eligible += u64::from(eligible);
        seen.ineligible += u64::from(!eligible);
    }

    pub fn total(&self) -> Allowed {
        self.states.values().fold(Allowed::default(), |all, one| Allowed {
            eligible: all.eligible + one.eligible,
            ineligible: all.ineligible + one.ineligible,
        })
    }
}

#[cfg(test)]
mod tests;
