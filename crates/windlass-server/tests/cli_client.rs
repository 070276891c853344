//! The command line against a server that answers what each test says: exit
//! codes, hints, what is sent, and what is repeated. The real server is met in
//! the end-to-end tests; here are the answers that are hard to get from it.

#![allow(clippy::unwrap_used)] // a test tells by panicking

mod fake;

use fake::{Answer, Fake, run, windlass};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const ID: &str = "tsk_0123456789abc";

fn task(state: &str) -> Value {
    json!({"id": ID, "kind": "a.b", "queue": "default", "state": state, "attempt": 1})
}

#[tokio::test]
async fn refusals_have_exit_codes_and_hints() {
    let table = [
        (400, "bad-filter", 2),
        (401, "unauthenticated", 4),
        (403, "forbidden", 4),
        (404, "not-found", 3),
        (405, "read-only", 4),
        (409, "state-conflict", 5),
        (413, "payload-too-large", 2),
        (422, "unknown-kind", 2),
        (422, "idempotency-key-reused", 5),
        (429, "queue-full", 1),
        (500, "oops", 1),
        (503, "draining", 6),
    ];
    for (status, code, exit) in table {
        let fake = Fake::start(move |_| Answer::problem(status, code)).await;
        let ran = fake.run(&["task", "show", ID]).await;
        assert_eq!(ran.code, exit, "{code}: {ran:?}");
        assert!(ran.stderr.starts_with(&format!("error: told {code}")), "{ran:?}");
        assert!(ran.stdout.is_empty());
        ran.hint();
        assert!(!ran.stderr.contains("req-7"));
        let ran = fake.run(&["task", "show", ID, "-v"]).await;
        assert!(ran.stderr.contains("request id req-7"), "{ran:?}");
    }
}

#[tokio::test]
async fn the_hint_and_fields_of_a_problem_are_shown() {
    let fake = Fake::start(|_| {
        let errors = json!([{"pointer": "/priority", "detail": "must be -10..10"}]);
        Answer::json(
            422,
            &json!({"code": "invalid-fields", "detail": "1 field is wrong",
            "hint": "mend it", "errors": errors}),
        )
    })
    .await;
    let ran = fake.run(&["submit", "a.b", "--priority", "99"]).await;
    assert_eq!(ran.code, 2);
    assert_eq!(
        ran.stderr,
        "error: 1 field is wrong\n  /priority: must be -10..10\nhint: mend it\n"
    );
}

#[tokio::test]
async fn no_server_is_exit_6() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    for arguments in [&["task", "list"][..], &["submit", "a.b"], &["task", "wait", ID]] {
        let ran = run(&url, arguments, "").await;
        assert_eq!(ran.code, 6, "{ran:?}");
        assert!(ran.hint().contains("windlass dev"));
    }
    let ran = run(&url, &["doctor"], "").await;
    assert_eq!(ran.code, 1);
    assert!(ran.stdout.contains("fail  server:"), "{ran:?}");
}

#[tokio::test]
async fn mistakes_are_exit_2_without_a_server() {
    for arguments in [
        &["task", "list", "--frob"][..],
        &["tusk"],
        &["submit", "a.b", "k"],
        &["submit", "a.b", "--data", "{"],
        &["submit", "a.b", "--label", "x"],
        &["submit", "a.b", "--idempotency-key", "a b"],
        &["submit", "--from", "no-such-file.jsonl"],
        &["task", "cancel", "x"],
        &["task", "show", "state:failed"],
        &["dead", "requeue", "state:failed", "--rate", "fast"],
        &["--server", "localhost", "task", "list"],
        &["--token-file", "no-such-file", "task", "list"],
        &["queue", "set", "q"],
    ] {
        let ran = run("http://127.0.0.1:1", arguments, "").await;
        assert_eq!(ran.code, 2, "{arguments:?}: {ran:?}");
        assert!(ran.stdout.is_empty());
        ran.hint();
    }
}

