//! Submitting: what is answered, what is refused, and that a refusal changes
//! nothing.

use crate::place::{Got, Place};
use serde_json::{Value, json};
use std::time::Duration;
use windlass::{UnknownKinds, Windlass};

#[tokio::test]
async fn a_task_is_answered_whole_and_runs() {
    let place = Place::new().await;
    let got = place
        .post(
            "/v1/tasks",
            json!({
                "kind": "chain", "payload": {"value": 7}, "priority": 3, "queue": "jobs",
                "labels": {"tenant": "acme"}, "correlation_id": "c-1", "user_id": "u-1",
                "deadline": "1h", "unique": {"key": "k", "for": "live"},
                "retry": {"retries": 2, "first": "1s", "factor": 2.0, "cap": "1m"},
                "timeouts": {"step": "10s", "task": "1m"},
            }),
        )
        .await;
    let task = &got.is(201).json;
    let id = task["id"].as_str().expect("an id");
    assert!(id.starts_with("tsk_") && id.len() == 17, "{id}");
    assert_eq!(got.header("location"), format!("/v1/tasks/{id}"));
    for (field, value) in [
        ("kind", json!("chain")),
        ("queue", json!("jobs")),
        ("state", json!("queued")),
        ("priority", json!(3)),
        ("payload", json!({"value": 7})),
        ("steps", json!(["one", "two", "three"])),
        ("next_step", json!(0)),
        ("labels", json!({"tenant": "acme"})),
        ("run", json!(1)),
        ("attempt", json!(0)),
        ("retries_left", json!(2)),
        ("correlation_id", json!("c-1")),
        ("user_id", json!("u-1")),
        ("unique", json!({"key": "k", "for": "live"})),
        ("finished_at", Value::Null),
    ] {
        assert_eq!(task[field], value, "{field}: {task}");
    }
    let done = place.get(&format!("/v1/tasks/{id}?wait=30s")).await;
    let done = &done.is(200).json;
    assert_eq!(done["state"], "completed", "{done}");
    assert_eq!((&done["next_step"], &done["result"]["three"]), (&json!(3), &json!(7)));
    assert_eq!(done["created_at"], task["created_at"]);
    let result = place.get(&format!("/v1/tasks/{id}/result")).await;
    assert_eq!(result.is(200).json["two"], 7);
}

#[tokio::test]
async fn absent_payloads_are_objects_and_null_is_refused() {
    let place = Place::new().await;
    let done = place.ended(json!({"kind": "demo.hello"})).await;
    assert_eq!((&done["payload"], &done["result"]), (&json!({}), &json!("Hello world")));
    let got = place.post("/v1/tasks", json!({"kind": "demo.hello", "payload": null})).await;
    assert!(got.problem(422, "invalid-fields").detail().contains("null"), "{got:?}");
}

async fn tasks(place: &Place) -> usize {
    place.get("/v1/tasks?count=true").await.is(200).json["count"].as_u64().expect("a count")
        as usize
}

#[tokio::test]
async fn what_is_wrong_is_named_and_changes_nothing() {
    let place = Place::new().await;
    let with = |field: &str, value: Value| {
        let mut submission = json!({"kind": "obey"});
        submission[field] = value;
        submission
    };
    for (submission, code, says) in [
        (json!({}), "invalid-fields", "kind"),
        (json!([]), "invalid-fields", "object"),
        (json!(["obey"]), "invalid-fields", "object"),
        (with("unique", json!(["k"])), "invalid-fields", "object"),
        (with("timeouts", json!(["1s", "1s"])), "invalid-fields", "object"),
        (json!({"kind": "nobody.serves"}), "unknown-kind", "nobody.serves"),
        (json!({"kind": "not a name"}), "invalid-fields", "not a name"),
        (with("kidn", json!(1)), "invalid-fields", "kidn"),
        (with("priority", json!(11)), "invalid-fields", "-10..10"),
        (with("priority", json!(1000)), "invalid-fields", "1000"),
        (with("queue", json!("")), "invalid-fields", "queue"),
        (with("delay", json!("soon")), "invalid-fields", "soon"),
        (with("run_at", json!("yesterday")), "invalid-fields", "yesterday"),
        (with("steps", json!(["one", "nowhere"])), "invalid-fields", "nowhere"),
        (with("steps", json!(["one", "one"])), "invalid-fields", "twice"),
        (with("labels", json!({"a b": "c"})), "invalid-fields", "a b"),
        (with("unique", json!({"key": "k", "for": "ages"})), "invalid-fields", "ages"),
        (with("retry", json!({"retries": -1})), "invalid-fields", "retries"),
        (with("retry", json!({"factor": 0.5, "x": 1})), "invalid-fields", "x"),
        (with("timeouts", json!({"step": "0s"})), "invalid-fields", "step"),
        (with("parent", json!("tsk_0000000000001")), "not-found", "tsk_0000000000001"),
        (with("children_policy", json!("some")), "invalid-fields", "some"),
        (with("input", json!("file:///etc/passwd")), "invalid-fields", "not supported"),
        (with("limit_key", json!("k")), "invalid-fields", "not supported"),
    ] {
        let got = place.post("/v1/tasks", submission.clone()).await;
        let status = got.status.as_u16();
        got.problem(status, code);
        assert!((400..500).contains(&status), "{submission}");
        assert!(got.text.contains(says), "{submission}: {}", got.text);
    }
    assert_eq!(tasks(&place).await, 0);
}

