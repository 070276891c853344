//! The protocol, call by call: ids, tokens, steps, ends, and what is refused. What
//! the engine decides is tested there; here is what a client of HTTP sees of it.

use crate::place::Place;
use crate::worker::{Leased, RETRIES, Worker, place};
use serde_json::{Value, json};
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(30);

async fn submit(place: &Place) -> String {
    place.submit(json!({"kind": "far", "payload": {"n": 1}})).await
}

async fn task(place: &Place, id: &str) -> Value {
    place.get(&format!("/v1/tasks/{id}")).await.is(200).json.clone()
}

#[tokio::test]
async fn a_task_goes_through_a_worker_step_by_step() {
    let place = place(LEASE).await;
    let body =
        json!({"kind": "far", "payload": {"n": 1}, "labels": {"a": "b"}, "correlation_id": "c"});
    let id = place.submit(body).await;
    let mut worker = Worker::new(&place);
    let lease = worker.one().await;
    assert_eq!(lease.id, id);
    let all = &lease.all;
    assert_eq!(all["payload"], json!({"n": 1}));
    let nothing = json!({"version": 0, "completed": [], "data": {}, "failures": [],
        "node": null, "saved_at": null});
    assert_eq!(all["checkpoint"], nothing);
    assert_eq!(all["timeouts"], json!({"step": "5m", "task": "30m"}));
    let about = &all["task"];
    assert_eq!((&about["kind"], &about["queue"]), (&json!("far"), &json!("jobs")));
    assert_eq!((&about["run"], &about["attempt"]), (&json!(1), &json!(1)));
    assert_eq!((&about["labels"], &about["correlation_id"]), (&json!({"a": "b"}), &json!("c")));
    assert_eq!(about["idempotency_prefix"], format!("{id}:1"));
    assert_eq!(task(&place, &id).await["node"], json!(worker.id));

    let progress = lease.says("progress", json!({"done": 1, "total": 2, "note": "half"}));
    let (results, requests) = worker.report(json!([lease.step("fetch", 1), progress])).await;
    assert_eq!((results, requests), (vec!["ok".to_owned(), "ok".to_owned()], vec![]));
    let seen = task(&place, &id).await;
    assert_eq!((&seen["context"], &seen["version"]), (&json!({"fetch": 1}), &json!(1)));
    assert_eq!(seen["progress"]["note"], "half");

    let skip = lease
        .says("step", json!({"name": "scan", "outcome": "skip", "reason": "old", "version": 2}));
    let done = lease.says("finish", json!({"outcome": "done"}));
    let (results, _) = worker.report(json!([skip, lease.step("index", 3), done])).await;
    assert_eq!(results, ["ok", "ok", "ok"]);
    let seen = task(&place, &id).await;
    assert_eq!(seen["state"], "completed");
    assert_eq!(seen["result"], json!({"fetch": 1, "index": 3}), "the merged context");
    let attempts = place.get(&format!("/v1/tasks/{id}/attempts")).await;
    let steps: Vec<_> = attempts.items()[0]["steps"].as_array().unwrap().iter().collect();
    let told: Vec<_> = steps
        .iter()
        .map(|s| (s["name"].as_str().unwrap(), s["outcome"].as_str().unwrap()))
        .collect();
    assert_eq!(told, [("fetch", "done"), ("scan", "skipped"), ("index", "done")]);
}

