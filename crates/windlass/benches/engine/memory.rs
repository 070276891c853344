//! Peak memory of a process that fills a queue and drains it. Each figure comes
//! from a child of its own, so that no other part has touched its memory.

use crate::options::Options;
use crate::ours::{Bench, Nothing};
use crate::process;
use crate::report::{Goal, Line, Report};
use std::process::Command;

/// Drained in every case.
const DRAINED: usize = 50_000;

pub(crate) fn memory(options: &Options, report: &mut Report) {
    for (pending, goal) in [(DRAINED, 64.0), (options.backlog, 350.0)] {
        let child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--child", &pending.to_string(), "--dir"])
            .arg(&options.dir)
            .output()
            .expect("a child");
        assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
        let peak = String::from_utf8(child.stdout).expect("a number");
        let name = format!("memory {DRAINED} of {pending}");
        let line = Line::new(name, "MB", peak.trim().parse().expect("a number"));
        report.line(line.goal(Goal::Below(goal)));
    }
}

/// What the child does: prints its peak.
pub(crate) fn child(options: &Options, pending: usize) {
    let dir = options.fresh();
    let bench = Bench::paused(&dir.path().join("ours.db"));
    bench.submit::<Nothing>(1000, pending);
    bench.drain(DRAINED);
    bench.end();
    println!("{:.1}", process::peak_memory());
}
