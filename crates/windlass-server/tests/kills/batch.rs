//! The server is killed in the middle of a bulk job, and of the next one. Both go
//! on by themselves with the next start, and each task is changed once:
//! `cargo xtask crash --batch N` runs the long form over N tasks.

use crate::process::{Home, PATIENCE, Process, pause};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use windlass_core::clock::Timestamp;

/// Tasks of the short form.
const SHORT: u64 = 5000;
/// Most tasks of one submission.
const BULK: u64 = 10_000;

fn now() -> Timestamp {
    Timestamp::ZERO.plus(SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970"))
}

/// Tasks in a queue that is paused, so that nothing but the batches changes them.
async fn submit(home: &Home, count: u64) {
    let (status, body) = home.ask(Method::POST, "/v1/queues/default/pause", None).await;
    assert_eq!(status, 200, "{body}");
    let mut left = count;
    while left > 0 {
        let some = left.min(BULK);
        let tasks = vec![json!({"kind": "demo.hello"}); usize::try_from(some).expect("few")];
        let (status, body) =
            home.ask(Method::POST, "/v1/tasks/bulk", Some(json!({"tasks": tasks}))).await;
        assert_eq!(status, 201, "{body}");
        left -= some;
    }
}

async fn begin(home: &Home, action: &str) -> String {
    let order = json!({"action": action, "q": "kind:demo.hello"});
    let (status, batch) = home.ask(Method::POST, "/v1/batches", Some(order)).await;
    assert_eq!(status, 202, "{batch}");
    batch["id"].as_str().expect("an id").to_owned()
}

async fn until(home: &Home, id: &str, so: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let batch = home.get(&format!("/v1/batches/{id}")).await;
        if so(&batch) {
            return batch;
        }
        assert!(began.elapsed() < PATIENCE, "the batch does not go on: {batch}");
        pause(Duration::from_millis(1)).await;
    }
}

fn matched(batch: &Value) -> u64 {
    batch["matched"].as_u64().expect("a count")
}

/// Does the action to all of them, with a kill when so many are done.
async fn killed_at(home: &Home, server: &mut Process, action: &str, count: u64, at: u64) {
    let began = Instant::now();
    let id = begin(home, action).await;
    let seen = until(home, &id, |batch| matched(batch) >= at).await;
    let killed = now();
    server.kill();
    let before = began.elapsed();
    assert!(matched(&seen) > 0 && matched(&seen) < count, "in the middle: {seen}");
    *server = home.start();
    let ready = home.wait_ready(server).await;
    let batch = until(home, &id, |batch| batch["state"] != "running").await;
    let finished =
        Timestamp::parse(batch["finished_at"].as_str().expect("a time")).expect("a time");
    assert!(finished > killed, "it had ended before the kill: {batch}");
    println!(
        "{action}: killed after {:.2} s with at least {} of {count} done, ready again in {:.2} s, \
         done {:.2} s after the order",
        before.as_secs_f64(),
        matched(&seen),
        ready.as_secs_f64(),
        began.elapsed().as_secs_f64(),
    );
    assert_eq!(batch["state"], "done", "{batch}");
    let counts = ["matched", "changed", "requested", "already", "skipped", "failed"];
    let counts = counts.map(|key| batch[key].as_u64().expect("a count"));
    assert_eq!(counts, [count, count, 0, 0, 0, 0], "{batch}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_survives_a_kill_and_touches_each_task_once() {
    let number = |name: &str| std::env::var(name).ok().map(|n| n.parse::<u64>().expect("a number"));
    let count = number("WINDLASS_TEST_BATCH").unwrap_or(SHORT);
    let seed = number("WINDLASS_TEST_SEED").unwrap_or_else(|| now().as_micros().unsigned_abs());
    println!("{count} tasks, seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let home = Home::new("");
    let mut server = home.ready().await;
    submit(&home, count).await;
    for action in ["cancel", "requeue"] {
        let at = rng.random_range(count / 10..count / 2);
        killed_at(&home, &mut server, action, count, at).await;
    }
    // A requeue counts the runs: whoever was requeued twice is in run 3.
    let mut rows: BTreeMap<(String, u64), u64> = BTreeMap::new();
    for task in home.tasks().await {
        let state = task["state"].as_str().expect("a state").to_owned();
        *rows.entry((state, task["run"].as_u64().expect("a run"))).or_default() += 1;
    }
    assert_eq!(rows, BTreeMap::from([(("queued".to_owned(), 2), count)]), "seed {seed}");
}
