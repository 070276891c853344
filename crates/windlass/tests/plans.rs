//! Declared plans: handlers that share a context, resume where they were, and
//! what becomes of finished steps when the plan has changed meanwhile.

#![allow(clippy::expect_used, clippy::panic)] // a test fails by panicking

mod shared;

use serde_json::{Map, Value, json};
use shared::{AT_ONCE, Bench, Count, Gate, Job, MS, NEVER, On, Script, on_both, secs, why};
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use windlass::core::checkpoint::OnMismatch;
use windlass::core::event::EventName;
use windlass::core::id::TaskId;
use windlass::core::outcome::WaitingOn;
use windlass::core::state::State;
use windlass::core::store::BoxFuture;
use windlass::prelude::*;
use windlass::{Builder, ErrorKind, StepHandler};

on_both!(
    handlers_share_a_context,
    a_plan_resumes_at_its_first_unfinished_step,
    a_submission_can_bring_its_own_steps,
    steps_nobody_knows_are_refused,
    no_steps_at_all_are_done_at_once,
    reserved_keys_are_refused,
    a_handler_can_have_its_own_timeout,
    a_handler_alone_is_a_kind_of_one_step,
    a_handler_that_panics_at_once_harms_one_attempt,
    plans_that_do_not_fit_together_do_not_start,
    a_longer_plan_goes_on_where_it_was,
    a_changed_plan_keeps_what_fits,
    a_changed_plan_of_which_nothing_fits_is_held,
    a_changed_plan_can_start_over,
    a_changed_plan_can_wait_for_a_person,
);

/// A step, and the context it saw.
type Entry = (String, Map<String, Value>);

/// What handlers did, in order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Entry>>>);

impl Log {
    /// A handler that notes its step and answers this.
    fn answer(&self, output: Value) -> impl StepHandler {
        let log = self.clone();
        move |call: StepCall| {
            log.note(&call);
            let output = output.clone();
            async move { Ok(output) }
        }
    }

    fn note(&self, call: &StepCall) {
        let entry = (call.step.clone(), call.context.clone());
        self.0.lock().expect("no panic in here").push(entry);
    }

    fn steps(&self) -> Vec<String> {
        self.0.lock().expect("no panic in here").iter().map(|(step, _)| step.clone()).collect()
    }

    fn context(&self, step: &str) -> Value {
        let log = self.0.lock().expect("no panic in here");
        let entry = log.iter().rfind(|(name, _)| name == step).expect("the step ran");
        Value::Object(entry.1.clone())
    }
}

async fn submit(bench: &Bench, kind: &str) -> Handle<Value> {
    bench.engine.submit_named(kind, &json!({"file": "x.png"})).await.expect("submitted")
}

async fn handlers_share_a_context(on: On) {
    let log = Log::default();
    let bench = Bench::build(on, |b| {
        let payload = log.clone();
        b.handler("a", log.answer(json!({"x": 1, "y": {"deep": 1}})))
            .handler("b", log.answer(json!({"y": 2})))
            .handler("scalar", log.answer(json!(5)))
            .handler("list", log.answer(json!([{"z": 1}])))
            .handler("none", |_: StepCall| async { Err(skip("not needed")) })
            .handler("last", move |call: StepCall| {
                payload.note(&call);
                async move { Ok(json!({"payload": call.payload})) }
            })
            .plan("chain", ["a", "b", "scalar", "list", "none", "last"])
    });
    let bench = bench.await;
    let handle = submit(&bench, "chain").await;
    let merged = json!({"x": 1, "y": 2, "payload": {"file": "x.png"}});
    assert_eq!(handle.result().await.expect("a context"), merged);
    assert_eq!(log.context("a"), json!({}));
    assert_eq!(log.context("b"), json!({"x": 1, "y": {"deep": 1}}));
    assert_eq!(log.context("list"), json!({"x": 1, "y": 2}), "later wins, scalars do not merge");
    assert_eq!(log.context("last"), json!({"x": 1, "y": 2}));
}

