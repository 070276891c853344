//! Recording in the model: one write is checked as a whole, then done as a
//! whole. A repetition is known by the plainest means there is, a list of every
//! write that was accepted.

use super::row::allowed;
use super::submit::fault_of;
use super::{Model, Row, Step};
use windlass_core::checkpoint::StepOutcome;
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
        let row = self.tasks.get_mut(&id).ok_or(Code::LeaseLost)?;
        if row.has_written(write) {
            return Ok(row.written(true));
        }
        row.check(write)?;
        let before = row.state;
        row.write(write, now);
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
    /// Whether this write adds something that can be told from its repetition.
    fn has_written(&self, write: &Write) -> bool {
        let has_identity = !write.steps.is_empty() || write.settle.is_some();
        has_identity && self.writes.contains(write)
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
        if let Some(code) = write.children.iter().find_map(fault_of) {
            return Err(code);
        }
        match &write.settle {
            Some(settlement) if !allowed(self.state, self.chosen(settlement).to) => {
                Err(Code::StateConflict)
            }
            _ => Ok(()),
        }
    }

    /// Everything but children and the settlement.
    fn write(&mut self, write: &Write, now: Timestamp) {
        let _ = now;
        if let Some((keep, _)) = &write.keep_steps {
            self.keep_steps(*keep);
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

    /// Everything from the first finished step too many on is dropped.
    pub(super) fn keep_steps(&mut self, keep: usize) {
        let mut finished = 0;
        for step in self.steps.iter_mut().filter(|s| s.live) {
            if matches!(step.record.outcome, StepOutcome::Done | StepOutcome::Skipped) {
                finished += 1;
            }
            step.live = finished <= keep;
        }
    }
}
