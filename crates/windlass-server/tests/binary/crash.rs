//! `windlass dev --crash-demo`: it shows what it promises, and it leaves nothing
//! behind, even when it is stopped in the middle.

use crate::rig::{Folder, Process, until};
use rustix::process::Signal;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// Where the demo makes its folder.
fn is_empty(folder: &Folder) -> bool {
    std::fs::read_dir(folder.path()).unwrap().next().is_none()
}

#[test]
fn a_task_survives_a_kill() {
    let folder = Folder::new();
    let demo = folder.run(&["dev", "--crash-demo"]).ok();
    for line in [
        "step 1 of 5  demo.fetch  done",
        "with SIGKILL in step 3",
        "attempt 2 resumes at step 3: steps 1 and 2 are not run again",
        "step 5 of 5  demo.notify  done",
    ] {
        assert!(demo.stdout.contains(line), "{line}: {demo:?}");
    }
    let row = demo.lines().into_iter().find(|line| line.starts_with("3 demo.resize")).unwrap();
    assert_eq!(row.split_whitespace().skip(2).collect::<Vec<_>>(), ["killed", "done"]);
    assert!(demo.stderr.is_empty(), "{demo:?}");
    assert!(is_empty(&folder), "something was left behind");
}

#[test]
fn a_stopped_demo_leaves_nothing_behind() {
    let folder = Folder::new();
    let mut demo = folder.command(&["dev", "--crash-demo"]);
    let mut demo = Process(demo.spawn().unwrap());
    let mut lines = BufReader::new(demo.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let up = lines.next().unwrap();
    let pid = up.split("process ").nth(1).and_then(|rest| rest.split(',').next()).unwrap();
    let node = format!("/proc/{pid}");
    assert!(Path::new(&node).exists(), "{up}");
    until("a step", || lines.next()?.starts_with("step 1").then_some(()));
    demo.signal(Signal::INT);
    assert_eq!(demo.ended(), 130);
    assert!(!Path::new(&node).exists(), "the demo's node lives on");
    assert!(is_empty(&folder), "something was left behind");
}
