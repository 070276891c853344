//! Recording what holders of leases say: steps, progress, children, the end of
//! an attempt. The token and the version are checked first; a write that is in
//! the store already answers as repeated, a stale one is refused.

use super::error::sql;
use super::read::stored_attempts;
use super::rows::{Held, Logs, steps_of};
use super::statements::Hot;
use super::tx::Tx;
use crate::store::{check_write, check_writes, kept, kept_log, lease_lost};
use rusqlite::params;
use windlass_core::Result;
use windlass_core::checkpoint::{StepOutcome, StepRecord};
use windlass_core::clock::Timestamp;
use windlass_core::id::TaskId;
use windlass_core::json::Json;
use windlass_core::lease::LeaseKey;
use windlass_core::standing::Standing;
use windlass_core::store::{Write, Written};

impl Tx<'_, '_> {
    pub(super) fn record(
        &mut self,
        writes: &[Write],
        now: Timestamp,
    ) -> Result<Vec<Result<Written>>> {
        check_writes(writes)?;
        let mut answers = Vec::with_capacity(writes.len());
        for write in writes {
            let mark = self.events();
            let answer = self.record_one(write, now);
            match answer {
                Err(error) if super::error::is_fatal(&error) => return Err(error),
                Err(_) => self.forget_events_after(mark),
                Ok(_) => {}
            }
            answers.push(answer);
        }
        Ok(answers)
    }

    fn record_one(&mut self, write: &Write, now: Timestamp) -> Result<Written> {
        check_write(write)?;
        let held = match self.held(write.lease.task)? {
            Some(held) => held,
            None => return self.record_after_the_end(write, now),
        };
        if let Some(written) = self.refuse_or_repeat(&held, write)? {
            return Ok(written);
        }
        self.apply(held, write, now)
    }

    fn apply(&mut self, held: Held, write: &Write, now: Timestamp) -> Result<Written> {
        let card = &held.card;
        let mut standing = held.standing.clone();
        let children = self.new_children(&write.children, now)?;
        // Dropping what is dropped already is a repeat and no news.
        if let Some((keep, why)) = &write.keep_steps
            && self.finished_steps(card.id)? > *keep
        {
            standing.discarded(card, *keep, why, now, &mut self.out);
        }
        for step in &write.steps {
            standing.step(card, step, now, &mut self.out);
        }
        if let Some(progress) = &write.progress {
            standing.progressed(card, progress, now, &mut self.out);
        }
        if let Some(settlement) = &write.settle {
            let guard = self.memory.guards.transition();
            standing.close(card, settlement, now, guard, &mut self.out)?;
            standing.settled = write.fingerprint();
        }
        // From here on nothing is refused any more.
        self.write_steps(write, &held.standing, now)?;
        for child in children {
            self.insert(child, now)?;
            standing.has_children = true;
        }
        let written = Written {
            state: standing.state,
            version: standing.version,
            requests: standing.requests,
            repeated: false,
        };
        if write.settle.is_some() {
            let failure = standing.failure.clone();
            self.put_down(card, held.lane, &held.standing, &mut standing, failure.as_ref(), now)?;
        } else {
            let in_step = held.in_step || write.begins || !write.steps.is_empty();
            self.keep_lease(Held { standing, in_step, ..held })?;
        }
        Ok(written)
    }

    /// No lease: either this very write ended it, or the writer is late.
    fn record_after_the_end(&mut self, write: &Write, now: Timestamp) -> Result<Written> {
        let (task, lane) = self.task(write.lease.task)?.ok_or_else(|| lease_lost(&write.lease))?;
        if self.was_settled(&task.standing, write)? {
            return Ok(repeated(&task.standing));
        }
        if self.memory.guards.token {
            return Err(lease_lost(&write.lease));
        }
        let (card, standing) = (task.card(), task.standing);
        let claim = windlass_core::lease::ClaimNo(0);
        self.apply(Held { card, lane, standing, claim, in_step: false, alone: false }, write, now)
    }

    /// `Ok(None)`: the write may go on. A write that is in the store already
    /// answers as repeated; anything else that does not fit is refused.
    fn refuse_or_repeat(&mut self, held: &Held, write: &Write) -> Result<Option<Written>> {
        let standing = &held.standing;
        let key = LeaseKey {
            task: held.card.id,
            node: standing.node.unwrap_or(write.lease.node),
            token: standing.token,
        };
        if self.memory.guards.token && write.lease != key {
            let settled = self.was_settled(standing, write)?;
            return if settled {
                Ok(Some(repeated(standing)))
            } else {
                Err(lease_lost(&write.lease))
            };
        }
        let Some(first) = write.steps.first() else { return Ok(None) };
        match first.version.check(standing.version) {
            Ok(()) => Ok(None),
            Err(_) if write.settle.is_none() && self.are_stored(write)? => {
                Ok(Some(repeated(standing)))
            }
            Err(_) if !self.memory.guards.version => Ok(None),
            Err(refused) => Err(refused),
        }
    }

