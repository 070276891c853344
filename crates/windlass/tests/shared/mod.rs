//! Set-up for the scenario tests of the engine: an engine on a fresh store with
//! a clock that only the test moves, one kind whose code the test gives, and
//! ways to wait for what happened. Polls come once an hour here, so nothing is
//! found by chance; each test program uses a part of this.
#![allow(dead_code, unused_macros, unused_imports)] // each test program uses a part

use serde_json::Value;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::Semaphore;
use windlass::core::clock::{Clock, Timestamp};
use windlass::core::event::{Event, EventName, Position};
use windlass::core::filter::Filter;
use windlass::core::id::TaskId;
use windlass::core::outcome::Failure;
use windlass::core::retry::Exponential;
use windlass::core::state::State;
use windlass::core::store::{Attempt, BoxFuture, DeadLetter, Query, Store};
use windlass::core::task::Task;
use windlass::prelude::*;
use windlass::testing::TestClock;
use windlass::{Builder, Subscription};
use windlass_backends::open::open_store;

/// Retries that wait for nothing.
pub(crate) const AT_ONCE: Exponential = Exponential {
    retries: 15,
    first: Duration::ZERO,
    factor: 1.0,
    cap: Duration::ZERO,
    jitter: 0.0,
};
/// No retry at all.
pub(crate) const NEVER: Exponential = Exponential { retries: 0, ..AT_ONCE };
pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);
/// How often the engine looks at running attempts.
pub(crate) const LOOK: Duration = Duration::from_millis(100);

pub(crate) fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Every case of a file, once for each store.
macro_rules! on_both {
    ($($case:ident),+ $(,)?) => {
        mod memory {
            $(#[tokio::test]
            async fn $case() {
                crate::shared::timely(super::$case(crate::shared::On::Memory)).await;
            })+
        }
        mod sqlite {
            $(#[tokio::test]
            async fn $case() {
                crate::shared::timely(super::$case(crate::shared::On::Sqlite)).await;
            })+
        }
    };
}
pub(crate) use on_both;

/// A test that waits for what never happens fails instead of hanging.
pub(crate) async fn timely(case: impl Future<Output = ()>) {
    let limit = Duration::from_secs(30);
    tokio::time::timeout(limit, Box::pin(case)).await.expect("it happens within 30 s");
}

/// Which store a case runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum On {
    Memory,
    Sqlite,
}

impl On {
    async fn store(self) -> (Arc<dyn Store>, Option<TempDir>) {
        match self {
            On::Memory => (open_store("memory:").await.expect("a store"), None),
            On::Sqlite => {
                let dir = tempfile::tempdir().expect("a folder");
                let url = format!("sqlite://{}", dir.path().join("t.db").display());
                (open_store(&url).await.expect("a store"), Some(dir))
            }
        }
    }
}

type Code = dyn Fn(Cx, u32) -> BoxFuture<'static, Result<Value, TaskError>> + Send + Sync;

/// The code that [`Job`] runs in this test.
#[derive(Clone)]
pub(crate) struct Script(Arc<Code>);

impl Script {
    pub(crate) fn new<F, Fut>(code: F) -> Script
    where
        F: Fn(Cx) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Value, TaskError>> + Send + 'static,
    {
        Script::with_n(move |cx, _| code(cx))
    }

    /// Code that wants to know the payload.
    pub(crate) fn with_n<F, Fut>(code: F) -> Script
    where
        F: Fn(Cx, u32) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Value, TaskError>> + Send + 'static,
    {
        Script(Arc::new(move |cx, n| Box::pin(code(cx, n))))
    }
}

/// The kind under test: its code is the test's.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) n: u32,
}

impl TaskKind for Job {
    const NAME: &'static str = "job";
    type Output = Value;

    async fn run(self, cx: Cx) -> Result<Value, TaskError> {
        let script = cx.state::<Script>()?;
        (script.0)(cx, self.n).await
    }
}

