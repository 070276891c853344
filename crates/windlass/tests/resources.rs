//! What code holds beside its steps: resources of an attempt, shared state,
//! progress, and the keys it passes to other systems. Each lives exactly as long
//! as it says.

#![allow(clippy::expect_used, clippy::panic)] // a test fails by panicking

mod shared;

use serde_json::{Value, json};
use shared::{AT_ONCE, Bench, Count, CountsDrop, Gate, Job, MS, On, Script, give, on_both, why};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use windlass::core::event::EventName;
use windlass::core::task::Progress;
use windlass::prelude::*;

on_both!(
    a_local_lives_for_one_attempt,
    a_local_that_panics_when_dropped_harms_nobody,
    state_is_shared_by_all_tasks,
    state_nobody_gave_is_a_clear_error,
    progress_is_written_twice_a_second_at_most,
    progress_between_steps_is_not_written_more_often,
    the_last_progress_is_never_lost,
    a_resumed_task_tells_its_progress_before_its_first_step,
    keys_are_stable_and_tokens_rise,
);

async fn a_local_lives_for_one_attempt(on: On) {
    let (made, dropped) = (Count::default(), Count::default());
    let (m, d) = (made.clone(), dropped.clone());
    let options = KindOptions::new().retry(AT_ONCE).step_retry(AT_ONCE);
    let bench = Bench::new(on, options, move |cx| {
        let (made, dropped) = (m.clone(), d.clone());
        let tries = Count::default();
        async move {
            let local = || {
                cx.local(|| {
                    made.up();
                    give(CountsDrop(dropped.clone()))
                })
            };
            // The first try of each attempt fails in place.
            cx.step(format!("a{}", cx.attempt()), || async {
                local().await?;
                if tries.up() == 1 { Err(retryable("again, here")) } else { Ok(()) }
            })
            .await?;
            local().await?;
            let seen = json!([made.get(), dropped.get()]);
            match cx.attempt() {
                1 => Err(retryable("again, later")),
                _ => Ok(seen),
            }
        }
    });
    let mut bench = bench.await;
    let handle = bench.submit().await;
    bench.until(handle.id(), EventName::Retrying).await;
    assert!(dropped.get() >= 1, "gone before the end is known");
    assert_eq!(handle.result().await.expect("a value"), json!([2, 1]));
    assert_eq!((made.get(), dropped.get()), (2, 2));
    assert_eq!(bench.attempts(handle.id()).await[0].steps.len(), 2, "one failed try, one good");
}

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

async fn a_local_that_panics_when_dropped_harms_nobody(on: On) {
    let bench = Bench::build(on, |b| {
        let script = Script::with_n(|cx, n| async move {
            if n == 1 {
                cx.local(|| give(Bomb)).await?;
            }
            Ok(json!(n))
        });
        b.register::<Job>().state(script).queue("default", 1)
    });
    let bench = bench.await;
    for n in [1, 2, 1, 2] {
        let handle = bench.engine.submit(Job { n }).await.expect("submitted");
        assert_eq!(handle.result().await.expect("a value"), json!(n));
    }
    bench.quiet().await;
    assert_eq!(bench.engine.status().active, 0, "no slot is lost");
}

struct Pool(Mutex<u32>);

async fn state_is_shared_by_all_tasks(on: On) {
    let bench = Bench::build(on, |b| {
        let script = Script::new(|cx| async move {
            let pool: Arc<Pool> = cx.state()?;
            let mut used = pool.0.lock().map_err(|_| fatal("poisoned"))?;
            *used += 1;
            Ok(json!(*used))
        });
        b.register::<Job>().state(script).state(Pool(Mutex::new(0)))
    });
    let bench = bench.await;
    for n in 1..=3 {
        let handle = bench.submit().await;
        assert_eq!(handle.result().await.expect("a value"), json!(n));
    }
}

async fn state_nobody_gave_is_a_clear_error(on: On) {
    let bench = Bench::new(on, KindOptions::new(), |cx| async move {
        cx.state::<Pool>()?;
        Ok(Value::Null)
    });
    let task = bench.await.run().await;
    let (reason, _, _, message) = why(&task);
    assert_eq!((reason, task.standing.attempt), ("fatal", 1));
    assert!(message.contains("Pool") && message.contains(".state("), "{message}");
}

/// How far each progress event said the task was.
async fn told(bench: &Bench, handle: &Handle<Value>) -> Vec<u64> {
    let data = bench.data(handle.id(), EventName::Progress).await;
    data.iter().map(|d| d["done"].as_u64().expect("a number")).collect()
}

