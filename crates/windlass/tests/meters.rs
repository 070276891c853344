//! What the engine measures, compared with what the store knows: the same
//! attempts, retries, dead letters and steps, whatever happened to them on the
//! way. There is one recorder for the process, so the scenarios take turns and
//! look at what was added.

#![allow(clippy::expect_used, clippy::panic)] // a test fails by panicking

mod bench_of_engines;

use bench_of_engines::{Ground, LEASE, eventually, job, millis, on_both_stores, secs, within};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use std::collections::BTreeMap;
use std::sync::OnceLock;
use tokio::sync::{Mutex, MutexGuard};
use windlass::core::store::{Attempt, AttemptEnd, Store};
use windlass::metric_names as names;
use windlass::prelude::*;
use windlass::{Query, State, Task};
use windlass_conformance::faults::{Call, Fault, FaultyStore};

on_both_stores!(
    counters_say_what_the_store_says,
    a_lost_answer_is_counted_once,
    an_answer_that_comes_after_the_next_attempt_counts_for_its_own,
    what_is_lost_is_counted_by_the_loser_and_by_the_taker,
    only_new_tasks_are_submitted,
    calls_of_the_store_are_counted_by_their_outcome,
);

/// Name and labels, as rendered, and the value.
type Values = BTreeMap<String, f64>;

/// The recorder, for one scenario at a time.
struct Meter {
    _turn: MutexGuard<'static, ()>,
    recorder: &'static PrometheusHandle,
    before: Values,
}

impl Meter {
    async fn new() -> Meter {
        static TURN: Mutex<()> = Mutex::const_new(());
        static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();
        let turn = TURN.lock().await;
        let install = || PrometheusBuilder::new().install_recorder().expect("the only recorder");
        let recorder = RECORDER.get_or_init(install);
        Meter { _turn: turn, recorder, before: values(recorder) }
    }

    /// What was added since the scenario began, without what stayed the same.
    fn added(&self) -> Values {
        let mut now = values(self.recorder);
        now.iter_mut().for_each(|(key, v)| *v -= self.before.get(key).unwrap_or(&0.0));
        now.retain(|_, v| *v != 0.0);
        now
    }

    /// Of one name, by the value of one label; `""` without one.
    fn by(&self, name: &str, label: &str) -> BTreeMap<String, u64> {
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        for (key, value) in self.added() {
            let (of, labels) = key.split_once('{').unwrap_or((&key, ""));
            if of == name {
                let word = labels.split(&format!("{label}=\"")).nth(1).unwrap_or("");
                let word = word.split('"').next().unwrap_or("").to_owned();
                *sums.entry(word).or_default() += value as u64;
            }
        }
        sums
    }

    fn sum(&self, name: &str) -> u64 {
        self.by(name, "none").values().sum()
    }

    fn samples(&self, name: &str, label: &str) -> BTreeMap<String, u64> {
        self.by(&format!("{name}_count"), label)
    }
}

fn values(recorder: &PrometheusHandle) -> Values {
    let text = recorder.render();
    let lines = text.lines().filter(|l| !l.starts_with('#') && !l.contains("quantile="));
    let value = |line: &str| {
        let (key, value) = line.rsplit_once(' ')?;
        Some((key.to_owned(), value.parse().ok()?))
    };
    lines.filter_map(value).collect()
}

/// What the store knows about all tasks.
#[derive(Default)]
struct Known {
    tasks: Vec<Task>,
    attempts: Vec<Attempt>,
}

impl Known {
    async fn of(store: &dyn Store, now: windlass::Timestamp) -> Known {
        let query = Query { limit: 500, ..Query::default() };
        let tasks = store.tasks(query, now).await.expect("a page").items;
        let mut attempts = vec![];
        for task in &tasks {
            attempts.extend(store.attempts(task.id).await.expect("attempts"));
        }
        Known { tasks, attempts }
    }

