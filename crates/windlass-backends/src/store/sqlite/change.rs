//! What operators change: tasks, queues, nodes, each with its audit row in the
//! same transaction. The rules are core's; here is only what they read and
//! write.

use super::rows::{Logs, steps_of};
use super::submit::live_unique;
use super::tx::Tx;
use crate::store::{
    change_node, change_queue, check_change, check_payload, no_such, outcome_word, same_submission,
    steps_before, storable,
};
use rusqlite::params;
use windlass_core::clock::Timestamp;
use windlass_core::control::{Changed, TaskChange, apply};
use windlass_core::id::{NodeId, TaskId};
use windlass_core::json::Json;
use windlass_core::store::{Actor, Change, NodeChange, QueueChange};
use windlass_core::task::{QueueName, Task};
use windlass_core::{Error, Result};

impl Tx<'_, '_> {
    pub(super) fn change(
        &mut self,
        change: &Change,
        by: &Actor,
        now: Timestamp,
    ) -> Result<Vec<Result<Changed>>> {
        check_change(change)?;
        let mut answers = vec![];
        match change {
            Change::Tasks { ids, change } => {
                for &id in ids {
                    let answer = self.try_to(|tx| tx.change_task(id, change, now))?;
                    self.note(by, change.verb(), &id.to_string(), &answer, now)?;
                    answers.push(answer);
                }
            }
            Change::Rerun { of, id } => {
                let answer = self.try_to(|tx| tx.rerun(*of, *id, now))?;
                self.note(by, "rerun", &of.to_string(), &answer, now)?;
                answers.push(answer);
            }
            Change::Queue { name, change } => {
                let answer = self.try_to(|tx| tx.change_queue(name, *change, now))?;
                self.note(by, change.verb(), &format!("queue {name}"), &answer, now)?;
                answers.push(answer);
            }
            Change::Node { id, change } => {
                let answer = self.try_to(|tx| tx.change_node(*id, *change, now))?;
                self.note(by, change.verb(), &id.to_string(), &answer, now)?;
                answers.push(answer);
            }
            Change::Batch(order) => answers.push(self.start_batch(order, by, now)?),
            Change::Step(step) => answers = self.step_batch(step, now)?,
            Change::StopBatch(id) => {
                let answer = self.try_to(|tx| tx.stop_batch(*id, by, now))?;
                self.note(by, "stop", &id.to_string(), &answer, now)?;
                answers.push(answer);
            }
        }
        Ok(answers)
    }

    /// A refusal is an answer; only an error of SQLite ends the transaction.
    pub(super) fn try_to(
        &mut self,
        f: impl FnOnce(&mut Self) -> Result<Changed>,
    ) -> Result<Result<Changed>> {
        let mark = self.events();
        match f(self) {
            Err(error) if super::error::is_fatal(&error) => Err(error),
            Err(refused) => {
                self.forget_events_after(mark);
                Ok(Err(refused))
            }
            done => Ok(done),
        }
    }

    pub(super) fn change_task(
        &mut self,
        id: TaskId,
        change: &TaskChange,
        now: Timestamp,
    ) -> Result<Changed> {
        let (task, lane) = self.task(id)?.ok_or_else(|| no_such("task", id))?;
        let card = task.card();
        let before = &task.standing;
        let mut after = before.clone();
        let dead = self.has_dead_letter(id)?;
        let changed = apply(change, &card, &mut after, dead, now, &mut self.out)?;
        let revives = before.state.is_ended() && !after.state.is_ended();
        if revives {
            self.check_unique_free(&task, now)?;
        }
        match change {
            TaskChange::Requeue { from_step, payload } => {
                check_payload(payload.as_ref())?;
                let steps = steps_of(self.conn, id, Logs::Left)?;
                if let Some(keep) = steps_before(&steps, &task, from_step.as_deref())? {
                    self.keep_steps(id, keep)?;
                }
                self.set_payload(id, payload.as_ref())?;
            }
            TaskChange::EditPayload(payload) => {
                check_payload(Some(payload))?;
                self.set_payload(id, Some(payload))?;
            }
            TaskChange::Discard => {
                self.run(
                    "change",
                    "DELETE FROM windlass_dead_letter WHERE task = ?1",
                    params![id.key()],
                )?;
            }
            _ => {}
        }
        if revives && let Some(unique) = live_unique(&task) {
            self.take_unique(unique, id, now)?;
        }
        if after.leased {
            let text = "UPDATE windlass_lease SET requests = ?2 WHERE task = ?1";
            self.run("change", text, params![id.key(), after.requests.bits()])?;
            if let Some(held) = self.memory.leases.get_mut(&id) {
                held.standing.requests = after.requests;
            }
        } else {
            self.put_down(&card, lane, before, &mut after, None, now)?;
        }
        Ok(changed)
    }

