//! Code that computes or blocks: on threads of its own, only so many at once,
//! and fenced when it will not stop. Its slot stays taken until it is really
//! gone, and what it says late is refused.

#![allow(clippy::expect_used, clippy::panic)] // a test fails by panicking

mod shared;

use serde_json::{Value, json};
use shared::{Bench, Count, CountsDrop, Job, LOOK, On, Script, give, on_both, secs};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use windlass::core::event::EventName;
use windlass::core::state::State;
use windlass::prelude::*;
use windlass::{Builder, Pool};

on_both!(
    computing_code_runs_on_threads_of_its_own,
    no_more_threads_than_allowed_run_at_once,
    blocking_code_that_ignores_a_cancel_is_fenced,
    a_blocking_step_beyond_its_time_is_fenced,
    waiting_code_on_a_thread_can_be_aborted,
    a_kind_with_little_room_is_found_in_every_queue,
);

/// Where blocking code waits, without the runtime, until the test lets one go.
#[derive(Clone)]
struct Block {
    came: UnboundedSender<()>,
    go: Arc<Mutex<Receiver<()>>>,
}

impl Block {
    fn new() -> (Block, UnboundedReceiver<()>, Sender<()>) {
        let (came, arrivals) = unbounded_channel();
        let (let_go, go) = channel();
        (Block { came, go: Arc::new(Mutex::new(go)) }, arrivals, let_go)
    }

    fn wait(&self) {
        self.came.send(()).expect("the test listens");
        // The test is over when nobody can let go any more.
        let _ = self.go.lock().expect("no panic in here").recv();
    }
}

fn on_threads(threads: usize, script: Script) -> impl FnOnce(Builder) -> Builder {
    let options = KindOptions::new().pool(Pool::Cpu).step_timeout(secs(5));
    move |b| {
        let b = b.register_with::<Job>(options).state(script);
        b.queue("default", 8).settings(|s| s.cpu_threads = threads)
    }
}

async fn computing_code_runs_on_threads_of_its_own(on: On) {
    let script = Script::new(|cx| async move {
        let thread = std::thread::current();
        let name = cx.step("compute", || give(thread.name().map(str::to_owned))).await?;
        Ok(json!([name, format!("{:?}", std::thread::current().id())]))
    });
    let bench = Bench::build(on, on_threads(1, script)).await;
    let handle = bench.submit().await;
    let here = format!("{:?}", std::thread::current().id());
    let result = handle.result().await.expect("a value");
    assert_eq!(result[0], json!("windlass-cpu"));
    assert_ne!(result[1], json!(here), "not the runtime's thread");
}

async fn no_more_threads_than_allowed_run_at_once(on: On) {
    let (block, mut came, go) = Block::new();
    let script = Script::new(move |_| {
        let block = block.clone();
        async move {
            block.wait();
            Ok(Value::Null)
        }
    });
    let bench = Bench::build(on, on_threads(2, script)).await;
    let jobs = (0..5).map(|n| bench.engine.submit(Job { n }));
    let handles = bench.engine.submit_all(jobs).await.expect("submitted");
    for left in (0..5).rev() {
        came.recv().await.expect("one begins");
        bench.quiet().await;
        let begun = 5 - left;
        assert!(bench.engine.status().active <= 2, "{:?}", bench.engine.status());
        if begun >= 2 {
            assert_eq!(bench.engine.status().active, 2);
            assert!(came.try_recv().is_err(), "no third one begins");
            go.send(()).expect("one waits");
        }
    }
    go.send(()).expect("one waits");
    for handle in handles {
        handle.result().await.expect("a value");
    }
}

async fn blocking_code_that_ignores_a_cancel_is_fenced(on: On) {
    let (block, mut came, go) = Block::new();
    let (tell, mut late) = unbounded_channel();
    let script = Script::with_n(move |cx, n| {
        let (block, tell) = (block.clone(), tell.clone());
        async move {
            if n == 1 {
                block.wait();
                let said = cx.step("late", || give(1)).await;
                tell.send(said.is_err()).expect("the test listens");
            }
            Ok(json!(n))
        }
    });
    let bench = Bench::build(on, on_threads(1, script)).await;
    let handle = bench.engine.submit(Job { n: 1 }).await.expect("submitted");
    came.recv().await.expect("it begins");
    let next = bench.engine.submit(Job { n: 2 }).await.expect("submitted");
    bench.engine.cancel(handle.id()).await.expect("asked");
    // The grace period, and the time an aborted attempt has to be gone.
    for time in [LOOK, secs(10), secs(1)] {
        bench.quiet().await;
        bench.advance(time);
    }
    assert_eq!(handle.ended().await.expect("an end").state(), State::Cancelled);
    bench.quiet().await;
    let status = bench.engine.status();
    assert_eq!((status.overrun, status.active), (1, 1), "its slot stays taken");
    assert_eq!(bench.state(next.id()).await, State::Queued, "there is no thread for the next");
    go.send(()).expect("it waits");
    assert_eq!(late.recv().await, Some(true), "a late step is refused");
    assert_eq!(next.result().await.expect("a value"), json!(2), "the slot is free again");
    let status = bench.engine.status();
    assert_eq!((status.overrun, status.leases_lost), (0, 0));
    assert_eq!(bench.state(handle.id()).await, State::Cancelled);
    assert!(bench.attempts(handle.id()).await[0].steps.is_empty());
}

