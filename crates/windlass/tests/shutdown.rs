//! Stopping: with time to finish, without, in the middle of things, and not at
//! all (an engine that is dropped stops as a killed process does). The next
//! engine goes on at the first unfinished step, and nothing is burnt.

#![allow(clippy::expect_used, clippy::panic)] // a test fails by panicking

mod bench_of_engines;

use bench_of_engines::{Ground, Job, LEASE, eventually, job, on_both_stores, secs, settle, within};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use windlass::core::clock::{Clock, Now};
use windlass::core::state::State;
use windlass::core::store::{AttemptEnd, Job as Chore};
use windlass::prelude::*;
use windlass::{Code, Pool};
use windlass_conformance::faults::{Call, Fault, FaultyStore};

on_both_stores!(
    what_runs_is_finished,
    what_does_not_finish_goes_back_and_burns_nothing,
    without_grace_everything_goes_back_at_once,
    nothing_is_submitted_during_a_shutdown,
    a_task_that_waits_to_be_alone_goes_back,
    a_shutdown_nobody_waits_for_goes_on,
    a_grace_without_end_is_no_panic,
    a_state_that_holds_the_engine_is_let_go,
    code_that_will_not_end_does_not_hang_the_shutdown,
    a_late_heartbeat_does_not_join_again,
    a_store_that_is_away_does_not_hang_the_shutdown,
    a_shutdown_can_be_asked_for_twice,
    a_node_without_work_leaves_nothing,
);

/// Stops in the background; the test moves the clock.
fn stop(engine: &Engine, grace: Duration) -> tokio::task::JoinHandle<windlass::Result<()>> {
    let engine = engine.clone();
    tokio::spawn(async move { engine.shutdown(grace).await })
}

async fn what_runs_is_finished(ground: Ground) {
    let engine = ground.engine().await;
    let jobs = (0..6).map(|i| engine.submit(job(format!("{i}")).waiting()));
    let handles = engine.submit_all(jobs).await.expect("written");
    ground.floor.until_running("all", 4).await;
    let stopping = stop(&engine, secs(30));
    eventually("it drains", || engine.status().draining).await;
    ground.clock.advance(secs(5));
    settle().await;
    assert!(!stopping.is_finished(), "four are still running");
    ground.floor.open_all();
    stopping.await.expect("no panic").expect("an end");
    let mut states = vec![];
    for handle in &handles {
        states.push(ground.task(handle).await.state());
    }
    assert_eq!(states.iter().filter(|s| **s == State::Completed).count(), 4);
    assert_eq!(states.iter().filter(|s| **s == State::Queued).count(), 2, "not begun any more");
    assert!(ground.store.nodes().await.expect("nodes").is_empty(), "it said good-bye");
    let ended = handles[0].ended().await.expect("a handle still reads").state();
    assert_eq!(ended, State::Completed);
}

/// Moves the clock until the engine has stopped, at the pace of the store.
async fn stopped(
    ground: &Ground,
    engine: &Engine,
    stopping: tokio::task::JoinHandle<windlass::Result<()>>,
) -> windlass::Result<()> {
    eventually("it drains", || engine.status().draining).await;
    let began = ground.clock.uptime();
    while !stopping.is_finished() {
        for _ in 0..10 {
            // Behind whatever the engine has sent to the store.
            let now = Now::At(ground.clock.now());
            ground.store.upkeep(Chore::Keys, 1, now).await.expect("a write");
            settle().await;
        }
        ground.clock.advance(Duration::from_millis(100));
        assert!(ground.clock.uptime() - began < secs(28), "the shutdown hangs");
    }
    stopping.await.expect("no panic")
}

