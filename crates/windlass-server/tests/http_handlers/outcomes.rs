//! What answers mean: every status, output, skip, snooze, wishes to wait, and
//! answers that are too large.

use crate::rig::{AT_ONCE, LIMIT, Play, Receiver, Rig, near, once, output, say, spec, why};
use serde_json::json;
use std::time::{Duration, SystemTime};
use windlass::core::checkpoint::StepOutcome;
use windlass::prelude::*;

/// Reason, class and message of what becomes of an answer.
async fn fails(play: Play) -> (&'static str, &'static str, String) {
    let receiver = Receiver::new(move |_, _| play.clone()).await;
    let task = Rig::ask(&receiver).await.run().await;
    let (reason, class, message) = why(&task);
    (reason, class, message.to_owned())
}

async fn gives(play: Play) -> serde_json::Value {
    let receiver = Receiver::new(move |_, _| play.clone()).await;
    output(&Rig::ask(&receiver).await.run().await)
}

#[tokio::test]
async fn success_is_done() {
    assert_eq!(gives(say("200 OK", "", "{\"a\":1}")).await, json!({"a": 1}));
    assert_eq!(gives(say("201 Created", "", "\n")).await, json!({}));
    assert_eq!(gives(say("202 Accepted", "", "5")).await, json!({}), "no part of the context");
    assert_eq!(gives(Play::Say(b"HTTP/1.1 204 No Content\r\n\r\n".into())).await, json!({}));
    let chunked =
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\n{\"a\r\n4\r\n\":2}\r\n0\r\n\r\n";
    assert_eq!(gives(Play::Say(chunked.into())).await, json!({"a": 2}));
}

#[tokio::test]
async fn anything_else_in_a_body_is_fatal() {
    let (reason, class, message) = fails(say("200 OK", "", "<html>")).await;
    assert_eq!((reason, class), ("fatal", "output"));
    assert!(message.contains("send JSON, or nothing"), "{message}");
    assert_eq!(fails(say("200 OK", "", "{} {}")).await.1, "output");
    let (_, class, message) = fails(say("200 OK", "", "{\"children\":[]}")).await;
    assert_eq!((class, &*message), ("output", "children are not supported by this version yet"));
}

#[tokio::test]
async fn statuses_say_whether_to_try_again() {
    for status in [408, 425, 429, 500, 502, 503, 504, 599] {
        let (reason, class, message) = fails(say(&format!("{status} X"), "", "later\n")).await;
        assert_eq!((reason, class), ("exhausted", "retryable"), "{status}");
        assert!(message.starts_with(&format!("the receiver answered {status}")), "{message}");
        assert!(message.ends_with(": later"), "{message}");
    }
    for status in [300, 304, 400, 401, 403, 404, 409, 410, 413, 422, 451, 499] {
        let (reason, class, message) = fails(say(&format!("{status} X"), "", "")).await;
        assert_eq!((reason, class), ("fatal", "fatal"), "{status}: {message}");
    }
}

#[tokio::test]
async fn a_fatal_answer_is_not_asked_for_again() {
    let receiver = Receiver::new(|_, _| say("422 X", "", "no such page\nat all")).await;
    let options = KindOptions::new().step_retry(AT_ONCE).retry(AT_ONCE);
    let rig = Rig::with(spec(&receiver.url("/")), near(), options).await;
    let task = rig.run().await;
    assert_eq!(receiver.requests().len(), 1);
    let detail = task.standing.failure.expect("a failure").error.detail;
    assert_eq!(detail.as_deref(), Some("no such page\nat all"));
}

#[tokio::test]
async fn a_header_skips_the_step() {
    let receiver =
        Receiver::new(|_, _| say("200 OK", "windlass-outcome: skip\r\n", "no faces")).await;
    let rig = Rig::ask(&receiver).await;
    let task = rig.run().await;
    assert_eq!(output(&task), json!({}));
    let attempts = rig.engine.reader().attempts(task.id).await.expect("read");
    let step = &attempts[0].steps[0].record;
    assert_eq!((step.outcome, step.reason.as_deref()), (StepOutcome::Skipped, Some("no faces")));
}

#[tokio::test]
async fn a_snooze_gives_the_slot_back() {
    let receiver = Receiver::new(|n, _| match n {
        0 => say("200 OK", "", "{\"snooze\":\"50ms\"}"),
        _ => say("200 OK", "", "{\"late\":true}"),
    })
    .await;
    let task = Rig::ask(&receiver).await.run().await;
    assert_eq!(output(&task), json!({"late": true}));
    assert_eq!((task.standing.attempt, task.standing.retries), (2, 0), "nothing is burnt");
}

#[tokio::test]
async fn a_wish_to_wait_is_heeded() {
    // A date has whole seconds, so up to one of the two is cut.
    let date = || httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(2));
    let seconds = || "1".to_owned();
    for wish in [date as fn() -> String, seconds] {
        let receiver = Receiver::new(move |n, _| match n {
            0 => say("503 X", &format!("retry-after: {}\r\n", wish()), ""),
            _ => say("200 OK", "", "{}"),
        })
        .await;
        let options = KindOptions::new().step_retry(AT_ONCE);
        let rig = Rig::with(spec(&receiver.url("/")), near(), options).await;
        assert_eq!(output(&rig.run().await), json!({}));
        let requests = receiver.requests();
        let waited = requests[1].at - requests[0].at;
        assert!(waited >= Duration::from_millis(900) && waited < LIMIT, "{waited:?}");
    }
}

