//! `cargo xtask test`: formatting, lints, then every test of the workspace, and
//! a closing line with totals. All steps run even when an early one fails, so
//! one run shows everything that is wrong. How results are read from the test
//! output is in `tally.rs`, how stores are compared in `parity.rs`.

mod parity;
mod tally;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::fuzz;
use crate::programs;
use crate::root;
use crate::stop::{self, Stop};
use tally::Tally;

const FORMAT: &[&str] = &["fmt", "--all", "--check"];
const LINTS: &[&str] =
    &["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"];
const TESTS: &[&str] = &["test", "--workspace", "--all-features", "--no-fail-fast"];

pub(crate) fn run(root: &Path, args: &[String]) -> Result<(), Stop> {
    stop::no_arguments("test", args)?;
    programs::install_missing()?;
    let mut problems = Vec::new();
    for step in [FORMAT, LINTS] {
        heading(step);
        if !root::cargo(root, step).status().map_err(|e| no_cargo(&e))?.success() {
            problems.push(format!("`cargo {}` failed", step.join(" ")));
        }
    }
    heading(TESTS);
    let (mut tally, tests_ended_well) = run_tests(root::cargo(root, TESTS))?;
    // Failed tests are counted one by one; this is for a test program that did
    // not compile or died before it could report.
    if !tests_ended_well && tally.failed == 0 {
        problems.push(format!("`cargo {}` failed", TESTS.join(" ")));
    }
    println!("\n== the API's document, fuzzed");
    match fuzz::short(root) {
        Ok(cases) => {
            println!("{cases} cases, no finding");
            tally.passed += 1;
        }
        Err(stop) => problems.push(stop.message().unwrap_or("the fuzzer failed").to_owned()),
    }
    report(&tally, problems)
}

/// Prints the summary. Problems outside single tests count as failures too, so
/// that the closing line never reads "0 failed" when the exit code is not zero.
fn report(tally: &Tally, mut problems: Vec<String>) -> Result<(), Stop> {
    if tally.passed + tally.failed == 0 {
        problems.push("no test ran".to_owned());
    }
    problems.extend(parity::problems(&tally.cases));
    println!("\n== summary");
    for line in parity::summary(&tally.cases) {
        println!("{line}");
    }
    for problem in &problems {
        println!("FAILED: {problem}");
    }
    let failed = tally.failed + problems.len();
    println!("{} passed, {failed} failed, {} skipped", tally.passed, tally.ignored);
    if failed == 0 { Ok(()) } else { Err(Stop::Failed) }
}

fn heading(step: &[&str]) {
    println!("\n== cargo {}", step.join(" "));
}

/// Runs the tests, passing their output on while reading it.
fn run_tests(mut command: Command) -> Result<(Tally, bool), Stop> {
    // Colour codes and uncaptured output would hide result lines.
    command.env("CARGO_TERM_COLOR", "never").env_remove("RUST_TEST_NOCAPTURE");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| no_cargo(&e))?;
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    let mut tally = Tally::default();
    let copied = std::thread::scope(|scope| {
        // Both streams are copied by whole lines, or they would mix within a line.
        let other = scope.spawn(|| copy_lines(errors, std::io::stderr(), |_| {}));
        let copied = copy_lines(output, std::io::stdout(), |line| tally.read_line(line));
        copied.and(other.join().unwrap_or(Ok(())))
    });
    copied.map_err(|e| Stop::Error(format!("passing on test output: {e}")))?;
    let status = child.wait().map_err(|e| no_cargo(&e))?;
    Ok((tally, status.success()))
}

/// Copies bytes, not text, since a test may print anything; `read` gets each line.
fn copy_lines(
    from: Option<impl Read>,
    mut to: impl Write,
    mut read: impl FnMut(&str),
) -> std::io::Result<()> {
    let Some(from) = from else { return Ok(()) };
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line)? > 0 {
        to.write_all(&line)?;
        read(&String::from_utf8_lossy(&line));
        line.clear();
    }
    to.flush()
}

fn no_cargo(error: &std::io::Error) -> Stop {
    Stop::Error(format!("cannot run cargo: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_STORES: &str = "test memory::claim::a ... ok\ntest sqlite::claim::a ... ok\n";

    fn read(output: &str) -> Tally {
        let mut tally = Tally::default();
        output.lines().for_each(|line| tally.read_line(line));
        tally
    }

    #[test]
    fn a_good_run_passes() {
        let tally = read(&format!(
            "{TWO_STORES}test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured"
        ));
        assert!(report(&tally, Vec::new()).is_ok());
    }

    #[test]
    fn a_failed_test_or_step_fails_the_run() {
        let bad = read(&format!("{TWO_STORES}test result: FAILED. 1 passed; 1 failed; 0 ignored"));
        assert!(report(&bad, Vec::new()).is_err());
        let good = read(&format!("{TWO_STORES}test result: ok. 2 passed; 0 failed; 0 ignored"));
        assert!(report(&good, vec!["`cargo fmt` failed".to_owned()]).is_err());
    }

    #[test]
    fn a_run_without_tests_fails() {
        let empty = read(&format!("{TWO_STORES}test result: ok. 0 passed; 0 failed; 2 ignored"));
        assert!(report(&empty, Vec::new()).is_err());
    }
}
