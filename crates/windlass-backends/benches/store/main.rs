//! `cargo xtask bench store`: the SQLite store beside a bare rusqlite program
//! that does the same work with the same statements and no engine. Figures are
//! for ratios within one run: rounds of both alternate, medians are shown. Run
//! by hand; nothing here asserts a time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a benchmark may stop
#![allow(clippy::print_stdout, clippy::print_stderr)] // it talks to a person

mod bare;
mod measure;
mod ours;
mod report;

use measure::{Phases, median};
use report::{Line, Report};
use std::path::PathBuf;

struct Options {
    json: bool,
    ceiling: bool,
    rounds: usize,
    backlog: usize,
    /// Only this batch size.
    batch: Option<usize>,
    only: Option<String>,
    dir: PathBuf,
}

const USAGE: &str = "usage: cargo xtask bench store [--ceiling] [--rounds N] [--backlog N] \
                     [--batch N] [--only batches|single|backlog] [--dir DIR] [-o table|json]";

fn parse(args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options {
        json: false,
        ceiling: false,
        rounds: 5,
        backlog: 1_000_000,
        batch: None,
        only: None,
        dir: std::env::temp_dir(),
    };
    // Cargo passes --bench to every benchmark.
    let mut args = args.filter(|a| a != "--bench");
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        let number =
            |text: String| text.parse::<usize>().map_err(|_| format!("`{text}` is no number"));
        match arg.as_str() {
            "--ceiling" => options.ceiling = true,
            "--rounds" => options.rounds = number(value()?)?.max(1),
            "--backlog" => options.backlog = number(value()?)?.max(1000),
            "--batch" => options.batch = Some(number(value()?)?),
            "--only" => match value()?.as_str() {
                part @ ("batches" | "single" | "backlog") => options.only = Some(part.to_owned()),
                other => return Err(format!("--only {other} is not a part\n{USAGE}")),
            },
            "--dir" => options.dir = value()?.into(),
            "-o" => match value()?.as_str() {
                "json" => options.json = true,
                "table" => options.json = false,
                other => return Err(format!("-o {other} is not a format\n{USAGE}")),
            },
            other => return Err(format!("`{other}` is not an option\n{USAGE}")),
        }
    }
    Ok(options)
}

fn main() {
    let options = parse(std::env::args().skip(1)).unwrap_or_else(|message| {
        eprintln!("error: {message}");
        std::process::exit(2);
    });
    let wants = |name: &str| options.only.as_deref().is_none_or(|only| only == name);
    let mut report = Report::new(options.json);
    if wants("batches") {
        for (batch, tasks) in [(1, 3_000), (10, 20_000), (100, 100_000), (1000, 200_000)] {
            if options.batch.is_none_or(|only| only == batch) {
                batches(&options, batch, tasks, &mut report);
            }
        }
    }
    if wants("single") {
        for callers in [16, 64] {
            single(&options, callers, &mut report);
        }
    }
    if wants("backlog") {
        backlog(&options, &mut report);
    }
    report.end();
}

fn fresh(options: &Options) -> tempfile::TempDir {
    tempfile::Builder::new().prefix("windlass-bench").tempdir_in(&options.dir).expect("a folder")
}

/// Per second, by the median of the rounds.
fn rate(tasks: usize, rounds: &[Phases], pick: impl Fn(&Phases) -> f64) -> f64 {
    tasks as f64 / median(rounds.iter().map(pick).collect())
}

fn batches(options: &Options, batch: usize, tasks: usize, report: &mut Report) {
    let (mut ours, mut bare) = (vec![], vec![]);
    for _ in 0..options.rounds {
        let dir = fresh(options);
        ours.push(ours::life(&dir.path().join("ours.db"), batch, tasks));
        if options.ceiling {
            bare.push(bare::life(&dir.path().join("bare.db"), batch, tasks));
        }
    }
    let phase = |i: usize| move |p: &Phases| p[i];
    for (i, name) in ["submit", "claim", "record"].into_iter().enumerate() {
        let ceiling = options.ceiling.then(|| rate(tasks, &bare, phase(i)));
        report.line(Line::new(name, batch, rate(tasks, &ours, phase(i)), ceiling));
    }
    let whole = |p: &Phases| p.iter().sum::<f64>();
    let ceiling = options.ceiling.then(|| rate(tasks, &bare, whole));
    report.line(Line::new("life", batch, rate(tasks, &ours, whole), ceiling));
}

fn single(options: &Options, callers: usize, report: &mut Report) {
    let each = 40_000 / callers;
    let (mut ours, mut bare) = (vec![], vec![]);
    for _ in 0..options.rounds {
        let dir = fresh(options);
        ours.push(ours::single(&dir.path().join("ours.db"), callers, each));
        if options.ceiling {
            bare.push(bare::single(&dir.path().join("bare.db"), callers, each));
        }
    }
    let total = (callers * each) as f64;
    let ceiling = options.ceiling.then(|| total / median(bare));
    report.line(Line::new("single submits", callers, total / median(ours), ceiling));
}

/// Takes 100,000 tasks through claim and record out of a small and a large
/// backlog; the ratio of the two says what a backlog costs.
fn backlog(options: &Options, report: &mut Report) {
    let take = 100_000;
    let mut rates = vec![];
    for pending in [10_000, take, options.backlog] {
        let take = take.min(pending);
        let mut rounds = vec![];
        for _ in 0..options.rounds.min(3) {
            let dir = fresh(options);
            rounds.push(ours::drain(&dir.path().join("ours.db"), pending, take));
        }
        let rate = take as f64 / median(rounds);
        report.line(Line::new(&format!("drain {take} of"), pending, rate, None));
        rates.push(rate);
    }
    report.ratio("large backlog / small backlog", rates[2] / rates[1]);
}