#[tokio::test]
async fn ends_lead_where_the_engine_says() {
    let place = place(LEASE).await;
    let mut worker = Worker::new(&place);
    for (finish, state, message) in [
        (json!({"outcome": "done", "output": [1]}), "completed", Value::Null),
        (json!({"outcome": "done"}), "completed", Value::Null),
        (json!({"outcome": "fail", "error": "no such file"}), "failed", json!("no such file")),
        (
            json!({"outcome": "retry", "error": {"message": "busy", "class": "timeout"}}),
            "retrying",
            json!("busy"),
        ),
        (json!({"outcome": "snooze", "delay": "1h"}), "scheduled", Value::Null),
    ] {
        let id = submit(&place).await;
        let lease = worker.one().await;
        let (results, _) = worker.report(json!([lease.says("finish", finish.clone())])).await;
        worker.held.clear();
        assert_eq!(results, ["ok"], "{finish}");
        let seen = task(&place, &id).await;
        assert_eq!(
            (&seen["state"], &seen["failure"]["message"]),
            (&json!(state), &message),
            "{seen}"
        );
        let wanted =
            if finish["output"].is_null() { Value::Null } else { finish["output"].clone() };
        assert_eq!(seen["result"], wanted, "{finish}");
        let left = if state == "retrying" { RETRIES - 1 } else { RETRIES };
        assert_eq!(seen["retries_left"], left, "the configured policy: {seen}");
    }
    let id = submit(&place).await;
    let lease = worker.one().await;
    worker.report(json!([lease.says("finish", json!({"outcome": "release"}))])).await;
    worker.held.clear();
    let again = worker.one().await;
    assert_eq!((&again.id, again.token), (&id, lease.token + 1), "back at once, nothing burnt");
    let node = place.get(&format!("/v1/nodes/{}", worker.id.clone().unwrap())).await;
    assert_eq!((&node.json["remote"], &node.json["active"]), (&json!(true), &json!(1)));
}

#[tokio::test]
async fn a_stale_or_foreign_token_is_lease_lost_and_spoils_nothing() {
    let place = place(LEASE).await;
    let (a, b) = (submit(&place).await, submit(&place).await);
    let mut worker = Worker::new(&place);
    let leases = worker.lease(json!({})).await;
    assert_eq!(leases.len(), 2);
    let other = Worker { id: Some(join(&place).await), ..Worker::new(&place) };
    let (results, _) =
        other.report(json!([leases[0].done(json!(1)), leases[0].step("x", 1)])).await;
    assert_eq!(results, ["lease-lost", "lease-lost"], "somebody else's");
    let stale = Leased { token: leases[0].token + 7, ..leases[0].clone() };
    let nobody = Leased { id: "tsk_0000000000001".to_owned(), ..leases[0].clone() };
    let twice = [leases[1].step("one", 1), leases[1].step("other", 1)];
    let (results, _) = worker
        .report(json!([
            stale.step("x", 1),
            nobody.done(json!(1)),
            twice[0],
            twice[1],
            leases[1].done(json!(2))
        ]))
        .await;
    assert_eq!(results, ["lease-lost", "lease-lost", "ok", "version-conflict", "ok"]);
    assert_eq!(task(&place, &b).await["state"], "completed");
    assert_eq!(task(&place, &a).await["state"], "running", "still held");
}

async fn join(place: &Place) -> String {
    let mut worker = Worker::new(place);
    worker.lease(json!({})).await;
    worker.id.expect("an id")
}

#[tokio::test]
async fn a_wrong_lease_is_named_and_changes_nothing() {
    let place = place(LEASE).await;
    let mut worker = Worker::new(&place);
    let id = submit(&place).await;
    for (words, status, code, pointer) in [
        (json!({"slots": 4}), 422, "invalid-fields", "/slots"),
        (json!({"worker_id": "nod_nonsense"}), 422, "invalid-fields", "/worker_id"),
        (json!({"worker_id": "tsk_0000000000001"}), 422, "invalid-fields", "/worker_id"),
        (json!({"kinds": []}), 422, "invalid-fields", "/kinds"),
        (json!({"kinds": ["a b"]}), 422, "invalid-fields", "/kinds/0"),
        (json!({"kinds": vec!["far"; 257]}), 422, "invalid-fields", "/kinds"),
        (json!({"queues": vec!["jobs"; 65]}), 422, "invalid-fields", "/queues"),
        (json!({"max": 0}), 422, "invalid-fields", "/max"),
        (json!({"max": 1001}), 422, "invalid-fields", "/max"),
        (json!({"max": -1}), 422, "invalid-fields", "/max"),
        (json!({"wait": "61s"}), 422, "invalid-fields", "/wait"),
        (json!({"wait": "soon"}), 422, "invalid-fields", "/wait"),
        (json!({"worker": ""}), 422, "invalid-fields", "/worker"),
        (json!({"worker_id": "nod_0000000000001"}), 409, "lease-lost", ""),
    ] {
        let got = worker.ask(words.clone()).await;
        assert_eq!(got.problem(status, code).pointer(), pointer, "{words}");
    }
    assert_eq!(task(&place, &id).await["state"], "queued");
    assert_eq!(worker.one().await.id, id);
}

