//! One verb on everything a filter matches, as a batch of the server: preview,
//! question, order, progress. The batch is the server's: an interrupt here leaves
//! it running and says how to stop it. `batch.rs` looks at batches afterwards.

use super::client::{Call, Client, Repeat};
use super::confirm::confirm;
use super::failure::{Exit, Failure};
use super::fields::{at, clean, number, text};
use super::global::{Format, Global};
use super::output::{Cell, Out, Tone};
use super::pages::Pages;
use super::select::Verb;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::time::Duration;
use windlass_core::limits::Rate;

/// Matches that a preview shows.
const SHOWN: usize = 5;
/// How often a batch is looked at while somebody waits.
const LOOK_EVERY: Duration = Duration::from_millis(250);

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct BulkArgs {
    /// With a filter: no faster than this, e.g. 5/s or 300/m
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) rate: Option<String>,
    /// With a filter: begin, print the batch's id and return
    #[arg(long)]
    pub(crate) detach: bool,
}

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct AgainArgs {
    /// With a filter: stop when more than so many percent fail again
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=99))]
    pub(crate) stop_above: Option<u8>,
}

fn rate(text: &str) -> Result<String, String> {
    text.parse::<Rate>().map(|rate| rate.to_string()).map_err(|e| e.message().to_owned())
}

/// What the server is asked for.
fn order(verb: &Verb, filter: &str) -> Value {
    let mut order = json!({"action": verb.name, "q": filter});
    let wishes = [
        ("of", verb.of.map(Value::from)),
        ("rate", verb.bulk.rate.clone().map(Value::from)),
        ("from_step", verb.from_step.clone().map(Value::from)),
        ("stop_above", verb.again.stop_above.map(Value::from)),
    ];
    for (key, wish) in wishes {
        if let Some(wish) = wish {
            order[key] = wish;
        }
    }
    order
}

/// Does `verb` to everything that `filter` matches.
pub(crate) async fn by_filter(global: &Global, filter: &str, verb: &Verb) -> Result<Exit, Failure> {
    let (out, client) = (Out::new(global), Client::new(global)?);
    let order = order(verb, filter);
    let preview = preview(&client, &order).await?;
    let (matched, eligible) = (count(&preview, "matched"), count(&preview, "eligible"));
    if eligible == 0 && at(&preview, "more") != &Value::Bool(true) {
        out.say(&match matched {
            0 => format!("no {} match `{filter}`", verb.things.1),
            _ => format!(
                "{} match, and the state of none lets you {} it",
                verb.count(matched),
                verb.name
            ),
        });
        return match out.format {
            Format::Json | Format::Jsonl => out.json(&preview).map(|()| Exit::Ok),
            Format::Table | Format::Id => Ok(Exit::Ok),
        };
    }
    let list = || Pages::new(&client, Call::get(&["v1", verb.place]).query("q", filter));
    let question = question(verb, &preview);
    show(&out, verb, &question, &preview, &list().next(SHOWN).await?);
    if global.dry_run {
        return dry_end(&out, verb, list(), &preview).await;
    }
    confirm(global, &question).await?;
    let lost = "`windlass batch list` shows whether it has begun";
    let batch = client.body(Call::post(&["v1", "batches"]).body(order).if_lost(lost)).await?;
    if verb.bulk.detach {
        return super::batch::show(&out, &batch);
    }
    follow(&client, &out, text(&batch, "id"), total(&preview)).await
}

async fn preview(client: &Client, order: &Value) -> Result<Value, Failure> {
    let mut order = order.clone();
    order["dry_run"] = json!(true);
    client.body(Call::post(&["v1", "batches"]).body(order).repeat(Repeat::Safe)).await
}

fn count(value: &Value, key: &str) -> u64 {
    number(value, key).unwrap_or(0)
}

/// How much there is to do, if that is known.
fn total(preview: &Value) -> Option<u64> {
    (at(preview, "more") == &Value::Bool(false)).then(|| count(preview, "matched"))
}

/// `cancel 3 of 4 tasks`.
fn question(verb: &Verb, preview: &Value) -> String {
    let (matched, eligible) = (count(preview, "matched"), count(preview, "eligible"));
    let more = if total(preview).is_none() { "more than " } else { "" };
    match matched - eligible.min(matched) {
        0 => format!("{} {more}{}", verb.name, verb.count(matched)),
        _ => format!("{} {eligible} of {more}{}", verb.name, verb.count(matched)),
    }
}

fn show(out: &Out, verb: &Verb, question: &str, preview: &Value, first: &[Value]) {
    out.say(&format!("{question}:"));
    let states = at(preview, "states").as_object().into_iter().flatten();
    let rows = states.map(|(state, seen)| {
        let named = Cell::toned(state, Tone::of_state(state));
        vec![named, Cell::of(seen, "eligible"), Cell::of(seen, "ineligible")]
    });
    let titles = ["STATE", "ELIGIBLE", "SKIPPED"];
    out.say(out.grid_talk(&titles, rows.collect()).trim_end());
    let now = super::times::now();
    let cells = |item| verb.columns.iter().map(|(_, cell)| cell(item, now)).collect();
    let titles: Vec<&str> = verb.columns.iter().map(|(title, _)| *title).collect();
    out.say(out.grid_talk(&titles, first.iter().map(cells).collect()).trim_end());
    if count(preview, "matched") > first.len() as u64 {
        out.say("…");
    }
}

