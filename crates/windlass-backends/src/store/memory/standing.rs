//! The one place where a task's new standing meets the maps beside it: ready,
//! due, leases, keys, attempts, dead letters, parents. Whoever changes a task (a
//! record, an operator, a job) ends here; nothing here decides.

use super::Inner;
use std::collections::btree_map::Entry;
use windlass_core::children::Totals;
use windlass_core::clock::Timestamp;
use windlass_core::event::Position;
use windlass_core::id::TaskId;
use windlass_core::outcome::{Failure, WaitingOn};
use windlass_core::standing::{Events, Place, Standing};
use windlass_core::state::State;
use windlass_core::store::{Attempt, AttemptEnd, DeadLetter, OutboxTopic};
use windlass_core::task::{Kind, QueueName, Task};

impl Inner {
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
        if crate::store::clears_checkpoint(after.state) {
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
            let attempt = crate::store::attempt_of(before, Some((end, now)), failure);
            row.attempts.push(Attempt { settled: after.settled, ..attempt });
        }
    }

    /// The attempt that ended the task before moves from its standing to a row.
    fn archive_attempt(&mut self, id: TaskId, before: &Standing) {
        let Some(row) = self.tasks.get_mut(&id) else { return };
        let known = row.attempts.iter().any(|a| a.token == before.token);
        if before.attempt > 0 && !known {
            let at = before.finished_at.unwrap_or(before.updated_at);
            let end = Some((AttemptEnd::Settled(before.state), at));
            let failure = before.failure.clone().filter(|_| before.state == State::Failed);
            row.attempts.push(crate::store::attempt_of(before, end, failure));
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
            Place::Ready => {
                if self.ready.insert((task.queue.clone(), -task.priority, task.id)) {
                    let pair = (task.queue.clone(), task.kind.clone());
                    *self.ready_kinds.entry(pair).or_default() += 1;
                }
            }
            Place::Due(at) => drop(self.due.insert((at, task.id))),
            Place::Leased => drop(self.leased.insert(task.id)),
        }
    }

    pub(super) fn leave(&mut self, place: Place, task: &Task) {
        match place {
            Place::Nowhere => {}
            Place::Ready => {
                if self.ready.remove(&(task.queue.clone(), -task.priority, task.id)) {
                    self.leave_kind((task.queue.clone(), task.kind.clone()));
                }
            }
            Place::Due(at) => drop(self.due.remove(&(at, task.id))),
            Place::Leased => drop(self.leased.remove(&task.id)),
        }
    }

    fn leave_kind(&mut self, pair: (QueueName, Kind)) {
        if let Entry::Occupied(mut ready) = self.ready_kinds.entry(pair) {
            *ready.get_mut() -= 1;
            if *ready.get() == 0 {
                ready.remove();
            }
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
}
