//! The poison rule with real processes. Healthy tasks survive ten kills in a row,
//! each inside their steps; a task that kills its process is poisoned at the
//! limit, and everybody else completes.

use crate::checker::ABORTED;
use crate::driver::{Driver, begun};
use crate::{Plan, say};
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;
use windlass_core::outcome::Reason;
use windlass_core::state::State;

/// Process deaths after which a culprit is poisoned.
const LIMIT: u32 = 3;

/// Ten times in a row all slots die inside a step, with no step recorded in
/// between: whoever was hit twice is a suspect, and none of them is to blame.
pub(crate) fn healthy_tasks_survive_kills(_: &Plan) {
    let mut driver = Driver::new(40);
    driver.work.slots = 4;
    driver.work.step_ms = vec![200];
    driver.work.suspects_wait = Duration::from_secs(60);
    for _ in 0..10 {
        let mut process = driver.start();
        assert!(driver.wait_for(&mut process, "full slots", |lines| begun(lines) >= 4));
        driver.kill(process);
    }
    driver.work.suspects_wait = Duration::ZERO;
    driver.finish();
    let stored = driver.stored();
    let counts = driver.verdict().must_hold();
    say(&format!("healthy tasks: {counts}; most crashes of one {}", stored.most_crashes));
    assert_eq!((counts.kills, counts.deaths_in_steps), (10, 10), "kills that happened");
    assert_eq!(stored.most_crashes, u64::from(LIMIT) - 1, "the rule was not put to the test");
}

pub(crate) fn a_culprit_is_poisoned_at_the_limit(_: &Plan) {
    let mut driver = Driver::new(60);
    driver.work.slots = 4;
    driver.work.step_ms = vec![10];
    driver.work.killer = true;
    driver.work.suspects_wait = Duration::from_millis(300);
    let mut deaths = 0;
    loop {
        let process = driver.start();
        let (status, _) = driver.end_of(process);
        if status.success() {
            break;
        }
        assert_eq!(status.signal(), Some(ABORTED), "{status}");
        deaths += 1;
        assert!(deaths <= LIMIT, "the culprit goes on");
    }
    let stored = driver.stored();
    let counts = driver.verdict().must_hold();
    say(&format!("a culprit: {deaths} deaths; {counts}"));
    assert_eq!(deaths, LIMIT, "deaths until it was poisoned");
    let culprits: Vec<_> = stored.of_kind("killer").collect();
    let [(_, culprit)] = culprits.as_slice() else { panic!("one culprit, not {culprits:?}") };
    assert_eq!((culprit.state, culprit.reason), (State::Failed, Some(Reason::Poisoned)));
    assert_eq!((culprit.crashes, culprit.attempts.len()), (LIMIT, 3));
    assert_eq!(counts.acked, 60, "everybody else, and the checker says that they completed");
    assert!(counts.lost > 3, "nobody else was there when it died: {counts}");
}
