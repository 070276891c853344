//! SIGTERM under load, with a long, a short and no grace period: the process
//! ends well and in time, nothing is burnt, and the next start goes on at the
//! first unfinished step. A second signal leaves no time and loses nothing.

use crate::checker::Counts;
use crate::driver::{Driver, begun, recorded};
use crate::ledger::{Fact, Line};
use crate::stored::Stored;
use crate::{Plan, say};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::time::{Duration, Instant};
use windlass_core::state::State;
use windlass_core::store::AttemptEnd;

/// What giving tasks back and ending the process may take beyond the grace.
const MARGIN: Duration = Duration::from_millis(1500);
/// Chains per signal; one uses up fewer.
const CHAINS_A_SIGNAL: u64 = 40;
/// Longer than anybody waits.
const ENDLESS_MS: u64 = 100_000;

/// Three ways to stop: time enough for all that runs, too little for the slow
/// ones, none.
const GRACES: [Duration; 3] = [Duration::from_secs(10), Duration::from_millis(200), Duration::ZERO];

pub(crate) fn under_load(plan: &Plan) {
    say(&format!("SIGTERM: {} times, seed {}", plan.sigterms, plan.seed));
    let began = Instant::now();
    let mut rng = StdRng::seed_from_u64(plan.seed);
    // What is slow ends within the long grace, and never within the others.
    let (mut patient, mut hurried) = (loaded(plan), loaded(plan));
    patient.work.step_ms = vec![1, 4, 1, 250, 2];
    hurried.work.first_ms = Some(vec![1, 4, 1, ENDLESS_MS, 2]);
    let mut slowest = Duration::ZERO;
    for round in 0..plan.sigterms {
        let grace = GRACES[round % GRACES.len()];
        let driver = if grace == GRACES[0] { &mut patient } else { &mut hurried };
        driver.work.grace = grace;
        let took = stop_once(driver, rng.random_range(5..40));
        slowest = slowest.max(took.saturating_sub(grace));
        nothing_was_burnt(driver, &driver.stored());
        assert!(grace < GRACES[0] || took < grace, "not in time: {took:?}");
    }
    let (all, _) = finished(&mut patient);
    say(&format!("SIGTERM, time enough: {all}"));
    let (some, resumed) = finished(&mut hurried);
    say(&format!("SIGTERM, little time: {some}; {resumed} resumed behind a recorded step"));
    let took = began.elapsed().as_secs_f64();
    say(&format!(
        "SIGTERM: at most {slowest:.0?} beyond the grace; {took:.1} s, seed {}",
        plan.seed
    ));
    assert_eq!(
        all.starts + some.starts,
        plan.sigterms + 2,
        "each start ended, all but the last two by a signal"
    );
    assert_eq!(all.begun_again, 0, "with time enough every step that began was recorded");
    assert!(some.released > 0 && resumed > 0, "nothing was given back: {some}");
}

fn loaded(plan: &Plan) -> Driver {
    let mut driver = Driver::new(CHAINS_A_SIGNAL * plan.sigterms as u64);
    driver.work.slots = 8;
    driver
}

/// Lets the rest be done, and checks all of it.
fn finished(driver: &mut Driver) -> (Counts, usize) {
    driver.work.first_ms = None;
    driver.finish();
    let stored = driver.stored();
    nothing_was_burnt(driver, &stored);
    let counts = driver.verdict().must_hold();
    assert_eq!((counts.kills, counts.aborts, counts.lost), (0, 0, 0), "nobody died");
    (counts, resumed(&stored))
}

/// Starts, sends the signal while steps are under way, and waits for the end.
fn stop_once(driver: &mut Driver, steps: usize) -> Duration {
    let mut process = driver.start();
    let busy = |lines: &[Line]| recorded(lines) >= steps && begun(lines) > recorded(lines);
    assert!(driver.wait_for(&mut process, "a busy process", busy), "the work ended before");
    let signal = Instant::now();
    driver.terminate(&process);
    let (status, lines) = driver.end_of(process);
    let took = signal.elapsed();
    assert!(status.success(), "{status} after SIGTERM");
    assert!(lines.iter().any(|line| line.fact == Fact::Stopping), "the signal was not seen");
    let grace = driver.work.grace;
    assert!(took <= grace + MARGIN, "it took {took:?}, the grace is {grace:?}");
    took
}

/// No task failed or retried, none was held against anything, none is held.
fn nothing_was_burnt(driver: &Driver, stored: &Stored) {
    driver.verdict_so_far(stored).must_hold();
    assert_eq!(stored.leases_lost, 0, "task.lease_lost events");
    assert_eq!(stored.nodes, 0, "nodes that did not leave");
    for (id, task) in &stored.tasks {
        assert_eq!((task.retries, task.crashes, task.reason), (0, 0, None), "{id}: {task:?}");
        assert!(matches!(task.state, State::Queued | State::Completed), "{id}: {task:?}");
    }
}

/// Tasks given back after a recorded step that then went on; where they went on
/// is the checker's business.
fn resumed(stored: &Stored) -> usize {
    let given_back = |end| end == Some(AttemptEnd::Settled(State::Queued));
    let resumed = stored.tasks.values().filter(|task| {
        let back = task.attempts.iter().position(|a| given_back(a.end) && !a.done.is_empty());
        back.is_some_and(|at| task.attempts[at + 1..].iter().any(|a| !a.done.is_empty()))
    });
    resumed.count()
}

/// With steps far longer than anybody waits.
pub(crate) fn a_second_signal_stops_at_once(_: &Plan) {
    let mut driver = Driver::new(4);
    driver.work.slots = 4;
    driver.work.first_ms = Some(vec![ENDLESS_MS]);
    driver.work.grace = Duration::from_secs(100);
    let mut process = driver.start();
    assert!(driver.wait_for(&mut process, "second steps", |lines| begun(lines) >= 8));
    driver.terminate(&process);
    assert!(driver.wait_for(&mut process, "the first signal", |lines| {
        lines.iter().any(|line| line.fact == Fact::Stopping)
    }));
    let second = Instant::now();
    driver.terminate(&process);
    let (status, _) = driver.end_of(process);
    assert!(status.success() && second.elapsed() <= MARGIN, "{status}, {:?}", second.elapsed());
    nothing_was_burnt(&driver, &driver.stored());
    driver.finish();
    let stored = driver.stored();
    nothing_was_burnt(&driver, &stored);
    let counts = driver.verdict().must_hold();
    assert_eq!((counts.released, counts.begun_again), (4, 4), "all four were given back");
}