async fn a_plan_resumes_at_its_first_unfinished_step(on: On) {
    let (log, tries) = (Log::default(), Count::default());
    let bench = Bench::build(on, |b| {
        let (noted, tries) = (log.clone(), tries.clone());
        let options = KindOptions::new().retry(AT_ONCE).step_retry(NEVER);
        b.handler("a", log.answer(json!({"from": "a"})))
            .handler("b", move |call: StepCall| {
                noted.note(&call);
                let first = tries.up() == 1;
                async move { if first { Err(retryable("down")) } else { Ok(json!({"b": 1})) } }
            })
            .handler("c", log.answer(Value::Null))
            .plan_with("chain", ["a", "b", "c"], options)
    });
    let bench = bench.await;
    let handle = submit(&bench, "chain").await;
    assert_eq!(handle.result().await.expect("a context"), json!({"from": "a", "b": 1}));
    assert_eq!(log.steps(), ["a", "b", "b", "c"]);
    assert_eq!(log.context("b"), json!({"from": "a"}), "the context was remembered");
    let progress = bench.data(handle.id(), EventName::Progress).await;
    assert_eq!((&progress[0]["done"], &progress[0]["total"]), (&json!(1), &json!(3)));
}

async fn a_submission_can_bring_its_own_steps(on: On) {
    let log = Log::default();
    let bench = Bench::build(on, |b| {
        b.handler("a", log.answer(json!({"last": "a"})))
            .handler("b", log.answer(json!({"last": "b"})))
            .handler("c", log.answer(json!({"last": "c"})))
            .plan("chain", ["a", "b"])
    });
    let bench = bench.await;
    let submission = bench.engine.submit_named("chain", &json!({})).steps(["c", "a"]);
    let handle = submission.await.expect("submitted");
    assert_eq!(handle.result().await.expect("a context"), json!({"last": "a"}));
    assert_eq!(log.steps(), ["c", "a"]);
}

async fn steps_nobody_knows_are_refused(on: On) {
    let log = Log::default();
    let bench = Bench::build(on, |b| {
        let b = b.handler("a", log.answer(Value::Null)).plan("chain", ["a"]);
        b.register::<Job>().state(Script::new(|_| async { Ok(Value::Null) }))
    });
    let bench = bench.await;
    let chain = |steps: &'static [&'static str]| {
        bench.engine.submit_named("chain", &json!({})).steps(steps.iter().copied())
    };
    for (steps, named) in [(&["a", "nobody"][..], "`nobody`"), (&["a", "a"][..], "`a`")] {
        let refused = chain(steps).await.expect_err("refused");
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        assert!(refused.message().contains(named), "{refused}");
    }
    let typed = bench.engine.submit(Job { n: 0 }).steps(["a"]).await.expect_err("refused");
    assert!(typed.message().contains("`job`"), "{typed}");
    bench.quiet().await;
    assert!(log.steps().is_empty());
}

async fn no_steps_at_all_are_done_at_once(on: On) {
    let log = Log::default();
    let bench = Bench::build(on, |b| b.handler("a", log.answer(Value::Null)).plan("chain", ["a"]));
    let bench = bench.await;
    bench.engine.pause_queue("default").await.expect("paused");
    let none: [String; 0] = [];
    let submission = bench.engine.submit_named("chain", &json!({})).steps(none);
    let handle = submission.await.expect("submitted");
    assert_eq!(bench.state(handle.id()).await, State::Completed);
    handle.ended().await.expect("an end");
    assert_eq!(bench.told(handle.id()).await, ["submitted", "completed"]);
    assert!(bench.attempts(handle.id()).await.is_empty() && log.steps().is_empty());
}

async fn reserved_keys_are_refused(on: On) {
    let log = Log::default();
    let bench = Bench::build(on, |b| b.handler("a", log.answer(json!({"_input": 1}))));
    let bench = bench.await;
    let task = submit(&bench, "a").await.ended().await.expect("an end");
    let (reason, class, step, message) = why(&task);
    assert_eq!((reason, class, step), ("fatal", "output", "a"));
    assert!(message.contains("`_input`"), "{message}");
    assert_eq!((log.steps().len(), task.standing.attempt), (1, 1), "no retry");
}

