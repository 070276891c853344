//! Upkeep in the model: promoting what is due, expiring what came too late,
//! judging parents, forgetting keys and nodes.

use super::{Model, has_ended};
use std::collections::BTreeSet;
use std::time::Duration;
use windlass_core::children::{Resolution, Totals, resolve};
use windlass_core::clock::Timestamp;
use windlass_core::control::{Changed, TaskChange};
use windlass_core::event::EventName;
use windlass_core::id::TaskId;
use windlass_core::outcome::{Class, Failure, Reason, TaskError, WaitingOn};
use windlass_core::settle::Verdict;
use windlass_core::state::State;
use windlass_core::store::{Job, Upkept};

/// People still see a lost node for this long.
const NODE_KEPT: Duration = Duration::from_secs(60);

impl Model {
    pub(super) fn upkeep(&mut self, job: Job, limit: usize, now: Timestamp) -> Upkept {
        match job {
            Job::Promote => self.promote(limit, now),
            Job::Expire => self.expire(limit, now),
            Job::Children => self.judge_parents(limit, now),
            Job::Keys => self.forget_keys(limit, now),
            Job::Nodes => self.forget_nodes(limit, now),
            Job::Purge(_) => Upkept::default(),
        }
    }

    fn promote(&mut self, limit: usize, now: Timestamp) -> Upkept {
        let due = self.tasks.values().filter(|r| r.waits_for_time() && r.due_at <= now);
        let mut line: Vec<_> = due.map(|r| (r.due_at, r.id())).collect();
        line.sort();
        let more = line.len() > limit;
        line.truncate(limit);
        let mut ready = BTreeSet::new();
        for (_, id) in &line {
            let row = self.tasks.get_mut(id).expect("just seen");
            let before = row.state;
            if before == State::RollingBack {
                row.backing_off = false;
            } else {
                row.state = State::Queued;
            }
            row.waiting_on = None;
            ready.insert(row.new.queue.clone());
            self.follow_up(*id, before);
        }
        Upkept { done: line.len(), more, ready: ready.into_iter().collect() }
    }

    fn expire(&mut self, limit: usize, now: Timestamp) -> Upkept {
        let late = self.tasks.values().filter(|r| r.too_late(now));
        let mut line: Vec<_> = late.map(|r| (r.deadline, r.id())).collect();
        line.sort();
        let more = line.len() > limit;
        line.truncate(limit);
        for (_, id) in &line {
            let row = self.tasks.get_mut(id).expect("just seen");
            let before = row.state;
            row.fail(Reason::Expired, Class::Timeout, now);
            self.follow_up(*id, before);
        }
        Upkept { done: line.len(), more, ready: vec![] }
    }

    /// Parents in the order of their ids, those that became due meanwhile with
    /// the next call. A parent that is decided, and a child that is cancelled,
    /// are one piece of work each.
    fn judge_parents(&mut self, limit: usize, now: Timestamp) -> Upkept {
        let mut upkept = Upkept::default();
        let line: Vec<TaskId> = self.parents_due.iter().copied().collect();
        for id in line {
            if upkept.done >= limit {
                upkept.more = true;
                break;
            }
            let row = &self.tasks[&id];
            if has_ended(row.state) {
                self.cancel_children(id, limit, now, &mut upkept);
                continue;
            }
            self.parents_due.remove(&id);
            if row.state == State::Waiting
                && let Some(WaitingOn::Children { then }) = row.waiting_on
            {
                let totals = self.totals(id);
                let resolution = resolve(row.policy(), then, &totals);
                upkept.done += usize::from(resolution != Resolution::Wait);
                self.resolve_parent(id, resolution, totals, now);
            }
        }
        upkept
    }

    fn cancel_children(
        &mut self,
        parent: TaskId,
        limit: usize,
        now: Timestamp,
        upkept: &mut Upkept,
    ) {
        let live: Vec<TaskId> =
            self.children(parent).filter(|c| !has_ended(c.state)).map(|c| c.id()).collect();
        for child in live {
            if upkept.done >= limit {
                upkept.more = true;
                return;
            }
            // One that is rolling back already is left to it.
            let changed = self.change_task(child, &TaskChange::Cancel, now);
            let cancelled = matches!(changed, Ok(Changed::Done | Changed::Requested));
            upkept.done += usize::from(cancelled);
        }
        self.parents_due.remove(&parent);
    }

    pub(super) fn totals(&self, parent: TaskId) -> Totals {
        let mut totals = Totals::default();
        for child in self.children(parent) {
            totals.total += 1;
            match child.state {
                State::Completed | State::CompletedWithErrors => totals.completed += 1,
                State::Failed => totals.failed += 1,
                State::Cancelled | State::RolledBack => totals.cancelled += 1,
                _ => {}
            }
        }
        totals
    }

    fn resolve_parent(&mut self, id: TaskId, how: Resolution, totals: Totals, now: Timestamp) {
        let to = match how {
            Resolution::Wait => return,
            Resolution::Resume => State::Queued,
            Resolution::Completed => State::Completed,
            Resolution::CompletedWithErrors => State::CompletedWithErrors,
            Resolution::Failed => State::Failed,
        };
        let failed = to == State::Failed;
        let error = || Failure::ended(Reason::Children, TaskError::new(Class::Fatal, ""));
        let verdict = Verdict { failure: failed.then(error), ..Verdict::to(to) };
        let row = self.tasks.get_mut(&id).expect("a known parent");
        let before = row.state;
        row.totals = has_ended(to).then_some(totals);
        row.go(&verdict, now);
        self.follow_up(id, before);
    }

    fn forget_keys(&mut self, limit: usize, now: Timestamp) -> Upkept {
        let before = self.idempotency.len() + self.unique.len();
        self.idempotency.retain(|_, row| now < row.until);
        self.unique.retain(|_, hold| hold.until.is_none_or(|until| now < until));
        let done = before - self.idempotency.len() - self.unique.len();
        Upkept { done, more: done > limit, ready: vec![] }
    }

    fn forget_nodes(&mut self, limit: usize, now: Timestamp) -> Upkept {
        let mut done = 0;
        let gone: Vec<_> = self.nodes.keys().copied().filter(|n| !self.is_live(*n, now)).collect();
        for id in gone {
            let host = self.nodes.get_mut(&id).expect("just seen");
            let over = host.lease_until.plus(NODE_KEPT) <= now;
            if !host.lost {
                host.lost = true;
                self.places.push(EventName::NodeLost);
                done += 1;
            }
            if over && self.held_by(id).is_empty() {
                self.nodes.remove(&id);
                done += 1;
            }
        }
        Upkept { done, more: done > limit, ready: vec![] }
    }
}
