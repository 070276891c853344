//! Handlers that must end something outside before they are gone: they are told
//! when their time is over, and the slot, the retry and the task's end wait for
//! them, but only so long. By a clock that only the test moves.

#![allow(clippy::expect_used, clippy::panic)] // a test fails by panicking

mod shared;

use serde_json::{Value, json};
use shared::{AT_ONCE, Bench, Count, CountsDrop, Gate, LOOK, MS, NEVER, On, on_both, secs, why};
use std::time::Duration;
use windlass::StepHandler;
use windlass::core::event::EventName;
use windlass::core::state::State;
use windlass::core::store::BoxFuture;
use windlass::prelude::*;

on_both!(
    a_retry_waits_until_the_handler_has_ended,
    a_handler_that_ends_too_late_is_dropped,
    a_word_after_the_timeout_is_not_heard,
    a_submission_outranks_the_handler,
    a_cancel_is_heard,
    a_task_timeout_is_heard,
);

const TIMEOUT: Duration = Duration::from_secs(2);
const STOPPING: Duration = Duration::from_secs(6);

/// Waits for the order to stop on its first try, then at a gate.
#[derive(Clone)]
struct Stops {
    told: Count,
    gate: Gate,
    tries: Count,
    dropped: Count,
    says: fn() -> Result<Value, TaskError>,
}

impl Stops {
    fn new(says: fn() -> Result<Value, TaskError>) -> Stops {
        let (told, tries, dropped) = Default::default();
        Stops { told, gate: Gate::new(), tries, dropped, says }
    }
}

impl StepHandler for Stops {
    fn run(&self, call: StepCall) -> BoxFuture<'static, Result<Value, TaskError>> {
        let this = self.clone();
        Box::pin(async move {
            let _held = CountsDrop(this.dropped.clone());
            if this.tries.up() > 1 {
                return Ok(json!({"try": 2}));
            }
            call.log.set("the end of what it wrote");
            call.stop().await;
            this.told.up();
            this.gate.pass().await;
            (this.says)()
        })
    }

    fn timeout(&self) -> Option<Duration> {
        Some(TIMEOUT)
    }

    fn stopping(&self) -> Duration {
        STOPPING
    }
}

fn breaks() -> Result<Value, TaskError> {
    Err(fatal("broken off"))
}

async fn begun(on: On, stops: &Stops, options: KindOptions) -> (Bench, Handle<Value>) {
    let handler = stops.clone();
    let bench =
        Bench::build(on, |b| b.handler("stops", handler).plan_with("c", ["stops"], options));
    let mut bench = bench.await;
    let handle = bench.engine.submit_named("c", &json!({})).await.expect("submitted");
    bench.until(handle.id(), EventName::Started).await;
    bench.quiet().await;
    (bench, handle)
}

/// Moves on to the moment at which the handler is told, and no further.
async fn told_after(bench: &Bench, stops: &Stops, time: Duration) {
    bench.advance(time - MS);
    bench.quiet().await;
    assert_eq!(stops.told.get(), 0, "not before its time is over");
    bench.advance(MS);
    stops.gate.reached().await;
}

async fn a_retry_waits_until_the_handler_has_ended(on: On) {
    let stops = Stops::new(breaks);
    let (bench, handle) = begun(on, &stops, KindOptions::new().step_retry(AT_ONCE)).await;
    told_after(&bench, &stops, TIMEOUT).await;
    // Longer than the watch lets blocking code go on.
    bench.advance(STOPPING - MS);
    bench.quiet().await;
    assert_eq!((stops.tries.get(), stops.dropped.get()), (1, 0), "it still ends its work");
    assert_eq!(bench.state(handle.id()).await, State::Running);
    stops.gate.open();
    let result = handle.result().await.expect("the second try works");
    assert_eq!((result, stops.tries.get()), (json!({"try": 2}), 2));
    let failed = bench.data(handle.id(), EventName::StepFailed).await;
    assert_eq!((failed.len(), &failed[0]["class"]), (1, &json!("timeout")));
    let said = failed[0]["message"].as_str().or(failed[0]["reason"].as_str());
    assert_eq!(said, Some("the step ran longer than 2s"));
    assert_eq!(bench.attempts(handle.id()).await.len(), 1, "within the attempt");
}

async fn a_handler_that_ends_too_late_is_dropped(on: On) {
    let stops = Stops::new(breaks);
    let (bench, handle) = begun(on, &stops, KindOptions::new().step_retry(AT_ONCE)).await;
    told_after(&bench, &stops, TIMEOUT).await;
    bench.advance(STOPPING - MS);
    bench.quiet().await;
    assert_eq!((stops.tries.get(), stops.dropped.get()), (1, 0));
    bench.advance(MS);
    assert_eq!(handle.result().await.expect("the second try works"), json!({"try": 2}));
    assert_eq!(stops.dropped.get(), 2, "the first was given up");
}

async fn a_word_after_the_timeout_is_not_heard(on: On) {
    let stops = Stops::new(|| Ok(json!({"late": true})));
    let options = KindOptions::new().step_retry(NEVER).retry(NEVER);
    let (bench, handle) = begun(on, &stops, options).await;
    told_after(&bench, &stops, TIMEOUT).await;
    stops.gate.open();
    let task = handle.ended().await.expect("an end");
    assert_eq!((why(&task).1, why(&task).3), ("timeout", "the step ran longer than 2s"));
}

async fn a_submission_outranks_the_handler(on: On) {
    let stops = Stops::new(breaks);
    let handler = stops.clone();
    let bench = Bench::build(on, |b| b.handler("stops", handler));
    let mut bench = bench.await;
    let payload = json!({});
    let submission = bench.engine.submit_named("stops", &payload).step_timeout(secs(9));
    let handle = submission.await.expect("submitted");
    bench.until(handle.id(), EventName::Started).await;
    bench.quiet().await;
    told_after(&bench, &stops, secs(9)).await;
}

async fn a_cancel_is_heard(on: On) {
    let stops = Stops::new(breaks);
    let (bench, handle) = begun(on, &stops, KindOptions::new()).await;
    bench.engine.cancel(handle.id()).await.expect("asked");
    stops.gate.reached().await;
    assert_eq!(bench.state(handle.id()).await, State::Running, "it is still ending");
    stops.gate.open();
    let task = handle.ended().await.expect("an end");
    assert_eq!((task.state(), stops.tries.get()), (State::Cancelled, 1));
}

async fn a_task_timeout_is_heard(on: On) {
    let stops = Stops::new(breaks);
    let options = KindOptions::new().task_timeout(secs(1));
    let (bench, handle) = begun(on, &stops, options).await;
    bench.advance(secs(1) + LOOK);
    stops.gate.reached().await;
    bench.advance(STOPPING - 2 * LOOK);
    bench.quiet().await;
    assert_eq!((bench.state(handle.id()).await, stops.dropped.get()), (State::Running, 0));
    bench.advance(2 * LOOK);
    let task = handle.ended().await.expect("an end");
    assert_eq!((why(&task).0, stops.dropped.get()), ("timeout", 1));
    assert_eq!((bench.engine.status().active, bench.engine.status().overrun), (0, 0));
}
