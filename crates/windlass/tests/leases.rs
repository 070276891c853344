//! Leases: a node that cannot reach the store loses its tasks to another one,
//! and nothing it says afterwards counts; lost answers burn nothing; a task that
//! kills its nodes is found out. Two engines share one store in this process, one
//! of them behind a store with faults.

#![allow(clippy::expect_used, clippy::panic)] // a test fails by panicking

mod bench_of_engines;

use bench_of_engines::{Ground, LEASE, eventually, job, millis, on_both_stores, secs, settle};
use windlass::core::id::TaskId;
use windlass::core::outcome::Reason;
use windlass::core::state::State;
use windlass::core::store::{Attempt, AttemptEnd};
use windlass::prelude::*;
use windlass_conformance::faults::{Call, Fault, FaultyStore};

on_both_stores!(
    a_node_that_was_away_loses_its_tasks_and_its_late_writes_are_refused,
    a_pause_outlives_the_identity_it_was_given_to,
    losing_the_lease_is_no_crash,
    a_node_that_cannot_renew_stops_claiming_at_two_thirds,
    handlers_are_cancelled_when_the_lease_ends,
    a_lost_claim_answer_burns_nothing,
    a_lost_heartbeat_answer_is_harmless,
    a_task_that_kills_its_nodes_runs_alone_and_is_poisoned,
    a_node_that_dies_young_does_not_die_of_a_suspect,
);

async fn attempts(ground: &Ground, id: TaskId) -> Vec<Attempt> {
    ground.store.attempts(id).await.expect("attempts")
}

fn steps_of(attempt: &Attempt) -> Vec<&str> {
    attempt.steps.iter().map(|e| e.record.name.as_str()).collect()
}

async fn losing_the_lease_is_no_crash(ground: Ground) {
    let faulty = FaultyStore::new(ground.store.clone());
    let away = ground.before(faulty.clone()).start().await.expect("an engine");
    let slow = away.submit(job("slow").steps(1).waiting_in(0, 99)).await.expect("written");
    ground.floor.until(|log| log.tries("slow", 0) == 1).await;
    for lost in 1..=4 {
        faulty.hold();
        ground.pass(LEASE * 2, &[]).await;
        faulty.release();
        eventually("it joins again", || away.status().rejoined == lost).await;
        // The join may have waited for the store, so little of its lease may be left.
        away.renew_now().await.expect("a heartbeat");
        ground.pass(secs(2), &[&away]).await;
        let tries = usize::try_from(lost + 1).expect("few");
        ground.floor.until(|log| log.tries("slow", 0) == tries).await;
    }
    let task = ground.task(&slow).await;
    assert_eq!((task.standing.crashes, task.standing.attempt), (0, 5));
    ground.floor.open("slow");
    assert_eq!(slow.result().await.expect("a name"), "slow");
}

async fn a_pause_outlives_the_identity_it_was_given_to(ground: Ground) {
    let faulty = FaultyStore::new(ground.store.clone());
    let away = ground.before(faulty.clone()).start().await.expect("an engine");
    let first = away.status().node;
    away.pause_node().await.expect("a pause");
    faulty.hold();
    ground.pass(LEASE * 2, &[]).await;
    faulty.release();
    eventually("it joins again", || away.status().rejoined == 1).await;
    away.renew_now().await.expect("a heartbeat");
    let status = away.status();
    assert!(status.paused && status.node != first, "{status:?}");
    let nodes = away.reader().nodes().await.expect("nodes");
    let paused = nodes.iter().find(|n| n.id == status.node).map(|n| n.paused);
    assert_eq!(paused, Some(true));
}