    pub(super) fn has_dead_letter(&self, id: TaskId) -> Result<bool> {
        self.conn
            .prepare_cached("SELECT 1 FROM windlass_dead_letter WHERE task = ?1")
            .and_then(|mut s| s.exists([id.key()]))
            .map_err(super::error::sql("change"))
    }

    fn set_payload(&self, id: TaskId, payload: Option<&Json>) -> Result<()> {
        if let Some(payload) = payload {
            let text = "UPDATE windlass_task SET payload = ?2 WHERE id = ?1";
            self.run("change", text, params![id.key(), payload.as_str()])?;
        }
        Ok(())
    }

    /// A task that comes back to life needs its key again.
    fn check_unique_free(&self, task: &Task, now: Timestamp) -> Result<()> {
        let Some(unique) = live_unique(task) else { return Ok(()) };
        match self.unique_holder(&unique.key, now)? {
            Some(holder) if holder != task.id => {
                Err(Error::conflict("change", format!("its unique key is held by {holder}")))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn rerun(&mut self, of: TaskId, id: TaskId, now: Timestamp) -> Result<Changed> {
        let (task, _) = self.task(of)?.ok_or_else(|| no_such("task", of))?;
        if !task.state().is_ended() {
            let message = format!("{of} is {}; only ended tasks can be rerun", task.state());
            return Err(Error::conflict("rerun", message));
        }
        let again = task.rerun(id);
        if let Some((known, _)) = self.task(id)? {
            return same_submission(&known, &again).map(|()| Changed::Already);
        }
        self.queue_rules(&again.queue)?.check_open("rerun", &again.queue)?;
        self.insert(&again, now)?;
        Ok(Changed::Done)
    }

    fn change_queue(
        &mut self,
        name: &QueueName,
        change: QueueChange,
        now: Timestamp,
    ) -> Result<Changed> {
        let mut rules = self.queue_rules(name)?;
        let (changed, event) = change_queue(&mut rules, name, change, now);
        self.run(
            "change",
            "INSERT OR REPLACE INTO windlass_queue (name, paused, draining, concurrency, depth_max)
             VALUES (?1, ?2, ?3, ?4, ?5)",
            params![
                name.as_str(),
                rules.paused,
                rules.draining,
                rules.concurrency,
                rules.depth_max.map(storable),
            ],
        )?;
        self.out.extend(event);
        Ok(changed)
    }

    fn change_node(&mut self, id: NodeId, change: NodeChange, now: Timestamp) -> Result<Changed> {
        let mut node = self.node(id)?.ok_or_else(|| no_such("node", id))?;
        let (changed, event) = change_node(&mut node, change, now);
        self.update_node(&node)?;
        self.out.extend(event);
        Ok(changed)
    }

    pub(super) fn note(
        &self,
        by: &Actor,
        action: &str,
        target: &str,
        result: &Result<Changed>,
        at: Timestamp,
    ) -> Result<()> {
        self.note_words(by, action, target, outcome_word(result), at)
    }

    pub(super) fn note_words(
        &self,
        by: &Actor,
        action: &str,
        target: &str,
        outcome: &str,
        at: Timestamp,
    ) -> Result<()> {
        self.run(
            "audit",
            "INSERT INTO windlass_audit (at, who, origin, action, target, outcome)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            params![at.as_micros(), by.who, by.origin, action, target, outcome],
        )?;
        Ok(())
    }
}
