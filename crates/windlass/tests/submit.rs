//! The front door: what is refused, with a message that says what to do and
//! nothing written; keys, labels, times, batches; and what a handle says about
//! its task. What happens inside running code is tested elsewhere.

#![allow(clippy::expect_used, clippy::panic)] // a test fails by panicking

mod bench_of_engines;

use bench_of_engines::{Ground, Job, job, millis, on_both_stores, secs, settle};
use std::collections::BTreeMap;
use windlass::core::clock::Clock;
use windlass::core::id::TaskId;
use windlass::core::outcome::Reason;
use windlass::core::state::State;
use windlass::core::store::QueueChange;
use windlass::prelude::*;
use windlass::{Answer, Builder, Code, ErrorKind, UnknownKinds};

on_both_stores!(
    bad_submissions_are_refused_and_nothing_is_written,
    a_batch_is_written_whole_or_not_at_all,
    a_full_queue_refuses,
    a_unique_key_finds_the_task_that_has_not_ended,
    a_unique_key_for_a_time_outlives_its_task,
    an_idempotency_key_gets_the_first_answer,
    what_was_said_is_what_is_stored,
    a_task_past_its_deadline_is_not_started,
    a_handle_says_why_there_is_no_result,
    a_handle_can_be_made_from_an_id,
);

/// The message of an engine that cannot start.
async fn refuses(build: impl FnOnce(Builder) -> Builder, kind: ErrorKind, words: &[&str]) {
    let builder = Windlass::in_memory().await.expect("a store");
    let error = build(builder).start().await.expect_err("it must not start");
    assert_eq!(error.kind(), kind, "{error}");
    for word in words {
        assert!(error.to_string().contains(word), "`{word}` is missing: {error}");
    }
}

async fn nothing(_: StepCall) -> Result<serde_json::Value, TaskError> {
    Ok(serde_json::Value::Null)
}

#[tokio::test]
async fn a_wrong_set_up_does_not_start() {
    use ErrorKind::{Conflict, Invalid};
    refuses(|b| b.register::<Job>().register::<Job>(), Conflict, &["kind `job`", "twice"]).await;
    refuses(|b| b.handler("h", nothing).handler("h", nothing), Conflict, &["handler `h`", "twice"])
        .await;
    refuses(|b| b.queue("q", 1).queue("q", 2), Conflict, &["queue `q`", "twice"]).await;
    refuses(|b| b.queue("q", 0), Invalid, &["queue `q`", "1 to 100000"]).await;
    refuses(|b| b.queue("bad name", 1), Invalid, &["`bad name`", "letters, digits"]).await;
    refuses(|b| b.state(1u8).state(2u8), Conflict, &["state `u8`", "twice"]).await;
    refuses(|b| b.plan("p", ["missing"]), Invalid, &["`p`", "`missing`", ".handler(\"missing\""])
        .await;
    refuses(|b| b.handler("h", nothing).plan("p", ["h", "h"]), Invalid, &["`p`", "`h` twice"])
        .await;
    let none = KindOptions::new().concurrency(0);
    refuses(|b| b.register_with::<Job>(none), Invalid, &["kind `job`", "pause the queue"]).await;
    let queue = KindOptions::new().queue("no queue");
    refuses(|b| b.register_with::<Job>(queue), Invalid, &["`no queue`"]).await;
    refuses(|b| b.settings(|s| s.lease = millis(1)), Invalid, &["lease", "30ms"]).await;
    refuses(|b| b.settings(|s| s.claim_max = 0), Invalid, &["claim_max"]).await;
}

#[tokio::test]
async fn a_wrong_url_says_which_are_right() {
    for url in ["nonsense", "redis://host", "", "sqlite.db"] {
        let error = Windlass::open(url).await.expect_err("no store");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.message().contains("sqlite://"), "{error}");
    }
    let error = Windlass::open("postgres://host/db").await.expect_err("no store");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}

/// Cannot be written as JSON.
struct Unwritable;

impl Serialize for Unwritable {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("it is secret"))
    }
}

