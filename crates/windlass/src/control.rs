//! What a program may do to tasks, queues and its own node, and what it may
//! look at. Changes go to the store, which knows what is allowed; what concerns
//! this node takes effect at once, other nodes hear of it by their heartbeat.

use crate::engine::Engine;
use crate::events::Subscription;
use crate::handle::{Answer, Handle};
use crate::parts::Phase;
use crate::renew::{beat_once, stage};
use crate::wake::Wake;
use std::sync::atomic::Ordering;
use windlass_core::clock::Timestamp;
use windlass_core::control::{Changed, TaskChange};
use windlass_core::error::{Error, Result};
use windlass_core::event::Position;
use windlass_core::id::{NodeId, TaskId};
use windlass_core::json::Json;
use windlass_core::lease::Requests;
use windlass_core::store::{
    Actor, Change, DeadLetter, NodeChange, Page, Query, QueueChange, Reader,
};
use windlass_core::task::{QueueName, Task};

/// How this node is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    pub node: NodeId,
    pub paused: bool,
    pub draining: bool,
    /// Attempts under way.
    pub active: usize,
    /// Tasks held: active, waiting to be begun or to be written.
    pub held: usize,
    /// Attempts that ended here since the start.
    pub consumed: u64,
    /// Tasks that failed for good here.
    pub failed: u64,
    /// Writes the store refused because they came too late.
    pub stale_writes_refused: u64,
    /// Tasks lost to a lease that ended.
    pub leases_lost: u64,
    /// How often this process had to join again.
    pub rejoined: u64,
    /// Slots taken by code that would not stop.
    pub overrun: usize,
    /// Queue, slots, slots in use.
    pub queues: Vec<(QueueName, usize, usize)>,
}

impl Engine {
    pub fn status(&self) -> Status {
        let parts = &self.parts;
        let counters = &parts.counters;
        let queues = parts.slots.queues().map(|(name, max, used)| (name.clone(), max, used));
        Status {
            node: parts.node(),
            paused: parts.paused.load(Ordering::Acquire),
            draining: parts.phase() != Phase::Serving || parts.drained.load(Ordering::Acquire),
            active: parts.slots.used(),
            held: parts.held.len(),
            consumed: counters.consumed.load(Ordering::Relaxed),
            failed: counters.failed.load(Ordering::Relaxed),
            stale_writes_refused: counters.stale_writes.load(Ordering::Relaxed),
            leases_lost: counters.leases_lost.load(Ordering::Relaxed),
            rejoined: counters.rejoined.load(Ordering::Relaxed),
            overrun: parts.slots.overrun(),
            queues: queues.collect(),
        }
    }

    /// Everything that only looks.
    pub fn reader(&self) -> &dyn Reader {
        &*self.parts.store
    }

    /// The engine's time.
    pub fn now(&self) -> Timestamp {
        self.parts.clock.now()
    }

    /// A handle on a task that was submitted earlier, or by somebody else.
    pub fn handle<T>(&self, id: TaskId) -> Handle<T> {
        Handle::new(&self.parts, id, Answer::Existing)
    }

    pub async fn task(&self, id: TaskId) -> Result<Option<Task>> {
        self.parts.store.task(id).await
    }

    /// Events after a position, in order; [`Position::START`] for all.
    pub fn events(&self, after: Position) -> Subscription {
        Subscription::new(&self.parts, after)
    }

    /// Failed tasks that wait for a person, newest first.
    pub async fn dead_letters(&self, query: Query) -> Result<Page<DeadLetter>> {
        self.parts.store.dead_letters(query, self.now()).await
    }

    /// Asks a running task to stop, or ends one that does not run. A running
    /// one may stop by itself for the grace period, then it is aborted.
    pub async fn cancel(&self, id: TaskId) -> Result<Changed> {
        self.change(id, TaskChange::Cancel).await
    }

    /// Holds a task: a running one at its next step boundary.
    pub async fn pause(&self, id: TaskId) -> Result<Changed> {
        self.change(id, TaskChange::Pause).await
    }

    pub async fn resume(&self, id: TaskId) -> Result<Changed> {
        self.change(id, TaskChange::Resume).await
    }

