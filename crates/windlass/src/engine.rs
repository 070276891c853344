//! The front door: open a store, register kinds, start, stop. This file wires
//! the parts together and knows nothing of what they do; what users call on a
//! started engine is in `submit.rs`, `control.rs` and `events.rs`.

use crate::clock::SystemClock;
use crate::dispatch::dispatch;
use crate::events::Feed;
use crate::handle::Waiters;
use crate::held::Held;
use crate::meters::{Metered, Meters};
use crate::parts::{AfterStep, Counters, Identity, Parts, Phase};
use crate::record::{Entries, Recorder, record};
use crate::registry::{Draft, Registry, StepHandler, TaskKind};
use crate::remote::{Remote, attend};
use crate::renew::{beat_once, join, renew};
use crate::settings::{KindOptions, QUEUE_SLOTS, SLOTS_MAX, Settings, UnknownKinds};
use crate::slots::Slots;
use crate::upkeep::batches::batches;
use crate::upkeep::due::{Due, promote};
use crate::upkeep::upkeep;
use crate::wake::Bell;
use crate::watch::{STUCK_AFTER, watch};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;
use tokio::sync::{Notify, watch as phases};
use tokio::task::JoinSet;
use windlass_backends::open::open_store;
use windlass_core::clock::{Clock, Timestamp};
use windlass_core::error::{Error, Result};
use windlass_core::id::NodeId;
use windlass_core::outcome::Outcome;
use windlass_core::store::{Actor, Joined, Stage, Store};
use windlass_core::task::QueueName;

/// How long a shutdown waits for a store that does not answer.
const FLUSH_FOR: Duration = Duration::from_secs(5);

/// Where everything begins.
#[derive(Debug)]
pub struct Windlass;

impl Windlass {
    /// Opens the store that `url` names: `sqlite://app.db` or `memory:`.
    pub async fn open(url: &str) -> Result<Builder> {
        let store = open_store(url).await?;
        // A store that only one process can own: what earlier ones held is free.
        let sole = !store.capabilities().shared;
        Ok(Builder { sole, ..Windlass::on(store) })
    }

    /// A store in this process's memory, for tests and throw-away work.
    pub async fn in_memory() -> Result<Builder> {
        Windlass::open("memory:").await
    }

    /// An engine on a store that is open already, beside others perhaps.
    pub fn on(store: Arc<dyn Store>) -> Builder {
        Builder {
            store,
            sole: false,
            clock: None,
            settings: Settings::default(),
            draft: Draft::default(),
            queues: BTreeMap::new(),
            after_step: None,
            wrong: None,
        }
    }
}

/// An engine before its start. What is wrong is told by [`Builder::start`].
pub struct Builder {
    store: Arc<dyn Store>,
    sole: bool,
    clock: Option<Arc<dyn Clock>>,
    settings: Settings,
    draft: Draft,
    queues: BTreeMap<String, usize>,
    after_step: Option<AfterStep>,
    wrong: Option<Error>,
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Builder { store, settings, draft, queues, .. } = self;
        f.debug_struct("Builder")
            .field("store", store)
            .field("settings", settings)
            .field("draft", draft)
            .field("queues", queues)
            .finish_non_exhaustive()
    }
}

impl Builder {
    /// Serves a kind with its own options.
    pub fn register<K: TaskKind>(self) -> Self {
        self.register_with::<K>(K::options())
    }

    /// Serves a kind with these options instead of its own.
    pub fn register_with<K: TaskKind>(mut self, options: KindOptions) -> Self {
        let done = self.draft.typed::<K>(options);
        self.note(done)
    }

    /// A named handler for plans. Without a plan of the same name it is also a
    /// kind of one step.
    pub fn handler(mut self, name: &str, handler: impl StepHandler) -> Self {
        let done = self.draft.handler(name, Arc::new(handler));
        self.note(done)
    }

    /// A kind that is a chain of handlers sharing a context.
    pub fn plan<S: Into<String>>(self, kind: &str, steps: impl IntoIterator<Item = S>) -> Self {
        self.plan_with(kind, steps, KindOptions::new())
    }

