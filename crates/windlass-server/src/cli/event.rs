//! `windlass event tail`: what happens, as it happens, one line per event. The
//! feed itself, with its reconnecting, is `sse.rs`.

use super::client::{Call, Client};
use super::failure::{Exit, Failure};
use super::fields::{at, clean, shorten, text};
use super::global::{Format, Global};
use super::ids;
use super::output::{Cell, Column, Out, Tone};
use super::sse::{Feed, Told};
use super::task::with_filter;
use clap::{Args, Subcommand};
use serde_json::Value;

const EXAMPLES: &str = "\
Examples:
  windlass event tail
  windlass event tail queue:media --type 'task.failed,dead_letter.*'
  windlass event tail -o jsonl | jq .type";

/// Longest piece of data shown in a line.
const DATA_MAX: usize = 100;

#[derive(Debug, Clone, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum EventCommand {
    /// Show events as they happen
    #[command(after_help = EXAMPLES)]
    Tail(TailArgs),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct TailArgs {
    /// A filter on kind and queue
    filter: Vec<String>,
    /// Only these events; * stands for any characters
    #[arg(long = "type", value_name = "A,B*")]
    types: Option<String>,
    /// Only events of this task
    #[arg(long, value_name = "ID")]
    task: Option<String>,
    /// Stop after so many events
    #[arg(short = 'n', long, value_name = "N")]
    limit: Option<usize>,
}

/// The columns of `task history`, whose entries have the names of events.
pub(crate) const HISTORY: &[Column] = &[
    ("AT", |entry, _| Cell::of(entry, "at")),
    ("WHAT", |entry, _| Cell::toned(text(entry, "what"), tone(text(entry, "what")))),
    ("RUN", |entry, _| Cell::of(entry, "run")),
    ("ATTEMPT", |entry, _| Cell::of(entry, "attempt")),
    ("STEP", |entry, _| Cell::of(entry, "step")),
    ("TOOK", |entry, _| Cell::of(entry, "duration")),
    ("MESSAGE", |entry, _| Cell::new(text(entry, "message"))),
];

pub(crate) async fn run(command: EventCommand, global: &Global) -> Result<Exit, Failure> {
    let EventCommand::Tail(args) = command;
    let (out, client) = (Out::new(global), Client::new(global)?);
    let mut call = with_filter(Call::get(&["v1", "events"]), &args.filter);
    if let Some(types) = args.types {
        call = call.query("type", types);
    }
    if let Some(task) = args.task {
        call = call.query("task", ids::resolve(&client, &task).await?);
    }
    let mut feed = Feed::open(&client, call).await?;
    let mut shown = 0;
    while args.limit.is_none_or(|limit| shown < limit) {
        match feed.next().await? {
            Told::Event(event) => {
                show(&out, &event)?;
                shown += 1;
            }
            Told::Again => out.detail("connected again"),
        }
    }
    Ok(Exit::Ok)
}

fn show(out: &Out, event: &Value) -> Result<(), Failure> {
    match out.format {
        Format::Table => out.line(&line(out, event)),
        // A feed has no end, so it cannot be one document.
        Format::Json | Format::Jsonl => out.line(&event.to_string()),
        Format::Id => out.line(text(event, "id")),
    }
}

fn line(out: &Out, event: &Value) -> String {
    let name = text(event, "type");
    let parts = [
        clean(text(event, "at")),
        out.paint(&format!("{:<20}", clean(name)), tone(name)),
        clean(text(event, "task")),
        clean(text(event, "kind")),
        data(event),
    ];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("  ")
}

fn tone(name: &str) -> Tone {
    match name {
        "task.failed" | "task.step_failed" | "dead_letter.entered" | "node.lost" => Tone::Bad,
        "task.completed" => Tone::Good,
        "task.retrying" | "task.lease_lost" | "checkpoint.discarded" => Tone::Held,
        "task.started" => Tone::Busy,
        _ => Tone::Plain,
    }
}

/// The data of an event as short words.
fn data(event: &Value) -> String {
    let Some(object) = at(event, "data").as_object() else { return String::new() };
    let words = object.iter().filter(|(_, value)| !value.is_null()).map(|(key, value)| {
        let message = text(value, "message");
        let shown = if message.is_empty() { super::fields::plain(value) } else { clean(message) };
        format!("{key}={shown}")
    });
    shorten(&words.collect::<Vec<_>>().join(" "), DATA_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::output::plain_out;
    use serde_json::json;

    #[test]
    fn an_event_is_one_line() {
        let event = json!({
            "at": "2026-01-01T00:00:00Z", "type": "task.retrying", "task": "tsk_1", "kind": "a.b",
            "data": {"failure": {"class": "retryable", "message": "reset\nby peer"}, "retries": 1},
        });
        let expected = "2026-01-01T00:00:00Z  task.retrying         tsk_1  a.b  failure=reset by peer retries=1";
        assert_eq!(line(&plain_out(), &event), expected);
        let bare = json!({"at": "x", "type": "node.lost", "task": null, "data": {}});
        assert_eq!(line(&plain_out(), &bare), "x  node.lost           ");
    }
}
