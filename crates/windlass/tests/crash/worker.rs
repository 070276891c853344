//! The process that dies: an ordinary program with an engine on a SQLite file.
//! It submits its tasks while it works on them, goes on where the ledger says it
//! was, ends by itself when everything is done, and stops on SIGTERM as a
//! service should. It knows nothing of who kills it or when.

use crate::ledger::{self, Fact, Ledger};
use crate::tasks::{Bench, Chain, Flaky, Killer, STEPS};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use windlass::{Code, Engine, Windlass, shutdown_signal};
use windlass_core::retry::Exponential;

/// Submissions under way at once.
const SUBMITTERS: usize = 4;

/// What the process has to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Work {
    pub(crate) folder: PathBuf,
    /// Chains to submit in all; number `n` takes `step_ms[n % len]` per step.
    pub(crate) chains: u64,
    pub(crate) step_ms: Vec<u64>,
    /// The same for the steps after the first one of a first attempt, if they
    /// differ.
    pub(crate) first_ms: Option<Vec<u64>>,
    /// Each so many-th chain fails once, after its first step; 0: none does.
    pub(crate) fails: u64,
    /// One task that kills the process.
    pub(crate) killer: bool,
    /// One task that fails at first.
    pub(crate) flaky: bool,
    /// Most tasks submitted and not ended.
    pub(crate) window: usize,
    pub(crate) slots: usize,
    /// How often the engine looks around although nobody rang.
    pub(crate) poll: Duration,
    pub(crate) grace: Duration,
    /// How long a node lives before it tries a task that may be the death of it.
    pub(crate) suspects_wait: Duration,
}

impl Work {
    pub(crate) fn ledger(&self) -> PathBuf {
        self.folder.join("ledger")
    }

    pub(crate) fn url(&self) -> String {
        format!("sqlite://{}?synchronous=full", self.database().display())
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.folder.join("tasks.db")
    }

    /// How long this step of a chain takes in this attempt.
    pub(crate) fn step_takes(&self, number: u64, attempt: u32, step: &str) -> Duration {
        let differs = attempt == 1 && step != STEPS[0];
        let list = self.first_ms.as_ref().filter(|_| differs).unwrap_or(&self.step_ms);
        let index = usize::try_from(number).expect("few") % list.len();
        Duration::from_millis(list[index])
    }

    /// Whether this chain fails once.
    pub(crate) fn fails(&self, number: u64) -> bool {
        self.fails > 0 && number % self.fails == self.fails - 1
    }
}

/// Chains that fail do not wait long.
const SOON: Exponential = Exponential { first: Duration::from_millis(20), ..Exponential::TASK };

/// Submissions with an even number carry a key, and are asked again with it.
pub(crate) fn key_of(number: u64) -> Option<String> {
    number.is_multiple_of(2).then(|| format!("chain {number}"))
}

/// Runs until everything is done or a signal comes.
pub(crate) fn main(work: &Work) {
    let log = tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false);
    log.with_env_filter("warn").init();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(live(work));
}

async fn live(work: &Work) {
    // First of all: a signal must find its handler.
    let mut asked_to_stop = std::pin::pin!(shutdown_signal());
    listen(&mut asked_to_stop).await;
    let todo = open_numbers(&work.ledger(), work.chains);
    let ledger = Ledger::open(&work.ledger());
    let room = Arc::new(Semaphore::new(0));
    let begun = Semaphore::new(0);
    let bench = Bench { ledger: ledger.clone(), room: room.clone(), begun, work: work.clone() };
    let engine = Windlass::open(&work.url())
        .await
        .expect("a store")
        .register::<Chain>()
        .register::<Killer>()
        .register::<Flaky>()
        .queue("default", work.slots)
        .settings(|settings| {
            settings.poll = work.poll;
            settings.suspects_wait = work.suspects_wait;
        })
        .state(bench)
        .start()
        .await
        .expect("an engine");
    ledger.write(Fact::Ready).await;
    room.add_permits(work.window.saturating_sub(unended(&engine).await));
    let mut submitters = submitters(work, &engine, &ledger, &room, todo);
    tokio::select! {
        () = everything_done(&engine, &mut submitters) => {
            engine.shutdown(work.grace).await.expect("a quiet end");
        }
        () = &mut asked_to_stop => {
            stop(&engine, &ledger, work.grace).await;
        }
    }
}

