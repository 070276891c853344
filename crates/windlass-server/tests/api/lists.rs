//! Lists: filters, pages, cursors, counts, endings; and what one task shows of
//! itself.

use crate::place::Place;
use serde_json::{Value, json};
use std::collections::HashSet;

#[tokio::test]
async fn pages_cover_everything_once() {
    let place = Place::new().await;
    let tasks: Vec<Value> =
        (0..95).map(|i| json!({"kind": "obey", "labels": {"odd": (i % 2).to_string()}})).collect();
    place.post("/v1/tasks/bulk", json!({"tasks": tasks})).await.is(201);
    let (mut seen, mut path, mut pages) =
        (HashSet::new(), "/v1/tasks?q=label.odd:1&limit=10".to_owned(), 0);
    loop {
        let page = place.get(&path).await;
        for item in page.is(200).items() {
            assert_eq!(item["labels"]["odd"], "1");
            assert!(seen.insert(item["id"].to_string()), "twice: {item}");
        }
        pages += 1;
        let Some(cursor) = page.json["next_cursor"].as_str() else { break };
        path = format!("/v1/tasks?q=label.odd:1&limit=10&cursor={cursor}");
    }
    assert_eq!((seen.len(), pages), (47, 5));
    let count = place.get("/v1/tasks?limit=1&count=true").await;
    assert_eq!(count.json["count"], 95);
}

/// A page has 8 MiB, and not what two dozen large tasks have.
#[tokio::test]
async fn large_tasks_come_on_short_pages() {
    let place = Place::new().await;
    let large = "x".repeat(1_000_000);
    let mut last = String::new();
    for _ in 0..20 {
        let task = json!({"kind": "obey", "delay": "1h", "payload": {"value": large}});
        last = place.submit(task).await;
    }
    let (mut path, mut sizes) = ("/v1/tasks?limit=25".to_owned(), vec![]);
    loop {
        let page = place.get(&path).await;
        sizes.push(page.is(200).items().len());
        let Some(cursor) = page.json["next_cursor"].as_str() else { break };
        path = format!("/v1/tasks?limit=25&cursor={cursor}");
    }
    assert_eq!(sizes.iter().sum::<usize>(), 20, "{sizes:?}");
    assert!(sizes.iter().all(|size| *size <= 9), "{sizes:?}");
    let ending = &last[last.len() - 8..];
    let found = place.get(&format!("/v1/tasks?ending={ending}")).await;
    assert_eq!(found.is(200).items()[0]["id"], last);
}

/// The same cursor for another task.
fn changed(cursor: &str) -> String {
    let other = if cursor.as_bytes()[15] == b'0' { "1" } else { "0" };
    format!("{}{other}{}", &cursor[..15], &cursor[16..])
}

#[tokio::test]
async fn wrong_lists_are_refused() {
    let place = Place::new().await;
    let tasks: Vec<Value> = (0..5).map(|_| json!({"kind": "obey"})).collect();
    place.post("/v1/tasks/bulk", json!({"tasks": tasks})).await.is(201);
    let page = place.get("/v1/tasks?limit=2").await;
    let cursor = page.json["next_cursor"].as_str().expect("a cursor").to_owned();
    place.get(&format!("/v1/tasks?limit=2&cursor={cursor}")).await.is(200);
    for (path, status, code) in [
        (format!("/v1/tasks?q=kind:x&cursor={cursor}"), 400, "bad-cursor"),
        (format!("/v1/dead-letters?cursor={cursor}"), 400, "bad-cursor"),
        (format!("/v1/tasks?cursor={}", changed(&cursor)), 400, "bad-cursor"),
        ("/v1/tasks?cursor=".to_owned(), 400, "bad-cursor"),
        ("/v1/tasks?q=nonsense:1".to_owned(), 400, "bad-filter"),
        ("/v1/tasks?q=state:dead".to_owned(), 400, "bad-filter"),
        ("/v1/tasks?limit=0".to_owned(), 422, "invalid-fields"),
        ("/v1/tasks?limit=501".to_owned(), 422, "invalid-fields"),
        ("/v1/tasks?limit=many".to_owned(), 422, "invalid-fields"),
        ("/v1/tasks?offset=5".to_owned(), 422, "invalid-fields"),
        ("/v1/tasks?ending=abc".to_owned(), 422, "invalid-fields"),
        ("/v1/tasks/tsk_0000000000001".to_owned(), 404, "not-found"),
        ("/v1/tasks/nonsense".to_owned(), 404, "not-found"),
        ("/v1/queues/nowhere".to_owned(), 404, "not-found"),
        ("/v1/nodes/nod_0000000000000".to_owned(), 404, "not-found"),
        ("/v1/nodes/nonsense".to_owned(), 404, "not-found"),
        ("/v1/dead-letters/dl_0000000000001".to_owned(), 404, "not-found"),
        ("/v1/audit?limit=0".to_owned(), 422, "invalid-fields"),
    ] {
        place.get(&path).await.problem(status, code);
    }
    let got = place.get("/v1/tasks?offset=5").await;
    assert!(got.detail().contains("offset"), "{}", got.text);
}

