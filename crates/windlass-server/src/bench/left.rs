//! How much of a round is left, shared by whoever works on it. Everybody takes
//! from one number, so that nobody is finished long before the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Clone)]
pub(super) struct Left(Arc<AtomicU64>);

impl Left {
    pub(super) fn new(tasks: u64) -> Self {
        Left(Arc::new(AtomicU64::new(tasks)))
    }

    /// At most `most` of what is left; 0 when nothing is.
    pub(super) fn take(&self, most: u64) -> u64 {
        let less = |left: u64| Some(left.saturating_sub(most));
        let before = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        before.unwrap_or(0).min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_taken_once() {
        let left = Left::new(2500);
        let taken: Vec<u64> = (0..4).map(|_| left.take(1000)).collect();
        assert_eq!(taken, [1000, 1000, 500, 0]);
    }
}
