//! Named points of the data path at which a test lets the process die. Without
//! the feature `crash-points` they are nothing. With it, the environment
//! variable `WINDLASS_CRASH_AT=name:n` aborts at the n-th visit of that point.

/// Every point, for tests that must reach all of them, in the order of the path.
/// `record.*` is around the store's transaction of a batch that holds a step or
/// an end; `step.*` and `settle.*` are what one attempt sees of it.
#[cfg(feature = "crash-points")]
pub const CRASH_POINTS: &[&str] = &[
    "join.answered",
    "submit.committed",
    "claim.answered",
    "step.before",
    "record.step.before",
    "record.step.after",
    "step.recorded",
    "settle.before",
    "record.end.before",
    "record.end.after",
    "settle.recorded",
];

#[cfg(feature = "crash-points")]
pub(crate) fn crash_point(name: &'static str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    static PLAN: OnceLock<Option<(String, u64)>> = OnceLock::new();
    static VISITS: AtomicU64 = AtomicU64::new(0);
    let plan = PLAN.get_or_init(|| {
        let text = std::env::var("WINDLASS_CRASH_AT").ok()?;
        let (name, n) = text.rsplit_once(':')?;
        Some((name.to_owned(), n.parse().ok()?))
    });
    if let Some((at, n)) = plan
        && at == name
        && VISITS.fetch_add(1, Ordering::Relaxed) + 1 == *n
    {
        std::process::abort();
    }
}

#[cfg(not(feature = "crash-points"))]
pub(crate) fn crash_point(_name: &'static str) {}
