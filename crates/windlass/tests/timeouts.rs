//! How long things may take, by a clock that only the test moves: one step, one
//! attempt, and the time until a task is first started. A timeout harms what ran
//! too long and nothing else.

#![allow(clippy::expect_used, clippy::panic)] // a test fails by panicking

mod shared;

use serde_json::{Value, json};
use shared::{
    AT_ONCE, Bench, Count, CountsDrop, Gate, HOUR, Job, LOOK, MS, NEVER, On, give, on_both, secs,
    why,
};
use std::future::pending;
use std::time::Duration;
use windlass::core::event::EventName;
use windlass::core::state::State;
use windlass::prelude::*;

on_both!(
    a_step_that_takes_too_long_is_tried_again,
    a_step_may_take_five_minutes,
    a_submission_can_set_the_step_timeout,
    an_attempt_that_takes_too_long_fails_the_task,
    an_attempt_may_take_thirty_minutes,
    a_submission_can_set_the_task_timeout,
    time_between_attempts_does_not_count,
    a_task_not_started_in_time_expires,
    a_claim_starts_nothing_that_has_expired,
    a_kind_can_have_a_deadline,
    a_deadline_counts_from_when_the_task_is_due,
    without_a_deadline_nothing_expires,
);

/// A task with one step that hangs on its first try.
async fn hangs_once(on: On, options: KindOptions) -> (Bench, Count) {
    let tries = Count::default();
    let counted = tries.clone();
    let bench = Bench::new(on, options.step_retry(AT_ONCE), move |cx| {
        let tries = counted.clone();
        async move {
            let n = cx
                .step("slow", || async {
                    match tries.up() {
                        1 => pending().await,
                        n => give(n).await,
                    }
                })
                .await?;
            Ok(json!(n))
        }
    });
    (bench.await, tries)
}

/// The running step is given up after exactly this long.
async fn gives_up_after(bench: &mut Bench, handle: &Handle<Value>, tries: &Count, time: Duration) {
    bench.until(handle.id(), EventName::Started).await;
    bench.quiet().await;
    bench.advance(time - MS);
    bench.quiet().await;
    assert_eq!(tries.get(), 1, "not before {time:?}");
    bench.advance(MS);
    assert_eq!(handle.result().await.expect("the second try works"), json!(2));
    let data = bench.data(handle.id(), EventName::StepFailed).await;
    assert_eq!((data.len(), &data[0]["class"]), (1, &json!("timeout")));
    assert_eq!(bench.attempts(handle.id()).await.len(), 1, "within the attempt");
}

async fn a_step_that_takes_too_long_is_tried_again(on: On) {
    let (mut bench, tries) = hangs_once(on, KindOptions::new().step_timeout(secs(10))).await;
    let handle = bench.submit().await;
    gives_up_after(&mut bench, &handle, &tries, secs(10)).await;
}

async fn a_step_may_take_five_minutes(on: On) {
    let (mut bench, tries) = hangs_once(on, KindOptions::new()).await;
    let handle = bench.submit().await;
    gives_up_after(&mut bench, &handle, &tries, secs(300)).await;
}

async fn a_submission_can_set_the_step_timeout(on: On) {
    let (mut bench, tries) = hangs_once(on, KindOptions::new().step_timeout(secs(100))).await;
    let submission = bench.engine.submit(Job { n: 0 }).step_timeout(secs(2));
    let handle = submission.await.expect("submitted");
    gives_up_after(&mut bench, &handle, &tries, secs(2)).await;
}

/// A task that never ends; says so when its future is dropped.
async fn never_ends(on: On, options: KindOptions) -> (Bench, Count) {
    let dropped = Count::default();
    let counted = dropped.clone();
    let bench = Bench::new(on, options, move |cx| {
        let dropped = CountsDrop(counted.clone());
        async move {
            let _held = dropped;
            cx.step("first", || give(1)).await?;
            pending().await
        }
    });
    (bench.await, dropped)
}

/// The attempt is ended at this time, give or take a look of the engine.
async fn ended_after(bench: &mut Bench, handle: &Handle<Value>, dropped: &Count, time: Duration) {
    bench.until(handle.id(), EventName::StepCompleted).await;
    bench.quiet().await;
    bench.advance(time - MS);
    bench.quiet().await;
    assert_eq!((bench.state(handle.id()).await, dropped.get()), (State::Running, 0));
    bench.advance(LOOK);
    let task = handle.ended().await.expect("an end");
    assert_eq!((why(&task).0, why(&task).1), ("timeout", "timeout"));
    assert_eq!((task.standing.attempt, task.standing.retries), (1, 0), "no retry");
    assert_eq!(dropped.get(), 1, "its future is gone");
    let letter = bench.dead_letter(task.id).await.expect("a dead letter");
    assert_eq!(letter.reason.as_str(), "timeout");
    assert_eq!((bench.engine.status().active, bench.engine.status().overrun), (0, 0));
}

async fn an_attempt_that_takes_too_long_fails_the_task(on: On) {
    let (mut bench, dropped) = never_ends(on, KindOptions::new().task_timeout(secs(60))).await;
    let handle = bench.submit().await;
    ended_after(&mut bench, &handle, &dropped, secs(60)).await;
}

async fn an_attempt_may_take_thirty_minutes(on: On) {
    let (mut bench, dropped) = never_ends(on, KindOptions::new()).await;
    let handle = bench.submit().await;
    ended_after(&mut bench, &handle, &dropped, HOUR / 2).await;
}

