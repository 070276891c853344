//! Named steps inside a kind's code: remembered by name, recorded in order with
//! their failures, refused when they cannot be. What a failed step does to its
//! task is in `retries.rs` and `outcomes.rs`.

#![allow(clippy::expect_used, clippy::panic)] // a test fails by panicking

mod shared;

use serde_json::{Value, json};
use shared::{AT_ONCE, Bench, Count, NEVER, On, give, on_both, why};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::Barrier;
use windlass::core::checkpoint::StepOutcome;
use windlass::core::event::EventName;
use windlass::core::outcome::Class;
use windlass::core::state::State;
use windlass::core::store::Attempt;
use windlass::prelude::*;
use windlass::unknown;

on_both!(
    a_recorded_step_is_not_done_again,
    steps_are_looked_up_by_name,
    a_name_used_twice_is_fatal,
    a_name_that_is_none_is_fatal,
    steps_done_at_once_get_rising_versions,
    a_recorded_value_of_another_type_is_fatal,
    a_value_that_cannot_be_written_fails_the_task,
    failed_tries_are_recorded,
    a_step_that_was_abandoned_can_be_left_behind,
    a_step_that_was_abandoned_is_not_blamed,
    of_steps_done_at_once_one_that_runs_is_blamed,
    a_wait_without_end_is_no_panic,
);

fn retry_task_only() -> KindOptions {
    KindOptions::new().retry(AT_ONCE).step_retry(NEVER)
}

/// Name, outcome, class and reason of each recorded try.
fn tries(attempt: &Attempt) -> Vec<(&str, StepOutcome, Option<Class>, Option<&str>)> {
    let records = attempt.steps.iter().map(|s| &s.record);
    records.map(|r| (r.name.as_str(), r.outcome, r.class, r.reason.as_deref())).collect()
}

async fn a_recorded_step_is_not_done_again(on: On) {
    let (a, b) = (Count::default(), Count::default());
    let (a2, b2) = (a.clone(), b.clone());
    let bench = Bench::new(on, retry_task_only(), move |cx| {
        let (a, b) = (a2.clone(), b2.clone());
        async move {
            let first: usize = cx.step("a", || give(40 + a.up())).await?;
            let second = cx
                .step("b", || async {
                    if b.up() == 1 { Err(retryable("not yet")) } else { Ok("b".to_owned()) }
                })
                .await?;
            Ok(json!([first, second]))
        }
    });
    let bench = bench.await;
    let handle = bench.submit().await;
    assert_eq!(handle.result().await.expect("a value"), json!([41, "b"]));
    assert_eq!((a.get(), b.get()), (1, 2), "a is done once, b twice");
    let attempts = bench.attempts(handle.id()).await;
    let failed = ("b", StepOutcome::Failed, Some(Class::Retryable), Some("not yet"));
    assert_eq!(attempts.len(), 2);
    assert_eq!(tries(&attempts[0]), [("a", StepOutcome::Done, None, None), failed]);
    assert_eq!(tries(&attempts[1]), [("b", StepOutcome::Done, None, None)]);
    let told = bench.told(handle.id()).await;
    let first = ["submitted", "started", "step_completed", "step_failed", "retrying"];
    let second = ["started", "progress", "step_completed", "completed"];
    assert_eq!(told, [&first[..], &second[..]].concat());
}

async fn steps_are_looked_up_by_name(on: On) {
    let calls = Count::default();
    let seen = calls.clone();
    let bench = Bench::new(on, retry_task_only(), move |cx| {
        let calls = seen.clone();
        async move {
            let first = cx.attempt() == 1;
            let order = if first { ["a", "b"] } else { ["b", "a"] };
            let mut got = vec![];
            for name in order {
                got.push(cx.step(name, || give(format!("{name}{}", calls.up()))).await?);
            }
            if first { Err(retryable("again")) } else { Ok(json!(got)) }
        }
    });
    let bench = bench.await;
    let handle = bench.submit().await;
    assert_eq!(handle.result().await.expect("a value"), json!(["b2", "a1"]));
    assert_eq!(calls.get(), 2);
}

async fn a_name_used_twice_is_fatal(on: On) {
    let bench = Bench::new(on, KindOptions::new(), |cx| async move {
        cx.step("first", || give(1)).await?;
        cx.step("twin", || give(1)).await?;
        cx.step("twin", || give(2)).await?;
        Ok(Value::Null)
    });
    let bench = bench.await;
    let task = bench.run().await;
    let (reason, class, _, message) = why(&task);
    assert_eq!((task.state(), reason, class), (State::Failed, "fatal", "fatal"));
    assert!(message.contains("`twin`") && message.contains("twice"), "{message}");
    assert_eq!(task.standing.attempt, 1, "no retry");
    assert!(bench.dead_letter(task.id).await.is_some());
}

