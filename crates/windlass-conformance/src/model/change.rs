//! What people do, in the model: the changes of tasks written out state by
//! state, and the pauses of queues and nodes.

use super::record::is_finished;
use super::row::allowed;
use super::{Model, Row, Step, has_ended};
use std::sync::Arc;
use windlass_core::clock::Timestamp;
use windlass_core::control::{Changed, TaskChange};
use windlass_core::error::Code;
use windlass_core::event::EventName;
use windlass_core::id::{NodeId, TaskId};
use windlass_core::outcome::WaitingOn;
use windlass_core::state::State::{self, *};
use windlass_core::store::{Change, NodeChange, QueueChange, Stage};
use windlass_core::task::{ChildOf, NewTask, QueueName, Start};

type Answer = Result<Changed, Code>;

impl Model {
    pub(super) fn change(&mut self, change: &Change, now: Timestamp) -> Vec<Answer> {
        match change {
            Change::Tasks { ids, change } => {
                ids.iter().map(|id| self.change_task(*id, change, now)).collect()
            }
            Change::Rerun { of, id } => vec![self.rerun(*of, *id, now)],
            Change::Queue { name, change } => vec![self.change_queue(name, *change)],
            Change::Node { id, change } => vec![self.change_node(*id, *change)],
            // Histories have no bulk jobs: their promises are cases of their own.
            Change::Batch(_) | Change::Step(_) | Change::StopBatch(_) => vec![],
        }
    }

    pub(super) fn change_task(
        &mut self,
        id: TaskId,
        change: &TaskChange,
        now: Timestamp,
    ) -> Answer {
        let row = self.tasks.get_mut(&id).ok_or(Code::NotFound)?;
        let before = row.state;
        let answer = match change {
            TaskChange::Cancel => row.cancel(now),
            TaskChange::Pause => row.pause(),
            TaskChange::Resume => row.resume(now),
            TaskChange::Rollback if matches!(before, Failed | Cancelled) => {
                self.key_is_free(id, now)?;
                self.tasks.get_mut(&id).expect("found above").rollback(now)
            }
            TaskChange::Rollback => row.rollback(now),
            TaskChange::Requeue { .. } if !matches!(before, Failed | Cancelled) => {
                Err(Code::StateConflict)
            }
            TaskChange::Requeue { from_step, payload } => {
                self.key_is_free(id, now)?;
                let row = self.tasks.get_mut(&id).expect("found above");
                row.knows_step(from_step.as_deref())?;
                row.requeue(from_step.as_deref(), now);
                if let Some(payload) = payload {
                    row.new.payload = payload.clone();
                }
                Ok(Changed::Done)
            }
            TaskChange::Discard if before != Failed => Err(Code::StateConflict),
            TaskChange::Discard if !self.dead.remove(&id) => Ok(Changed::Already),
            TaskChange::Discard => {
                row.tell(EventName::DeadLetterDiscarded);
                Ok(Changed::Done)
            }
            TaskChange::EditPayload(payload) => {
                let open = [Scheduled, Queued, Retrying, Paused, Failed, Cancelled];
                if !open.contains(&before) {
                    return Err(Code::StateConflict);
                }
                row.new.payload = payload.clone();
                Ok(Changed::Done)
            }
        }?;
        self.follow_up(id, before);
        Ok(answer)
    }

    /// A task that lives again needs its unique key again.
    fn key_is_free(&self, id: TaskId, now: Timestamp) -> Result<(), Code> {
        let Some(key) = self.tasks[&id].unique_key() else { return Ok(()) };
        let held = self.unique.get(&key).filter(|h| h.until.is_none_or(|until| now < until));
        if held.is_some_and(|h| h.task != id) { Err(Code::StateConflict) } else { Ok(()) }
    }

    fn rerun(&mut self, of: TaskId, id: TaskId, now: Timestamp) -> Answer {
        let old = self.tasks.get(&of).ok_or(Code::NotFound)?;
        if !has_ended(old.state) {
            return Err(Code::StateConflict);
        }
        let mut extras = old.new.extras.as_deref().cloned().unwrap_or_default();
        extras.unique = None;
        extras.rerun_of = Some(of);
        let new = NewTask {
            id,
            start: Start::Now,
            deadline: None,
            child_of: None::<ChildOf>,
            idempotency: None,
            extras: Some(Arc::new(extras)),
            ..old.new.clone()
        };
        if let Some(row) = self.tasks.get(&id) {
            return if row.is_from(&new) { Ok(Changed::Already) } else { Err(Code::StateConflict) };
        }
        if self.draining.contains(&new.queue) {
            return Err(Code::StateConflict);
        }
        self.insert(Row::born(&new, now));
        Ok(Changed::Done)
    }

    fn change_queue(&mut self, name: &QueueName, change: QueueChange) -> Answer {
        let (changed, event) = match change {
            QueueChange::Pause => (self.paused.insert(name.clone()), EventName::QueuePaused),
            QueueChange::Resume => {
                let (paused, draining) = (self.paused.remove(name), self.draining.remove(name));
                (paused || draining, EventName::QueueResumed)
            }
            QueueChange::Drain => {
                let new = self.draining.insert(name.clone());
                return Ok(if new { Changed::Done } else { Changed::Already });
            }
            QueueChange::Concurrency(_) | QueueChange::DepthMax(_) => return Ok(Changed::Done),
        };
        Ok(self.told(changed, event))
    }