async fn a_submission_can_set_the_task_timeout(on: On) {
    let (mut bench, dropped) = never_ends(on, KindOptions::new().task_timeout(secs(60))).await;
    let submission = bench.engine.submit(Job { n: 0 }).task_timeout(secs(90));
    let handle = submission.await.expect("submitted");
    ended_after(&mut bench, &handle, &dropped, secs(90)).await;
}

async fn time_between_attempts_does_not_count(on: On) {
    let gate = Gate::new();
    let inside = gate.clone();
    let options = KindOptions::new().task_timeout(secs(60));
    let bench = Bench::new(on, options, move |cx| {
        let gate = inside.clone();
        async move {
            gate.pass().await;
            match cx.attempt() {
                1 => Err(snooze(HOUR)),
                _ => cx.step("boundary", || give(json!("done"))).await,
            }
        }
    });
    let mut bench = bench.await;
    let handle = bench.submit().await;
    let id = handle.id();
    gate.reached().await;
    bench.advance(secs(40));
    bench.quiet().await;
    gate.open();
    bench.until(id, EventName::Scheduled).await;
    bench.advance(HOUR);
    gate.reached().await;
    bench.advance(secs(40));
    bench.quiet().await;
    bench.engine.pause(id).await.expect("asked");
    gate.open();
    bench.until(id, EventName::Paused).await;
    bench.advance(HOUR);
    bench.quiet().await;
    bench.engine.resume(id).await.expect("resumed");
    gate.reached().await;
    bench.advance(secs(40));
    bench.quiet().await;
    gate.open();
    assert_eq!(handle.result().await.expect("a value"), json!("done"));
}

/// Tasks of this bench wait in a paused queue.
async fn waits(on: On, options: KindOptions, poll: Duration) -> (Bench, Count) {
    let started = Count::default();
    let counted = started.clone();
    let script = shared::Script::new(move |_| {
        counted.up();
        async { Ok(Value::Null) }
    });
    let bench = Bench::build(on, |b| {
        b.register_with::<Job>(options).state(script).settings(|s| s.poll = poll)
    });
    let bench = bench.await;
    bench.engine.pause_queue("default").await.expect("paused");
    (bench, started)
}

async fn a_task_not_started_in_time_expires(on: On) {
    let (bench, started) = waits(on, KindOptions::new().retry(NEVER), secs(1)).await;
    let submission = bench.engine.submit(Job { n: 0 }).deadline(secs(10));
    let handle = submission.await.expect("submitted");
    bench.quiet().await;
    bench.advance(secs(10));
    bench.quiet().await;
    assert_eq!(bench.state(handle.id()).await, State::Queued, "the last moment counts");
    bench.advance(secs(1));
    let task = handle.ended().await.expect("an end");
    assert_eq!((why(&task).0, why(&task).1), ("expired", "timeout"));
    let letter = bench.dead_letter(task.id).await.expect("a dead letter");
    assert_eq!((letter.reason.as_str(), letter.attempts), ("expired", 0));
    let told = bench.told(task.id).await;
    assert_eq!(told, ["submitted", "failed", "dead_letter.entered"]);
    bench.engine.resume_queue("default").await.expect("resumed");
    bench.quiet().await;
    assert_eq!(started.get(), 0, "it is never started");
}

/// Nobody looks for expired tasks here before the claim does.
async fn a_claim_starts_nothing_that_has_expired(on: On) {
    let (bench, started) = waits(on, KindOptions::new(), HOUR).await;
    let submission = bench.engine.submit(Job { n: 0 }).deadline(secs(10));
    let handle = submission.await.expect("submitted");
    bench.advance(secs(11));
    bench.engine.resume_queue("default").await.expect("resumed");
    bench.quiet().await;
    assert_eq!(started.get(), 0);
    assert_eq!(why(&handle.ended().await.expect("an end")).0, "expired");
}

async fn a_kind_can_have_a_deadline(on: On) {
    let (bench, started) = waits(on, KindOptions::new().deadline(secs(5)), secs(1)).await;
    let strict = bench.submit().await;
    let own = bench.engine.submit(Job { n: 0 }).deadline(secs(500)).await.expect("submitted");
    bench.quiet().await;
    bench.advance(secs(6));
    assert_eq!(why(&strict.ended().await.expect("an end")).0, "expired");
    bench.engine.resume_queue("default").await.expect("resumed");
    own.result().await.expect("its own deadline is far away");
    assert_eq!(started.get(), 1);
}

async fn a_deadline_counts_from_when_the_task_is_due(on: On) {
    let (bench, _) = waits(on, KindOptions::new(), secs(1)).await;
    bench.engine.resume_queue("default").await.expect("resumed");
    let submission = bench.engine.submit(Job { n: 0 }).delay(secs(100)).deadline(secs(10));
    let handle = submission.await.expect("submitted");
    bench.quiet().await;
    bench.advance(secs(50));
    bench.quiet().await;
    assert_eq!(bench.state(handle.id()).await, State::Scheduled);
    bench.advance(secs(50));
    handle.result().await.expect("it starts when it is due");
}

async fn without_a_deadline_nothing_expires(on: On) {
    let (bench, started) = waits(on, KindOptions::new(), secs(1)).await;
    let handle = bench.submit().await;
    bench.quiet().await;
    for _ in 0..30 {
        bench.advance(5 * HOUR);
        bench.quiet().await;
    }
    assert_eq!(bench.state(handle.id()).await, State::Queued);
    bench.engine.resume_queue("default").await.expect("resumed");
    handle.result().await.expect("late, but done");
    assert_eq!(started.get(), 1);
}
