//! The protocol, call by call: ids, tokens, steps, ends, and what is refused.

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
    assert_eq!(all["checkpoint"], Value::Null);
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
