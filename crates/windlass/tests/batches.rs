//! Bulk jobs through a running engine: they find their tasks, keep their rate,
//! stop when told or when too much fails again, and go on after a restart. With
//! answers that are lost and two engines at once, each task is still changed
//! once.

#![allow(clippy::expect_used, clippy::panic)] // a test fails by panicking

mod shared;

use serde_json::json;
use shared::{Bench, Count, Gate, Job, MS, NEVER, On, on_both, secs};
use std::sync::Arc;
use std::time::Duration;
use windlass::core::batch::{Action, Allowed, Among, Batch, BatchState, Order};
use windlass::core::control::{Changed, TaskChange};
use windlass::core::filter::Filter;
use windlass::core::id::{BatchId, TaskId};
use windlass::core::state::State;
use windlass::core::store::Store;
use windlass::prelude::*;
use windlass_conformance::faults::{Call, Fault, FaultyStore};

on_both!(
    every_task_is_changed_once,
    ineligible_tasks_are_skipped_and_counted,
    tasks_made_later_are_left_alone,
    a_preview_counts_by_state_and_changes_nothing,
    a_running_task_hears_of_it_at_once,
    a_rate_spreads_the_changes,
    a_stopped_batch_does_nothing_more,
    too_many_that_fail_again_end_it,
    enough_that_succeed_let_it_go_on,
    reruns_are_new_tasks,
    dead_letters_are_discarded,
    a_batch_goes_on_after_a_restart,
    lost_answers_change_nothing_twice,
    two_engines_change_nothing_twice,
);

fn filter(text: &str) -> Filter {
    Filter::parse(text).expect("a filter")
}

/// An engine whose jobs end well.
async fn bench(on: On) -> Bench {
    Bench::new(on, KindOptions::new().retry(NEVER), |_| async { Ok(json!(null)) }).await
}

/// Tasks that wait for a far time.
async fn later(bench: &Bench, n: usize) -> Vec<TaskId> {
    let mut ids = vec![];
    for _ in 0..n {
        let task = bench.engine.submit(Job { n: 0 }).delay(secs(100_000));
        ids.push(task.await.expect("submitted").id());
    }
    ids
}

async fn cancelled(bench: &Bench, n: usize) -> Vec<TaskId> {
    let ids = later(bench, n).await;
    bench.engine.change_all(ids.clone(), TaskChange::Cancel).await.expect("cancelled");
    ids
}

async fn begin(
    bench: &Bench,
    action: Action,
    text: &str,
    more: impl FnOnce(&mut Order),
) -> BatchId {
    let mut order = bench.engine.order(action, filter(text)).expect("an order");
    more(&mut order);
    bench.engine.start_batch(order).await.expect("a batch").id()
}

/// Reads until it is so; the runtime does the rest meanwhile.
async fn until(bench: &Bench, id: BatchId, so: impl Fn(&Batch) -> bool) -> Batch {
    loop {
        let batch = bench.store.batch(id).await.expect("read").expect("the batch");
        if so(&batch) {
            return batch;
        }
        tokio::task::yield_now().await;
    }
}

/// The same while time goes on.
async fn in_time(bench: &Bench, id: BatchId, so: impl Fn(&Batch) -> bool) -> Batch {
    loop {
        let batch = bench.store.batch(id).await.expect("read").expect("the batch");
        if so(&batch) {
            return batch;
        }
        bench.advance(50 * MS);
        tokio::task::yield_now().await;
    }
}

fn ended(batch: &Batch) -> bool {
    !batch.is_running()
}

async fn runs(bench: &Bench, ids: &[TaskId]) -> Vec<u32> {
    let mut runs = vec![];
    for id in ids {
        runs.push(bench.task(*id).await.standing.run);
    }
    runs
}

async fn every_task_is_changed_once(on: On) {
    let bench = bench(on).await;
    bench.engine.pause_queue("default").await.expect("paused");
    let ids = cancelled(&bench, 1200).await;
    let id = begin(&bench, Action::Requeue, "state:cancelled", |_| {}).await;
    let batch = until(&bench, id, ended).await;
    assert_eq!((batch.state, batch.counts.changed), (BatchState::Done, 1200));
    assert!(batch.version >= 3, "in pieces: {}", batch.version);
    assert!(runs(&bench, &ids).await.iter().all(|run| *run == 2));
}

async fn ineligible_tasks_are_skipped_and_counted(on: On) {
    let bench = bench(on).await;
    for _ in 0..3 {
        bench.run().await;
    }
    let ids = later(&bench, 4).await;
    bench.engine.cancel(ids[0]).await.expect("cancelled");
    let id = begin(&bench, Action::Cancel, "kind:job", |_| {}).await;
    let batch = until(&bench, id, ended).await;
    let counts = batch.counts;
    assert_eq!((counts.matched, counts.changed), (7, 3));
    assert_eq!((counts.already, counts.skipped, counts.failed), (1, 3, 0));
    assert_eq!(bench.state(ids[3]).await, State::Cancelled);
}

