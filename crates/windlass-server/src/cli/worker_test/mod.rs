//! `windlass worker-test`: checks a worker somebody wrote, in whatever language,
//! against the contract of docs/reference/worker-test.md. With a command it starts
//! a server in this process and the worker beside it, so that it can also be killed
//! and frozen; with a URL it uses the server to which the worker is connected. The
//! checks see only what the API shows.

mod bench;
mod checks;
mod hard;
mod program;

use super::client::{Call, Client};
use super::failure::{Exit, Failure};
use super::fields::text;
use super::global::{Format, Global};
use super::output::{Out, Tone};
use bench::Bench;
use checks::Check;
use clap::Args;
use program::Program;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  windlass worker-test 'python3 worker.py'
  windlass worker-test -- node worker.mjs --verbose
  windlass worker-test http://127.0.0.1:7450 -o json";

/// Longest lease at which a task of several leases is waited for.
const LEASE_MAX: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct WorkerTestArgs {
    /// The server at which the worker is, or the command that starts the worker
    #[arg(value_name = "URL-or-COMMAND", required_unless_present = "argv")]
    pub target: Option<String>,

    /// How long the worker may take until it asks for work
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = patience)]
    pub patience: Duration,

    /// The command word by word, after --
    #[arg(last = true, value_name = "ARG", conflicts_with = "target")]
    pub argv: Vec<String>,
}

fn patience(text: &str) -> Result<Duration, String> {
    windlass_core::clock::parse_duration(text).map_err(|e| e.message().to_owned())
}

/// How a check ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    Ok,
    /// What was seen instead.
    Failed(String),
    Skipped(&'static str),
}

impl Verdict {
    fn word(&self) -> (&'static str, Tone) {
        match self {
            Verdict::Ok => ("ok", Tone::Good),
            Verdict::Failed(_) => ("FAILED", Tone::Bad),
            Verdict::Skipped(_) => ("skipped", Tone::Faint),
        }
    }
}

pub(super) async fn run(args: WorkerTestArgs, global: &Global) -> Result<Exit, Failure> {
    let tested = async {
        match target(&args)? {
            Target::Server(url) => {
                let client = Client::new(&Global { server: url, ..global.clone() })?;
                let lease = lease_of(&client).await?;
                test(Bench::new(client, lease, None), args.patience, global).await
            }
            Target::Program(argv) => {
                let place = program::Place::start().await?;
                let url = place.url();
                let client = Client::new(&Global { server: url.clone(), ..global.clone() })?;
                let program = Program::start(argv, url)?;
                let bench = Bench::new(client, program::LEASE, Some(program));
                let tested = test(bench, args.patience, global).await;
                place.stop().await?;
                tested
            }
        }
    };
    tokio::select! {
        biased;
        exit = tested => exit,
        () = windlass::shutdown_signal() => {
            let hint = "the worker that was started is ended; run it again";
            Err(Failure::new(Exit::Interrupted, "the test was stopped", hint))
        }
    }
}

enum Target {
    Server(String),
    Program(Vec<String>),
}

fn target(args: &WorkerTestArgs) -> Result<Target, Failure> {
    let argv = match &args.target {
        Some(url) if url.starts_with("http://") || url.starts_with("https://") => {
            return Ok(Target::Server(url.clone()));
        }
        Some(line) => program::split(line)?,
        None => args.argv.clone(),
    };
    if argv.is_empty() {
        let hint = "write it like `windlass worker-test 'python3 worker.py'`";
        return Err(Failure::usage("there is no command in it", hint));
    }
    Ok(Target::Program(argv))
}

/// A server tells its lease to whoever asks for work.
async fn lease_of(client: &Client) -> Result<Duration, Failure> {
    let wish = json!({"worker": "worker-test", "kinds": ["test.nothing"], "max": 1});
    let answer = client.body(Call::post(&["v1", "worker", "lease"]).body(wish)).await?;
    let leaving = json!({"worker_id": text(&answer, "worker_id"), "held": [], "leaving": true});
    client.body(Call::post(&["v1", "worker", "report"]).body(leaving)).await?;
    windlass_core::clock::parse_duration(text(&answer, "lease")).map_err(|_| {
        Failure::new(
            Exit::Failed,
            "the server names no lease",
            "`windlass doctor` compares versions",
        )
    })
}

