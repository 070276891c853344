//! Cancel and pause in every situation of one task: waiting, inside a step,
//! between two tries, already done. What was finished before stays finished.

#![allow(clippy::expect_used, clippy::panic)] // a test fails by panicking

mod shared;

use serde_json::{Value, json};
use shared::{Bench, Count, CountsDrop, Gate, Job, LOOK, NEVER, On, Script, give, on_both, secs};
use std::future::pending;
use windlass::ErrorKind;
use windlass::core::control::Changed;
use windlass::core::event::EventName;
use windlass::core::outcome::WaitingOn;
use windlass::core::state::State;
use windlass::prelude::*;

on_both!(
    a_queued_task_is_cancelled_at_once,
    a_task_that_waits_for_a_time_is_cancelled_at_once,
    code_that_listens_is_cancelled_at_once,
    code_that_ignores_it_is_aborted_after_the_grace_period,
    a_cancel_between_tries_takes_effect_at_once,
    a_completed_task_cannot_be_cancelled,
    a_late_cancel_does_not_undo_done_work,
    a_cancel_keeps_the_step_that_was_under_way,
    a_cancel_from_another_node_arrives_within_two_seconds,
    a_pause_takes_effect_at_the_next_step,
    a_pause_between_tries_takes_effect_at_once,
    a_pause_taken_back_in_time_changes_nothing,
    a_pause_during_the_last_step_comes_too_late,
);

async fn a_queued_task_is_cancelled_at_once(on: On) {
    let started = Count::default();
    let counted = started.clone();
    let bench = Bench::new(on, KindOptions::new(), move |_| {
        counted.up();
        async { Ok(Value::Null) }
    });
    let bench = bench.await;
    bench.engine.pause_queue("default").await.expect("paused");
    let handle = bench.submit().await;
    let cancelled = bench.engine.cancel(handle.id()).await.expect("cancelled");
    assert_eq!(cancelled, Changed::Done);
    assert_eq!(bench.state(handle.id()).await, State::Cancelled);
    let again = bench.engine.cancel(handle.id()).await.expect("no harm");
    assert_eq!(again, Changed::Already);
    bench.engine.resume_queue("default").await.expect("resumed");
    bench.quiet().await;
    assert_eq!(started.get(), 0);
    assert_eq!(bench.told(handle.id()).await, ["submitted", "cancelled"]);
    let error = handle.result().await.expect_err("no value");
    assert_eq!(error.kind(), ErrorKind::Conflict);
}

async fn a_task_that_waits_for_a_time_is_cancelled_at_once(on: On) {
    let options = KindOptions::new().step_retry(NEVER);
    let bench = Bench::new(on, options, |cx| async move {
        cx.step("a", || async { Err::<(), _>(retryable("down")) }).await?;
        Ok(Value::Null)
    });
    let mut bench = bench.await;
    let scheduled = bench.engine.submit(Job { n: 0 }).delay(secs(60)).await.expect("submitted");
    let retrying = bench.submit().await;
    bench.until(retrying.id(), EventName::Retrying).await;
    for handle in [scheduled, retrying] {
        let changed = bench.engine.cancel(handle.id()).await.expect("cancelled");
        assert_eq!(changed, Changed::Done);
        let before = bench.told(handle.id()).await.len();
        bench.advance(secs(120));
        bench.quiet().await;
        assert_eq!(bench.state(handle.id()).await, State::Cancelled);
        assert_eq!(bench.told(handle.id()).await.len(), before, "it stays quiet");
    }
}

async fn code_that_listens_is_cancelled_at_once(on: On) {
    let gate = Gate::new();
    let inside = gate.clone();
    let bench = Bench::new(on, KindOptions::new(), move |cx| {
        let gate = inside.clone();
        async move {
            assert!(!cx.is_cancelled());
            tokio::join!(gate.pass(), cx.cancelled());
            assert!(cx.is_cancelled());
            Err(retryable("stopped"))
        }
    });
    let bench = bench.await;
    let handle = bench.submit().await;
    gate.reached().await;
    gate.open();
    let changed = bench.engine.cancel(handle.id()).await.expect("asked");
    assert_eq!(changed, Changed::Requested);
    let task = handle.ended().await.expect("an end");
    assert_eq!(task.state(), State::Cancelled);
    assert_eq!(bench.told(task.id).await, ["submitted", "started", "cancelled"]);
    assert!(bench.dead_letter(task.id).await.is_none());
}