#[tokio::test]
async fn a_long_wish_waits_in_the_store_and_for_a_day_at_most() {
    let receiver = Receiver::new(|_, _| say("429 X", "retry-after: 99999999999\r\n", "")).await;
    let options = KindOptions::new().step_retry(AT_ONCE).retry(AT_ONCE);
    let rig = Rig::with(spec(&receiver.url("/")), near(), options).await;
    let id = rig.submit(json!({})).await.id();
    let began = std::time::Instant::now();
    let due = loop {
        let task = rig.engine.reader().task(id).await.expect("read").expect("a task");
        if task.state() == windlass::State::Retrying {
            break task.standing.due_at;
        }
        assert!(began.elapsed() < LIMIT, "{:?}", task.standing);
        tokio::task::yield_now().await;
    };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time");
    let wait = due.as_millis() as u128 - now.as_millis();
    assert!((86_000_000..=86_400_000).contains(&wait), "{wait}");
}

#[tokio::test]
async fn a_body_has_a_limit() {
    let string = |n: usize| format!("{{\"s\":\"{}\"}}", "a".repeat(n));
    let whole = gives(say("200 OK", "", &string(1_048_568))).await;
    assert_eq!(whole["s"].as_str().map(str::len), Some(1_048_568), "exactly 1 MiB is taken");
    let (reason, class, message) = fails(say("200 OK", "", &string(1_048_569))).await;
    assert_eq!((reason, class), ("fatal", "output"), "one byte more is not");
    assert!(message.contains("1048576 bytes"), "{message}");
    // A body that never ends: the connection is closed as soon as it is too much.
    let flood = format!("HTTP/1.1 200 OK\r\n\r\n{}", "a".repeat(1_100_000));
    let receiver = Receiver::new(move |_, _| Play::Hang(flood.clone().into())).await;
    assert_eq!(why(&Rig::ask(&receiver).await.run().await).1, "output");
    crate::rig::until("the connection is closed", || receiver.gone() == 1).await;
}

#[tokio::test]
async fn the_reason_of_a_refusal_is_cut() {
    let long = "ä".repeat(500_000);
    let receiver = Receiver::new(move |_, _| say("400 X", "", &long)).await;
    let task = Rig::ask(&receiver).await.run().await;
    assert!(why(&task).2.chars().count() < 600, "{}", why(&task).2);
    let detail = task.standing.failure.expect("a failure").error.detail.expect("a detail");
    assert!(detail.len() <= 4010, "{}", detail.len());
}

#[tokio::test]
async fn a_head_has_a_limit() {
    let many = "x: y\r\n".repeat(200);
    let (_, class, message) = fails(say("200 OK", &many, "{}")).await;
    assert_eq!(class, "retryable", "{message}");
    let long = format!("x: {}\r\n", "y".repeat(1_000_000));
    assert_eq!(fails(say("200 OK", &long, "{}")).await.1, "retryable");
}

#[tokio::test]
async fn once_is_once() {
    let receiver = Receiver::new(|_, _| say("200 OK", "", "{}")).await;
    Rig::with(spec(&receiver.url("/")), near(), once()).await.run().await;
    assert_eq!(receiver.requests().len(), 1);
}
