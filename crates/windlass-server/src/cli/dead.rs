//! `windlass dead`: the dead letters, one by one, by filter, or grouped by
//! cause. Requeueing goes through `select.rs`; editing a payload opens the
//! person's editor in `edit.rs`.

use super::bulk::{AgainArgs, BulkArgs};
use super::client::{Call, Client};
use super::failure::{Exit, Failure};
use super::fields::{self, text};
use super::global::Global;
use super::listing::{ListArgs, list};
use super::output::{Cell, Column, Out};
use super::select::{Verb, act};
use super::submit::payload;
use super::task::with_filter;
use super::{edit, ids, single, times};
use clap::{Args, Subcommand, ValueEnum};
use futures::StreamExt;
use serde_json::{Value, json};

/// What to do with a payload that needed no change.
const AS_IT_IS: &str = "`windlass dead requeue ID` runs the task again as it is";

const EXAMPLES: &str = "\
Examples:
  windlass dead list --group error
  windlass dead requeue 'error~\"connection reset\"' --rate 5/s --stop-above 20
  windlass dead edit 4k7m2p
  windlass dead export queue:media > dead.jsonl";

#[derive(Debug, Clone, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum DeadCommand {
    /// List dead letters, the newest first
    List(DeadListArgs),
    /// Show a dead letter
    Show(OneLetter),
    /// Run failed tasks again
    Requeue(RequeueArgs),
    /// Change the payload of a failed task and run it again
    Edit(EditArgs),
    /// Drop dead letters; their tasks stay failed
    Discard(ManyLetters),
    /// Write dead letters as JSON lines
    Export(ExportArgs),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct DeadListArgs {
    /// Which dead letters
    filter: Vec<String>,
    /// Count by cause instead: the error, without what differs from task to task
    #[arg(long, value_enum, value_name = "BY")]
    group: Option<Group>,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Group {
    Error,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct OneLetter {
    /// The dead letter's or the task's id, or its last 6 or more characters
    id: String,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ManyLetters {
    /// Ids, or a filter
    #[arg(required = true, value_name = "ID|FILTER")]
    target: Vec<String>,
    #[command(flatten)]
    bulk: BulkArgs,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct RequeueArgs {
    #[command(flatten)]
    letters: ManyLetters,
    #[command(flatten)]
    again: AgainArgs,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct EditArgs {
    #[command(flatten)]
    one: OneLetter,
    /// The new payload instead of an editor: JSON, @FILE or - for stdin
    #[arg(long, value_name = "JSON|@FILE|-")]
    data: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ExportArgs {
    /// Which dead letters
    filter: Vec<String>,
}

const COLUMNS: &[Column] = &[
    ("ID", |letter, _| Cell::of(letter, "id")),
    ("KIND", |letter, _| Cell::of(letter, "kind")),
    ("QUEUE", |letter, _| Cell::of(letter, "queue")),
    ("REASON", |letter, _| Cell::of(letter, "reason")),
    ("STEP", |letter, _| Cell::of(letter, "step")),
    ("ATTEMPTS", |letter, _| Cell::of(letter, "attempts")),
    ("AGE", |letter, now| Cell::new(times::age(text(letter, "at"), now))),
    ("MESSAGE", |letter, _| Cell::new(text(letter, "message"))),
];

const GROUPS: &[Column] = &[
    ("COUNT", |group, _| Cell::of(group, "count")),
    ("NEWEST", |group, now| Cell::new(times::age(text(group, "newest"), now))),
    ("EXAMPLE", |group, _| Cell::of(group, "example")),
    ("CAUSE", |group, _| Cell::of(group, "cause")),
];

const PAGE: &[&str] = &[
    "id", "task", "kind", "queue", "reason", "class", "message", "step", "attempts", "node", "at",
];

pub(crate) async fn run(command: DeadCommand, global: &Global) -> Result<Exit, Failure> {
    match command {
        DeadCommand::List(args) => {
            let call = with_filter(Call::get(&["v1", "dead-letters"]), &args.filter);
            match args.group {
                Some(Group::Error) => groups(global, call.query("group_by", "error")).await,
                None => list(global, call, &args.list, COLUMNS).await,
            }
        }
        DeadCommand::Show(one) => show(global, &one.id).await,
        DeadCommand::Requeue(args) => {
            let verb = Verb { again: args.again, ..verb("requeue", &args.letters) };
            act(global, &args.letters.target, &verb).await
        }
        DeadCommand::Edit(args) => edit_letter(global, &args).await,
        DeadCommand::Discard(many) => act(global, &many.target, &verb("discard", &many)).await,
        DeadCommand::Export(args) => export(global, &args.filter).await,
    }
}

fn verb(name: &'static str, many: &ManyLetters) -> Verb {
    Verb {
        place: "dead-letters",
        of: Some("dead_letters"),
        name,
        things: ("dead letter", "dead letters"),
        from_step: None,
        bulk: many.bulk.clone(),
        again: AgainArgs::default(),
        columns: COLUMNS,
    }
}

async fn groups(global: &Global, call: Call) -> Result<Exit, Failure> {
    let (out, client) = (Out::new(global), Client::new(global)?);
    let answer = client.body(call).await?;
    out.list(fields::items(fields::at(&answer, "groups")), GROUPS)?;
    Ok(Exit::Ok)
}

async fn show(global: &Global, word: &str) -> Result<Exit, Failure> {
    let (out, client) = (Out::new(global), Client::new(global)?);
    let letter = get(&client, word).await?;
    out.document(&letter, |out| out.page(&letter, PAGE))?;
    Ok(Exit::Ok)
}

async fn get(client: &Client, word: &str) -> Result<Value, Failure> {
    let id = ids::resolve(client, word).await?;
    client.body(Call::get(&["v1", "dead-letters", &id])).await
}

async fn edit_letter(global: &Global, args: &EditArgs) -> Result<Exit, Failure> {
    let (out, client) = (Out::new(global), Client::new(global)?);
    let (id, payload) = match &args.data {
        Some(data) => (ids::resolve(&client, &args.one.id).await?, payload::from_data(data).await?),
        None => {
            edit::need_terminal()?;
            let letter = get(&client, &args.one.id).await?;
            let payload = edit::edit(fields::at(&letter, "payload").clone(), AS_IT_IS).await?;
            (text(&letter, "id").to_owned(), payload)
        }
    };
    let call = Call::post(&["v1", "dead-letters", &id, "requeue"]);
    let call = call.body(json!({"payload": payload}));
    if global.dry_run {
        return single::show_request(&out, &call);
    }
    let answer = client.body(call).await?;
    single::show_task(&out, &answer).map(|()| Exit::Ok)
}

/// Passes the lines through as they come: an export may be larger than memory.
async fn export(global: &Global, filter: &[String]) -> Result<Exit, Failure> {
    let (out, client) = (Out::new(global), Client::new(global)?);
    let call = with_filter(Call::get(&["v1", "dead-letters", "export"]), filter);
    let mut chunks = client.open(&call).await?.bytes_stream();
    while let Some(chunk) = chunks.next().await {
        let whole = "the export is not whole: run it again";
        let chunk = chunk.map_err(|e| client.cut_off(&e, Some(whole)))?;
        out.bytes(&chunk)?;
    }
    Ok(Exit::Ok)
}