async fn code_that_ignores_it_is_aborted_after_the_grace_period(on: On) {
    let (gate, dropped) = (Gate::new(), Count::default());
    let (inside, counted) = (gate.clone(), dropped.clone());
    let bench = Bench::new(on, KindOptions::new(), move |cx| {
        let (gate, held) = (inside.clone(), CountsDrop(counted.clone()));
        async move {
            let _held = held;
            cx.step("deaf", || async {
                gate.pass().await;
                Ok::<_, TaskError>(())
            })
            .await?;
            Ok(Value::Null)
        }
    });
    let bench = bench.await;
    let handle = bench.submit().await;
    gate.reached().await;
    bench.engine.cancel(handle.id()).await.expect("asked");
    bench.quiet().await;
    bench.advance(secs(10) - LOOK);
    bench.quiet().await;
    assert_eq!((bench.state(handle.id()).await, dropped.get()), (State::Running, 0));
    bench.advance(2 * LOOK);
    let task = handle.ended().await.expect("an end");
    assert_eq!((task.state(), dropped.get()), (State::Cancelled, 1));
    assert_eq!((bench.engine.status().active, bench.engine.status().overrun), (0, 0));
}

/// A task whose only step fails on every try but those the test lets through.
async fn between_tries(on: On, tries: &Count) -> Bench {
    let counted = tries.clone();
    let bench = Bench::new(on, KindOptions::new(), move |cx| {
        let tries = counted.clone();
        async move {
            let n = cx
                .step("a", || async {
                    let n = tries.up();
                    if cx.attempt() == 1 { Err(retryable("down")) } else { Ok(n) }
                })
                .await?;
            Ok(json!(n))
        }
    });
    bench.await
}

async fn a_cancel_between_tries_takes_effect_at_once(on: On) {
    let tries = Count::default();
    let mut bench = between_tries(on, &tries).await;
    let handle = bench.submit().await;
    bench.until(handle.id(), EventName::StepFailed).await;
    bench.quiet().await;
    bench.engine.cancel(handle.id()).await.expect("asked");
    let task = handle.ended().await.expect("an end");
    assert_eq!((task.state(), tries.get()), (State::Cancelled, 1));
    let told = bench.told(task.id).await;
    assert_eq!(told, ["submitted", "started", "step_failed", "cancelled"]);
}

async fn a_completed_task_cannot_be_cancelled(on: On) {
    let bench = Bench::new(on, KindOptions::new(), |_| async { Ok(json!(1)) }).await;
    let task = bench.run().await;
    let refused = bench.engine.cancel(task.id).await.expect_err("too late");
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    let paused = bench.engine.pause(task.id).await.expect_err("too late");
    assert_eq!(paused.kind(), ErrorKind::Conflict);
    assert_eq!(bench.task(task.id).await, task, "nothing changed");
}

async fn a_late_cancel_does_not_undo_done_work(on: On) {
    let gate = Gate::new();
    let inside = gate.clone();
    let bench = Bench::new(on, KindOptions::new(), move |_| {
        let gate = inside.clone();
        async move {
            gate.pass().await;
            Ok(json!(42))
        }
    });
    let bench = bench.await;
    let handle = bench.submit().await;
    gate.reached().await;
    bench.engine.cancel(handle.id()).await.expect("asked");
    gate.open();
    assert_eq!(handle.result().await.expect("done is done"), json!(42));
    assert_eq!(bench.told(handle.id()).await, ["submitted", "started", "completed"]);
}

/// Steps `a` and `b`; the test lets `a` through.
async fn two_steps(on: On, gate: &Gate, counts: &[Count; 2]) -> Bench {
    let (inside, counted) = (gate.clone(), counts.clone());
    let bench = Bench::new(on, KindOptions::new(), move |cx| {
        let (gate, [a, b]) = (inside.clone(), counted.clone());
        async move {
            cx.step("a", || async {
                gate.pass().await;
                give(a.up()).await
            })
            .await?;
            cx.step("b", || give(b.up())).await?;
            Ok(json!("done"))
        }
    });
    bench.await
}

async fn a_cancel_keeps_the_step_that_was_under_way(on: On) {
    let (gate, counts) = (Gate::new(), [Count::default(), Count::default()]);
    let bench = two_steps(on, &gate, &counts).await;
    let handle = bench.submit().await;
    gate.reached().await;
    bench.engine.cancel(handle.id()).await.expect("asked");
    gate.open();
    assert_eq!(handle.ended().await.expect("an end").state(), State::Cancelled);
    let told = bench.told(handle.id()).await;
    assert_eq!(told, ["submitted", "started", "step_completed", "cancelled"]);
    bench.engine.requeue(handle.id()).await.expect("requeued");
    assert_eq!(handle.result().await.expect("a value"), json!("done"));
    assert_eq!(counts.map(|c| c.get()), [1, 1]);
}