    pub fn plan_with<S: Into<String>>(
        mut self,
        kind: &str,
        steps: impl IntoIterator<Item = S>,
        options: KindOptions,
    ) -> Self {
        let steps = steps.into_iter().map(Into::into).collect();
        let done = self.draft.plan(kind, steps, options);
        self.note(done)
    }

    /// Rules for a kind that only workers in other processes serve: its tasks are
    /// accepted, and never claimed by this engine itself. See [`crate::Workers`].
    pub fn remote_kind(mut self, kind: &str, options: KindOptions) -> Self {
        let done = self.draft.remote(kind, options);
        self.note(done)
    }

    /// Something all tasks share (a pool, a client); see [`crate::Cx::state`].
    pub fn state<T: Send + Sync + 'static>(mut self, state: T) -> Self {
        let done = self.draft.state(Arc::new(state));
        self.note(done)
    }

    /// Serves a queue with so many slots. `default` and the queues of the
    /// registered kinds are served anyway, with four.
    pub fn queue(mut self, name: &str, slots: usize) -> Self {
        let done = check_queue(name, slots).and_then(|()| {
            match self.queues.insert(name.to_owned(), slots) {
                Some(_) => Err(Error::conflict("queue", format!("queue `{name}` is set twice"))),
                None => Ok(()),
            }
        });
        self.note(done)
    }

    /// Changes settings in place: `.settings(|s| s.lease = Duration::from_secs(10))`.
    pub fn settings(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }

    pub fn unknown_kinds(self, rule: UnknownKinds) -> Self {
        self.settings(|s| s.unknown_kinds = rule)
    }

    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    pub(crate) fn sole(mut self) -> Self {
        self.sole = true;
        self
    }

    pub(crate) fn after_step(mut self, dies: AfterStep) -> Self {
        self.after_step = Some(dies);
        self
    }

    /// The first thing that is wrong stays.
    fn note(mut self, done: Result<()>) -> Self {
        if let Err(error) = done {
            self.wrong.get_or_insert(error);
        }
        self
    }

    /// Joins the store, takes over what dead nodes left, and begins to work.
    pub async fn start(self) -> Result<Engine> {
        let sole = self.sole;
        let (parts, entries) = self.parts()?;
        let joined = join(&parts, sole, None).await?;
        tracing::info!(node = %joined.node, store = parts.store.capabilities().name, "joined");
        let mut loops = JoinSet::new();
        loops.spawn(vital(&parts, "record", record(parts.clone(), entries)));
        loops.spawn(vital(&parts, "renew", renew(parts.clone())));
        loops.spawn(vital(&parts, "watch", watch(parts.clone())));
        loops.spawn(vital(&parts, "promote", promote(parts.clone())));
        loops.spawn(vital(&parts, "upkeep", upkeep(parts.clone())));
        loops.spawn(vital(&parts, "batches", batches(parts.clone())));
        loops.spawn(vital(&parts, "dispatch", dispatch(parts.clone())));
        loops.spawn(vital(&parts, "remote", attend(parts.clone())));
        let alive = Arc::new(Alive { parts: parts.clone(), loops: Mutex::new(Some(loops)) });
        let by = Actor { who: parts.settings.node_name.clone(), origin: "library".to_owned() };
        Ok(Engine { parts, alive, by: Arc::new(by) })
    }

    fn parts(self) -> Result<(Arc<Parts>, Entries)> {
        if let Some(wrong) = self.wrong {
            return Err(wrong);
        }
        self.settings.validate()?;
        let registry = self.draft.finish(&self.settings)?;
        let queues = served(self.queues, &registry)?;
        let mut kinds: Vec<_> = registry.kinds().cloned().collect();
        kinds.sort_by_key(|kind| kind.index);
        let (recorder, entries) = Recorder::new();
        // Before the join there is nobody to be: this identity owns nothing.
        let nobody = Joined { node: NodeId::from_key(0), slot: 0, lease_until: Timestamp::ZERO };
        let clock = self.clock.unwrap_or_else(|| Arc::new(SystemClock::new()));
        let parts = Parts {
            born: clock.uptime(),
            slots: Slots::new(queues, kinds.len(), self.settings.cpu_slots()),
            store: Arc::new(Metered::new(self.store, clock.clone())),
            meters: Meters::new(kinds.iter().map(|kind| (&kind.kind, &kind.rules.queue))),
            clock,
            settings: self.settings,
            registry,
            kinds,
            identity: Mutex::new(Identity::new(nobody)),
            fence_at: AtomicU64::new(0),
            held: Held::default(),
            bell: Bell::default(),
            recorder,
            waiters: Waiters::default(),
            feed: Feed::default(),
            due: Due::default(),
            counters: Counters::default(),
            phase: phases::Sender::new(Phase::Serving),
            paused: AtomicBool::new(false),
            drained: AtomicBool::new(false),
            renew_now: Notify::new(),
            watch_now: Notify::new(),
            busy: Notify::new(),
            gone: Notify::new(),
            family_now: Notify::new(),
            batches_now: Notify::new(),
            idle: Notify::new(),
            pauses: AtomicU64::new(0),
            after_step: self.after_step,
            remote: Remote::default(),
        };
        Ok((Arc::new(parts), entries))
    }
}

