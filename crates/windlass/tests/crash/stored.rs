//! What the store says after the process is gone, in plain data: tasks, their
//! attempts, the steps recorded in each. Read through the public contract of a
//! store, by a process that runs no engine, so that looking changes nothing.

use std::collections::BTreeMap;
use windlass_backends::open::open_store;
use windlass_core::clock::Timestamp;
use windlass_core::event::{EventName, Position};
use windlass_core::id::TaskId;
use windlass_core::outcome::Reason;
use windlass_core::state::State;
use windlass_core::store::{Attempt, AttemptEnd, PAGE_MAX, Query, Reader};
use windlass_core::task::Task;

#[derive(Debug, Default)]
pub(crate) struct Stored {
    pub(crate) tasks: BTreeMap<TaskId, StoredTask>,
    /// Most crashes that any `task.lease_lost` counted for its task.
    pub(crate) most_crashes: u64,
    /// `task.lease_lost` events.
    pub(crate) leases_lost: usize,
    /// Nodes that did not leave.
    pub(crate) nodes: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct StoredTask {
    pub(crate) kind: String,
    /// Of a chain.
    pub(crate) number: Option<u64>,
    pub(crate) state: State,
    pub(crate) retries: u32,
    pub(crate) crashes: u32,
    pub(crate) reason: Option<Reason>,
    /// The output of a chain.
    pub(crate) value: Option<u64>,
    pub(crate) attempts: Vec<Try>,
}

/// One attempt.
#[derive(Debug, Clone)]
pub(crate) struct Try {
    pub(crate) attempt: u32,
    pub(crate) end: Option<AttemptEnd>,
    /// Finished steps recorded in it, in order.
    pub(crate) done: Vec<String>,
}

impl Stored {
    /// Opens, reads and closes the store of a process that is gone.
    pub(crate) fn read(url: &str) -> Stored {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let store = open_store(url).await.expect("a store nobody owns");
            Stored::of(&*store).await
        })
    }

    async fn of(reader: &dyn Reader) -> Stored {
        let mut stored = Stored::default();
        let mut before = None;
        loop {
            let query = Query { before, limit: PAGE_MAX, ..Query::default() };
            let page = reader.tasks(query, Timestamp::ZERO).await.expect("a page of tasks");
            for task in page.items {
                let attempts = reader.attempts(task.id).await.expect("attempts");
                stored.tasks.insert(task.id, StoredTask::of(&task, &attempts));
            }
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        stored.nodes = reader.nodes().await.expect("nodes").len();
        let mut after = Position::START;
        loop {
            let page = reader.events(after, PAGE_MAX).await.expect("a page of events");
            let Some(last) = page.last() else { break };
            after = last.position;
            for event in page.iter().filter(|event| event.name == EventName::LeaseLost) {
                stored.leases_lost += 1;
                let data: serde_json::Value = event.data.to_json().to().expect("JSON");
                let crashes = data["crashes"].as_u64().expect("a number of crashes");
                stored.most_crashes = stored.most_crashes.max(crashes);
            }
        }
        stored
    }

    pub(crate) fn of_kind(&self, kind: &str) -> impl Iterator<Item = (&TaskId, &StoredTask)> {
        self.tasks.iter().filter(move |(_, task)| task.kind == kind)
    }

    pub(crate) fn attempts(&self) -> impl Iterator<Item = &Try> {
        self.tasks.values().flat_map(|task| &task.attempts)
    }
}

impl StoredTask {
    fn of(task: &Task, attempts: &[Attempt]) -> StoredTask {
        let payload: serde_json::Value = task.payload.to().expect("JSON");
        let standing = &task.standing;
        StoredTask {
            kind: task.kind.as_str().to_owned(),
            number: payload["number"].as_u64(),
            state: standing.state,
            retries: standing.retries,
            crashes: standing.crashes,
            reason: standing.failure.as_ref().and_then(|failure| failure.reason),
            value: standing.result.as_ref().and_then(|result| result.to().ok()),
            attempts: attempts.iter().map(Try::of).collect(),
        }
    }

    /// The attempt in which a step was recorded.
    pub(crate) fn recorded_in(&self, step: &str) -> Option<u32> {
        let mut attempts = self.attempts.iter();
        attempts.find(|a| a.done.iter().any(|done| done == step)).map(|a| a.attempt)
    }
}

impl Try {
    fn of(attempt: &Attempt) -> Try {
        let finished = attempt.steps.iter().filter(|e| e.record.outcome.is_finished());
        Try {
            attempt: attempt.attempt,
            end: attempt.ended.map(|(end, _)| end),
            done: finished.map(|entry| entry.record.name.clone()).collect(),
        }
    }
}
