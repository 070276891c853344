//! From claims to leases: what a worker is told about each task, and what it does
//! not get. One that may be the death of its worker is given alone, or goes back
//! until it can be; a rollback that nobody can do fails. Claiming comes before it.

use super::known::{Alone, Given};
use super::{Lease, Workers};
use crate::meters::{Checkpointing, Went};
use crate::parts::Parts;
use crate::settings::KindRules;
use std::time::Duration;
use windlass_core::error::Result;
use windlass_core::id::NodeId;
use windlass_core::lease::LeaseKey;
use windlass_core::outcome::Outcome;
use windlass_core::state::State;
use windlass_core::store::{Claimed, Write};
use windlass_core::task::Task;

impl Workers {
    /// From claims to leases. What nobody can undo fails here; one that may be the
    /// death of its worker is given alone, or goes back until it can be.
    pub(super) async fn give(&self, id: NodeId, claimed: Vec<Claimed>) -> Vec<Lease> {
        let parts = &self.parts;
        let (mut leases, mut back) = (vec![], vec![]);
        let count = claimed.len();
        let busy = parts.remote.known.worker(id, |w| {
            w.holds += count;
            w.holds > count
        });
        let company = busy != Some(false) || claimed.iter().any(|c| !c.alone);
        for one in claimed {
            let key = key_of(&one.task, id);
            if one.task.state() == State::RollingBack {
                let reason = format!("kind `{}` has no compensations", one.task.kind);
                back.push((one.task, Outcome::Fail { reason, step: None }));
            } else if one.alone {
                let may = self.may_run_alone(id, &one.task, company || !leases.is_empty());
                match may {
                    Ok(()) if self.begins_alone(key).await => leases.push(self.lease_of(one)),
                    // Not given: the worker does not name it, and it goes back.
                    Ok(()) => {}
                    Err(outcome) => back.push((one.task, outcome)),
                }
            } else {
                leases.push(self.lease_of(one));
            }
        }
        if !back.is_empty()
            && let Err(error) = self.put_back(id, back).await
        {
            // They go back with a later heartbeat; what is in hand is given.
            tracing::warn!(%error, node = %id, "tasks that were not given are still held");
        }
        if !leases.is_empty() {
            parts.feed.changed();
        }
        leases
    }

    /// Whether the store knows now that this one may be the death of its worker.
    async fn begins_alone(&self, key: LeaseKey) -> bool {
        let parts = &self.parts;
        let begins = Write { begins: true, ..Write::new(key) };
        let answers = parts.store.record(vec![begins], parts.now()).await;
        if let Err(error) =
            answers.and_then(|answers| answers.into_iter().collect::<Result<Vec<_>>>())
        {
            tracing::warn!(%error, task = %key.task, "a suspect is not given");
            return false;
        }
        let alone = Alone { task: key.task, since: parts.clock.uptime() };
        parts.remote.known.worker(key.node, |w| w.alone = Some(alone));
        true
    }

    /// A young worker that dies did not die of this one, so it is not tried there;
    /// a busy one is emptied first.
    fn may_run_alone(&self, id: NodeId, task: &Task, company: bool) -> Result<(), Outcome> {
        let parts = &self.parts;
        let now = parts.clock.now();
        let asked = parts.remote.known.worker(id, |w| {
            let lived = now.since(w.joined_at);
            let young = parts.settings.suspects_wait.saturating_sub(lived);
            if !young.is_zero() {
                return Err(Outcome::Snooze { until: now.plus(young) });
            }
            if company {
                w.suspect = Some(task.id);
                return Err(Outcome::Release);
            }
            Ok(())
        });
        asked.unwrap_or(Err(Outcome::Release))
    }

    /// Ends leases that were never given.
    async fn put_back(&self, id: NodeId, back: Vec<(Task, Outcome)>) -> Result<()> {
        let mut ends = vec![];
        for (task, outcome) in back {
            let given = self.given_of(&task);
            ends.push(self.ending(key_of(&task, id), given, outcome));
        }
        self.record_ends(id, ends).await.map(drop)
    }

    pub(super) fn given_of(&self, task: &Task) -> Given {
        let rules = self.parts.registry.rules_or_usual(&task.kind);
        let pair = self.parts.meters.pair(&task.kind, &task.queue);
        Given::of(task, times(task, rules).1, pair)
    }

    fn lease_of(&self, claimed: Claimed) -> Lease {
        let parts = &self.parts;
        let Claimed { task, checkpoint, alone } = claimed;
        parts.remote.known.give(task.id, self.given_of(&task));
        if checkpoint.is_some() {
            parts.meters.checkpoint(Checkpointing::Resume, Went::Ok, 1);
        }
        let rules = parts.registry.rules_or_usual(&task.kind);
        let (step_timeout, task_timeout) = times(&task, rules);
        let token = task.standing.token;
        Lease { task, token, checkpoint, step_timeout, task_timeout, alone }
    }
}

fn key_of(task: &Task, node: NodeId) -> LeaseKey {
    LeaseKey { task: task.id, node, token: task.standing.token }
}

/// Longest step and longest attempt: the task's own word, else its kind's.
fn times(task: &Task, rules: &KindRules) -> (Duration, Duration) {
    let own = task.extras.as_ref().and_then(|e| e.timeouts).unwrap_or_default();
    (own.step.unwrap_or(rules.step_timeout), own.task.unwrap_or(rules.task_timeout))
}

pub(super) fn count_wait(parts: &Parts, task: &Task) {
    let standing = &task.standing;
    if let Some(started) = standing.started_at {
        parts.meters.pair(&task.kind, &task.queue).waited(started.since(standing.due_at));
    }
}