/// Polls once, so that the handler is there from now on.
async fn listen(signal: &mut (impl Future<Output = ()> + Unpin)) {
    tokio::select! {
        biased;
        () = signal => panic!("a signal too early"),
        () = std::future::ready(()) => {}
    }
}

/// A second signal leaves no time.
async fn stop(engine: &Engine, ledger: &Ledger, grace: Duration) {
    let mut again = std::pin::pin!(shutdown_signal());
    listen(&mut again).await;
    ledger.write(Fact::Stopping).await;
    let stopped = tokio::select! {
        stopped = engine.shutdown(grace) => stopped,
        () = again => engine.shutdown(Duration::ZERO).await,
    };
    stopped.expect("a quiet end");
}

/// Numbers whose submission was never answered.
fn open_numbers(path: &Path, chains: u64) -> VecDeque<u64> {
    let acked: BTreeSet<u64> = ledger::read(path)
        .into_iter()
        .filter_map(|line| match line.fact {
            Fact::Acked(number, _) => Some(number),
            _ => None,
        })
        .collect();
    (0..chains).filter(|number| !acked.contains(number)).collect()
}

async fn unended(engine: &Engine) -> usize {
    let stats = engine.reader().stats().await.expect("totals");
    let open = stats.states.iter().filter(|(state, _)| !state.is_ended()).map(|(_, n)| n);
    usize::try_from(open.sum::<u64>()).expect("few")
}

fn submitters(
    work: &Work,
    engine: &Engine,
    ledger: &Ledger,
    room: &Arc<Semaphore>,
    todo: VecDeque<u64>,
) -> JoinSet<()> {
    let todo = Arc::new(Mutex::new(todo));
    let mut all = JoinSet::new();
    let (one, keeper) = (work.clone(), engine.clone());
    all.spawn(async move { specials(&one, &keeper).await });
    for _ in 0..SUBMITTERS {
        let (engine, ledger) = (engine.clone(), ledger.clone());
        let (room, todo) = (room.clone(), todo.clone());
        all.spawn(async move {
            loop {
                let next = todo.lock().expect("no panic").pop_front();
                let Some(number) = next else { return };
                room.acquire().await.expect("open for ever").forget();
                ledger.write(Fact::Asked(number)).await;
                let mut submission = engine.submit(Chain { number }).retry(SOON);
                if let Some(key) = key_of(number) {
                    submission = submission.idempotency_key(key);
                }
                match submission.await {
                    Ok(handle) => ledger.write(Fact::Acked(number, handle.id())).await,
                    Err(error) if error.code() == Code::Draining => return,
                    Err(error) => panic!("chain {number} was not taken: {error}"),
                }
            }
        });
    }
    all
}

/// The tasks that are no chains, once.
async fn specials(work: &Work, engine: &Engine) {
    if work.killer {
        // It shall have company: others run already, and it is the next.
        let mut look = tokio::time::interval(Duration::from_millis(5));
        while engine.status().consumed < 4 {
            look.tick().await;
        }
        let killer = engine.submit(Killer {}).idempotency_key("killer").priority(10);
        killer.await.expect("written");
    }
    if work.flaky {
        engine.submit(Flaky {}).idempotency_key("flaky").await.expect("written");
    }
}

async fn everything_done(engine: &Engine, submitters: &mut JoinSet<()>) {
    while let Some(done) = submitters.join_next().await {
        done.expect("a submitter");
    }
    let mut look = tokio::time::interval(Duration::from_millis(20));
    while unended(engine).await > 0 {
        look.tick().await;
    }
}
