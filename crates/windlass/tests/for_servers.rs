//! What a server in front of an engine asks of it: changes in the name of
//! somebody else, many at once, of any node; what is served here and how; and
//! the words of a submission that programs rarely need.

#![allow(clippy::expect_used, clippy::panic)] // a test fails by panicking

mod bench_of_engines;

use bench_of_engines::{Floor, Ground, LEASE, eventually, job, on_both_stores, secs};
use windlass::prelude::*;
use windlass::{
    Answer, Changed, Code, ErrorKind, NodeChange, Policy, QueueChange, State, TaskChange, TaskId,
};
use windlass_conformance::faults::FaultyStore;

on_both_stores!(
    changes_stand_in_the_audit_list_in_the_name_of_who_made_them,
    many_tasks_change_at_once_each_with_its_answer,
    a_node_can_be_changed_by_another,
    kinds_say_how_they_are_served,
    a_node_is_ready_while_it_holds_its_lease,
    a_child_is_submitted_under_its_parent,
    a_key_with_the_callers_own_hash,
    a_trace_is_checked_and_is_no_part_of_the_body,
);

async fn changes_stand_in_the_audit_list_in_the_name_of_who_made_them(ground: Ground) {
    let engine = ground.engine().await;
    let ada = engine.acting_as("ada", "10.0.0.7");
    let handle = ada.submit(job("a")).delay(secs(60)).await.expect("written");
    ada.pause(handle.id()).await.expect("a pause");
    engine.resume(handle.id()).await.expect("a resume");
    ada.change_queue("default", QueueChange::Concurrency(Some(9))).await.expect("a change");
    ada.clone().pause_node().await.expect("a pause");
    assert!(engine.status().paused, "it is the same engine");
    let rows = engine.reader().audit(None, 10).await.expect("the list");
    let told: Vec<_> = rows
        .iter()
        .rev()
        .map(|row| (row.by.who.as_str(), row.by.origin.as_str(), row.action.as_str()))
        .collect();
    let expected = [
        ("ada", "10.0.0.7", "pause"),
        ("windlass", "library", "resume"),
        ("ada", "10.0.0.7", "concurrency"),
        ("ada", "10.0.0.7", "pause"),
    ];
    for ((who, origin, action), told) in expected.iter().zip(&told) {
        assert_eq!((*who, *origin), (told.0, told.1), "{told:?}");
        assert!(told.2.contains(action), "{told:?}");
    }
    assert_eq!(told.len(), 4);
}

/// Ends when it is asked to.
#[derive(Serialize, Deserialize)]
struct Listens {}

impl TaskKind for Listens {
    const NAME: &'static str = "listens";
    type Output = ();
    async fn run(self, cx: Cx) -> Result<(), TaskError> {
        let _place = cx.state::<Floor>()?.enter("listens", cx.task());
        cx.cancelled().await;
        cx.check()
    }
}

async fn many_tasks_change_at_once_each_with_its_answer(ground: Ground) {
    let engine = ground.builder().register::<Listens>().start().await.expect("an engine");
    let done = engine.submit(job("done")).await.expect("written");
    done.result().await.expect("a name");
    let later = engine.submit(job("later")).delay(secs(60)).await.expect("written");
    let held = engine.submit(Listens {}).await.expect("written");
    ground.floor.until_begun("listens").await;
    let ids = vec![done.id(), later.id(), TaskId::from_key(7), held.id()];
    let answers = engine.change_all(ids, TaskChange::Cancel).await.expect("answers");
    let kind = |i: usize| answers[i].as_ref().map_err(|e| e.kind()).copied();
    assert_eq!(kind(0), Err(ErrorKind::Conflict));
    assert_eq!(kind(1), Ok(Changed::Done));
    assert_eq!(kind(2), Err(ErrorKind::NotFound));
    assert_eq!(kind(3), Ok(Changed::Requested));
    // The clock stands still: it hears of it without a heartbeat.
    assert_eq!(held.ended().await.expect("an end").state(), State::Cancelled);
    assert_eq!(later.ended().await.expect("an end").state(), State::Cancelled);
    let none = engine.change_all(vec![], TaskChange::Cancel).await.expect("no answers");
    assert!(none.is_empty());
    let again = TaskChange::Requeue { from_step: None, payload: None };
    assert_eq!(engine.change(later.id(), again).await.expect("requeued"), Changed::Done);
    assert_eq!(later.result().await.expect("a name"), "later");
}

async fn a_node_can_be_changed_by_another(ground: Ground) {
    let (one, two) = (ground.engine().await, ground.engine().await);
    let node = two.status().node;
    assert_eq!(one.change_node(node, NodeChange::Pause).await.expect("a pause"), Changed::Done);
    assert!(!one.status().paused, "it was not meant");
    two.renew_now().await.expect("a heartbeat");
    assert!(two.status().paused);
    two.change_node(node, NodeChange::Resume).await.expect("a resume");
    assert!(!two.status().paused, "its own change counts at once");
    let nobody = windlass::NodeId::from_key(7);
    let refused = one.change_node(nobody, NodeChange::Drain).await.expect_err("nobody");
    assert_eq!(refused.kind(), ErrorKind::NotFound);
}

async fn nothing(_: StepCall) -> Result<serde_json::Value, TaskError> {
    Ok(serde_json::Value::Null)
}