#[tokio::test]
async fn submit_sends_and_prints() {
    let fake = Fake::start(|_| Answer::json(201, &task("queued"))).await;
    let ran = fake.run(&["submit", "a.b", "n=3", "--label", "tenant=acme"]).await;
    assert_eq!((ran.code, ran.stdout), (0, format!("{ID}  queued\n")));
    let ran = fake.run(&["submit", "a.b", "-o", "id"]).await;
    assert_eq!(ran.stdout, format!("{ID}\n"));
    let ran = fake.run(&["submit", "a.b", "-o", "json"]).await;
    assert_eq!(serde_json::from_str::<Value>(&ran.stdout).unwrap(), task("queued"));
    let seen = fake.seen();
    let first = json!({"kind": "a.b", "payload": {"n": 3}, "labels": {"tenant": "acme"}});
    assert_eq!((seen[0].line.as_str(), &seen[0].body), ("POST /v1/tasks", &first));
    let key = seen[0].header("idempotency-key");
    assert!(key.len() > 20 && key != seen[1].header("idempotency-key"));
    let ran = fake.run(&["submit", "a.b", "--data", "-", "--dry-run"]).await;
    assert_eq!(ran.code, 2, "an empty stdin is no JSON: {ran:?}");
    let ran =
        run(&fake.url, &["submit", "a.b", "--data", "-", "--dry-run", "-o", "json"], "[1]").await;
    let shown: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(shown["body"], json!({"kind": "a.b", "payload": [1]}));
    assert_eq!(fake.seen().len(), 3, "a dry run sends nothing");
}

#[tokio::test]
async fn an_existing_task_is_told() {
    let fake = Fake::start(|_| {
        let Answer(_, mut headers, body) = Answer::json(200, &task("running"));
        headers.push(("windlass-existing", "unique".into()));
        Answer(200, headers, body)
    })
    .await;
    let ran = fake.run(&["submit", "a.b", "--unique", "k"]).await;
    assert_eq!(ran.code, 0);
    assert!(ran.stderr.contains("unique key"), "{ran:?}");
    assert_eq!(ran.stdout, format!("{ID}  running\n"));
}

/// Answers connection number `cuts` and later ones; closes the ones before after
/// it has read the request. Gives the requests' heads.
async fn cutting_server(cuts: usize) -> (String, tokio::sync::mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (give, take) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        for count in 0.. {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut buffer = vec![0; 65_536];
            let read = stream.read(&mut buffer).await.unwrap();
            give.send(String::from_utf8_lossy(&buffer[..read]).into_owned()).unwrap();
            if count >= cuts {
                let body = task("queued").to_string();
                let head =
                    format!("HTTP/1.1 201 Created\r\ncontent-length: {}\r\n\r\n", body.len());
                stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
            }
        }
    });
    (url, take)
}

fn key_in(head: &str) -> String {
    head.lines().find(|line| line.starts_with("idempotency-key:")).unwrap().to_owned()
}

#[tokio::test]
async fn a_lost_answer_is_asked_for_again_with_the_same_key() {
    let (url, mut heads) = cutting_server(3).await;
    let ran = run(&url, &["submit", "a.b"], "").await;
    assert_eq!((ran.code, ran.stdout.as_str()), (0, format!("{ID}  queued\n").as_str()), "{ran:?}");
    let first = key_in(&heads.recv().await.unwrap());
    for _ in 0..3 {
        assert_eq!(key_in(&heads.recv().await.unwrap()), first);
    }
    assert!(heads.try_recv().is_err());
}

#[tokio::test]
async fn a_server_that_never_answers_leaves_the_key_to_try_with() {
    let (url, mut heads) = cutting_server(usize::MAX).await;
    let ran = run(&url, &["submit", "a.b"], "").await;
    assert_eq!(ran.code, 6, "{ran:?}");
    let key = key_in(&heads.recv().await.unwrap());
    assert!(ran.hint().contains(key.split(": ").nth(1).unwrap()), "{ran:?}");
    // A verb is not safe to repeat.
    let (url, mut heads) = cutting_server(1).await;
    let ran = run(&url, &["task", "rerun", ID], "").await;
    assert_eq!(ran.code, 6);
    assert!(heads.recv().await.is_some() && heads.try_recv().is_err());
}

