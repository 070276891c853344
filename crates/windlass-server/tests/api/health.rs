//! Health, gauges and the description of the API. Counters are compared with
//! the store in a test of their own.

use crate::place::Place;
use serde_json::json;
use std::time::Duration;
use windlass_server::api::Page;
use windlass_server::config::AuthConfig;

#[tokio::test]
async fn a_server_is_ready_until_it_stops() {
    let place = Place::new().await;
    assert_eq!(place.get("/livez").await.is(200).text, "ok\n");
    place.get("/readyz").await.is(200);
    let verbose = place.get("/readyz?verbose").await;
    assert_eq!(verbose.is(200).json["parts"][0]["name"], "store");
    place.engine.pause_node().await.expect("a pause");
    assert_eq!(place.get("/readyz?verbose").await.is(200).json["parts"][1]["state"], "degraded");
    place.engine.shutdown(Duration::ZERO).await.expect("a stop");
    let got = place.get("/readyz?verbose").await;
    assert_eq!(
        (got.is(503).json["ready"].clone(), got.json["parts"][1]["state"].clone()),
        (json!(false), json!("failed"))
    );
    place.get("/livez").await.is(200);
    place.post("/v1/tasks", json!({"kind": "demo.hello"})).await.problem(503, "draining");
}

#[tokio::test]
async fn how_the_parts_are_is_for_those_who_may_look() {
    let place = Place::signed_in(AuthConfig::default(), Page::On, &[]).await;
    let worker = place.with_token(&place.token("w", "worker").await);
    let stranger = place.with_token("wl_0123456789ab_wrong");
    for (who, shown) in [(&place, 2), (&worker, 2), (&stranger, 0)] {
        let got = who.get("/readyz?verbose").await;
        assert_eq!(got.is(200).json["ready"], true);
        assert_eq!(got.json["parts"].as_array().unwrap().len(), shown, "{}", got.text);
    }
    let nobody = place.client.get(place.url("/readyz?verbose")).send().await.unwrap();
    assert_eq!(nobody.text().await.unwrap(), r#"{"ready":true,"parts":[]}"#);
}

#[tokio::test]
async fn the_api_describes_itself() {
    let place = Place::new().await;
    let document = place.get("/v1/openapi.json").await;
    let document = &document.is(200).json;
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    let paths = document["paths"].as_object().unwrap();
    for path in [
        "/v1/tasks",
        "/v1/tasks/bulk",
        "/v1/tasks/{id}",
        "/v1/tasks/{id}/result",
        "/v1/dead-letters/export",
        "/v1/queues/{name}",
        "/v1/nodes/{id}/drain",
        "/v1/events",
        "/readyz",
    ] {
        assert!(paths.contains_key(path), "{path} is missing");
    }
    let task = document["components"]["schemas"]["Task"]["properties"].as_object().unwrap();
    for field in "id kind queue state priority payload context steps next_step labels run attempt retries_left created_at updated_at due_at started_at finished_at deadline parent rerun_of children children_policy progress result failure waiting_on unique input node user_id correlation_id trace_id version".split(' ') {
        assert!(task.contains_key(field), "{field} is missing");
    }
}

#[tokio::test]
async fn gauges_say_how_things_stand() {
    let place = Place::new().await;
    place.ended(json!({"kind": "obey", "payload": {"do": "fail"}})).await;
    place.submit(json!({"kind": "obey", "delay": "1h"})).await;
    place.ask("/v1/queues/jobs/pause").await.is(200);
    place.submit(json!({"kind": "obey"})).await;
    let got = place.get("/metrics").await;
    assert!(got.is(200).header("content-type").starts_with("text/plain"));
    for line in [
        r#"windlass_dead_letters{queue="jobs"} 1"#,
        r#"windlass_queue_tasks{queue="jobs",state="scheduled"} 1"#,
        r#"windlass_queue_tasks{queue="jobs",state="queued"} 1"#,
        r#"windlass_queue_paused{queue="jobs"} 1"#,
        r#"windlass_tasks_running{queue="jobs"} 0"#,
        r#"windlass_node_slots{queue="jobs",state="free"} 20"#,
        "windlass_outbox_pending 0",
        r#"windlass_degraded{part="node"} 0"#,
    ] {
        assert!(got.text.lines().any(|l| l == line), "{line} is missing:\n{}", got.text);
    }
    assert!(got.text.contains("windlass_queue_oldest_ready_seconds"));
}
