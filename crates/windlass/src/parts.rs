//! The parts of a started engine, as they see each other. Each part has its own
//! file and its own rules; this one only holds them together, with the few
//! questions that more than one of them asks.

use crate::events::Feed;
use crate::handle::Waiters;
use crate::held::Held;
use crate::meters::Meters;
use crate::record::Recorder;
use crate::registry::{KindEntry, Registry};
use crate::remote::Remote;
use crate::run::Run;
use crate::settings::Settings;
use crate::slots::Slots;
use crate::upkeep::due::Due;
use crate::wake::{Bell, Wake};
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use windlass_core::clock::{Clock, Now, Timestamp};
use windlass_core::error::{Code, Error, Result};
use windlass_core::id::{IdMint, NodeId, TaskId};
use windlass_core::lease::PoisonRule;
use windlass_core::store::{Joined, Store};

/// Where the engine is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Serving,
    /// Takes no new work; what runs may finish.
    Draining,
    /// Says good-bye to the store: nothing may renew or join any more.
    Leaving,
    /// Every loop ends.
    Stopped,
}

/// Who this process is for the store. A lost lease makes a new one.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) node: NodeId,
    mint: IdMint,
}

/// What happened here since the start.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) consumed: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) stale_writes: AtomicU64,
    pub(crate) leases_lost: AtomicU64,
    pub(crate) rejoined: AtomicU64,
}