    fn ends(&self) -> BTreeMap<String, u64> {
        count(self.attempts.iter().filter_map(|a| match a.ended?.0 {
            AttemptEnd::Settled(state) => Some(state.as_str().to_owned()),
            AttemptEnd::Lost => Some("lost".to_owned()),
            AttemptEnd::GivenBack => None,
        }))
    }

    fn ended_tasks(&self) -> BTreeMap<String, u64> {
        let ended = self.tasks.iter().filter(|t| t.state().is_ended());
        count(ended.map(|t| t.state().as_str().to_owned()))
    }

    fn reasons(&self) -> BTreeMap<String, u64> {
        let reason = |t: &Task| t.standing.failure.as_ref()?.reason;
        count(self.tasks.iter().filter_map(reason).map(|r| r.as_str().to_owned()))
    }

    fn steps(&self) -> u64 {
        self.attempts.iter().map(|a| a.steps.len() as u64).sum()
    }

    fn retries(&self) -> u64 {
        self.tasks.iter().map(|t| u64::from(t.standing.retries)).sum()
    }
}

fn count(words: impl Iterator<Item = String>) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    words.for_each(|word| *counts.entry(word).or_default() += 1);
    counts
}

fn counts(pairs: &[(&str, u64)]) -> BTreeMap<String, u64> {
    pairs.iter().map(|(word, n)| ((*word).to_owned(), *n)).collect()
}

/// Ends as its name says; what is tried again goes well then.
#[derive(Clone, Serialize, Deserialize)]
struct Ends {
    how: String,
}

fn ends(how: &str) -> Ends {
    Ends { how: how.to_owned() }
}

impl TaskKind for Ends {
    const NAME: &'static str = "ends";
    type Output = ();

    fn options() -> KindOptions {
        KindOptions::new().queue("metered").step_retries(0)
    }

    async fn run(self, cx: Cx) -> Result<(), TaskError> {
        cx.step("first", || async { Ok::<_, TaskError>(1) }).await?;
        if cx.attempt() > 1 && self.how != "exhausted" {
            return Ok(());
        }
        match self.how.as_str() {
            "retryable" | "exhausted" => Err(retryable("busy")),
            "unknown" => Err("nobody knows".parse::<u32>().expect_err("no number").into()),
            "step" => cx.step("second", || async { Err(retryable("busy")) }).await,
            "panic" => panic!("as asked"),
            "fatal" => Err(fatal("broken")),
            "given_up" => Err(fail("enough")),
            "snooze" => Err(snooze(secs(5))),
            "skip" => Err(skip("not needed")),
            _ => Ok(()),
        }
    }
}

