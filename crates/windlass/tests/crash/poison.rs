//! The poison rule with real processes. Healthy tasks survive ten kills in a row
//! even when they come as close to the limit as the rule lets them; a task that
//! kills its process is poisoned at the limit, and everybody else completes.

use crate::checker::ABORTED;
use crate::driver::{Driver, begun};
use crate::ledger::{Fact, Line, Spot};
use crate::tasks::STEPS;
use crate::{Plan, say};
use std::os::unix::process::ExitStatusExt;
use windlass_core::outcome::Reason;
use windlass_core::state::State;

/// Process deaths after which a culprit is poisoned.
const LIMIT: u32 = 3;

/// Twice all slots die inside the same steps, which makes everybody a suspect
/// that runs alone; from then on the process dies whenever one of them has
/// recorded a step and is inside the next.
pub(crate) fn healthy_tasks_survive_kills(_: &Plan) {
    let mut driver = Driver::new(12);
    driver.work.slots = 4;
    driver.work.step_ms = vec![300];
    for _ in 0..2 {
        let mut process = driver.start();
        assert!(driver.wait_for(&mut process, "full slots", |lines| begun(lines) >= 4));
        let recorded = driver.kill(process);
        assert_eq!(recorded, 0, "the kill came too late to make suspects");
    }
    for _ in 2..10 {
        let mut process = driver.start();
        assert!(driver.wait_for(&mut process, "the step after a recorded one", goes_on));
        driver.kill(process);
    }
    driver.finish();
    let stored = driver.stored();
    let counts = driver.verdict().must_hold();
    say(&format!("healthy tasks: {counts}; most crashes of one {}", stored.most_crashes));
    assert_eq!((counts.kills, counts.deaths_in_steps), (10, 10), "kills that happened");
    assert_eq!(stored.most_crashes, u64::from(LIMIT) - 1, "the rule was not put to the test");
}

/// Some task has recorded a step here and is inside its next.
fn goes_on(lines: &[Line]) -> bool {
    let is_recorded = |here: &Spot| {
        let before =
            STEPS.iter().position(|step| *step == here.step).and_then(|i| i.checked_sub(1));
        let before = before.map(|i| Spot { step: STEPS[i].to_owned(), ..here.clone() });
        before.is_some_and(|before| lines.iter().any(|l| l.fact == Fact::Recorded(before.clone())))
    };
    lines.iter().any(|line| matches!(&line.fact, Fact::Begin(spot) if is_recorded(spot)))
}

pub(crate) fn a_culprit_is_poisoned_at_the_limit(_: &Plan) {
    let mut driver = Driver::new(60);
    driver.work.slots = 4;
    driver.work.step_ms = vec![10];
    driver.work.killer = true;
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
