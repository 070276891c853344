//! Does one verb to the tasks or dead letters that ids or a filter name. For a
//! filter it takes a snapshot of the matching ids, shows a preview, asks, and
//! sends one request per id with a few in flight, so that what changes meanwhile
//! does not matter. What a verb means is the server's business.

use super::client::{Call, Client};
use super::confirm::confirm;
use super::failure::{Exit, Failure};
use super::fields;
use super::global::{Format, Global};
use super::output::{Cell, Column, Out};
use super::pages::{Pages, Wanted};
use super::rate::Rate;
use super::words::Target;
use super::{ids, single};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

const IN_FLIGHT: usize = 8;
/// Matches that a preview counts and shows.
const COUNTED: usize = 10_000;
const SHOWN: usize = 5;
/// Messages of failures that are told.
const TOLD: usize = 3;

/// A verb: `cancel` tasks, `discard` dead letters.
#[derive(Debug, Clone)]
pub(crate) struct Verb {
    /// Where the things are, `tasks` or `dead-letters`.
    pub(crate) place: &'static str,
    pub(crate) name: &'static str,
    /// What one of them is called, with its plural.
    pub(crate) things: (&'static str, &'static str),
    pub(crate) body: Option<Value>,
    pub(crate) rate: Option<Rate>,
    pub(crate) columns: &'static [Column],
}

impl Verb {
    fn call(&self, id: &str) -> Call {
        let call = Call::post(&["v1", self.place, id, self.name]);
        match &self.body {
            Some(body) => call.body(body.clone()),
            None => call,
        }
    }

    fn count(&self, n: usize) -> String {
        let (one, many) = self.things;
        if n == 1 { format!("1 {one}") } else { format!("{n} {many}") }
    }
}

/// How it went.
#[derive(Debug, Default)]
struct Tally {
    matched: usize,
    done: Vec<String>,
    skipped: usize,
    failed: usize,
    messages: Vec<String>,
    /// The server went away: what was left was not tried.
    stopped: Option<Failure>,
}

/// Does `verb` to what `words` name.
pub(crate) async fn act(global: &Global, words: &[String], verb: &Verb) -> Result<Exit, Failure> {
    let (out, client) = (Out::new(global), Client::new(global)?);
    match Target::read(words)? {
        Target::Filter(filter) => by_filter(global, &out, &client, &filter, verb).await,
        Target::Names(names) => {
            let mut found = Vec::new();
            for name in names {
                found.push(ids::find(&client, name).await?);
            }
            match found.as_slice() {
                [id] if global.dry_run => single::show_request(&out, &verb.call(id)),
                [id] => {
                    let answer = client.send(verb.call(id)).await?;
                    if answer.status == 202 {
                        out.say(&format!("{}: the node that runs it was asked", verb.name));
                    }
                    single::show_task(&out, &answer.body).map(|()| Exit::Ok)
                }
                _ if global.dry_run => {
                    found.iter().try_for_each(|id| out.line(id)).map(|()| Exit::Ok)
                }
                _ => finish(&out, verb, run(&out, &client, found, verb).await),
            }
        }
    }
}

async fn by_filter(
    global: &Global,
    out: &Out,
    client: &Client,
    filter: &str,
    verb: &Verb,
) -> Result<Exit, Failure> {
    let call = Call::get(&["v1", verb.place]).query("q", filter);
    let mut pages = Pages::new(client, call);
    let mut matches = pages.collect(Wanted::AtMost(COUNTED)).await?;
    if matches.is_empty() {
        out.say(&format!("no {} match `{filter}`", verb.things.1));
        // Who reads a table has been told; a program gets its document.
        return match out.format {
            Format::Table => Ok(Exit::Ok),
            _ => finish(out, verb, Tally::default()),
        };
    }
    let count = match pages.ended() {
        true => verb.count(matches.len()),
        false => format!("more than {}", verb.count(matches.len())),
    };
    preview(out, verb, &count, &matches);
    if global.dry_run {
        let shown = json!({"matched": matches.len(), "more": !pages.ended()});
        return dry_end(out, &matches, &shown);
    }
    confirm(global, &format!("{} {count}", verb.name)).await?;
    let mut snapshot: Vec<String> = matches.drain(..).map(|item| id_of(&item)).collect();
    while !pages.ended() {
        snapshot.extend(pages.next(COUNTED).await?.iter().map(id_of));
    }
    finish(out, verb, run(out, client, snapshot, verb).await)
}

fn id_of(item: &Value) -> String {
    fields::text(item, "id").to_owned()
}

fn preview(out: &Out, verb: &Verb, count: &str, matches: &[Value]) {
    let now = super::times::now();
    let first = matches.iter().take(SHOWN);
    let rows = first.map(|item| verb.columns.iter().map(|(_, cell)| cell(item, now)).collect());
    let rows: Vec<Vec<Cell>> = rows.collect();
    let titles: Vec<&str> = verb.columns.iter().map(|(title, _)| *title).collect();
    out.say(&format!("{} {count}:", verb.name));
    out.say(out.grid_talk(&titles, rows).trim_end());
    if matches.len() > SHOWN {
        out.say("…");
    }
}

