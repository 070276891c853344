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
    assert_eq!((&done["state"], &failed["state"]), (&json!("completed"), &json!("failed")));
    let id = |task: &Value| task["id"].as_str().unwrap().to_owned();
    // What the test looks for is there to be seen.
    for task in [&done, &failed] {
        let seen = seen(&place, &id(task)).await;
        assert!(seen.len() >= 3, "{seen:?}");
    }
    for role in ["viewer", "submitter", "worker"] {
        let below = place.with_token(&place.token(role, role).await);
        for task in [&done, &failed] {
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
