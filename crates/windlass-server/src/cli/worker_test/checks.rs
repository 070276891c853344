//! The list of checks, and those that only submit and look. The ones that signal
//! the worker's process are in `hard.rs`.

use super::bench::{Bench, Found, same};
use super::hard;
use serde_json::{Value, json};
use std::time::Duration;

/// Bytes of the large payload.
const LARGE: usize = 256 * 1024;
/// A worker has this long to do what people want; more would be the server's doing.
const OBEYS: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Check {
    Echo,
    Unicode,
    Large,
    Steps,
    Progress,
    Retry,
    Fail,
    Several,
    Cancel,
    Pause,
    Heartbeat,
    Crash,
    Frozen,
    Stop,
}

/// In the order in which they are made; the last one ends the worker.
pub(super) const ALL: [Check; 14] = [
    Check::Echo,
    Check::Unicode,
    Check::Large,
    Check::Steps,
    Check::Progress,
    Check::Retry,
    Check::Fail,
    Check::Several,
    Check::Cancel,
    Check::Pause,
    Check::Heartbeat,
    Check::Crash,
    Check::Frozen,
    Check::Stop,
];

impl Check {
    pub(super) fn name(self) -> &'static str {
        self.row().0
    }

    pub(super) fn expects(self) -> &'static str {
        self.row().1
    }

    pub(super) fn needs_program(self) -> bool {
        matches!(self, Check::Crash | Check::Frozen | Check::Stop)
    }

    fn row(self) -> (&'static str, &'static str) {
        match self {
            Check::Echo => ("echo", "takes work; the result is the payload"),
            Check::Unicode => ("unicode", "text, numbers and nesting come back as they were"),
            Check::Large => ("large", "a payload of 256 KiB comes back as it was"),
            Check::Steps => ("steps", "steps a, b, c in order with versions 1, 2, 3"),
            Check::Progress => ("progress", "the last progress is 3 of 3"),
            Check::Retry => ("retry", "two failed attempts, completed in the third"),
            Check::Fail => ("fail", "failed with a message, not tried again"),
            Check::Several => ("several", "two tasks run at the same time"),
            Check::Cancel => ("cancel", "a sleeping task is cancelled within 5 s"),
            Check::Pause => ("pause", "paused after a step within 5 s; resumed behind that step"),
            Check::Heartbeat => ("heartbeat", "a task of three and a half leases is not lost"),
            Check::Crash => ("crash", "killed after step a: resumes with b, a is not run again"),
            Check::Frozen => ("frozen", "stopped for two leases: lives on, the task is done once"),
            Check::Stop => {
                ("stop", "on SIGTERM: ends with 0, work finished or given back, node gone")
            }
        }
    }

    pub(super) async fn run(self, bench: &mut Bench) -> Found<()> {
        match self {
            Check::Echo => echo(bench, json!({"n": 1})).await,
            Check::Unicode => {
                let text = "äöß 漢字 \u{1f9f5} \"quoted\" \\ \n\t end";
                let odd = json!({"text": text, "": [null, true, [[]], {}], "n": [0, -1, 2.5, 9_007_199_254_740_991_u64]});
                echo(bench, odd).await
            }
            Check::Large => echo(bench, json!({"text": "é".repeat(LARGE / 2)})).await,
            Check::Steps => steps(bench).await,
            Check::Progress => progress(bench).await,
            Check::Retry => retry(bench).await,
            Check::Fail => fail(bench).await,
            Check::Several => several(bench).await,
            Check::Cancel => cancel(bench).await,
            Check::Pause => pause(bench).await,
            Check::Heartbeat => heartbeat(bench).await,
            Check::Crash => hard::crash(bench).await,
            Check::Frozen => hard::frozen(bench).await,
            Check::Stop => hard::stop(bench).await,
        }
    }
}

async fn echo(bench: &Bench, payload: Value) -> Found<()> {
    let submission = json!({"kind": "test.echo", "payload": payload});
    let task = bench.ends(submission, "completed").await?;
    same("the result", &payload, &task["result"])
}

async fn steps(bench: &Bench) -> Found<()> {
    let task = bench.ends(json!({"kind": "test.steps", "payload": {}}), "completed").await?;
    recorded(bench, &task, &[1, 1, 1]).await
}