    fn change_node(&mut self, id: NodeId, change: NodeChange) -> Answer {
        let host = self.nodes.get_mut(&id).ok_or(Code::NotFound)?;
        let before = (host.paused, host.stage);
        let event = match change {
            NodeChange::Pause => {
                host.paused = true;
                EventName::NodePaused
            }
            NodeChange::Resume => {
                (host.paused, host.stage) = (false, Stage::Serving);
                EventName::NodeResumed
            }
            NodeChange::Drain => {
                host.stage = Stage::Draining;
                EventName::NodeDraining
            }
        };
        let changed = before != (host.paused, host.stage);
        Ok(self.told(changed, event))
    }

    fn told(&mut self, changed: bool, event: EventName) -> Changed {
        if !changed {
            return Changed::Already;
        }
        self.places.push(event);
        Changed::Done
    }
}

/// Whether a wish was new.
fn asked(flag: &mut bool) -> Answer {
    let before = std::mem::replace(flag, true);
    Ok(if before { Changed::Already } else { Changed::Requested })
}

impl Row {
    fn enter(&mut self, to: State, now: Timestamp) -> Answer {
        if !allowed(self.state, to) {
            return Err(Code::StateConflict);
        }
        self.state = to;
        self.finished_at = has_ended(to).then_some(now);
        self.announce();
        Ok(Changed::Done)
    }

    fn cancel(&mut self, now: Timestamp) -> Answer {
        match self.state {
            Cancelled => Ok(Changed::Already),
            Running => asked(&mut self.requests.cancel),
            _ => {
                self.enter(Cancelled, now)?;
                self.waiting_on = None;
                self.held_from = None;
                Ok(Changed::Done)
            }
        }
    }

    fn pause(&mut self) -> Answer {
        match self.state {
            Paused => Ok(Changed::Already),
            Running | RollingBack if self.leased => asked(&mut self.requests.pause),
            from if !allowed(from, Paused) => Err(Code::StateConflict),
            from => {
                self.held_from = Some(from);
                self.state = Paused;
                self.announce();
                if from != Waiting {
                    self.waiting_on = Some(WaitingOn::Person { why: "requested".to_owned() });
                }
                Ok(Changed::Done)
            }
        }
    }

    fn resume(&mut self, now: Timestamp) -> Answer {
        if self.leased && self.requests.pause {
            self.requests.pause = false;
            return Ok(Changed::Done);
        }
        if self.state != Paused {
            return Err(Code::StateConflict);
        }
        let ahead = self.due_at > now;
        self.state = match self.held_from {
            Some(Waiting) => Waiting,
            Some(RollingBack) => RollingBack,
            Some(Scheduled) if ahead => Scheduled,
            Some(Retrying) if ahead => Retrying,
            _ => Queued,
        };
        self.held_from = None;
        self.backing_off = self.state == RollingBack && ahead;
        if self.state != Waiting {
            self.waiting_on = ahead.then_some(WaitingOn::Time { until: self.due_at });
        }
        self.tell(EventName::Resumed);
        Ok(Changed::Done)
    }

    fn rollback(&mut self, now: Timestamp) -> Answer {
        match self.state {
            RollingBack => Ok(Changed::Already),
            Running => asked(&mut self.requests.rollback),
            _ => {
                self.enter(RollingBack, now)?;
                self.retries = 0;
                self.crashes = 0;
                self.due_at = now;
                self.backing_off = false;
                self.waiting_on = None;
                self.held_from = None;
                Ok(Changed::Done)
            }
        }
    }

    fn finished_before(&self, name: &str) -> Option<usize> {
        let finished = |s: &&Step| s.live && is_finished(&s.record);
        self.steps.iter().filter(finished).position(|s| s.record.name == name)
    }

    /// One may requeue from a finished step, a planned one, or the one it
    /// stopped at.
    fn knows_step(&self, name: Option<&str>) -> Result<(), Code> {
        let Some(name) = name else { return Ok(()) };
        let plan = self.new.extras.as_ref().and_then(|e| e.steps.as_ref());
        let planned = plan.is_some_and(|p| p.iter().any(|s| s == name));
        let failed = self.failure.as_ref().and_then(|f| f.error.step.as_ref());
        let stopped_there = failed.is_some_and(|s| s.name == name);
        let known = planned || stopped_there || self.finished_before(name).is_some();
        if known { Ok(()) } else { Err(Code::InvalidFields) }
    }

    fn requeue(&mut self, from_step: Option<&str>, now: Timestamp) {
        let was_failed = self.state == Failed;
        self.state = Queued;
        self.run += 1;
        self.retries = 0;
        self.crashes = 0;
        self.due_at = now;
        self.finished_at = None;
        self.waiting_on = None;
        self.totals = None;
        let keep = from_step.and_then(|name| self.finished_before(name));
        if let Some(keep) = keep {
            self.keep_steps(keep);
        }
        self.tell(EventName::Requeued);
        if was_failed {
            self.tell(EventName::DeadLetterRequeued);
        }
    }
}
