//! `windlass dev --crash-demo`: a real SIGKILL in the middle of a task, and the
//! task going on where it was. It starts a node as a child process, watches it
//! through the API like anybody else, kills it in step three, and starts it
//! again on the same file. What it shows is read from the attempts that the
//! store has; if they tell another story, the demo fails.

use super::child::{Folder, Node};
use super::client::{Call, Client};
use super::failure::{Exit, Failure};
use super::fields::{at, items, number, text};
use super::global::{Format, Global};
use super::output::{Cell, Out, Tone};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use windlass_core::state::State;

/// The step in which the node is killed, counted from one.
const KILL_IN: usize = 3;
const STEP_SECONDS: f64 = 0.8;
/// Far enough into the step that it is no boundary, far enough from its end.
const INTO_STEP: Duration = Duration::from_millis(300);
const LOOK: Duration = Duration::from_millis(40);
/// Nothing here takes longer, unless something is wrong.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) async fn run(global: &Global) -> Result<Exit, Failure> {
    tokio::select! {
        biased;
        shown = show(global) => shown,
        () = windlass::shutdown_signal() => {
            let hint = "its node is stopped and its folder removed; run it again";
            Err(Failure::new(Exit::Interrupted, "the demo was stopped", hint))
        }
    }
}

async fn show(global: &Global) -> Result<Exit, Failure> {
    let out = Out::new(global);
    let story = Story { out: &out };
    // Before the nodes, so that it is removed after they are ended.
    let folder = Folder::make()?;
    let node = Node::start(global, &folder).await?;
    story
        .tell(&format!("a node is up: process {}, http://{}", node.pid(), node.at), Tone::Plain)?;
    let id = submit(&node.client).await?;
    story.tell(&format!("submitted {id}, a demo.chain of five steps"), Tone::Plain)?;
    let mut seen = 0;
    watch(&node.client, &story, &id, &mut seen, Until::InStep).await?;
    sleep(INTO_STEP).await;
    let pid = node.pid();
    node.kill()?;
    let line = format!("killed the node (process {pid}) with SIGKILL in step {KILL_IN}");
    story.tell(&line, Tone::Bad)?;
    let node = Node::start(global, &folder).await?;
    let line = format!("started it again on the same file: process {}", node.pid());
    story.tell(&line, Tone::Plain)?;
    watch(&node.client, &story, &id, &mut seen, Until::Resumed).await?;
    story.tell(&resumed(&attempts(&node.client, &id).await?)?, Tone::Good)?;
    let task = watch(&node.client, &story, &id, &mut seen, Until::Ended).await?;
    let attempts = attempts(&node.client, &id).await?;
    story.end(&task, &attempts)?;
    check(&task, &attempts).map(|()| Exit::Ok)
}

/// Where the story goes: it is the data, except for programs, who get the
/// attempts as one document.
struct Story<'a> {
    out: &'a Out,
}

impl Story<'_> {
    fn tell(&self, line: &str, tone: Tone) -> Result<(), Failure> {
        match self.out.format {
            Format::Table => self.out.line(&self.out.paint(line, tone)),
            _ => {
                self.out.say(&self.out.paint_talk(line, tone));
                Ok(())
            }
        }
    }

    fn end(&self, task: &Value, attempts: &[Value]) -> Result<(), Failure> {
        let document = json!({"id": text(task, "id"), "task": task, "attempts": attempts});
        self.out.document(&document, |out| {
            let (titles, rows) = table(task, attempts);
            let titles: Vec<&str> = titles.iter().map(String::as_str).collect();
            out.line("")?;
            out.write(&out.grid(&titles, rows))
        })
    }
}

/// What to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    /// The step in which the node is to die has begun.
    InStep,
    /// A second attempt has begun.
    Resumed,
    Ended,
}

async fn submit(client: &Client) -> Result<String, Failure> {
    let body = json!({"kind": "demo.chain", "payload": {"step_seconds": STEP_SECONDS}});
    let task = client.body(Call::post(&["v1", "tasks"]).body(body)).await?;
    Ok(text(&task, "id").to_owned())
}