/// Each step once, in order, each by this attempt.
pub(super) async fn recorded(bench: &Bench, task: &Value, by: &[u64; 3]) -> Found<()> {
    let id = task["id"].as_str().unwrap_or_default();
    let wanted = json!([["a", 1], ["b", 2], ["c", 3]]);
    same("what was recorded", &wanted, &json!(bench.steps(id).await?))?;
    let [a, b, c] = by;
    same("the result", &json!({"a": a, "b": b, "c": c}), &task["result"])
}

async fn progress(bench: &Bench) -> Found<()> {
    let task = bench.ends(json!({"kind": "test.progress", "payload": {}}), "completed").await?;
    let progress = &task["progress"];
    same("the progress", &json!([3, 3]), &json!([progress["done"], progress["total"]]))
}

async fn retry(bench: &Bench) -> Found<()> {
    let again = json!({"retries": 5, "first": "100ms", "factor": 1.0, "jitter": 0.0});
    let submission = json!({"kind": "test.retry", "payload": {}, "retry": again});
    let task = bench.ends(submission, "completed").await?;
    same("its attempt", &json!(3), &task["attempt"])
}

async fn fail(bench: &Bench) -> Found<()> {
    let task = bench.ends(json!({"kind": "test.fail", "payload": {}}), "failed").await?;
    same("its attempt", &json!(1), &task["attempt"])?;
    match task["failure"]["message"].as_str() {
        Some(message) if !message.is_empty() => Ok(()),
        _ => Err("it has no message".to_owned()),
    }
}

pub(super) fn sleeping(time: Duration) -> Value {
    json!({"kind": "test.sleep", "payload": {"seconds": time.as_secs_f64()}})
}

async fn several(bench: &Bench) -> Found<()> {
    let first = bench.submit(sleeping(Duration::from_secs(60))).await?;
    let second = bench.submit(sleeping(Duration::from_secs(60))).await?;
    let both = async {
        bench.until_state(&first, "running", OBEYS).await?;
        bench.until_state(&second, "running", OBEYS).await?;
        same("the first one's state", &json!("running"), &bench.task(&first).await?["state"])
    };
    let both = both.await.map_err(|found| format!("one of them: {found}"));
    for id in [&first, &second] {
        bench.verb(id, "cancel").await?;
        bench.until_state(id, "cancelled", bench.patience()).await?;
    }
    both
}

async fn cancel(bench: &Bench) -> Found<()> {
    let id = bench.submit(sleeping(Duration::from_secs(60))).await?;
    bench.until_state(&id, "running", OBEYS).await?;
    bench.verb(&id, "cancel").await?;
    bench.until_state(&id, "cancelled", OBEYS).await?;
    let attempts = bench.attempts(&id).await?;
    let outcomes: Vec<&Value> = attempts.iter().map(|attempt| &attempt["outcome"]).collect();
    // One that lost its lease is cancelled as well, but by the server.
    same("how the attempts ended", &json!(["cancelled"]), &json!(outcomes))
}

async fn pause(bench: &Bench) -> Found<()> {
    let id = bench.submit(json!({"kind": "test.steps", "payload": {"pause": 1}})).await?;
    bench.until(&id, OBEYS, |task| task["version"] == 1).await?;
    bench.verb(&id, "pause").await?;
    let paused = bench.until_state(&id, "paused", OBEYS).await?;
    let done = paused["version"].as_u64().unwrap_or_default();
    if done == 3 {
        return Err("it went on to the last step".to_owned());
    }
    bench.verb(&id, "resume").await?;
    let task = bench.until_state(&id, "completed", bench.patience()).await?;
    let by = |step: u64| if step <= done { 1 } else { 2 };
    recorded(bench, &task, &[by(1), by(2), by(3)]).await
}

async fn heartbeat(bench: &Bench) -> Found<()> {
    let long = bench.lease * 7 / 2;
    let task = bench.ends(sleeping(long), "completed").await?;
    let attempts = bench.attempts(task["id"].as_str().unwrap_or_default()).await?;
    same("the number of attempts", &json!(1), &json!(attempts.len()))
}
