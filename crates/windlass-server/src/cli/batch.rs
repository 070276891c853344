//! `windlass batch`: the bulk jobs that verbs with a filter begin. Looking,
//! waiting and stopping; beginning one is in `bulk.rs`.

use super::bulk::follow;
use super::client::{Call, Client};
use super::failure::{Exit, Failure};
use super::fields::text;
use super::global::Global;
use super::listing::{ListArgs, list};
use super::output::{Cell, Column, Out, Tone};
use super::{bulk, single, times};
use clap::{Args, Subcommand};
use serde_json::Value;

const EXAMPLES: &str = "\
Examples:
  windlass task requeue queue:media state:failed --rate 5/s --detach
  windlass batch list
  windlass batch watch bat_0123456789abc
  windlass batch stop bat_0123456789abc";

#[derive(Debug, Clone, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum BatchCommand {
    /// List batches, the newest first
    List(ListArgs),
    /// Show a batch
    Show(OneBatch),
    /// Wait for the end of a batch
    Watch(OneBatch),
    /// Stop a batch; what it did stays done
    Stop(OneBatch),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct OneBatch {
    /// The batch's id
    id: String,
}

const COLUMNS: &[Column] = &[
    ("ID", |batch, _| Cell::of(batch, "id")),
    ("ACTION", |batch, _| Cell::of(batch, "action")),
    ("STATE", |batch, _| Cell::toned(text(batch, "state"), tone(text(batch, "state")))),
    ("MATCHED", |batch, _| Cell::of(batch, "matched")),
    ("CHANGED", |batch, _| Cell::of(batch, "changed")),
    ("SKIPPED", |batch, _| Cell::of(batch, "skipped")),
    ("FAILED", |batch, _| Cell::of(batch, "failed")),
    ("AGE", |batch, now| Cell::new(times::age(text(batch, "created_at"), now))),
    ("WHO", |batch, _| Cell::of(batch, "who")),
    ("FILTER", |batch, _| Cell::of(batch, "q")),
];

const PAGE: &[&str] = &[
    "id",
    "action",
    "of",
    "q",
    "rate",
    "from_step",
    "stop_above",
    "state",
    "reason",
    "who",
    "created_at",
    "updated_at",
    "finished_at",
    "matched",
    "changed",
    "requested",
    "already",
    "skipped",
    "failed",
];

fn tone(state: &str) -> Tone {
    match state {
        "running" => Tone::Busy,
        "stopped" => Tone::Held,
        _ => Tone::Good,
    }
}

pub(crate) async fn run(command: BatchCommand, global: &Global) -> Result<Exit, Failure> {
    match command {
        BatchCommand::List(args) => {
            list(global, Call::get(&["v1", "batches"]), &args, COLUMNS).await
        }
        BatchCommand::Show(one) => {
            let (out, client) = (Out::new(global), Client::new(global)?);
            let batch = client.body(Call::get(&["v1", "batches", &one.id])).await?;
            out.document(&batch, |out| out.page(&batch, PAGE))?;
            Ok(Exit::Ok)
        }
        BatchCommand::Watch(one) => {
            follow(&Client::new(global)?, &Out::new(global), &one.id, None).await
        }
        BatchCommand::Stop(one) => {
            let call = Call::post(&["v1", "batches", &one.id, "stop"]);
            single::change(global, call, None, |out, batch| out.line(&line(out, batch))).await
        }
    }
}

/// A batch in one line.
pub(crate) fn show(out: &Out, batch: &Value) -> Result<Exit, Failure> {
    out.document(batch, |out| out.line(&line(out, batch)))?;
    Ok(Exit::Ok)
}

fn line(out: &Out, batch: &Value) -> String {
    let state = text(batch, "state");
    let shown = out.paint(state, tone(state));
    format!("{}  {shown}  {}", text(batch, "id"), bulk::summary(batch))
}