/// With `--dry-run` the preview was all; programs get it, or what matched.
async fn dry_end(
    out: &Out,
    verb: &Verb,
    mut list: Pages<'_>,
    preview: &Value,
) -> Result<Exit, Failure> {
    match out.format {
        Format::Table => out.say("dry run: nothing was changed"),
        Format::Json => out.json(preview)?,
        Format::Jsonl | Format::Id => {
            while !list.ended() {
                out.list(&list.next(usize::MAX).await?, verb.columns)?;
            }
        }
    }
    Ok(Exit::Ok)
}

/// Waits for the end of a batch and tells it.
pub(crate) async fn follow(
    client: &Client,
    out: &Out,
    id: &str,
    total: Option<u64>,
) -> Result<Exit, Failure> {
    let bar = progress(out, total);
    let ended = tokio::select! {
        biased;
        ended = until_ended(client, id, &bar) => ended,
        _ = tokio::signal::ctrl_c() => Err(left(id, Exit::Interrupted, "interrupted")),
    };
    bar.finish_and_clear();
    finish(out, &ended?)
}

async fn until_ended(client: &Client, id: &str, bar: &ProgressBar) -> Result<Value, Failure> {
    loop {
        let batch =
            client.body(Call::get(&["v1", "batches", id])).await.map_err(|f| match f.code {
                Exit::Unreachable => left(id, f.code, &f.message),
                _ => f,
            })?;
        bar.set_position(count(&batch, "matched"));
        if text(&batch, "state") != "running" {
            return Ok(batch);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Nobody waits any more; the batch does not mind.
fn left(id: &str, code: Exit, message: &str) -> Failure {
    let hint = format!(
        "the batch goes on: `windlass batch watch {id}` waits for it, `windlass batch stop {id}` \
         stops it"
    );
    Failure::new(code, message, hint)
}

fn progress(out: &Out, total: Option<u64>) -> ProgressBar {
    if !out.draws() {
        return ProgressBar::hidden();
    }
    let (bar, look) = match total {
        Some(total) => (ProgressBar::new(total), "{wide_bar} {pos}/{len} {eta}"),
        None => (ProgressBar::no_length(), "{spinner} {pos}"),
    };
    if let Ok(style) = ProgressStyle::with_template(look) {
        bar.set_style(style);
    }
    bar
}

/// Shows how a batch ended; what did not work decides how the command ends.
fn finish(out: &Out, batch: &Value) -> Result<Exit, Failure> {
    match out.format {
        Format::Table => out.line(&summary(batch))?,
        Format::Json | Format::Jsonl => out.json(batch)?,
        Format::Id => out.line(text(batch, "id"))?,
    }
    let (failed, stopped) = (count(batch, "failed"), text(batch, "state") == "stopped");
    if failed == 0 && !stopped {
        return Ok(Exit::Ok);
    }
    let code = if done(batch) > 0 { Exit::Partly } else { Exit::Failed };
    let mut message = match stopped {
        true => format!("the batch was stopped: {}", clean(text(batch, "reason"))),
        false => format!("{failed} of {} failed:", count(batch, "matched")),
    };
    for error in at(batch, "errors").as_array().into_iter().flatten() {
        let (task, what) = (clean(text(error, "task")), clean(text(error, "message")));
        message.push_str(&format!("\n  {task}: {what}"));
    }
    let hint = "the same command again tries those that are left";
    Err(Failure::new(code, message, hint))
}

fn done(batch: &Value) -> u64 {
    ["changed", "requested", "already"].iter().map(|key| count(batch, key)).sum()
}

/// `cancel: 3 of 4 tasks done, 1 skipped`.
pub(crate) fn summary(batch: &Value) -> String {
    let matched = count(batch, "matched");
    let (one, many) = match text(batch, "of") {
        "dead_letters" => ("dead letter", "dead letters"),
        _ => ("task", "tasks"),
    };
    let things = if matched == 1 { one } else { many };
    let mut line = format!("{}: {} of {matched} {things} done", text(batch, "action"), done(batch));
    for word in ["skipped", "failed"] {
        match count(batch, word) {
            0 => {}
            n => line.push_str(&format!(", {n} {word}")),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::output::plain_out;

    fn batch(state: &str, changed: u64, failed: u64) -> Value {
        json!({"id": "bat_1", "action": "requeue", "of": "tasks", "state": state,
            "matched": 4, "changed": changed, "requested": 1, "already": 0, "skipped": 1,
            "failed": failed, "reason": "stopped by ann",
            "errors": [{"task": "tsk_1", "message": "no such step"}]})
    }

    #[test]
    fn the_end_of_a_batch_is_the_end_of_the_command() {
        let out = plain_out();
        assert_eq!(finish(&out, &batch("done", 2, 0)).unwrap(), Exit::Ok);
        let failure = finish(&out, &batch("done", 1, 1)).unwrap_err();
        assert_eq!(failure.code, Exit::Partly);
        assert!(failure.message.contains("tsk_1: no such step"), "{failure}");
        let mut nothing = batch("done", 0, 4);
        nothing["requested"] = json!(0);
        assert_eq!(finish(&out, &nothing).unwrap_err().code, Exit::Failed);
        let failure = finish(&out, &batch("stopped", 1, 0)).unwrap_err();
        assert_eq!(failure.code, Exit::Partly);
        assert!(failure.message.contains("stopped by ann"), "{failure}");
        assert_eq!(
            summary(&batch("done", 1, 1)),
            "requeue: 2 of 4 tasks done, 1 skipped, 1 failed"
        );
    }

    #[test]
    fn rates_people_write() {
        assert_eq!(rate("5/s").unwrap(), "5/s");
        for bad in ["", "5", "0/s", "fast"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }
}
