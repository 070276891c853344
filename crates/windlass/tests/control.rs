//! What people may do to tasks and to this node, and what the node says of
//! itself. Changes made through one engine reach the engine that holds the task;
//! the clock shows how soon.

#![allow(clippy::expect_used, clippy::panic)] // a test fails by panicking

mod bench_of_engines;

use bench_of_engines::{Ground, LEASE, eventually, job, millis, on_both_stores, secs, settle};
use windlass::core::clock::{Clock, Now};
use windlass::core::control::Changed;
use windlass::core::filter::Filter;
use windlass::core::json::Json;
use windlass::core::outcome::Reason;
use windlass::core::state::State;
use windlass::core::store::{Actor, Change, NodeChange, Query};
use windlass::prelude::*;
use windlass::{Answer, ErrorKind};
use windlass_conformance::faults::{Call, Fault, FaultyStore};

on_both_stores!(
    a_paused_node_takes_nothing_and_resumes_at_once,
    a_drained_node_finishes_what_it_has_and_can_be_resumed,
    a_drain_by_somebody_else_is_heard_and_can_be_taken_back,
    an_older_heartbeat_does_not_undo_a_pause,
    status_says_how_the_node_is_doing,
    a_cancel_by_another_engine_arrives_within_two_seconds,
    a_cancel_asked_of_a_dead_node_counts_for_the_next,
    a_cancel_that_comes_with_the_end_is_answered_once,
    a_requeued_task_keeps_its_finished_steps,
    a_rerun_is_a_new_task,
    dead_letters_are_listed_and_discarded,
    changes_of_nothing_are_refused,
);

async fn a_paused_node_takes_nothing_and_resumes_at_once(ground: Ground) {
    let engine = ground.engine().await;
    let held = engine.submit(job("held").waiting()).await.expect("written");
    ground.floor.until_begun("held").await;
    assert_eq!(engine.pause_node().await.expect("a pause"), Changed::Done);
    assert_eq!(engine.pause_node().await.expect("a pause"), Changed::Already);
    let next = engine.submit(job("next")).await.expect("a paused node still submits");
    ground.floor.open_all();
    held.result().await.expect("what runs finishes");
    ground.pass(secs(5), &[&engine]).await;
    assert!(engine.status().paused);
    assert_eq!(ground.task(&next).await.state(), State::Queued);
    engine.resume_node().await.expect("a resume");
    next.result().await.expect("a name");
    assert!(!engine.status().paused);
}

async fn a_drained_node_finishes_what_it_has_and_can_be_resumed(ground: Ground) {
    let engine = ground.engine().await;
    let held = engine.submit(job("held").waiting()).await.expect("written");
    ground.floor.until_begun("held").await;
    engine.drain_node().await.expect("a drain");
    let next = engine.submit(job("next")).await.expect("written");
    ground.floor.open_all();
    held.result().await.expect("what runs finishes");
    ground.pass(secs(5), &[&engine]).await;
    assert!(engine.status().draining);
    assert_eq!(ground.task(&next).await.state(), State::Queued);
    engine.resume_node().await.expect("a resume");
    next.result().await.expect("a name");
    ground.pass(secs(2), &[&engine]).await;
    assert!(!engine.status().draining);
}

async fn a_drain_by_somebody_else_is_heard_and_can_be_taken_back(ground: Ground) {
    let engine = ground.engine().await;
    let node = engine.status().node;
    let put = async |change| {
        let now = Now::At(ground.clock.now());
        let change = Change::Node { id: node, change };
        ground.store.change(change, Actor::engine(), now).await.expect("a change");
        ground.pass(secs(12), &[&engine]).await;
    };
    put(NodeChange::Drain).await;
    assert!(engine.status().draining);
    let next = engine.submit(job("next")).await.expect("written");
    settle().await;
    assert!(ground.floor.log().began.is_empty());
    put(NodeChange::Resume).await;
    assert!(!engine.status().draining, "the node says its own drain for ever");
    next.result().await.expect("a name");
}

async fn an_older_heartbeat_does_not_undo_a_pause(ground: Ground) {
    let faulty = FaultyStore::new(ground.store.clone());
    let engine = ground.before(faulty.clone()).start().await.expect("an engine");
    faulty.script_for(Call::Renew, [Fault::HoldAnswer]);
    let older = tokio::spawn({
        let engine = engine.clone();
        async move { engine.renew_now().await }
    });
    faulty.until_held(1).await;
    engine.pause_node().await.expect("a pause");
    faulty.release();
    older.await.expect("no panic").expect("a heartbeat");
    assert_eq!(faulty.count(Call::Renew, Fault::HoldAnswer), 1);
    assert!(engine.status().paused);
    engine.submit(job("next")).await.expect("written");
    settle().await;
    assert!(ground.floor.log().began.is_empty());
    ground.pass(secs(12), &[&engine]).await;
    assert!(engine.status().paused);
}

#[derive(Serialize, Deserialize)]
struct Fails {}