async fn a_name_that_is_none_is_fatal(on: On) {
    for name in ["", "with\nline", &"x".repeat(201)] {
        let name = name.to_owned();
        let bench = Bench::new(on, KindOptions::new(), move |cx| {
            let name = name.clone();
            async move {
                cx.step(name, || give(1)).await?;
                Ok(Value::Null)
            }
        });
        let task = bench.await.run().await;
        assert_eq!((why(&task).0, task.standing.attempt), ("fatal", 1));
    }
}

async fn steps_done_at_once_get_rising_versions(on: On) {
    let bench = Bench::new(on, KindOptions::new(), |cx| async move {
        let together = Arc::new(Barrier::new(5));
        let step = |name: &'static str| {
            let (cx, together) = (cx.clone(), together.clone());
            async move {
                cx.step(name, || async {
                    together.wait().await;
                    give(name.to_owned()).await
                })
                .await
            }
        };
        let (a, b, c, d, e) = tokio::join!(step("a"), step("b"), step("c"), step("d"), step("e"));
        Ok(json!([a?, b?, c?, d?, e?]))
    });
    let bench = bench.await;
    let handle = bench.submit().await;
    assert_eq!(handle.result().await.expect("a value"), json!(["a", "b", "c", "d", "e"]));
    let attempts = bench.attempts(handle.id()).await;
    let versions: Vec<u64> = attempts[0].steps.iter().map(|s| s.record.version.0).collect();
    assert_eq!(versions, [1, 2, 3, 4, 5]);
    let mut names: Vec<&str> = attempts[0].steps.iter().map(|s| s.record.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["a", "b", "c", "d", "e"]);
}

async fn a_recorded_value_of_another_type_is_fatal(on: On) {
    let bench = Bench::new(on, retry_task_only(), |cx| async move {
        if cx.attempt() == 1 {
            cx.step("shape", || give("text".to_owned())).await?;
            cx.step("other", || give(1)).await?;
            return Err(retryable("a new version of the code comes"));
        }
        let number: u32 = cx.step("shape", || give(7)).await?;
        Ok(json!(number))
    });
    let bench = bench.await;
    let task = bench.run().await;
    let (reason, class, step, message) = why(&task);
    assert_eq!((reason, class, step), ("fatal", "fatal", "shape"));
    assert!(message.contains("`shape`") && message.contains("type"), "{message}");
    assert_eq!(task.standing.attempt, 2, "a clear error is not retried");
    let place = shared::failure(&task).error.step.as_ref().expect("a step");
    assert_eq!(place.index, 0, "`shape` is the first step, though two are finished");
}

async fn a_value_that_cannot_be_written_fails_the_task(on: On) {
    let bench = Bench::new(on, KindOptions::new(), |cx| async move {
        // JSON has no objects with pairs for keys.
        cx.step("pairs", || give(HashMap::from([((1u8, 2u8), 3u8)]))).await?;
        Ok(Value::Null)
    });
    let bench = bench.await;
    let task = bench.run().await;
    let (reason, class, step, message) = why(&task);
    assert_eq!((reason, class, step), ("persistence", "persistence", "pairs"));
    assert!(message.contains("`pairs`"), "{message}");
    assert_eq!(task.standing.attempt, 1);
    let letter = bench.dead_letter(task.id).await.expect("a dead letter");
    assert_eq!((letter.reason.as_str(), letter.step.as_deref()), ("persistence", Some("pairs")));
}