async fn counters_say_what_the_store_says(ground: Ground) {
    let meter = Meter::new().await;
    let engine = ground.builder().register::<Ends>().start().await.expect("an engine");
    let hows = ["done", "retryable", "unknown", "step", "panic", "fatal", "given_up", "snooze"];
    for how in hows.into_iter().chain(["skip"]).flat_map(|how| [how, how]) {
        engine.submit(ends(how)).await.expect("written");
    }
    let once = Exponential { retries: 1, ..Exponential::TASK };
    let last = engine.submit(ends("exhausted")).retry(once).await.expect("written");
    let cancelled = engine.submit(job("cancelled").waiting()).await.expect("written");
    let paused = engine.submit(job("paused").steps(2).waiting_in(0, 1)).await.expect("written");
    let released = engine.submit(job("released").steps(2).waiting_in(1, 1)).await.expect("written");
    ground.floor.until_running("all", 3).await;
    engine.cancel(cancelled.id()).await.expect("a cancel");
    engine.pause(paused.id()).await.expect("a pause");
    ground.floor.open("paused");
    while ground.task(&paused).await.state() != State::Paused
        || !ground.task(&cancelled).await.state().is_ended()
        || !ground.task(&last).await.state().is_ended()
    {
        ground.pass(secs(1), &[&engine]).await;
    }
    ground.pass(secs(30), &[&engine]).await;
    engine.shutdown(millis(0)).await.expect("a good-bye");
    assert_eq!(ground.task(&released).await.state(), State::Queued);

    let known = Known::of(&*ground.store, engine.now()).await;
    let attempts = [
        ("completed", 14),
        ("retrying", 9),
        ("failed", 5),
        ("scheduled", 2),
        ("cancelled", 1),
        ("paused", 1),
        ("queued", 1),
    ];
    assert_eq!(meter.by(names::TASK_ATTEMPTS, "outcome"), counts(&attempts));
    assert_eq!(meter.by(names::TASK_ATTEMPTS, "outcome"), known.ends());
    assert_eq!(meter.samples(names::TASK_RUN_DURATION, "outcome"), known.ends());
    assert_eq!(meter.samples(names::TASK_TOTAL_DURATION, "outcome"), known.ended_tasks());
    assert_eq!(meter.sum(names::TASKS_SUBMITTED), known.tasks.len() as u64);
    let waits: u64 = meter.samples(names::TASK_WAIT_DURATION, "kind").values().sum();
    assert_eq!(waits, known.attempts.len() as u64);
    let classes = [("retryable", 5), ("unknown", 2), ("panic", 2)];
    assert_eq!(meter.by(names::TASK_RETRIES, "reason"), counts(&classes));
    assert_eq!(meter.sum(names::TASK_RETRIES), known.retries());
    assert_eq!(
        meter.by(names::DEAD_LETTERS_ENTERED, "reason"),
        counts(&[("exhausted", 1), ("fatal", 4)])
    );
    assert_eq!(meter.by(names::DEAD_LETTERS_ENTERED, "reason"), known.reasons());
    let by_queue = meter.by(names::TASK_ATTEMPTS, "queue");
    assert_eq!(by_queue, counts(&[("default", 3), ("metered", 30)]));
    let checkpoints = meter.by(names::CHECKPOINT_OPERATIONS, "operation");
    assert_eq!(checkpoints.get("save"), Some(&known.steps()));
    let resumed = known.attempts.iter().filter(|a| a.attempt > 1).count() as u64;
    assert_eq!(checkpoints.get("resume"), Some(&resumed));
    assert_eq!((meter.sum(names::STALE_WRITES_REFUSED), meter.sum(names::LEASES_EXPIRED)), (0, 0));
}

async fn a_lost_answer_is_counted_once(ground: Ground) {
    let meter = Meter::new().await;
    let faulty = FaultyStore::new(ground.store.clone());
    let builder = ground.before(faulty.clone()).register::<Ends>();
    let engine = builder.start().await.expect("an engine");
    for how in ["done", "retryable", "fatal", "snooze"] {
        // The step, and then the end: each is written, and the answer lost.
        faulty.script_for(Call::Record, [Fault::After, Fault::Pass, Fault::After, Fault::Pass]);
        let handle = engine.submit(ends(how)).await.expect("written");
        while !ground.task(&handle).await.state().is_ended() {
            ground.pass(millis(500), &[&engine]).await;
        }
    }
    engine.shutdown(secs(1)).await.expect("a good-bye");
    assert!(faulty.count(Call::Record, Fault::After) >= 8);
    let known = Known::of(&*ground.store, engine.now()).await;
    let attempts = [("completed", 3), ("retrying", 1), ("failed", 1), ("scheduled", 1)];
    assert_eq!(known.ends(), counts(&attempts));
    assert_eq!(meter.by(names::TASK_ATTEMPTS, "outcome"), counts(&attempts));
    assert_eq!(meter.by(names::TASK_RETRIES, "reason"), counts(&[("retryable", 1)]));
    assert_eq!(meter.by(names::DEAD_LETTERS_ENTERED, "reason"), counts(&[("fatal", 1)]));
    let checkpoints = meter.by(names::CHECKPOINT_OPERATIONS, "operation");
    assert_eq!(checkpoints.get("save"), Some(&known.steps()));
}