fn check_queue(name: &str, slots: usize) -> Result<()> {
    QueueName::new(name)?;
    if slots == 0 || slots > SLOTS_MAX {
        let message = format!("queue `{name}`: give it 1 to {SLOTS_MAX} slots, or leave it out");
        return Err(Error::invalid("queue", message));
    }
    Ok(())
}

/// The queues asked for, and those that the kinds need.
fn served(
    mut queues: BTreeMap<String, usize>,
    registry: &Registry,
) -> Result<Vec<(QueueName, usize)>> {
    let needed = registry.kinds().map(|kind| kind.rules.queue.as_str().to_owned());
    for name in needed.chain(["default".to_owned()]) {
        queues.entry(name).or_insert(QUEUE_SLOTS);
    }
    queues.into_iter().map(|(name, slots)| Ok((QueueName::new(&name)?, slots))).collect()
}

/// A started engine; clones are the same one. When the last is dropped without
/// [`Engine::shutdown`], work stops as in a crash: what was held is taken over
/// by the next start or another node.
///
/// It measures what it does through the `metrics` crate. A recorder must be
/// installed before the engine is started, or nothing is measured; the names are
/// in [`crate::metric_names`].
#[derive(Debug, Clone)]
pub struct Engine {
    pub(crate) parts: Arc<Parts>,
    alive: Arc<Alive>,
    /// In whose name it changes things.
    pub(crate) by: Arc<Actor>,
}

#[derive(Debug)]
struct Alive {
    parts: Arc<Parts>,
    loops: Mutex<Option<JoinSet<()>>>,
}

impl Drop for Alive {
    fn drop(&mut self) {
        if self.parts.phase() != Phase::Stopped {
            // Stopped first: a heartbeat that found itself fenced would join again.
            self.parts.enter(Phase::Stopped);
            self.parts.fence();
        }
    }
}

/// A loop without which the engine must not seem to work: should it end early
/// (a bug, a runtime that went away), everything stops, and callers hear of it.
fn vital<F: Future<Output = ()>>(
    parts: &Arc<Parts>,
    name: &'static str,
    work: F,
) -> impl Future<Output = ()> + use<F> {
    let vital = Vital { parts: parts.clone(), name };
    async move {
        let _vital = vital;
        work.await;
    }
}

struct Vital {
    parts: Arc<Parts>,
    name: &'static str,
}

impl Drop for Vital {
    fn drop(&mut self) {
        if self.parts.phase() < Phase::Leaving {
            tracing::error!(part = self.name, "a part of the engine ended; everything stops");
            // Stopped first: a heartbeat that found itself fenced would join again.
            self.parts.enter(Phase::Stopped);
            self.parts.fence();
        }
    }
}