/// Does nothing, on a queue of its own.
#[derive(Serialize, Deserialize)]
struct Probe {}

impl TaskKind for Probe {
    const NAME: &'static str = "probe";
    type Output = ();

    fn options() -> KindOptions {
        KindOptions::new().queue("probe")
    }

    async fn run(self, _cx: Cx) -> Result<(), TaskError> {
        Ok(())
    }
}

/// An engine, its store and its clock.
pub(crate) struct Bench {
    pub(crate) engine: Engine,
    pub(crate) clock: TestClock,
    pub(crate) store: Arc<dyn Store>,
    events: Subscription,
    _dir: Option<TempDir>,
}

impl Bench {
    /// [`Job`] with these options and this code.
    pub(crate) async fn new<F, Fut>(on: On, options: KindOptions, code: F) -> Bench
    where
        F: Fn(Cx) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Value, TaskError>> + Send + 'static,
    {
        let script = Script::new(code);
        Bench::build(on, move |b| b.register_with::<Job>(options).state(script)).await
    }

    /// Whatever the test registers.
    pub(crate) async fn build(on: On, setup: impl FnOnce(Builder) -> Builder) -> Bench {
        let (store, dir) = on.store().await;
        let clock = TestClock::new();
        let engine = start(&store, &clock, setup).await;
        clock.advance(MS);
        let events = engine.events(Position::START);
        Bench { engine, clock, store, events, _dir: dir }
    }

    /// Stops the engine and starts another one on the same store.
    pub(crate) async fn restart(&mut self, setup: impl FnOnce(Builder) -> Builder) {
        self.engine.shutdown(Duration::ZERO).await.expect("a quiet end");
        self.engine = start(&self.store, &self.clock, setup).await;
        self.events = self.engine.events(self.events.position());
    }

    /// One more engine on the same store and clock; it serves nothing.
    pub(crate) async fn beside(&self) -> Engine {
        builder(&self.store, &self.clock).start().await.expect("an engine")
    }

    /// The same behind a store with faults.
    #[allow(dead_code)] // not every program has faults
    pub(crate) async fn beside_on(&self, store: Arc<dyn Store>) -> Engine {
        builder(&store, &self.clock).start().await.expect("an engine")
    }

    pub(crate) async fn submit(&self) -> Handle<Value> {
        self.engine.submit(Job { n: 0 }).await.expect("submitted")
    }

    /// Submits and waits for the end.
    pub(crate) async fn run(&self) -> Task {
        self.submit().await.ended().await.expect("an end")
    }

    pub(crate) async fn task(&self, id: TaskId) -> Task {
        self.store.task(id).await.expect("read").expect("the task")
    }

    pub(crate) async fn state(&self, id: TaskId) -> State {
        self.task(id).await.state()
    }

    pub(crate) async fn attempts(&self, id: TaskId) -> Vec<Attempt> {
        self.store.attempts(id).await.expect("read")
    }

    pub(crate) async fn dead_letter(&self, id: TaskId) -> Option<DeadLetter> {
        let filter = Filter::parse("").expect("everything");
        let query = Query { filter, before: None, limit: 100 };
        let page = self.engine.dead_letters(query).await.expect("read");
        page.items.into_iter().find(|letter| letter.task == Some(id))
    }

    /// The next event of this task with this name; earlier ones are gone.
    pub(crate) async fn until(&mut self, id: TaskId, name: EventName) -> Event {
        loop {
            let event = self.events.next().await.expect("an engine that runs").expect("read");
            if event.task == Some(id) && event.name == name {
                return event;
            }
        }
    }

    /// Waits until the timer has put a task into its queue.
    pub(crate) async fn until_queued(&self, id: TaskId) {
        while self.state(id).await != State::Queued {
            tokio::task::yield_now().await;
        }
    }

