//! When a failed step and a failed task are tried again, by a clock that only
//! the test moves: never before the time, and at the time without any poll.
//! Ends with what a person can do once the retries are used up.

#![allow(clippy::expect_used, clippy::panic)] // a test fails by panicking

mod shared;

use serde_json::{Value, json};
use shared::{AT_ONCE, Bench, Count, Job, MS, NEVER, On, Script, give, on_both, secs, why};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use windlass::core::event::EventName;
use windlass::core::json::Json;
use windlass::core::outcome::TaskError as Cause;
use windlass::core::retry::{Exponential, Jitter, RetryPolicy};
use windlass::core::settle::UnknownErrors;
use windlass::core::state::State;
use windlass::prelude::*;
use windlass::{ErrorKind, unknown};

on_both!(
    a_step_is_retried_in_place_after_1_2_and_4_seconds,
    a_fatal_step_is_not_retried,
    unknown_errors_can_be_made_to_fail,
    any_error_through_the_question_mark_is_unknown,
    a_step_waits_as_long_as_the_other_side_asked,
    a_long_wait_holds_no_slot,
    a_policy_that_panics_fails_the_task,
    a_task_waits_as_long_as_the_other_side_asked,
    a_policy_of_ones_own_serves_both_layers,
    no_retries_at_all,
    a_submission_can_bring_its_own_policy,
    a_task_is_retried_after_5_10_and_20_seconds,
    the_sixteenth_failure_is_the_last,
    a_rerun_is_a_new_task_linked_to_the_old,
    a_requeue_can_begin_at_a_named_step,
    a_requeue_can_bring_a_new_payload,
    a_time_taken_back_delays_nobody,
);

/// Fails until the test says otherwise.
#[derive(Clone, Default)]
struct Works(Arc<AtomicBool>);