async fn a_node_that_was_away_loses_its_tasks_and_its_late_writes_are_refused(ground: Ground) {
    let faulty = FaultyStore::new(ground.store.clone());
    let away = ground.before(faulty.clone()).start().await.expect("an engine");
    let stays = ground.engine().await;
    stays.pause_node().await.expect("a pause");
    let names = ["a", "b", "c"];
    let jobs = names.map(|name| away.submit(job(name).steps(2).waiting_in(1, 1)));
    let ids: Vec<_> =
        away.submit_all(jobs).await.expect("written").iter().map(|h| h.id()).collect();
    ground.floor.until(|log| log.steps.len() == 6).await;
    let (first, second) = (away.status().node, stays.status().node);

    faulty.hold();
    // One goes on meanwhile, and its step is on its way when the store is gone.
    ground.floor.open("a");
    faulty.until_held(1).await;
    stays.resume_node().await.expect("a resume");
    ground.pass(LEASE * 3, &[&stays]).await;
    // On a busy machine the last poll may have been missed: time goes on until then.
    ground.pass_until(&[&stays], || ground.floor.log().finished.len() >= names.len()).await;
    for (id, name) in ids.iter().zip(names) {
        assert_eq!(stays.handle::<String>(*id).result().await.expect("a name"), name);
    }
    assert!(faulty.total(Fault::Pass) > 0 && away.status().active == 0);
    faulty.release();
    eventually("it joins again", || away.status().rejoined == 1).await;
    eventually("its late write is refused", || away.status().stale_writes_refused > 0).await;

    let log = ground.floor.log();
    for (id, name) in ids.iter().zip(names) {
        let told = attempts(&ground, *id).await;
        assert_eq!(told.len(), 2, "{told:?}");
        assert_eq!((told[0].node, told[1].node), (first, second));
        assert_eq!(told[0].ended.map(|e| e.0), Some(AttemptEnd::Lost));
        assert_eq!((steps_of(&told[0]), steps_of(&told[1])), (vec!["s0"], vec!["s1"]));
        assert_eq!(log.tries(name, 0), 1, "a recorded step ran again");
        assert_eq!(log.finished.iter().filter(|n| *n == name).count(), 1);
    }
    let status = away.status();
    assert_eq!((status.leases_lost, status.held), (3, 0));
    assert_ne!(status.node, first);
    stays.pause_node().await.expect("a pause");
    let again = away.submit(job("again")).await.expect("written");
    // A claim it sent long ago may only arrive now and take this task for the
    // dead incarnation; then it is an orphan, and the next poll finds it.
    let floor = ground.floor.clone();
    let done = move || floor.log().finished.iter().any(|name| name == "again");
    ground.pass_until(&[&away, &stays], done).await;
    again.result().await.expect("a name");
    assert_eq!(ground.task(&again).await.standing.node, Some(status.node));
}

async fn a_node_that_cannot_renew_stops_claiming_at_two_thirds(ground: Ground) {
    let faulty = FaultyStore::new(ground.store.clone());
    let mute = ground.before(faulty.clone()).start().await.expect("an engine");
    let other = ground.engine().await;
    other.pause_node().await.expect("a pause");
    faulty.script_for(Call::Renew, [Fault::Before; 1000]);
    ground.pass(LEASE * 2 / 3 - millis(1), &[&other]).await;
    mute.submit(job("early")).await.expect("written").result().await.expect("a name");
    ground.pass(millis(1), &[&other]).await;
    let late = mute.submit(job("late")).await.expect("written");
    ground.pass(secs(5), &[&other]).await;
    assert_eq!(ground.task(&late).await.state(), State::Queued);
    assert!(faulty.count(Call::Renew, Fault::Before) > 0);
    other.resume_node().await.expect("a resume");
    other.handle::<String>(late.id()).result().await.expect("a name");
}

/// Tells when it is cancelled, from a task of its own.
#[derive(Serialize, Deserialize)]
struct Listens {}

impl TaskKind for Listens {
    const NAME: &'static str = "listens";
    type Output = ();
    async fn run(self, cx: Cx) -> Result<(), TaskError> {
        let floor = cx.state::<bench_of_engines::Floor>()?;
        let (ear, heard) = (cx.clone(), floor.clone());
        tokio::spawn(async move {
            ear.cancelled().await;
            heard.stepped("cancelled", 0);
        });
        let _place = floor.enter("listens", cx.task());
        std::future::pending().await
    }
}

async fn handlers_are_cancelled_when_the_lease_ends(ground: Ground) {
    let faulty = FaultyStore::new(ground.store.clone());
    let builder = ground.before(faulty.clone()).register::<Listens>();
    let engine = builder.start().await.expect("an engine");
    engine.submit(Listens {}).await.expect("written");
    ground.floor.until_begun("listens").await;
    engine.renew_now().await.expect("a heartbeat");
    faulty.hold();
    ground.pass(LEASE - millis(1), &[]).await;
    assert!(ground.floor.log().gone.is_empty(), "the lease has not ended yet");
    ground.clock.advance(millis(1));
    let log = ground.floor.until(|log| !log.gone.is_empty() && !log.steps.is_empty()).await;
    assert_eq!(log.steps, [("cancelled".to_owned(), 0)]);
    eventually("the slot is free", || engine.status().active == 0).await;
    assert_eq!(engine.status().leases_lost, 1);
    faulty.release();
}

async fn a_lost_claim_answer_burns_nothing(ground: Ground) {
    let faulty = FaultyStore::new(ground.store.clone());
    let engine = ground.before(faulty.clone()).start().await.expect("an engine");
    engine.submit(job("warm")).await.expect("written").result().await.expect("a name");
    // A busy machine may lose the answer of a look that found nothing, which proves
    // nothing: then once more.
    for round in 1..=20 {
        settle().await;
        engine.pause_node().await.expect("a pause");
        let jobs = (0..3).map(|i| engine.submit(job(format!("{round}-{i}"))));
        let handles = engine.submit_all(jobs).await.expect("written");
        settle().await;
        faulty.script_for(Call::Claim, [Fault::After]);
        engine.resume_node().await.expect("a resume");
        let mut given_back = 0;
        for handle in &handles {
            handle.result().await.expect("a name");
            let task = ground.task(handle).await;
            assert_eq!((task.standing.retries, task.standing.crashes), (0, 0));
            let told = attempts(&ground, handle.id()).await;
            let first = told[0].ended.map(|e| e.0) == Some(AttemptEnd::GivenBack);
            assert_eq!(told.len(), 1 + usize::from(first), "{told:?}");
            given_back += usize::from(first);
        }
        assert_eq!(faulty.count(Call::Claim, Fault::After), round);
        assert_eq!(ground.floor.log().finished.len() as u64, 1 + 3 * round);
        if given_back > 0 {
            assert_eq!(given_back, 3, "one claim had all of them");
            return;
        }
    }
    panic!("no answer with tasks was lost");
}

