//! What user code may say, and what follows: skip, fail, fatal, snooze, a panic,
//! a payload it cannot read. Each harms or helps its own task only.

#![allow(clippy::expect_used, clippy::panic)] // a test fails by panicking

mod shared;

use serde_json::{Value, json};
use shared::{AT_ONCE, Bench, Count, Job, MS, NEVER, On, Script, give, on_both, secs, why};
use std::future::Future;
use windlass::core::checkpoint::StepOutcome;
use windlass::core::event::EventName;
use windlass::core::state::State;
use windlass::prelude::*;

on_both!(
    a_skipped_step_is_recorded_and_gives_null,
    a_skipped_step_whose_type_cannot_be_null_is_fatal,
    a_whole_task_can_be_skipped,
    fail_in_a_step_ends_the_task,
    fail_and_fatal_outside_a_step_end_the_task,
    a_snoozed_task_comes_back_at_its_time,
    a_snooze_in_a_step_burns_nothing,
    a_panic_in_a_step_harms_one_attempt,
    a_panic_outside_a_step_harms_one_attempt,
    a_panic_before_the_first_await_harms_one_attempt,
    a_panic_fails_where_unknown_errors_do,
    a_payload_nobody_can_read_fails_at_once,
    an_output_that_cannot_be_written_fails_the_task,
);

async fn a_skipped_step_is_recorded_and_gives_null(on: On) {
    let bodies = Count::default();
    let counted = bodies.clone();
    let options = KindOptions::new().retry(AT_ONCE);
    let bench = Bench::new(on, options, move |cx| {
        let bodies = counted.clone();
        async move {
            let maybe = cx
                .step("maybe", || async {
                    bodies.up();
                    Err::<Option<u32>, _>(skip("too small"))
                })
                .await?;
            cx.step("unit", || async {
                bodies.up();
                Err::<(), _>(skip("nothing to do"))
            })
            .await?;
            if cx.attempt() == 1 {
                return Err(retryable("again"));
            }
            Ok(json!({ "maybe": maybe }))
        }
    });
    let bench = bench.await;
    let handle = bench.submit().await;
    assert_eq!(handle.result().await.expect("a value"), json!({"maybe": null}));
    assert_eq!(bodies.get(), 2, "skipped steps are not done again");
    let attempts = bench.attempts(handle.id()).await;
    let first = &attempts[0].steps[0].record;
    assert_eq!((first.outcome, first.reason.as_deref()), (StepOutcome::Skipped, Some("too small")));
    let data = bench.data(handle.id(), EventName::StepSkipped).await;
    assert_eq!(data[0], json!({"step": "maybe", "version": 1, "reason": "too small"}));
    assert_eq!(data[1], json!({"step": "unit", "version": 2, "reason": "nothing to do"}));
    let told = bench.told(handle.id()).await;
    let first = ["submitted", "started", "step_skipped", "step_skipped", "retrying"];
    assert_eq!(told, [&first[..], &["started", "progress", "completed"]].concat());
}

async fn a_skipped_step_whose_type_cannot_be_null_is_fatal(on: On) {
    let bench = Bench::new(on, KindOptions::new(), |cx| async move {
        let n = cx.step("number", || async { Err::<u32, _>(skip("none")) }).await?;
        Ok(json!(n))
    });
    let task = bench.await.run().await;
    let (reason, _, step, message) = why(&task);
    assert_eq!((reason, step), ("fatal", "number"));
    assert!(message.contains("skipped") && message.contains("null"), "{message}");
}

async fn a_whole_task_can_be_skipped(on: On) {
    let bench = Bench::new(on, KindOptions::new(), |cx| async move {
        cx.step("look", || give(1)).await?;
        Err(skip("already there"))
    });
    let bench = bench.await;
    let handle = bench.submit().await;
    assert_eq!(handle.result().await.expect("an end"), Value::Null);
    let told = bench.told(handle.id()).await;
    assert_eq!(told, ["submitted", "started", "step_completed", "step_skipped", "completed"]);
    let data = bench.data(handle.id(), EventName::StepSkipped).await;
    assert_eq!(data, [json!({"step": "job", "version": 2, "reason": "already there"})]);
}

