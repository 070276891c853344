//! Fields that only operators see: hidden in every answer for everybody below,
//! whole for operators, and never hidden from the code that does the work.

use crate::place::Place;
use serde_json::{Value, json};
use windlass_server::api::Page;
use windlass_server::config::AuthConfig;

const SECRET: &str = "hunter2-canary";

/// Every address that shows something of a task.
fn looks(id: &str) -> Vec<String> {
    let of_task = ["", "/checkpoint", "/attempts", "/history", "/logs", "/result", "/why"];
    let mut looks: Vec<String> =
        of_task.iter().map(|part| format!("/v1/tasks/{id}{part}")).collect();
    looks.extend(
        [
            "/v1/tasks",
            "/v1/dead-letters",
            "/v1/dead-letters?group_by=error",
            "/v1/batches",
            "/v1/dead-letters/export",
            "/v1/events?limit=500",
            "/",
            "/metrics",
            "/v1/audit",
        ]
        .map(str::to_owned),
    );
    looks.push(format!("/v1/dead-letters/{id}"));
    looks
}

async fn seen(place: &Place, id: &str) -> Vec<String> {
    let mut seen = vec![];
    for path in looks(id) {
        if place.get(&path).await.text.contains(SECRET) {
            seen.push(path);
        }
    }
    seen
}

#[tokio::test]
async fn only_operators_see_hidden_fields() {
    let place =
        Place::signed_in(AuthConfig::default(), Page::On, &["password", "card.number"]).await;
    let payload = |what: &str| {
        json!({"do": what, "value": {"card": {"number": SECRET}},
            "user": {"password": SECRET, "name": "Ann"}})
    };
    let done = place
        .ended(json!({"kind": "chain", "payload": payload("done"),
        "labels": {"password": SECRET, "tenant": "acme"}}))
        .await;
    let failed = place.ended(json!({"kind": "obey", "payload": payload("leak")})).await;
    let raw = place.ended(json!({"kind": "raw", "payload": payload("leak")})).await;
    assert_eq!((&done["state"], &failed["state"]), (&json!("completed"), &json!("failed")));
    let id = |task: &Value| task["id"].as_str().unwrap().to_owned();
    // What the test looks for is there to be seen.
    for task in [&done, &failed, &raw] {
        let seen = seen(&place, &id(task)).await;
        assert!(seen.len() >= 3, "{seen:?}");
    }
    for role in ["viewer", "submitter", "worker"] {
        let below = place.with_token(&place.token(role, role).await);
        for task in [&done, &failed, &raw] {
            assert_eq!(seen(&below, &id(task)).await, Vec::<String>::new(), "{role}");
        }
        let task = below.get(&format!("/v1/tasks/{}", id(&done))).await;
        let task = &task.is(200).json;
        assert_eq!(task["payload"]["user"], json!({"password": "[redacted]", "name": "Ann"}));
        assert_eq!(task["result"]["one"]["card"]["number"], "[redacted]");
        assert_eq!(task["labels"], json!({"password": "[redacted]", "tenant": "acme"}));
        let task = below.get(&format!("/v1/tasks/{}", id(&failed))).await;
        assert_eq!(task.json["failure"]["message"], "no login with [redacted]");
    }
    let operator = place.with_token(&place.token("op", "operator").await);
    let task = operator.get(&format!("/v1/tasks/{}", id(&done))).await;
    assert_eq!(task.is(200).json["payload"]["user"]["password"], SECRET);
}

#[tokio::test]
async fn what_workers_say_is_cleaned_before_it_is_written() {
    let place = Place::signed_in(AuthConfig::default(), Page::On, &["password"]).await;
    let worker = place.with_token(&place.token("w", "worker").await);
    let payload = json!({"user": {"password": SECRET}});
    let id = place.submit(json!({"kind": "obey", "queue": "far", "payload": payload})).await;
    let wish = json!({"worker": "w", "kinds": ["obey"], "queues": ["far"], "max": 1});
    let leased = worker.post("/v1/worker/lease", wish).await;
    let (node, lease) = (&leased.is(200).json["worker_id"], &leased.json["leases"][0]);
    assert_eq!(lease["payload"], payload, "the worker gets everything");
    let about = json!({"task": id, "token": lease["token"]});
    let say = |key: &str, what: Value| {
        let mut report = about.clone();
        report[key] = what;
        report
    };
    let why = format!("no login with {SECRET}");
    let reports = json!([
        say("progress", json!({"done": 1, "total": 2, "note": why})),
        say("step", json!({"name": "a", "outcome": "fail", "reason": why, "version": 1})),
        say("finish", json!({"outcome": "fail", "error": {"message": why, "detail": why}})),
    ]);
    let said = json!({"worker_id": node, "held": [about], "reports": reports});
    let answer = worker.post("/v1/worker/report", said).await;
    assert_eq!(answer.is(200).json["results"], json!(["ok", "ok", "ok"]));
    let task = place.get(&format!("/v1/tasks/{id}")).await;
    assert_eq!(task.is(200).json["failure"]["message"], "no login with [redacted]");
    let viewer = place.with_token(&place.token("v", "viewer").await);
    assert_eq!(seen(&viewer, &id).await, Vec::<String>::new());
    let events = place.get("/v1/events?limit=500").await;
    assert!(events.text.contains("no login with [redacted]") && !events.text.contains(SECRET));
}

#[tokio::test]
async fn filters_tell_nothing_that_is_hidden() {
    let place = Place::signed_in(AuthConfig::default(), Page::On, &["password"]).await;
    let labels = json!({"password": SECRET, "tenant": "acme"});
    place.submit(json!({"kind": "demo.hello", "labels": labels, "delay": "1h"})).await;
    let q = format!("label.password:{SECRET}");
    let order = json!({"action": "cancel", "q": q});
    place.post("/v1/batches", order).await.is(202);
    let viewer = place.with_token(&place.token("v", "viewer").await);
    for path in ["/v1/tasks", "/v1/dead-letters", "/v1/dead-letters/export"] {
        viewer.get(&format!("{path}?q=label.password:h*")).await.problem(403, "forbidden");
        viewer.get(&format!("{path}?q=-label.Password:h*")).await.problem(403, "forbidden");
        viewer.get(&format!("{path}?q=label.tenant:acme")).await.is(200);
        place.get(&format!("{path}?q=label.password:h*")).await.is(200);
    }
    for path in ["/v1/batches", "/v1/audit"] {
        assert!(place.get(path).await.text.contains(SECRET), "{path}");
        let seen = viewer.get(path).await;
        assert!(seen.text.contains("[redacted]") && !seen.text.contains(SECRET), "{}", seen.text);
    }
}
