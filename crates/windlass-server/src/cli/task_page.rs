//! The full page of one task: all its fields, its steps with ticks, the last
//! error, and the sentence that says why it is not running. It asks for the task,
//! its checkpoint and the sentence, and shows what it gets.

use super::client::{Call, Client};
use super::failure::{Exit, Failure};
use super::fields::{at, clean, items, number, plain, text};
use super::global::{Format, Global};
use super::output::{Cell, Out, Tone};
use super::{ids, task, times};
use serde_json::{Value, json};
use windlass_core::clock::Timestamp;
use windlass_core::state::State;

/// Fields shown one per line, in this order.
const PLAIN: &[&str] = &[
    "kind",
    "queue",
    "priority",
    "run",
    "attempt",
    "retries_left",
    "labels",
    "unique",
    "input",
    "parent",
    "rerun_of",
    "children",
    "children_policy",
    "node",
    "user_id",
    "correlation_id",
    "trace_id",
];
const TIMES: &[&str] =
    &["created_at", "due_at", "started_at", "updated_at", "finished_at", "deadline"];

/// What the page is made of.
struct Parts {
    task: Value,
    /// Or what the attempts say, when there is none any more.
    checkpoint: Value,
    why: String,
}

pub(crate) async fn show(global: &Global, word: &str) -> Result<Exit, Failure> {
    let (out, client) = (Out::new(global), Client::new(global)?);
    let id = ids::resolve(&client, word).await?;
    let task = client.body(Call::get(&["v1", "tasks", &id])).await?;
    if out.format != Format::Table {
        out.document(&task, |_| Ok(()))?;
        return Ok(Exit::Ok);
    }
    let id = text(&task, "id").to_owned();
    let mut checkpoint =
        optional(client.body(Call::get(&["v1", "tasks", &id, "checkpoint"])).await)?;
    if checkpoint.is_null() {
        let attempts = client.body(Call::get(&["v1", "tasks", &id, "attempts"])).await;
        checkpoint = finished(&optional(attempts)?);
    }
    let why = match has_ended(&task) {
        true => Value::Null,
        false => optional(client.body(Call::get(&["v1", "tasks", &id, "why"])).await)?,
    };
    let why = if why.is_null() { String::new() } else { task::sentence(&why) };
    out.write(&page(&out, &Parts { task, checkpoint, why }, times::now()))?;
    Ok(Exit::Ok)
}

fn has_ended(task: &Value) -> bool {
    text(task, "state").parse::<State>().is_ok_and(State::is_ended)
}

/// The steps of a task that has no checkpoint any more, from its attempts: those
/// of the last run that has any.
fn finished(attempts: &Value) -> Value {
    let steps = |attempt: &Value| items(at(attempt, "steps")).to_vec();
    let last = items(attempts).iter().filter(|a| !steps(a).is_empty()).map(|a| number(a, "run"));
    let last = last.max().flatten();
    let of_run = items(attempts).iter().filter(|attempt| number(attempt, "run") == last);
    let done = of_run.flat_map(steps).filter(|step| text(step, "outcome") != "failed");
    json!({"completed": done.collect::<Vec<Value>>()})
}

/// A part that need not be there.
fn optional(answer: Result<Value, Failure>) -> Result<Value, Failure> {
    match answer {
        Err(failure) if failure.code == Exit::NotFound => Ok(Value::Null),
        other => other,
    }
}