/// With `--dry-run` the preview was all; programs get what matched.
fn dry_end(out: &Out, matches: &[Value], shown: &Value) -> Result<Exit, Failure> {
    match out.format {
        Format::Table => out.say("dry run: nothing was changed"),
        Format::Json => out.json(shown)?,
        Format::Jsonl => matches.iter().try_for_each(|item| out.json(item))?,
        Format::Id => matches.iter().try_for_each(|item| out.line(&id_of(item)))?,
    }
    Ok(Exit::Ok)
}

/// Sends the verb to each id, a few at a time.
async fn run(out: &Out, client: &Client, ids: Vec<String>, verb: &Verb) -> Tally {
    let bar = progress(out, ids.len());
    let mut ticker = verb.rate.map(Rate::ticker);
    let mut tally = Tally { matched: ids.len(), ..Tally::default() };
    let mut left = ids.into_iter();
    let mut flying = FuturesUnordered::new();
    loop {
        let room = flying.len() < IN_FLIGHT && left.len() > 0 && tally.stopped.is_none();
        tokio::select! {
            () = turn(&mut ticker), if room => {
                let Some(id) = left.next() else { continue };
                let call = verb.call(&id);
                flying.push(async move { (id, client.body(call).await) });
            }
            Some((id, answer)) = flying.next(), if !flying.is_empty() => {
                tally.add(id, answer);
                bar.inc(1);
            }
            else => break,
        }
    }
    bar.finish_and_clear();
    tally
}

/// Waits until the rate allows the next one.
async fn turn(ticker: &mut Option<tokio::time::Interval>) {
    if let Some(ticker) = ticker {
        ticker.tick().await;
    }
}

fn progress(out: &Out, total: usize) -> ProgressBar {
    if !out.draws() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(total as u64);
    if let Ok(style) = ProgressStyle::with_template("{wide_bar} {pos}/{len} {eta}") {
        bar.set_style(style);
    }
    bar
}

impl Tally {
    fn add(&mut self, id: String, answer: Result<Value, Failure>) {
        match answer {
            Ok(_) => self.done.push(id),
            Err(f) if f.code == Exit::Conflict => self.skipped += 1,
            Err(f) => {
                self.failed += 1;
                if self.messages.len() < TOLD {
                    self.messages.push(format!("{id}: {}", f.message));
                }
                if f.code == Exit::Unreachable {
                    self.stopped = Some(f);
                }
            }
        }
    }

    fn untried(&self) -> usize {
        self.matched - self.done.len() - self.skipped - self.failed
    }
}

fn finish(out: &Out, verb: &Verb, tally: Tally) -> Result<Exit, Failure> {
    let Tally { matched, skipped, failed, .. } = tally;
    let (done, untried) = (tally.done.len(), tally.untried());
    let summary = json!({
        "action": verb.name, "matched": matched, "done": done, "skipped": skipped,
        "failed": failed, "untried": untried, "errors": tally.messages,
    });
    match out.format {
        Format::Table => {
            let mut line = format!("{}: {done} of {} done", verb.name, verb.count(matched));
            for (n, word) in [(skipped, "skipped"), (failed, "failed"), (untried, "not tried")] {
                if n > 0 {
                    line.push_str(&format!(", {n} {word}"));
                }
            }
            out.line(&line)?;
        }
        Format::Json | Format::Jsonl => out.json(&summary)?,
        Format::Id => tally.done.iter().try_for_each(|id| out.line(id))?,
    }
    if failed == 0 {
        return Ok(Exit::Ok);
    }
    let code = match &tally.stopped {
        _ if done + skipped > 0 => Exit::Partly,
        Some(stopped) => stopped.code,
        None => Exit::Failed,
    };
    let message = format!("{failed} of {matched} failed:\n  {}", tally.messages.join("\n  "));
    let hint = match tally.stopped {
        Some(stopped) => stopped.hint,
        None => "the same command again tries those that are left".to_owned(),
    };
    Err(Failure::new(code, message, hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(code: Exit) -> Result<Value, Failure> {
        Err(Failure::new(code, "no", "hint"))
    }

    #[test]
    fn conflicts_are_skipped_and_others_fail() {
        let mut tally = Tally { matched: 6, ..Tally::default() };
        tally.add("a".into(), Ok(Value::Null));
        tally.add("b".into(), failure(Exit::Conflict));
        for id in ["c", "d", "e", "f"] {
            tally.add(id.into(), failure(Exit::Failed));
        }
        assert_eq!((tally.done.len(), tally.skipped, tally.failed), (1, 1, 4));
        assert_eq!(tally.messages, ["c: no", "d: no", "e: no"]);
        assert!(tally.stopped.is_none());
        assert_eq!(tally.untried(), 0);
    }

    #[test]
    fn a_lost_server_stops_the_rest() {
        let mut tally = Tally { matched: 10, ..Tally::default() };
        tally.add("a".into(), failure(Exit::Unreachable));
        assert_eq!(tally.untried(), 9);
        assert_eq!(tally.stopped.unwrap().code, Exit::Unreachable);
    }
}
