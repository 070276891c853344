//! `windlass submit`: one task from the command line, or many from a file. Here
//! are the flags and the sending of one; how its payload is read is in
//! `payload.rs`, files of submissions are in `bulk.rs`. Whether the fields make
//! sense is the server's to say.

mod bulk;
pub(crate) mod payload;

use super::client::{Call, Client, Repeat};
use super::failure::{Exit, Failure};
use super::follow::{Detail, follow};
use super::global::{Format, Global};
use super::output::Out;
use super::single;
use clap::Args;
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::time::Duration;
use windlass_core::clock::{Timestamp, parse_duration};

const EXAMPLES: &str = "\
Values: k=3, k=true, k=[1,2] and k={\"a\":1} are JSON, everything else is text;
k:=VALUE is always JSON (k:=null, k:=\"3\" for the text 3).

Examples:
  windlass submit image.resize asset=cat.png width=200
  windlass submit report.build --data @report.json --delay 10m --wait
  windlass submit mail.send to=ann@example.com --unique welcome-ann
  windlass submit --from tasks.jsonl
Each line of a --from file is a submission as in the API: {\"kind\":\"mail.send\",\"payload\":{}}";

#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SubmitArgs {
    /// What to run, such as image.resize
    #[arg(required_unless_present = "from", conflicts_with = "from")]
    kind: Option<String>,

    /// Fields of the payload
    #[arg(value_name = "KEY=VALUE", conflicts_with_all = ["data", "from"])]
    fields: Vec<String>,

    /// The whole payload: JSON, @FILE or - for stdin
    #[arg(long, value_name = "JSON|@FILE|-", conflicts_with = "from")]
    data: Option<String>,

    /// The queue, if not the kind's own
    #[arg(long, conflicts_with = "from")]
    queue: Option<String>,

    /// Start this much later: 90s, 5m, 2h30m
    #[arg(long, value_name = "DURATION", conflicts_with_all = ["at", "from"], value_parser = duration)]
    delay: Option<String>,

    /// Start at this time: 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", conflicts_with = "from", value_parser = time)]
    at: Option<Timestamp>,

    /// From -10 to 10, higher first
    #[arg(long, value_name = "N", allow_negative_numbers = true, conflicts_with = "from")]
    priority: Option<i32>,

    /// Give up when not started this long after it is due
    #[arg(long, value_name = "DURATION", conflicts_with = "from", value_parser = duration)]
    deadline: Option<String>,

    /// Only these steps, in this order
    #[arg(long, value_name = "A,B,C", conflicts_with = "from")]
    steps: Option<String>,

    /// A label to find it by; may be given several times
    #[arg(long = "label", value_name = "KEY=VALUE", conflicts_with = "from")]
    labels: Vec<String>,

    /// No second task with this key while one is alive
    #[arg(long, value_name = "KEY", conflicts_with = "from")]
    unique: Option<String>,

    /// The same key gives the same task again instead of a second one
    #[arg(long, value_name = "KEY", conflicts_with = "from")]
    idempotency_key: Option<String>,

    /// A file for the task: file://, http:// or s3://
    #[arg(long, value_name = "URI", conflicts_with = "from")]
    input: Option<String>,

    /// Wait for the end and print the result
    #[arg(long, conflicts_with = "from")]
    wait: bool,

    /// Wait at most this long
    #[arg(long, value_name = "DURATION", requires = "wait", value_parser = parse_duration_arg)]
    timeout: Option<Duration>,

    /// Submit every line of a file, - for stdin
    #[arg(long, value_name = "FILE.jsonl")]
    from: Option<PathBuf>,
}

/// Checks a duration here, so that a typing error is told without a server.
fn duration(text: &str) -> Result<String, String> {
    parse_duration(text).map(|_| text.to_owned()).map_err(|e| e.message().to_owned())
}

/// A duration flag of this and other commands.
pub(crate) fn parse_duration_arg(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|e| e.message().to_owned())
}

fn time(text: &str) -> Result<Timestamp, String> {
    Timestamp::parse(text).map_err(|e| e.message().to_owned())
}

pub(crate) async fn run(args: SubmitArgs, global: &Global) -> Result<Exit, Failure> {
    let out = Out::new(global);
    if let Some(path) = &args.from {
        return bulk::submit(global, &out, path).await;
    }
    let client = Client::new(global)?;
    let document = document(&args).await?;
    let key = match &args.idempotency_key {
        Some(key) => key.clone(),
        None => format!("cli-{:032x}", rand::random::<u128>()),
    };
    check_key(&key)?;
    let call = Call::post(&["v1", "tasks"])
        .body(document)
        .header("idempotency-key", &key)
        .repeat(Repeat::Safe)
        .if_lost(format!("it may be stored: send it again with --idempotency-key {key}"));
    if global.dry_run {
        return single::show_request(&out, &call);
    }
    let answer = client.send(call).await?;
    if answer.header("windlass-existing").is_some() {
        out.say("no new task: a live one has this unique key");
    } else if answer.status == 200 && args.idempotency_key.is_some() {
        out.say("no new task: this was submitted before with the same idempotency key");
    }
    if !args.wait {
        return single::show_task(&out, &answer.body).map(|()| Exit::Ok);
    }
    let id = super::fields::text(&answer.body, "id");
    if out.format == Format::Table {
        out.say(&format!("submitted {id}"));
    }
    follow(&client, &out, id, Detail::States, args.timeout).await
}