#[tokio::test]
async fn endings_mean_one_task() {
    let fake = Fake::start(|seen| match seen.line.as_str() {
        "GET /v1/tasks?ending=one111" => Answer::items(&[task("queued")]),
        "GET /v1/tasks?ending=two222" => {
            Answer::items(&[task("queued"), json!({"id": "tsk_other", "kind": "c.d"})])
        }
        line if line.starts_with("GET /v1/tasks?ending") => Answer::items(&[]),
        _ => Answer::json(200, &task("cancelled")),
    })
    .await;
    let ran = fake.run(&["task", "cancel", "one111"]).await;
    assert_eq!((ran.code, ran.stdout), (0, format!("{ID}  cancelled\n")));
    assert_eq!(fake.lines("POST"), [format!("POST /v1/tasks/{ID}/cancel")]);
    let ran = fake.run(&["task", "cancel", "two222"]).await;
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains(ID) && ran.stderr.contains("tsk_other"), "{ran:?}");
    assert_eq!(fake.run(&["task", "cancel", "none33"]).await.code, 3);
    assert_eq!(fake.lines("POST").len(), 1);
}

/// Twelve matches, ten of which can be done; the batch runs for two looks, then
/// ends like this.
async fn twelve(ended: Value) -> Fake {
    let looks = AtomicUsize::new(0);
    Fake::start(move |seen| {
        let item =
            |n: usize| json!({"id": format!("tsk_{n:013}"), "kind": "a.b", "state": "queued"});
        let mut batch = json!({"id": "bat_0000000000001", "action": seen.body["action"],
            "of": "tasks", "state": "running", "matched": 0, "changed": 0});
        match seen.line.as_str() {
            "POST /v1/batches" if seen.body["dry_run"] == true => {
                let states = json!({"queued": {"eligible": 10, "ineligible": 0},
                    "completed": {"eligible": 0, "ineligible": 2}});
                Answer::json(
                    200,
                    &json!({"matched": 12, "eligible": 10, "ineligible": 2,
                    "more": false, "states": states}),
                )
            }
            "POST /v1/batches" => Answer::json(202, &batch),
            line if line.starts_with("GET /v1/batches/bat_") => {
                if looks.fetch_add(1, Ordering::SeqCst) >= 2 {
                    batch = ended.clone();
                }
                Answer::json(200, &batch)
            }
            _ => Answer::items(&(0..5).map(item).collect::<Vec<_>>()),
        }
    })
    .await
}

fn ended_batch(state: &str, failed: u64) -> Value {
    let errors = json!([{"task": ID, "code": "invalid-fields", "message": "no such step"}]);
    json!({"id": "bat_0000000000001", "action": "cancel", "of": "tasks", "state": state,
        "matched": 12, "changed": 10 - failed, "requested": 0, "already": 0, "skipped": 2,
        "failed": failed, "reason": "20 of 30 tasks failed again", "errors": errors})
}