async fn a_lost_heartbeat_answer_is_harmless(ground: Ground) {
    let faulty = FaultyStore::new(ground.store.clone());
    let engine = ground.before(faulty.clone()).start().await.expect("an engine");
    let handle = engine.submit(job("held").waiting()).await.expect("written");
    ground.floor.until_begun("held").await;
    let node = engine.status().node;
    faulty.script_for(Call::Renew, [Fault::After, Fault::Before, Fault::After]);
    for _ in 0..3 {
        engine.renew_now().await.expect_err("no answer");
    }
    ground.pass(LEASE * 2, &[&engine]).await;
    ground.floor.open_all();
    handle.result().await.expect("a name");
    assert_eq!(faulty.count(Call::Renew, Fault::After), 2);
    let status = engine.status();
    assert_eq!((status.node, status.leases_lost, status.rejoined), (node, 0, 0));
    assert_eq!(attempts(&ground, handle.id()).await.len(), 1);
}

/// The engine dies as a process does, and its lease ends.
async fn dies(ground: &Ground, engine: Engine) {
    drop(engine);
    ground.floor.until_running("all", 0).await;
    ground.clock.advance(LEASE + secs(1));
}

async fn a_task_that_kills_its_nodes_runs_alone_and_is_poisoned(ground: Ground) {
    let engine = ground.engine().await;
    let bad = engine.submit(job("bad").steps(1).waiting_in(0, 9)).await.expect("written").id();
    ground.floor.until(|log| log.tries("bad", 0) == 1).await;
    dies(&ground, engine).await;

    let engine = ground.engine().await;
    let beside =
        engine.submit(job("beside").steps(1).waiting_in(0, 2)).await.expect("written").id();
    ground.floor.until(|log| log.tries("bad", 0) == 2 && log.tries("beside", 0) == 1).await;
    dies(&ground, engine).await;

    let engine = ground.engine().await;
    ground.floor.until(|log| log.tries("beside", 0) == 2).await;
    settle().await;
    assert_eq!(ground.floor.log().times_begun("bad"), 2, "it must wait for an empty node");
    ground.floor.open("beside");
    ground.floor.until(|log| log.tries("bad", 0) == 3).await;
    assert_eq!(engine.handle::<String>(beside).result().await.expect("a name"), "beside");
    let healthy = engine.submit(job("healthy")).await.expect("written").id();
    ground.pass(secs(2), &[&engine]).await;
    let log = ground.floor.log();
    assert_eq!((log.running("all"), log.has_begun("healthy")), (1, false));
    dies(&ground, engine).await;

    let engine = ground.engine().await;
    assert_eq!(engine.handle::<String>(healthy).result().await.expect("a name"), "healthy");
    let ended = engine.handle::<String>(bad).ended().await.expect("an end");
    assert_eq!(ended.state(), State::Failed);
    assert_eq!(ended.standing.failure.and_then(|f| f.reason), Some(Reason::Poisoned));
    assert_eq!(ground.floor.log().times_begun("bad"), 3);
}

async fn a_node_that_dies_young_does_not_die_of_a_suspect(ground: Ground) {
    let waits = |s: &mut windlass::Settings| s.suspects_wait = secs(10);
    let start = async || ground.builder().settings(waits).start().await.expect("an engine");
    let mut engine = start().await;
    let slow = engine.submit(job("slow").steps(1).waiting_in(0, 3)).await.expect("written").id();
    for tries in 1..=2 {
        ground.floor.until(|log| log.tries("slow", 0) == tries).await;
        dies(&ground, engine).await;
        engine = start().await;
    }
    // Twice more the node dies, and the suspect was not even begun.
    for name in ["first", "second"] {
        let other = engine.submit(job(name)).await.expect("written");
        assert_eq!(other.result().await.expect("a name"), name);
        eventually("the suspect is held", || engine.status().held == 1).await;
        dies(&ground, engine).await;
        engine = start().await;
        let task = ground.store.task(slow).await.expect("a read").expect("a task");
        assert_eq!((task.standing.crashes, ground.floor.log().times_begun("slow")), (2, 2));
    }
    ground.pass(secs(12), &[&engine]).await;
    ground.floor.until(|log| log.tries("slow", 0) == 3).await;
    ground.floor.open("slow");
    assert_eq!(engine.handle::<String>(slow).result().await.expect("a name"), "slow");
}