/// Hangs, and may hang for two seconds.
struct Hangs(Count);

impl StepHandler for Hangs {
    fn run(&self, _call: StepCall) -> BoxFuture<'static, Result<Value, TaskError>> {
        self.0.up();
        Box::pin(pending())
    }

    fn timeout(&self) -> Option<Duration> {
        Some(secs(2))
    }
}

async fn a_handler_can_have_its_own_timeout(on: On) {
    let tries = Count::default();
    let options = KindOptions::new().step_timeout(secs(100)).step_retry(NEVER).retry(NEVER);
    let bench = Bench::build(on, |b| {
        b.handler("hangs", Hangs(tries.clone())).plan_with("chain", ["hangs"], options)
    });
    let mut bench = bench.await;
    let handle = submit(&bench, "chain").await;
    bench.until(handle.id(), EventName::Started).await;
    bench.quiet().await;
    bench.advance(secs(2) - MS);
    bench.quiet().await;
    assert_eq!(bench.state(handle.id()).await, State::Running);
    bench.advance(MS);
    let task = handle.ended().await.expect("an end");
    assert_eq!((why(&task).1, why(&task).2, tries.get()), ("timeout", "hangs", 1));
}

async fn a_handler_alone_is_a_kind_of_one_step(on: On) {
    let log = Log::default();
    let bench = Bench::build(on, |b| b.handler("thumbnail", log.answer(json!({"width": 64}))));
    let bench = bench.await;
    let handle = submit(&bench, "thumbnail").await;
    assert_eq!(handle.result().await.expect("a context"), json!({"width": 64}));
    let attempts = bench.attempts(handle.id()).await;
    assert_eq!(attempts[0].steps[0].record.name, "thumbnail");
}

async fn a_handler_that_panics_at_once_harms_one_attempt(on: On) {
    let tries = Count::default();
    let bench = Bench::build(on, |b| {
        let options = KindOptions::new().retry(AT_ONCE);
        let handler = move |_: StepCall| {
            assert!(tries.up() > 1, "a hasty bug");
            async { Ok(json!({"fine": true})) }
        };
        b.handler("hasty", handler).plan_with("chain", ["hasty"], options)
    });
    let bench = bench.await;
    let handle = submit(&bench, "chain").await;
    assert_eq!(handle.result().await.expect("a context"), json!({"fine": true}));
    let attempts = bench.attempts(handle.id()).await;
    let error = &attempts[0].failure.as_ref().expect("a failure").error;
    assert_eq!(error.class.as_str(), "panic");
    assert_eq!(error.step.as_ref().map(|s| s.name.as_str()), Some("hasty"));
}

async fn plans_that_do_not_fit_together_do_not_start(on: On) {
    let bench = Bench::build(on, |b| b).await;
    let log = Log::default();
    let a = || log.answer(Value::Null);
    let on_store = || Windlass::on(bench.store.clone());
    for (wrong, named) in [
        (on_store().plan("chain", ["gone"]), "`gone`"),
        (on_store().handler("a", a()).plan("chain", ["a", "a"]), "`a`"),
        (on_store().handler("a", a()).handler("a", a()), "`a`"),
        (on_store().handler("a", a()).plan("p", ["a"]).plan("p", ["a"]), "`p`"),
    ] {
        let error = wrong.start().await.expect_err("a wrong plan");
        assert!(error.message().contains(named), "{error}");
    }
}