impl TaskKind for Fails {
    const NAME: &'static str = "fails";
    type Output = u32;
    async fn run(self, cx: Cx) -> Result<u32, TaskError> {
        let floor = cx.state::<bench_of_engines::Floor>()?;
        let first = || async {
            floor.stepped("fails", 0);
            Ok::<_, TaskError>(1)
        };
        let one = cx.step("first", first).await?;
        let run = cx.task().standing.run;
        let second = || async { if run == 1 { Err(fatal("no luck")) } else { Ok(2) } };
        Ok(one + cx.step("second", second).await?)
    }
}

async fn status_says_how_the_node_is_doing(ground: Ground) {
    let builder = ground.builder().register::<Fails>().queue("q", 2);
    let engine = builder.start().await.expect("an engine");
    let held = engine.submit(job("held").waiting()).queue("q").await.expect("written");
    ground.floor.until_begun("held").await;
    engine.submit(Fails {}).await.expect("written").ended().await.expect("an end");
    engine.submit(job("a")).await.expect("written").result().await.expect("a name");
    eventually("only one is active", || engine.status().active == 1).await;
    let status = engine.status();
    assert_eq!((status.held, status.consumed, status.failed), (1, 2, 1));
    assert_eq!((status.paused, status.draining, status.overrun), (false, false, 0));
    let queues: Vec<_> =
        status.queues.iter().map(|(n, max, used)| (n.as_str(), *max, *used)).collect();
    assert_eq!(queues, [("default", 4, 0), ("q", 2, 1)]);
    engine.renew_now().await.expect("a heartbeat");
    let nodes = ground.store.nodes().await.expect("nodes");
    assert_eq!((nodes[0].id, nodes[0].consumed, nodes[0].failed), (status.node, 2, 1));
    ground.floor.open_all();
    held.result().await.expect("a name");
}

async fn a_cancel_by_another_engine_arrives_within_two_seconds(ground: Ground) {
    let holder = ground.engine().await;
    let handle = holder.submit(job("held").steps(2).waiting_in(1, 9)).await.expect("written");
    ground.floor.until(|log| log.steps.len() == 2).await;
    let other = ground.engine().await;
    assert_eq!(other.cancel(handle.id()).await.expect("asked"), Changed::Requested);
    settle().await;
    let asked = ground.clock.now();
    // The step does not listen, so it is aborted after the grace period.
    while !ground.task(&handle).await.state().is_ended() {
        ground.clock.advance(millis(250));
        other.renew_now().await.expect("a heartbeat");
        settle().await;
        assert!(ground.clock.now().since(asked) < secs(14), "2 s, 10 s of grace, and the watch");
    }
    assert_eq!(handle.ended().await.expect("an end").state(), State::Cancelled);
    let attempts = ground.store.attempts(handle.id()).await.expect("attempts");
    assert_eq!(attempts.len(), 1);
    assert_eq!(ground.floor.log().gone, ["held"]);
    assert_eq!(holder.status().leases_lost, 0);
}

async fn a_cancel_asked_of_a_dead_node_counts_for_the_next(ground: Ground) {
    let first = ground.engine().await;
    let id = first.submit(job("held").waiting()).await.expect("written").id();
    ground.floor.until_begun("held").await;
    drop(first);
    ground.floor.until_running("all", 0).await;
    ground.clock.advance(secs(1));
    let second = ground.engine().await;
    assert_eq!(second.cancel(id).await.expect("asked"), Changed::Requested);
    ground.pass(LEASE + secs(2), &[&second]).await;
    let ended = second.handle::<String>(id).ended().await.expect("an end");
    assert_eq!(ended.state(), State::Cancelled);
    assert_eq!(ground.floor.log().times_begun("held"), 1, "cancelled code must not run again");
}

