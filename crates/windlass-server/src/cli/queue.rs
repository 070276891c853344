//! `windlass queue`: the lanes, what waits in them, and their settings.
//! Each verb is one request; draining is asked about first.

use super::client::{Call, Client};
use super::failure::{Exit, Failure};
use super::global::Global;
use super::listing::{ListArgs, list};
use super::output::{Cell, Column, Out, Tone};
use super::single::change;
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

const EXAMPLES: &str = "\
Examples:
  windlass queue list
  windlass queue pause media
  windlass queue set media --concurrency 8 --depth-max none";

#[derive(Debug, Clone, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum QueueCommand {
    /// List queues
    List(ListArgs),
    /// Show a queue
    Show(OneQueue),
    /// Start no more tasks of a queue
    Pause(OneQueue),
    /// Start its tasks again
    Resume(OneQueue),
    /// Change a queue's limits
    Set(SetArgs),
    /// Cancel every task that waits in a queue
    Drain(OneQueue),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct OneQueue {
    /// The queue
    name: String,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct SetArgs {
    /// The queue
    name: String,
    /// How many tasks run at once
    #[arg(long, value_name = "N|none", value_parser = limit, required_unless_present = "depth_max")]
    concurrency: Option<Value>,
    /// How many tasks may wait before submissions are refused
    #[arg(long, value_name = "N|none", value_parser = limit)]
    depth_max: Option<Value>,
}

fn limit(text: &str) -> Result<Value, String> {
    if text == "none" {
        return Ok(Value::Null);
    }
    text.parse::<u64>()
        .map(|n| json!(n))
        .map_err(|_| format!("`{text}` is neither a number nor `none`"))
}

const COLUMNS: &[Column] = &[
    ("NAME", |queue, _| Cell::of(queue, "name")),
    ("PAUSED", |queue, _| match queue.get("paused").and_then(Value::as_bool) {
        Some(true) => Cell::toned("yes", Tone::Held),
        _ => Cell::new("no"),
    }),
    ("CONCURRENCY", |queue, _| Cell::of(queue, "concurrency")),
    ("DEPTH-MAX", |queue, _| Cell::of(queue, "depth_max")),
    ("QUEUED", |queue, _| Cell::of(queue, "queued")),
    ("RUNNING", |queue, _| Cell::of(queue, "running")),
    ("LATER", |queue, _| Cell::of(queue, "later")),
];

const PAGE: &[&str] = &["name", "paused", "concurrency", "depth_max", "queued", "running", "later"];

pub(crate) async fn run(command: QueueCommand, global: &Global) -> Result<Exit, Failure> {
    match command {
        QueueCommand::List(args) => {
            list(global, Call::get(&["v1", "queues"]), &args, COLUMNS).await
        }
        QueueCommand::Show(one) => {
            let client = Client::new(global)?;
            let queue = client.body(Call::get(&["v1", "queues", &one.name])).await?;
            Out::new(global).document(&queue, |out| out.page(&queue, PAGE))?;
            Ok(Exit::Ok)
        }
        QueueCommand::Pause(one) => change(global, verb(&one.name, "pause"), None, PAGE).await,
        QueueCommand::Resume(one) => change(global, verb(&one.name, "resume"), None, PAGE).await,
        QueueCommand::Drain(one) => {
            let question = format!("drain the queue `{}`", one.name);
            change(global, verb(&one.name, "drain"), Some(question), PAGE).await
        }
        QueueCommand::Set(args) => {
            let call = Call::patch(&["v1", "queues", &args.name]).body(settings(&args));
            change(global, call, None, PAGE).await
        }
    }
}

fn verb(name: &str, verb: &str) -> Call {
    Call::post(&["v1", "queues", name, verb])
}

fn settings(args: &SetArgs) -> Value {
    let given = [("concurrency", &args.concurrency), ("depth_max", &args.depth_max)];
    let given = given.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value.clone()?)));
    Value::Object(given.collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_given_is_changed() {
        let args = |concurrency, depth_max| SetArgs { name: "q".into(), concurrency, depth_max };
        assert_eq!(settings(&args(Some(json!(8)), None)), json!({"concurrency": 8}));
        let none = limit("none").unwrap();
        assert_eq!(settings(&args(None, Some(none))), json!({"depth_max": null}));
        assert!(limit("-1").is_err());
        assert!(limit("many").is_err());
    }
}