pub(crate) fn bump(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// A test may let the node die after a step.
pub(crate) type AfterStep = Box<dyn Fn(TaskId, &str) -> bool + Send + Sync>;

pub(crate) struct Parts {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) settings: Settings,
    pub(crate) registry: Registry,
    /// The registry's kinds, by index.
    pub(crate) kinds: Vec<Arc<KindEntry>>,
    pub(crate) identity: Mutex<Identity>,
    /// Uptime when the engine was made.
    pub(crate) born: Duration,
    /// Uptime at which this node must have stopped everything.
    pub(crate) fence_at: AtomicU64,
    pub(crate) held: Held,
    pub(crate) slots: Slots,
    pub(crate) bell: Bell,
    pub(crate) recorder: Recorder,
    pub(crate) waiters: Waiters,
    pub(crate) feed: Feed,
    pub(crate) due: Due,
    pub(crate) counters: Counters,
    pub(crate) meters: Meters,
    pub(crate) phase: watch::Sender<Phase>,
    /// A person paused or drained this node.
    pub(crate) paused: AtomicBool,
    pub(crate) drained: AtomicBool,
    pub(crate) renew_now: Notify,
    pub(crate) watch_now: Notify,
    /// The first task is held: the store is asked more often now.
    pub(crate) busy: Notify,
    /// The code of a judged attempt has ended.
    pub(crate) gone: Notify,
    /// A family may have ended: look at parents now.
    pub(crate) family_now: Notify,
    /// A bulk job has begun.
    pub(crate) batches_now: Notify,
    /// The last held task is gone.
    pub(crate) idle: Notify,
    /// Rises when this process pauses or resumes its own node, so that an older
    /// heartbeat's answer does not undo it.
    pub(crate) pauses: AtomicU64,
    pub(crate) after_step: Option<AfterStep>,
    /// Workers in other processes.
    pub(crate) remote: Remote,
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl Parts {
    /// Whose clock the store goes by: a store that several processes share has
    /// its own.
    pub(crate) fn now(&self) -> Now {
        if self.store.capabilities().shared { Now::Store } else { Now::At(self.clock.now()) }
    }

    /// Something in the store is other than before, by this node's doing.
    pub(crate) fn changed(&self) {
        self.bell.ring(Wake::Work);
        self.remote.hub.look();
        self.due.look();
        self.feed.changed();
    }

    pub(crate) fn node(&self) -> NodeId {
        self.identity.lock().node
    }

    pub(crate) fn poison(&self) -> PoisonRule {
        PoisonRule { limit: self.settings.poison_limit }
    }

    /// Takes the identity that the store gave.
    pub(crate) fn take_identity(&self, joined: Joined) {
        *self.identity.lock() = Identity::new(joined);
    }

    /// New ids, in order. A node whose lease has ended may share its slot with
    /// another one by now, so it makes none.
    pub(crate) fn mint(&self, count: usize) -> Result<Vec<TaskId>> {
        if self.is_fenced() {
            let message = "this node lost its lease and is joining again; try again";
            return Err(Error::unavailable("submit", message));
        }
        let now: Timestamp = self.clock.now();
        let mut identity = self.identity.lock();
        Ok((0..count).map(|_| identity.mint.task(now)).collect())
    }

    pub(crate) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// `false`: this phase had been reached before.
    pub(crate) fn enter(&self, phase: Phase) -> bool {
        let entered = self.phase.send_if_modified(|now| {
            let later = phase > *now;
            *now = (*now).max(phase);
            later
        });
        self.bell.ring(Wake::Control);
        self.renew_now.notify_one();
        self.watch_now.notify_one();
        entered
    }

    /// Ready when the engine has reached `phase`.
    pub(crate) async fn reached(&self, phase: Phase) {
        let mut phases = self.phase.subscribe();
        // Cannot fail: the sender lives in `self`.
        let _ = phases.wait_for(|now| *now >= phase).await;
    }

    pub(crate) fn check_open(&self, op: &'static str) -> Result<()> {
        match self.phase() {
            Phase::Serving => Ok(()),
            _ => Err(Error::new(Code::Draining, op, "the engine is shutting down")),
        }
    }

    pub(crate) fn is_fenced(&self) -> bool {
        self.clock.uptime() >= self.fenced_at()
    }

    fn fenced_at(&self) -> Duration {
        Duration::from_micros(self.fence_at.load(Ordering::Acquire))
    }

    /// The lease was renewed by a call that was sent at `sent`.
    pub(crate) fn renewed(&self, sent: Duration) {
        let at = sent.saturating_add(self.settings.lease).as_micros();
        self.fence_at.store(u64::try_from(at).unwrap_or(u64::MAX), Ordering::Release);
    }

    pub(crate) fn fence_time(&self) -> Duration {
        self.fenced_at()
    }

    /// Without a renewal for two thirds of the lease a node takes nothing new.
    pub(crate) fn may_claim(&self) -> bool {
        let times = self.settings.times();
        let stop = self.fenced_at().saturating_sub(times.lease - times.stop_claiming());
        self.phase() == Phase::Serving
            && !self.paused.load(Ordering::Acquire)
            && !self.drained.load(Ordering::Acquire)
            && self.clock.uptime() < stop
    }

    /// Whether this node has lived long enough to try a task that may be the
    /// death of it.
    pub(crate) fn may_try_suspects(&self) -> bool {
        self.clock.uptime().saturating_sub(self.born) >= self.settings.suspects_wait
    }

    /// Everything held is lost: handlers are cancelled, nothing is written.
    pub(crate) fn fence(&self) {
        self.fence_at.store(0, Ordering::Release);
        for run in self.held.clear() {
            self.lost_unless_judged(&run);
        }
        self.tell_if_idle();
    }

    pub(crate) fn tell_if_idle(&self) {
        if self.held.len() == 0 {
            self.idle.notify_waiters();
        }
    }

    /// For tests that let the node die after a step.
    pub(crate) fn after_step(&self, run: &Run, step: &str) {
        if self.after_step.as_ref().is_some_and(|dies| dies(run.task.id, step)) {
            self.enter(Phase::Stopped);
            self.fence();
        }
    }

    /// This one task is lost.
    pub(crate) fn lose(&self, run: &Run) {
        self.held.remove(run);
        self.lost_unless_judged(run);
        self.tell_if_idle();
    }

    /// The end of this one was refused.
    pub(crate) fn refuse(&self, run: &Run) {
        self.held.remove(run);
        run.fence();
        self.count_lost(run);
        self.tell_if_idle();
    }

    /// One that was judged is on its way to the store, which may take its end
    /// all the same: it is counted there.
    fn lost_unless_judged(&self, run: &Run) {
        if run.fence() {
            self.count_lost(run);
        }
    }

    fn count_lost(&self, run: &Run) {
        bump(&self.counters.leases_lost, 1);
        run.meters.lost(run.took());
    }
}

impl Identity {
    pub(crate) fn new(joined: Joined) -> Self {
        Identity { node: joined.node, mint: IdMint::new(joined.slot) }
    }
}
