//! Submitting, recording and changing tasks. Every function checks everything
//! it may refuse before it touches a map; `save` is the only place where a
//! task's new standing meets the maps beside it.

use super::{Inner, Row};
use crate::store::{check_batch, check_write, lease_lost, no_such, same_submission};
use std::collections::HashMap;
use windlass_core::checkpoint::{StepEntry, StepOutcome};
use windlass_core::children::Totals;
use windlass_core::clock::Timestamp;
use windlass_core::control::{Changed, TaskChange, apply};
use windlass_core::event::Position;
use windlass_core::id::{NodeId, TaskId};
use windlass_core::lease::LeaseKey;
use windlass_core::outcome::{Failure, WaitingOn};
use windlass_core::standing::{Events, Place, Standing};
use windlass_core::state::State;
use windlass_core::store::{
    Actor, AttemptEnd, AuditRow, Change, DeadLetter, Fire, NodeChange, OutboxTopic, QueueChange,
    Submit, Submitted, Write, Written,
};
use windlass_core::task::{NewTask, QueueName, Task};
use windlass_core::{Code, Error, Result};

/// What will become of one task of a batch.
enum Plan {
    Insert,
    Answer(Submitted),
}

/// Keys that earlier tasks of the same batch take.
#[derive(Default)]
struct BatchKeys<'a> {
    ids: HashMap<TaskId, &'a NewTask>,
    idempotency: HashMap<&'a str, (u128, TaskId)>,
    unique: HashMap<&'a str, TaskId>,
    children: HashMap<(TaskId, &'a str), TaskId>,
}

impl Inner {
    pub(super) fn submit(&mut self, batch: &Submit, now: Timestamp) -> Result<Vec<Submitted>> {
        check_batch(batch)?;
        self.check_fire(batch.fires.as_ref())?;
        let mut keys = BatchKeys::default();
        let mut plans = Vec::with_capacity(batch.tasks.len());
        for new in &batch.tasks {
            plans.push(self.plan(new, &mut keys, now)?);
        }
        self.check_depth(batch, &plans)?;
        self.move_schedule(batch.fires.as_ref(), now);
        let mut out = vec![];
        let mut answers = Vec::with_capacity(plans.len());
        for (new, plan) in batch.tasks.iter().zip(plans) {
            answers.push(match plan {
                Plan::Insert => self.insert(new, now, &mut out),
                Plan::Answer(answer) => answer,
            });
        }
        self.publish(out);
        Ok(answers)
    }

