//! What waiting costs: many polls that wait ask the store no more than one does.
//! The server is a process of its own, so that its counters are its own too.

use crate::server::{Home, pause};
use serde_json::json;
use std::time::Duration;

const POLLS: usize = 200;
const TIME: Duration = Duration::from_secs(2);

/// Answered calls of the store so far.
async fn operations(home: &Home) -> f64 {
    let answer = home.client.get(home.url("/metrics")).send().await.expect("an answer");
    let text = answer.text().await.expect("text");
    let lines = text.lines().filter(|l| l.starts_with("windlass_store_operations_total"));
    lines.filter_map(|l| l.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_polls_cost_the_store_nothing() {
    let home = Home::new("[server]\nunknown_kinds = \"park\"\n");
    let _server = home.ready().await;
    let before = operations(&home).await;
    pause(TIME).await;
    let alone = operations(&home).await - before;

    let mut polls = tokio::task::JoinSet::new();
    for i in 0..POLLS {
        let request = home.client.post(home.url("/v1/worker/lease")).json(&json!({
            "worker": format!("w{i}"), "kinds": ["far"], "queues": ["jobs"], "max": 4, "wait": "30s"
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
    let before = operations(&home).await;
    pause(TIME).await;
    let grown = operations(&home).await - before;
    assert_eq!(polls.len(), POLLS, "all of them wait");
    assert!(polls.try_join_next().is_none(), "nobody was answered");
    let extra = grown - alone;
    println!("{alone} operations in {TIME:?} alone, {grown} with {POLLS} polls");
    assert!(extra <= 15.0, "{alone} alone, {grown} with {POLLS} polls that wait");

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