async fn test(mut bench: Bench, patience: Duration, global: &Global) -> Result<Exit, Failure> {
    let out = Out::new(global);
    bench.connected(patience).await?;
    let mut seen = vec![];
    for check in checks::ALL {
        let begun = Instant::now();
        let verdict = match skipped(&check, &bench) {
            Some(why) => Verdict::Skipped(why),
            None => check.run(&mut bench).await.map_or_else(Verdict::Failed, |()| Verdict::Ok),
        };
        if out.format == Format::Table {
            out.line(&line(&out, &check, &verdict))?;
        }
        seen.push((check, verdict, begun.elapsed()));
    }
    let failed = seen.iter().filter(|(_, v, _)| matches!(v, Verdict::Failed(_))).count();
    if out.format == Format::Table {
        let passed = seen.iter().filter(|(_, v, _)| *v == Verdict::Ok).count();
        let skipped = seen.len() - passed - failed;
        out.say(&format!("{passed} ok, {failed} failed, {skipped} skipped"));
    } else {
        out.json(&document(&seen, failed == 0))?;
    }
    Ok(if failed == 0 { Exit::Ok } else { Exit::Failed })
}

fn skipped(check: &Check, bench: &Bench) -> Option<&'static str> {
    if check.needs_program() && bench.program.is_none() {
        return Some("needs a command, not a URL");
    }
    let long = *check == Check::Heartbeat && bench.lease > LEASE_MAX;
    long.then_some("needs a server with a lease of 10s or less")
}

fn line(out: &Out, check: &Check, verdict: &Verdict) -> String {
    let (word, tone) = verdict.word();
    let more = match verdict {
        Verdict::Ok => String::new(),
        Verdict::Failed(found) => format!("; found: {}", super::fields::clean(found)),
        Verdict::Skipped(why) => format!("; {why}"),
    };
    let word = out.paint(&format!("{word:<8}"), tone);
    format!("{word}{:<10} {}{more}", check.name(), check.expects())
}

fn document(seen: &[(Check, Verdict, Duration)], passed: bool) -> Value {
    let checks = seen.iter().map(|(check, verdict, took)| {
        let more = match verdict {
            Verdict::Ok => Value::Null,
            Verdict::Failed(found) => json!(found),
            Verdict::Skipped(why) => json!(why),
        };
        json!({
            "check": check.name(),
            "outcome": verdict.word().0.to_lowercase(),
            "expected": check.expects(),
            "found": more,
            "seconds": (took.as_secs_f64() * 100.0).round() / 100.0,
        })
    });
    json!({"passed": passed, "checks": checks.collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::output::plain_out;

    #[test]
    fn a_url_is_a_server_and_everything_else_a_command() {
        let args = |target: Option<&str>, argv: &[&str]| WorkerTestArgs {
            target: target.map(str::to_owned),
            patience: Duration::ZERO,
            argv: argv.iter().map(|word| (*word).to_owned()).collect(),
        };
        assert!(matches!(target(&args(Some("http://x:1"), &[])), Ok(Target::Server(_))));
        let program = |args| match target(&args) {
            Ok(Target::Program(argv)) => argv,
            _ => vec![],
        };
        assert_eq!(program(args(Some("py 'a b'"), &[])), ["py", "a b"]);
        assert_eq!(program(args(None, &["py", "a b"])), ["py", "a b"]);
        assert!(target(&args(Some("  "), &[])).is_err());
    }

    #[test]
    fn a_line_says_what_was_expected_and_what_was_found() {
        let out = plain_out();
        let good = line(&out, &Check::Fail, &Verdict::Ok);
        assert!(good.starts_with("ok      fail ") && !good.contains("found"), "{good}");
        let bad = line(&out, &Check::Fail, &Verdict::Failed("it is completed".to_owned()));
        assert!(
            bad.starts_with("FAILED  fail ") && bad.ends_with("; found: it is completed"),
            "{bad}"
        );
        let seen = [(Check::Fail, Verdict::Failed("x".to_owned()), Duration::from_millis(1234))];
        let document = document(&seen, false);
        assert_eq!(
            (&document["passed"], &document["checks"][0]["outcome"]),
            (&json!(false), &json!("failed"))
        );
        assert_eq!(document["checks"][0]["seconds"], 1.23);
    }
}
