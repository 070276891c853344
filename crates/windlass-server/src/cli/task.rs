//! `windlass task`: look at tasks and act on them. Here are the verbs and the
//! short answers; the full page of a task is in `task_page.rs`, acting on many
//! in `select.rs`, waiting in `follow.rs`.

use super::bulk::{AgainArgs, BulkArgs};
use super::client::{Call, Client};
use super::failure::{Exit, Failure};
use super::fields::{self, clean, plain, text};
use super::follow::{Detail, follow};
use super::global::{Format, Global};
use super::listing::{ListArgs, list};
use super::output::{Cell, Column, Out, Tone};
use super::select::{Verb, act};
use super::submit::{parse_duration_arg, payload};
use super::{edit, event, ids, single, task_page, times, words};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::time::Duration;

const FILTERS: &str = "\
Filters: state:failed,retrying queue:media kind:image.* label.tenant:acme error~\"reset\"
         attempt:>=3 age:>1h since:2h -queue:low

Examples:
  windlass task list state:failed since:1h
  windlass task show 4k7m2p
  windlass task cancel queue:media state:queued --dry-run
  windlass task requeue state:failed --rate 5/s --stop-above 20
  windlass task edit 4k7m2p";

#[derive(Debug, Clone, Subcommand)]
#[command(after_help = FILTERS)]
pub(crate) enum TaskCommand {
    /// List tasks, the newest first
    #[command(after_help = FILTERS)]
    List(TaskListArgs),
    /// Show everything about a task
    Show(OneTask),
    /// Follow a task with its steps until it ends
    Watch(WaitArgs),
    /// Wait until a task ends and print its result
    Wait(WaitArgs),
    /// Print the result of a completed task
    Result(OneTask),
    /// List what happened to a task
    History(OneTask),
    /// Say why a task is not running
    Why(OneTask),
    /// Print the logs of its attempts
    Logs(OneTask),
    /// Cancel tasks
    Cancel(ManyTasks),
    /// Pause tasks at their next step
    Pause(ManyTasks),
    /// Let paused tasks go on
    Resume(ManyTasks),
    /// Run failed or cancelled tasks again
    Requeue(RequeueArgs),
    /// Submit tasks again as new ones
    Rerun(RerunArgs),
    /// Change the payload of a task that does not run
    Edit(EditArgs),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct TaskListArgs {
    /// Which tasks
    filter: Vec<String>,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct OneTask {
    /// The task's id, or its last 6 or more characters
    id: String,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct WaitArgs {
    /// The task's id, or its last 6 or more characters
    id: String,
    /// Wait at most this long
    #[arg(long, value_name = "DURATION", value_parser = parse_duration_arg)]
    timeout: Option<Duration>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ManyTasks {
    /// Ids, or a filter
    #[arg(required = true, value_name = "ID|FILTER")]
    target: Vec<String>,
    #[command(flatten)]
    bulk: BulkArgs,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct RerunArgs {
    #[command(flatten)]
    tasks: ManyTasks,
    #[command(flatten)]
    again: AgainArgs,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct EditArgs {
    #[command(flatten)]
    one: OneTask,
    /// The new payload instead of an editor: JSON, @FILE or - for stdin
    #[arg(long, value_name = "JSON|@FILE|-")]
    data: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct RequeueArgs {
    #[command(flatten)]
    tasks: ManyTasks,
    /// Begin at this step instead of the first unfinished one
    #[arg(long, value_name = "STEP")]
    from_step: Option<String>,
    #[command(flatten)]
    again: AgainArgs,
}

pub(crate) const COLUMNS: &[Column] = &[
    ("ID", |task, _| Cell::of(task, "id")),
    ("KIND", |task, _| Cell::of(task, "kind")),
    ("QUEUE", |task, _| Cell::of(task, "queue")),
    ("STATE", |task, _| Cell::toned(text(task, "state"), Tone::of_state(text(task, "state")))),
    ("ATTEMPT", |task, _| Cell::of(task, "attempt")),
    ("AGE", |task, now| Cell::new(times::age(text(task, "created_at"), now))),
    ("MESSAGE", |task, _| Cell::new(text(task, "failure.message"))),
];

pub(crate) async fn run(command: TaskCommand, global: &Global) -> Result<Exit, Failure> {
    match command {
        TaskCommand::List(args) => {
            let call = with_filter(Call::get(&["v1", "tasks"]), &args.filter);
            list(global, call, &args.list, COLUMNS).await
        }
        TaskCommand::Show(one) => task_page::show(global, &one.id).await,
        TaskCommand::Watch(args) => wait(global, args, Detail::Steps).await,
        TaskCommand::Wait(args) => wait(global, args, Detail::States).await,
        TaskCommand::Result(one) => result(global, &one.id).await,
        TaskCommand::History(one) => history(global, &one.id).await,
        TaskCommand::Why(one) => why(global, &one.id).await,
        TaskCommand::Logs(one) => logs(global, &one.id).await,
        TaskCommand::Cancel(many) => act(global, &many.target, &verb("cancel", &many)).await,
        TaskCommand::Pause(many) => act(global, &many.target, &verb("pause", &many)).await,
        TaskCommand::Resume(many) => act(global, &many.target, &verb("resume", &many)).await,
        TaskCommand::Rerun(RerunArgs { tasks, again }) => {
            let verb = Verb { again, ..verb("rerun", &tasks) };
            act(global, &tasks.target, &verb).await
        }
        TaskCommand::Requeue(RequeueArgs { tasks, from_step, again }) => {
            let verb = Verb { from_step, again, ..verb("requeue", &tasks) };
            act(global, &tasks.target, &verb).await
        }
        TaskCommand::Edit(args) => edit_task(global, &args).await,
    }
}

fn verb(name: &'static str, many: &ManyTasks) -> Verb {
    Verb {
        place: "tasks",
        of: None,
        name,
        things: ("task", "tasks"),
        from_step: None,
        bulk: many.bulk.clone(),
        again: AgainArgs::default(),
        columns: COLUMNS,
    }
}

async fn edit_task(global: &Global, args: &EditArgs) -> Result<Exit, Failure> {
    let (out, client) = (Out::new(global), Client::new(global)?);
    let id = ids::resolve(&client, &args.one.id).await?;
    let payload = match &args.data {
        Some(data) => payload::from_data(data).await?,
        None => {
            edit::need_terminal()?;
            let task = client.body(Call::get(&["v1", "tasks", &id])).await?;
            let unchanged = "save another document, or pass --data";
            edit::edit(fields::at(&task, "payload").clone(), unchanged).await?
        }
    };
    let call = Call::patch(&["v1", "tasks", &id]).body(json!({"payload": payload}));
    if global.dry_run {
        return single::show_request(&out, &call);
    }
    let answer = client.body(call).await?;
    single::show_task(&out, &answer).map(|()| Exit::Ok)
}

/// Adds a filter to a request where one was given.
pub(crate) fn with_filter(call: Call, filter: &[String]) -> Call {
    match words::filter(filter) {
        filter if filter.is_empty() => call,
        filter => call.query("q", filter),
    }
}

async fn wait(global: &Global, args: WaitArgs, detail: Detail) -> Result<Exit, Failure> {
    let (out, client) = (Out::new(global), Client::new(global)?);
    let id = ids::resolve(&client, &args.id).await?;
    follow(&client, &out, &id, detail, args.timeout).await
}

async fn result(global: &Global, word: &str) -> Result<Exit, Failure> {
    let (out, client) = (Out::new(global), Client::new(global)?);
    let id = ids::resolve(&client, word).await?;
    let answer = client.send(Call::get(&["v1", "tasks", &id, "result"])).await?;
    if answer.status == 202 {
        let hint = format!("`windlass task wait {id}` waits for it");
        return Err(Failure::new(Exit::Conflict, format!("{id} has no result yet"), hint));
    }
    match out.format {
        Format::Id => out.line(&id)?,
        _ => out.json(&answer.body)?,
    }
    Ok(Exit::Ok)
}

async fn history(global: &Global, word: &str) -> Result<Exit, Failure> {
    let (out, client) = (Out::new(global), Client::new(global)?);
    let id = ids::resolve(&client, word).await?;
    let answer = client.body(Call::get(&["v1", "tasks", &id, "history"])).await?;
    out.list(fields::items(&answer), event::HISTORY)?;
    Ok(Exit::Ok)
}

async fn why(global: &Global, word: &str) -> Result<Exit, Failure> {
    let (out, client) = (Out::new(global), Client::new(global)?);
    let id = ids::resolve(&client, word).await?;
    let answer = client.body(Call::get(&["v1", "tasks", &id, "why"])).await?;
    match out.format {
        Format::Table => out.line(&sentence(&answer))?,
        Format::Id => out.line(&id)?,
        Format::Json | Format::Jsonl => out.json(&answer)?,
    }
    Ok(Exit::Ok)
}

/// The sentence in an answer of `/why`.
pub(crate) fn sentence(answer: &Value) -> String {
    let known = ["why", "sentence", "reason", "message"];
    let said = known.iter().map(|key| text(answer, key)).find(|said| !said.is_empty());
    said.map_or_else(|| plain(answer), clean)
}

async fn logs(global: &Global, word: &str) -> Result<Exit, Failure> {
    let (out, client) = (Out::new(global), Client::new(global)?);
    let id = ids::resolve(&client, word).await?;
    let mut pages = super::pages::Pages::new(&client, Call::get(&["v1", "tasks", &id, "logs"]));
    let items = pages.collect(super::pages::Wanted::All).await?;
    if items.is_empty() {
        out.say("no logs: they are what programs of [handlers] write to stderr");
    }
    match out.format {
        Format::Table => items.iter().try_for_each(|log| out.line(&log_page(&out, log)))?,
        Format::Id => out.line(&id)?,
        Format::Json => out.json(&Value::Array(items))?,
        Format::Jsonl => items.iter().try_for_each(|line| out.json(line))?,
    }
    Ok(Exit::Ok)
}

/// A heading that says whose text it is, and the text as it was written but for
/// what could move the cursor.
fn log_page(out: &Out, log: &Value) -> String {
    let count = |key| fields::number(log, key).unwrap_or(0);
    let words = [clean(text(log, "step")), clean(text(log, "outcome")), clean(text(log, "at"))];
    let mut page = format!("{} attempt {}", words[0], count("attempt"));
    if count("run") > 1 {
        page.push_str(&format!(" of run {}", count("run")));
    }
    let mut page = out.paint(&format!("{page}, {}, {}", words[1], words[2]), Tone::Faint);
    for line in text(log, "text").lines() {
        page.push_str(&format!("\n  {}", fields::harmless(line.trim_end())));
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_and_log_lines() {
        assert_eq!(
            sentence(&json!({"why": "the queue `media` is paused"})),
            "the queue `media` is paused"
        );
        assert_eq!(sentence(&json!("because")), "because");
        let log = json!({"at": "2026-01-01T00:00:00Z", "run": 1, "attempt": 2, "step": "scan",
            "outcome": "failed", "text": "no\n  such\u{1b}[2J file\n"});
        let page = "scan attempt 2, failed, 2026-01-01T00:00:00Z\n  no\n    such [2J file";
        assert_eq!(log_page(&crate::cli::output::plain_out(), &log), page);
    }
}
