//! A server that is away for longer than a lease: nobody could take the heartbeats
//! of its workers, so nobody has died of it. The server is a process that is killed
//! and started again; the worker is this test and goes on where it was.

use crate::server::{Home, pause};
use crate::worker::Leased;
use serde_json::{Value, json};
use std::time::Duration;

const CONFIG: &str = "[server]\nunknown_kinds = \"park\"\n[node]\nlease = \"1s\"\n";

async fn post(home: &Home, path: &str, body: Value) -> Value {
    let (status, answer) = home.ask(reqwest::Method::POST, path, Some(body)).await;
    assert!(status < 300, "{path}: {status} {answer}");
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_goes_on_after_its_server_was_away_for_three_leases() {
    let home = Home::new(CONFIG);
    let mut server = home.ready().await;
    let task = post(&home, "/v1/tasks", json!({"kind": "far", "queue": "jobs"})).await;
    let wish = json!({"worker": "w", "kinds": ["far"], "queues": ["jobs"], "max": 1, "wait": "9s"});
    let answer = post(&home, "/v1/worker/lease", wish.clone()).await;
    assert_eq!(answer["lease"], "1s");
    let (id, lease) = (&answer["worker_id"], Leased::of(&answer["leases"][0]));
    let say = async |reports: Value| {
        let body = json!({"worker_id": id, "held": [lease.held()], "reports": reports});
        post(&home, "/v1/worker/report", body).await["results"].clone()
    };
    assert_eq!(say(json!([lease.step("one", 1)])).await, json!(["ok"]));

    server.kill();
    pause(Duration::from_secs(3)).await;
    let _server = home.ready().await;
    // Somebody else is there to take what dead workers left.
    let mut other = wish;
    other["wait"] = json!("500ms");
    let other = post(&home, "/v1/worker/lease", other).await;
    assert_eq!(other["leases"], json!([]), "it is held by a worker that lives");
    let end = json!([lease.step("two", 2), lease.says("finish", json!({"outcome": "done"}))]);
    assert_eq!(say(end).await, json!(["ok", "ok"]));

    let path = format!("/v1/tasks/{}", task["id"].as_str().expect("an id"));
    let ended = home.get(&path).await;
    assert_eq!((&ended["state"], &ended["attempt"]), (&json!("completed"), &json!(1)));
    assert_eq!(ended["result"], json!({"one": 1, "two": 2}));
    let attempts = home.get(&format!("{path}/attempts")).await;
    assert_eq!(attempts["items"].as_array().expect("attempts").len(), 1, "no crash: {attempts}");
}