#[tokio::test]
async fn a_filter_is_shown_confirmed_and_done() {
    let fake = twelve(ended_batch("done", 0)).await;
    let filter = ["task", "cancel", "queue:media", "-state:failed"];
    let ran = fake.run(&filter).await;
    assert_eq!(ran.code, 2);
    assert_eq!(ran.hint(), "hint: pass --yes");
    assert!(ran.stderr.contains("cancel 10 of 12 tasks:"), "{ran:?}");
    assert!(ran.stderr.contains("completed  0         2"), "{ran:?}");
    assert!(ran.stderr.contains("tsk_0000000000004"), "{ran:?}");
    let ran = fake.run(&[&filter[..], &["--dry-run", "-o", "json"]].concat()).await;
    assert_eq!(ran.code, 0);
    assert_eq!(serde_json::from_str::<Value>(&ran.stdout).unwrap()["eligible"], 10);
    let sent: Vec<Value> = fake.seen().into_iter().map(|seen| seen.body).collect();
    let posts = sent.iter().filter(|body| body.is_object());
    assert!(posts.clone().count() == 2 && posts.clone().all(|body| body["dry_run"] == true));
    assert_eq!(sent[0]["q"], "queue:media -state:failed");

    let ran = fake.run(&[&filter[..], &["--yes"]].concat()).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "cancel: 10 of 12 tasks done, 2 skipped\n"));
    let order = json!({"action": "cancel", "q": "queue:media -state:failed"});
    assert!(fake.seen().iter().any(|seen| seen.body == order), "{:?}", fake.seen());
}

#[tokio::test]
async fn how_a_batch_ends_is_the_exit_code() {
    for (batch, code, says) in [
        (ended_batch("done", 3), 7, "no such step"),
        (ended_batch("done", 10), 1, "no such step"),
        (ended_batch("stopped", 0), 7, "20 of 30 tasks failed again"),
    ] {
        let fake = twelve(batch).await;
        let ran = fake.run(&["task", "cancel", "queue:media", "-y", "-o", "json"]).await;
        assert_eq!(ran.code, code, "{ran:?}");
        assert!(ran.stderr.contains(says), "{ran:?}");
        assert_eq!(serde_json::from_str::<Value>(&ran.stdout).unwrap()["matched"], 12);
        ran.hint();
    }
}

#[tokio::test]
async fn what_is_said_about_a_batch_is_sent() {
    let fake = twelve(ended_batch("done", 0)).await;
    let flags = ["--rate", "20/s", "--stop-above", "25", "-y", "--detach", "-o", "id"];
    let ran = fake.run(&[&["dead", "requeue", "queue:media"][..], &flags].concat()).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "bat_0000000000001\n"), "{ran:?}");
    let order = json!({"action": "requeue", "q": "queue:media", "of": "dead_letters",
        "rate": "20/s", "stop_above": 25});
    assert_eq!(fake.seen().pop().unwrap().body, order);
    assert!(fake.lines("GET /v1/batches").is_empty(), "nobody waits");
    let ran = fake.run(&["task", "requeue", ID, "--rate", "5/s"]).await;
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains("--rate is for filters"), "{ran:?}");
}

#[tokio::test]
async fn an_interrupt_leaves_the_batch_running() {
    let fake = twelve(json!({"id": "bat_0000000000001", "state": "running"})).await;
    let child = windlass(&fake.url, &["task", "cancel", "queue:media", "-y"]).spawn().unwrap();
    let pid = rustix::process::Pid::from_raw(child.id().unwrap().cast_signed()).unwrap();
    let began = Instant::now();
    while fake.lines("GET /v1/batches/").is_empty() {
        assert!(began.elapsed() < Duration::from_secs(60), "it does not ask");
        tokio::task::yield_now().await;
    }
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let ran = fake::Ran::from(child.wait_with_output().await.unwrap());
    assert_eq!(ran.code, 130, "{ran:?}");
    assert!(ran.hint().contains("windlass batch stop bat_0000000000001"), "{ran:?}");
}

#[tokio::test]
async fn places_are_changed_and_drains_confirmed() {
    let fake = Fake::start(|_| Answer::json(200, &json!({"name": "media", "paused": false}))).await;
    let ran =
        fake.run(&["queue", "set", "media", "--concurrency", "8", "--depth-max", "none"]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "name:    media\npaused:  no\n"));
    assert_eq!(fake.seen()[1].line, "PATCH /v1/queues/media");
    assert_eq!(fake.seen()[1].body, json!({"concurrency": 8, "depth_max": null}));
    assert_eq!(fake.run(&["queue", "drain", "media"]).await.code, 2);
    assert_eq!(fake.run(&["queue", "drain", "a/b", "-y"]).await.code, 0);
    assert_eq!(fake.lines("POST"), ["POST /v1/queues/a%2Fb/drain"]);
}

