//! Runs the examples as a newcomer would, and checks what they print. `cargo test
//! -p windlass` builds them and puts them beside this test; whoever asks for this
//! test alone builds them first. The pipeline is killed in its third step, from
//! inside and from outside, and must go on there.

#![cfg(feature = "sqlite")]
#![allow(clippy::expect_used, clippy::panic)] // a test fails by panicking

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const RESULT: &str = "result: 1000 lines, 16893 bytes, checksum 5547a8dd";

/// `target/PROFILE/deps/examples-HASH` is this test, `target/PROFILE/examples`
/// the folder of the examples.
fn example(name: &str) -> Command {
    let test = std::env::current_exe().expect("the path of this test");
    let profile = test.ancestors().nth(2).expect("target/PROFILE");
    let path: PathBuf = profile.join("examples").join(name);
    let path = path.with_extension(std::env::consts::EXE_EXTENSION);
    assert!(path.exists(), "{} is not built", path.display());
    Command::new(path)
}

fn printed(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    format!("{}{errors}", String::from_utf8_lossy(&output.stdout))
}

/// What an example prints, after it ended well.
fn output_of(command: &mut Command) -> String {
    let output = command.output().expect("the example starts");
    let text = printed(&output);
    assert!(output.status.success(), "{}: {text}", output.status);
    text
}

fn contains_in_order(text: &str, lines: &[&str]) {
    let mut rest = text;
    for line in lines {
        let Some(at) = rest.find(line) else {
            panic!("`{line}` is missing or out of order in:\n{text}");
        };
        rest = &rest[at + line.len()..];
    }
}

#[test]
fn hello_greets() {
    contains_in_order(&output_of(&mut example("hello")), &["is written down", "Hello, Ada!"]);
}

#[test]
fn flaky_shows_every_way_to_come_back() {
    let text = output_of(&mut example("flaky"));
    contains_in_order(
        &text,
        &[
            "down once",
            "attempt 1: `stumbles` answers Down",
            "attempt 1: `stumbles` answers Body",
            "busy: ",
            "attempt 1: `busy` answers Busy",
            "result: the text of `busy`",
            "down for longer",
            "attempt 2: `sleeps` answers Down",
            "result: the text of `sleeps`",
            "error: ",
            "dead letter: there is no such page (fatal), 1 attempt",
            "requeues the task",
            "result: the text of `missing`",
        ],
    );
    // Four tasks, and a recorded step is never done again.
    assert_eq!(text.matches("logs in").count(), 4, "{text}");
}

#[test]
fn own_transaction_keeps_both_or_neither() {
    contains_in_order(
        &output_of(&mut example("own_transaction")),
        &["committed: order 1 is confirmed", "rolled back: 1 order, task exists: false"],
    );
}

fn pipeline(store: &Path) -> Command {
    let mut command = example("file_pipeline");
    command.arg(store);
    command
}

/// The second start goes on at step 3 of the task of the first one.
fn resumes(store: &Path) {
    let text = output_of(pipeline(store).args(["--slow-ms", "0"]));
    let lines = ["attempt 2: resumes at step 3", "step 3: ", "step 4: ", "step 5: ", RESULT];
    contains_in_order(&text, &lines);
    assert!(text.contains("of an earlier start"), "{text}");
    assert!(!text.contains("step 1: ") && !text.contains("step 2: "), "{text}");
    let read = |ending: &str| std::fs::read_to_string(store.with_extension(ending));
    let input = read("input.txt").expect("the input");
    assert_eq!(read("input.upper.txt").expect("the copy"), input.to_uppercase());
    assert_eq!(read("input.report.txt").expect("the report"), "1000 lines, 16893 bytes\n");
}

#[test]
fn the_pipeline_runs_through_when_nothing_happens() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("p.db");
    let text = output_of(pipeline(&store).args(["--slow-ms", "0"]));
    contains_in_order(&text, &["step 1: ", "step 2: ", "step 3: ", "step 4: ", "step 5: ", RESULT]);
    assert!(text.contains("submitted ") && !text.contains("resumes"), "{text}");
    let again = output_of(&mut pipeline(&store));
    assert!(again.contains(RESULT) && !again.contains("step "), "{again}");
}

#[test]
fn the_pipeline_goes_on_after_it_killed_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("p.db");
    let died = pipeline(&store).arg("--abort").output().expect("the example starts");
    let text = printed(&died);
    assert!(!died.status.success() && !text.contains("result: "), "{text}");
    contains_in_order(&text, &["step 1: ", "step 2: ", "step 3: "]);
    resumes(&store);
}

#[test]
fn the_pipeline_goes_on_after_it_was_killed() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("p.db");
    let mut slow = pipeline(&store);
    let slow = slow.args(["--slow-ms", "600000"]).stdout(Stdio::piped());
    let mut child = slow.spawn().expect("the example starts");
    let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let at_three = lines.map_while(Result::ok).any(|line| line.starts_with("step 3: "));
    child.kill().expect("SIGKILL");
    let status = child.wait().expect("its end");
    assert!(at_three && !status.success(), "{status}");
    resumes(&store);
}
