//! Verbs on tasks, queues and nodes. Each one is asked for over HTTP, and its
//! effect and audit row are looked for there too.

use crate::place::Place;
use reqwest::Method;
use serde_json::json;

#[tokio::test]
async fn a_running_task_is_asked_and_a_waiting_one_ends_at_once() {
    let place = Place::new().await;
    let running = place.submit(json!({"kind": "obey", "payload": {"do": "wait"}})).await;
    place.until(&running, "running").await;
    place.ask(&format!("/v1/tasks/{running}/cancel")).await.is(202);
    place.until(&running, "cancelled").await;
    let later = place.submit(json!({"kind": "obey", "delay": "1h"})).await;
    let got = place.ask(&format!("/v1/tasks/{later}/cancel")).await;
    assert_eq!(got.is(200).json["state"], "cancelled");
    place.ask(&format!("/v1/tasks/{later}/cancel")).await.is(200);
    let result = place.get(&format!("/v1/tasks/{later}/result")).await;
    result.problem(409, "state-conflict");
}

#[tokio::test]
async fn pause_holds_and_resume_lets_go() {
    let place = Place::new().await;
    let id = place.submit(json!({"kind": "obey", "delay": "1h"})).await;
    let got = place.ask(&format!("/v1/tasks/{id}/pause")).await;
    assert_eq!(got.is(200).json["state"], "paused");
    let got = place.ask(&format!("/v1/tasks/{id}/resume")).await;
    assert_eq!(got.is(200).json["state"], "scheduled");
    place.ask(&format!("/v1/tasks/{id}/resume")).await.problem(409, "state-conflict");
}

#[tokio::test]
async fn a_failed_task_can_be_sent_again() {
    let place = Place::new().await;
    let failed = place.ended(json!({"kind": "chain", "payload": {"do": "fail"}})).await;
    let id = failed["id"].as_str().unwrap();
    // While it could be sent again, so that nothing but the body is refused.
    for bad in [json!({"form_step": "x"}), json!({"from_step": 1}), json!([1])] {
        let got = place.post(&format!("/v1/tasks/{id}/requeue"), bad.clone()).await;
        assert_eq!(got.status.as_u16(), 422, "{bad}: {}", got.text);
    }
    let got =
        place.post(&format!("/v1/tasks/{id}/requeue"), json!({"payload": {"value": 1}})).await;
    assert_eq!((&got.is(200).json["run"], &got.json["payload"]), (&json!(2), &json!({"value": 1})));
    let done = place.get(&format!("/v1/tasks/{id}?wait=30s")).await;
    assert_eq!(done.json["state"], "completed");
    place.ask(&format!("/v1/tasks/{id}/requeue")).await.problem(409, "state-conflict");

    let again = place.ask(&format!("/v1/tasks/{id}/rerun")).await;
    assert_eq!(again.is(201).json["rerun_of"], id);
    assert!(again.header("location").contains(again.json["id"].as_str().unwrap()));
    place.ask("/v1/tasks/tsk_0000000000001/cancel").await.problem(404, "not-found");
    place.ask("/v1/tasks/tsk_0000000000001/rerun").await.problem(404, "not-found");
}

#[tokio::test]
async fn a_payload_of_null_is_no_payload() {
    let place = Place::new().await;
    let failed = place.ended(json!({"kind": "chain", "payload": {"do": "fail"}})).await;
    let path = format!("/v1/tasks/{}/requeue", failed["id"].as_str().unwrap());
    place.post(&path, json!({"payload": null})).await.problem(422, "invalid-fields");
}

#[tokio::test]
async fn queues_are_paused_limited_and_audited() {
    let place = Place::new().await;
    assert_eq!(place.ask("/v1/queues/jobs/pause").await.is(200).json["paused"], true);
    let id = place.submit(json!({"kind": "obey"})).await;
    let why = place.get(&format!("/v1/tasks/{id}/why")).await;
    assert!(why.json["why"].as_str().unwrap().contains("paused"), "{}", why.text);
    assert_eq!(place.ask("/v1/queues/jobs/resume").await.is(200).json["paused"], false);
    place.until(&id, "completed").await;

    let limits = json!({"concurrency": 3, "depth_max": 1000});
    let got = place.send(Method::PATCH, "/v1/queues/jobs", Some(limits)).await;
    assert_eq!(
        (&got.is(200).json["concurrency"], &got.json["depth_max"]),
        (&json!(3), &json!(1000))
    );
    let got =
        place.send(Method::PATCH, "/v1/queues/jobs", Some(json!({"concurrency": null}))).await;
    assert_eq!(
        (&got.is(200).json["concurrency"], &got.json["depth_max"]),
        (&json!(null), &json!(1000))
    );
    for bad in [
        json!({"concurrency": 0}),
        json!({"concurrency": -1}),
        json!({"depth": 1}),
        json!({"depth_max": u64::MAX}),
    ] {
        let got = place.send(Method::PATCH, "/v1/queues/jobs", Some(bad)).await;
        got.problem(422, "invalid-fields");
    }
    let audit = place.get("/v1/audit").await;
    let actions: Vec<&str> =
        audit.is(200).items().iter().filter_map(|r| r["action"].as_str()).collect();
    assert!(actions.iter().any(|a| a.contains("pause")), "{actions:?}");
    assert!(audit.items().iter().any(|r| r["origin"] == "127.0.0.1"), "{}", audit.text);
}

#[tokio::test]
async fn a_node_is_paused_and_drained() {
    let place = Place::new().await;
    let node = place.engine.status().node.to_string();
    let got = place.ask(&format!("/v1/nodes/{node}/pause")).await;
    assert_eq!(got.json["paused"], true, "{}", got.text);
    assert!(place.engine.status().paused);
    place.ask(&format!("/v1/nodes/{node}/resume")).await;
    assert!(!place.engine.status().paused);
    let got = place.ask(&format!("/v1/nodes/{node}/drain")).await;
    assert!([200, 202].contains(&got.status.as_u16()));
    assert!(place.engine.status().draining);
    place.ask("/v1/nodes/nod_0000000000000/pause").await.problem(404, "not-found");
}