fn page(out: &Out, parts: &Parts, now: Timestamp) -> String {
    let task = &parts.task;
    let state = text(task, "state");
    let mut page = format!("{}  {}\n", text(task, "id"), out.paint(state, Tone::of_state(state)));
    if !parts.why.is_empty() {
        page.push_str(&format!("{}\n", parts.why));
    }
    page.push('\n');
    let ended = has_ended(task);
    let childless = number(task, "children.total") == Some(0);
    let fields = PLAIN.iter().filter(|key| is_set(at(task, key)));
    let fields = fields.filter(|key| !(childless && key.starts_with("children")));
    let mut rows: Vec<Vec<Cell>> = fields.map(|key| row(key, pairs(at(task, key)))).collect();
    // Nothing is due any more once a task has ended.
    let times = TIMES.iter().filter(|key| is_set(at(task, key)) && !(ended && **key == "due_at"));
    rows.extend(times.map(|key| {
        let time = text(task, key);
        row(key, format!("{time}  ({})", distance(time, now)))
    }));
    rows.extend(progress(task).filter(|_| !ended));
    page.push_str(&out.grid(&[], rows));
    // A task that completed had an error on the way, it is not failed.
    let error = if state == "completed" { "last error" } else { "failure" };
    for (title, lines) in [("steps", steps(out, parts)), (error, failure(task))] {
        if !lines.is_empty() {
            page.push_str(&format!("\n{title}:\n  {}\n", lines.join("\n  ")));
        }
    }
    for key in ["payload", "context", "result"] {
        let told = key == "context" && at(task, key) == at(task, "result");
        if is_set(at(task, key)) && !told {
            let shown = format!("{:#}", at(task, key)).replace('\n', "\n  ");
            page.push_str(&format!("\n{key}:\n  {shown}\n"));
        }
    }
    page
}

fn row(key: &str, value: String) -> Vec<Cell> {
    vec![Cell::new(format!("{key}:")), Cell::new(value)]
}

fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Object(object) => !object.is_empty(),
        Value::String(text) => !text.is_empty(),
        _ => true,
    }
}

/// An object as `key=value` words.
fn pairs(value: &Value) -> String {
    match value.as_object() {
        Some(object) => {
            let words = object.iter().map(|(key, value)| format!("{key}={}", plain(value)));
            words.collect::<Vec<_>>().join(" ")
        }
        None => plain(value),
    }
}

fn distance(time: &str, now: Timestamp) -> String {
    match Timestamp::parse(time) {
        Ok(at) if at > now => format!("in {}", times::rough(at.since(now))),
        Ok(at) => format!("{} ago", times::rough(now.since(at))),
        Err(_) => "?".to_owned(),
    }
}

fn progress(task: &Value) -> Option<Vec<Cell>> {
    let progress = at(task, "progress");
    let (done, total) = (number(progress, "done")?, number(progress, "total")?);
    Some(row("progress", format!("{done}/{total} {}", text(progress, "note"))))
}

/// The plan with ticks, or what a task without a plan has recorded.
fn steps(out: &Out, parts: &Parts) -> Vec<String> {
    let recorded = items(at(&parts.checkpoint, "completed"));
    let plan: Vec<&str> =
        items(at(&parts.task, "steps")).iter().filter_map(Value::as_str).collect();
    if plan.is_empty() {
        return recorded
            .iter()
            .map(|step| step_line(out, text(step, "name"), Some(step)))
            .collect();
    }
    let done = match text(&parts.task, "state") {
        "completed" => plan.len(),
        _ => number(&parts.task, "next_step").map_or(recorded.len(), |n| n as usize),
    };
    let line = |(index, name): (usize, &&str)| {
        let step = recorded.iter().find(|step| text(step, "name") == *name);
        match step {
            None if index >= done => format!("· {name}"),
            step => step_line(out, name, step),
        }
    };
    plan.iter().enumerate().map(line).collect()
}

fn step_line(out: &Out, name: &str, step: Option<&Value>) -> String {
    let outcome = step.map_or("", |step| text(step, "outcome"));
    let (mark, tone) = match outcome {
        "failed" => ("✗", Tone::Bad),
        "skipped" => ("-", Tone::Faint),
        _ => ("✓", Tone::Good),
    };
    let mut line = format!("{} {}", out.paint(mark, tone), clean(name));
    if !matches!(outcome, "" | "done") {
        line.push_str(&format!(" {outcome}"));
    }
    if let Some(ms) = step.and_then(|step| number(step, "duration_ms")) {
        line.push_str(&format!(" ({ms} ms)"));
    }
    if let Some(reason) = step.map(|step| clean(text(step, "reason"))).filter(|r| !r.is_empty()) {
        line.push_str(&format!(": {reason}"));
    }
    line
}