async fn fail_in_a_step_ends_the_task(on: On) {
    let bodies = Count::default();
    let counted = bodies.clone();
    let bench = Bench::new(on, KindOptions::new(), move |cx| {
        let bodies = counted.clone();
        async move {
            cx.step("fine", || give(1)).await?;
            cx.step("check", || async {
                bodies.up();
                Err::<(), _>(fail("not an image"))
            })
            .await?;
            Ok(Value::Null)
        }
    });
    let bench = bench.await;
    let task = bench.run().await;
    assert_eq!(why(&task), ("fatal", "fatal", "check", "not an image"));
    assert_eq!((bodies.get(), task.standing.attempt), (1, 1), "no retry");
    let letter = bench.dead_letter(task.id).await.expect("a dead letter");
    assert_eq!((letter.reason.as_str(), letter.step.as_deref()), ("fatal", Some("check")));
    assert_eq!(letter.message, "not an image");
    let told = bench.told(task.id).await;
    let steps = ["submitted", "started", "step_completed", "step_failed"];
    assert_eq!(told, [&steps[..], &["failed", "dead_letter.entered"]].concat());
}

async fn fail_and_fatal_outside_a_step_end_the_task(on: On) {
    let bench = Bench::build(on, |b| {
        b.register::<Job>().state(Script::with_n(|cx, n| async move {
            cx.step("done", || give(1)).await?;
            Err(if n == 1 { fail("given up") } else { fatal("broken") })
        }))
    });
    let bench = bench.await;
    for (n, message) in [(1, "given up"), (2, "broken")] {
        let handle = bench.engine.submit(Job { n }).await.expect("submitted");
        let task = handle.ended().await.expect("an end");
        assert_eq!(why(&task), ("fatal", "fatal", "", message), "no step is to blame");
        assert_eq!(task.standing.attempt, 1);
        assert!(bench.dead_letter(task.id).await.is_some());
    }
}

async fn a_snoozed_task_comes_back_at_its_time(on: On) {
    let first = Count::default();
    let counted = first.clone();
    let bench = Bench::new(on, KindOptions::new().retries(0), move |cx| {
        let first = counted.clone();
        async move {
            let n = cx.step("a", || give(first.up())).await?;
            match cx.attempt() {
                1 => Err(snooze(secs(60))),
                _ => Ok(json!(n)),
            }
        }
    });
    let mut bench = bench.await;
    let handle = bench.submit().await;
    let id = handle.id();
    bench.until(id, EventName::Scheduled).await;
    let task = bench.task(id).await;
    let due = task.standing.due_at;
    assert_eq!((task.state(), due), (State::Scheduled, bench.engine.now().plus(secs(60))));
    bench.quiet().await;
    assert_eq!(bench.engine.status().active, 0, "it holds no slot");
    bench.advance_to(due.minus(MS));
    bench.quiet().await;
    assert_eq!(bench.state(id).await, State::Scheduled, "not before its time");
    bench.advance(MS);
    assert_eq!(handle.result().await.expect("a value"), json!(1));
    assert_eq!(first.get(), 1, "finished steps stay finished");
    let standing = bench.task(id).await.standing;
    assert_eq!((standing.retries, standing.attempt), (0, 2), "no retry is burnt");
}

async fn a_snooze_in_a_step_burns_nothing(on: On) {
    let bodies = Count::default();
    let counted = bodies.clone();
    let bench = Bench::new(on, KindOptions::new().retries(0), move |cx| {
        let bodies = counted.clone();
        async move {
            let n = cx
                .step("busy", || async {
                    if bodies.up() == 1 { Err(snooze(secs(5))) } else { Ok(2) }
                })
                .await?;
            Ok(json!(n))
        }
    });
    let mut bench = bench.await;
    let handle = bench.submit().await;
    bench.until(handle.id(), EventName::Scheduled).await;
    bench.advance(secs(5));
    assert_eq!(handle.result().await.expect("a value"), json!(2));
    assert_eq!(bench.task(handle.id()).await.standing.retries, 0);
    let told = bench.told(handle.id()).await;
    assert!(!told.contains(&"step_failed"), "{told:?}");
}

/// Runs a task that panics once, beside one that does not, on a single slot.
async fn panics_once(on: On, code: fn(Cx, u32) -> PanicsOnce) -> (Bench, Handle<Value>) {
    let options = KindOptions::new().retry(AT_ONCE);
    let bench = Bench::build(on, |b| {
        let b = b.register_with::<Job>(options).queue("default", 1);
        b.state(Script::with_n(code))
    });
    let bench = bench.await;
    let bad = bench.engine.submit(Job { n: 1 }).await.expect("submitted");
    let good = bench.engine.submit(Job { n: 0 }).await.expect("submitted");
    assert_eq!(good.result().await.expect("the other goes on"), json!(0));
    assert_eq!(bench.attempts(good.id()).await.len(), 1);
    (bench, bad)
}

