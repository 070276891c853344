//! What every benchmark of this project measures with: the payload, a stopwatch,
//! medians. The engine's benchmark includes this file and `bare.rs` by path, so
//! that both stand beside the same ceiling.

use std::time::Instant;

/// Payload of every task.
pub(crate) const PAYLOAD_BYTES: usize = 200;

/// A payload of exactly that size.
pub(crate) fn payload() -> String {
    format!(r#"{{"data":"{}"}}"#, "x".repeat(PAYLOAD_BYTES - 11))
}

/// Seconds of submit, claim, record.
pub(crate) type Phases = [f64; 3];

/// Seconds that `f` took.
pub(crate) fn timed(f: impl FnOnce()) -> f64 {
    let start = Instant::now();
    f();
    start.elapsed().as_secs_f64()
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