async fn a_blocking_step_beyond_its_time_is_fenced(on: On) {
    let (block, mut came, go) = Block::new();
    let dropped = Count::default();
    let counted = dropped.clone();
    let script = Script::new(move |cx| {
        let (block, held) = (block.clone(), CountsDrop(counted.clone()));
        async move {
            let _held = held;
            let said = cx
                .step("crunch", || {
                    if cx.attempt() == 1 {
                        block.wait();
                    }
                    give(cx.attempt())
                })
                .await?;
            Ok(json!(said))
        }
    });
    let mut bench = Bench::build(on, on_threads(2, script)).await;
    let handle = bench.submit().await;
    came.recv().await.expect("it begins");
    bench.quiet().await;
    bench.advance(secs(5));
    bench.quiet().await;
    assert_eq!(bench.state(handle.id()).await, State::Running, "it may still come back");
    // It did not; and did not when it was aborted.
    for _ in 0..2 {
        bench.advance(secs(1));
        bench.quiet().await;
    }
    bench.until(handle.id(), EventName::Retrying).await;
    assert_eq!(bench.engine.status().overrun, 1);
    let task = bench.task(handle.id()).await;
    let error = &shared::failure(&task).error;
    assert_eq!((error.class.as_str(), task.standing.retries), ("timeout", 1));
    assert_eq!(error.step.as_ref().map(|s| s.name.as_str()), Some("crunch"));
    bench.advance_to(task.standing.due_at);
    assert_eq!(handle.result().await.expect("a value"), json!(2), "another thread did it");
    assert_eq!((dropped.get(), bench.engine.status().overrun), (1, 1), "the first still blocks");
    go.send(()).expect("it waits");
    // Two more need both threads.
    for n in [1, 2] {
        bench.engine.submit(Job { n }).await.expect("submitted");
    }
    for _ in 0..2 {
        came.recv().await.expect("it begins");
    }
    assert_eq!((dropped.get(), bench.engine.status().overrun), (2, 0));
    let attempts = bench.attempts(handle.id()).await;
    assert!(attempts[0].steps.is_empty(), "what came late is not recorded");
    assert_eq!(attempts[1].steps.len(), 1);
}

/// Async code on a thread is dropped like any other; no thread is left behind.
async fn waiting_code_on_a_thread_can_be_aborted(on: On) {
    let dropped = Count::default();
    let counted = dropped.clone();
    let (came, mut begun) = unbounded_channel();
    let script = Script::with_n(move |_, n| {
        let (held, came) = (CountsDrop(counted.clone()), came.clone());
        async move {
            let _held = held;
            came.send(()).expect("the test listens");
            match n {
                1 => std::future::pending().await,
                n => Ok(json!(n)),
            }
        }
    });
    let bench = Bench::build(on, on_threads(1, script)).await;
    let handle = bench.engine.submit(Job { n: 1 }).await.expect("submitted");
    begun.recv().await.expect("it begins");
    bench.engine.cancel(handle.id()).await.expect("asked");
    for time in [LOOK, secs(10)] {
        bench.quiet().await;
        bench.advance(time);
    }
    assert_eq!(handle.ended().await.expect("an end").state(), State::Cancelled);
    assert_eq!(dropped.get(), 1);
    let next = bench.engine.submit(Job { n: 2 }).await.expect("submitted");
    assert_eq!(next.result().await.expect("a value"), json!(2), "the thread is free");
    assert_eq!(bench.engine.status().overrun, 0);
}

/// One thread, four queues: wherever the next task is, it starts at once.
async fn a_kind_with_little_room_is_found_in_every_queue(on: On) {
    let script = Script::with_n(|_, n| async move { Ok(json!(n)) });
    let queues = ["default", "a", "b", "c"];
    let bench = Bench::build(on, |b| {
        let b = on_threads(1, script)(b);
        queues[1..].iter().fold(b, |b, name| b.queue(name, 4))
    });
    let bench = bench.await;
    for (n, queue) in (0..).zip(queues.into_iter().cycle()).take(12) {
        let handle = bench.engine.submit(Job { n }).queue(queue).await.expect("submitted");
        assert_eq!(handle.result().await.expect("a value"), json!(n));
    }
}