/// A task in its second step is released by `shutdown(grace)`.
async fn goes_back(ground: Ground, grace: Duration) {
    let engine = ground.engine().await;
    let jobs = ["a", "b"].map(|name| engine.submit(job(name).steps(3).waiting_in(1, 1)));
    let handles = engine.submit_all(jobs).await.expect("written");
    ground.floor.until(|log| log.steps.len() == 4).await;
    let stopping = stop(&engine, grace);
    if !grace.is_zero() {
        eventually("it drains", || engine.status().draining).await;
        settle().await;
        ground.clock.advance(grace);
    }
    stopping.await.expect("no panic").expect("an end");
    let log = ground.floor.log();
    assert_eq!((log.running("all"), log.finished.len()), (0, 0));
    for handle in &handles {
        let task = ground.task(handle).await;
        assert_eq!(task.state(), State::Queued);
        assert_eq!((task.standing.retries, task.standing.crashes), (0, 0));
        let attempts = ground.store.attempts(handle.id()).await.expect("attempts");
        // A claim that was on its way when the stop came may take it once more; its
        // answer finds nobody, and the good-bye gives it back, nothing burnt.
        let ends: Vec<_> = attempts.iter().map(|a| a.ended.map(|e| e.0)).collect();
        assert_eq!(ends[0], Some(AttemptEnd::Settled(State::Queued)));
        assert!(ends[1..].iter().all(|end| *end == Some(AttemptEnd::GivenBack)), "{ends:?}");
        let waits = handle.result().await.expect_err("the engine has stopped");
        assert_eq!(waits.code(), Code::Draining, "{waits}");
    }
    let next = ground.engine().await;
    for (handle, name) in handles.iter().zip(["a", "b"]) {
        next.handle::<String>(handle.id()).result().await.expect("a name");
        let log = ground.floor.log();
        let tries: Vec<_> = (0..3).map(|step| log.tries(name, step)).collect();
        assert_eq!(tries, [1, 2, 1], "it goes on at the first unfinished step");
    }
}

async fn what_does_not_finish_goes_back_and_burns_nothing(ground: Ground) {
    goes_back(ground, secs(10)).await;
}

async fn without_grace_everything_goes_back_at_once(ground: Ground) {
    goes_back(ground, Duration::ZERO).await;
}

async fn nothing_is_submitted_during_a_shutdown(ground: Ground) {
    let engine = ground.engine().await;
    let held = engine.submit(job("held").waiting()).await.expect("written");
    ground.floor.until_begun("held").await;
    let stopping = stop(&engine, secs(30));
    eventually("it drains", || engine.status().draining).await;
    let refused = engine.submit(job("late")).await.expect_err("it stops");
    assert_eq!(refused.code(), Code::Draining, "{refused}");
    let refused = engine.submit_all([engine.submit(job("late"))]).await.expect_err("it stops");
    assert_eq!(refused.code(), Code::Draining);
    ground.floor.open_all();
    stopping.await.expect("no panic").expect("an end");
    held.result().await.expect("a name");
    let refused = engine.submit(job("late")).await.expect_err("it has stopped");
    assert_eq!((refused.code(), ground.tasks().await), (Code::Draining, 1));
}

async fn a_shutdown_nobody_waits_for_goes_on(ground: Ground) {
    let engine = ground.engine().await;
    let handle = engine.submit(job("slow").steps(1).waiting_in(0, 1)).await.expect("written");
    ground.floor.until_begun("slow").await;
    {
        let mut dropped = std::pin::pin!(engine.shutdown(Duration::ZERO));
        tokio::select! {
            biased;
            _ = &mut dropped => panic!("too quick for this test"),
            () = std::future::ready(()) => {}
        }
    }
    handle.ended().await.expect_err("the engine stops");
    let task = ground.store.task(handle.id()).await.expect("a read").expect("a task");
    assert_eq!((task.state(), task.standing.retries), (State::Queued, 0));
    assert!(ground.store.nodes().await.expect("nodes").is_empty());
}

async fn a_grace_without_end_is_no_panic(ground: Ground) {
    let engine = ground.engine().await;
    engine.submit(job("a")).await.expect("written").result().await.expect("a name");
    engine.shutdown(Duration::MAX).await.expect("an end");
}

/// What a program may be tempted to give its tasks.
#[derive(Default)]
struct Loop(Mutex<Option<windlass::Engine>>);