async fn kinds_say_how_they_are_served(ground: Ground) {
    let options = KindOptions::new().queue("slow").priority(3).concurrency(2).pool(Pool::Cpu);
    let options = options.deadline(secs(9)).task_timeout(secs(8)).step_timeout(secs(7)).retries(4);
    let builder = ground.builder().handler("fetch", nothing).handler("store", nothing);
    let builder = builder.plan_with("import", ["fetch", "store"], options);
    let engine = builder.start().await.expect("an engine");
    let kinds = engine.kinds();
    let names: Vec<&str> = kinds.iter().map(|k| k.name.as_str()).collect();
    assert_eq!(names, ["fetch", "import", "job", "other", "store"]);
    let import = &kinds[1];
    assert_eq!((import.queue.as_str(), import.priority, import.pool), ("slow", 3, Pool::Cpu));
    assert_eq!((import.concurrency, import.deadline), (Some(2), Some(secs(9))));
    assert_eq!((import.task_timeout, import.step_timeout), (secs(8), secs(7)));
    assert!(format!("{:?}", import.retry).contains("retries: 4"), "{:?}", import.retry);
    let steps = |names: [&str; 2]| Some(names.map(str::to_owned).to_vec());
    assert_eq!(import.steps, steps(["fetch", "store"]));
    assert_eq!(kinds[2].steps, None, "a kind in Rust");
    assert!(engine.serves("import") && !engine.serves("export"));

    let payload = serde_json::json!({});
    let own = engine.submit_named("import", &payload).steps(["store", "fetch"]).delay(secs(60));
    let own = own.await.expect("written");
    assert_eq!(engine.plan_of(&ground.task(&own).await), steps(["store", "fetch"]));
    let usual = engine.submit_named("import", &payload).delay(secs(60)).await.expect("written");
    assert_eq!(engine.plan_of(&ground.task(&usual).await), import.steps);
    let typed = engine.submit(job("a")).await.expect("written");
    assert_eq!(engine.plan_of(&ground.task(&typed).await), None);
    let other = ground.engine().await;
    assert_eq!(other.plan_of(&ground.task(&usual).await), None, "not served there");
}

async fn a_node_is_ready_while_it_holds_its_lease(ground: Ground) {
    let faulty = FaultyStore::new(ground.store.clone());
    let engine = ground.before(faulty.clone()).start().await.expect("an engine");
    assert!(engine.is_ready());
    assert_eq!(
        (engine.settings().lease, engine.settings().node_name.as_str()),
        (LEASE, "windlass")
    );
    assert!(["memory", "sqlite"].contains(&engine.store_name()));
    faulty.hold();
    ground.pass(LEASE, &[]).await;
    assert!(!engine.is_ready(), "its lease has ended");
    faulty.release();
    eventually("it joins again", || engine.is_ready()).await;
    engine.shutdown(secs(1)).await.expect("a good-bye");
    assert!(!engine.is_ready());
}

async fn a_child_is_submitted_under_its_parent(ground: Ground) {
    let engine = ground.engine().await;
    let parent = engine.submit(job("parent").waiting()).children_policy(Policy::All);
    let parent = parent.await.expect("written");
    let children = ["a", "b"].map(|name| engine.submit(job(name)).parent(parent.id()));
    let children = engine.submit_all(children).await.expect("written");
    for child in &children {
        child.result().await.expect("a name");
        assert_eq!(ground.task(child).await.parent, Some(parent.id()));
    }
    let totals = engine.reader().children(parent.id()).await.expect("totals");
    assert_eq!((totals.total, totals.completed), (2, 2));
    let stored = ground.task(&parent).await.extras.and_then(|e| e.children_policy);
    assert_eq!(stored, Some(Policy::All));
    let orphan = engine.submit(job("c")).parent(TaskId::from_key(7)).await;
    assert_eq!(orphan.expect_err("no parent").kind(), ErrorKind::NotFound);
    let keyed = |id| engine.submit(job("d")).parent(id).idempotency_key("k");
    keyed(parent.id()).await.expect("written");
    let other = engine.submit(job("other").waiting()).await.expect("written");
    let moved = keyed(other.id()).await.expect_err("another parent");
    assert_eq!(moved.code(), Code::KeyReused, "{moved}");
    ground.floor.open_all();
}

async fn a_key_with_the_callers_own_hash(ground: Ground) {
    let engine = ground.engine().await;
    let submit = |name: &str, body| engine.submit(job(name)).idempotency("k", body);
    let first = submit("a", 1).limit_key("tenant-1").await.expect("written");
    let again = submit("another", 1).await.expect("the caller says it is the same");
    assert_eq!((again.answer(), again.id()), (Answer::Replayed, first.id()));
    let reused = submit("a", 2).await.expect_err("the caller says it is another");
    assert_eq!(reused.code(), Code::KeyReused, "{reused}");
    let limit = ground.task(&first).await.extras.and_then(|e| e.limit_key.clone());
    assert_eq!(limit.as_deref(), Some("tenant-1"));
}

async fn a_trace_is_checked_and_is_no_part_of_the_body(ground: Ground) {
    let engine = ground.engine().await;
    let trace = |n: u8| format!("00-4bf92f3577b34da6a3ce929d0e0e473{n}-00f067aa0ba902b7-01");
    let submit = |trace: String| engine.submit(job("a")).idempotency_key("k").traceparent(trace);
    let first = submit(trace(1)).await.expect("written");
    let stored = ground.task(&first).await.extras.and_then(|e| e.trace.clone());
    assert_eq!(stored, Some(trace(1)));
    let again = submit(trace(2)).await.expect("the same in another trace");
    assert_eq!(again.answer(), Answer::Replayed);
    let bad = submit("4bf92f35".to_owned()).await.expect_err("no trace");
    assert!(bad.message().contains("traceparent `4bf92f35`"), "{bad}");
}
