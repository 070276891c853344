//! For tests of kinds: a clock that only the test moves, and a way to run one
//! task to its end in this process, with the node dying after a chosen step if
//! the test wants it. Everything goes the same way as in production; only the
//! store is in memory, and retries do not wait.

use crate::engine::{Builder, Windlass};
use crate::handle::Handle;
use crate::registry::TaskKind;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use windlass_backends::open::open_store;
use windlass_core::checkpoint::StepEntry;
use windlass_core::clock::{Clock, Timestamp};
use windlass_core::error::{Code, Result};
use windlass_core::outcome::TaskError as Cause;
use windlass_core::retry::{Jitter, RetryPolicy};
use windlass_core::store::{Attempt, BoxFuture, Store};
use windlass_core::task::Task;

/// A clock that stands still until it is moved.
#[derive(Debug, Clone)]
pub struct TestClock {
    hands: Arc<Mutex<Hands>>,
}

#[derive(Debug)]
struct Hands {
    start: Timestamp,
    uptime: Duration,
    sleepers: BTreeMap<(Duration, u64), oneshot::Sender<()>>,
    made: u64,
}

impl Default for TestClock {
    fn default() -> Self {
        TestClock::new()
    }
}

impl TestClock {
    pub fn new() -> Self {
        TestClock::at(Timestamp::from_millis(1_800_000_000_000))
    }

    pub fn at(start: Timestamp) -> Self {
        let uptime = Duration::from_secs(1);
        let hands = Hands { start, uptime, sleepers: BTreeMap::new(), made: 0 };
        TestClock { hands: Arc::new(Mutex::new(hands)) }
    }

    /// Moves time on and wakes whoever waited for it.
    pub fn advance(&self, by: Duration) {
        let mut hands = self.hands.lock();
        hands.uptime += by;
        let uptime = hands.uptime;
        let later = hands.sleepers.split_off(&(uptime + Duration::from_nanos(1), 0));
        let woken = std::mem::replace(&mut hands.sleepers, later);
        drop(hands);
        woken.into_values().for_each(|sleeper| {
            // One that no longer sleeps is not woken.
            let _ = sleeper.send(());
        });
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        let hands = self.hands.lock();
        hands.start.plus(hands.uptime)
    }

    fn uptime(&self) -> Duration {
        self.hands.lock().uptime
    }

    fn sleep_until(&self, at: Duration) -> BoxFuture<'static, ()> {
        let mut hands = self.hands.lock();
        if hands.uptime >= at {
            return Box::pin(std::future::ready(()));
        }
        hands.sleepers.retain(|_, sleeper| !sleeper.is_closed());
        hands.made += 1;
        let key = (at, hands.made);
        let (sleeper, woken) = oneshot::channel();
        hands.sleepers.insert(key, sleeper);
        Box::pin(async move {
            // The clock is gone: time stands still for good.
            if woken.await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    }
}

type Setup = Box<dyn Fn(Builder) -> Builder + Send + Sync>;

/// One task to be run to its end in this process.
pub struct Trial<K> {
    task: K,
    setups: Vec<Setup>,
    crashes: Vec<String>,
}

impl<K: fmt::Debug> fmt::Debug for Trial<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trial").field("task", &self.task).field("crashes", &self.crashes).finish()
    }
}

/// Prepares a run of `task`: `run_one(task).await` runs it.
pub fn trial<K: TaskKind>(task: K) -> Trial<K> {
    Trial { task, setups: vec![], crashes: vec![] }
}

/// Runs one task to its end. Retries and step retries do not wait.
pub async fn run_one<K: TaskKind>(task: K) -> Result<Ran<K::Output>> {
    trial(task).run().await
}

impl<K: TaskKind> Trial<K> {
    /// The node dies right after this step was recorded; another one goes on.
    /// Each call adds one death.
    pub fn crash_after_step(mut self, step: impl Into<String>) -> Self {
        self.crashes.push(step.into());
        self
    }

    /// Adds to the engine's set-up (states, settings); called for every start.
    pub fn with(mut self, setup: impl Fn(Builder) -> Builder + Send + Sync + 'static) -> Self {
        self.setups.push(Box::new(setup));
        self
    }

    pub async fn run(self) -> Result<Ran<K::Output>> {
        let store = open_store("memory:").await?;
        let crashes = Arc::new(Mutex::new(self.crashes));
        let mut died = 0;
        let mut engine = start::<K>(&store, &self.setups, &crashes).await?;
        let handle = engine.submit(self.task).await?;
        let mut here = handle.clone();
        let ended = loop {
            match here.ended().await {
                Err(stopped) if stopped.code() == Code::Draining => {
                    died += 1;
                    engine = start::<K>(&store, &self.setups, &crashes).await?;
                    here = engine.handle(handle.id());
                }
                ended => break ended?,
            }
        };
        let attempts = store.attempts(handle.id()).await?;
        let output = finished(&here).await;
        engine.shutdown(Duration::ZERO).await?;
        Ok(Ran { task: ended, output, attempts, crashes: died })
    }
}

async fn finished<T: serde::de::DeserializeOwned>(handle: &Handle<T>) -> Result<T> {
    handle.result().await
}

async fn start<K: TaskKind>(
    store: &Arc<dyn Store>,
    setups: &[Setup],
    crashes: &Arc<Mutex<Vec<String>>>,
) -> Result<crate::Engine> {
    let mut options = K::options();
    options.retry = Some(hurried(options.retry.take(), windlass_core::retry::Exponential::TASK));
    options.step_retry =
        Some(hurried(options.step_retry.take(), windlass_core::retry::Exponential::STEP));
    let builder = Windlass::on(store.clone()).sole().register_with::<K>(options);
    let builder = setups.iter().fold(builder, |builder, setup| setup(builder));
    let crashes = crashes.clone();
    let dies = move |_, step: &str| {
        let mut crashes = crashes.lock();
        let due = crashes.iter().position(|name| name == step);
        due.map(|i| crashes.remove(i)).is_some()
    };
    builder.after_step(Box::new(dies)).start().await
}

/// Decides like another policy, and waits for nothing.
#[derive(Debug)]
struct Hurried(Arc<dyn RetryPolicy>);

fn hurried(
    own: Option<Arc<dyn RetryPolicy>>,
    usual: impl RetryPolicy + 'static,
) -> Arc<dyn RetryPolicy> {
    Arc::new(Hurried(own.unwrap_or_else(|| Arc::new(usual))))
}

impl RetryPolicy for Hurried {
    fn delay(&self, retry: u32, error: &Cause, jitter: Jitter) -> Option<Duration> {
        self.0.delay(retry, error, jitter).map(|_| Duration::ZERO)
    }
}

/// How a trial went.
#[derive(Debug)]
pub struct Ran<T> {
    /// The task when it had ended.
    pub task: Task,
    /// Its output, or why there is none.
    pub output: Result<T>,
    pub attempts: Vec<Attempt>,
    /// How many times the node died.
    pub crashes: usize,
}

impl<T> Ran<T> {
    /// Names of the finished steps in the order they were recorded.
    pub fn steps(&self) -> Vec<&str> {
        let finished = |e: &&StepEntry| e.record.outcome.is_finished();
        let steps = self.attempts.iter().flat_map(|a| &a.steps).filter(finished);
        steps.map(|e| e.record.name.as_str()).collect()
    }

    /// How many tries of this step were recorded, failed ones included.
    pub fn tries(&self, step: &str) -> usize {
        self.attempts.iter().flat_map(|a| &a.steps).filter(|e| e.record.name == step).count()
    }
}
