//! One request that changes one named thing: shown instead of sent with
//! `--dry-run`, confirmed where that is needed, answered with the thing's new
//! form. Verbs on tasks, queues and nodes end here; many at once are in
//! `select.rs`.

use super::client::{Call, Client};
use super::confirm::confirm;
use super::failure::{Exit, Failure};
use super::global::{Format, Global};
use super::output::{Out, Tone, identity};
use super::{fields, times};
use serde_json::{Value, json};

/// Prints a request that `--dry-run` keeps from being sent.
pub(crate) fn show_request(out: &Out, call: &Call) -> Result<Exit, Failure> {
    let (method, path) = (call.method.as_str(), call.shown_path());
    match out.format {
        Format::Table | Format::Id => {
            out.line(&format!("{method} {path}"))?;
            if let Some(body) = &call.body {
                out.line(&format!("{body:#}"))?;
            }
        }
        Format::Json | Format::Jsonl => {
            out.json(&json!({"method": method, "path": path, "body": call.body}))?;
        }
    }
    Ok(Exit::Ok)
}

/// Sends a change of a queue, node or the like and shows the answer as a page.
/// `question` is asked first where it is given.
pub(crate) async fn change(
    global: &Global,
    call: Call,
    question: Option<String>,
    page: impl FnOnce(&Out, &Value) -> Result<(), Failure>,
) -> Result<Exit, Failure> {
    let out = Out::new(global);
    if global.dry_run {
        return show_request(&out, &call);
    }
    let client = Client::new(global)?;
    if let Some(question) = question {
        confirm(global, &question).await?;
    }
    let answer = client.body(call).await?;
    out.document(&answer, |out| page(out, &answer))?;
    Ok(Exit::Ok)
}

/// Shows a task in one line: `tsk_...  queued`.
pub(crate) fn show_task(out: &Out, task: &Value) -> Result<(), Failure> {
    out.document(task, |out| {
        let state = fields::text(task, "state");
        let mut line = identity(task).to_owned();
        if !state.is_empty() {
            line.push_str("  ");
            line.push_str(&out.paint(state, Tone::of_state(state)));
        }
        if state == "scheduled" {
            line.push_str(&due(fields::text(task, "due_at")));
        }
        out.line(&line)
    })
}

fn due(at: &str) -> String {
    match windlass_core::clock::Timestamp::parse(at) {
        Ok(at) => format!(" for {at}, in {}", times::wait(at.since(times::now()))),
        Err(_) => String::new(),
    }
}