fn failure(task: &Value) -> Vec<String> {
    let failure = at(task, "failure");
    if !is_set(failure) {
        return Vec::new();
    }
    let words = [text(failure, "reason"), text(failure, "class"), step_of(failure)];
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    let mut lines = vec![words.join(", ")];
    lines
        .extend(["message", "detail"].iter().flat_map(|key| text(failure, key).lines()).map(clean));
    lines.retain(|line| !line.is_empty());
    lines
}

fn step_of(failure: &Value) -> &str {
    let name = text(failure, "step");
    if name.is_empty() { text(failure, "step.name") } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::output::plain_out;

    #[test]
    fn a_page_has_fields_steps_and_the_error() {
        let task = json!({
            "id": "tsk_1", "kind": "file.ingest", "state": "retrying", "attempt": 2,
            "steps": ["scan", "thumb", "index"], "next_step": 1, "labels": {"tenant": "acme"},
            "created_at": "2026-01-01T00:00:00Z", "due_at": "2026-01-01T00:10:00Z",
            "progress": {"done": 1, "total": 3, "note": "scanning"},
            "failure": {"class": "retryable", "message": "reset\u{1b}[2J", "step": "thumb"},
            "payload": {"a": 1}, "node": null,
        });
        let checkpoint =
            json!({"completed": [{"name": "scan", "outcome": "done", "duration_ms": 5}]});
        let why = "waits 5m for its next try".to_owned();
        let now = Timestamp::parse("2026-01-01T00:05:00Z").unwrap();
        let page = page(&plain_out(), &Parts { task, checkpoint, why }, now);
        let expected = "\
tsk_1  retrying
waits 5m for its next try

kind:        file.ingest
attempt:     2
labels:      tenant=acme
created_at:  2026-01-01T00:00:00Z  (5m ago)
due_at:      2026-01-01T00:10:00Z  (in 5m)
progress:    1/3 scanning

steps:
  ✓ scan (5 ms)
  · thumb
  · index

failure:
  retryable, thumb
  reset [2J

payload:
  {
    \"a\": 1
  }
";
        assert_eq!(page, expected);
    }

    #[test]
    fn an_ended_task_has_the_steps_of_its_attempts() {
        let step =
            |name: &str, outcome: &str| json!({"name": name, "outcome": outcome, "duration_ms": 7});
        let attempts = json!({"items": [
            {"run": 1, "steps": [step("a", "done"), step("b", "failed")]},
            {"run": 1, "steps": [step("b", "done")]},
            {"run": 2, "steps": []},
        ]});
        let task = json!({"state": "completed", "steps": ["a", "b"], "children": {"total": 0},
            "result": {"x": 1}, "context": {"x": 1}, "due_at": "2026-01-01T00:00:00Z"});
        let parts = Parts { task, checkpoint: finished(&attempts), why: String::new() };
        let page = page(&plain_out(), &parts, Timestamp::ZERO);
        assert!(page.contains("✓ a (7 ms)\n  ✓ b (7 ms)\n"), "{page}");
        assert!(!page.contains("children") && !page.contains("due_at"), "{page}");
        assert!(page.contains("result") && !page.contains("context"), "{page}");
    }

    #[test]
    fn a_completed_plan_is_ticked_without_a_checkpoint() {
        let task = json!({"state": "completed", "steps": ["a", "b"], "next_step": 2});
        let parts = Parts { task, checkpoint: Value::Null, why: String::new() };
        assert_eq!(steps(&plain_out(), &parts), ["✓ a", "✓ b"]);
    }
}