    /// Runs a failed or cancelled task again; finished steps stay finished.
    pub async fn requeue(&self, id: TaskId) -> Result<Changed> {
        self.change(id, TaskChange::Requeue { from_step: None, payload: None }).await
    }

    /// Runs it again from this step on.
    pub async fn requeue_from(&self, id: TaskId, step: &str) -> Result<Changed> {
        let from_step = Some(step.to_owned());
        self.change(id, TaskChange::Requeue { from_step, payload: None }).await
    }

    /// Runs it again with another payload.
    pub async fn requeue_with(&self, id: TaskId, payload: Json) -> Result<Changed> {
        self.change(id, TaskChange::Requeue { from_step: None, payload: Some(payload) }).await
    }

    /// Takes a failed task off the dead-letter list.
    pub async fn discard(&self, id: TaskId) -> Result<Changed> {
        self.change(id, TaskChange::Discard).await
    }

    async fn change(&self, id: TaskId, change: TaskChange) -> Result<Changed> {
        let asks = match change {
            TaskChange::Cancel => Some(Requests { cancel: true, ..Requests::NONE }),
            TaskChange::Pause => Some(Requests { pause: true, ..Requests::NONE }),
            _ => None,
        };
        let changed = self.put(Change::Tasks { ids: vec![id], change }).await?;
        if let (Some(asks), Some(run)) = (asks, self.parts.held.get(id)) {
            run.requested(asks);
        }
        self.parts.waiters.tell(id);
        self.parts.family_now.notify_one();
        Ok(changed)
    }

    /// Does the work of an ended task again, as a new task.
    pub async fn rerun<T>(&self, of: TaskId) -> Result<Handle<T>> {
        self.parts.check_open("rerun")?;
        let id = self.parts.mint(1)?[0];
        self.put(Change::Rerun { of, id }).await?;
        Ok(Handle::new(&self.parts, id, Answer::New))
    }

    /// Nothing of this queue is started any more, on any node.
    pub async fn pause_queue(&self, name: &str) -> Result<Changed> {
        self.change_queue(name, QueueChange::Pause).await
    }

    pub async fn resume_queue(&self, name: &str) -> Result<Changed> {
        self.change_queue(name, QueueChange::Resume).await
    }

    /// Concurrency across all nodes, depth limit.
    pub async fn change_queue(&self, name: &str, change: QueueChange) -> Result<Changed> {
        let name = QueueName::new(name)?;
        self.put(Change::Queue { name, change }).await
    }

    /// This node takes no new work until it is resumed.
    pub async fn pause_node(&self) -> Result<Changed> {
        self.change_node(NodeChange::Pause).await
    }

    pub async fn resume_node(&self) -> Result<Changed> {
        self.change_node(NodeChange::Resume).await
    }

    /// This node finishes what it has and takes nothing any more. Unlike
    /// [`Engine::shutdown`] it stays.
    pub async fn drain_node(&self) -> Result<Changed> {
        self.change_node(NodeChange::Drain).await
    }

    async fn change_node(&self, change: NodeChange) -> Result<Changed> {
        let parts = &self.parts;
        let changed = self.put(Change::Node { id: parts.node(), change }).await?;
        parts.pauses.fetch_add(1, Ordering::AcqRel);
        match change {
            NodeChange::Pause => parts.paused.store(true, Ordering::Release),
            NodeChange::Resume => {
                parts.paused.store(false, Ordering::Release);
                parts.drained.store(false, Ordering::Release);
            }
            NodeChange::Drain => parts.drained.store(true, Ordering::Release),
        }
        parts.bell.ring(Wake::Control);
        Ok(changed)
    }

    /// Tells the store now instead of with the next heartbeat; for programs and
    /// tests that want to see requests of others at once.
    pub async fn renew_now(&self) -> Result<()> {
        beat_once(&self.parts, stage(&self.parts)).await
    }

    async fn put(&self, change: Change) -> Result<Changed> {
        let parts = &self.parts;
        let by = Actor { who: parts.settings.node_name.clone(), origin: "library".to_owned() };
        let answers = parts.store.change(change, by, parts.now()).await?;
        parts.bell.ring(Wake::Work);
        parts.due.look();
        parts.feed.changed();
        let nothing = || Error::corrupt("change", "the store gave no answer");
        answers.into_iter().next().ok_or_else(nothing)?
    }
}
