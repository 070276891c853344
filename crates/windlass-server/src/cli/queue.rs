//! `windlass queue`: the lanes, what waits in them, and their settings.
//! Each verb is one request; draining is asked about first.

use super::client::{Call, Client};
use super::failure::{Exit, Failure};
use super::fields::{at, number, text};
use super::global::Global;
use super::listing::{ListArgs, list};
use super::output::{Cell, Column, Out, Tone};
use super::single::change;
use super::times;
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
    /// End a pause or a drain
    Resume(OneQueue),
    /// Change a queue's limits
    Set(SetArgs),
    /// Take no new tasks; what is there goes on, and resume ends it
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
    /// How many tasks run at once, on all nodes together
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
    ("STATE", |queue, _| match state(queue) {
        "open" => Cell::new("open"),
        held => Cell::toned(held, Tone::Held),
    }),
    ("CONCURRENCY", |queue, _| limit_cell(queue, "concurrency")),
    ("DEPTH-MAX", |queue, _| limit_cell(queue, "depth_max")),
    ("SCHEDULED", |queue, _| count(queue, &["scheduled"])),
    ("QUEUED", |queue, _| count(queue, &["queued"])),
    ("RUNNING", |queue, _| count(queue, &["running", "rolling_back"])),
    ("RETRYING", |queue, _| count(queue, &["retrying"])),
    ("HELD", |queue, _| count(queue, &["waiting", "paused"])),
    ("DEAD", |queue, _| match number(queue, "dead_letters") {
        Some(0) | None => Cell::new("0"),
        Some(n) => Cell::toned(n.to_string(), Tone::Bad),
    }),
    ("OLDEST", |queue, now| Cell::new(times::age(text(queue, "oldest_ready_at"), now))),
];

const PAGE: &[&str] = &[
    "name",
    "paused",
    "draining",
    "concurrency",
    "depth_max",
    "tasks",
    "dead_letters",
    "oldest_ready_at",
];

fn state(queue: &Value) -> &'static str {
    let is = |key| queue.get(key).and_then(Value::as_bool).unwrap_or(false);
    match (is("paused"), is("draining")) {
        (true, true) => "paused, draining",
        (true, false) => "paused",
        (false, true) => "draining",
        (false, false) => "open",
    }
}

fn limit_cell(queue: &Value, key: &str) -> Cell {
    Cell::new(number(queue, key).map_or_else(|| "none".to_owned(), |n| n.to_string()))
}

fn count(queue: &Value, states: &[&str]) -> Cell {
    let tasks = at(queue, "tasks");
    let n: u64 = states.iter().filter_map(|state| number(tasks, state)).sum();
    Cell::new(n.to_string())
}

/// The page of a queue, with its tasks and missing limits in words.
fn page(out: &Out, queue: &Value) -> Result<(), Failure> {
    let mut shown = queue.clone();
    for (key, value) in shown.as_object_mut().into_iter().flatten() {
        match key.as_str() {
            "tasks" => *value = json!(tasks(value)),
            "concurrency" | "depth_max" if value.is_null() => *value = json!("no limit"),
            _ => {}
        }
    }
    out.page(&shown, PAGE)
}

fn tasks(tasks: &Value) -> String {
    let counted = tasks.as_object().into_iter().flatten();
    let words: Vec<String> = counted.map(|(state, n)| format!("{n} {state}")).collect();
    if words.is_empty() { "none that have not ended".to_owned() } else { words.join(", ") }
}

pub(crate) async fn run(command: QueueCommand, global: &Global) -> Result<Exit, Failure> {
    match command {
        QueueCommand::List(args) => {
            list(global, Call::get(&["v1", "queues"]), &args, COLUMNS).await
        }
        QueueCommand::Show(one) => {
            let client = Client::new(global)?;
            let queue = client.body(Call::get(&["v1", "queues", &one.name])).await?;
            Out::new(global).document(&queue, |out| page(out, &queue))?;
            Ok(Exit::Ok)
        }
        QueueCommand::Pause(one) => {
            tell_if_new(global, &one.name).await?;
            change(global, verb(&one.name, "pause"), None, page).await
        }
        QueueCommand::Resume(one) => change(global, verb(&one.name, "resume"), None, page).await,
        QueueCommand::Drain(one) => {
            tell_if_new(global, &one.name).await?;
            let question = format!("drain the queue `{}`", one.name);
            change(global, verb(&one.name, "drain"), Some(question), page).await
        }
        QueueCommand::Set(args) => {
            tell_if_new(global, &args.name).await?;
            let call = Call::patch(&["v1", "queues", &args.name]).body(settings(&args));
            change(global, call, None, page).await
        }
    }
}

/// A queue may be set up before its first task; a typing error looks the same.
async fn tell_if_new(global: &Global, name: &str) -> Result<(), Failure> {
    let answer = Client::new(global)?.look(&Call::get(&["v1", "queues", name])).await?;
    if answer.status == 404 {
        Out::new(global).say(&format!("note: no queue `{name}` was known before"));
    }
    Ok(())
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
    fn a_queue_in_words() {
        let queue = json!({"name": "q", "paused": false, "draining": true, "concurrency": null,
            "tasks": {"queued": 2, "rolling_back": 1, "running": 3}});
        assert_eq!(state(&queue), "draining");
        assert_eq!(tasks(at(&queue, "tasks")), "2 queued, 1 rolling_back, 3 running");
        assert_eq!(tasks(&Value::Null), "none that have not ended");
        let row = COLUMNS.iter().map(|(_, cell)| cell(&queue, times::now())).collect();
        let text = crate::cli::output::plain_out().grid(&[], vec![row]);
        let words: Vec<&str> = text.split_whitespace().collect();
        assert_eq!(words, ["q", "draining", "none", "none", "0", "2", "4", "0", "0", "0", "-"]);
    }

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