    /// All events of a task, numbered without gaps.
    pub(crate) async fn history(&self, id: TaskId) -> Vec<Event> {
        let all = self.store.events(Position::START, 500).await.expect("read");
        let events: Vec<Event> = all.into_iter().filter(|e| e.task == Some(id)).collect();
        let numbers: Vec<u32> = events.iter().map(|e| e.n).collect();
        let dense: Vec<u32> = (1..).take(events.len()).collect();
        assert_eq!(numbers, dense, "events are numbered without gaps");
        events
    }

    /// Names of the events of a task, without the `task.` before them.
    pub(crate) async fn told(&self, id: TaskId) -> Vec<&'static str> {
        let name = |e: &Event| e.name.as_str();
        let short = |name: &'static str| name.strip_prefix("task.").unwrap_or(name);
        self.history(id).await.iter().map(name).map(short).collect()
    }

    /// The data of the events with this name.
    pub(crate) async fn data(&self, id: TaskId, name: EventName) -> Vec<Value> {
        let events = self.history(id).await;
        let events = events.iter().filter(|e| e.name == name);
        events.map(|e| e.data.to_json().to().expect("an object")).collect()
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    pub(crate) fn advance_to(&self, at: Timestamp) {
        self.clock.advance(at.since(self.clock.now()));
    }

    /// Two tasks went all the way through the engine: what was ready to happen
    /// before has happened.
    pub(crate) async fn quiet(&self) {
        for _ in 0..2 {
            let probe = self.engine.submit(Probe {}).await.expect("submitted");
            probe.result().await.expect("a probe ends");
        }
    }
}

async fn start(
    store: &Arc<dyn Store>,
    clock: &TestClock,
    setup: impl FnOnce(Builder) -> Builder,
) -> Engine {
    let builder = builder(store, clock).register::<Probe>();
    setup(builder).start().await.expect("an engine")
}

fn builder(store: &Arc<dyn Store>, clock: &TestClock) -> Builder {
    Windlass::on(store.clone()).clock(Arc::new(clock.clone())).settings(|s| {
        s.poll = HOUR;
        // No jump of the clock ends the lease.
        s.lease = 24 * HOUR;
    })
}

/// Why the task failed.
pub(crate) fn failure(task: &Task) -> &Failure {
    task.standing.failure.as_ref().expect("a failure")
}

/// Reason, class, step and message of a failed task.
pub(crate) fn why(task: &Task) -> (&'static str, &'static str, &str, &str) {
    let Failure { reason, error } = failure(task);
    let step = error.step.as_ref().map_or("", |s| s.name.as_str());
    (reason.map_or("", |r| r.as_str()), error.class.as_str(), step, &error.message)
}

/// Counts how many times something was done.
#[derive(Debug, Clone, Default)]
pub(crate) struct Count(Arc<AtomicUsize>);

impl Count {
    /// Counts one, and says which one it is, from 1.
    pub(crate) fn up(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// Counts when it is dropped.
pub(crate) struct CountsDrop(pub(crate) Count);

impl Drop for CountsDrop {
    fn drop(&mut self) {
        self.0.up();
    }
}

/// Code waits here until the test lets one through.
#[derive(Debug, Clone)]
pub(crate) struct Gate {
    let_in: Arc<Semaphore>,
    came: Arc<Semaphore>,
}

impl Gate {
    pub(crate) fn new() -> Gate {
        let closed = || Arc::new(Semaphore::new(0));
        Gate { let_in: closed(), came: closed() }
    }

    pub(crate) async fn pass(&self) {
        self.came.add_permits(1);
        self.let_in.acquire().await.expect("never closed").forget();
    }

    /// Waits until one more has come to the gate.
    pub(crate) async fn reached(&self) {
        self.came.acquire().await.expect("never closed").forget();
    }

    pub(crate) fn open(&self) {
        self.let_in.add_permits(1);
    }
}

/// A step that gives this value.
pub(crate) async fn give<T>(value: T) -> Result<T, TaskError> {
    Ok(value)
}