#[tokio::test]
async fn dead_letters_are_grouped_exported_and_edited() {
    let fake = Fake::start(|seen| match seen.line.as_str() {
        "GET /v1/dead-letters?group_by=error" => {
            let group = json!({"cause": "reset", "count": 3, "newest": "2026-01-01T00:00:00Z", "example": "dl_1"});
            Answer::json(200, &json!({"groups": [group]}))
        }
        "GET /v1/dead-letters/export?q=queue%3Amedia" => Answer(200, vec![], "{\"a\":1}\n{\"b\":2}\n".into()),
        _ => Answer::json(200, &task("queued")),
    })
    .await;
    let ran = fake.run(&["dead", "list", "--group", "error"]).await;
    let rows: Vec<&str> = ran.stdout.lines().collect();
    assert!(rows[0].starts_with("COUNT  NEWEST") && rows[1].starts_with("3 "), "{ran:?}");
    assert_eq!(fake.run(&["dead", "list", "--group", "error", "-o", "id"]).await.stdout, "dl_1\n");
    let ran = fake.run(&["dead", "export", "queue:media"]).await;
    assert_eq!(ran.stdout, "{\"a\":1}\n{\"b\":2}\n");
    let ran = fake.run(&["dead", "edit", ID]).await;
    assert_eq!(ran.code, 2, "no terminal for an editor");
    assert!(ran.hint().contains("--data"));
    let ran = fake.run(&["dead", "edit", ID, "--data", "{\"x\":1}"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    let last = fake.seen().pop().unwrap();
    assert_eq!(last.line, format!("POST /v1/dead-letters/{ID}/requeue"));
    assert_eq!(last.body, json!({"payload": {"x": 1}}));
}

#[tokio::test]
async fn files_of_submissions_are_sent_in_batches() {
    let fake = Fake::start(|seen| {
        let count = seen.body["tasks"].as_array().map_or(0, Vec::len);
        let ids: Vec<String> = (0..count).map(|n| format!("tsk_{n:013}")).collect();
        Answer::json(201, &json!({"ids": ids}))
    })
    .await;
    let good = "{\"kind\":\"a.b\"}\n".repeat(1_500);
    let from = ["submit", "--from", "-"];
    let ran = run(&fake.url, &from, &good).await;
    assert_eq!((ran.code, ran.stdout.lines().count()), (0, 1_500), "{}", ran.stderr);
    assert_eq!(fake.lines("POST /v1/tasks/bulk").len(), 2);

    let ran = run(&fake.url, &from, &format!("{good}{{\"kind\":}}\n")).await;
    assert_eq!((ran.code, ran.stdout.lines().count()), (7, 1_000));
    assert!(
        ran.stderr.contains("line 1501: ") && ran.stderr.contains("1000 tasks were"),
        "{}",
        ran.stderr
    );
    ran.hint();
    assert_eq!(fake.lines("POST").len(), 3, "nothing of the bad batch was sent");

    let ran = run(&fake.url, &from, "[]\n").await;
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("line 1: ") && ran.stderr.contains("nothing was submitted"));
    assert_eq!(fake.lines("POST").len(), 3);
}

#[tokio::test]
async fn a_refused_batch_names_lines() {
    let fake = Fake::start(|_| {
        let errors = json!([{"pointer": "/tasks/1/kind", "detail": "nobody serves `x`"}]);
        Answer::json(422, &json!({"code": "unknown-kind", "detail": "refused", "errors": errors}))
    })
    .await;
    let ran =
        run(&fake.url, &["submit", "--from", "-"], "{\"kind\":\"a\"}\n\n{\"kind\":\"x\"}\n").await;
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("line 3: /kind: nobody serves `x`"), "{ran:?}");
}

