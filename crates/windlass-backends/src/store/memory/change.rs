//! What operators change: tasks, queues, nodes, each with its audit row. The
//! rules are core's; here is only what they read and write.

use super::Inner;
use super::record::drop_finished_after;
use crate::store::{no_such, same_submission};
use windlass_core::clock::Timestamp;
use windlass_core::control::{Changed, TaskChange, apply};
use windlass_core::id::{NodeId, TaskId};
use windlass_core::store::{Actor, AuditRow, Change, NodeChange, QueueChange};
use windlass_core::task::{QueueName, Task};
use windlass_core::{Error, Result};

impl Inner {
    pub(super) fn change(
        &mut self,
        change: &Change,
        by: &Actor,
        now: Timestamp,
    ) -> Result<Vec<Result<Changed>>> {
        Ok(match change {
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
            Change::Batch(order) => vec![self.start_batch(order, by, now)],
            Change::Step(step) => self.step_batch(step, now)?,
            Change::StopBatch(id) => {
                let result = self.stop_batch(*id, by, now);
                self.note(by, "stop", &id.to_string(), &result, now);
                vec![result]
            }
        })
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

    pub(super) fn rerun(&mut self, of: TaskId, id: TaskId, now: Timestamp) -> Result<Changed> {
        let row = self.tasks.get(&of).ok_or_else(|| no_such("task", of))?;
        if !row.task.state().is_ended() {
            let message = format!("{of} is {}; only ended tasks can be rerun", row.task.state());
            return Err(Error::conflict("rerun", message));
        }
        let again = row.task.rerun(id);
        if let Some(known) = self.tasks.get(&id) {
            return same_submission(&known.task, &again).map(|()| Changed::Already);
        }
        if let Some(rules) = self.queues.get(&again.queue) {
            rules.check_open("rerun", &again.queue)?;
        }
        let mut out = vec![];
        self.insert(&again, now, &mut out);
        self.publish(out);
        Ok(Changed::Done)
    }

    fn change_queue(&mut self, name: &QueueName, change: QueueChange, now: Timestamp) -> Changed {
        let rules = self.queues.entry(name.clone()).or_default();
        let (changed, event) = crate::store::change_queue(rules, name, change, now);
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
        self.note_words(by, action, target, crate::store::outcome_word(result), at);
    }

    pub(super) fn note_words(
        &mut self,
        by: &Actor,
        action: &str,
        target: &str,
        outcome: &str,
        at: Timestamp,
    ) {
        self.audit_seq += 1;
        self.audit.push_back(AuditRow {
            seq: self.audit_seq,
            at,
            by: by.clone(),
            action: action.to_owned(),
            target: target.to_owned(),
            outcome: outcome.to_owned(),
        });
    }
}
