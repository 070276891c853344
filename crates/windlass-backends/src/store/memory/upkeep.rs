//! The periodic jobs: promoting, expiring, judging parents, forgetting. Each
//! does at most `limit` pieces and says whether more is left; all of them are
//! safe on every node at once.

use super::Inner;
use crate::store::{NODE_KEPT, node_event};
use std::collections::HashSet;
use windlass_core::Result;
use windlass_core::children::{Resolution, resolve};
use windlass_core::clock::Timestamp;
use windlass_core::control::{Changed, TaskChange};
use windlass_core::event::EventName;
use windlass_core::id::TaskId;
use windlass_core::outcome::WaitingOn;
use windlass_core::state::State;
use windlass_core::store::{Job, NodeInfo, Retention, Upkept};

impl Inner {
    pub(super) fn upkeep(&mut self, job: Job, limit: usize, now: Timestamp) -> Result<Upkept> {
        match job {
            Job::Promote => self.promote(limit, now),
            Job::Expire => self.expire(limit, now),
            Job::Children => Ok(self.judge_parents(limit, now)),
            Job::Purge(retention) => Ok(self.purge(&retention, limit, now)),
            Job::Keys => Ok(self.forget_keys(limit, now)),
            Job::Nodes => Ok(self.forget_nodes(limit, now)),
        }
    }

    fn promote(&mut self, limit: usize, now: Timestamp) -> Result<Upkept> {
        let mut upkept = Upkept::default();
        let due: Vec<TaskId> = self
            .due
            .iter()
            .take_while(|(at, _)| *at <= now)
            .take(limit + 1)
            .map(|(_, id)| *id)
            .collect();
        upkept.more = due.len() > limit;
        for id in due.into_iter().take(limit) {
            let mut standing = self.tasks[&id].task.standing.clone();
            standing.promote(now, self.guards.transition())?;
            let queue = self.tasks[&id].task.queue.clone();
            self.save(id, standing, None, now);
            if !upkept.ready.contains(&queue) {
                upkept.ready.push(queue);
            }
            upkept.done += 1;
        }
        Ok(upkept)
    }

    fn expire(&mut self, limit: usize, now: Timestamp) -> Result<Upkept> {
        let mut late: Vec<(Option<Timestamp>, TaskId)> = self
            .tasks
            .values()
            .filter(|row| row.task.standing.is_expired(row.task.deadline, now))
            .map(|row| (row.task.deadline, row.task.id))
            .collect();
        late.sort_unstable();
        let more = late.len() > limit;
        let mut out = vec![];
        let mut done = 0;
        for (_, id) in late.into_iter().take(limit) {
            let task = &self.tasks[&id].task;
            let (card, mut standing) = (task.card(), task.standing.clone());
            let deadline = task.deadline.unwrap_or(now);
            standing.expire(&card, deadline, now, self.guards.transition(), &mut out)?;
            self.save(id, standing, None, now);
            done += 1;
        }
        self.publish(out);
        Ok(Upkept { done, more, ready: vec![] })
    }

    fn judge_parents(&mut self, limit: usize, now: Timestamp) -> Upkept {
        let mut upkept = Upkept::default();
        let due: Vec<TaskId> = self.parents_due.iter().copied().collect();
        for id in due {
            if upkept.done >= limit {
                upkept.more = true;
                break;
            }
            let Some(row) = self.tasks.get(&id) else {
                self.parents_due.remove(&id);
                continue;
            };
            let state = row.task.state();
            if state.is_ended() {
                self.cancel_children(id, limit, now, &mut upkept);
            } else {
                self.parents_due.remove(&id);
                if state == State::Waiting {
                    self.judge_parent(id, now, &mut upkept);
                }
            }
        }
        upkept
    }

    fn judge_parent(&mut self, id: TaskId, now: Timestamp, upkept: &mut Upkept) {
        let task = &self.tasks[&id].task;
        let Some(WaitingOn::Children { then }) = task.standing.waiting_on else { return };
        let policy = task.extras.as_ref().and_then(|e| e.children_policy).unwrap_or_default();
        let totals = self.totals(id);
        let resolution = resolve(policy, then, &totals);
        if resolution == Resolution::Wait {
            return;
        }
        let (card, mut standing) = (task.card(), task.standing.clone());
        let mut out = vec![];
        standing.children_ended(&card, resolution, totals, now, &mut out);
        if resolution == Resolution::Resume && !upkept.ready.contains(&card.queue) {
            upkept.ready.push(card.queue.clone());
        }
        self.save(id, standing, None, now);
        self.publish(out);
        upkept.done += 1;
    }