#[tokio::test]
async fn a_wrong_report_is_named_and_changes_nothing() {
    let place = place(LEASE).await;
    let mut worker = Worker::new(&place);
    let id = submit(&place).await;
    let lease = worker.one().await;
    let one = |said: Value| json!([said]);
    for (reports, pointer) in [
        (one(json!({"task": lease.id, "token": lease.token})), "/reports/0"),
        (one(json!({"task": "x", "token": 1, "progress": {"done": 1}})), "/reports/0/task"),
        (one(json!({"task": lease.id, "progress": {"done": 1}})), "/reports/0"),
        (one(lease.says("log", json!("x"))), "/reports/0/log"),
        (
            one(lease.says("step", json!({"name": "a", "outcome": "won", "version": 1}))),
            "/reports/0/step/outcome",
        ),
        (one(lease.says("step", json!({"name": "a", "outcome": "done"}))), "/reports/0/step"),
        (one(lease.says("finish", json!({"outcome": "snooze"}))), "/reports/0/finish/delay"),
        (
            one(lease.says("finish", json!({"outcome": "release", "output": 1}))),
            "/reports/0/finish/output",
        ),
        (
            one(lease.says("finish", json!({"outcome": "done", "error": "x"}))),
            "/reports/0/finish/error",
        ),
        (
            one(lease
                .says("finish", json!({"outcome": "fail", "error": {"message": "x", "code": 1}}))),
            "/reports/0/finish/error/code",
        ),
        (
            one(lease.says("finish", json!({"outcome": "done", "delay": "1s"}))),
            "/reports/0/finish/delay",
        ),
        (json!(vec![lease.says("progress", json!({"done": 1})); 1001]), "/reports"),
    ] {
        let got = worker.try_report(reports.clone()).await;
        assert_eq!(got.problem(422, "invalid-fields").pointer(), pointer, "{}", got.text);
    }
    let both = json!({"task": lease.id, "token": lease.token, "progress": {"done": 1}, "finish": {"outcome": "done"}});
    worker.try_report(one(both)).await.problem(422, "invalid-fields");
    let stranger = Worker { id: Some("nod_0000000000001".to_owned()), ..Worker::new(&place) };
    stranger.try_report(json!([])).await.problem(409, "lease-lost");
    let own = place.engine.status().node.to_string();
    let disguised = Worker { id: Some(own), ..Worker::new(&place) };
    disguised.try_report(json!([])).await.problem(409, "lease-lost");
    let seen = task(&place, &id).await;
    assert_eq!(
        (&seen["state"], &seen["version"], &seen["progress"]),
        (&json!("running"), &json!(0), &Value::Null)
    );
}

#[tokio::test]
async fn the_same_name_again_is_another_worker() {
    let place = place(LEASE).await;
    let (a, b) = (join(&place).await, join(&place).await);
    assert_ne!(a, b);
    let nodes = place.get("/v1/nodes").await;
    let remote: Vec<_> = nodes.items().iter().filter(|n| n["remote"] == true).collect();
    assert_eq!(remote.len(), 2);
    assert_eq!((&remote[0]["name"], &remote[0]["queues"]), (&json!("w"), &json!(["jobs"])));
}

