//! Recording in the model: one write is checked as a whole, then done as a
//! whole. A repetition is known by the plainest means there is, a list of every
//! write that was accepted.

use super::row::allowed;
use super::submit::fault_of;
use super::{Model, Row, Step};
use windlass_core::checkpoint::{StepOutcome, StepRecord};
use windlass_core::clock::Timestamp;
use windlass_core::error::Code;
use windlass_core::event::EventName;
use windlass_core::store::{Write, Written};

impl Model {
    pub(super) fn record(
        &mut self,
        writes: &[Write],
        now: Timestamp,
    ) -> Result<Vec<Result<Written, Code>>, Code> {
        Ok(writes.iter().map(|write| self.record_one(write, now)).collect())
    }

    fn record_one(&mut self, write: &Write, now: Timestamp) -> Result<Written, Code> {
        let id = write.lease.task;
        if let Some(code) = write.children.iter().find_map(fault_of) {
            return Err(code);
        }
        let row = self.tasks.get_mut(&id).ok_or(Code::LeaseLost)?;
        if row.has_written(write) {
            return Ok(row.written(true));
        }
        row.check(write)?;
        let before = row.state;
        row.write(write);
        for child in &write.children {
            self.write_child(child, now);
        }
        let row = self.tasks.get_mut(&id).expect("checked above");
        if let Some(settlement) = &write.settle {
            row.settle(settlement, now);
        }
        row.writes.push(write.clone());
        let answer = row.written(false);
        self.follow_up(id, before);
        Ok(answer)
    }
}

impl Row {
    /// A settling write is known for ever. One with steps is known while its
    /// lease lasts: later the writer shall hear that it has none. One with
    /// neither has nothing to be known by.
    fn has_written(&self, write: &Write) -> bool {
        let steps = !write.steps.is_empty() && self.lease() == Some(write.lease);
        // Whether it also began says nothing once it is written.
        let same = |known: &Write| Write { begins: write.begins, ..known.clone() } == *write;
        let mut own = self.writes.iter().filter(|known| known.lease == write.lease);
        (write.settle.is_some() || steps) && own.any(same)
    }

    fn written(&self, repeated: bool) -> Written {
        let (state, version, requests) = (self.state, self.version, self.requests);
        Written { state, version, requests, repeated }
    }

    fn check(&self, write: &Write) -> Result<(), Code> {
        if self.lease() != Some(write.lease) {
            return Err(Code::LeaseLost);
        }
        let mut newest = self.version;
        for step in &write.steps {
            if step.version <= newest {
                return Err(Code::VersionConflict);
            }
            newest = step.version;
        }
        match &write.settle {
            Some(settlement) if !allowed(self.state, self.chosen(settlement).to) => {
                Err(Code::StateConflict)
            }
            _ => Ok(()),
        }
    }

    /// Everything but children and the settlement.
    fn write(&mut self, write: &Write) {
        if let Some((keep, _)) = &write.keep_steps
            && self.keep_steps(*keep)
        {
            self.tell(EventName::CheckpointDiscarded);
        }
        for record in &write.steps {
            self.tell(match record.outcome {
                StepOutcome::Done | StepOutcome::Undone => EventName::StepCompleted,
                StepOutcome::Skipped => EventName::StepSkipped,
                StepOutcome::Failed => EventName::StepFailed,
            });
            let undone = record.outcome == StepOutcome::Undone;
            if undone {
                let same = |s: &&mut Step| s.record.name == record.name;
                self.steps.iter_mut().filter(same).for_each(|s| s.live = false);
            }
            self.version = record.version;
            self.crashes = 0;
            self.steps.push(Step { record: record.clone(), token: self.token, live: !undone });
        }
        if let Some(progress) = &write.progress {
            self.progress = Some(progress.clone());
            self.tell(EventName::Progress);
        }
        if write.begins || !write.steps.is_empty() {
            self.in_step = true;
        }
    }

    /// Finished steps too many are dropped, if there are any; failed tries stay.
    pub(super) fn keep_steps(&mut self, keep: usize) -> bool {
        let mut finished = 0;
        for step in self.steps.iter_mut().filter(|s| s.live && is_finished(&s.record)) {
            finished += 1;
            step.live = finished <= keep;
        }
        finished > keep
    }
}

pub(super) fn is_finished(record: &StepRecord) -> bool {
    matches!(record.outcome, StepOutcome::Done | StepOutcome::Skipped)
}