async fn an_answer_that_comes_after_the_next_attempt_counts_for_its_own(ground: Ground) {
    let meter = Meter::new().await;
    let faulty = FaultyStore::new(ground.store.clone());
    let builder = ground.before(faulty.clone()).register::<Ends>();
    let engine = builder.start().await.expect("an engine");
    // The step is written; the end is too, and nobody hears of it for long.
    let quiet = std::iter::repeat_n(Fault::Before, 15);
    faulty.script_for(Call::Record, [Fault::Pass, Fault::After].into_iter().chain(quiet));
    let handle = engine.submit(ends("retryable")).await.expect("written");
    while !ground.task(&handle).await.state().is_ended() {
        ground.pass(millis(500), &[&engine]).await;
        let now = ground.task(&handle).await.standing;
        let unheard = faulty.count(Call::Record, Fault::Before) < 15;
        assert!(now.state != State::Completed || !unheard, "the next attempt ended first");
    }
    engine.shutdown(secs(1)).await.expect("a good-bye");
    assert_eq!(faulty.count(Call::Record, Fault::Before), 15);
    let attempts = counts(&[("completed", 1), ("retrying", 1)]);
    assert_eq!(meter.by(names::TASK_ATTEMPTS, "outcome"), attempts);
    assert_eq!(meter.by(names::TASK_RETRIES, "reason"), counts(&[("retryable", 1)]));
}

async fn what_is_lost_is_counted_by_the_loser_and_by_the_taker(ground: Ground) {
    let meter = Meter::new().await;
    let faulty = FaultyStore::new(ground.store.clone());
    let away = ground.before(faulty.clone()).start().await.expect("an engine");
    let stays = ground.engine().await;
    stays.pause_node().await.expect("a pause");
    let jobs = ["a", "b", "c"].map(|name| job(name).steps(2).waiting_in(1, 1));
    let jobs = jobs.into_iter().chain([job("d").steps(1).waiting_in(1, 1)]);
    let handles = away.submit_all(jobs.map(|job| away.submit(job))).await.expect("written");
    ground.floor.until(|log| log.steps.len() == 7).await;
    faulty.hold();
    // A step of one, and the end of another, are on their way when the lease ends.
    ground.floor.open("a");
    ground.floor.open("d");
    faulty.until_held(1).await;
    ground.floor.until(|log| log.finished.contains(&"d".to_owned())).await;
    stays.resume_node().await.expect("a resume");
    ground.pass(LEASE * 3, &[&stays]).await;
    for handle in &handles {
        stays.handle::<String>(handle.id()).result().await.expect("a name");
    }
    faulty.release();
    eventually("it joins again", || away.status().rejoined == 1).await;
    eventually("the late writes are refused", || away.status().stale_writes_refused == 2).await;
    eventually("all are lost", || away.status().leases_lost == 4).await;
    away.shutdown(secs(1)).await.expect("a good-bye");
    stays.shutdown(secs(1)).await.expect("a good-bye");
    let known = Known::of(&*ground.store, stays.now()).await;
    assert_eq!(known.ends(), counts(&[("completed", 4), ("lost", 4)]));
    assert_eq!(meter.by(names::TASK_ATTEMPTS, "outcome"), known.ends());
    assert_eq!(meter.by(names::LEASES_EXPIRED, "queue"), counts(&[("default", 4)]));
    assert_eq!(meter.sum(names::STALE_WRITES_REFUSED), 2);
    let checkpoints = meter.by(names::CHECKPOINT_OPERATIONS, "outcome");
    assert_eq!(checkpoints.get("refused"), Some(&1), "the step");
    let waits: u64 = meter.samples(names::TASK_WAIT_DURATION, "kind").values().sum();
    assert_eq!(waits, 4, "what is taken over has waited before");
}

