//! Does one verb to the tasks or dead letters that ids or a filter name. Named
//! ones are asked for one by one; a filter is a batch of the server, see
//! `bulk.rs`. What a verb means is the server's business.

use super::bulk::{AgainArgs, BulkArgs, by_filter};
use super::client::{Call, Client};
use super::failure::{Exit, Failure};
use super::global::{Format, Global};
use super::output::{Column, Out};
use super::words::Target;
use super::{ids, single};
use serde_json::{Value, json};

/// Messages of failures that are told.
const TOLD: usize = 3;

/// A verb: `cancel` tasks, `discard` dead letters.
#[derive(Debug, Clone)]
pub(crate) struct Verb {
    /// Where the things are, `tasks` or `dead-letters`.
    pub(crate) place: &'static str,
    /// The same for a batch, where it is not what the action means anyway.
    pub(crate) of: Option<&'static str>,
    pub(crate) name: &'static str,
    /// What one of them is called, with its plural.
    pub(crate) things: (&'static str, &'static str),
    pub(crate) from_step: Option<String>,
    pub(crate) bulk: BulkArgs,
    pub(crate) again: AgainArgs,
    pub(crate) columns: &'static [Column],
}

impl Verb {
    fn call(&self, id: &str) -> Call {
        let call = Call::post(&["v1", self.place, id, self.name]);
        match &self.from_step {
            Some(step) => call.body(json!({"from_step": step})),
            None => call,
        }
    }

    pub(crate) fn count(&self, n: u64) -> String {
        let (one, many) = self.things;
        if n == 1 { format!("1 {one}") } else { format!("{n} {many}") }
    }

    /// What has a meaning for many only.
    fn check_names(&self) -> Result<(), Failure> {
        let said = [
            ("--rate", self.bulk.rate.is_some()),
            ("--detach", self.bulk.detach),
            ("--stop-above", self.again.stop_above.is_some()),
        ];
        match said.iter().find(|(_, given)| *given) {
            Some((flag, _)) => {
                let hint = "leave it out, or write a filter such as id:tsk_0123456789abc";
                Err(Failure::usage(format!("{flag} is for filters, not for ids"), hint))
            }
            None => Ok(()),
        }
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
    let names = match Target::read(words)? {
        Target::Filter(filter) => return by_filter(global, &filter, verb).await,
        Target::Names(names) => names,
    };
    verb.check_names()?;
    let (out, client) = (Out::new(global), Client::new(global)?);
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
        _ if global.dry_run => found.iter().try_for_each(|id| out.line(id)).map(|()| Exit::Ok),
        _ => finish(&out, verb, each(&client, found, verb).await),
    }
}

/// One after another: as many as somebody wrote down.
async fn each(client: &Client, ids: Vec<String>, verb: &Verb) -> Tally {
    let mut tally = Tally { matched: ids.len(), ..Tally::default() };
    for id in ids {
        let answer = client.body(verb.call(&id)).await;
        tally.add(id, answer);
        if tally.stopped.is_some() {
            break;
        }
    }
    tally
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
            let all = verb.count(matched as u64);
            let mut line = format!("{}: {done} of {all} done", verb.name);
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