async fn a_cancel_from_another_node_arrives_within_two_seconds(on: On) {
    let gate = Gate::new();
    let inside = gate.clone();
    let script = Script::new(move |cx| {
        let gate = inside.clone();
        async move {
            gate.open();
            gate.pass().await;
            cx.cancelled().await;
            Err(retryable("stopped"))
        }
    });
    let bench =
        Bench::build(on, |b| b.register::<Job>().state(script).settings(|s| s.lease = secs(30)));
    let mut bench = bench.await;
    // The node has been idle for a while before it gets work.
    bench.quiet().await;
    bench.advance(secs(1));
    bench.quiet().await;
    let id = bench.submit().await.id();
    gate.reached().await;
    let other = bench.beside().await;
    assert_eq!(other.cancel(id).await.expect("asked"), Changed::Requested);
    bench.quiet().await;
    bench.advance(secs(1));
    bench.quiet().await;
    bench.advance(secs(1));
    bench.until(id, EventName::Cancelled).await;
}

async fn a_pause_takes_effect_at_the_next_step(on: On) {
    let (gate, counts) = (Gate::new(), [Count::default(), Count::default()]);
    let mut bench = two_steps(on, &gate, &counts).await;
    let handle = bench.submit().await;
    let id = handle.id();
    gate.reached().await;
    assert_eq!(bench.engine.pause(id).await.expect("asked"), Changed::Requested);
    bench.advance(secs(60));
    bench.quiet().await;
    assert_eq!(bench.state(id).await, State::Running, "a step is not interrupted");
    gate.open();
    bench.until(id, EventName::Paused).await;
    bench.quiet().await;
    let task = bench.task(id).await;
    assert_eq!((task.state(), bench.engine.status().active), (State::Paused, 0), "no slot");
    assert!(matches!(task.standing.waiting_on, Some(WaitingOn::Person { .. })));
    assert_eq!(counts.clone().map(|c| c.get()), [1, 0]);
    bench.engine.resume(id).await.expect("resumed");
    assert_eq!(handle.result().await.expect("a value"), json!("done"));
    assert_eq!(counts.map(|c| c.get()), [1, 1], "it went on at the next step");
    let standing = bench.task(id).await.standing;
    assert_eq!((standing.retries, standing.run), (0, 1));
    let told = bench.told(id).await;
    let before = ["submitted", "started", "step_completed", "paused", "resumed"];
    let after = ["started", "progress", "step_completed", "completed"];
    assert_eq!(told, [&before[..], &after].concat());
}

async fn a_pause_between_tries_takes_effect_at_once(on: On) {
    let tries = Count::default();
    let mut bench = between_tries(on, &tries).await;
    let handle = bench.submit().await;
    bench.until(handle.id(), EventName::StepFailed).await;
    bench.quiet().await;
    bench.engine.pause(handle.id()).await.expect("asked");
    bench.until(handle.id(), EventName::Paused).await;
    bench.advance(secs(60));
    bench.quiet().await;
    assert_eq!(tries.get(), 1);
    bench.engine.resume(handle.id()).await.expect("resumed");
    assert_eq!(handle.result().await.expect("a value"), json!(2));
    assert_eq!(bench.task(handle.id()).await.standing.retries, 0, "nothing burnt");
}

async fn a_pause_taken_back_in_time_changes_nothing(on: On) {
    let (gate, counts) = (Gate::new(), [Count::default(), Count::default()]);
    let bench = two_steps(on, &gate, &counts).await;
    let handle = bench.submit().await;
    gate.reached().await;
    bench.engine.pause(handle.id()).await.expect("asked");
    bench.engine.resume(handle.id()).await.expect("taken back");
    gate.open();
    assert_eq!(handle.result().await.expect("a value"), json!("done"));
    assert_eq!(counts.map(|c| c.get()), [1, 1]);
    let told = bench.told(handle.id()).await;
    assert!(!told.contains(&"paused"), "{told:?}");
}

async fn a_pause_during_the_last_step_comes_too_late(on: On) {
    let gate = Gate::new();
    let inside = gate.clone();
    let bench = Bench::new(on, KindOptions::new(), move |cx| {
        let gate = inside.clone();
        async move {
            tokio::select! {
                () = gate.pass() => {}
                () = pending() => {}
            }
            drop(cx);
            Ok(json!("done"))
        }
    });
    let bench = bench.await;
    let handle = bench.submit().await;
    gate.reached().await;
    bench.engine.pause(handle.id()).await.expect("asked");
    gate.open();
    assert_eq!(handle.result().await.expect("a value"), json!("done"));
}
