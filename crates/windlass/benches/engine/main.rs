//! `cargo xtask bench engine`: the whole engine on SQLite beside a bare rusqlite
//! program that does the same work with no engine. Figures are for ratios within
//! one run: rounds of all sides alternate, medians are shown. Run by hand;
//! nothing here asserts a time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a benchmark may stop
#![allow(clippy::print_stdout, clippy::print_stderr)] // it talks to a person

#[path = "../../../windlass-backends/benches/store/bare.rs"]
mod bare;
mod bulk;
#[path = "../../../windlass-backends/benches/store/measure.rs"]
mod measure;
mod memory;
mod options;
mod ours;
mod process;
mod report;
mod waiting;

use options::{Options, parse};
use report::Report;

type Part = fn(&Options, &mut Report);

/// Each part of the benchmark, in the order in which they run.
const PARTS: &[(&str, Part)] = &[
    ("bulk", bulk::bulk),
    ("single", bulk::single),
    ("backlog", bulk::backlog),
    ("steps", bulk::steps),
    ("steady", waiting::steady),
    ("slots", waiting::slots),
    ("memory", memory::memory),
];

fn main() {
    let names: Vec<&str> = PARTS.iter().map(|(name, _)| *name).collect();
    let options = parse(std::env::args().skip(1), &names).unwrap_or_else(|message| {
        eprintln!("error: {message}");
        std::process::exit(2);
    });
    if let Some(pending) = options.child {
        return memory::child(&options, pending);
    }
    let mut report = Report::new(options.json);
    for (name, part) in PARTS {
        if options.parts.is_empty() || options.parts.iter().any(|wanted| wanted == name) {
            part(&options, &mut report);
        }
    }
    report.end();
}
