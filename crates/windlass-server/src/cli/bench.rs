//! `windlass bench`: the flags of the self-contained benchmark, and how its
//! figures are printed. What is measured and how is in `bench/`.

use super::failure::{Exit, Failure};
use super::global::{Format, Global};
use super::output::{Cell, Out, Tone};
use super::serve::failed;
use crate::bench::{self, Figure, Goal, Report, Wanted};
use clap::Args;

const EXAMPLES: &str = "\
Examples:
  windlass bench
  windlass bench --tasks 1m --payload 500 --store memory:
  windlass bench --tasks 20k --steps 5 -o json";

#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct BenchArgs {
    /// How many tasks: 500, 100k, 2m
    #[arg(long, value_name = "N", default_value = "100k", value_parser = some)]
    pub tasks: u64,

    /// Bytes of each payload, 11 at the least
    #[arg(long, value_name = "BYTES", default_value = "200", value_parser = count)]
    pub payload: u64,

    /// The store to measure, a new SQLite file in the temporary folder by default
    #[arg(long, value_name = "URL")]
    pub store: Option<String>,

    /// Tasks that wait in the store before the clock starts
    #[arg(long, value_name = "N", value_parser = count)]
    pub backlog: Option<u64>,

    /// Steps of each task that is drained [default: 1]
    #[arg(long, value_name = "N", value_parser = some)]
    pub steps: Option<u64>,

    /// Tasks a second while the time from submit to start is measured [default: 500]
    #[arg(long, value_name = "R", value_parser = some)]
    pub rate: Option<u64>,
}

/// Reads `500`, `100k`, `2m`.
fn count(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not a number; write 500, 100k or 2m");
    let lower = text.to_ascii_lowercase();
    let (digits, factor) = match lower.strip_suffix('k') {
        Some(digits) => (digits, 1_000),
        None => lower.strip_suffix('m').map_or((lower.as_str(), 1), |digits| (digits, 1_000_000)),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(factor).ok_or_else(wrong)
}

/// Like `count`, but not none at all.
fn some(text: &str) -> Result<u64, String> {
    match count(text)? {
        0 => Err("give it 1 at the least".to_owned()),
        number => Ok(number),
    }
}

pub async fn run(args: BenchArgs, global: &Global) -> Result<Exit, Failure> {
    let out = Out::new(global);
    if cfg!(debug_assertions) {
        out.say("note: a debug build is several times slower than a release build");
    }
    let wanted = Wanted {
        tasks: args.tasks,
        payload: args.payload,
        store: args.store,
        backlog: args.backlog.unwrap_or(0),
        steps: args.steps.unwrap_or(1),
        rate: args.rate.unwrap_or(500),
    };
    let say = |text: &str| out.say(text);
    let report = tokio::select! {
        report = bench::run(&wanted, &say) => report.map_err(failed)?,
        _ = tokio::signal::ctrl_c() => return Err(interrupted()),
    };
    match out.format {
        Format::Table => table(&out, &report)?,
        _ => out.line(&report.json().to_string())?,
    }
    Ok(Exit::Ok)
}

/// The process that is measured; it ends when `run` does.
pub(super) async fn node() -> Result<Exit, Failure> {
    bench::node().await.map_err(failed).map(|()| Exit::Ok)
}

/// The remote worker of the benchmark.
pub(super) async fn worker() -> Result<Exit, Failure> {
    bench::worker().await.map_err(failed).map(|()| Exit::Ok)
}

fn interrupted() -> Failure {
    let hint = "a store given with --store keeps what was submitted";
    Failure::new(Exit::Interrupted, "interrupted", hint)
}

fn table(out: &Out, report: &Report) -> Result<(), Failure> {
    let titles = ["NAME", "FIGURE", "UNIT", "RATIO", "GOAL", "WHAT"];
    out.write(&out.grid(&titles, report.figures.iter().map(row).collect()))?;
    let fact = |name: &str| super::fields::plain(&report.facts[name]);
    out.line(&format!(
        "\nwindlass {} ({} build), store {}, {} cores, payload {} bytes, backlog {}.\n\
         The measured node is a process of its own; its clients share the machine with it.\n\
         Ratios are to another figure of the same run; compare figures of one machine only.",
        fact("version"),
        fact("build"),
        fact("store"),
        fact("cores"),
        fact("payload"),
        fact("backlog"),
    ))
}

fn row(figure: &Figure) -> Vec<Cell> {
    let ratio = match (figure.beside, figure.ratio()) {
        (Some((name, _)), Some(ratio)) => format!("{ratio:.2} of {name}"),
        _ => "-".to_owned(),
    };
    let goal = match figure.goal {
        Some(Goal::Ratio(least)) => format!(">= {least} of it"),
        Some(Goal::Below(most)) => format!("< {most}"),
        None => "-".to_owned(),
    };
    let goal = match figure.met() {
        Some(true) => Cell::toned(format!("{goal}, met"), Tone::Good),
        Some(false) => Cell::toned(format!("{goal}, missed"), Tone::Bad),
        None => Cell::new(goal),
    };
    vec![
        Cell::new(figure.name),
        Cell::new(shown(figure.value)),
        Cell::new(figure.unit),
        Cell::new(ratio),
        goal,
        Cell::new(&figure.meaning),
    ]
}

/// Digits that mean something.
fn shown(value: f64) -> String {
    match value {
        v if v >= 1000.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_people_write() {
        for (text, n) in [("500", 500), ("100k", 100_000), ("2M", 2_000_000)] {
            assert_eq!(count(text), Ok(n));
        }
        for bad in ["", "k", "1.5k", "-1", "10g", "99999999999999999m"] {
            assert!(count(bad).is_err(), "{bad}");
        }
    }
}