    /// Whether the lease of `write` ended by this very write.
    fn was_settled(&self, standing: &Standing, write: &Write) -> Result<bool> {
        if write.settle.is_none() {
            return Ok(false);
        }
        let key = &write.lease;
        let attempts = stored_attempts(self.conn, key.task)?;
        let past = attempts.iter().find(|a| a.token == key.token && a.node == key.node);
        let settled = match past {
            Some(attempt) => attempt.settled,
            None if standing.token == key.token && standing.node == Some(key.node) => {
                standing.settled
            }
            None => 0,
        };
        Ok(settled == write.fingerprint())
    }

    fn are_stored(&self, write: &Write) -> Result<bool> {
        let stored = steps_of(self.conn, write.lease.task, Logs::Read)?;
        let same = |step: &StepRecord| {
            let step = kept(step);
            stored.iter().any(|e| e.record == step && e.node == write.lease.node)
        };
        Ok(write.steps.iter().all(same))
    }

    fn write_steps(&mut self, write: &Write, standing: &Standing, now: Timestamp) -> Result<()> {
        if let Some((keep, _)) = write.keep_steps {
            self.keep_steps(write.lease.task, keep)?;
        }
        for step in &write.steps {
            let undone = step.outcome == StepOutcome::Undone;
            if undone {
                let text = "UPDATE windlass_step SET live = 0 WHERE task = ?1 AND name = ?2";
                self.run("record", text, params![write.lease.task.key(), step.name])?;
            }
            self.hot.run(
                Hot::InsertStep,
                params![
                    write.lease.task.key(),
                    step.version.0.cast_signed(),
                    !undone,
                    step.outcome.code(),
                    standing.run,
                    standing.attempt,
                    write.lease.node.key(),
                    now.as_micros(),
                    i64::try_from(step.duration.as_micros()).unwrap_or(i64::MAX),
                    step.name,
                    step.class.map(|c| c.as_str()),
                    step.reason,
                    step.output.as_ref().map(Json::as_str),
                    kept_log(step),
                ],
            )?;
        }
        Ok(())
    }

    fn finished_steps(&self, task: TaskId) -> Result<usize> {
        let text =
            "SELECT count(*) FROM windlass_step WHERE task = ?1 AND live AND outcome IN (0, 1)";
        self.conn
            .prepare_cached(text)
            .and_then(|mut s| s.query_row([task.key()], |r| r.get(0)))
            .map_err(sql("record"))
    }

    /// Takes finished steps beyond the first `keep` out of the checkpoint.
    pub(super) fn keep_steps(&self, task: TaskId, keep: usize) -> Result<()> {
        let keep = i64::try_from(keep).unwrap_or(i64::MAX);
        self.run(
            "record",
            "UPDATE windlass_step SET live = 0 WHERE task = ?1 AND version IN (
               SELECT version FROM windlass_step WHERE task = ?1 AND live AND outcome IN (0, 1)
               ORDER BY version LIMIT -1 OFFSET ?2)",
            params![task.key(), keep],
        )?;
        Ok(())
    }

    /// Writes what a held task has come to, without ending its lease.
    pub(super) fn keep_lease(&mut self, mut held: Held) -> Result<()> {
        let (id, standing) = (held.card.id, &mut held.standing);
        self.hot.run(
            Hot::KeepLease,
            params![
                id.key(),
                standing.version.0.cast_signed(),
                standing.event_n,
                standing.crashes,
                held.in_step,
                standing.requests.bits(),
                standing.has_children,
            ],
        )?;
        // Progress lives in the task's row; absent here means unchanged.
        if let Some(progress) = standing.progress.take() {
            let text = "UPDATE windlass_task SET progress = ?2 WHERE id = ?1";
            self.run("record", text, params![id.key(), Json::of(&progress)?.as_str()])?;
        }
        self.memory.keep_lease(id, held);
        Ok(())
    }
}

fn repeated(standing: &Standing) -> Written {
    let (state, version, requests) = (standing.state, standing.version, standing.requests);
    Written { state, version, requests, repeated: true }
}