async fn a_state_that_holds_the_engine_is_let_go(ground: Ground) {
    let state = Arc::new(Loop::default());
    let weak = Arc::downgrade(&state);
    let engine = ground.builder().state(state.clone()).start().await.expect("an engine");
    *state.0.lock().expect("no panic") = Some(engine.clone());
    drop(state);
    engine.shutdown(secs(1)).await.expect("an end");
    drop(engine);
    assert_eq!(weak.strong_count(), 0, "a circle is left");
}

async fn a_task_that_waits_to_be_alone_goes_back(ground: Ground) {
    let mut engine = ground.engine().await;
    let bad = engine.submit(job("bad").steps(1).waiting_in(0, 2)).await.expect("written").id();
    for tries in 1..=2 {
        ground.floor.until(|log| log.tries("bad", 0) == tries).await;
        if tries == 2 {
            engine.submit(job("beside").waiting_in(0, 2)).await.expect("written");
            ground.floor.until_begun("beside").await;
        }
        drop(engine);
        ground.floor.until_running("all", 0).await;
        ground.clock.advance(LEASE + secs(1));
        engine = ground.engine().await;
    }
    // It is held, but something else runs.
    ground.floor.until(|log| log.times_begun("beside") == 2).await;
    eventually("both are held", || engine.status().held == 2).await;
    let stopping = stop(&engine, secs(30));
    eventually("it went back", || engine.status().held == 1).await;
    ground.floor.open("beside");
    stopping.await.expect("no panic").expect("an end");
    let task = ground.store.task(bad).await.expect("a read").expect("a task");
    assert_eq!((task.state(), task.standing.crashes), (State::Queued, 2));
    assert_eq!(ground.floor.log().times_begun("bad"), 2);
    let last = ground.engine().await;
    last.handle::<String>(bad).result().await.expect("a name");
}

/// A door that a blocking thread waits behind.
#[derive(Clone, Default)]
struct Door(Arc<(Mutex<bool>, Condvar)>);

impl Door {
    fn pass(&self) {
        let (open, opened) = &*self.0;
        let open = open.lock().expect("no panic");
        drop(opened.wait_while(open, |open| !*open).expect("no panic"));
    }

    fn open(&self) {
        *self.0.0.lock().expect("no panic") = true;
        self.0.1.notify_all();
    }
}

#[derive(Serialize, Deserialize)]
struct Blocks {}

impl TaskKind for Blocks {
    const NAME: &'static str = "blocks";
    type Output = ();
    fn options() -> KindOptions {
        KindOptions::new().pool(Pool::Cpu)
    }
    async fn run(self, cx: Cx) -> Result<(), TaskError> {
        let floor = cx.state::<bench_of_engines::Floor>()?;
        let _place = floor.enter("blocks", cx.task());
        cx.state::<Door>()?.pass();
        Ok(())
    }
}

async fn code_that_will_not_end_does_not_hang_the_shutdown(ground: Ground) {
    let door = Door::default();
    let builder = ground.builder().register::<Blocks>().state(door.clone());
    let engine = builder.start().await.expect("an engine");
    let handle = engine.submit(Blocks {}).await.expect("written");
    ground.floor.until_begun("blocks").await;
    let stopping = stop(&engine, secs(1));
    stopped(&ground, &engine, stopping).await.expect("an end");
    let task = ground.task(&handle).await;
    assert_eq!((task.state(), task.standing.retries), (State::Queued, 0));
    assert_eq!(ground.floor.log().running("all"), 1, "it really blocks");
    door.open();
    ground.floor.until_running("all", 0).await;
    assert_eq!(ground.task(&handle).await.state(), State::Queued, "what it says comes too late");
}

