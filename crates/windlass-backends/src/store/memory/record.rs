//! Recording what holders of leases say: steps, progress, children, the end of
//! an attempt. The token and the version are checked first; a write that is in
//! the store already answers as repeated, a stale one is refused.

use super::{Inner, Row};
use crate::store::{check_write, kept, lease_lost};
use windlass_core::Result;
use windlass_core::checkpoint::{StepEntry, StepOutcome};
use windlass_core::clock::Timestamp;
use windlass_core::lease::LeaseKey;
use windlass_core::standing::Standing;
use windlass_core::store::{Write, Written};

impl Inner {
    pub(super) fn record(&mut self, write: &Write, now: Timestamp) -> Result<Written> {
        check_write(write)?;
        let row = self.tasks.get(&write.lease.task).ok_or_else(|| lease_lost(&write.lease))?;
        if let Some(written) = self.refuse_or_repeat(row, write)? {
            return Ok(written);
        }
        let card = row.task.card();
        let mut standing = row.task.standing.clone();
        let children = self.new_children(&write.children, now)?;
        let mut out = vec![];
        let mut failure = None;
        // Dropping what is dropped already is a repeat and no news.
        if let Some((keep, why)) = &write.keep_steps
            && row.steps.iter().filter(|e| e.live && e.record.outcome.is_finished()).count() > *keep
        {
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
            standing.settled = write.fingerprint();
            failure.clone_from(&standing.failure);
            standing.failure = standing.failure.or(older);
        }
        let requests = standing.requests;
        self.write_steps(write, &before, now);
        for child in children {
            self.insert(child, now, &mut out);
            standing.has_children = true;
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
                record: kept(record),
                run: standing.run,
                attempt: standing.attempt,
                node: write.lease.node,
                at: now,
                live: !undone,
            });
        }
    }
}

/// Whether the lease ended by this very write.
fn was_settled(row: &Row, write: &Write) -> bool {
    let key = &write.lease;
    let past = row.attempts.iter().find(|a| a.token == key.token && a.node == key.node);
    let standing = &row.task.standing;
    let settled = match past {
        Some(attempt) => attempt.settled,
        None if standing.token == key.token && standing.node == Some(key.node) => standing.settled,
        None => 0,
    };
    write.settle.is_some() && settled == write.fingerprint()
}

fn steps_are_stored(row: &Row, write: &Write) -> bool {
    let node = write.lease.node;
    let stored = |step| row.steps.iter().any(|e| e.record == step && e.node == node);
    write.steps.iter().map(kept).all(stored)
}

/// Takes finished steps beyond the first `keep` out of the checkpoint.
pub(super) fn drop_finished_after(steps: &mut [StepEntry], keep: usize) {
    let live = |e: &&mut StepEntry| e.live && e.record.outcome.is_finished();
    steps.iter_mut().filter(live).skip(keep).for_each(|e| e.live = false);
}