impl Engine {
    /// Stops taking work, lets what runs finish for up to `grace`, gives the
    /// rest back without burning an attempt, and leaves. Finished steps of what
    /// goes back stay finished. An error says that the store did not hear of it:
    /// what was held is then taken over when the lease has ended.
    ///
    /// It goes on when this future is dropped; a second call with less `grace`
    /// shortens it.
    pub async fn shutdown(&self, grace: Duration) -> Result<()> {
        let engine = self.clone();
        let stopping = tokio::spawn(async move { engine.stop(grace).await });
        let gone = |_| Error::unavailable("shutdown", "the runtime is going away");
        stopping.await.map_err(gone)?
    }

    async fn stop(&self, grace: Duration) -> Result<()> {
        let parts = &self.parts;
        parts.enter(Phase::Draining);
        // A claim on its way would bring tasks that nobody here gives back.
        parts.held.close();
        self.release_waiting().await;
        let until = parts.clock.uptime().saturating_add(grace);
        if !self.idle_by(until).await {
            self.release_running().await;
        }
        if !parts.enter(Phase::Leaving) {
            // Another call says good-bye.
            parts.reached(Phase::Stopped).await;
            return Ok(());
        }
        let left = tokio::select! {
            left = beat_once(parts, Stage::Leaving) => left,
            () = parts.clock.sleep_until(parts.clock.uptime() + FLUSH_FOR) => {
                Err(Error::unavailable("shutdown", "the store does not answer"))
            }
        };
        if let Err(error) = &left {
            tracing::warn!(%error, "could not say good-bye; the lease will end by itself");
        }
        let unwritten = parts.held.len();
        parts.fence();
        parts.enter(Phase::Stopped);
        let loops = self.alive.loops.lock().take();
        if let Some(mut loops) = loops {
            while loops.join_next().await.is_some() {}
        }
        // One of them may hold this engine.
        parts.registry.forget_states();
        match left {
            Ok(()) if unwritten > 0 => {
                let message = format!("{unwritten} tasks could not be given back");
                Err(Error::unavailable("shutdown", message))
            }
            left => left,
        }
    }

    /// Waits until nothing is held; `false`: it was not so in time.
    async fn idle_by(&self, until: Duration) -> bool {
        let parts = &self.parts;
        loop {
            let idle = parts.idle.notified();
            if parts.held.len() == 0 {
                return true;
            }
            tokio::select! {
                () = idle => {}
                () = parts.clock.sleep_until(until) => return parts.held.len() == 0,
            }
        }
    }

    /// What was claimed and never begun goes back at once.
    async fn release_waiting(&self) {
        for run in self.parts.held.all() {
            if run.began().is_none() && run.alone && run.may_judge() {
                let write = run.ending(Outcome::Release);
                self.parts.recorder.end(run, write).await;
            }
        }
    }

    /// What still runs is aborted and goes back; code that will not end is left
    /// behind, fenced.
    async fn release_running(&self) {
        let parts = &self.parts;
        let judged: Vec<_> = parts.held.all().into_iter().filter(|run| run.may_judge()).collect();
        judged.iter().for_each(|run| {
            run.want(crate::said::Stop::Fenced);
            run.abort_now();
        });
        let until = parts.clock.uptime() + STUCK_AFTER;
        loop {
            let gone = parts.gone.notified();
            if judged.iter().all(|run| run.has_ended()) {
                break;
            }
            tokio::select! {
                () = gone => {}
                () = parts.clock.sleep_until(until) => break,
            }
        }
        for run in judged {
            let write = run.ending(Outcome::Release);
            parts.recorder.end(run, write).await;
        }
        // What was judged before, by its time, may still be ending what it started.
        let ending = parts.held.all().iter().map(|run| run.needs_to_stop()).max();
        let ending = ending.unwrap_or_default() + STUCK_AFTER;
        let flushed = parts.clock.uptime() + FLUSH_FOR.max(ending + FLUSH_FOR / 2);
        if !self.idle_by(flushed).await {
            tracing::error!(held = parts.held.len(), "the store did not take everything back");
        }
    }
}

/// Ready when the process is asked to stop: SIGTERM or SIGINT.
pub async fn shutdown_signal() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
            return;
        }
    }
    // Without a handler nothing can be waited for.
    let _ = tokio::signal::ctrl_c().await;
}