#[tokio::test]
async fn an_unknown_field_has_a_pointer() {
    let place = Place::new().await;
    let got = place
        .post("/v1/tasks", json!({"kind": "obey", "unique": {"key": "k", "fro": "live"}}))
        .await;
    assert_eq!(got.problem(422, "invalid-fields").pointer(), "/unique/fro");
}

async fn with_key(place: &Place, path: &str, key: &str, body: &Value) -> Got {
    let request = place.client.post(place.url(path)).header("Idempotency-Key", key);
    Got::of(request.json(body).send().await.expect("an answer")).await
}

#[tokio::test]
async fn an_idempotency_key_is_answered_once() {
    let place = Place::new().await;
    let body = json!({"kind": "obey", "payload": {"n": 1}});
    let first = with_key(&place, "/v1/tasks", "key-1", &body).await;
    let again = with_key(&place, "/v1/tasks", "key-1", &body).await;
    assert_eq!(first.is(201).json["id"], again.is(200).json["id"]);
    assert_eq!(again.header("idempotency-replayed"), "true");
    let other = json!({"kind": "obey", "payload": {"n": 2}});
    let other = with_key(&place, "/v1/tasks", "key-1", &other).await;
    other.problem(422, "idempotency-key-reused");
    let long = "x".repeat(300);
    with_key(&place, "/v1/tasks", &long, &body).await.problem(422, "invalid-fields");
    assert_eq!(tasks(&place).await, 1);
}

#[tokio::test]
async fn a_unique_key_gives_the_task_that_has_it() {
    let place = Place::new().await;
    let body = json!({"kind": "obey", "payload": {"do": "wait"}, "unique": {"key": "u"}});
    let first = place.post("/v1/tasks", body.clone()).await;
    let again = place.post("/v1/tasks", body).await;
    assert_eq!(first.is(201).json["id"], again.is(200).json["id"]);
    assert_eq!(again.header("windlass-existing"), "unique");
}

#[tokio::test]
async fn a_bulk_is_all_or_nothing() {
    let place = Place::new().await;
    let many = |n: usize| -> Vec<Value> {
        (0..n).map(|i| json!({"kind": "obey", "payload": {"value": i}})).collect()
    };
    let got = place.post("/v1/tasks/bulk", json!({"tasks": many(100)})).await;
    let ids = got.is(201).json["ids"].as_array().expect("ids").clone();
    assert_eq!(ids.len(), 100);
    let last = ids[99].as_str().expect("an id");
    let done = place.get(&format!("/v1/tasks/{last}?wait=30s")).await;
    assert_eq!(done.json["result"]["one"], 99);

    for (bad, pointer) in [
        (json!({"kind": "obey", "payload": null}), "/tasks/7"),
        (json!({"kind": "nobody"}), "/tasks/7"),
        (json!({"kind": "obey", "x": 1}), "/tasks/7/x"),
        (json!({"kind": "obey", "limit_key": "k"}), "/tasks/7/limit_key"),
    ] {
        let mut tasks = many(20);
        tasks[7] = bad;
        let got = place.post("/v1/tasks/bulk", json!({"tasks": tasks})).await;
        assert_eq!((got.status.as_u16(), got.pointer()), (422, pointer), "{}", got.text);
    }
    let got = place.post("/v1/tasks/bulk", json!({"tasks": many(10_001)})).await;
    assert_eq!(got.problem(422, "invalid-fields").pointer(), "/tasks");
    assert_eq!(tasks(&place).await, 100);
    place.post("/v1/tasks/bulk", json!({"tasks": []})).await.is(201);
}