async fn tasks_made_later_are_left_alone(on: On) {
    let bench = bench(on).await;
    let old = later(&bench, 2).await;
    let id = begin(&bench, Action::Cancel, "kind:job", |o| {
        o.rate = Some("1/s".parse().expect("a rate"))
    })
    .await;
    until(&bench, id, |batch| batch.counts.changed == 1).await;
    bench.advance(10 * MS);
    let young = later(&bench, 1).await[0];
    let batch = in_time(&bench, id, ended).await;
    assert_eq!(batch.counts.matched, 2);
    assert_eq!(bench.state(old[0]).await, State::Cancelled);
    assert_eq!(bench.state(young).await, State::Scheduled);
}

async fn a_preview_counts_by_state_and_changes_nothing(on: On) {
    let bench = bench(on).await;
    bench.run().await;
    later(&bench, 3).await;
    let order = bench.engine.order(Action::Cancel, filter("kind:job")).expect("an order");
    let preview = bench.engine.preview(&order).await.expect("a preview");
    assert_eq!(preview.states[&State::Scheduled], Allowed { eligible: 3, ineligible: 0 });
    assert_eq!(preview.states[&State::Completed], Allowed { eligible: 0, ineligible: 1 });
    assert!(!preview.more);
    assert_eq!(bench.store.batch(order.id).await.expect("read"), None);
    let all = bench.engine.order(Action::Cancel, Filter::default()).expect("an order");
    assert!(bench.engine.preview(&all).await.is_err(), "nothing said is not everything");
    assert!(bench.engine.start_batch(all).await.is_err());
}

async fn a_running_task_hears_of_it_at_once(on: On) {
    let gate = Gate::new();
    let inside = gate.clone();
    let bench = Bench::new(on, KindOptions::new(), move |cx| {
        let gate = inside.clone();
        async move {
            gate.pass().await;
            cx.cancelled().await;
            cx.check()?;
            Ok(json!(null))
        }
    })
    .await;
    let task = bench.submit().await;
    gate.reached().await;
    gate.open();
    let id = begin(&bench, Action::Cancel, "state:running", |_| {}).await;
    // No heartbeat comes in between: the clock stands still.
    assert_eq!(task.ended().await.expect("an end").state(), State::Cancelled);
    assert_eq!(until(&bench, id, ended).await.counts.requested, 1);
}

async fn a_rate_spreads_the_changes(on: On) {
    let bench = bench(on).await;
    later(&bench, 10).await;
    let rate = "2/s".parse().expect("a rate");
    let id = begin(&bench, Action::Pause, "kind:job", |o| o.rate = Some(rate)).await;
    until(&bench, id, |batch| batch.counts.changed == 1).await;
    bench.quiet().await;
    let batch = until(&bench, id, |_| true).await;
    assert_eq!(batch.counts.changed, 1, "nothing more before its time");
    for n in 2..=10 {
        bench.advance(500 * MS);
        until(&bench, id, |batch| batch.counts.changed == n).await;
    }
    bench.advance(500 * MS);
    until(&bench, id, ended).await;
}

async fn a_stopped_batch_does_nothing_more(on: On) {
    let bench = bench(on).await;
    let ids = later(&bench, 5).await;
    let rate = "1/m".parse().expect("a rate");
    let id = begin(&bench, Action::Cancel, "kind:job", |o| o.rate = Some(rate)).await;
    until(&bench, id, |batch| batch.counts.changed == 1).await;
    assert_eq!(bench.engine.stop_batch(id).await.expect("stopped"), Changed::Done);
    assert_eq!(bench.engine.stop_batch(id).await.expect("stopped"), Changed::Already);
    bench.advance(secs(600));
    bench.quiet().await;
    let batch = until(&bench, id, |_| true).await;
    assert_eq!((batch.state, batch.counts.changed), (BatchState::Stopped, 1));
    assert_eq!(bench.state(ids[0]).await, State::Scheduled);
}

async fn too_many_that_fail_again_end_it(on: On) {
    let count = Count::default();
    let tries = count.clone();
    let bench = Bench::new(on, KindOptions::new().retry(NEVER), move |_| {
        tries.up();
        async { Err(fatal("broken")) }
    })
    .await;
    for _ in 0..40 {
        bench.run().await;
    }
    let id = begin(&bench, Action::Requeue, "state:failed", |o| o.stop_above = Some(30)).await;
    let batch = in_time(&bench, id, ended).await;
    assert_eq!((batch.state, batch.counts.changed), (BatchState::Stopped, 10), "{batch:?}");
    assert!(batch.reason.as_deref().expect("a reason").contains("failed again"), "{batch:?}");
    assert_eq!(count.get(), 50, "ten went ahead, and no more");
}