    /// The children of a parent that ended are cancelled, in pieces.
    fn cancel_children(
        &mut self,
        parent: TaskId,
        limit: usize,
        now: Timestamp,
        upkept: &mut Upkept,
    ) {
        let live: Vec<TaskId> = self
            .children
            .get(&parent)
            .into_iter()
            .flat_map(|c| c.values())
            .filter(|id| self.tasks.get(id).is_some_and(|row| !row.task.state().is_ended()))
            .copied()
            .collect();
        for id in live {
            if upkept.done >= limit {
                upkept.more = true;
                return;
            }
            // A child that cannot be cancelled (it rolls back) ends by itself.
            if matches!(
                self.change_task(id, &TaskChange::Cancel, now),
                Ok(Changed::Done | Changed::Requested)
            ) {
                upkept.done += 1;
            }
        }
        self.parents_due.remove(&parent);
    }

    fn purge(&mut self, retention: &Retention, limit: usize, now: Timestamp) -> Upkept {
        let live = self.idempotency.values().filter(|(_, _, until)| *until > now);
        let answers: HashSet<TaskId> = live.map(|(_, id, _)| *id).collect();
        let old: Vec<TaskId> = self
            .tasks
            .values()
            .filter(|row| self.may_forget(row, retention, &answers, now))
            .take(limit + 1)
            .map(|row| row.task.id)
            .collect();
        let more = old.len() > limit;
        let done = old.len().min(limit);
        for id in old.into_iter().take(limit) {
            if let Some(row) = self.tasks.remove(&id)
                && let (Some(parent), Some(key)) = (row.task.parent, &row.child_key)
                && let Some(siblings) = self.children.get_mut(&parent)
            {
                siblings.remove(key);
            }
            if self.children.get(&id).is_some_and(|c| c.is_empty()) {
                self.children.remove(&id);
            }
        }
        // The newest event stays: its position is where numbering goes on.
        while self.events.len() > 1
            && self.events.front().is_some_and(|e| e.at.plus(retention.events) < now)
        {
            self.events.pop_front();
        }
        while self.audit.front().is_some_and(|a| a.at.plus(retention.audit) < now) {
            self.audit.pop_front();
        }
        self.batches
            .retain(|_, batch| batch.finished_at.is_none_or(|at| at.plus(retention.audit) >= now));
        Upkept { done, more, ready: vec![] }
    }

    fn may_forget(
        &self,
        row: &super::Row,
        retention: &Retention,
        answers: &HashSet<TaskId>,
        now: Timestamp,
    ) -> bool {
        let kept = if row.dead_letter { retention.dead_letters } else { retention.ended };
        let old = row.task.standing.finished_at.is_some_and(|at| at.plus(kept) < now);
        let key_lives = answers.contains(&row.task.id);
        let unique = row.task.extras.as_ref().and_then(|e| e.unique.as_ref());
        let unique_lives = unique.is_some_and(|u| {
            self.unique.get(&u.key).is_some_and(|(id, until)| {
                *id == row.task.id && until.is_some_and(|until| until > now)
            })
        });
        let parent_lives = row.task.parent.is_some_and(|p| self.tasks.contains_key(&p));
        row.task.state().is_ended() && old && !key_lives && !unique_lives && !parent_lives
    }

    fn forget_keys(&mut self, limit: usize, now: Timestamp) -> Upkept {
        let over: Vec<String> =
            self.idempotency.iter().filter(|(_, v)| v.2 <= now).map(|(k, _)| k.clone()).collect();
        let lapsed = |until: Option<Timestamp>| until.is_some_and(|until| until <= now);
        let gone: Vec<String> =
            self.unique.iter().filter(|(_, v)| lapsed(v.1)).map(|(k, _)| k.clone()).collect();
        let more = over.len() + gone.len() > limit;
        let mut done = 0;
        for key in over.into_iter().take(limit) {
            self.idempotency.remove(&key);
            done += 1;
        }
        for key in gone.into_iter().take(limit - done) {
            self.unique.remove(&key);
            done += 1;
        }
        Upkept { done, more, ready: vec![] }
    }

    fn forget_nodes(&mut self, limit: usize, now: Timestamp) -> Upkept {
        self.forget_lost(limit, now, now.minus(NODE_KEPT))
    }

    /// Announces nodes that are lost; those without tasks whose lease ended up to
    /// `before` are forgotten.
    pub(super) fn forget_lost(
        &mut self,
        limit: usize,
        now: Timestamp,
        before: Timestamp,
    ) -> Upkept {
        let silent = |n: &&NodeInfo| !self.announced_lost.contains(&n.id);
        let more =
            self.nodes.values().filter(|n| n.lease_until <= now).filter(silent).count() > limit;
        let lost: Vec<_> = self
            .nodes
            .values()
            .filter(|n| n.lease_until <= now)
            .map(|n| (n.id, n.lease_until))
            .collect();
        let mut out = vec![];
        let mut done = 0;
        for (id, until) in lost {
            if out.len() < limit && self.announced_lost.insert(id) {
                out.push(node_event(EventName::NodeLost, id, now));
                done += 1;
            }
            let holds = self.holds_any(id);
            let announced = self.announced_lost.contains(&id);
            if announced && !holds && until <= before {
                self.nodes.remove(&id);
                self.announced_lost.remove(&id);
                done += 1;
            }
        }
        self.publish(out);
        Upkept { done, more, ready: vec![] }
    }
}
