//! The periodic jobs: promoting, expiring, judging parents, forgetting. Each
//! reads a bounded piece by an index made for it and says whether more is left.

use super::error::sql;
use super::tx::Tx;
use crate::store::{NODE_KEPT, node_event};
use rusqlite::params;
use std::time::Duration;
use windlass_core::children::{Resolution, resolve};
use windlass_core::clock::Timestamp;
use windlass_core::control::{Changed, TaskChange};
use windlass_core::event::EventName;
use windlass_core::id::{NodeId, TaskId};
use windlass_core::outcome::WaitingOn;
use windlass_core::state::State;
use windlass_core::store::{Job, PIECES_MAX, Retention, Upkept};
use windlass_core::{Error, Result};

/// Rows of a list that one purge deletes at most; stands in the statements too.
const LIST_PIECE: usize = 1000;
/// How many task rows a purge looks at for each one it may delete.
const PURGE_LOOKS: usize = 8;

impl Tx<'_, '_> {
    pub(super) fn upkeep(&mut self, job: Job, limit: usize, now: Timestamp) -> Result<Upkept> {
        let limit = limit.min(PIECES_MAX);
        match job {
            Job::Promote => self.promote(limit, now),
            Job::Expire => self.expire(limit, now),
            Job::Children => self.judge_parents(limit, now),
            Job::Purge(retention) => self.purge(&retention, limit, now),
            Job::Keys => self.forget_keys(limit, now),
            Job::Nodes => self.forget_nodes(limit, now),
        }
    }

    fn ids(&self, text: &str, params: impl rusqlite::Params) -> Result<Vec<TaskId>> {
        let mut statement = self.conn.prepare_cached(text).map_err(sql("upkeep"))?;
        let rows = statement
            .query_map(params, |r| r.get(0).map(TaskId::from_key))
            .map_err(sql("upkeep"))?;
        rows.collect::<rusqlite::Result<_>>().map_err(sql("upkeep"))
    }

    fn promote(&mut self, limit: usize, now: Timestamp) -> Result<Upkept> {
        let text = "SELECT id FROM windlass_due WHERE at <= ?1 ORDER BY at, id LIMIT ?2";
        let due = self.ids(text, params![now.as_micros(), limit + 1])?;
        let mut upkept = Upkept { more: due.len() > limit, ..Upkept::default() };
        for id in due.into_iter().take(limit) {
            let (task, lane) = self.free_task(id)?.ok_or_else(|| gone(id))?;
            let mut after = task.standing.clone();
            after.promote(now, self.memory.guards.transition())?;
            self.put_down(&task.card(), lane, &task.standing, &mut after, None, now)?;
            if !upkept.ready.contains(&task.queue) {
                upkept.ready.push(task.queue);
            }
            upkept.done += 1;
        }
        Ok(upkept)
    }

    fn expire(&mut self, limit: usize, now: Timestamp) -> Result<Upkept> {
        // The deadline of a task that is paused before its first start waits
        // with it; all others are over now, one way or the other.
        let text = "SELECT d.id FROM windlass_deadline d JOIN windlass_task t ON t.id = d.id
                    WHERE d.at < ?1 AND NOT (t.state = 7 AND t.attempt = 0)
                    ORDER BY d.at, d.id LIMIT ?2";
        let late = self.ids(text, params![now.as_micros(), limit + 1])?;
        let mut upkept = Upkept { more: late.len() > limit, ..Upkept::default() };
        for id in late.into_iter().take(limit) {
            let (task, lane) = self.task(id)?.ok_or_else(|| gone(id))?;
            let deadline = task.deadline.unwrap_or(now);
            let text = "DELETE FROM windlass_deadline WHERE at = ?1 AND id = ?2";
            self.run("expire", text, params![deadline.as_micros(), id.key()])?;
            if !task.standing.is_expired(task.deadline, now) {
                continue;
            }
            let (card, mut after) = (task.card(), task.standing.clone());
            let guard = self.memory.guards.transition();
            after.expire(&card, deadline, now, guard, &mut self.out)?;
            self.put_down(&card, lane, &task.standing, &mut after, None, now)?;
            upkept.done += 1;
        }
        Ok(upkept)
    }

    fn judge_parents(&mut self, limit: usize, now: Timestamp) -> Result<Upkept> {
        let mut upkept = Upkept::default();
        let due =
            self.ids("SELECT parent FROM windlass_parent_due ORDER BY parent LIMIT 1000", [])?;
        upkept.more = due.len() == LIST_PIECE;
        for id in due {
            if upkept.done >= limit {
                upkept.more = true;
                break;
            }
            let state = self.task(id)?.map(|(task, _)| task.state());
            if state.is_some_and(State::is_ended) {
                if !self.cancel_children(id, limit, now, &mut upkept)? {
                    continue;
                }
            } else if state == Some(State::Waiting) {
                self.judge_parent(id, now, &mut upkept)?;
            }
            // A parent that just ended stays due while it has live children.
            let ended = state.is_some_and(|s| !s.is_ended()) && self.has_ended(id)?;
            if !ended {
                self.run(
                    "children",
                    "DELETE FROM windlass_parent_due WHERE parent = ?1",
                    params![id.key()],
                )?;
            }
        }
        Ok(upkept)
    }