async fn only_new_tasks_are_submitted(ground: Ground) {
    let meter = Meter::new().await;
    let builder = ground.builder().handler("noted", |_: StepCall| async { Ok(true.into()) });
    let engine = builder.start().await.expect("an engine");
    let first = engine.submit(job("a")).idempotency_key("k").await.expect("written");
    engine.submit(job("a")).idempotency_key("k").await.expect("the same");
    engine.submit(job("b").waiting()).unique("u").await.expect("written");
    engine.submit(job("b").waiting()).unique("u").await.expect("the same");
    let same = ["x", "y", "y"].map(|name| engine.submit(job(name)).unique(name));
    engine.submit_all(same).await.expect("two are new");
    let none: [&str; 0] = [];
    engine.submit_named("noted", &()).steps(none).await.expect_err("null is no payload");
    engine.submit_named("noted", &serde_json::json!({})).steps(none).await.expect("written");
    first.result().await.expect("a name");
    engine.rerun::<String>(first.id()).await.expect("a new task").result().await.expect("a name");
    engine.rerun::<String>(windlass::TaskId::from_key(7)).await.expect_err("there is none");
    ground.floor.open_all();
    engine.shutdown(secs(5)).await.expect("a good-bye");
    let expected = counts(&[("job", 5), ("noted", 1)]);
    assert_eq!(meter.by(names::TASKS_SUBMITTED, "kind"), expected);
    assert_eq!(ground.tasks().await, 6);
    let whole = meter.samples(names::TASK_TOTAL_DURATION, "kind");
    assert_eq!(whole, expected, "a plan without steps has ended at its birth");
}

async fn calls_of_the_store_are_counted_by_their_outcome(ground: Ground) {
    let meter = Meter::new().await;
    let faulty = FaultyStore::new(ground.store.clone());
    let engine = ground.before(faulty.clone()).start().await.expect("an engine");
    faulty.script_for(Call::Submit, [Fault::Before]);
    engine.submit(job("a")).await.expect_err("the store does not answer");
    engine.submit(job("a")).await.expect("written").result().await.expect("a name");
    engine.submit(job("b")).await.expect("written").result().await.expect("a name");
    engine.task(windlass::TaskId::from_key(7)).await.expect("an answer");
    engine.shutdown(secs(1)).await.expect("a good-bye");
    let mut submits: BTreeMap<String, f64> = meter.added();
    submits.retain(|key, _| key.contains("operation=\"submit\""));
    let count = |part: &str| -> f64 {
        submits.iter().filter(|(key, _)| key.contains(part)).map(|(_, v)| v).sum()
    };
    assert_eq!((count("outcome=\"ok\""), count("outcome=\"unavailable\"")), (2.0, 1.0));
    assert_eq!(count("windlass_store_operation_duration_seconds_count"), 3.0);
    let operations = meter.by(names::STORE_OPERATIONS, "operation");
    for operation in ["join", "claim", "record", "renew", "upkeep", "task", "next_due"] {
        assert!(operations.contains_key(operation), "{operation} is missing: {operations:?}");
    }
    let store = meter.by(names::STORE_OPERATIONS, "store");
    assert_eq!(store.keys().collect::<Vec<_>>(), [engine.store_name()]);
    assert!(meter.recorder.render().contains("windlass_build_info{version=\"0."));
    let described = meter.recorder.render();
    assert!(described.contains("# HELP windlass_task_attempts_total Attempts that ended"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_in_a_callers_transaction_is_counted_with_its_commit() {
    let ground = Ground::sqlite().await;
    within(async {
        let meter = Meter::new().await;
        let engine = ground.engine().await;
        let dir = ground.dir.as_ref().expect("a store in a file");
        let conn = rusqlite::Connection::open(dir.path().join("bench.db"));
        let mut conn = conn.expect("a connection");
        for commits in [true, false] {
            let mut tx = conn.transaction().expect("a transaction");
            let submitted = engine.submit_in(&mut tx, job("a")).await.expect("submitted");
            assert_eq!(meter.sum(names::TASKS_SUBMITTED), u64::from(!commits), "not yet");
            if commits {
                tx.commit().expect("a commit");
                submitted.committed().result().await.expect("a name");
            }
        }
        engine.shutdown(secs(1)).await.expect("a good-bye");
        assert_eq!((meter.sum(names::TASKS_SUBMITTED), ground.tasks().await), (1, 1));
    })
    .await;
}
