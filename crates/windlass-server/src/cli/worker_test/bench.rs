//! What the checks ask of a server: submit, look, wait. Everything waits with an
//! end, and what was seen last is told when it comes.

use super::super::client::{Call, Client};
use super::super::failure::{Exit, Failure};
use super::super::fields::{items, number, text};
use super::program::Program;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{Instant, sleep};

const LOOK: Duration = Duration::from_millis(40);
/// Beside the leases it takes, nothing here takes longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// A worker and the server it works for.
pub(super) struct Bench {
    client: Client,
    pub(super) lease: Duration,
    pub(super) program: Option<Program>,
}

/// What was found instead of what a check expects.
pub(super) type Found<T> = Result<T, String>;

impl Bench {
    pub(super) fn new(client: Client, lease: Duration, program: Option<Program>) -> Bench {
        Bench { client, lease, program }
    }

    /// Long enough for anything that takes a few leases.
    pub(super) fn patience(&self) -> Duration {
        PATIENCE + self.lease * 4
    }

    /// Waits for the first task to be taken; without that there is nothing to test.
    pub(super) async fn connected(&mut self, patience: Duration) -> Result<(), Failure> {
        let id = self.try_submit(json!({"kind": "test.echo", "payload": {}})).await?;
        let begun = Instant::now();
        while begun.elapsed() < patience {
            if let Some(status) = self.program.as_mut().and_then(Program::ended) {
                let message = format!("the worker ended before it took a task: {status}");
                let hint = "run it by itself with WINDLASS_SERVER set; what it said is above";
                return Err(Failure::new(Exit::Failed, message, hint));
            }
            let task = self.client.body(Call::get(&["v1", "tasks", &id])).await?;
            if number(&task, "attempt").is_some_and(|attempt| attempt > 0) {
                return Ok(());
            }
            sleep(LOOK).await;
        }
        let message = format!("no worker took a task of kind test.echo within {patience:?}");
        let hint = match self.program {
            Some(_) => "the worker must lease at WINDLASS_SERVER; --patience gives it more time",
            None => {
                "start the worker first; it must serve the kinds of docs/reference/worker-test.md"
            }
        };
        // Nobody else may find it later.
        let _ = self.verb(&id, "cancel").await;
        Err(Failure::new(Exit::Failed, message, hint))
    }

    async fn try_submit(&self, submission: Value) -> Result<String, Failure> {
        let answer = self.client.body(Call::post(&["v1", "tasks"]).body(submission)).await?;
        Ok(text(&answer, "id").to_owned())
    }

    pub(super) async fn submit(&self, submission: Value) -> Found<String> {
        self.try_submit(submission).await.map_err(|e| e.message)
    }

    pub(super) async fn look(&self, path: &[&str]) -> Found<Value> {
        self.client.body(Call::get(path)).await.map_err(|e| e.message)
    }

    pub(super) async fn task(&self, id: &str) -> Found<Value> {
        self.look(&["v1", "tasks", id]).await
    }

    pub(super) async fn attempts(&self, id: &str) -> Found<Vec<Value>> {
        let mut attempts = items(&self.look(&["v1", "tasks", id, "attempts"]).await?).to_vec();
        attempts.sort_by_key(|attempt| number(attempt, "token"));
        Ok(attempts)
    }

    pub(super) async fn verb(&self, id: &str, verb: &str) -> Found<()> {
        let call = Call::post(&["v1", "tasks", id, verb]);
        self.client.body(call).await.map(drop).map_err(|e| e.message)
    }

    /// Waits until a task is as it should be.
    pub(super) async fn until(
        &self,
        id: &str,
        within: Duration,
        fits: impl Fn(&Value) -> bool,
    ) -> Found<Value> {
        let begun = Instant::now();
        loop {
            let task = self.task(id).await?;
            if fits(&task) {
                return Ok(task);
            }
            let waited = begun.elapsed();
            if waited > within || !task["finished_at"].is_null() {
                let why = text(&task, "failure.message");
                let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
                let state = text(&task, "state");
                return Err(format!("it is {state} after {:.1} s{why}", waited.as_secs_f64()));
            }
            sleep(LOOK).await;
        }
    }

    pub(super) async fn until_state(
        &self,
        id: &str,
        state: &str,
        within: Duration,
    ) -> Found<Value> {
        self.until(id, within, |task| text(task, "state") == state).await
    }

    /// Submits and waits until it has ended so.
    pub(super) async fn ends(&self, submission: Value, state: &str) -> Found<Value> {
        let id = self.submit(submission).await?;
        let ended = |task: &Value| !task["finished_at"].is_null();
        let task = self.until(&id, self.patience(), ended).await?;
        same("its state", &json!(state), &task["state"])?;
        Ok(task)
    }

    /// The steps that attempts recorded, in order: name and version.
    pub(super) async fn steps(&self, id: &str) -> Found<Vec<(String, u64)>> {
        let attempts = self.attempts(id).await?;
        let steps = attempts.iter().flat_map(|attempt| items(&attempt["steps"]));
        let told = steps.map(|s| (text(s, "name").to_owned(), number(s, "version").unwrap_or(0)));
        Ok(told.collect())
    }

    pub(super) fn program(&mut self) -> Found<&mut Program> {
        self.program.as_mut().ok_or_else(|| "no command".to_owned())
    }

    /// Waits until the worker's process has ended.
    pub(super) async fn exit(&mut self, within: Duration) -> Found<std::process::ExitStatus> {
        let begun = Instant::now();
        while begun.elapsed() < within {
            if let Some(status) = self.program()?.ended() {
                return Ok(status);
            }
            sleep(LOOK).await;
        }
        Err(format!("the process still runs after {within:?}"))
    }
}

pub(super) fn same(what: &str, expected: &Value, found: &Value) -> Found<()> {
    if expected == found {
        return Ok(());
    }
    let short = |value: &Value| super::super::fields::shorten(&value.to_string(), 120);
    Err(format!("{what} is {} and not {}", short(found), short(expected)))
}