/// A header holds only plain characters; the server should not be asked else.
fn check_key(key: &str) -> Result<(), Failure> {
    if !key.is_empty() && key.bytes().all(|b| b.is_ascii_graphic()) {
        return Ok(());
    }
    let hint = "use letters, digits and signs, without spaces";
    Err(Failure::usage("this idempotency key cannot be sent", hint))
}

async fn document(args: &SubmitArgs) -> Result<Value, Failure> {
    let mut body = Map::new();
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            body.insert(key.to_owned(), value);
        }
    };
    let payload = match &args.data {
        Some(data) => Some(payload::from_data(data).await?),
        None if args.fields.is_empty() => None,
        None => Some(payload::from_fields(&args.fields)?),
    };
    put("kind", args.kind.as_ref().map(|kind| json!(kind)));
    put("payload", payload);
    put("queue", args.queue.as_ref().map(|queue| json!(queue)));
    put("delay", args.delay.as_ref().map(|delay| json!(delay)));
    put("run_at", args.at.map(|at| json!(at)));
    put("priority", args.priority.map(|n| json!(n)));
    put("deadline", args.deadline.as_ref().map(|deadline| json!(deadline)));
    put("steps", args.steps.as_ref().map(|steps| json!(names(steps))));
    put("labels", labels(&args.labels)?);
    put("unique", args.unique.as_ref().map(|key| json!({"key": key, "for": "live"})));
    put("input", args.input.as_ref().map(|uri| json!(uri)));
    Ok(Value::Object(body))
}

fn names(list: &str) -> Vec<&str> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).collect()
}

fn labels(given: &[String]) -> Result<Option<Value>, Failure> {
    let mut labels = Map::new();
    for label in given {
        let wrong =
            || Failure::usage(format!("`{label}` is not a label"), "write --label tenant=acme");
        let (key, value) =
            label.split_once('=').filter(|(k, _)| !k.is_empty()).ok_or_else(wrong)?;
        if labels.insert(key.to_owned(), json!(value)).is_some() {
            let message = format!("the label `{key}` was given twice");
            return Err(Failure::usage(message, "give each label once"));
        }
    }
    Ok((!labels.is_empty()).then_some(Value::Object(labels)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: SubmitArgs,
    }

    fn args(words: &[&str]) -> Result<SubmitArgs, clap::Error> {
        let words = std::iter::once("submit").chain(words.iter().copied());
        Line::try_parse_from(words).map(|line| line.args)
    }

    #[tokio::test]
    async fn flags_become_a_submission() {
        let given = args(&[
            "image.resize",
            "w=3",
            "--queue",
            "media",
            "--delay",
            "5m",
            "--priority",
            "-3",
            "--deadline",
            "1h",
            "--steps",
            "a, b",
            "--label",
            "tenant=acme",
            "--label",
            "x=",
            "--unique",
            "k",
            "--input",
            "file:///x",
        ]);
        let body = document(&given.unwrap()).await.unwrap();
        let expected = json!({
            "kind": "image.resize", "payload": {"w": 3}, "queue": "media", "delay": "5m",
            "priority": -3, "deadline": "1h", "steps": ["a", "b"],
            "labels": {"tenant": "acme", "x": ""}, "unique": {"key": "k", "for": "live"},
            "input": "file:///x",
        });
        assert_eq!(body, expected);
    }

    #[tokio::test]
    async fn what_is_not_given_is_not_sent() {
        let body = document(&args(&["hello"]).unwrap()).await.unwrap();
        assert_eq!(body, json!({"kind": "hello"}));
        let at = args(&["hello", "--at", "2026-01-31T12:00:00+02:00", "--steps", ""]).unwrap();
        let body = document(&at).await.unwrap();
        assert_eq!(body, json!({"kind": "hello", "run_at": "2026-01-31T10:00:00Z", "steps": []}));
    }

    #[test]
    fn flags_that_do_not_go_together() {
        for words in [
            &[][..],
            &["k", "a=1", "--data", "{}"],
            &["k", "--delay", "5m", "--at", "2026-01-31T12:00:00Z"],
            &["k", "--delay", "soon"],
            &["k", "--at", "tomorrow"],
            &["k", "--timeout", "5s"],
            &["k", "--from", "x.jsonl"],
            &["--from", "x.jsonl", "--wait"],
        ] {
            assert!(args(words).is_err(), "{words:?}");
        }
        assert!(args(&["--from", "-"]).is_ok());
    }

    #[test]
    fn labels_need_a_key_and_stand_once() {
        assert!(labels(&["=x".to_owned()]).is_err());
        assert!(labels(&["x".to_owned()]).is_err());
        assert!(labels(&["x=1".to_owned(), "x=2".to_owned()]).is_err());
    }
}
