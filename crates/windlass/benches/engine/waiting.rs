//! Load below the limit: how soon a task starts when work comes steadily, and
//! how full the slots are when handlers wait.

use crate::options::Options;
use crate::ours::{Bench, LATENCIES, SLOTS, STARTED, Timed, WAITING, Waits};
use crate::report::{Goal, Line, Report};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

const PER_SECOND: usize = 500;

pub(crate) fn steady(options: &Options, report: &mut Report) {
    let dir = options.fresh();
    let bench = Bench::running(&dir.path().join("ours.db"));
    // The first half second is not counted: caches are cold, pages are new.
    let (warm, counted) = (PER_SECOND / 2, PER_SECOND * options.seconds);
    bench.runtime.block_on(async {
        let mut ticks = interval(Duration::from_secs(1) / PER_SECOND as u32);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        for _ in 0..warm + counted {
            ticks.tick().await;
            let engine = bench.engine.clone();
            tokio::spawn(async move { engine.submit(Timed::now()).await.expect("written") });
        }
        bench.recorded(warm + counted).await;
    });
    bench.end();
    let mut latencies = LATENCIES.lock().split_off(warm);
    latencies.sort_by(f64::total_cmp);
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize] * 1000.0;
    let name = |what: &str| format!("steady {PER_SECOND}/s start {what}");
    report.line(Line::new(name("p50"), "ms", at(0.5)).goal(Goal::Below(1.5)));
    report.line(Line::new(name("p99"), "ms", at(0.99)).goal(Goal::Below(6.0)));
    report.line(Line::new(name("max"), "ms", at(1.0)));
}

pub(crate) fn slots(options: &Options, report: &mut Report) {
    let tasks = 60_000;
    let dir = options.fresh();
    let bench = Bench::paused(&dir.path().join("ours.db"));
    // Before the submit: a claim on its way when the node was paused may still
    // start some, and they count.
    let before = STARTED.load(Ordering::Relaxed);
    bench.submit::<Waits>(1000, tasks);
    let busy = bench.runtime.block_on(async {
        bench.engine.resume_node().await.expect("resumed");
        let (mut sum, mut samples) = (0_usize, 0_usize);
        let mut ticks = interval(Duration::from_millis(1));
        while STARTED.load(Ordering::Relaxed) - before < tasks as u64 {
            ticks.tick().await;
            sum += WAITING.load(Ordering::Relaxed);
            samples += 1;
        }
        sum as f64 / samples as f64
    });
    bench.end();
    let line = Line::new("slots busy, handlers of 50 ms".to_owned(), "", busy / SLOTS as f64);
    report.line(line.goal(Goal::AtLeast(0.9)));
}
