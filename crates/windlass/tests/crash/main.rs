//! Tests in which real processes die. This program is both sides: started by
//! cargo it is a test program with its own small harness (one test at a time,
//! since each of them wants the machine), started by itself it is the process
//! that dies. Output has the form of Rust's harness, so that totals are counted;
//! `cargo xtask crash` runs the long forms.

#![allow(clippy::expect_used, clippy::panic)] // a test fails by panicking
#![allow(clippy::print_stdout)] // the harness talks there

mod checker;
mod driver;
mod kills;
mod ledger;
#[cfg(feature = "crash-points")]
mod points;
mod poison;
mod retry;
mod sigterm;
mod stored;
mod tasks;
mod worker;

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// How long the tests are; the defaults are the short form.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Kills, and tasks while they happen.
    pub(crate) rounds: usize,
    pub(crate) tasks: u64,
    /// Deaths at each named point.
    #[cfg_attr(not(feature = "crash-points"), allow(dead_code))]
    pub(crate) points: usize,
    pub(crate) sigterms: usize,
    pub(crate) seed: u64,
}

type Test = (&'static str, fn(&Plan));

const TESTS: &[Test] = &[
    ("ledger::lines_read_as_they_were_written", |_| ledger::lines_read_as_they_were_written()),
    ("ledger::a_torn_line_does_not_swallow_the_next", |_| {
        ledger::a_torn_line_does_not_swallow_the_next();
    }),
    ("checker::a_good_run_passes", |_| checker::doctored::a_good_run_passes()),
    ("checker::a_lost_submission_is_noticed", |_| {
        checker::doctored::a_lost_submission_is_noticed();
    }),
    ("checker::an_unanswered_submission_may_be_there_or_not", |_| {
        checker::doctored::an_unanswered_submission_may_be_there_or_not();
    }),
    ("checker::a_second_task_of_one_key_is_noticed", |_| {
        checker::doctored::a_second_task_of_one_key_is_noticed();
    }),
    ("checker::a_recorded_step_that_ran_again_is_noticed", |_| {
        checker::doctored::a_recorded_step_that_ran_again_is_noticed();
    }),
    ("checker::a_step_out_of_order_is_noticed", |_| {
        checker::doctored::a_step_out_of_order_is_noticed();
    }),
    ("checker::a_missing_step_is_noticed", |_| checker::doctored::a_missing_step_is_noticed()),
    ("checker::a_task_that_did_not_end_well_is_noticed", |_| {
        checker::doctored::a_task_that_did_not_end_well_is_noticed();
    }),
    ("kills::nothing_is_lost_and_nothing_recorded_runs_again", kills::run),
    #[cfg(feature = "crash-points")]
    ("points::every_named_point", points::run),
    ("poison::healthy_tasks_survive_kills", poison::healthy_tasks_survive_kills),
    ("poison::a_culprit_is_poisoned_at_the_limit", poison::a_culprit_is_poisoned_at_the_limit),
    ("sigterm::under_load", sigterm::under_load),
    ("sigterm::a_second_signal_stops_at_once", sigterm::a_second_signal_stops_at_once),
    ("retry::a_failed_task_is_retried_in_time", retry::a_failed_task_is_retried_in_time),
];

/// A line between the harness's own.
pub(crate) fn say(text: &str) {
    println!("  {text}");
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [first, work] = args.as_slice()
        && first == driver::WORKER
    {
        worker::main(&serde_json::from_str(work).expect("what to do"));
        return ExitCode::SUCCESS;
    }
    let (plan, words) = read(&args);
    let (exact, list) = (args.iter().any(|a| a == "--exact"), args.iter().any(|a| a == "--list"));
    let wanted = |name: &str| {
        words.is_empty() || words.iter().any(|w| if exact { w == name } else { name.contains(w) })
    };
    let chosen: Vec<&Test> = TESTS.iter().filter(|(name, _)| wanted(name)).collect();
    if list {
        chosen.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    run(&chosen, &plan)
}

fn run(chosen: &[&Test], plan: &Plan) -> ExitCode {
    let began = Instant::now();
    println!("\nrunning {} tests", chosen.len());
    let mut failed = 0;
    for (name, test) in chosen {
        let good = catch_unwind(|| test(plan)).is_ok();
        failed += usize::from(!good);
        println!("test {name} ... {}", if good { "ok" } else { "FAILED" });
    }
    println!(
        "\ntest result: {}. {} passed; {failed} failed; 0 ignored; 0 measured; {} filtered out; \
         finished in {:.2}s\n",
        if failed == 0 { "ok" } else { "FAILED" },
        chosen.len() - failed,
        TESTS.len() - chosen.len(),
        began.elapsed().as_secs_f64(),
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The plan, and the words that choose tests. Options of Rust's own harness that
/// mean nothing here are passed over.
fn read(args: &[String]) -> (Plan, Vec<String>) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let seed = u64::from(since.subsec_nanos());
    let mut plan = Plan { rounds: 20, tasks: 5000, points: 5, sigterms: 5, seed };
    let mut words = vec![];
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut number = || args.next().and_then(|n| n.parse::<u64>().ok()).expect("a number");
        let small = |n: u64| usize::try_from(n).expect("a small number");
        match arg.as_str() {
            "--rounds" => plan.rounds = small(number()).max(1),
            "--tasks" => plan.tasks = number(),
            "--points" => plan.points = small(number()),
            "--sigterms" => plan.sigterms = small(number()),
            "--seed" => plan.seed = number(),
            option if option.starts_with('-') => {}
            word => words.push(word.to_owned()),
        }
    }
    (plan, words)
}
