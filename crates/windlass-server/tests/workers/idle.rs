//! What waiting costs: many polls that wait ask the store no more than one does.
//! The server is a process of its own, so that its counters are its own too.

use crate::server::{Home, pause};
use serde_json::json;
use std::time::Duration;

const POLLS: usize = 200;
const TIME: Duration = Duration::from_secs(2);

/// Tasks that nobody here may take.
const BACKLOG: usize = 20_000;

/// Answered calls of the store so far, those whose name has this in it.
async fn operations(home: &Home, which: &str) -> f64 {
    let answer = home.client.get(home.url("/metrics")).send().await.expect("an answer");
    let text = answer.text().await.expect("text");
    let lines = text.lines().filter(|l| l.starts_with("windlass_store_operations_total"));
    let lines = lines.filter(|l| l.contains(which));
    lines.filter_map(|l| l.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// Ready tasks of a kind nobody serves, and some in a queue that is paused.
async fn backlog(home: &Home) {
    let post = async |path: &str, body| home.ask(reqwest::Method::POST, path, Some(body)).await.0;
    for _ in 0..BACKLOG / 10_000 {
        let tasks = vec![json!({"kind": "nobody", "queue": "jobs"}); 10_000];
        assert_eq!(post("/v1/tasks/bulk", json!({"tasks": tasks})).await, 201);
    }
    assert_eq!(post("/v1/tasks", json!({"kind": "far", "queue": "held"})).await, 201);
    assert_eq!(post("/v1/queues/held/pause", json!({})).await, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_polls_cost_the_store_nothing() {
    let home = Home::new("[server]\nunknown_kinds = \"park\"\n");
    let _server = home.ready().await;
    backlog(&home).await;
    let before = (operations(&home, "").await, operations(&home, "claim").await);
    pause(TIME).await;
    let alone = operations(&home, "").await - before.0;
    let own_claims = operations(&home, "claim").await - before.1;

    let mut polls = tokio::task::JoinSet::new();
    for i in 0..POLLS {
        let request = home.client.post(home.url("/v1/worker/lease")).json(&json!({
            "worker": format!("w{i}"), "kinds": ["far", format!("far{i}")], "queues": ["jobs", "held"],
            "max": 4, "wait": "30s"
        }));
        polls.spawn(async move { request.send().await.expect("an answer").text().await });
    }
    loop {
        let nodes = home.get("/v1/nodes").await;
        if nodes["items"].as_array().expect("nodes").len() > POLLS {
            break;
        }
        pause(Duration::from_millis(20)).await;
    }
    // Each has joined, and looked once.
    pause(Duration::from_millis(500)).await;
    let before = (operations(&home, "").await, operations(&home, "claim").await);
    pause(TIME).await;
    let grown = operations(&home, "").await - before.0;
    let claims = operations(&home, "claim").await - before.1;
    assert_eq!(polls.len(), POLLS, "all of them wait");
    assert!(polls.try_join_next().is_none(), "nobody was answered");
    let extra = grown - alone;
    println!("{alone} operations in {TIME:?} alone, {grown} with {POLLS} polls");
    assert!(extra <= 15.0, "{alone} alone, {grown} with {POLLS} polls that wait");

    // The node's own looks come once a second, one more or less.
    assert!(claims - own_claims <= 1.0, "{own_claims} claims alone, {claims} with polls");

    // And they wait for something: three tasks wake as few as are needed.
    for _ in 0..3 {
        let (status, _) = home
            .ask(reqwest::Method::POST, "/v1/tasks", Some(json!({"kind": "far", "queue": "jobs"})))
            .await;
        assert_eq!(status, 201);
    }
    let answer = polls.join_next().await.expect("a poll").expect("no panic").expect("text");
    assert!(answer.contains("\"leases\":[{"), "{answer}");
}
