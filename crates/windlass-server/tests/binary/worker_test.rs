//! `windlass worker-test`, and the example workers under it: good ones pass every
//! check, and each fault that is put into one is found.

use crate::rig::{Folder, Process, Ran, Server, until};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const CHECKS: usize = 14;
/// Examples are to be read in one sitting.
const LINES_MAX: usize = 200;

fn example(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(path)
}

fn passes(interpreter: &str, path: &str) {
    let program = example(path);
    let lines = fs::read_to_string(&program).unwrap().lines().count();
    assert!(lines < LINES_MAX, "{path} has {lines} lines");
    let folder = Folder::new();
    let ran = folder.run(&["worker-test", "--", interpreter, program.to_str().unwrap()]);
    assert_eq!(ran.code, 0, "is {interpreter} installed?\n{}\n{}", ran.stdout, ran.stderr);
    let good = ran.lines().iter().filter(|line| line.starts_with("ok ")).count();
    assert_eq!(good, CHECKS, "{}", ran.stdout);
    assert!(ran.stderr.contains("14 ok, 0 failed, 0 skipped"), "{}", ran.stderr);
}

#[test]
fn the_worker_in_python_passes() {
    passes("python3", "worker_python/worker.py");
}

#[test]
fn the_worker_in_node_passes() {
    passes("node", "worker_node/worker.mjs");
}

/// Runs a worker in Python with faults, and gives the checks that did not pass.
fn faulty(faults: &[(&str, &str)]) -> (Ran, Vec<String>) {
    let mut text = fs::read_to_string(example("worker_python/worker.py")).unwrap();
    for (good, bad) in faults {
        assert_eq!(text.matches(good).count(), 1, "{good}");
        text = text.replace(good, bad);
    }
    let folder = Folder::new();
    folder.write("worker.py", &text);
    let ran = folder.run(&["worker-test", "-o", "json", "python3 'worker.py'"]);
    let report = ran.json();
    let checks = report["checks"].as_array().unwrap();
    assert_eq!((checks.len(), &report["passed"]), (CHECKS, &json!(false)));
    let bad = checks.iter().filter(|check| check["outcome"] == "failed");
    let bad = bad.map(|check| check["check"].as_str().unwrap().to_owned()).collect();
    (ran, bad)
}

#[test]
fn a_worker_that_forgets_is_found_out() {
    let (ran, bad) = faulty(&[
        ("if name not in self.finished:", "if True:"),
        ("\"test.echo\": lambda task: task.payload", "\"test.echo\": lambda task: [task.payload]"),
        ("task.progress(done, 3,", "task.progress(done, 4,"),
        ("if task.attempt < 3:", "if task.attempt < 2:"),
        ("(signal.SIGTERM, signal.SIGINT)", "(signal.SIGINT,)"),
    ]);
    assert_eq!(ran.code, 1, "{ran:?}");
    let wanted = ["echo", "unicode", "large", "progress", "retry", "pause", "crash", "stop"];
    assert_eq!(bad, wanted, "{}", ran.stdout);
    let report = ran.json();
    let crash = &report["checks"][11]["found"];
    assert!(crash.as_str().unwrap().contains(r#"[["a",1],["a",2],"#), "{crash}");
}

#[test]
fn a_worker_without_a_heartbeat_is_found_out() {
    let (ran, bad) = faulty(&[("HEARTBEAT = 0.5", "HEARTBEAT = 600")]);
    assert_eq!(ran.code, 1, "{ran:?}");
    for check in ["cancel", "pause", "heartbeat"] {
        assert!(bad.iter().any(|name| name == check), "{check} passed: {}", ran.stdout);
    }
    assert!(!bad.iter().any(|name| name == "echo"), "{}", ran.stdout);
}

#[test]
fn a_worker_that_never_asks_is_an_error() {
    let folder = Folder::new();
    let silent = folder.run(&["worker-test", "--patience", "500ms", "sleep 60"]).fails(1);
    silent.said("no worker took a task of kind test.echo within 500ms");
    folder.run(&["worker-test", "false"]).fails(1).said("ended before it took a task");
    folder.run(&["worker-test", "no-such-program"]).fails(1).said("cannot be started");
    folder.run(&["worker-test", "a 'b"]).fails(2).said("a quote in the command is not closed");
    folder.run(&["worker-test"]).fails(2);
}

#[test]
fn a_worker_stops_though_its_server_is_away() {
    for (interpreter, path) in
        [("python3", "worker_python/worker.py"), ("node", "worker_node/worker.mjs")]
    {
        let folder = Folder::new();
        let log = fs::File::create(folder.file("log")).unwrap();
        let mut command = Command::new(interpreter);
        command.arg(example(path)).env("WINDLASS_SERVER", "http://127.0.0.1:1");
        command.env("WINDLASS_GRACE", "0.1").stdin(Stdio::null()).stderr(log);
        let mut worker = Process(command.spawn().expect("an interpreter"));
        until("a try", || {
            let said = fs::read_to_string(folder.file("log")).unwrap();
            said.contains("does not answer").then_some(())
        });
        worker.signal(rustix::process::Signal::TERM);
        assert_eq!(worker.ended(), 0, "{interpreter}");
    }
}

#[test]
fn a_worker_at_a_server_and_its_real_kind() {
    let folder = Folder::new();
    let config = fs::read_to_string(example("worker_python/windlass.toml")).unwrap();
    folder.write("windlass.toml", &format!("{config}[node]\nlease = \"2s\"\n"));
    let server = Server::serve(folder);
    let mut command = Command::new("python3");
    command.arg(example("worker_python/worker.py")).env("WINDLASS_SERVER", &server.url);
    let mut worker = Process(command.stdin(Stdio::null()).spawn().expect("python3 is installed"));
    let remote = |server: &Server| {
        let nodes = server.run(&["node", "list", "-o", "json"]).ok().json();
        nodes.as_array().unwrap().iter().filter(|node| node["remote"] == json!(true)).count()
    };
    until("a worker", || (remote(&server) == 1).then_some(()));
    let ran = server.folder.run(&["worker-test", &server.url, "-o", "json"]).ok();
    let outcome = |check: &Value| check["outcome"].as_str().unwrap().to_owned();
    let report = ran.json();
    let outcomes: Vec<String> = report["checks"].as_array().unwrap().iter().map(outcome).collect();
    assert_eq!(outcomes[..11], vec!["ok"; 11]);
    assert_eq!(outcomes[11..], vec!["skipped"; 3], "a process that is not ours is not signalled");

    server.folder.write("file.txt", "abc");
    let path = format!("path={}", server.folder.file("file.txt").display());
    let digest = server.run(&["submit", "file.digest", &path, "--wait"]).ok().json();
    let sum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(digest, json!({"bytes": 3, "sha256": sum}));
    worker.signal(rustix::process::Signal::TERM);
    assert_eq!(worker.ended(), 0);
    assert_eq!(remote(&server), 0, "it said good-bye");
}