/// A task that runs until the feed was read twice, then ends in `state`.
async fn ending(state: &'static str) -> Fake {
    let feeds = AtomicUsize::new(0);
    Fake::start(move |seen| {
        if !seen.line.starts_with("GET /v1/events") {
            return match feeds.load(Ordering::SeqCst) {
                0 | 1 => Answer::json(200, &task("running")),
                _ => {
                    let mut ended = task(state);
                    ended["result"] = json!({"made": 3});
                    ended["failure"] = json!({"reason": "fatal", "message": "no such file"});
                    Answer::json(200, &ended)
                }
            };
        }
        match feeds.fetch_add(1, Ordering::SeqCst) {
            0 => Answer::feed(
                41,
                &[json!({"type": "task.retrying", "data": {
                "until": "2020-01-01T00:00:00Z", "failure": {"message": "reset"}}})],
            ),
            _ => Answer::feed(42, &[json!({"type": format!("task.{state}"), "data": {}})]),
        }
    })
    .await
}

#[tokio::test]
async fn waiting_ends_as_the_task_does() {
    let table = [("completed", 0), ("completed_with_errors", 0), ("failed", 10), ("cancelled", 11)];
    for (state, code) in table {
        let fake = ending(state).await;
        let ran = fake.run(&["task", "wait", ID]).await;
        assert_eq!(ran.code, code, "{state}: {ran:?}");
        assert!(ran.stderr.contains("attempt 1 failed: reset, next try in 0.0s"), "{ran:?}");
        let result = if code == 0 { "{\"made\":3}\n" } else { "" };
        assert_eq!(ran.stdout, result);
        if code != 0 {
            ran.hint();
        }
        let feeds: Vec<_> =
            fake.seen().into_iter().filter(|s| s.line.starts_with("GET /v1/events")).collect();
        assert_eq!(feeds[0].line, format!("GET /v1/events?task={ID}"));
        assert_eq!(feeds[1].header("last-event-id"), "41", "resumes after what it has seen");
    }
}

#[tokio::test]
async fn submit_waits_too() {
    let fake = ending("failed").await;
    let ran = fake.run(&["submit", "a.b", "--wait", "-o", "json"]).await;
    assert_eq!(ran.code, 10, "{ran:?}");
    let ended: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(ended["state"], "failed");
    assert!(ran.stderr.contains("(fatal): no such file"), "{ran:?}");
}

async fn never_ending() -> Fake {
    Fake::start(|seen| match seen.line.starts_with("GET /v1/events") {
        true => Answer::feed(1, &[]),
        false => Answer::json(200, &task("running")),
    })
    .await
}

#[tokio::test]
async fn waiting_has_a_timeout() {
    let ran = never_ending().await.run(&["task", "watch", ID, "--timeout", "3s"]).await;
    assert_eq!(ran.code, 8, "{ran:?}");
    assert!(ran.stderr.contains("running after 3s"), "{ran:?}");
    ran.hint();
}

#[tokio::test]
async fn an_interrupt_while_waiting_is_130() {
    let fake = never_ending().await;
    let child = windlass(&fake.url, &["task", "wait", ID]).spawn().unwrap();
    let pid = rustix::process::Pid::from_raw(child.id().unwrap().cast_signed()).unwrap();
    let began = Instant::now();
    while fake.lines(&format!("GET /v1/tasks/{ID}")).is_empty() {
        assert!(began.elapsed() < Duration::from_secs(60), "it does not ask");
        tokio::task::yield_now().await;
    }
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let ran = fake::Ran::from(child.wait_with_output().await.unwrap());
    assert_eq!(ran.code, 130, "{ran:?}");
    assert!(ran.hint().contains("task watch"));
}

