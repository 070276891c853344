//! One retry by the real clock, in a real process: everything else about retries
//! is tested with a clock that the test moves.

use crate::driver::Driver;
use crate::ledger::Fact;
use crate::{Plan, say};
use std::time::Duration;
use windlass_core::state::State;
use windlass_core::store::AttemptEnd;

/// The usual policy's first delay.
const DELAY: Duration = Duration::from_secs(5);
/// What a start may be late on a busy machine.
const LATE: Duration = Duration::from_millis(500);

pub(crate) fn a_failed_task_is_retried_in_time(_: &Plan) {
    let mut driver = Driver::new(0);
    driver.work.flaky = true;
    driver.finish();
    let of = |wanted: fn(&Fact) -> bool| {
        let found = driver.lines().iter().filter(move |line| wanted(&line.fact));
        found.map(|line| Duration::from_millis(line.at)).collect::<Vec<_>>()
    };
    let begins = of(|fact| matches!(fact, Fact::Begin(_)));
    let fails = of(|fact| matches!(fact, Fact::Failed(_)));
    assert_eq!((begins.len(), fails.len()), (2, 1), "one failure, then success");
    let waited = begins[1] - fails[0];
    say(&format!("a retry: {waited:?} after the failure"));
    // The ledger's times are whole milliseconds.
    let earliest = DELAY.mul_f64(0.9) - Duration::from_millis(1);
    assert!(waited >= earliest && waited <= DELAY.mul_f64(1.1) + LATE, "retried after {waited:?}");
    let stored = driver.stored();
    let (_, task) = stored.of_kind("flaky").next().expect("the task");
    assert_eq!((task.state, task.retries), (State::Completed, 1));
    assert_eq!(task.attempts[0].end, Some(AttemptEnd::Settled(State::Retrying)));
}
