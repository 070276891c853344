//! What a program may do to tasks, queues and its own node, and what it may
//! look at. Changes go to the store, which knows what is allowed; what concerns
//! this node takes effect at once, other nodes hear of it by their heartbeat.

use crate::engine::Engine;
use crate::events::Subscription;
use crate::handle::{Answer, Handle};
use crate::parts::{Parts, Phase};
use crate::renew::{beat_once, stage};
use crate::settings::Settings;
use crate::upkeep::batches::preview;
use crate::wake::Wake;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use windlass_core::access::AccessToken;
use windlass_core::batch::{Action, Batch, Order, Preview};
use windlass_core::clock::Timestamp;
use windlass_core::control::{Changed, TaskChange};
use windlass_core::error::{Error, Result};
use windlass_core::event::Position;
use windlass_core::filter::Filter;
use windlass_core::id::{BatchId, NodeId, TaskId};
use windlass_core::json::Json;
use windlass_core::lease::Requests;
use windlass_core::store::{
    Actor, Change, DeadLetter, NodeChange, Page, Query, QueueChange, Reader, Setting,
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

    /// Whether this node does its work: it serves, and its lease has not ended.
    pub fn is_ready(&self) -> bool {
        self.parts.phase() == Phase::Serving && !self.parts.is_fenced()
    }

    /// As they were at the start.
    pub fn settings(&self) -> &Settings {
        &self.parts.settings
    }

    /// The store's name, as in its URL.
    pub fn store_name(&self) -> &'static str {
        self.parts.store.capabilities().name
    }

    /// The same engine, whose changes stand in the audit list in this name.
    /// `origin` is the address or program they come from. Without this they are
    /// the node's own, from `library`.
    pub fn acting_as(&self, who: impl Into<String>, origin: impl Into<String>) -> Engine {
        let by = Arc::new(Actor { who: who.into(), origin: origin.into() });
        let mut engine = self.clone();
        engine.by = by;
        engine
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

    /// Any change of one task; the verbs above are this.
    pub async fn change(&self, id: TaskId, change: TaskChange) -> Result<Changed> {
        first(self.change_all(vec![id], change).await?)
    }

    /// The same change of up to 10,000 tasks, one answer for each: one that is
    /// refused does not keep the others from changing.
    pub async fn change_all(
        &self,
        ids: Vec<TaskId>,
        change: TaskChange,
    ) -> Result<Vec<Result<Changed>>> {
        if ids.is_empty() {
            return Ok(vec![]);
        }
        let told = change.clone();
        let answers = self.put(Change::Tasks { ids: ids.clone(), change }).await?;
        tell_holders(&self.parts, &told, ids.into_iter().zip(&answers));
        Ok(answers)
    }

    /// Does the work of an ended task again, as a new task.
    pub async fn rerun<T>(&self, of: TaskId) -> Result<Handle<T>> {
        self.parts.check_open("rerun")?;
        let id = self.parts.mint(1)?[0];
        let before = self.parts.store.task(of).await?;
        let changed = first(self.put(Change::Rerun { of, id }).await?)?;
        if let (Changed::Done, Some(before)) = (changed, before) {
            let again = before.rerun(id);
            let (state, _) = again.birth(self.now());
            self.parts.meters.pair(&again.kind, &again.queue).submitted(state);
        }
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
        first(self.put(Change::Queue { name, change }).await?)
    }

    /// This node takes no new work until it is resumed.
    pub async fn pause_node(&self) -> Result<Changed> {
        self.change_node(self.parts.node(), NodeChange::Pause).await
    }

    pub async fn resume_node(&self) -> Result<Changed> {
        self.change_node(self.parts.node(), NodeChange::Resume).await
    }

    /// This node finishes what it has and takes nothing any more. Unlike
    /// [`Engine::shutdown`] it stays.
    pub async fn drain_node(&self) -> Result<Changed> {
        self.change_node(self.parts.node(), NodeChange::Drain).await
    }

    /// Any node. This one obeys at once, others with their next heartbeat.
    pub async fn change_node(&self, id: NodeId, change: NodeChange) -> Result<Changed> {
        let parts = &self.parts;
        let changed = first(self.put(Change::Node { id, change }).await?)?;
        parts.remote.changed(id, change);
        if id != parts.node() {
            return Ok(changed);
        }
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

    /// Keeps a value in the store under a name of the caller's own.
    pub async fn put_setting(&self, key: &str, value: Option<Json>) -> Result<()> {
        let setting = Setting::Value { key: key.to_owned(), value };
        let parts = &self.parts;
        parts.store.put(setting, Actor::clone(&self.by), parts.now()).await
    }

    /// Keeps an access token, made by the caller; what it opens is the caller's
    /// business too.
    pub async fn create_token(&self, token: AccessToken) -> Result<()> {
        let parts = &self.parts;
        parts.store.put(Setting::Token(token), Actor::clone(&self.by), parts.now()).await
    }

    /// Forgets an access token by its name.
    pub async fn revoke_token(&self, name: &str) -> Result<()> {
        let setting = Setting::RevokeToken(name.to_owned());
        let parts = &self.parts;
        parts.store.put(setting, Actor::clone(&self.by), parts.now()).await
    }

    async fn put(&self, change: Change) -> Result<Vec<Result<Changed>>> {
        let parts = &self.parts;
        let by = Actor::clone(&self.by);
        let answers = parts.store.change(change, by, parts.now()).await?;
        parts.changed();
        Ok(answers)
    }

    /// An order for a bulk job on all tasks that match: say more in it, then
    /// [`Engine::preview`] or [`Engine::start_batch`].
    pub fn order(&self, action: Action, filter: Filter) -> Result<Order> {
        let id = BatchId::from_key(self.parts.mint(1)?[0].key());
        Ok(Order::new(id, action, filter))
    }

    /// What a bulk job would meet now, by state; counted up to 100,000 tasks and
    /// for five seconds.
    pub async fn preview(&self, order: &Order) -> Result<Preview> {
        order.validate()?;
        preview(&self.parts, &Batch::new(order.clone(), &self.by, self.now())).await
    }

    /// Begins a bulk job. It goes on by itself, on whatever node there is, and
    /// after a restart; [`Reader::batch`] tells how far it is.
    pub async fn start_batch(&self, order: Order) -> Result<Batch> {
        self.parts.check_open("batch")?;
        let id = order.id;
        first(self.put(Change::Batch(Box::new(order))).await?)?;
        self.parts.batches_now.notify_one();
        let lost = || Error::corrupt("batch", format!("{id} was begun and is not there"));
        self.parts.store.batch(id).await?.ok_or_else(lost)
    }

    /// Ends a bulk job before it has looked at everything; what it did stays done.
    pub async fn stop_batch(&self, id: BatchId) -> Result<Changed> {
        first(self.put(Change::StopBatch(id)).await?)
    }
}

/// Tells this node's attempts and waiters what became of their tasks.
pub(crate) fn tell_holders<'a>(
    parts: &Parts,
    change: &TaskChange,
    answers: impl Iterator<Item = (TaskId, &'a Result<Changed>)>,
) {
    let asks = asked_of_holder(change);
    for (id, answer) in answers {
        if answer.is_err() {
            continue;
        }
        if let (Some(asks), Some(run)) = (asks, parts.held.get(id)) {
            run.requested(asks);
        } else if asks.is_some() {
            parts.remote.asks.tell(id);
        }
        parts.waiters.tell(id);
    }
    parts.family_now.notify_one();
}

/// The answer to a change of one thing.
fn first(answers: Vec<Result<Changed>>) -> Result<Changed> {
    let nothing = || Error::corrupt("change", "the store gave no answer");
    answers.into_iter().next().ok_or_else(nothing)?
}

/// What the attempt of a changed task is told.
fn asked_of_holder(change: &TaskChange) -> Option<Requests> {
    match change {
        TaskChange::Cancel => Some(Requests { cancel: true, ..Requests::NONE }),
        TaskChange::Pause => Some(Requests { pause: true, ..Requests::NONE }),
        TaskChange::Rollback => Some(Requests { rollback: true, ..Requests::NONE }),
        _ => None,
    }
}