    fn has_ended(&mut self, id: TaskId) -> Result<bool> {
        Ok(self.task(id)?.is_some_and(|(task, _)| task.state().is_ended()))
    }

    fn judge_parent(&mut self, id: TaskId, now: Timestamp, upkept: &mut Upkept) -> Result<()> {
        let (task, lane) = self.task(id)?.ok_or_else(|| gone(id))?;
        let Some(WaitingOn::Children { then }) = task.standing.waiting_on else { return Ok(()) };
        let policy = task.extras.as_ref().and_then(|e| e.children_policy).unwrap_or_default();
        let totals = self.totals(id)?;
        let resolution = resolve(policy, then, &totals);
        if resolution == Resolution::Wait {
            return Ok(());
        }
        let (card, mut after) = (task.card(), task.standing.clone());
        after.children_ended(&card, resolution, totals, now, &mut self.out);
        if resolution == Resolution::Resume && !upkept.ready.contains(&card.queue) {
            upkept.ready.push(card.queue.clone());
        }
        self.put_down(&card, lane, &task.standing, &mut after, None, now)?;
        upkept.done += 1;
        Ok(())
    }

    /// The children of a parent that ended are cancelled, in pieces; true when
    /// none is left to be asked.
    fn cancel_children(
        &mut self,
        parent: TaskId,
        limit: usize,
        now: Timestamp,
        upkept: &mut Upkept,
    ) -> Result<bool> {
        // Not those that were asked already, and not those that roll back: they
        // end by themselves.
        let text = "SELECT t.id FROM windlass_task t LEFT JOIN windlass_lease e ON e.task = t.id
                    WHERE t.parent = ?1 AND t.state < 16 AND t.state <> 8
                      AND (e.task IS NULL OR NOT e.requests & 1)
                    ORDER BY t.child_key LIMIT ?2";
        for id in self.ids(text, params![parent.key(), limit + 1])? {
            if upkept.done >= limit {
                upkept.more = true;
                return Ok(false);
            }
            let mark = self.events();
            match self.change_task(id, &TaskChange::Cancel, now) {
                Ok(Changed::Done | Changed::Requested) => upkept.done += 1,
                Ok(Changed::Already) => {}
                Err(error) if super::error::is_fatal(&error) => return Err(error),
                // A child that cannot be cancelled (it rolls back) ends by itself.
                Err(_) => self.forget_events_after(mark),
            }
        }
        Ok(true)
    }