async fn a_late_heartbeat_does_not_join_again(ground: Ground) {
    let faulty = FaultyStore::new(ground.store.clone());
    let engine = ground.before(faulty.clone()).start().await.expect("an engine");
    engine.submit(job("a")).await.expect("written").result().await.expect("a name");
    settle().await;
    let joins = faulty.count(Call::Join, Fault::Pass);
    // Whatever comes first, the answer of the last word is late.
    faulty.script_for(Call::Renew, [Fault::HoldAnswer; 2]);
    let stopping = stop(&engine, Duration::ZERO);
    faulty.until_held(1).await;
    for _ in 0..30 {
        ground.clock.advance(Duration::from_millis(100));
        settle().await;
    }
    faulty.release();
    stopping.await.expect("no panic").expect("an end");
    assert!(faulty.count(Call::Renew, Fault::HoldAnswer) > 0);
    assert_eq!(faulty.count(Call::Join, Fault::Pass), joins);
    assert!(ground.store.nodes().await.expect("nodes").is_empty(), "it is gone for good");
}

async fn a_store_that_is_away_does_not_hang_the_shutdown(ground: Ground) {
    let faulty = FaultyStore::new(ground.store.clone());
    let engine = ground.before(faulty.clone()).start().await.expect("an engine");
    let handle = engine.submit(job("held").waiting()).await.expect("written");
    ground.floor.until_begun("held").await;
    faulty.hold();
    let stopping = stop(&engine, secs(1));
    faulty.until_held(1).await;
    stopped(&ground, &engine, stopping).await.expect_err("the store did not hear of it");
    faulty.release();
    ground.clock.advance(LEASE + secs(1));
    ground.floor.open_all();
    let next = ground.engine().await;
    next.handle::<String>(handle.id()).result().await.expect("a name");
}

async fn a_shutdown_can_be_asked_for_twice(ground: Ground) {
    let engine = ground.engine().await;
    engine.submit(job("a")).await.expect("written").result().await.expect("a name");
    let (one, two) = tokio::join!(engine.shutdown(secs(1)), engine.shutdown(secs(1)));
    assert!(one.is_ok() && two.is_ok());
    engine.shutdown(Duration::ZERO).await.expect("it has stopped already");
    assert!(ground.store.nodes().await.expect("nodes").is_empty());
}

async fn a_node_without_work_leaves_nothing(ground: Ground) {
    for _ in 0..20 {
        let engine = ground.engine().await;
        engine.shutdown(secs(30)).await.expect("an end");
        assert!(ground.store.nodes().await.expect("nodes").is_empty());
    }
}

/// Opens the file as the next process would; the last one may still be going.
async fn open(ground: &Ground, url: &str) -> Engine {
    loop {
        match Windlass::open(url).await {
            Ok(builder) => {
                return ground.fit(builder).register::<Job>().start().await.expect("an engine");
            }
            Err(owned) => assert_eq!(owned.code(), Code::StateConflict, "{owned}"),
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_engine_leaves_its_file_to_the_next_which_recovers_at_once() {
    let ground = Ground::memory().await;
    let dir = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite://{}", dir.path().join("t.db").display());
    within(async {
        let mut ids = vec![];
        for round in 0..3u32 {
            let engine = open(&ground, &url).await;
            for id in &ids {
                // The clock stands still: nobody waits for a lease to end.
                engine.handle::<String>(*id).result().await.expect("a name");
            }
            let jobs = (0..4)
                .map(|i| engine.submit(job(format!("{round}/{i}")).steps(2).waiting_in(1, 1)));
            let handles = engine.submit_all(jobs).await.expect("written");
            ids.extend(handles.iter().map(|h| h.id()));
            let expected = (round as usize + 1) * 8 + round as usize * 4;
            ground.floor.until(|log| log.steps.len() == expected).await;
            drop((engine, handles));
            ground.floor.until_running("all", 0).await;
            ground.clock.advance(Duration::from_millis(1));
        }
        let engine = open(&ground, &url).await;
        for id in ids {
            engine.handle::<String>(id).result().await.expect("a name");
        }
        engine.shutdown(Duration::ZERO).await.expect("an end");
        drop(engine);
        open(&ground, &url).await;
    })
    .await;
}