#[tokio::test]
async fn a_reader_that_leaves_is_no_error() {
    let fake = Fake::start(|_| {
        let items: Vec<Value> =
            (0..500).map(|n| json!({"id": n.to_string(), "x": "y".repeat(1_000)})).collect();
        Answer::json(200, &json!({"items": items, "next_cursor": "more"}))
    })
    .await;
    let mut child = windlass(&fake.url, &["task", "list", "--all", "-o", "jsonl"]).spawn().unwrap();
    let mut first = [0; 10];
    child.stdout.as_mut().unwrap().read_exact(&mut first).await.unwrap();
    drop(child.stdout.take());
    let ran = fake::Ran::from(child.wait_with_output().await.unwrap());
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
}

#[tokio::test]
async fn the_token_is_sent_and_never_shown() {
    let fake = Fake::start(|_| Answer::problem(401, "unauthenticated")).await;
    let mut command = windlass(&fake.url, &["task", "list", "-vv"]);
    let ran = fake::Ran::from(command.env("WINDLASS_TOKEN", "s3cret").output().await.unwrap());
    assert_eq!(ran.code, 4);
    assert_eq!(fake.seen()[0].header("authorization"), "Bearer s3cret");
    assert!(!ran.stderr.contains("s3cret") && ran.hint().contains("WINDLASS_TOKEN"), "{ran:?}");
}

#[tokio::test]
async fn lists_and_events_in_every_format() {
    let fake = Fake::start(|seen| match seen.line.starts_with("GET /v1/events") {
        true => {
            let event = json!({"id": "evt_1", "at": "2026-01-01T00:00:00Z", "type": "task.started", "task": ID});
            Answer::feed(1, &[event.clone(), event])
        }
        false => Answer::items(&[task("queued")]),
    })
    .await;
    let ran = fake.run(&["task", "list"]).await;
    let expected = format!(
        "ID                 KIND  QUEUE    STATE   ATTEMPT  AGE  MESSAGE\n{ID}  a.b   default  queued  1        -\n"
    );
    assert_eq!(ran.stdout, expected);
    let ran = fake.run(&["task", "list", "-o", "json"]).await;
    assert_eq!(serde_json::from_str::<Value>(&ran.stdout).unwrap(), json!([task("queued")]));
    let ran = fake
        .run(&["event", "tail", "queue:media", "--type", "task.*", "-n", "2", "-o", "jsonl"])
        .await;
    assert_eq!((ran.code, ran.stdout.lines().count()), (0, 2));
    let feed = fake.seen().pop().unwrap();
    assert_eq!(feed.line, "GET /v1/events?q=queue%3Amedia&type=task.*");
    assert_eq!(feed.header("accept"), "text/event-stream");
}

#[tokio::test]
async fn the_doctor_looks_at_a_server() {
    let fake = Fake::start(|_| {
        let parts = json!([{"name": "store", "state": "ok", "detail": "sqlite"},
            {"name": "redis", "state": "degraded", "detail": "away"}]);
        let node = json!({"id": "nod_1", "version": env!("CARGO_PKG_VERSION")});
        Answer::json(200, &json!({"ready": true, "parts": parts, "items": [node]}))
    })
    .await;
    let ran = fake.run(&["doctor"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    for line in ["ok    server:", "ok    store:", "warn  redis:", "ok    version:", "ok    clock:"]
    {
        assert!(ran.stdout.contains(line), "{line}: {ran:?}");
    }
    let sick = Fake::start(|_| {
        let store = json!({"name": "store", "state": "failed", "detail": "gone"});
        Answer::json(503, &json!({"ready": false, "parts": [store]}))
    })
    .await;
    let ran = sick.run(&["doctor", "-o", "json"]).await;
    assert_eq!(ran.code, 1);
    assert!(ran.stdout.contains("\"check\":\"store\""), "{ran:?}");
}

#[tokio::test]
async fn the_binary_tells_about_itself() {
    let ran = run("http://127.0.0.1:1", &["version", "-o", "json"], "").await;
    let version: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    for shell in ["bash", "zsh", "fish"] {
        let ran = run("http://127.0.0.1:1", &["completion", shell], "").await;
        assert!(ran.code == 0 && ran.stdout.contains("windlass"), "{shell}");
    }
}
