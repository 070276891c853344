//! What the scenario tests share: a store with a clock that only the test moves
//! ([`Ground`]), kinds whose code waits until the test lets it go, and the
//! [`Floor`] on which that code says what it does. Waiting is always for a
//! condition; a test that waits for ever is ended by [`within`].
#![allow(dead_code, unused_macros, unused_imports)] // each test program uses a part
#![allow(clippy::expect_used, clippy::panic)] // a test fails by panicking

mod floor;

pub(crate) use floor::{Floor, Log};
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass::core::store::Store;
use windlass::core::task::Task;
use windlass::prelude::*;
use windlass::testing::TestClock;
use windlass::{Builder, Pool};
use windlass_backends::open::open_store;

/// Longest real time a test may take; only a test that hangs gets there.
const LONGEST: Duration = Duration::from_secs(20);

pub(crate) const LEASE: Duration = Duration::from_secs(30);

pub(crate) fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(crate) fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A test that hangs fails instead.
pub(crate) async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONGEST, work)
        .await
        .expect("the test waits for something that never comes")
}

/// Expands each scenario for both stores.
macro_rules! on_both_stores {
    ($($name:ident),+ $(,)?) => {
        mod memory {
            $(#[tokio::test]
            async fn $name() {
                let ground = crate::bench_of_engines::Ground::memory().await;
                crate::bench_of_engines::within(super::$name(ground)).await;
            })+
        }
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let ground = crate::bench_of_engines::Ground::sqlite().await;
                crate::bench_of_engines::within(super::$name(ground)).await;
            })+
        }
    };
}
pub(crate) use on_both_stores;

/// One store, one clock, one floor; any number of engines.
pub(crate) struct Ground {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: TestClock,
    pub(crate) floor: Floor,
    pub(crate) dir: Option<tempfile::TempDir>,
}

impl Ground {
    pub(crate) async fn memory() -> Ground {
        Ground::at("memory:", None).await
    }

    pub(crate) async fn sqlite() -> Ground {
        let dir = tempfile::tempdir().expect("a folder");
        let url = format!("sqlite://{}", dir.path().join("bench.db").display());
        Ground::at(&url, Some(dir)).await
    }

    async fn at(url: &str, dir: Option<tempfile::TempDir>) -> Ground {
        let store = open_store(url).await.expect("a store");
        Ground { store, clock: TestClock::new(), floor: Floor::default(), dir }
    }

    /// An engine to be, straight on the store.
    pub(crate) fn builder(&self) -> Builder {
        self.before(self.store.clone())
    }

    /// An engine to be, on what stands before the store.
    pub(crate) fn before(&self, store: Arc<dyn Store>) -> Builder {
        self.fit(Windlass::on(store)).register::<Job>().register::<Other>()
    }

    /// The clock and the floor of this ground.
    pub(crate) fn fit(&self, builder: Builder) -> Builder {
        let builder = builder.settings(|settings| settings.suspects_wait = Duration::ZERO);
        builder.clock(Arc::new(self.clock.clone())).state(self.floor.clone())
    }

    pub(crate) async fn engine(&self) -> Engine {
        self.builder().start().await.expect("an engine")
    }

    /// Lets time pass in small pieces; these engines renew in each of them.
    pub(crate) async fn pass(&self, time: Duration, alive: &[&Engine]) {
        let mut left = time;
        while !left.is_zero() {
            let piece = left.min(millis(500));
            self.clock.advance(piece);
            left -= piece;
            for engine in alive {
                engine.renew_now().await.expect("a heartbeat");
            }
            settle().await;
        }
    }

    /// Lets time pass, at the pace of these engines, until the condition holds.
    pub(crate) async fn pass_until(&self, alive: &[&Engine], mut so: impl FnMut() -> bool) {
        while !so() {
            self.pass(millis(100), alive).await;
        }
    }

    /// The task as the store has it.
    pub(crate) async fn task<T>(&self, handle: &Handle<T>) -> Task {
        self.store.task(handle.id()).await.expect("a read").expect("a task")
    }

    /// How many tasks the store has.
    pub(crate) async fn tasks(&self) -> u64 {
        self.store.stats().await.expect("stats").states.values().sum()
    }
}

/// Lets everybody who can go on do so, without any time passing. What must not
/// happen is looked for after this; what must happen is waited for.
pub(crate) async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// Waits for a condition that nobody announces; time stands still.
pub(crate) async fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < LONGEST / 2, "it never came to this: {what}");
        tokio::task::yield_now().await;
    }
}

/// What test tasks do: `steps` steps, waiting in one of them during the first
/// attempts until the floor lets them go. Their output is their name.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) steps: u32,
    /// In which step to wait (`steps`: after the last), and in how many attempts.
    pub(crate) waits: Option<(u32, u32)>,
}

/// The same work under another name.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Other(pub(crate) Job);

pub(crate) fn job(name: impl Into<String>) -> Job {
    Job { name: name.into(), steps: 0, waits: None }
}

pub(crate) fn other(name: impl Into<String>) -> Other {
    Other(job(name))
}

impl Job {
    pub(crate) fn steps(self, steps: u32) -> Job {
        Job { steps, ..self }
    }

    /// Waits in every attempt, after the last step.
    pub(crate) fn waiting(self) -> Job {
        Job { waits: Some((self.steps, u32::MAX)), ..self }
    }

    /// Waits in this step, in the first `attempts` attempts.
    pub(crate) fn waiting_in(self, step: u32, attempts: u32) -> Job {
        Job { waits: Some((step, attempts)), ..self }
    }

    async fn work(self, cx: Cx) -> Result<String, TaskError> {
        let floor = cx.state::<Floor>()?;
        let place = floor.enter(&self.name, cx.task());
        let waits = |at| self.waits.is_some_and(|(step, n)| step == at && cx.attempt() <= n);
        for i in 0..self.steps {
            let work = || async {
                floor.stepped(&self.name, i);
                if waits(i) {
                    floor.let_go(&self.name).await;
                }
                Ok::<_, TaskError>(i)
            };
            cx.step(format!("s{i}"), work).await?;
        }
        if waits(self.steps) {
            floor.let_go(&self.name).await;
        }
        place.finish();
        Ok(self.name)
    }
}

impl TaskKind for Job {
    const NAME: &'static str = "job";
    type Output = String;
    async fn run(self, cx: Cx) -> Result<String, TaskError> {
        self.work(cx).await
    }
}

impl TaskKind for Other {
    const NAME: &'static str = "other";
    type Output = String;
    async fn run(self, cx: Cx) -> Result<String, TaskError> {
        self.0.work(cx).await
    }
}
