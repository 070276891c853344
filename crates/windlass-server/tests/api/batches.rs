//! Bulk jobs over HTTP: previewed, begun, followed, stopped, listed; and the
//! payload of one task, edited. Orders that make no sense are refused by field.

use crate::place::Place;
use reqwest::Method;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

async fn three_that_wait(place: &Place) -> Vec<String> {
    let mut ids = vec![];
    for _ in 0..3 {
        ids.push(place.submit(json!({"kind": "obey", "delay": "1h"})).await);
    }
    ids
}

async fn ended(place: &Place, id: &str) -> Value {
    let began = Instant::now();
    loop {
        let batch = place.get(&format!("/v1/batches/{id}")).await.is(200).json.clone();
        if batch["state"] != "running" {
            return batch;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "never ends: {batch}");
        // tidy: allow-sleep because the other side of a socket announces nothing
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_batch_is_previewed_begun_and_followed() {
    let place = Place::new().await;
    let ids = three_that_wait(&place).await;
    place.ended(json!({"kind": "obey"})).await;
    let order = json!({"action": "cancel", "q": "kind:obey"});
    let mut dry = order.clone();
    dry["dry_run"] = json!(true);
    let preview = place.post("/v1/batches", dry).await;
    let expected = json!({
        "action": "cancel", "q": "kind:obey", "matched": 4, "eligible": 3, "ineligible": 1,
        "more": false, "states": {
            "scheduled": {"eligible": 3, "ineligible": 0},
            "completed": {"eligible": 0, "ineligible": 1},
        },
    });
    assert_eq!(preview.is(202).json, expected);
    assert!(place.get("/v1/batches").await.is(200).items().is_empty());
    let task = place.get(&format!("/v1/tasks/{}", ids[0])).await;
    assert_eq!(task.json["state"], "scheduled");

    let begun = place.post("/v1/batches", order).await;
    let id = begun.is(202).json["id"].as_str().unwrap();
    assert!(id.starts_with("bat_"));
    assert_eq!(begun.header("location"), format!("/v1/batches/{id}"));
    let batch = ended(&place, id).await;
    assert_eq!((&batch["state"], &batch["matched"]), (&json!("done"), &json!(4)));
    assert_eq!((&batch["changed"], &batch["skipped"]), (&json!(3), &json!(1)));
    assert_eq!((&batch["of"], &batch["who"]), (&json!("tasks"), &json!("anonymous")));
    let audit = place.get("/v1/audit").await;
    let of_batch = |row: &&Value| row["target"].as_str().is_some_and(|t| t.starts_with(id));
    assert_eq!(audit.items().iter().filter(of_batch).count(), 2, "{}", audit.text);
    place.ask(&format!("/v1/batches/{id}/stop")).await.problem(409, "state-conflict");
}

#[tokio::test]
async fn a_slow_batch_is_stopped_and_listed() {
    let place = Place::new().await;
    three_that_wait(&place).await;
    let order = json!({"action": "pause", "q": "kind:obey", "rate": "1/d"});
    let mut ids = vec![];
    for _ in 0..2 {
        let begun = place.post("/v1/batches", order.clone()).await;
        ids.push(begun.is(202).json["id"].as_str().unwrap().to_owned());
    }
    let stopped = place.ask(&format!("/v1/batches/{}/stop", ids[0])).await;
    assert_eq!(stopped.is(200).json["state"], "stopped");
    assert_eq!(stopped.json["reason"], "stopped by anonymous");
    place.ask(&format!("/v1/batches/{}/stop", ids[0])).await.is(200);
    let page = place.get("/v1/batches?limit=1").await;
    assert_eq!((page.items().len(), &page.items()[0]["id"]), (1, &json!(ids[1])));
    let cursor = page.json["next_cursor"].as_str().unwrap();
    let rest = place.get(&format!("/v1/batches?limit=1&cursor={cursor}")).await;
    assert_eq!(rest.items()[0]["id"], ids[0].as_str());
    place.get("/v1/batches?cursor=tsk_1").await.problem(400, "bad-cursor");
    place.get("/v1/batches?limit=0").await.problem(422, "invalid-fields");
    place.get("/v1/batches/bat_0000000000000").await.problem(404, "not-found");
    place.get("/v1/batches/tsk_0000000000000").await.problem(404, "not-found");
    place.ask("/v1/batches/bat_0000000000000/stop").await.problem(404, "not-found");
}

#[tokio::test]
async fn dead_letters_are_sent_again_until_too_many_fail() {
    let place = Place::new().await;
    for _ in 0..12 {
        place.ended(json!({"kind": "obey", "payload": {"do": "fail"}})).await;
    }
    let order =
        json!({"action": "requeue", "q": "kind:obey", "of": "dead_letters", "stop_above": 20});
    let begun = place.post("/v1/batches", order).await;
    let batch = ended(&place, begun.is(202).json["id"].as_str().unwrap()).await;
    assert_eq!((&batch["state"], &batch["changed"]), (&json!("stopped"), &json!(10)), "{batch}");
    assert!(
        batch["reason"].as_str().unwrap().starts_with("10 of 10 tasks failed again"),
        "{batch}"
    );
    assert_eq!(batch["again"]["failed"], 10);
    let order = json!({"action": "discard", "q": "kind:obey"});
    let begun = place.post("/v1/batches", order).await;
    let batch = ended(&place, begun.is(202).json["id"].as_str().unwrap()).await;
    assert_eq!((&batch["of"], &batch["changed"]), (&json!("dead_letters"), &json!(12)));
    assert!(place.get("/v1/dead-letters").await.items().is_empty());
}

#[tokio::test]
async fn a_step_that_is_not_there_is_an_error_by_task() {
    let place = Place::new().await;
    let failed = place.ended(json!({"kind": "obey", "payload": {"do": "fail"}})).await;
    let order = json!({"action": "requeue", "q": "state:failed", "from_step": "nine"});
    let begun = place.post("/v1/batches", order).await;
    let batch = ended(&place, begun.is(202).json["id"].as_str().unwrap()).await;
    assert_eq!((&batch["failed"], &batch["changed"]), (&json!(1), &json!(0)));
    let error = &batch["errors"][0];
    assert_eq!((&error["task"], &error["code"]), (&failed["id"], &json!("invalid-fields")));
    assert!(error["message"].as_str().unwrap().contains("nine"), "{error}");
}

#[tokio::test]
async fn orders_that_make_no_sense_are_refused_by_field() {
    let place = Place::new().await;
    let id = three_that_wait(&place).await.remove(0);
    let table = [
        (json!({"action": "cancel", "q": ""}), 422, "/q"),
        (json!({"action": "cancel", "q": "  "}), 422, "/q"),
        (json!({"action": "cancel"}), 422, ""),
        (json!({"action": "cancel", "q": "nonsense:1"}), 400, "/q"),
        (json!({"action": "explode", "q": "kind:a"}), 422, "/action"),
        (json!({"action": "cancel", "q": "kind:a", "rate": "fast"}), 422, "/rate"),
        (json!({"action": "cancel", "q": "kind:a", "from_step": "x"}), 422, "/from_step"),
        (json!({"action": "cancel", "q": "kind:a", "stop_above": 5}), 422, "/stop_above"),
        (json!({"action": "requeue", "q": "kind:a", "stop_above": 100}), 422, "/stop_above"),
        (json!({"action": "pause", "q": "kind:a", "of": "dead_letters"}), 422, "/of"),
        (json!({"action": "discard", "q": "kind:a", "of": "tasks"}), 422, "/of"),
        (json!({"action": "cancel", "q": "kind:a", "all": true}), 422, "/all"),
    ];
    for (order, status, pointer) in table {
        for dry_run in [true, false] {
            let mut order = order.clone();
            order["dry_run"] = json!(dry_run);
            let got = place.post("/v1/batches", order.clone()).await;
            assert_eq!(got.status.as_u16(), status, "{order}: {}", got.text);
            assert_eq!(got.pointer(), pointer, "{order}: {}", got.text);
        }
    }
    assert!(place.get("/v1/batches").await.items().is_empty());
    let task = place.get(&format!("/v1/tasks/{id}")).await;
    assert_eq!(task.json["state"], "scheduled");
}

#[tokio::test]
async fn the_payload_of_a_task_is_edited() {
    let place = Place::new().await;
    let id = place.submit(json!({"kind": "obey", "delay": "1h", "payload": {"value": 1}})).await;
    let path = format!("/v1/tasks/{id}");
    let edit = async |path: &str, body| place.send(Method::PATCH, path, Some(body)).await;
    let got = edit(&path, json!({"payload": {"value": 2}})).await;
    assert_eq!(got.is(200).json["payload"], json!({"value": 2}));
    assert_eq!(got.json["state"], "scheduled");
    for bad in [json!({"payload": null}), json!({}), json!({"payload": 1, "queue": "x"}), json!([])]
    {
        edit(&path, bad).await.problem(422, "invalid-fields");
    }
    let large = json!({"payload": "x".repeat(1024 * 1024 + 1)});
    edit(&path, large).await.problem(413, "payload-too-large");
    assert_eq!(place.get(&path).await.json["payload"], json!({"value": 2}));
    let audit = place.get("/v1/audit").await;
    let row = &audit.items()[0];
    assert_eq!((&row["action"], &row["target"]), (&json!("edit"), &json!(id)));
    let done = place.ended(json!({"kind": "obey"})).await;
    let path = format!("/v1/tasks/{}", done["id"].as_str().unwrap());
    edit(&path, json!({"payload": 1})).await.problem(409, "state-conflict");
    edit("/v1/tasks/tsk_0000000000001", json!({"payload": 1})).await.problem(404, "not-found");
}