async fn failed_tries_are_recorded(on: On) {
    let calls = Count::default();
    let options = KindOptions::new().step_retry(AT_ONCE);
    let bench = Bench::new(on, options, move |cx| {
        let calls = calls.clone();
        async move {
            cx.step("before", || give(())).await?;
            let got = cx
                .step("a", || async {
                    match calls.up() {
                        1 => Err(retryable("one")),
                        2 => Err(unknown("two")),
                        n => Ok(n),
                    }
                })
                .await?;
            Ok(json!(got))
        }
    });
    let bench = bench.await;
    let handle = bench.submit().await;
    assert_eq!(handle.result().await.expect("a value"), json!(3));
    let attempts = bench.attempts(handle.id()).await;
    let done = |name| (name, StepOutcome::Done, None, None);
    let expected = [
        done("before"),
        ("a", StepOutcome::Failed, Some(Class::Retryable), Some("one")),
        ("a", StepOutcome::Failed, Some(Class::Unknown), Some("two")),
        done("a"),
    ];
    assert_eq!(attempts.len(), 1, "steps are retried in place");
    assert_eq!(tries(&attempts[0]), expected);
    let versions: Vec<u64> = attempts[0].steps.iter().map(|s| s.record.version.0).collect();
    assert_eq!(versions, [1, 2, 3, 4]);
    let told = bench.told(handle.id()).await;
    let steps = ["step_completed", "step_failed", "step_failed", "step_completed"];
    assert_eq!(told, [&["submitted", "started"], &steps[..], &["completed"]].concat());
    let data = bench.data(handle.id(), EventName::StepFailed).await;
    let failed = |reason, class, version| json!({"step": "a", "reason": reason, "class": class, "version": version});
    assert_eq!(data, [failed("one", "retryable", 2), failed("two", "unknown", 3)]);
}

/// A step that lost a race is neither recorded nor held against the task, how
/// long it may run on after that.
async fn a_step_that_was_abandoned_can_be_left_behind(on: On) {
    let gate = shared::Gate::new();
    let inside = gate.clone();
    let options = KindOptions::new().step_timeout(shared::secs(10)).retry(NEVER);
    let bench = Bench::new(on, options, move |cx| {
        let gate = inside.clone();
        async move {
            tokio::select! {
                biased;
                never = cx.step("slow", std::future::pending::<Result<u32, TaskError>>) => {
                    never?;
                }
                () = std::future::ready(()) => {}
            }
            gate.pass().await;
            cx.step("next", || give(1)).await?;
            Ok(json!("done"))
        }
    });
    let bench = bench.await;
    let handle = bench.submit().await;
    gate.reached().await;
    for _ in 0..3 {
        bench.advance(shared::secs(20));
        bench.quiet().await;
    }
    assert_eq!(bench.state(handle.id()).await, State::Running);
    gate.open();
    assert_eq!(handle.result().await.expect("a value"), json!("done"));
    let attempts = bench.attempts(handle.id()).await;
    assert_eq!(tries(&attempts[0]), [("next", StepOutcome::Done, None, None)]);
}

async fn a_step_that_was_abandoned_is_not_blamed(on: On) {
    let bench = Bench::new(on, KindOptions::new(), |cx| async move {
        tokio::select! {
            biased;
            never = cx.step("slow", std::future::pending::<Result<u32, TaskError>>) => {
                never?;
            }
            () = std::future::ready(()) => {}
        }
        Err(fatal("something else"))
    });
    let task = bench.await.run().await;
    assert_eq!(why(&task), ("fatal", "fatal", "", "something else"));
}

async fn of_steps_done_at_once_one_that_runs_is_blamed(on: On) {
    let options = KindOptions::new().task_timeout(shared::secs(10));
    let bench = Bench::new(on, options, |cx| async move {
        let never = cx.step("never", std::future::pending::<Result<u32, TaskError>>);
        let (never, soon) = tokio::join!(never, cx.step("soon", || give(1)));
        Ok(json!([never?, soon?]))
    });
    let mut bench = bench.await;
    let handle = bench.submit().await;
    bench.until(handle.id(), EventName::StepCompleted).await;
    bench.quiet().await;
    bench.advance(shared::secs(10));
    let task = handle.ended().await.expect("an end");
    assert_eq!((why(&task).0, why(&task).2), ("timeout", "never"));
}

async fn a_wait_without_end_is_no_panic(on: On) {
    let tries = Count::default();
    let counted = tries.clone();
    let bench = Bench::new(on, KindOptions::new(), move |cx| {
        let tries = counted.clone();
        async move {
            cx.step("a", || async {
                tries.up();
                Err::<(), _>(retryable("closed for good").after(std::time::Duration::MAX))
            })
            .await?;
            Ok(Value::Null)
        }
    });
    let mut bench = bench.await;
    let handle = bench.submit().await;
    bench.until(handle.id(), EventName::StepFailed).await;
    bench.quiet().await;
    bench.advance(shared::secs(600));
    bench.quiet().await;
    assert_eq!((bench.state(handle.id()).await, tries.get()), (State::Retrying, 1));
    bench.engine.cancel(handle.id()).await.expect("asked");
    assert_eq!(handle.ended().await.expect("an end").state(), State::Cancelled);
}