#[tokio::test]
async fn a_cancel_and_a_pause_reach_the_worker_with_its_next_report() {
    let place = place(LEASE).await;
    let (a, b) = (submit(&place).await, submit(&place).await);
    let mut worker = Worker::new(&place);
    let leases = worker.lease(json!({})).await;
    place.ask(&format!("/v1/tasks/{a}/cancel")).await.is(202);
    place.ask(&format!("/v1/tasks/{b}/pause")).await.is(202);
    let (_, requests) = worker.report(json!([])).await;
    let wanted = [json!({"task": a, "cancel": true}), json!({"task": b, "pause": true})];
    assert_eq!(requests, wanted);
    let release = leases[1].says("finish", json!({"outcome": "release"}));
    worker.report(json!([release])).await;
    assert_eq!(task(&place, &b).await["state"], "paused");
    // The cancel is not obeyed, and its grace period ends.
    worker.held = vec![leases[0].held()];
    let began = std::time::Instant::now();
    while task(&place, &a).await["state"] == "running" {
        worker.report(json!([])).await;
        assert!(began.elapsed() < Duration::from_secs(10));
        // tidy: allow-sleep because a worker reports now and then
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(task(&place, &a).await["state"], "cancelled");
    let (results, requests) = worker.report(json!([leases[0].done(json!(1))])).await;
    assert_eq!((results, requests), (vec!["lease-lost".to_owned()], vec![]));
    let (_, requests) = worker.report(json!([])).await;
    assert_eq!(requests, [json!({"task": a, "cancel": true, "lost": true})]);
}

#[tokio::test]
async fn a_paused_worker_gets_nothing() {
    let place = place(LEASE).await;
    let mut worker = Worker::new(&place);
    worker.lease(json!({})).await;
    let node = format!("/v1/nodes/{}", worker.id.clone().unwrap());
    place.ask(&format!("{node}/pause")).await;
    let id = submit(&place).await;
    assert_eq!(worker.lease(json!({"wait": "50ms"})).await.len(), 0);
    assert_eq!(place.get(&node).await.json["paused"], true);
    place.ask(&format!("{node}/resume")).await;
    assert_eq!(worker.one().await.id, id);
}

#[tokio::test]
async fn why_and_waiting_on_tell_the_truth_about_workers() {
    let place = place(LEASE).await;
    let id = submit(&place).await;
    assert_eq!(task(&place, &id).await["waiting_on"]["type"], "handler");
    let why = place.get(&format!("/v1/tasks/{id}/why")).await;
    assert!(why.json["why"].as_str().unwrap().contains("No node serves the kind"), "{}", why.text);
    // It serves the kind, in another queue.
    let other = Worker::new(&place);
    other.ask(json!({"queues": ["elsewhere"]})).await.is(200);
    assert_eq!(task(&place, &id).await["waiting_on"], Value::Null);
    place.ask("/v1/queues/jobs/pause").await.is(200);
    let why = place.get(&format!("/v1/tasks/{id}/why")).await;
    assert!(why.json["why"].as_str().unwrap().contains("paused"), "{}", why.text);
}

#[tokio::test]
async fn a_step_that_failed_is_told_and_a_long_task_is_ended() {
    let place = place(LEASE).await;
    let body =
        json!({"kind": "far", "steps": ["a", "b"], "timeouts": {"task": "200ms", "step": "100ms"}});
    let id = place.submit(body).await;
    let mut worker = Worker::new(&place);
    let lease = worker.one().await;
    assert_eq!(lease.all["task"]["steps"], json!(["a", "b"]));
    assert_eq!(lease.all["timeouts"], json!({"step": "100ms", "task": "200ms"}));
    let fail = json!({"name": "a", "outcome": "fail", "reason": "no disk", "version": 1, "duration_ms": 7});
    let (results, _) = worker.report(json!([lease.says("step", fail)])).await;
    assert_eq!(results, ["ok"]);
    let checkpoint = place.get(&format!("/v1/tasks/{id}/checkpoint")).await;
    assert_eq!(checkpoint.json["failures"][0]["message"], "no disk");
    let began = std::time::Instant::now();
    while task(&place, &id).await["state"] == "running" {
        worker.report(json!([])).await;
        assert!(began.elapsed() < Duration::from_secs(10));
        // tidy: allow-sleep because a worker reports now and then
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let seen = task(&place, &id).await;
    assert_eq!((&seen["state"], &seen["failure"]["reason"]), (&json!("failed"), &json!("timeout")));
}