async fn attempts(client: &Client, id: &str) -> Result<Vec<Value>, Failure> {
    let answer = client.body(Call::get(&["v1", "tasks", id, "attempts"])).await?;
    Ok(items(&answer).to_vec())
}

/// Tells of every step that finishes until what is waited for has happened.
async fn watch(
    client: &Client,
    story: &Story<'_>,
    id: &str,
    seen: &mut usize,
    until: Until,
) -> Result<Value, Failure> {
    let begun = Instant::now();
    loop {
        let task = client.body(Call::get(&["v1", "tasks", id])).await?;
        let plan = plan(&task);
        let finished = finished(&task);
        // What is resumed is said before anything new is.
        let tells = if until == Until::Resumed { *seen } else { finished };
        for (index, step) in plan.iter().enumerate().take(tells).skip(*seen) {
            let line = format!("step {} of {}  {step}  done", index + 1, plan.len());
            story.tell(&line, Tone::Plain)?;
            *seen = index + 1;
        }
        let ended = text(&task, "state").parse().is_ok_and(State::is_ended);
        let there = match until {
            Until::InStep if finished >= KILL_IN => {
                return Err(other_story(&format!("step {KILL_IN} ended before the kill")));
            }
            // The next step begins as soon as the one before it is recorded.
            Until::InStep => finished + 1 == KILL_IN && text(&task, "state") == "running",
            Until::Resumed => number(&task, "attempt") > Some(1),
            Until::Ended => ended,
        };
        if there {
            return Ok(task);
        }
        if ended || begun.elapsed() > PATIENCE {
            return Err(other_story(&format!("the task is {}", text(&task, "state"))));
        }
        sleep(LOOK).await;
    }
}

fn plan(task: &Value) -> Vec<&str> {
    items(at(task, "steps")).iter().filter_map(Value::as_str).collect()
}

fn finished(task: &Value) -> usize {
    number(task, "next_step").map_or(0, |n| n as usize)
}

fn steps(attempt: &Value) -> Vec<&str> {
    items(at(attempt, "steps")).iter().map(|step| text(step, "name")).collect()
}

/// Says where the second attempt goes on, from what the first one has done.
fn resumed(attempts: &[Value]) -> Result<String, Failure> {
    let done = attempts.first().map_or(0, |first| steps(first).len());
    if attempts.len() != 2 || done == 0 {
        return Err(other_story("no second attempt went on with the first one's steps"));
    }
    let kept: Vec<String> = (1..=done).map(|n| n.to_string()).collect();
    let kept = match kept.as_slice() {
        [one] => format!("step {one} is"),
        [before @ .., last] => format!("steps {} and {last} are", before.join(", ")),
        [] => String::new(),
    };
    Ok(format!("attempt 2 resumes at step {}: {kept} not run again", done + 1))
}

/// Steps against attempts.
fn table(task: &Value, attempts: &[Value]) -> (Vec<String>, Vec<Vec<Cell>>) {
    let numbered =
        attempts.iter().map(|a| format!("ATTEMPT {}", number(a, "attempt").unwrap_or(0)));
    let titles = std::iter::once("STEP".to_owned()).chain(numbered).collect();
    let row = |(index, step): (usize, &&str)| {
        let first = Cell::new(format!("{} {step}", index + 1));
        std::iter::once(first).chain(attempts.iter().map(|a| cell(a, index, step, task))).collect()
    };
    (titles, plan(task).iter().enumerate().map(row).collect())
}

fn cell(attempt: &Value, index: usize, step: &str, task: &Value) -> Cell {
    let record = items(at(attempt, "steps")).iter().find(|record| text(record, "name") == step);
    if let Some(record) = record {
        return Cell::toned(text(record, "outcome"), Tone::Good);
    }
    let before = plan(task).iter().take(index).filter(|s| steps(attempt).contains(*s)).count();
    // The step that a lost attempt was in is the one after its last.
    if text(attempt, "outcome") == "lost" && before == index && before == steps(attempt).len() {
        return Cell::toned("killed", Tone::Bad);
    }
    Cell::toned("-", Tone::Faint)
}

