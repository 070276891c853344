//! What people do in a history: every change of a task in whatever state it is,
//! reruns, pauses of queues and nodes; and the outbox, whose letters are taken,
//! confirmed and put off.

use super::History;
use crate::model::{Answer, Op};
use rand::RngExt;
use std::time::Duration;
use windlass_core::control::{Changed, TaskChange};
use windlass_core::error::Code;
use windlass_core::id::{NodeId, TaskId};
use windlass_core::json::Json;
use windlass_core::state::State;
use windlass_core::store::{Change, NodeChange, OutboxOp, QueueChange};

impl History {
    pub(super) async fn change_tasks(&mut self) -> Result<(), String> {
        let len = if self.chance(75) { 1 } else { self.rng.random_range(2..5) };
        let dice = self.dice(100);
        let states: &[State] = match dice {
            0..20 => &[State::Running, State::Waiting, State::Retrying],
            20..38 => &[State::Running, State::RollingBack, State::Queued, State::Waiting],
            38..58 => &[State::Paused],
            58..76 => &[State::Failed, State::Cancelled],
            76..86 => &[State::Failed, State::Retrying, State::Running],
            _ => &[State::Failed],
        };
        let mut ids: Vec<TaskId> = (0..len).filter_map(|_| self.task_in(states)).collect();
        if self.chance(4) {
            ids.push(TaskId::from_key(11));
        }
        let change = match dice {
            0..20 => TaskChange::Cancel,
            20..38 => TaskChange::Pause,
            38..58 => TaskChange::Resume,
            58..76 => self.requeue(&ids),
            76..86 => TaskChange::Rollback,
            86..93 => TaskChange::Discard,
            _ => TaskChange::EditPayload(self.new_payload()),
        };
        self.perform(Op::Change(Change::Tasks { ids, change })).await
    }

    /// Half of the time one where the change may mean something.
    fn task_in(&mut self, states: &[State]) -> Option<TaskId> {
        if self.chance(50) {
            return self.any_task();
        }
        let fits = self.model.tasks.values().filter(|r| states.contains(&r.state));
        let ids: Vec<TaskId> = fits.map(|r| r.id()).collect();
        if ids.is_empty() { self.any_task() } else { Some(ids[self.pick(ids.len())]) }
    }

    fn new_payload(&mut self) -> Json {
        Json::trusted(format!(r#"{{"edited":{}}}"#, self.dice(1000)))
    }

    fn requeue(&mut self, ids: &[TaskId]) -> TaskChange {
        let row = ids.first().and_then(|id| self.model.tasks.get(id));
        let known = row.and_then(|r| r.steps.iter().find(|s| s.live));
        let name = known.map(|s| s.record.name.clone());
        let from_step = name.filter(|_| ids.len() == 1 && self.chance(50));
        let payload = self.chance(20).then(|| self.new_payload());
        TaskChange::Requeue { from_step, payload }
    }

    pub(super) async fn rerun(&mut self) -> Result<(), String> {
        let Some(of) = self.any_task() else { return Ok(()) };
        let id = self.mint();
        self.perform(Op::Change(Change::Rerun { of, id })).await
    }

    pub(super) async fn change_queue(&mut self) -> Result<(), String> {
        let queues = super::submits::queues();
        let name = queues[self.pick(queues.len())].clone();
        let closed = self.model.paused.contains(&name) || self.model.draining.contains(&name);
        let close = if closed { 15 } else { 60 };
        let change = match self.chance(close) {
            true if self.chance(25) => QueueChange::Drain,
            true => QueueChange::Pause,
            false => QueueChange::Resume,
        };
        self.perform(Op::Change(Change::Queue { name, change })).await
    }

    pub(super) async fn change_node(&mut self) -> Result<(), String> {
        let id = if self.chance(10) { NodeId::from_key(13) } else { self.any_node() };
        let change = [NodeChange::Pause, NodeChange::Resume, NodeChange::Drain][self.pick(3)];
        self.perform(Op::Change(Change::Node { id, change })).await
    }

    pub(super) async fn outbox(&mut self) -> Result<(), String> {
        let node = self.any_node();
        let held = self.model.letters_of(node);
        let op = match self.dice(10) {
            0..4 if !held.is_empty() => OutboxOp::Done { node, seqs: held },
            4..5 if !held.is_empty() => {
                let at = self.now.plus(Duration::from_secs(5));
                OutboxOp::Later { node, seq: held[0], at }
            }
            _ => OutboxOp::Take {
                node,
                hold: Duration::from_secs(10),
                max: self.rng.random_range(1..8),
            },
        };
        self.perform(Op::Outbox(op)).await
    }

    pub(super) fn check_outbox(&mut self, op: &Op, got: &Answer) -> Result<(), String> {
        let Answer::Outbox(Ok(rows)) = got else {
            return Err(self.model.complain(&format!("the store answers {got:?}")));
        };
        match op {
            Op::Outbox(OutboxOp::Take { node, max, .. }) => {
                self.report.add("outbox.taken", rows.len() as u64);
                let found = self.model.check_letters(*node, *max, rows, self.now);
                found.map_err(|what| self.model.complain(&what))
            }
            Op::Outbox(OutboxOp::Done { seqs, .. }) => {
                self.report.add("outbox.done", seqs.len() as u64);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    pub(super) fn learn_change(&mut self, change: &Change, answer: &[Result<Changed, Code>]) {
        let verb = match change {
            Change::Tasks { change, .. } => change.verb(),
            Change::Rerun { .. } => "rerun",
            Change::Queue { change, .. } => change.verb(),
            Change::Node { change, .. } => change.verb(),
            Change::Batch(_) | Change::Step(_) | Change::StopBatch(_) => "batch",
        };
        for item in answer {
            let word = match item {
                Ok(changed) => format!("{changed:?}").to_lowercase(),
                Err(code) => code.as_str().to_owned(),
            };
            self.note(&format!("change.{verb}.{word}"));
        }
    }
}
