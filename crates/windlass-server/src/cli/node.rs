//! `windlass node`: the running processes, and pausing or draining one. A node is
//! named by its id, an ending of it, or its name, which is looked up in the list:
//! there are never many nodes.

use super::client::{Call, Client};
use super::failure::{Exit, Failure};
use super::fields::text;
use super::global::Global;
use super::listing::{ListArgs, list};
use super::output::{Cell, Column, Out, Tone};
use super::pages::{Pages, Wanted};
use super::single::change;
use super::times;
use clap::{Args, Subcommand};
use serde_json::Value;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  windlass node list
  windlass node drain worker-2 --yes";

#[derive(Debug, Clone, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum NodeCommand {
    /// List nodes
    List(ListArgs),
    /// Show a node
    Show(OneNode),
    /// Let a node take no more tasks
    Pause(OneNode),
    /// End a pause or a drain
    Resume(OneNode),
    /// Let a node finish what it holds and take no more
    Drain(OneNode),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct OneNode {
    /// The node's id, its last 6 or more characters, or its name
    node: String,
}

const COLUMNS: &[Column] = &[
    ("ID", |node, _| Cell::of(node, "id")),
    ("NAME", |node, _| Cell::of(node, "name")),
    ("STATE", |node, _| match state(node) {
        "serving" => Cell::new("serving"),
        "lost" => Cell::toned("lost", Tone::Bad),
        held => Cell::toned(held, Tone::Held),
    }),
    ("ACTIVE", |node, _| Cell::of(node, "active")),
    ("CONSUMED", |node, _| Cell::of(node, "consumed")),
    ("FAILED", |node, _| Cell::of(node, "failed")),
    ("HEARTBEAT", |node, _| Cell::new(heartbeat(node))),
    ("VERSION", |node, _| Cell::of(node, "version")),
    ("QUEUES", |node, _| Cell::of(node, "queues")),
];

const PAGE: &[&str] = &[
    "id",
    "name",
    "version",
    "stage",
    "paused",
    "active",
    "consumed",
    "failed",
    "queues",
    "remote",
    "joined_at",
    "heartbeat_at",
    "heartbeat_age",
    "lease_until",
];

fn state(node: &Value) -> &str {
    let paused = node.get("paused").and_then(Value::as_bool).unwrap_or(false);
    match text(node, "stage") {
        "" | "serving" if paused => "paused",
        "" => "serving",
        stage => stage,
    }
}

/// The server says how old it is: two clocks need not agree.
fn heartbeat(node: &Value) -> String {
    let age = node.get("heartbeat_age").and_then(Value::as_f64);
    let age = age.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    age.map_or_else(|| "-".to_owned(), |age| format!("{} ago", times::rough(age)))
}

fn page(out: &Out, node: &Value) -> Result<(), Failure> {
    let mut shown = node.clone();
    if let Some(object) = shown.as_object_mut() {
        object.insert("heartbeat_age".to_owned(), heartbeat(node).into());
    }
    out.page(&shown, PAGE)
}

pub(crate) async fn run(command: NodeCommand, global: &Global) -> Result<Exit, Failure> {
    let (one, verb) = match command {
        NodeCommand::List(args) => {
            return list(global, Call::get(&["v1", "nodes"]), &args, COLUMNS).await;
        }
        NodeCommand::Show(one) => return show(global, &one.node).await,
        NodeCommand::Pause(one) => (one, "pause"),
        NodeCommand::Resume(one) => (one, "resume"),
        NodeCommand::Drain(one) => (one, "drain"),
    };
    let id = find(&Client::new(global)?, &one.node).await?;
    let question = (verb == "drain").then(|| format!("drain the node {id}"));
    change(global, Call::post(&["v1", "nodes", &id, verb]), question, page).await
}

async fn show(global: &Global, word: &str) -> Result<Exit, Failure> {
    let (out, client) = (Out::new(global), Client::new(global)?);
    let id = find(&client, word).await?;
    let node = client.body(Call::get(&["v1", "nodes", &id])).await?;
    out.document(&node, |out| page(out, &node))?;
    Ok(Exit::Ok)
}

async fn find(client: &Client, word: &str) -> Result<String, Failure> {
    if word.parse::<windlass_core::id::NodeId>().is_ok() {
        return Ok(word.to_owned());
    }
    let nodes = Pages::new(client, Call::get(&["v1", "nodes"])).collect(Wanted::All).await?;
    pick(&nodes, word)
}

fn pick(nodes: &[Value], word: &str) -> Result<String, Failure> {
    let ending = |node: &&Value| word.len() >= 6 && text(node, "id").ends_with(word);
    let named = |node: &&Value| text(node, "name") == word;
    let found: Vec<&Value> = nodes.iter().filter(|node| ending(node) || named(node)).collect();
    match found.as_slice() {
        [node] => Ok(text(node, "id").to_owned()),
        [] => {
            let message = format!("no node is called `{word}`");
            Err(Failure::new(Exit::NotFound, message, "`windlass node list` shows the nodes"))
        }
        several => {
            let ids: Vec<&str> = several.iter().map(|node| text(node, "id")).collect();
            let message = format!("`{word}` fits several nodes:\n  {}", ids.join("\n  "));
            Err(Failure::usage(message, "give the node's id"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn how_a_node_is() {
        for (stage, paused, shown) in [
            ("serving", false, "serving"),
            ("serving", true, "paused"),
            ("draining", true, "draining"),
            ("lost", false, "lost"),
        ] {
            assert_eq!(state(&json!({"stage": stage, "paused": paused})), shown);
        }
        assert_eq!(heartbeat(&json!({"heartbeat_age": 61.2})), "1m ago");
        assert_eq!(heartbeat(&json!({})), "-");
    }

    #[test]
    fn nodes_by_name_and_ending() {
        let nodes = [
            json!({"id": "nod_00000000aaaaa", "name": "one"}),
            json!({"id": "nod_00000000bbbbb", "name": "two"}),
            json!({"id": "nod_11111111bbbbb", "name": "two"}),
        ];
        assert_eq!(pick(&nodes, "one").unwrap(), "nod_00000000aaaaa");
        assert_eq!(pick(&nodes, "0aaaaa").unwrap(), "nod_00000000aaaaa");
        assert_eq!(pick(&nodes, "two").unwrap_err().code, Exit::Usage);
        assert_eq!(pick(&nodes, "three").unwrap_err().code, Exit::NotFound);
    }
}
