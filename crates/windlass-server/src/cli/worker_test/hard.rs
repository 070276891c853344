//! The checks that signal the worker's process: it is killed by its own task,
//! frozen until its lease has ended, and asked to stop. Each fails when the fault
//! did not happen.

use super::bench::{Bench, Found, same};
use super::checks::{recorded, sleeping};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

/// How long a worker may take to stop.
const STOPS: Duration = Duration::from_secs(30);

pub(super) async fn crash(bench: &mut Bench) -> Found<()> {
    let payload = json!({"die_after": "a"});
    let id = bench.submit(json!({"kind": "test.steps", "payload": payload})).await?;
    let ended = bench.exit(bench.patience()).await;
    if bench.program()?.ended().is_some() {
        bench.program()?.again().map_err(|e| e.message)?;
    }
    ended?;
    let task = bench.until_state(&id, "completed", bench.patience()).await?;
    let first = bench.attempts(&id).await?.swap_remove(0);
    same("how the first attempt ended", &json!("lost"), &first["outcome"])?;
    let again = task["attempt"].as_u64().unwrap_or_default();
    recorded(bench, &task, &[1, again, again]).await
}

pub(super) async fn frozen(bench: &mut Bench) -> Found<()> {
    let id = bench.submit(sleeping(bench.lease)).await?;
    bench.until_state(&id, "running", bench.patience()).await?;
    bench.program()?.signal(Signal::STOP)?;
    sleep(bench.lease * 2).await;
    bench.program()?.signal(Signal::CONT)?;
    let done = bench.until_state(&id, "completed", bench.patience()).await;
    if let Some(status) = bench.program()?.ended() {
        bench.program()?.again().map_err(|e| e.message)?;
        return Err(format!("the process ended after it went on: {status}"));
    }
    done?;
    let attempts = bench.attempts(&id).await?;
    let outcomes: Vec<&Value> = attempts.iter().map(|attempt| &attempt["outcome"]).collect();
    same("how the attempts ended", &json!(["lost", "completed"]), &json!(outcomes))
}

/// One task that could finish in time and one that cannot.
pub(super) async fn stop(bench: &mut Bench) -> Found<()> {
    let short = bench.submit(sleeping(Duration::from_millis(800))).await?;
    let long = bench.submit(sleeping(Duration::from_secs(600))).await?;
    for id in [&short, &long] {
        bench.until_state(id, "running", bench.patience()).await?;
    }
    let node = bench.task(&long).await?["node"].as_str().unwrap_or_default().to_owned();
    bench.program()?.signal(Signal::TERM)?;
    let status = bench.exit(STOPS).await?;
    if !status.success() {
        return Err(format!("it ended with {status}"));
    }
    given_back(bench, &long).await?;
    let task = bench.task(&short).await?;
    if task["state"] != "completed" {
        given_back(bench, &short).await?;
    }
    let nodes = bench.look(&["v1", "nodes"]).await?;
    let there = super::super::fields::items(&nodes).iter().any(|n| n["id"] == json!(node));
    if there { Err(format!("its node {node} is still there")) } else { Ok(()) }
}

/// In the queue again, and nothing of it was burnt.
async fn given_back(bench: &Bench, id: &str) -> Found<()> {
    let task = bench.task(id).await?;
    same("the state of a task it ran", &json!("queued"), &task["state"])?;
    same("the failure of a task it ran", &Value::Null, &task["failure"])?;
    let attempts = bench.attempts(id).await?;
    let outcome = attempts.last().map(|attempt| attempt["outcome"].clone());
    same("how its attempt ended", &json!("queued"), &outcome.unwrap_or_default())
}