async fn enough_that_succeed_let_it_go_on(on: On) {
    let count = Count::default();
    let tries = count.clone();
    let bench = Bench::new(on, KindOptions::new().retry(NEVER), move |_| {
        let first = tries.up() <= 40;
        async move { if first { Err(fatal("broken")) } else { Ok(json!(null)) } }
    })
    .await;
    for _ in 0..40 {
        bench.run().await;
    }
    let id = begin(&bench, Action::Requeue, "state:failed", |o| o.stop_above = Some(30)).await;
    let batch = in_time(&bench, id, ended).await;
    assert_eq!((batch.state, batch.counts.changed), (BatchState::Done, 40), "{batch:?}");
    assert!(batch.again.answered >= 10 && batch.again.failed == 0, "{batch:?}");
}

async fn reruns_are_new_tasks(on: On) {
    let bench = bench(on).await;
    let old = bench.run().await;
    bench.advance(10 * MS);
    let id = begin(&bench, Action::Rerun, "state:completed", |_| {}).await;
    let batch = until(&bench, id, ended).await;
    assert_eq!((batch.counts.matched, batch.counts.changed), (1, 1));
    let of = order_of(&bench, old.id).await;
    assert_eq!(of.len(), 1, "one new task, which the batch did not rerun again");
}

async fn order_of(bench: &Bench, old: TaskId) -> Vec<TaskId> {
    let query = windlass::core::store::Query {
        filter: filter(&format!("rerun_of:{old}")),
        before: None,
        limit: 10,
    };
    let page = bench.store.tasks(query, bench.engine.now()).await.expect("read");
    page.items.into_iter().map(|task| task.id).collect()
}

async fn dead_letters_are_discarded(on: On) {
    let bench =
        Bench::new(on, KindOptions::new().retry(NEVER), |_| async { Err(fatal("broken")) }).await;
    let (one, two) = (bench.run().await.id, bench.run().await.id);
    bench.engine.discard(one).await.expect("discarded");
    let id = begin(&bench, Action::Discard, "kind:job", |_| {}).await;
    let batch = until(&bench, id, ended).await;
    assert_eq!((batch.order.among, batch.counts.matched), (Among::DeadLetters, 1));
    assert!(bench.dead_letter(two).await.is_none());
    assert_eq!(bench.state(two).await, State::Failed);
}

async fn a_batch_goes_on_after_a_restart(on: On) {
    let mut bench = bench(on).await;
    let ids = later(&bench, 5).await;
    let rate = "1/m".parse().expect("a rate");
    let id = begin(&bench, Action::Pause, "kind:job", |o| o.rate = Some(rate)).await;
    until(&bench, id, |batch| batch.counts.changed == 1).await;
    let script = shared::Script::new(|_| async { Ok(json!(null)) });
    bench.restart(|b| b.register::<Job>().state(script)).await;
    let batch = in_time(&bench, id, ended).await;
    assert_eq!((batch.state, batch.counts.changed), (BatchState::Done, 5));
    for id in ids {
        assert_eq!(bench.told(id).await, ["submitted", "scheduled", "paused"]);
    }
}

/// An engine beside the bench's, behind faults.
async fn beside(bench: &Bench, store: Arc<dyn Store>) -> Engine {
    let settings = |s: &mut windlass::Settings| {
        (s.poll, s.lease) = (Duration::from_millis(100), secs(86_400));
    };
    let builder = Windlass::on(store).clock(Arc::new(bench.clock.clone())).settings(settings);
    builder.start().await.expect("an engine")
}

async fn lost_answers_change_nothing_twice(on: On) {
    let bench = bench(on).await;
    bench.engine.pause_queue("default").await.expect("paused");
    let ids = cancelled(&bench, 1200).await;
    let order = bench.engine.order(Action::Requeue, filter("state:cancelled run:1")).expect("ok");
    bench.engine.shutdown(Duration::ZERO).await.expect("gone");
    let faulty = FaultyStore::new(bench.store.clone());
    let engine = beside(&bench, faulty.clone()).await;
    let id = engine.start_batch(order).await.expect("a batch").id();
    // The second step is lost before its commit, the third after it.
    faulty.script_for(Call::Change, [Fault::Pass, Fault::Before, Fault::After]);
    let batch = in_time(&bench, id, ended).await;
    assert_eq!(batch.counts.changed, 1200, "{batch:?}");
    let faults = [Fault::Before, Fault::After].map(|fault| faulty.count(Call::Change, fault));
    assert_eq!(faults, [1, 1], "the faults happened");
    assert!(runs(&bench, &ids).await.iter().all(|run| *run == 2));
}

async fn two_engines_change_nothing_twice(on: On) {
    let bench = bench(on).await;
    bench.engine.pause_queue("default").await.expect("paused");
    let ids = cancelled(&bench, 1200).await;
    let _other = beside(&bench, bench.store.clone()).await;
    let id = begin(&bench, Action::Requeue, "state:cancelled", |_| {}).await;
    let batch = in_time(&bench, id, ended).await;
    assert_eq!((batch.counts.changed, batch.counts.matched), (1200, 1200));
    assert!(runs(&bench, &ids).await.iter().all(|run| *run == 2));
}