async fn bad_submissions_are_refused_and_nothing_is_written(ground: Ground) {
    let builder = ground.builder().handler("h", nothing);
    let engine = builder.settings(|s| s.payload_max = 1000).start().await.expect("an engine");
    let seen = |error: windlass::Error, code: Code, words: &[&str]| {
        assert_eq!(error.code(), code, "{error}");
        for word in words {
            assert!(error.to_string().contains(word), "`{word}` is missing: {error}");
        }
    };
    let invalid = Code::InvalidFields;
    let error = engine.submit_named("job", &Unwritable).await.expect_err("no JSON");
    seen(error, invalid, &["`job`", "it is secret"]);
    let keys = BTreeMap::from([((1, 2), "tuples are no keys")]);
    let error = engine.submit_named("job", &keys).await.expect_err("no JSON");
    seen(error, invalid, &["`job`", "JSON"]);
    let error = engine.submit(job("x".repeat(2000))).await.expect_err("too large");
    seen(error, Code::PayloadTooLarge, &["at most 1000", "elsewhere"]);
    let error = engine.submit_named("job", &()).await.expect_err("null");
    seen(error, invalid, &["payload is null", "leave it out"]);
    for priority in [-11, 11] {
        let error = engine.submit(job("a")).priority(priority).await.expect_err("no priority");
        seen(error, invalid, &["-10..10"]);
    }
    let error = engine.submit(job("a")).queue("no queue").await.expect_err("no name");
    seen(error, invalid, &["queue `no queue`", "letters, digits"]);
    let error = engine.submit(job("a")).label("no label", "v").await.expect_err("no name");
    seen(error, invalid, &["label `no label`"]);
    let error = engine.submit(job("a")).label("l", "line\nline").await.expect_err("no value");
    seen(error, invalid, &["label value"]);
    let error = engine.submit(job("a")).unique("").await.expect_err("no key");
    seen(error, invalid, &["unique.key"]);
    let error =
        engine.submit(job("a")).delay(std::time::Duration::MAX).await.expect_err("for ever");
    seen(error, invalid, &["delay"]);
    let error = engine.submit(job("a")).steps(["h"]).await.expect_err("no plan");
    seen(error, invalid, &["`job`", "leave `steps` out"]);
    let error = engine.submit_named("h", &1).steps(["h", "g"]).await.expect_err("no handler");
    seen(error, invalid, &["`g`", "handler"]);
    let error = engine.submit_named("no kind", &1).await.expect_err("no name");
    seen(error, invalid, &["kind `no kind`"]);
    let error = engine.submit_named("unknown", &1).await.expect_err("no kind");
    seen(error, Code::UnknownKind, &["`unknown`", "register it"]);
    settle().await;
    assert_eq!(ground.tasks().await, 0);
}

async fn a_batch_is_written_whole_or_not_at_all(ground: Ground) {
    let engine = ground.engine().await;
    let mut jobs: Vec<_> = (0..50).map(|i| engine.submit(job(format!("{i}")))).collect();
    jobs.push(engine.submit(job("bad")).priority(99));
    let error = engine.submit_all(jobs).await.expect_err("one is bad");
    assert!(error.message().contains("priority 99"), "{error}");
    let many = (0..10_001).map(|i| engine.submit(job(format!("{i}"))));
    let error = engine.submit_all(many).await.expect_err("too many");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("10000") || error.to_string().contains("10,000"), "{error}");
    settle().await;
    assert_eq!((ground.tasks().await, ground.floor.log().began.len()), (0, 0));
    let good = (0..50).map(|i| engine.submit(job(format!("{i}"))));
    assert_eq!(engine.submit_all(good).await.expect("written").len(), 50);
    assert_eq!(ground.tasks().await, 50);
    let none = engine.submit_all(std::iter::empty::<windlass::Submission<'_, ()>>());
    assert!(none.await.expect("nothing to write").is_empty());
}

async fn a_full_queue_refuses(ground: Ground) {
    let engine = ground.engine().await;
    engine.pause_queue("default").await.expect("a pause");
    engine.change_queue("default", QueueChange::DepthMax(Some(3))).await.expect("a limit");
    for i in 0..3 {
        engine.submit(job(format!("{i}"))).await.expect("written");
    }
    ground.pass(secs(2), &[&engine]).await;
    let error = engine.submit(job("beyond")).await.expect_err("full");
    assert_eq!(error.code(), Code::QueueFull, "{error}");
    assert_eq!(ground.tasks().await, 3);
}

async fn a_unique_key_finds_the_task_that_has_not_ended(ground: Ground) {
    let engine = ground.engine().await;
    let first = engine.submit(job("a").waiting()).unique("asset-42").await.expect("written");
    let second = engine.submit(job("b")).unique("asset-42").await.expect("found");
    assert_eq!((first.answer(), second.answer()), (Answer::New, Answer::Existing));
    assert_eq!(first.id(), second.id());
    ground.floor.open_all();
    assert_eq!(second.result().await.expect("a name"), "a");
    let third = engine.submit(job("c")).unique("asset-42").await.expect("written");
    assert_eq!((third.answer(), third.result().await.expect("a name")), (Answer::New, "c".into()));
}

async fn a_unique_key_for_a_time_outlives_its_task(ground: Ground) {
    let engine = ground.engine().await;
    let submit = |name| engine.submit(job(name)).unique_for("daily", secs(60));
    let first = submit("a").await.expect("written");
    first.result().await.expect("a name");
    ground.pass(secs(59), &[&engine]).await;
    let again = submit("b").await.expect("found");
    assert_eq!((again.answer(), again.id()), (Answer::Existing, first.id()));
    ground.pass(secs(2), &[&engine]).await;
    assert_eq!(submit("c").await.expect("written").answer(), Answer::New);
}