/// Whether the attempts tell what the demo is there to show.
fn check(task: &Value, attempts: &[Value]) -> Result<(), Failure> {
    let plan = plan(task);
    let [first, second] = attempts else {
        return Err(other_story(&format!("there are {} attempts, not two", attempts.len())));
    };
    if text(task, "state") != "completed" {
        return Err(other_story(&format!("the task is {}", text(task, "state"))));
    }
    if text(first, "outcome") != "lost" {
        let outcome = text(first, "outcome");
        return Err(other_story(&format!("the first attempt was not lost but {outcome}")));
    }
    let (before, after) = plan.split_at_checked(KILL_IN - 1).unwrap_or((&plan, &[]));
    if steps(first) != before {
        return Err(other_story(&format!("the first attempt did {}", steps(first).join(", "))));
    }
    if steps(second) != after {
        return Err(other_story(&format!("the second attempt did {}", steps(second).join(", "))));
    }
    Ok(())
}

fn other_story(what: &str) -> Failure {
    let message = format!("this is not what should have happened: {what}");
    Failure::new(Exit::Failed, message, "run it again; if it stays, report it as a bug")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::output::plain_out;

    const PLAN: [&str; 5] = ["a", "b", "c", "d", "e"];

    fn attempt(n: u64, outcome: &str, done: &[&str]) -> Value {
        let steps: Vec<Value> =
            done.iter().map(|name| json!({"name": name, "outcome": "done"})).collect();
        json!({"attempt": n, "outcome": outcome, "steps": steps})
    }

    fn task(state: &str) -> Value {
        json!({"id": "tsk_1", "state": state, "steps": PLAN})
    }

    fn good() -> Vec<Value> {
        vec![attempt(1, "lost", &PLAN[..2]), attempt(2, "completed", &PLAN[2..])]
    }

    #[test]
    fn only_the_true_story_passes() {
        assert!(check(&task("completed"), &good()).is_ok());
        assert!(check(&task("failed"), &good()).is_err());
        let others = [
            vec![attempt(1, "completed", &PLAN)],
            vec![attempt(1, "lost", &PLAN[..2]), attempt(2, "completed", &PLAN)],
            vec![attempt(1, "lost", &PLAN[..2]), attempt(2, "completed", &PLAN[1..])],
            vec![attempt(1, "lost", &PLAN[..3]), attempt(2, "completed", &PLAN[3..])],
            vec![attempt(1, "retrying", &PLAN[..2]), attempt(2, "completed", &PLAN[2..])],
            vec![attempt(1, "lost", &[]), good().remove(0), good().remove(1)],
        ];
        for attempts in others {
            let failure = check(&task("completed"), &attempts).unwrap_err();
            assert_eq!(failure.code, Exit::Failed, "{attempts:?}");
        }
    }

    #[test]
    fn the_table_says_who_did_what() {
        let (titles, rows) = table(&task("completed"), &good());
        let titles: Vec<&str> = titles.iter().map(String::as_str).collect();
        let expected = "\
STEP  ATTEMPT 1  ATTEMPT 2
1 a   done       -
2 b   done       -
3 c   killed     done
4 d   -          done
5 e   -          done
";
        assert_eq!(plain_out().grid(&titles, rows), expected);
    }

    #[test]
    fn the_place_of_resuming_is_read_and_not_made_up() {
        let line = "attempt 2 resumes at step 3: steps 1 and 2 are not run again";
        assert_eq!(resumed(&good()).unwrap(), line);
        let one = [attempt(1, "lost", &["a"]), attempt(2, "", &[])];
        assert!(resumed(&one).unwrap().contains("step 2: step 1 is not"));
        assert!(resumed(&[attempt(1, "lost", &[]), attempt(2, "", &[])]).is_err());
        assert!(resumed(&good()[..1]).is_err());
    }
}