    /// Finds out what a submission means without writing anything.
    fn plan<'a>(&self, new: &'a NewTask, keys: &mut BatchKeys<'a>, now: Timestamp) -> Result<Plan> {
        if let Some(row) = self.tasks.get(&new.id) {
            same_submission(&row.task, new)?;
            return Ok(Plan::Answer(Submitted::New { id: new.id, state: row.task.state() }));
        }
        if let Some(twin) = keys.ids.insert(new.id, new) {
            same_submission(&Task::born(twin, now), new)?;
            return Ok(Plan::Answer(Submitted::New { id: new.id, state: twin.birth(now).0 }));
        }
        if let Some(answer) = self.known_key(new, keys, now)? {
            return Ok(Plan::Answer(answer));
        }
        if let Some(unique) = new.unique().filter(|_| self.guards.unique) {
            let stored = self.unique_holder(&unique.key, now);
            if let Some(id) = stored.or_else(|| keys.unique.get(unique.key.as_str()).copied()) {
                return Ok(Plan::Answer(Submitted::Existing { id }));
            }
            keys.unique.insert(&unique.key, new.id);
        }
        if let Some(child) = &new.child_of {
            let parent =
                self.tasks.get(&child.parent).ok_or_else(|| no_such("parent", child.parent))?;
            if parent.task.state().is_ended() {
                let message = format!("parent {} has ended", child.parent);
                return Err(Error::conflict("submit", message));
            }
            if let Some(id) = self.child(child.parent, &child.key) {
                return Ok(Plan::Answer(Submitted::Existing { id }));
            }
            if let Some(&id) = keys.children.get(&(child.parent, child.key.as_str())) {
                return Ok(Plan::Answer(Submitted::Existing { id }));
            }
            keys.children.insert((child.parent, &child.key), new.id);
        }
        if let Some(idem) = &new.idempotency {
            keys.idempotency.insert(&idem.key, (idem.body, new.id));
        }
        Ok(Plan::Insert)
    }

    fn known_key(
        &self,
        new: &NewTask,
        keys: &BatchKeys<'_>,
        now: Timestamp,
    ) -> Result<Option<Submitted>> {
        let Some(idem) = &new.idempotency else { return Ok(None) };
        let stored = self.idempotency.get(&idem.key).filter(|(_, _, until)| *until > now);
        let stored = stored.map(|(body, id, _)| (*body, *id));
        let Some((body, id)) = stored.or_else(|| keys.idempotency.get(idem.key.as_str()).copied())
        else {
            return Ok(None);
        };
        if body != idem.body {
            let message = format!("idempotency key `{}` was used for another submission", idem.key);
            return Err(Error::new(Code::KeyReused, "submit", message));
        }
        Ok(Some(Submitted::Replayed { id }))
    }

    fn unique_holder(&self, key: &str, now: Timestamp) -> Option<TaskId> {
        let (id, until) = self.unique.get(key)?;
        until.is_none_or(|until| until > now).then_some(*id)
    }

    fn child(&self, parent: TaskId, key: &str) -> Option<TaskId> {
        self.children.get(&parent)?.get(key).copied()
    }

    fn check_depth(&self, batch: &Submit, plans: &[Plan]) -> Result<()> {
        let mut more: HashMap<&QueueName, u64> = HashMap::new();
        for (new, plan) in batch.tasks.iter().zip(plans) {
            if matches!(plan, Plan::Insert) {
                *more.entry(&new.queue).or_default() += 1;
            }
        }
        for (name, more) in more {
            let Some(max) = self.queues.get(name).and_then(|q| q.depth_max) else { continue };
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

    /// Writes a task that was planned for.
    fn insert(&mut self, new: &NewTask, now: Timestamp, out: &mut Events) -> Submitted {
        let mut task = Task::born(new, now);
        let card = task.card();
        task.standing.submitted(&card, now, out);
        let state = task.state();
        if let Some(idem) = &new.idempotency {
            self.idempotency.insert(idem.key.clone(), (idem.body, new.id, now.plus(idem.ttl)));
        }
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
            idempotency: new.idempotency.as_ref().map(|i| i.key.clone()),
            held: None,
            steps: vec![],
            attempts: vec![],
            dead_letter: false,
        };
        self.tasks.insert(new.id, row);
        Submitted::New { id: new.id, state }
    }

    pub(super) fn record(&mut self, write: &Write, now: Timestamp) -> Result<Written> {
        check_write(write)?;
        let row = self.tasks.get(&write.lease.task).ok_or_else(|| lease_lost(&write.lease))?;
        if let Some(written) = self.refuse_or_repeat(row, write)? {
            return Ok(written);
        }
        let card = row.task.card();
        let mut standing = row.task.standing.clone();
        let mut out = vec![];
        let mut failure = None;
        if let Some((keep, why)) = &write.keep_steps {
            standing.discarded(&card, *keep, why, now, &mut out);
        }
        for step in &write.steps {
            standing.step(&card, step, now, &mut out);
        }
        if let Some(progress) = &write.progress {
            standing.progressed(&card, progress, now, &mut out);
        }
        let before = standing.clone();
        if let Some(settlement) = &write.settle {
            // What the attempt failed with is told apart from older failures.
            let older = standing.failure.take();
            standing.close(&card, settlement, now, self.guards.transition(), &mut out)?;
            failure.clone_from(&standing.failure);
            standing.failure = standing.failure.or(older);
        }
        let requests = standing.requests;
        self.write_steps(write, &before, now);
        for child in &write.children {
            if self.child(write.lease.task, child_key(child)).is_none() {
                self.insert(child, now, &mut out);
                standing.has_children = true;
            }
        }
        let written =
            Written { state: standing.state, version: standing.version, requests, repeated: false };
        self.save(write.lease.task, standing, failure, now);
        self.publish(out);
        Ok(written)
    }

    /// `Ok(None)`: the write may go on. A write that is in the store already
    /// answers as repeated; anything else that does not fit is refused.
    fn refuse_or_repeat(&self, row: &Row, write: &Write) -> Result<Option<Written>> {
        let standing = &row.task.standing;
        let node = standing.node.unwrap_or(write.lease.node);
        let held = LeaseKey { task: row.task.id, node, token: standing.token };
        let repeated = Written {
            state: standing.state,
            version: standing.version,
            requests: standing.requests,
            repeated: true,
        };
        if self.guards.token && (!standing.leased || write.lease != held) {
            return if was_settled(row, write) {
                Ok(Some(repeated))
            } else {
                Err(lease_lost(&write.lease))
            };
        }
        let Some(first) = write.steps.first() else { return Ok(None) };
        match first.version.check(standing.version) {
            Ok(()) => Ok(None),
            Err(_) if steps_are_stored(row, write) && write.settle.is_none() => Ok(Some(repeated)),
            Err(_) if !self.guards.version => Ok(None),
            Err(refused) => Err(refused),
        }
    }

    fn write_steps(&mut self, write: &Write, standing: &Standing, now: Timestamp) {
        let Some(row) = self.tasks.get_mut(&write.lease.task) else { return };
        if let Some(held) = &mut row.held {
            held.in_step |= write.begins || !write.steps.is_empty();
        }
        if let Some((keep, _)) = write.keep_steps {
            drop_finished_after(&mut row.steps, keep);
        }
        for record in &write.steps {
            let undone = record.outcome == StepOutcome::Undone;
            if undone {
                let same = |e: &&mut StepEntry| e.record.name == record.name;
                row.steps.iter_mut().filter(same).for_each(|e| e.live = false);
            }
            row.steps.push(StepEntry {
                record: record.clone(),
                run: standing.run,
                attempt: standing.attempt,
                node: write.lease.node,
                at: now,
                live: !undone,
            });
        }
    }

    /// Puts a task's new standing in place and keeps everything beside it true.
    /// `failure` is what the attempt that ends here, if one does, failed with.
    pub(super) fn save(
        &mut self,
        id: TaskId,
        mut after: Standing,
        failure: Option<Failure>,
        now: Timestamp,
    ) {
        let Some(row) = self.tasks.get(&id) else { return };
        let before = row.task.standing.clone();
        let task = row.task.clone();
        let ends = after.state.is_ended() && !before.state.is_ended();
        let revives = before.state.is_ended() && !after.state.is_ended();
        if ends && after.has_children {
            after.children = Some(self.totals(id));
        }
        self.leave(before.place(), &task);
        if before.leased && !after.leased {
            self.close_attempt(id, &before, &after, failure, now);
        }
        if revives {
            self.archive_attempt(id, &before);
            self.take_unique(&task);
        }
        if ends {
            self.give_unique_back(&task);
            if let Some(parent) = task.parent {
                self.parents_due.insert(parent);
            }
            if after.has_children {
                self.parents_due.insert(id);
            }
        }
        let waits = matches!(after.waiting_on, Some(WaitingOn::Children { .. }));
        if after.state == State::Waiting && waits {
            self.parents_due.insert(id);
        }
        self.enter(after.place(), &task);
        let Some(row) = self.tasks.get_mut(&id) else { return };
        if matches!(after.state, State::Completed | State::RolledBack) {
            for entry in &mut row.steps {
                entry.live = false;
                entry.record.output = None;
            }
        }
        let died = after.state == State::Failed && before.state != State::Failed;
        row.dead_letter = died || (row.dead_letter && after.state == State::Failed);
        row.task.standing = after;
        if died {
            let row = &self.tasks[&id];
            if let Ok(letter) = DeadLetter::of(&row.task) {
                self.send_out(OutboxTopic::DeadLetter, Some(id), letter.to_json());
            }
        }
    }

    fn close_attempt(
        &mut self,
        id: TaskId,
        before: &Standing,
        after: &Standing,
        failure: Option<Failure>,
        now: Timestamp,
    ) {
        let Some(row) = self.tasks.get_mut(&id) else { return };
        row.held = None;
        let known = row.attempts.iter().any(|a| a.token == before.token);
        if !after.state.is_ended() && !known {
            let end = AttemptEnd::Settled(after.state);
            row.attempts.push(crate::store::attempt_of(before, Some((end, now)), failure));
        }
    }

    /// The attempt that ended the task before moves from its standing to a row.
    fn archive_attempt(&mut self, id: TaskId, before: &Standing) {
        let Some(row) = self.tasks.get_mut(&id) else { return };
        let known = row.attempts.iter().any(|a| a.token == before.token);
        if before.attempt > 0 && !known {
            let at = before.finished_at.unwrap_or(before.updated_at);
            let end = Some((AttemptEnd::Settled(before.state), at));
            row.attempts.push(crate::store::attempt_of(before, end, before.failure.clone()));
        }
    }

    fn give_unique_back(&mut self, task: &Task) {
        let unique = task.extras.as_ref().and_then(|e| e.unique.as_ref());
        if let Some(unique) = unique.filter(|u| u.for_.is_none())
            && self.unique.get(&unique.key).is_some_and(|(id, _)| *id == task.id)
        {
            self.unique.remove(&unique.key);
        }
    }

    fn take_unique(&mut self, task: &Task) {
        let unique = task.extras.as_ref().and_then(|e| e.unique.as_ref());
        if let Some(unique) = unique.filter(|u| u.for_.is_none()) {
            self.unique.insert(unique.key.clone(), (task.id, None));
        }
    }

    pub(super) fn enter(&mut self, place: Place, task: &Task) {
        match place {
            Place::Nowhere => {}
            Place::Ready => drop(self.ready.insert((task.queue.clone(), -task.priority, task.id))),
            Place::Due(at) => drop(self.due.insert((at, task.id))),
            Place::Leased => drop(self.leased.insert(task.id)),
        }
    }

    pub(super) fn leave(&mut self, place: Place, task: &Task) {
        match place {
            Place::Nowhere => {}
            Place::Ready => drop(self.ready.remove(&(task.queue.clone(), -task.priority, task.id))),
            Place::Due(at) => drop(self.due.remove(&(at, task.id))),
            Place::Leased => drop(self.leased.remove(&task.id)),
        }
    }

    pub(super) fn totals(&self, parent: TaskId) -> Totals {
        let mut totals = Totals::default();
        for id in self.children.get(&parent).into_iter().flat_map(|c| c.values()) {
            if let Some(row) = self.tasks.get(id) {
                totals.add(row.task.state(), 1);
            }
        }
        totals
    }

    /// Gives events their positions.
    pub(super) fn publish(&mut self, out: Events) {
        let now_due =
            if self.guards.events { out } else { std::mem::replace(&mut self.late_events, out) };
        for mut event in now_due {
            self.newest = Position(self.newest.0 + 1);
            event.position = self.newest;
            if self.outbox_rule.events {
                let body = crate::store::event_json(&event);
                self.send_out(OutboxTopic::Event, event.task, body);
            }
            self.events.push_back(event);
        }
    }

    pub(super) fn change(
        &mut self,
        change: &Change,
        by: &Actor,
        now: Timestamp,
    ) -> Vec<Result<Changed>> {
        match change {
            Change::Tasks { ids, change } => ids
                .iter()
                .map(|&id| {
                    let result = self.change_task(id, change, now);
                    self.note(by, change.verb(), &id.to_string(), &result, now);
                    result
                })
                .collect(),
            Change::Rerun { of, id } => {
                let result = self.rerun(*of, *id, now);
                self.note(by, "rerun", &of.to_string(), &result, now);
                vec![result]
            }
            Change::Queue { name, change } => {
                let result = Ok(self.change_queue(name, *change, now));
                self.note(by, change.verb(), &format!("queue {name}"), &result, now);
                vec![result]
            }
            Change::Node { id, change } => {
                let result = self.change_node(*id, *change, now);
                self.note(by, change.verb(), &id.to_string(), &result, now);
                vec![result]
            }
        }
    }

    pub(super) fn change_task(
        &mut self,
        id: TaskId,
        change: &TaskChange,
        now: Timestamp,
    ) -> Result<Changed> {
        let row = self.tasks.get(&id).ok_or_else(|| no_such("task", id))?;
        let mut standing = row.task.standing.clone();
        let mut out = vec![];
        let changed =
            apply(change, &row.task.card(), &mut standing, row.dead_letter, now, &mut out)?;
        if row.task.state().is_ended() && !standing.state.is_ended() {
            self.check_unique_free(&row.task, now)?;
        }
        match change {
            TaskChange::Requeue { from_step, payload } => {
                let keep = crate::store::steps_before(&row.steps, &row.task, from_step.as_deref())?;
                crate::store::check_payload(payload.as_ref())?;
                if let Some(row) = self.tasks.get_mut(&id) {
                    keep.into_iter().for_each(|keep| drop_finished_after(&mut row.steps, keep));
                    payload.iter().for_each(|payload| row.task.payload = payload.clone());
                }
            }
            TaskChange::EditPayload(payload) => {
                crate::store::check_payload(Some(payload))?;
                if let Some(row) = self.tasks.get_mut(&id) {
                    row.task.payload = payload.clone();
                }
            }
            TaskChange::Discard => {
                if let Some(row) = self.tasks.get_mut(&id) {
                    row.dead_letter = false;
                }
            }
            _ => {}
        }
        self.save(id, standing, None, now);
        self.publish(out);
        Ok(changed)
    }

    /// A task that comes back to life needs its key again.
    fn check_unique_free(&self, task: &Task, now: Timestamp) -> Result<()> {
        let unique =
            task.extras.as_ref().and_then(|e| e.unique.as_ref()).filter(|u| u.for_.is_none());
        match unique.and_then(|u| self.unique_holder(&u.key, now)) {
            Some(holder) if holder != task.id => {
                Err(Error::conflict("change", format!("its unique key is held by {holder}")))
            }
            _ => Ok(()),
        }
    }

    fn rerun(&mut self, of: TaskId, id: TaskId, now: Timestamp) -> Result<Changed> {
        let row = self.tasks.get(&of).ok_or_else(|| no_such("task", of))?;
        if !row.task.state().is_ended() {
            let message = format!("{of} is {}; only ended tasks can be rerun", row.task.state());
            return Err(Error::conflict("rerun", message));
        }
        let again = row.task.rerun(id);
        if let Some(known) = self.tasks.get(&id) {
            return same_submission(&known.task, &again).map(|()| Changed::Already);
        }
        let mut out = vec![];
        self.insert(&again, now, &mut out);
        self.publish(out);
        Ok(Changed::Done)
    }

    fn change_queue(&mut self, name: &QueueName, change: QueueChange, now: Timestamp) -> Changed {
        let queue = self.queues.entry(name.clone()).or_default();
        let mut info = (queue.paused, queue.concurrency, queue.depth_max);
        let (changed, event) = crate::store::change_queue(&mut info, name, change, now);
        (queue.paused, queue.concurrency, queue.depth_max) = info;
        self.publish(event.into_iter().collect());
        changed
    }

    fn change_node(&mut self, id: NodeId, change: NodeChange, now: Timestamp) -> Result<Changed> {
        let node = self.nodes.get_mut(&id).ok_or_else(|| no_such("node", id))?;
        let (changed, event) = crate::store::change_node(node, change, now);
        self.publish(event.into_iter().collect());
        Ok(changed)
    }

    pub(super) fn note(
        &mut self,
        by: &Actor,
        action: &str,
        target: &str,
        result: &Result<Changed>,
        at: Timestamp,
    ) {
        self.audit_seq += 1;
        self.audit.push_back(AuditRow {
            seq: self.audit_seq,
            at,
            by: by.clone(),
            action: action.to_owned(),
            target: target.to_owned(),
            outcome: crate::store::outcome_word(result).to_owned(),
        });
    }
}

fn child_key(child: &NewTask) -> &str {
    child.child_of.as_ref().map_or("", |c| c.key.as_str())
}

/// Whether the lease ended by this very write.
fn was_settled(row: &Row, write: &Write) -> bool {
    let Some(settlement) = &write.settle else { return false };
    if row.task.standing.node == Some(write.lease.node)
        && row.task.standing.is_left_by(settlement, write.lease.token)
    {
        return true;
    }
    let past =
        row.attempts.iter().find(|a| a.token == write.lease.token && a.node == write.lease.node);
    past.and_then(|a| a.ended)
        .is_some_and(|(end, _)| settlement.verdicts().any(|v| end == AttemptEnd::Settled(v.to)))
}

fn steps_are_stored(row: &Row, write: &Write) -> bool {
    write
        .steps
        .iter()
        .all(|step| row.steps.iter().any(|e| e.record == *step && e.node == write.lease.node))
}

/// Takes finished steps beyond the first `keep` out of the checkpoint.
fn drop_finished_after(steps: &mut [StepEntry], keep: usize) {
    let live = |e: &&mut StepEntry| e.live && e.record.outcome.is_finished();
    steps.iter_mut().filter(live).skip(keep).for_each(|e| e.live = false);
}
