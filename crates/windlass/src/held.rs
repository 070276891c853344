//! The tasks this node holds, from the answer of the claim until the store has
//! written their end. The heartbeat names exactly these, together with the
//! newest claim whose answer is in here; both are read under one lock, so a
//! claim still on its way is never mistaken for a lost one.

use crate::run::Run;
use parking_lot::Mutex;
use std::sync::Arc;
use windlass_core::hash::IdMap;
use windlass_core::id::TaskId;
use windlass_core::lease::{ClaimNo, Token};

#[derive(Debug, Default)]
pub(crate) struct Held {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    runs: IdMap<TaskId, Arc<Run>>,
    claims: u64,
    answered: ClaimNo,
    /// Answers of claims up to this one come too late: everything was dropped
    /// since they were sent, or the engine is stopping.
    void: ClaimNo,
}

impl Held {
    /// The number of the next claim. One claim is under way at a time.
    pub(crate) fn next_claim(&self) -> ClaimNo {
        let mut table = self.table.lock();
        table.claims += 1;
        ClaimNo(table.claims)
    }

    /// The claim was answered with these. `false`: none of them is held, and
    /// the next heartbeat gives them back.
    pub(crate) fn answered(&self, claim: ClaimNo, runs: &[Arc<Run>]) -> bool {
        let mut table = self.table.lock();
        table.answered = table.answered.max(claim);
        let valid = claim > table.void;
        if valid {
            table.runs.extend(runs.iter().map(|run| (run.task.id, run.clone())));
        }
        valid
    }

    /// The claim was given up: what it may have brought is not held.
    pub(crate) fn gave_up(&self, claim: ClaimNo) {
        self.answered(claim, &[]);
    }

    /// From now on nothing is added.
    pub(crate) fn close(&self) {
        self.table.lock().void = ClaimNo(u64::MAX);
    }

    /// For the heartbeat.
    pub(crate) fn snapshot(&self) -> (Vec<(TaskId, Token)>, ClaimNo) {
        let table = self.table.lock();
        let held = table.runs.values().map(|run| (run.task.id, run.lease.token)).collect();
        (held, table.answered)
    }

    pub(crate) fn get(&self, id: TaskId) -> Option<Arc<Run>> {
        self.table.lock().runs.get(&id).cloned()
    }

    /// Forgets a run, not a later one of the same task.
    pub(crate) fn remove(&self, run: &Run) {
        let mut table = self.table.lock();
        if table.runs.get(&run.task.id).is_some_and(|held| held.lease == run.lease) {
            table.runs.remove(&run.task.id);
        }
    }

    pub(crate) fn all(&self) -> Vec<Arc<Run>> {
        self.table.lock().runs.values().cloned().collect()
    }

    /// Forgets everything and takes nothing in: this node owns nothing any more.
    pub(crate) fn clear(&self) -> Vec<Arc<Run>> {
        let mut table = self.table.lock();
        table.void = table.void.max(ClaimNo(table.claims));
        table.runs.drain().map(|(_, run)| run).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.table.lock().runs.len()
    }
}
