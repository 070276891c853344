//! Submitting: what a batch means is found out before its first row is written
//! (known ids, answered keys, unique keys, parents, depth), then the rows go in.
//! A refusal leaves nothing behind.

use super::{Inner, Row};
use crate::store::batch::{Batch, Plan, Stored};
use crate::store::{check_batch, no_such, same_submission};
use std::collections::HashMap;
use windlass_core::clock::Timestamp;
use windlass_core::id::TaskId;
use windlass_core::standing::Events;
use windlass_core::store::{Fire, Submit, Submitted};
use windlass_core::task::{NewTask, QueueName, Task};
use windlass_core::{Code, Error, Result};

impl Inner {
    pub(super) fn submit(&mut self, batch: &Submit, now: Timestamp) -> Result<Vec<Submitted>> {
        check_batch(batch)?;
        self.check_fire(batch.fires.as_ref())?;
        let mut keys = Batch::new(self.guards);
        let mut plans = Vec::with_capacity(batch.tasks.len());
        for new in &batch.tasks {
            plans.push(self.plan(new, &mut keys, now)?);
        }
        self.check_queues(batch, &plans)?;
        self.move_schedule(batch.fires.as_ref(), now);
        let mut out = vec![];
        let mut answers = Vec::with_capacity(plans.len());
        for (new, plan) in batch.tasks.iter().zip(plans) {
            answers.push(match plan {
                Plan::Insert => self.insert(new, now, &mut out),
                Plan::Answer(answer) => answer,
                Plan::Existing(id) => {
                    self.take_key(new, id, now);
                    Submitted::Existing { id }
                }
            });
        }
        self.publish(out);
        Ok(answers)
    }

    /// Those of a write's children that are not in the store yet.
    pub(super) fn new_children<'a>(
        &self,
        children: &'a [NewTask],
        now: Timestamp,
    ) -> Result<Vec<&'a NewTask>> {
        let mut keys = Batch::new(self.guards);
        let mut new = vec![];
        for child in children {
            // Its place under its parent tells a repeat, whatever happened to it since.
            let stored = child.child_of.as_ref().and_then(|c| self.child(c.parent, &c.key));
            if stored.is_none() && matches!(self.plan(child, &mut keys, now)?, Plan::Insert) {
                new.push(child);
            }
        }
        Ok(new)
    }

    /// Finds out what a submission means without writing anything.
    fn plan<'a>(&self, new: &'a NewTask, batch: &mut Batch<'a>, now: Timestamp) -> Result<Plan> {
        if let Some(row) = self.tasks.get(&new.id) {
            same_submission(&row.task, new)?;
            return Ok(Plan::Answer(Submitted::New { id: new.id, state: row.task.state() }));
        }
        if let Some(plan) = batch.twin(new, now)? {
            return Ok(plan);
        }
        batch.plan(new, &self.stored(new, now), now)
    }

    /// What is known about the keys of a task.
    fn stored(&self, new: &NewTask, now: Timestamp) -> Stored {
        let key = new.idempotency.as_ref().and_then(|i| self.idempotency.get(&i.key));
        let child = new.child_of.as_ref();
        Stored {
            answered: key.filter(|(_, _, until)| *until > now).map(|(body, id, _)| (*body, *id)),
            holder: new.unique().and_then(|u| self.unique_holder(&u.key, now)),
            parent: child.and_then(|c| self.tasks.get(&c.parent)).map(|row| row.task.state()),
            child: child.and_then(|c| self.child(c.parent, &c.key)),
        }
    }

    pub(super) fn unique_holder(&self, key: &str, now: Timestamp) -> Option<TaskId> {
        let (id, until) = self.unique.get(key)?;
        until.is_none_or(|until| until > now).then_some(*id)
    }

    pub(super) fn child(&self, parent: TaskId, key: &str) -> Option<TaskId> {
        self.children.get(&parent)?.get(key).copied()
    }

    /// Whether the queues take what the batch adds to them.
    fn check_queues(&self, batch: &Submit, plans: &[Plan]) -> Result<()> {
        let mut more: HashMap<&QueueName, u64> = HashMap::new();
        for (new, plan) in batch.tasks.iter().zip(plans) {
            if matches!(plan, Plan::Insert) {
                *more.entry(&new.queue).or_default() += 1;
            }
        }
        for (name, more) in more {
            let Some(rules) = self.queues.get(name) else { continue };
            rules.check_open("submit", name)?;
            let Some(max) = rules.depth_max else { continue };
            let (queued, later) = self.depth(name);
            if queued + later + more > max {
                let message = format!("queue `{name}` holds {} of at most {max}", queued + later);
                return Err(Error::new(Code::QueueFull, "submit", message));
            }
        }
        Ok(())
    }

    fn check_fire(&self, fire: Option<&Fire>) -> Result<()> {
        let Some(fire) = fire else { return Ok(()) };
        let schedule = self
            .schedules
            .get(&fire.schedule)
            .ok_or_else(|| no_such("schedule", &fire.schedule))?;
        if schedule.next_at != fire.expected {
            let message = format!("schedule `{}` has fired already", fire.schedule);
            return Err(Error::conflict("submit", message));
        }
        Ok(())
    }

    /// Remembers the answer to an idempotency key.
    fn take_key(&mut self, new: &NewTask, answer: TaskId, now: Timestamp) {
        if let Some(idem) = &new.idempotency {
            let until = now.plus(idem.ttl);
            self.idempotency.insert(idem.key.clone(), (idem.body, answer, until));
        }
    }

    /// Writes a task that was planned for.
    pub(super) fn insert(&mut self, new: &NewTask, now: Timestamp, out: &mut Events) -> Submitted {
        let mut task = Task::born(new, now);
        let card = task.card();
        task.standing.submitted(&card, now, out);
        let state = task.state();
        self.take_key(new, new.id, now);
        if let Some(unique) = new.unique()
            && (unique.for_.is_some() || !state.is_ended())
        {
            self.unique.insert(unique.key.clone(), (new.id, unique.for_.map(|d| now.plus(d))));
        }
        if let Some(child) = &new.child_of {
            self.children.entry(child.parent).or_default().insert(child.key.clone(), new.id);
            if let Some(parent) = self.tasks.get_mut(&child.parent) {
                parent.task.standing.has_children = true;
            }
            if state.is_ended() {
                self.parents_due.insert(child.parent);
            }
        }
        self.enter(task.standing.place(), &task);
        let row = Row {
            task,
            child_key: new.child_of.as_ref().map(|c| c.key.clone()),
            held: None,
            steps: vec![],
            attempts: vec![],
            dead_letter: false,
        };
        self.tasks.insert(new.id, row);
        Submitted::New { id: new.id, state }
    }
}
