//! Bulk jobs: begun, moved on together with the tasks of a step, stopped. What a
//! job does and when it ends is core's; here its tasks change and its row is
//! kept.

use super::Inner;
use crate::store::{batch_words, check_running, check_taken, no_such};
use windlass_core::Result;
use windlass_core::batch::{Batch, BatchStep, Order, Target};
use windlass_core::clock::Timestamp;
use windlass_core::control::Changed;
use windlass_core::id::BatchId;
use windlass_core::store::{Actor, Batches};

impl Inner {
    pub(super) fn start_batch(
        &mut self,
        order: &Order,
        by: &Actor,
        now: Timestamp,
    ) -> Result<Changed> {
        if self.batches.contains_key(&order.id) {
            return Ok(Changed::Already);
        }
        let batch = Batch::new(order.clone(), by, now);
        let running = self.batches.values().filter(|b| b.is_running()).count();
        let result = check_running(running).map(|()| Changed::Done);
        self.note(by, order.action.as_str(), &batch_words(&batch), &result, now);
        if result.is_ok() {
            self.batches.insert(order.id, batch);
        }
        result
    }

    pub(super) fn step_batch(
        &mut self,
        step: &BatchStep,
        now: Timestamp,
    ) -> Result<Vec<Result<Changed>>> {
        let batch = self.batches.get(&step.batch).ok_or_else(|| no_such("batch", step.batch))?;
        batch.check(step)?;
        let mut batch = batch.clone();
        let answers: Vec<Result<Changed>> =
            step.targets.iter().map(|target| self.touch(&batch, *target, now)).collect();
        batch.took(step, &answers, now);
        if !batch.is_running() {
            let (verb, id) = (batch.order.action.as_str(), batch.id().to_string());
            self.note_words(&batch.by(), verb, &id, &batch.summary(), now);
        }
        self.batches.insert(step.batch, batch);
        Ok(answers)
    }

    fn touch(&mut self, batch: &Batch, target: Target, now: Timestamp) -> Result<Changed> {
        let row = self.tasks.get(&target.task).ok_or_else(|| no_such("task", target.task))?;
        check_taken(batch, &row.task, row.dead_letter)?;
        match (batch.order.change(), target.again) {
            (Some(change), _) => self.change_task(target.task, &change, now),
            (None, again) => self.rerun(target.task, again.unwrap_or(target.task), now),
        }
    }

    pub(super) fn stop_batch(
        &mut self,
        id: BatchId,
        by: &Actor,
        now: Timestamp,
    ) -> Result<Changed> {
        self.batches.get_mut(&id).ok_or_else(|| no_such("batch", id))?.stop(by, now)
    }

    pub(super) fn batches(
        &self,
        which: Batches,
        before: Option<BatchId>,
        limit: usize,
    ) -> Vec<Batch> {
        let end = before.unwrap_or(BatchId::from_key(i64::MAX));
        let wanted = |batch: &&Batch| which == Batches::All || batch.is_running();
        self.batches
            .range(..end)
            .rev()
            .map(|(_, b)| b)
            .filter(wanted)
            .take(limit)
            .cloned()
            .collect()
    }
}