#[tokio::test]
async fn a_bulk_key_stands_for_the_whole_request() {
    let place = Place::new().await;
    let many = |n: usize| json!({"tasks": vec![json!({"kind": "obey"}); n]});
    let first = with_key(&place, "/v1/tasks/bulk", "b", &many(3)).await;
    let again = with_key(&place, "/v1/tasks/bulk", "b", &many(3)).await;
    assert_eq!(first.is(201).json["ids"], again.is(200).json["ids"]);
    for other in [2, 4] {
        let got = with_key(&place, "/v1/tasks/bulk", "b", &many(other)).await;
        got.problem(422, "idempotency-key-reused");
    }
    assert_eq!(tasks(&place).await, 3);
}

#[tokio::test]
async fn unknown_kinds_can_be_parked_and_say_so() {
    let builder = Windlass::in_memory().await.expect("a store");
    let place = Place::of(builder.unknown_kinds(UnknownKinds::Park)).await;
    let id = place.submit(json!({"kind": "remote.kind"})).await;
    let task = place.get(&format!("/v1/tasks/{id}")).await;
    assert_eq!(task.json["state"], "queued");
    assert_eq!(
        task.json["waiting_on"],
        json!({"type": "handler", "name": "remote.kind", "until": null})
    );
    let why = place.get(&format!("/v1/tasks/{id}/why")).await;
    assert!(why.is(200).json["why"].as_str().unwrap().contains("remote.kind"), "{why:?}");
}

#[tokio::test]
async fn steps_can_be_given_and_none_completes_at_once() {
    let place = Place::new().await;
    let none = place.post("/v1/tasks", json!({"kind": "chain", "steps": []})).await;
    assert_eq!(none.is(201).json["state"], "completed");
    let two = place.ended(json!({"kind": "chain", "steps": ["three", "one"]})).await;
    assert_eq!((&two["steps"], &two["state"]), (&json!(["three", "one"]), &json!("completed")));
}

#[tokio::test]
async fn a_delay_waits_and_a_full_queue_refuses() {
    let place = Place::new().await;
    let later = place.post("/v1/tasks", json!({"kind": "obey", "delay": "1h"})).await;
    assert_eq!(later.is(201).json["state"], "scheduled");
    assert_eq!(later.json["waiting_on"]["type"], "time");
    let both = json!({"kind": "obey", "delay": "1h", "run_at": "2030-01-01T00:00:00Z"});
    assert_eq!(
        place.post("/v1/tasks", both).await.problem(422, "invalid-fields").pointer(),
        "/delay"
    );

    let patch = reqwest::Method::PATCH;
    place.send(patch, "/v1/queues/jobs", Some(json!({"depth_max": 2}))).await.is(200);
    place.ask("/v1/queues/jobs/pause").await.is(200);
    let mut refused = None;
    for _ in 0..200 {
        let got = place.post("/v1/tasks", json!({"kind": "obey"})).await;
        if got.status.as_u16() != 201 {
            refused = Some(got);
            break;
        }
        // tidy: allow-sleep because depth limits are accurate to a second
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let refused = refused.expect("the queue is full at some time");
    refused.problem(429, "queue-full");
    assert_eq!(refused.header("retry-after"), "1");
}

#[tokio::test]
async fn a_draining_queue_takes_nothing_until_it_is_resumed() {
    let place = Place::new().await;
    let got = place.ask("/v1/queues/jobs/drain").await;
    assert_eq!(got.is(200).json["draining"], true);
    place.post("/v1/tasks", json!({"kind": "obey"})).await.problem(409, "state-conflict");
    place.post("/v1/tasks", json!({"kind": "demo.hello"})).await.is(201);
    place.ask("/v1/queues/jobs/resume").await.is(200);
    place.post("/v1/tasks", json!({"kind": "obey"})).await.is(201);
}

#[tokio::test]
async fn a_trace_follows_its_task() {
    let place = Place::new().await;
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let parent = format!("00-{trace}-00f067aa0ba902b7-01");
    for (given, expected) in [(parent.as_str(), json!(trace)), ("nonsense", Value::Null)] {
        let request = place.client.post(place.url("/v1/tasks")).header("traceparent", given);
        let got = Got::of(request.json(&json!({"kind": "obey"})).send().await.unwrap()).await;
        assert_eq!(got.is(201).json["trace_id"], expected);
    }
}