impl Works {
    fn now(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn check(&self, error: fn() -> TaskError) -> Result<(), TaskError> {
        if self.0.load(Ordering::SeqCst) { Ok(()) } else { Err(error()) }
    }
}

/// A task whose only step fails with this error; counts the tries.
async fn fails(on: On, options: KindOptions, error: fn() -> TaskError) -> (Bench, Count) {
    let tries = Count::default();
    let counted = tries.clone();
    let bench = Bench::new(on, options, move |cx| {
        let tries = counted.clone();
        async move {
            cx.step("a", || async {
                tries.up();
                Err::<(), _>(error())
            })
            .await?;
            Ok(Value::Null)
        }
    });
    (bench.await, tries)
}

/// The next try comes exactly `wait` from now, and not before.
async fn next_try_after(bench: &Bench, tries: &Count, wait: Duration) {
    let before = tries.get();
    bench.quiet().await;
    bench.advance(wait - MS);
    bench.quiet().await;
    assert_eq!(tries.get(), before, "not before {wait:?}");
    bench.advance(MS);
    bench.quiet().await;
    assert_eq!(tries.get(), before + 1, "at {wait:?}");
}

async fn a_step_is_retried_in_place_after_1_2_and_4_seconds(on: On) {
    let (mut bench, tries) = fails(on, KindOptions::new(), || retryable("down")).await;
    let id = bench.submit().await.id();
    bench.until(id, EventName::StepFailed).await;
    for wait in [1, 2, 4] {
        next_try_after(&bench, &tries, secs(wait)).await;
    }
    bench.until(id, EventName::Retrying).await;
    let task = bench.task(id).await;
    assert_eq!((tries.get(), task.state()), (4, State::Retrying));
    assert_eq!((task.standing.attempt, task.standing.retries), (1, 1));
    let attempts = bench.attempts(id).await;
    assert_eq!(attempts[0].steps.len(), 4);
    assert!(attempts[0].steps.iter().all(|s| s.attempt == 1), "all on the same attempt");
    // Then the task is tried again by its own policy, and the step from the start.
    bench.advance_to(task.standing.due_at);
    bench.until(id, EventName::Started).await;
    bench.until(id, EventName::StepFailed).await;
    next_try_after(&bench, &tries, secs(1)).await;
}

async fn a_fatal_step_is_not_retried(on: On) {
    let (bench, tries) = fails(on, KindOptions::new(), || fatal("no such file")).await;
    let task = bench.run().await;
    assert_eq!(why(&task), ("fatal", "fatal", "a", "no such file"));
    assert_eq!((tries.get(), task.standing.attempt), (1, 1));
    assert_eq!(bench.attempts(task.id).await[0].steps.len(), 1, "the failed try is recorded");
}

async fn unknown_errors_can_be_made_to_fail(on: On) {
    let options = KindOptions::new().unknown_errors(UnknownErrors::Fail);
    let (bench, tries) = fails(on, options, || unknown("odd")).await;
    let task = bench.run().await;
    assert_eq!(why(&task), ("fatal", "unknown", "a", "odd"));
    assert_eq!((tries.get(), task.standing.attempt), (1, 1));
}

async fn any_error_through_the_question_mark_is_unknown(on: On) {
    let options = KindOptions::new().step_retry(AT_ONCE).retry(NEVER);
    let bench = Bench::new(on, options, |cx| async move {
        let n: i32 = cx.step("parse", || async { "x".parse::<i32>() }).await?;
        Ok(json!(n))
    });
    let bench = bench.await;
    let task = bench.run().await;
    assert_eq!(why(&task), ("exhausted", "unknown", "parse", "invalid digit found in string"));
    assert_eq!(bench.attempts(task.id).await[0].steps.len(), 16, "retried in place");
}

async fn a_step_waits_as_long_as_the_other_side_asked(on: On) {
    let error = || retryable("busy").after(secs(30));
    let (mut bench, tries) = fails(on, KindOptions::new(), error).await;
    let id = bench.submit().await.id();
    bench.until(id, EventName::StepFailed).await;
    next_try_after(&bench, &tries, secs(30)).await;
}

#[derive(Debug)]
struct Bomb;

impl windlass::RetryPolicy for Bomb {
    fn delay(&self, _: u32, _: &Cause, _: Jitter) -> Option<Duration> {
        panic!("no policy today")
    }
}

async fn a_policy_that_panics_fails_the_task(on: On) {
    let options = KindOptions::new().step_retry(NEVER).retry(Bomb);
    let (bench, _) = fails(on, options, || retryable("down")).await;
    let task = bench.run().await;
    let failure = task.standing.failure.expect("a failure");
    assert!(failure.error.message.contains("no policy today"), "{failure:?}");
    assert_eq!((bench.engine.status().held, bench.engine.status().active), (0, 0));
}

async fn a_long_wait_holds_no_slot(on: On) {
    let error = || retryable("quota used up").after(secs(3600));
    let (mut bench, tries) = fails(on, KindOptions::new(), error).await;
    let id = bench.submit().await.id();
    bench.until(id, EventName::Retrying).await;
    assert_eq!((tries.get(), bench.engine.status().active), (1, 0));
    next_try_after(&bench, &tries, secs(3600)).await;
}

async fn a_task_waits_as_long_as_the_other_side_asked(on: On) {
    let error = || retryable("busy").after(secs(60));
    let options = KindOptions::new().step_retry(NEVER);
    let (mut bench, tries) = fails(on, options, error).await;
    let id = bench.submit().await.id();
    bench.until(id, EventName::Retrying).await;
    assert_eq!(bench.task(id).await.standing.due_at.since(bench.engine.now()), secs(60));
    next_try_after(&bench, &tries, secs(60)).await;
}

/// Two retries, always after the same time.
#[derive(Debug)]
struct Twice(Duration);

impl RetryPolicy for Twice {
    fn delay(&self, retry: u32, _error: &Cause, _jitter: Jitter) -> Option<Duration> {
        (retry <= 2).then_some(self.0)
    }
}

async fn a_policy_of_ones_own_serves_both_layers(on: On) {
    let options = KindOptions::new().step_retry(Twice(secs(7))).retry(Twice(secs(70)));
    let (mut bench, tries) = fails(on, options, || retryable("down")).await;
    let id = bench.submit().await.id();
    for attempt in 1..=3 {
        bench.until(id, EventName::StepFailed).await;
        next_try_after(&bench, &tries, secs(7)).await;
        next_try_after(&bench, &tries, secs(7)).await;
        assert_eq!(bench.task(id).await.standing.attempt, attempt);
        if attempt < 3 {
            bench.until(id, EventName::Retrying).await;
            next_try_after(&bench, &tries, secs(70)).await;
        }
    }
    bench.until(id, EventName::Failed).await;
    assert_eq!(why(&bench.task(id).await).0, "exhausted");
    assert_eq!(tries.get(), 9);
}

async fn no_retries_at_all(on: On) {
    let options = KindOptions::new().retries(0).step_retry(NEVER);
    let (bench, tries) = fails(on, options, || retryable("down")).await;
    let task = bench.run().await;
    assert_eq!(why(&task), ("exhausted", "retryable", "a", "down"));
    assert_eq!((tries.get(), task.standing.attempt, task.standing.retries), (1, 1, 0));
    assert_eq!(bench.dead_letter(task.id).await.expect("a dead letter").attempts, 1);
}

async fn a_submission_can_bring_its_own_policy(on: On) {
    let options = KindOptions::new().retries(0).step_retry(NEVER);
    let (mut bench, tries) = fails(on, options, || retryable("down")).await;
    let own = Exponential { retries: 1, first: secs(3), cap: secs(3), factor: 1.0, jitter: 0.0 };
    let id = bench.engine.submit(Job { n: 0 }).retry(own).await.expect("submitted").id();
    bench.until(id, EventName::Retrying).await;
    next_try_after(&bench, &tries, secs(3)).await;
    bench.until(id, EventName::Failed).await;
    assert_eq!(tries.get(), 2);
}

async fn a_task_is_retried_after_5_10_and_20_seconds(on: On) {
    let options = KindOptions::new().step_retry(NEVER);
    let (mut bench, tries) = fails(on, options, || retryable("down")).await;
    let id = bench.submit().await.id();
    bench.until(id, EventName::Started).await;
    for (n, usual) in [(1, 5.0), (2, 10.0), (3, 20.0)] {
        bench.until(id, EventName::Retrying).await;
        let due = bench.task(id).await.standing.due_at;
        let wait = due.since(bench.engine.now()).as_secs_f64();
        assert!((wait - usual).abs() <= usual * 0.1, "retry {n} after {wait} s");
        bench.advance_to(due.minus(MS));
        bench.quiet().await;
        assert_eq!((tries.get(), bench.state(id).await), (n, State::Retrying));
        bench.advance(MS);
        let started = bench.until(id, EventName::Started).await;
        assert_eq!(started.at, due, "started when the time came");
    }
}

async fn the_sixteenth_failure_is_the_last(on: On) {
    let (works, first, second) = (Works::default(), Count::default(), Count::default());
    let (inside, a, b) = (works.clone(), first.clone(), second.clone());
    let options = KindOptions::new().step_retry(NEVER);
    let bench = Bench::new(on, options, move |cx| {
        let (works, a, b) = (inside.clone(), a.clone(), b.clone());
        async move {
            let kept = cx.step("a", || give(a.up())).await?;
            cx.step("b", || async {
                b.up();
                works.check(|| retryable("down"))
            })
            .await?;
            Ok(json!([kept, cx.idempotency_key("b")]))
        }
    });
    let mut bench = bench.await;
    let handle = bench.submit().await;
    let id = handle.id();
    for retry in 1..=15 {
        bench.until(id, EventName::Retrying).await;
        let standing = bench.task(id).await.standing;
        assert_eq!((standing.retries, standing.attempt), (retry, retry));
        let wait = standing.due_at.since(bench.engine.now()).as_secs_f64();
        let usual = Exponential::TASK.base(retry).as_secs_f64();
        assert!((wait - usual).abs() <= usual * 0.1, "retry {retry} after {wait} s");
        bench.advance_to(standing.due_at);
    }
    let task = handle.ended().await.expect("an end");
    assert_eq!(why(&task), ("exhausted", "retryable", "b", "down"));
    assert_eq!((first.get(), second.get()), (1, 16));
    let letter = bench.dead_letter(id).await.expect("a dead letter");
    assert_eq!((letter.reason.as_str(), letter.attempts), ("exhausted", 16));
    assert_eq!(letter.step.as_deref(), Some("b"));

    works.now();
    bench.engine.requeue(id).await.expect("requeued");
    let result = handle.result().await.expect("a value");
    assert_eq!(result, json!([1, format!("{id}:2:b")]), "resumed, in a second run");
    assert_eq!((first.get(), second.get()), (1, 17));
    let task = bench.task(id).await;
    assert_eq!((task.standing.run, task.standing.attempt), (2, 17));
    assert!(bench.dead_letter(id).await.is_none(), "the dead letter is gone");
    let requeued = bench.data(id, EventName::Requeued).await;
    assert_eq!(requeued, [json!({"run": 2})]);
}

async fn a_rerun_is_a_new_task_linked_to_the_old(on: On) {
    let works = Works::default();
    let done = Count::default();
    let (inside, counted) = (works.clone(), done.clone());
    let bench = Bench::new(on, KindOptions::new(), move |cx| {
        let (works, done) = (inside.clone(), counted.clone());
        async move {
            let n = cx.step("a", || give(done.up())).await?;
            works.check(|| fatal("broken"))?;
            Ok(json!(n))
        }
    });
    let bench = bench.await;
    let old = bench.run().await;
    works.now();
    let again: Handle<Value> = bench.engine.rerun(old.id).await.expect("a new task");
    assert_ne!(again.id(), old.id);
    assert_eq!(again.result().await.expect("a value"), json!(2), "from the first step");
    let task = bench.task(again.id()).await;
    assert_eq!(task.extras.as_ref().and_then(|e| e.rerun_of), Some(old.id));
    assert_eq!((task.standing.run, task.standing.attempt), (1, 1));
    assert_eq!(bench.state(old.id).await, State::Failed, "the old one stays as it was");
}

async fn a_requeue_can_begin_at_a_named_step(on: On) {
    let works = Works::default();
    let counts = [Count::default(), Count::default(), Count::default()];
    let (inside, counted) = (works.clone(), counts.clone());
    let bench = Bench::new(on, KindOptions::new(), move |cx| {
        let (works, [a, b, c]) = (inside.clone(), counted.clone());
        async move {
            cx.step("a", || give(a.up())).await?;
            cx.step("b", || give(b.up())).await?;
            cx.step("c", || async {
                c.up();
                works.check(|| fatal("broken"))
            })
            .await?;
            Ok(json!("done"))
        }
    });
    let bench = bench.await;
    let handle = bench.submit().await;
    handle.ended().await.expect("an end");
    let refused = bench.engine.requeue_from(handle.id(), "nowhere").await;
    let refused = refused.expect_err("no such step");
    assert!(refused.message().contains("nowhere"), "{refused}");
    assert_eq!(bench.state(handle.id()).await, State::Failed);
    works.now();
    bench.engine.requeue_from(handle.id(), "b").await.expect("requeued");
    assert_eq!(handle.result().await.expect("a value"), json!("done"));
    assert_eq!(counts.map(|c| c.get()), [1, 2, 2]);
    let attempts = bench.attempts(handle.id()).await;
    let runs: Vec<u32> = attempts.iter().map(|a| a.run).collect();
    assert_eq!(runs, [1, 2], "history is kept");
}

async fn a_requeue_can_bring_a_new_payload(on: On) {
    let bench = Bench::build(on, |b| {
        b.register::<Job>().state(Script::with_n(|_, n| async move {
            if n == 0 { Err(fatal("nothing to do")) } else { Ok(json!(n)) }
        }))
    });
    let bench = bench.await;
    let handle = bench.submit().await;
    handle.ended().await.expect("an end");
    let payload = Json::of(&json!({"n": 7})).expect("JSON");
    bench.engine.requeue_with(handle.id(), payload).await.expect("requeued");
    assert_eq!(handle.result().await.expect("a value"), json!(7));
    let again = bench.engine.requeue(handle.id()).await.expect_err("completed");
    assert_eq!(again.kind(), ErrorKind::Conflict);
}

/// The timer waits for the earliest time; when that task is cancelled, the next
/// one must not wait for a poll.
async fn a_time_taken_back_delays_nobody(on: On) {
    let bench = Bench::new(on, KindOptions::new(), |_| async { Ok(Value::Null) });
    let mut bench = bench.await;
    let delayed = |n| bench.engine.submit(Job { n: 0 }).delay(secs(n));
    let early = delayed(10).await.expect("submitted").id();
    let late = delayed(11).await.expect("submitted").id();
    bench.quiet().await;
    bench.engine.cancel(early).await.expect("cancelled");
    bench.quiet().await;
    bench.advance(secs(10));
    bench.quiet().await;
    assert_eq!(bench.state(late).await, State::Scheduled);
    bench.advance(secs(1));
    bench.until(late, EventName::Completed).await;
}