type PanicsOnce = std::pin::Pin<Box<dyn Future<Output = Result<Value, TaskError>> + Send>>;

async fn a_panic_in_a_step_harms_one_attempt(on: On) {
    let (bench, bad) = panics_once(on, |cx, n| {
        Box::pin(async move {
            let first = cx.attempt() == 1;
            cx.step("before", || give(1)).await?;
            cx.step("boom", || async {
                tokio::task::yield_now().await;
                assert!(n == 0 || !first, "a bug");
                Ok::<_, TaskError>(())
            })
            .await?;
            Ok(json!(n))
        })
    })
    .await;
    assert_eq!(bad.result().await.expect("the second attempt works"), json!(1));
    let attempts = bench.attempts(bad.id()).await;
    assert_eq!(attempts.len(), 2, "a panic is not retried in place");
    let error = &attempts[0].failure.as_ref().expect("a failure").error;
    assert_eq!(error.class.as_str(), "panic");
    assert!(error.message.contains("a bug"), "{}", error.message);
    assert_eq!(error.step.as_ref().map(|s| (s.name.as_str(), s.index)), Some(("boom", 1)));
    assert_eq!(bench.task(bad.id()).await.standing.retries, 1);
}

async fn a_panic_outside_a_step_harms_one_attempt(on: On) {
    let (bench, bad) = panics_once(on, |cx, n| {
        Box::pin(async move {
            cx.step("before", || give(1)).await?;
            assert!(n == 0 || cx.attempt() > 1, "a bug");
            Ok(json!(n))
        })
    })
    .await;
    assert_eq!(bad.result().await.expect("the second attempt works"), json!(1));
    let attempts = bench.attempts(bad.id()).await;
    let error = &attempts[0].failure.as_ref().expect("a failure").error;
    assert_eq!((error.class.as_str(), &error.step), ("panic", &None));
}

async fn a_panic_before_the_first_await_harms_one_attempt(on: On) {
    let (bench, bad) = panics_once(on, |cx, n| {
        assert!(n == 0 || cx.attempt() > 1, "a hasty bug");
        Box::pin(async move { Ok(json!(n)) })
    })
    .await;
    assert_eq!(bad.result().await.expect("the second attempt works"), json!(1));
    let attempts = bench.attempts(bad.id()).await;
    let error = &attempts[0].failure.as_ref().expect("a failure").error;
    assert_eq!(error.class.as_str(), "panic");
    assert!(error.message.contains("a hasty bug"), "{}", error.message);
}

async fn a_panic_fails_where_unknown_errors_do(on: On) {
    let options = KindOptions::new().unknown_errors(windlass::core::settle::UnknownErrors::Fail);
    let bench = Bench::new(on, options, |_| async { panic!("a bug") });
    let task = bench.await.run().await;
    assert_eq!((why(&task).0, why(&task).1, task.standing.attempt), ("fatal", "panic", 1));
}

async fn a_payload_nobody_can_read_fails_at_once(on: On) {
    let bench = Bench::new(on, KindOptions::new(), |_| async { Ok(Value::Null) });
    let bench = bench.await;
    let handle = bench.engine.submit_named("job", &json!({"n": "many"})).await.expect("submitted");
    let task = handle.ended().await.expect("an end");
    let (reason, class, _, message) = why(&task);
    assert_eq!((reason, class), ("undecodable", "fatal"));
    assert!(message.contains("job"), "{message}");
    assert_eq!((task.standing.attempt, task.standing.retries), (1, 0));
    let letter = bench.dead_letter(task.id).await.expect("a dead letter");
    assert_eq!(letter.reason.as_str(), "undecodable");
    assert_eq!(letter.payload.as_str(), r#"{"n":"many"}"#);
}

/// Its output has pairs for keys, which JSON cannot write.
#[derive(Serialize, Deserialize)]
struct Pairs {}

impl TaskKind for Pairs {
    const NAME: &'static str = "pairs";
    type Output = std::collections::HashMap<(u8, u8), u8>;

    fn options() -> KindOptions {
        KindOptions::new().retry(NEVER)
    }

    async fn run(self, _cx: Cx) -> Result<Self::Output, TaskError> {
        Ok([((1, 2), 3)].into())
    }
}

async fn an_output_that_cannot_be_written_fails_the_task(on: On) {
    let bench = Bench::build(on, |b| b.register::<Pairs>()).await;
    let handle = bench.engine.submit(Pairs {}).await.expect("submitted");
    let task = handle.ended().await.expect("an end");
    assert_eq!((why(&task).0, why(&task).1), ("persistence", "persistence"));
}