    /// Looks at a bounded number of task rows from where it stopped before, so
    /// that a large backlog of live tasks is not read again each time.
    fn purge(&mut self, retention: &Retention, limit: usize, now: Timestamp) -> Result<Upkept> {
        let looks = limit.saturating_mul(PURGE_LOOKS).max(1000);
        let before = |kept| now.minus(kept).as_micros();
        // What was made later than this cannot have ended long enough ago.
        let shortest = retention.ended.min(retention.dead_letters);
        let youngest = TaskId::floor(now.minus(shortest).plus(Duration::from_millis(1))).key();
        let mut statement = self
            .conn
            .prepare_cached(
                "SELECT t.id, coalesce((t.state >= 16 OR o.id IS NOT NULL)
                   AND coalesce(o.finished_at, t.finished_at) < CASE WHEN d.task IS NULL THEN ?3 ELSE ?4 END
                   AND NOT EXISTS (SELECT 1 FROM windlass_task p WHERE p.id = t.parent)
                   AND NOT EXISTS (SELECT 1 FROM windlass_idempotency i WHERE i.task = t.id AND i.until > ?5)
                   AND NOT EXISTS (SELECT 1 FROM windlass_unique_key u
                                   WHERE u.key = json_extract(t.extras, '$.unique.key')
                                   AND u.task = t.id AND u.until > ?5), 0)
                 FROM windlass_task t LEFT JOIN windlass_dead_letter d ON d.task = t.id
                 LEFT JOIN windlass_done o ON o.id = t.id
                 WHERE t.id > ?1 AND t.id < ?6 ORDER BY t.id LIMIT ?2",
            )
            .map_err(sql("purge"))?;
        let rows: Vec<(i64, bool)> = statement
            .query_map(
                params![
                    self.memory.purge_from,
                    looks,
                    before(retention.ended),
                    before(retention.dead_letters),
                    now.as_micros(),
                    youngest
                ],
                |r| Ok((r.get(0)?, r.get(1)?)),
            )
            .and_then(|rows| rows.collect())
            .map_err(sql("purge"))?;
        let at_end = rows.len() < looks;
        let old: Vec<i64> = rows.iter().filter(|(_, old)| *old).map(|(id, _)| *id).collect();
        let more = old.len() > limit || !at_end;
        self.memory.purge_from = match old.get(limit) {
            Some(_) => old[..limit].last().copied().unwrap_or(0),
            None if at_end => 0,
            None => rows.last().map_or(0, |(id, _)| *id),
        };
        let done = old.len().min(limit);
        for id in &old[..done] {
            self.forget_task(*id)?;
        }
        let more = self.purge_lists(retention, now)? || more;
        Ok(Upkept { done, more, ready: vec![] })
    }

    fn forget_task(&mut self, id: i64) -> Result<()> {
        let state = self.state_of(TaskId::from_key(id))?;
        self.completed -= i64::from(state == Some(State::Completed));
        for text in [
            "DELETE FROM windlass_step WHERE task = ?1",
            "DELETE FROM windlass_attempt WHERE task = ?1",
            "DELETE FROM windlass_dead_letter WHERE task = ?1",
            "DELETE FROM windlass_parent_due WHERE parent = ?1",
            "DELETE FROM windlass_deadline
               WHERE at = (SELECT deadline FROM windlass_task WHERE id = ?1) AND id = ?1",
            "DELETE FROM windlass_done WHERE id = ?1",
            "DELETE FROM windlass_task WHERE id = ?1",
        ] {
            self.run("purge", text, params![id])?;
        }
        Ok(())
    }

    /// True when more is left.
    fn purge_lists(&self, retention: &Retention, now: Timestamp) -> Result<bool> {
        // The newest row stays: its position is where numbering goes on.
        let text = "DELETE FROM windlass_event WHERE position IN (
              SELECT position FROM windlass_event WHERE position < (SELECT max(position) FROM windlass_event)
              ORDER BY position LIMIT 1000) AND at < ?1";
        let events = self.run("purge", text, params![now.minus(retention.events).as_micros()])?;
        let text = "DELETE FROM windlass_audit WHERE seq IN (
              SELECT seq FROM windlass_audit ORDER BY seq LIMIT 1000) AND at < ?1";
        let audit = self.run("purge", text, params![now.minus(retention.audit).as_micros()])?;
        let text = "DELETE FROM windlass_batch WHERE id IN (
              SELECT id FROM windlass_batch WHERE finished_at < ?1 ORDER BY id LIMIT 1000)";
        let batches = self.run("purge", text, params![now.minus(retention.audit).as_micros()])?;
        Ok(events.max(audit).max(batches) == LIST_PIECE)
    }

    fn forget_keys(&mut self, limit: usize, now: Timestamp) -> Result<Upkept> {
        let (mut done, mut more) = (0, false);
        for table in ["windlass_idempotency", "windlass_unique_key"] {
            let over = format!("SELECT key FROM {table} WHERE until <= ?1");
            let text = format!("DELETE FROM {table} WHERE key IN ({over} LIMIT ?2)");
            done += self.run("keys", &text, params![now.as_micros(), limit - done])?;
            let left =
                self.conn.prepare_cached(&over).and_then(|mut s| s.exists([now.as_micros()]));
            more |= left.map_err(sql("keys"))?;
        }
        Ok(Upkept { done, more, ready: vec![] })
    }

    fn forget_nodes(&mut self, limit: usize, now: Timestamp) -> Result<Upkept> {
        self.forget_lost(limit, now, now.minus(NODE_KEPT))
    }

    /// Announces nodes that are lost; those without tasks whose lease ended up to
    /// `before` are forgotten.
    pub(super) fn forget_lost(
        &mut self,
        limit: usize,
        now: Timestamp,
        before: Timestamp,
    ) -> Result<Upkept> {
        let text = "SELECT id FROM windlass_node WHERE lease_until <= ?1 AND NOT announced ORDER BY id LIMIT ?2";
        let lost = self.ids(text, params![now.as_micros(), limit + 1])?;
        let more = lost.len() > limit;
        let mut done = lost.len().min(limit);
        for id in lost.into_iter().take(limit) {
            let node = NodeId::from_key(id.key());
            self.out.push(node_event(EventName::NodeLost, node, now));
            self.run(
                "nodes",
                "UPDATE windlass_node SET announced = 1 WHERE id = ?1",
                params![id.key()],
            )?;
        }
        let text = "DELETE FROM windlass_node WHERE lease_until <= ?1 AND announced
                    AND id NOT IN (SELECT node FROM windlass_lease)";
        done += self.run("nodes", text, params![before.as_micros()])?;
        Ok(Upkept { done, more, ready: vec![] })
    }
}

fn gone(id: TaskId) -> Error {
    Error::corrupt("upkeep", format!("{id} is listed and has no row"))
}