async fn progress_is_written_twice_a_second_at_most(on: On) {
    let gate = Gate::new();
    let inside = gate.clone();
    let bench = Bench::new(on, KindOptions::new(), move |cx| {
        let gate = inside.clone();
        async move {
            for i in 1..=10 {
                cx.progress(i, 20);
            }
            gate.pass().await;
            for i in 11..=15 {
                cx.progress(i, 20);
            }
            gate.pass().await;
            Ok(Value::Null)
        }
    });
    let mut bench = bench.await;
    let handle = bench.submit().await;
    gate.reached().await;
    bench.quiet().await;
    assert_eq!(told(&bench, &handle).await, [1]);
    let half = Duration::from_millis(500);
    bench.advance(half - MS);
    bench.quiet().await;
    assert_eq!(told(&bench, &handle).await, [1]);
    bench.advance(Duration::from_millis(100));
    bench.until(handle.id(), EventName::Progress).await;
    bench.until(handle.id(), EventName::Progress).await;
    assert_eq!(told(&bench, &handle).await, [1, 10], "the newest, and no other");
    gate.open();
    gate.reached().await;
    bench.quiet().await;
    assert_eq!(told(&bench, &handle).await, [1, 10]);
    bench.advance(half);
    bench.quiet().await;
    assert_eq!(told(&bench, &handle).await, [1, 10, 15]);
    bench.advance(half);
    bench.quiet().await;
    gate.open();
    handle.result().await.expect("a value");
    assert_eq!(told(&bench, &handle).await, [1, 10, 15], "nothing is told twice");
    let progress = bench.task(handle.id()).await.standing.progress;
    assert_eq!(progress, Some(Progress { done: 15, total: 20, note: None, data: None }));
}

async fn progress_between_steps_is_not_written_more_often(on: On) {
    let bench = Bench::new(on, KindOptions::new(), |cx| async move {
        for i in 1..=10 {
            cx.step(format!("s{i}"), || give(i)).await?;
            cx.progress(i, 10);
        }
        Ok(Value::Null)
    });
    let bench = bench.await;
    let handle = bench.submit().await;
    handle.result().await.expect("a value");
    assert_eq!(told(&bench, &handle).await, [1, 10], "the first, and the last with the end");
}

async fn the_last_progress_is_never_lost(on: On) {
    let bench = Bench::build(on, |b| {
        let script = Script::with_n(|cx, n| async move {
            cx.progress(1, 3);
            cx.progress_with(Progress {
                done: 3,
                total: 3,
                note: Some("almost".to_owned()),
                data: None,
            });
            match n {
                0 => Ok(Value::Null),
                1 => Err(fatal("broken")),
                _ => Err(snooze(shared::HOUR)),
            }
        });
        b.register::<Job>().state(script)
    });
    let mut bench = bench.await;
    let ends = [EventName::Completed, EventName::Failed, EventName::Scheduled];
    for (n, end) in ends.into_iter().enumerate() {
        let job = Job { n: u32::try_from(n).expect("small") };
        let handle = bench.engine.submit(job).await.expect("submitted");
        bench.until(handle.id(), end).await;
        let progress = bench.task(handle.id()).await.standing.progress.expect("progress");
        assert_eq!((progress.done, progress.note.as_deref()), (3, Some("almost")));
        let names = bench.told(handle.id()).await;
        assert_eq!(names[..4], ["submitted", "started", "progress", "progress"], "then the end");
    }
}

async fn a_resumed_task_tells_its_progress_before_its_first_step(on: On) {
    let options = KindOptions::new().retry(AT_ONCE);
    let bench = Bench::new(on, options, |cx| async move {
        cx.step("a", || give(1)).await?;
        cx.progress(7, 9);
        if cx.attempt() == 1 {
            return Err(retryable("again"));
        }
        cx.step("b", || give(1)).await?;
        Ok(Value::Null)
    });
    let bench = bench.await;
    let handle = bench.submit().await;
    handle.result().await.expect("a value");
    let names = bench.told(handle.id()).await;
    let second = names.iter().rposition(|n| *n == "started").expect("a second attempt");
    assert_eq!(names[second..][..3], ["started", "progress", "step_completed"]);
    let data = bench.data(handle.id(), EventName::Progress).await;
    assert_eq!(data[1]["done"], json!(7), "as far as it had come: {data:?}");
}

async fn keys_are_stable_and_tokens_rise(on: On) {
    let seen = Arc::new(Mutex::new(vec![]));
    let notes = seen.clone();
    let options = KindOptions::new().retry(AT_ONCE).step_retry(AT_ONCE);
    let bench = Bench::new(on, options, move |cx| {
        let (notes, tries) = (notes.clone(), Count::default());
        async move {
            cx.step("pay", || async {
                let note = (cx.idempotency_key("pay"), cx.fencing_token());
                notes.lock().expect("no panic in here").push(note);
                match (tries.up(), cx.attempt()) {
                    (1, _) => Err(retryable("again, here")),
                    (_, 1) => Err(fatal("over")),
                    _ => Ok(()),
                }
            })
            .await?;
            Ok(Value::Null)
        }
    });
    let bench = bench.await;
    let handle = bench.submit().await;
    handle.ended().await.expect("an end");
    bench.engine.requeue(handle.id()).await.expect("requeued");
    handle.result().await.expect("a value");
    let seen = seen.lock().expect("no panic in here").clone();
    let key = |run: u32| format!("{}:{run}:pay", handle.id());
    assert_eq!(seen.len(), 4, "two tries in each of two attempts");
    assert!(seen[..2].iter().all(|(k, _)| *k == key(1)), "{seen:?}");
    assert!(seen[2..].iter().all(|(k, _)| *k == key(2)), "a new run has new keys: {seen:?}");
    let tokens: Vec<u64> = seen.iter().map(|(_, token)| *token).collect();
    assert!(tokens[0] == tokens[1] && tokens[2] == tokens[3] && tokens[0] < tokens[2]);
}