async fn a_cancel_that_comes_with_the_end_is_answered_once(ground: Ground) {
    let engine = ground.builder().queue("default", 32).start().await.expect("an engine");
    let jobs = (0..32).map(|i| engine.submit(job(format!("{i}")).steps(1).waiting_in(0, 1)));
    let handles = engine.submit_all(jobs).await.expect("written");
    ground.floor.until(|log| log.steps.len() == 32).await;
    ground.floor.open_all();
    let mut ends = [0, 0];
    for handle in handles {
        let answer = engine.cancel(handle.id()).await;
        let ended = handle.ended().await.expect("an end");
        match (answer, ended.state()) {
            (Ok(Changed::Requested | Changed::Done), State::Cancelled) => ends[0] += 1,
            (Ok(Changed::Requested), State::Completed) => ends[1] += 1,
            (Err(late), State::Completed) if late.kind() == ErrorKind::Conflict => ends[1] += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(ends[0] + ends[1], 32);
    assert_eq!((engine.status().held, engine.status().leases_lost), (0, 0));
}

async fn a_requeued_task_keeps_its_finished_steps(ground: Ground) {
    let engine = ground.builder().register::<Fails>().start().await.expect("an engine");
    let handle = engine.submit(Fails {}).await.expect("written");
    assert_eq!(handle.ended().await.expect("an end").state(), State::Failed);
    assert_eq!(engine.requeue(handle.id()).await.expect("requeued"), Changed::Done);
    assert_eq!(handle.result().await.expect("a sum"), 3);
    let task = ground.task(&handle).await;
    assert_eq!((task.standing.run, task.standing.attempt), (2, 2));
    assert_eq!(ground.floor.log().tries("fails", 0), 1);
    let late = engine.requeue(handle.id()).await.expect_err("it is completed");
    assert!(late.message().contains("rerun"), "{late}");
    let again = engine.submit(Fails {}).await.expect("written");
    again.ended().await.expect("an end");
    engine.requeue_from(again.id(), "first").await.expect("requeued");
    assert_eq!(again.result().await.expect("a sum"), 3);
    assert_eq!(ground.floor.log().tries("fails", 0), 3, "the first step runs again");
    let cancelled = engine.submit(job("a")).delay(secs(60)).await.expect("written");
    engine.cancel(cancelled.id()).await.expect("cancelled");
    let payload = Json::of(&job("b")).expect("JSON");
    engine.requeue_with(cancelled.id(), payload).await.expect("requeued");
    assert_eq!(cancelled.result().await.expect("a name"), "b");
}

async fn a_rerun_is_a_new_task(ground: Ground) {
    let engine = ground.engine().await;
    let first = engine.submit(job("a").steps(1)).label("tenant", "acme").await.expect("written");
    first.result().await.expect("a name");
    let again = engine.rerun::<String>(first.id()).await.expect("a new task");
    assert_eq!((again.answer(), again.result().await.expect("a name")), (Answer::New, "a".into()));
    let task = ground.task(&again).await;
    assert_eq!((task.label("tenant"), task.standing.run), (Some("acme"), 1));
    assert_eq!(task.extras.and_then(|e| e.rerun_of), Some(first.id()));
    assert_eq!(ground.floor.log().tries("a", 0), 2);
    let held = engine.submit(job("held").waiting()).await.expect("written");
    let early = engine.rerun::<String>(held.id()).await.expect_err("it has not ended");
    assert_eq!(early.kind(), ErrorKind::Conflict, "{early}");
    assert_eq!(ground.tasks().await, 3);
}

async fn dead_letters_are_listed_and_discarded(ground: Ground) {
    let engine = ground.builder().register::<Fails>().start().await.expect("an engine");
    let letters = async |filter: &str| {
        let filter = Filter::parse(filter).expect("a filter");
        let query = Query { filter, before: None, limit: 10 };
        engine.dead_letters(query).await.expect("a page").items
    };
    let mut ids = vec![];
    for tenant in ["acme", "globex"] {
        let handle = engine.submit(Fails {}).label("tenant", tenant).await.expect("written");
        handle.ended().await.expect("an end");
        ids.push(handle.id());
    }
    assert_eq!(letters("").await.len(), 2);
    let acme = letters("label.tenant:acme").await;
    assert_eq!(acme.iter().map(|l| l.task).collect::<Vec<_>>(), [Some(ids[0])]);
    assert_eq!((acme[0].reason, acme[0].step.as_deref()), (Reason::Fatal, Some("second")));
    assert_eq!((acme[0].message.as_str(), acme[0].attempts), ("no luck", 1));
    assert_eq!(engine.discard(ids[0]).await.expect("discarded"), Changed::Done);
    assert_eq!(engine.discard(ids[0]).await.expect("discarded"), Changed::Already);
    assert_eq!(letters("").await.len(), 1);
    engine.requeue(ids[1]).await.expect("requeued");
    engine.handle::<u32>(ids[1]).result().await.expect("a sum");
    assert!(letters("").await.is_empty());
}

async fn changes_of_nothing_are_refused(ground: Ground) {
    let engine = ground.engine().await;
    let nobody = windlass::core::id::TaskId::from_key(77);
    assert_eq!(engine.cancel(nobody).await.expect_err("nobody").kind(), ErrorKind::NotFound);
    assert_eq!(engine.requeue(nobody).await.expect_err("nobody").kind(), ErrorKind::NotFound);
    let rerun = engine.rerun::<()>(nobody).await;
    assert_eq!(rerun.expect_err("nobody").kind(), ErrorKind::NotFound);
    let bad = engine.pause_queue("no queue").await.expect_err("no name");
    assert_eq!(bad.kind(), ErrorKind::Invalid);
    let handle = engine.submit(job("a")).await.expect("written");
    handle.result().await.expect("a name");
    assert_eq!(engine.cancel(handle.id()).await.expect_err("over").kind(), ErrorKind::Conflict);
    assert_eq!(engine.resume(handle.id()).await.expect_err("over").kind(), ErrorKind::Conflict);
    assert_eq!(engine.discard(handle.id()).await.expect_err("none").kind(), ErrorKind::Conflict);
}