/// Runs `a` and `b` of the plan a, b, c, pauses, and starts an engine with
/// another plan.
async fn replan(on: On, plan: &[&str], policy: OnMismatch) -> (Bench, Log, TaskId) {
    let (log, gate) = (Log::default(), Gate::new());
    let handlers = |b: Builder, names: &[&str]| {
        names.iter().fold(b, |b, name| b.handler(name, log.answer(json!({ *name: true }))))
    };
    let (noted, inside) = (log.clone(), gate.clone());
    let blocks = move |call: StepCall| {
        noted.note(&call);
        let gate = inside.clone();
        async move {
            gate.pass().await;
            Ok(json!({"b": "old"}))
        }
    };
    let bench = Bench::build(on, |b| {
        handlers(b, &["a", "c"]).handler("b", blocks).plan("chain", ["a", "b", "c"])
    });
    let mut bench = bench.await;
    let id = submit(&bench, "chain").await.id();
    gate.reached().await;
    bench.engine.pause(id).await.expect("asked");
    gate.open();
    bench.until(id, EventName::Paused).await;
    let options = KindOptions::new().on_mismatch(policy);
    let next = |b| {
        handlers(b, &["a", "b", "c", "d", "x"]).plan_with("chain", plan.iter().copied(), options)
    };
    bench.restart(next).await;
    bench.engine.resume(id).await.expect("resumed");
    (bench, log, id)
}

async fn result(bench: &Bench, id: TaskId) -> Value {
    bench.engine.handle(id).result().await.expect("a context")
}

async fn a_longer_plan_goes_on_where_it_was(on: On) {
    let (bench, log, id) = replan(on, &["a", "b", "c", "d"], OnMismatch::Hold).await;
    let merged = json!({"a": true, "b": "old", "c": true, "d": true});
    assert_eq!(result(&bench, id).await, merged);
    assert_eq!(log.steps(), ["a", "b", "c", "d"]);
    assert!(bench.data(id, EventName::CheckpointDiscarded).await.is_empty());
}

async fn a_changed_plan_keeps_what_fits(on: On) {
    let (bench, log, id) = replan(on, &["a", "x", "c"], OnMismatch::KeepPrefix).await;
    assert_eq!(result(&bench, id).await, json!({"a": true, "x": true, "c": true}));
    assert_eq!(log.steps(), ["a", "b", "x", "c"]);
    let discarded = bench.data(id, EventName::CheckpointDiscarded).await;
    assert_eq!((discarded.len(), &discarded[0]["kept"]), (1, &json!(1)));
    let why = discarded[0]["why"].as_str().expect("a reason");
    assert!(why.contains("`b`") && why.contains("`x`"), "{why}");
    let told = bench.told(id).await;
    let resumed = told.iter().position(|name| *name == "resumed").expect("resumed");
    let steps = ["started", "checkpoint.discarded", "progress", "step_completed"];
    assert_eq!(told[resumed + 1..][..4], steps);
}

/// The task waits for a person, and says that its checkpoint is why.
async fn is_held(bench: &mut Bench, log: &Log, id: TaskId) {
    bench.until(id, EventName::Paused).await;
    let task = bench.task(id).await;
    let Some(WaitingOn::Person { why }) = &task.standing.waiting_on else {
        panic!("it waits for {:?}", task.standing.waiting_on);
    };
    assert!(why.starts_with("checkpoint: "), "{why}");
    assert_eq!((task.state(), log.steps().len()), (State::Paused, 2), "nothing was done");
    assert!(bench.data(id, EventName::CheckpointDiscarded).await.is_empty());
    let checkpoint = bench.store.checkpoint(id).await.expect("read").expect("a checkpoint");
    assert_eq!(checkpoint.finished().count(), 2, "and nothing was lost");
}

async fn a_changed_plan_of_which_nothing_fits_is_held(on: On) {
    let (mut bench, log, id) = replan(on, &["x", "b", "c"], OnMismatch::KeepPrefix).await;
    is_held(&mut bench, &log, id).await;
}

async fn a_changed_plan_can_start_over(on: On) {
    let (bench, log, id) = replan(on, &["a", "x", "c"], OnMismatch::Discard).await;
    assert_eq!(result(&bench, id).await, json!({"a": true, "x": true, "c": true}));
    assert_eq!(log.steps(), ["a", "b", "a", "x", "c"]);
    let discarded = bench.data(id, EventName::CheckpointDiscarded).await;
    assert_eq!((discarded.len(), &discarded[0]["kept"]), (1, &json!(0)));
}

async fn a_changed_plan_can_wait_for_a_person(on: On) {
    let (mut bench, log, id) = replan(on, &["a", "x", "c"], OnMismatch::Hold).await;
    is_held(&mut bench, &log, id).await;
}
