//! `windlass audit list`: who changed what, the newest first. It only reads; the
//! rows are written by the store with the change itself.

use super::client::Call;
use super::failure::{Exit, Failure};
use super::global::Global;
use super::listing::{ListArgs, list};
use super::output::{Cell, Column};
use clap::Subcommand;

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum AuditCommand {
    /// List what people did
    List(ListArgs),
}

const COLUMNS: &[Column] = &[
    ("AT", |row, _| Cell::of(row, "at")),
    ("WHO", |row, _| Cell::of(row, "who")),
    ("FROM", |row, _| Cell::of(row, "origin")),
    ("ACTION", |row, _| Cell::of(row, "action")),
    ("TARGET", |row, _| Cell::of(row, "target")),
    ("OUTCOME", |row, _| Cell::of(row, "outcome")),
];

pub(crate) async fn run(command: AuditCommand, global: &Global) -> Result<Exit, Failure> {
    let AuditCommand::List(args) = command;
    list(global, Call::get(&["v1", "audit"]), &args, COLUMNS).await
}