async fn an_idempotency_key_gets_the_first_answer(ground: Ground) {
    let engine = ground.engine().await;
    let submit = |name: &str| engine.submit(job(name)).idempotency_key("request-1");
    let first = submit("a").await.expect("written");
    first.result().await.expect("a name");
    ground.pass(secs(5), &[&engine]).await;
    let again = submit("a").await.expect("found");
    assert_eq!((again.answer(), again.id()), (Answer::Replayed, first.id()));
    assert_eq!(again.result().await.expect("a name"), "a");
    let error = submit("b").await.expect_err("another body");
    assert_eq!(error.code(), Code::KeyReused, "{error}");
    let error = submit("a").priority(1).await.expect_err("another priority");
    assert_eq!(error.code(), Code::KeyReused, "{error}");
    assert_eq!((ground.tasks().await, ground.floor.log().began.len()), (1, 1));
}

async fn what_was_said_is_what_is_stored(ground: Ground) {
    let engine = ground.builder().queue("q", 1).start().await.expect("an engine");
    let at = ground.clock.now().plus(secs(60));
    let submission = engine.submit(job("a")).queue("q").priority(7).run_at(at);
    let submission = submission.label("tenant", "acme").label("plan", "gold");
    let submission = submission.correlation_id("c-1").user_id("u-1").deadline(secs(30));
    let handle = submission.await.expect("written");
    let task = handle.task().await.expect("a task");
    assert_eq!((task.queue.as_str(), task.priority, task.state()), ("q", 7, State::Scheduled));
    assert_eq!(task.labels().collect::<Vec<_>>(), [("plan", "gold"), ("tenant", "acme")]);
    assert_eq!((task.standing.due_at, task.deadline), (at, Some(at.plus(secs(30)))));
    let extras = task.extras.expect("extras");
    assert_eq!(extras.correlation_id.as_deref(), Some("c-1"));
    assert_eq!(extras.user_id.as_deref(), Some("u-1"));
}

async fn a_task_past_its_deadline_is_not_started(ground: Ground) {
    let engine = ground.engine().await;
    engine.pause_queue("default").await.expect("a pause");
    let handle = engine.submit(job("late")).deadline(secs(10)).await.expect("written");
    let in_time = engine.submit(job("in time")).deadline(secs(100)).await.expect("written");
    ground.pass(secs(12), &[&engine]).await;
    let task = handle.ended().await.expect("an end");
    let reason = task.standing.failure.as_ref().and_then(|f| f.reason);
    assert_eq!((task.state(), reason), (State::Failed, Some(Reason::Expired)));
    engine.resume_queue("default").await.expect("a resume");
    in_time.result().await.expect("a name");
    assert_eq!(ground.floor.log().began, ["in time"]);
}

#[derive(Serialize, Deserialize)]
struct Fails {}

impl TaskKind for Fails {
    const NAME: &'static str = "fails";
    type Output = ();
    async fn run(self, cx: Cx) -> Result<(), TaskError> {
        cx.step("charge", || async { Err::<(), _>(fatal("the card is stolen")) }).await
    }
}

async fn a_handle_says_why_there_is_no_result(ground: Ground) {
    let engine = ground.builder().register::<Fails>().start().await.expect("an engine");
    let failed = engine.submit(Fails {}).await.expect("written");
    let error = failed.result().await.expect_err("no result");
    assert_eq!(error.kind(), ErrorKind::Conflict);
    for word in [&failed.id().to_string(), "failed", "fatal", "`charge`", "the card is stolen"] {
        assert!(error.message().contains(word), "`{word}` is missing: {error}");
    }
    assert_eq!(failed.ended().await.expect("a task").state(), State::Failed);
    let cancelled = engine.submit(job("a")).delay(secs(60)).await.expect("written");
    engine.cancel(cancelled.id()).await.expect("a cancel");
    let error = cancelled.result().await.expect_err("no result");
    assert!(error.message().contains("cancelled"), "{error}");
    let other_type = engine.submit(job("a")).await.expect("written").id();
    let error = engine.handle::<Vec<u32>>(other_type).result().await.expect_err("another type");
    assert!(error.message().contains("another type"), "{error}");
}

async fn a_handle_can_be_made_from_an_id(ground: Ground) {
    let (one, two) = (ground.engine().await, ground.engine().await);
    let id = one.submit(job("a")).await.expect("written").id();
    ground.floor.until(|log| !log.finished.is_empty()).await;
    let handle = two.handle::<String>(id);
    assert_eq!(handle.answer(), Answer::Existing);
    let waits = tokio::spawn(async move { handle.result().await });
    while !waits.is_finished() {
        ground.pass(secs(1), &[&one, &two]).await;
    }
    assert_eq!(waits.await.expect("no panic").expect("a name"), "a");
    let nobody = one.handle::<String>(TaskId::from_key(12345));
    assert_eq!(nobody.result().await.expect_err("no task").kind(), ErrorKind::NotFound);
    assert_eq!(nobody.task().await.expect_err("no task").kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn a_parked_kind_keeps_its_fields() {
    let ground = Ground::memory().await;
    let builder = ground.builder().unknown_kinds(UnknownKinds::Park);
    let engine = builder.start().await.expect("an engine");
    let error = engine.submit_named("later", &()).await.expect_err("null is null");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let handle = engine.submit_named("later", &1).priority(3).await.expect("accepted");
    assert_eq!(handle.task().await.expect("a task").priority, 3);
}
