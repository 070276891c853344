//! Follows one task to its end, for `submit --wait`, `task wait` and `task
//! watch`. It listens to the task's events and asks for the task itself whenever
//! it may have missed some, so a restart of the server costs nothing. What is
//! shown on the way goes through `Stage`; at the end the result is the data.

use super::client::{Call, Client};
use super::failure::{Exit, Failure};
use super::fields::{self, text};
use super::global::Format;
use super::output::Out;
use super::sse::{Feed, Told};
use super::stage::Stage;
use serde_json::Value;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use windlass_core::clock::format_duration;
use windlass_core::state::State;

/// Asked this often even when no event comes.
const LOOK: Duration = Duration::from_secs(10);

/// How much is shown on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    /// States and retries.
    States,
    /// Steps and progress too.
    Steps,
}

/// Waits for the end of a task and ends the way the task did.
pub(crate) async fn follow(
    client: &Client,
    out: &Out,
    id: &str,
    detail: Detail,
    timeout: Option<Duration>,
) -> Result<Exit, Failure> {
    let mut stage = Stage::new(out, detail);
    let ended = tokio::select! {
        biased;
        task = until_end(client, id, &mut stage) => task,
        () = elapsed(timeout) => Err(timed_out(id, timeout.unwrap_or_default(), &stage)),
        _ = tokio::signal::ctrl_c() => Err(interrupted(id)),
    };
    stage.close();
    finish(out, &ended?)
}

async fn elapsed(timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => tokio::time::sleep(timeout).await,
        None => std::future::pending().await,
    }
}

async fn until_end(client: &Client, id: &str, stage: &mut Stage<'_>) -> Result<Value, Failure> {
    // First the feed, then the task: what happens in between is then in the feed.
    let feed = Call::get(&["v1", "events"]).query("task", id);
    let mut feed = Feed::open(client, feed).await?;
    let task = get(client, id).await?;
    if has_ended(&task) {
        return Ok(task);
    }
    stage.task(&task);
    let mut look = interval_at(Instant::now() + LOOK, LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let told = tokio::select! {
            told = feed.next() => Some(told?),
            _ = look.tick() => None,
        };
        if let Some(Told::Event(event)) = &told {
            stage.event(event);
            if !ends(text(event, "type")) {
                continue;
            }
        }
        match get(client, id).await {
            Ok(task) if has_ended(&task) => return Ok(task),
            Ok(task) => stage.task(&task),
            // The feed knows how long a server may be away.
            Err(failure) if failure.code == Exit::Unreachable => {}
            Err(failure) => return Err(failure),
        }
    }
}

async fn get(client: &Client, id: &str) -> Result<Value, Failure> {
    client.body(Call::get(&["v1", "tasks", id])).await
}

fn state(task: &Value) -> Option<State> {
    text(task, "state").parse().ok()
}

fn has_ended(task: &Value) -> bool {
    state(task).is_some_and(State::is_ended)
}

/// Whether an event may be a task's last.
fn ends(name: &str) -> bool {
    name.strip_prefix("task.").and_then(|s| s.parse::<State>().ok()).is_some_and(State::is_ended)
}

/// Shows the result of an ended task; a task that did not complete is a failure.
pub(crate) fn finish(out: &Out, task: &Value) -> Result<Exit, Failure> {
    let completed = matches!(state(task), Some(State::Completed | State::CompletedWithErrors));
    match out.format {
        Format::Table if completed => out.json(fields::at(task, "result"))?,
        Format::Table => {}
        Format::Json | Format::Jsonl => out.json(task)?,
        Format::Id => out.line(text(task, "id"))?,
    }
    if completed { Ok(Exit::Ok) } else { Err(not_completed(task)) }
}

fn not_completed(task: &Value) -> Failure {
    let (id, state) = (text(task, "id"), text(task, "state"));
    if state == "cancelled" {
        let hint = format!("`windlass task requeue {id}` runs it again");
        return Failure::new(Exit::TaskCancelled, format!("{id} was cancelled"), hint);
    }
    let mut message = format!("{id} {}", state.replace('_', " "));
    let reason = text(task, "failure.reason");
    if !reason.is_empty() {
        message.push_str(&format!(" ({reason})"));
    }
    let said = fields::clean(text(task, "failure.message"));
    if !said.is_empty() {
        message.push_str(&format!(": {said}"));
    }
    let hint =
        format!("`windlass task show {id}` tells more, `windlass dead requeue {id}` tries again");
    Failure::new(Exit::TaskFailed, message, hint)
}

fn timed_out(id: &str, after: Duration, stage: &Stage<'_>) -> Failure {
    let message = format!("{id} is {} after {}", stage.state(), format_duration(after));
    let hint = format!(
        "the task goes on: `windlass task wait {id}` waits again, \
                        `windlass task why {id}` says what it waits for"
    );
    Failure::new(Exit::TimedOut, message, hint)
}

fn interrupted(id: &str) -> Failure {
    let hint = format!("the task goes on: `windlass task watch {id}` looks again");
    Failure::new(Exit::Interrupted, format!("stopped waiting for {id}"), hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_end_of_a_task_is_the_end_of_the_command() {
        let table = [
            ("failed", Exit::TaskFailed),
            ("rolled_back", Exit::TaskFailed),
            ("cancelled", Exit::TaskCancelled),
        ];
        for (state, exit) in table {
            let task = json!({"id": "tsk_1", "state": state, "failure": {"message": "no\u{7}"}});
            let failure = not_completed(&task);
            assert_eq!(failure.code, exit, "{state}");
            assert!(failure.hint.contains("tsk_1"));
            assert!(!failure.message.contains('\u{7}'));
        }
    }

    #[test]
    fn last_events() {
        for name in
            ["task.completed", "task.completed_with_errors", "task.failed", "task.cancelled"]
        {
            assert!(ends(name), "{name}");
        }
        for name in ["task.retrying", "task.progress", "dead_letter.entered", "task.step_failed"] {
            assert!(!ends(name), "{name}");
        }
    }
}
