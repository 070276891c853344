//! The engine's side of the benchmark: kinds that do nothing, an engine on a
//! fresh file, and the few moves that all parts share. It knows nothing of the
//! bare side.

use crate::measure::PAYLOAD_BYTES;
use crate::process;
use parking_lot::Mutex;
use std::hint::black_box;
use std::path::Path;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use windlass::prelude::*;

/// Slots of the one queue.
pub(crate) const SLOTS: usize = 1000;

/// Handlers that began.
pub(crate) static STARTED: AtomicU64 = AtomicU64::new(0);
/// Handlers that wait right now.
pub(crate) static WAITING: AtomicUsize = AtomicUsize::new(0);
/// From submit to start, in seconds, of each timed task.
pub(crate) static LATENCIES: Mutex<Vec<f64>> = Mutex::new(Vec::new());

static BASE: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Nanoseconds since the first call.
pub(crate) fn nanos() -> u64 {
    u64::try_from(BASE.elapsed().as_nanos()).expect("a short run")
}

/// What every handler does first: the work cannot be optimised away.
fn begin(data: &str) {
    black_box(data);
    STARTED.fetch_add(1, Ordering::Relaxed);
}

/// The payload's string, so that the JSON has exactly the size of the bare one.
fn data() -> String {
    "x".repeat(PAYLOAD_BYTES - 11)
}

/// A kind whose payload is one string.
pub(crate) trait Plain: TaskKind {
    fn new() -> Self;
}

macro_rules! plain {
    ($kind:ident, $name:literal, |$cx:ident| $work:expr) => {
        #[derive(Serialize, Deserialize)]
        pub(crate) struct $kind {
            data: String,
        }

        impl Plain for $kind {
            fn new() -> Self {
                $kind { data: data() }
            }
        }

        impl TaskKind for $kind {
            const NAME: &'static str = $name;
            type Output = ();
            async fn run(self, $cx: Cx) -> Result<(), TaskError> {
                begin(&self.data);
                $work
            }
        }
    };
}

plain!(Nothing, "nothing", |_cx| Ok(()));
plain!(OneStep, "one-step", |cx| steps(&cx, 1).await);
plain!(FiveSteps, "five-steps", |cx| steps(&cx, 5).await);
plain!(Waits, "waits", |_cx| {
    WAITING.fetch_add(1, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_millis(50)).await;
    WAITING.fetch_sub(1, Ordering::Relaxed);
    Ok(())
});

async fn steps(cx: &Cx, count: usize) -> Result<(), TaskError> {
    for i in 0..count {
        cx.step(format!("step-{i}"), || async { Ok::<_, TaskError>(()) }).await?;
    }
    Ok(())
}

/// Carries the moment of its submission.
#[derive(Serialize, Deserialize)]
pub(crate) struct Timed {
    pub(crate) sent: u64,
    pub(crate) data: String,
}

impl Timed {
    pub(crate) fn now() -> Self {
        Timed { sent: nanos(), data: "x".repeat(PAYLOAD_BYTES - 32) }
    }
}

impl TaskKind for Timed {
    const NAME: &'static str = "timed";
    type Output = ();
    async fn run(self, _cx: Cx) -> Result<(), TaskError> {
        let took = nanos() - self.sent;
        begin(&self.data);
        LATENCIES.lock().push(took as f64 / 1e9);
        Ok(())
    }
}

/// Wall seconds and CPU seconds of one measured stretch.
#[derive(Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) wall: f64,
    pub(crate) cpu: f64,
}

/// An engine on a fresh file, paused until it is told to go.
pub(crate) struct Bench {
    pub(crate) runtime: Runtime,
    pub(crate) engine: Engine,
}

impl Bench {
    pub(crate) fn paused(path: &Path) -> Bench {
        let bench = Bench::running(path);
        bench.runtime.block_on(bench.engine.pause_node()).expect("paused");
        bench
    }

    pub(crate) fn running(path: &Path) -> Bench {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        let engine = runtime.block_on(async {
            let builder = Windlass::open(&format!("sqlite://{}", path.display())).await?;
            builder
                .register::<Nothing>()
                .register::<OneStep>()
                .register::<FiveSteps>()
                .register::<Waits>()
                .register::<Timed>()
                .queue("default", SLOTS)
                .start()
                .await
        });
        Bench { runtime, engine: engine.expect("an engine") }
    }

    pub(crate) fn cost(&self, f: impl FnOnce(&Bench)) -> Cost {
        let (cpu, start) = (process::cpu(), Instant::now());
        f(self);
        Cost { wall: start.elapsed().as_secs_f64(), cpu: process::cpu() - cpu }
    }

    /// Submits `tasks` in batches, two of them under way: one is made while the
    /// other is written, as a program that loads many would do it.
    pub(crate) fn submit<K: Plain>(&self, batch: usize, tasks: usize) {
        let half = |first: usize| {
            let engine = self.engine.clone();
            let batches = (tasks / batch + first) / 2;
            self.runtime.spawn(async move {
                for _ in 0..batches {
                    let batch = (0..batch).map(|_| engine.submit(K::new()));
                    engine.submit_all(batch).await.expect("written");
                }
            })
        };
        let (one, other) = (half(0), half(1));
        self.runtime.block_on(async {
            one.await.expect("no panic");
            other.await.expect("no panic");
        });
    }

    /// Lets a paused engine go and waits until `tasks` ends are in the store.
    pub(crate) fn drain(&self, tasks: usize) {
        self.runtime.block_on(async {
            self.engine.resume_node().await.expect("resumed");
            self.recorded(tasks).await;
        });
    }

    /// Waits until so many ends are in the store.
    pub(crate) async fn recorded(&self, tasks: usize) {
        while self.engine.status().consumed < tasks as u64 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Waits until nothing is held, then stops.
    pub(crate) fn end(self) {
        self.runtime.block_on(self.engine.shutdown(Duration::from_secs(10))).expect("a quiet end");
    }
}