#[tokio::test]
async fn an_ending_finds_its_task() {
    let place = Place::new().await;
    let id = place.submit(json!({"kind": "demo.hello"})).await;
    place.submit(json!({"kind": "demo.hello"})).await;
    let page = place.get(&format!("/v1/tasks?ending={}", id[9..].to_uppercase())).await;
    let ids: Vec<&Value> = page.is(200).items().iter().map(|t| &t["id"]).collect();
    assert_eq!(ids, [&json!(id)]);
    assert!(place.get("/v1/tasks?ending=zzzzzz").await.is(200).items().is_empty());
}

#[tokio::test]
async fn a_task_shows_its_past() {
    let place = Place::new().await;
    let id = place.submit(json!({"kind": "chain", "payload": {"do": "retry"}})).await;
    let task = place.until(&id, "retrying").await;
    assert_eq!(task["failure"]["class"], "retryable");
    assert_eq!(task["failure"]["message"], "told to retry");
    assert_eq!(
        (&task["failure"]["step"], &task["failure"]["step_index"]),
        (&json!("one"), &json!(0))
    );
    assert_eq!(task["failure"]["reason"], Value::Null);
    assert_eq!(task["retries_left"], 14);
    let at = |part: &str| format!("/v1/tasks/{id}/{part}");
    let attempts = place.get(&at("attempts")).await;
    let attempt = &attempts.is(200).items()[0];
    assert_eq!((&attempt["attempt"], &attempt["outcome"]), (&json!(1), &json!("retrying")));
    assert_eq!(attempt["steps"][0]["outcome"], "failed");
    let history = place.get(&at("history")).await;
    let whats: Vec<&str> =
        history.is(200).items().iter().filter_map(|e| e["what"].as_str()).collect();
    assert_eq!(whats, ["task.submitted", "task.started", "task.step_failed", "task.retrying"]);
    let why = place.get(&at("why")).await;
    assert!(why.is(200).json["why"].as_str().unwrap().contains("told to retry"), "{}", why.text);
    let checkpoint = place.get(&at("checkpoint")).await;
    assert_eq!(checkpoint.is(200).json["failures"][0]["message"], "told to retry");
    place.get(&at("logs")).await.is(200);
    let result = place.get(&at("result")).await;
    assert_eq!(result.is(202).json["state"], "retrying");

    let done = place.ended(json!({"kind": "chain", "payload": {"value": 1}})).await;
    let done = done["id"].as_str().unwrap();
    place.get(&format!("/v1/tasks/{done}/checkpoint")).await.problem(404, "not-found");
    let attempts = place.get(&format!("/v1/tasks/{done}/attempts")).await;
    assert_eq!(attempts.items()[0]["steps"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn waiting_ends_with_the_task_or_with_the_time() {
    let place = Place::new().await;
    let id = place.submit(json!({"kind": "obey", "payload": {"do": "wait"}})).await;
    let got = place.get(&format!("/v1/tasks/{id}?wait=50ms")).await;
    assert_eq!(got.is(200).json["finished_at"], Value::Null);
    let path = format!("/v1/tasks/{id}?wait=30s");
    let (waited, _) = tokio::join!(place.get(&path), async {
        place.until(&id, "running").await;
        place.ask(&format!("/v1/tasks/{id}/cancel")).await
    });
    assert_eq!(waited.is(200).json["state"], "cancelled");
    for bad in ["11m", "soon", "-1s"] {
        place.get(&format!("/v1/tasks/{id}?wait={bad}")).await.problem(422, "invalid-fields");
    }
}

#[tokio::test]
async fn overviews_agree_with_each_other() {
    let place = Place::new().await;
    place.ended(json!({"kind": "obey"})).await;
    place.ended(json!({"kind": "obey", "payload": {"do": "fail"}})).await;
    let stats = place.get("/v1/stats").await;
    assert_eq!(stats.is(200).json["states"], json!({"completed": 1, "failed": 1}));
    assert_eq!(stats.json["dead_letters"], 1);
    let queue = place.get("/v1/queues/jobs").await;
    assert_eq!(queue.is(200).json["dead_letters"], 1);
    let kinds = place.get("/v1/kinds").await;
    let chain = kinds.is(200).items().iter().find(|k| k["name"] == "chain").expect("chain").clone();
    assert_eq!(
        (&chain["steps"], &chain["queue"]),
        (&json!(["one", "two", "three"]), &json!("jobs"))
    );
    let nodes = place.get("/v1/nodes").await;
    let node = &nodes.is(200).items()[0];
    assert_eq!(node["stage"], "serving");
    place.get(&format!("/v1/nodes/{}", node["id"].as_str().unwrap())).await.is(200);
    let page = place.get("/").await;
    assert!(page.is(200).text.contains("told to fail"), "{}", page.text);
    assert!(page.header("content-security-policy").contains("default-src 'none'"));
}
