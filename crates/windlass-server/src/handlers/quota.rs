//! How many lines of one try reach the log. A handler may write as much as it
//! likes, and its last words are kept with the step in any case; the log is
//! everybody's.

use std::time::{Duration, Instant};

/// Lines of one try that are passed on within a second.
pub(crate) const LINES_A_SECOND: u32 = 100;
const SECOND: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Quota {
    since: Option<Instant>,
    passed: u32,
    left_out: u64,
}

impl Quota {
    /// Whether a line that comes now is passed on, and how many were left out
    /// before it that nobody was told of.
    pub(crate) fn line(&mut self, now: Instant) -> (bool, u64) {
        let mut missing = 0;
        if self.since.is_none_or(|since| now.duration_since(since) >= SECOND) {
            missing = self.rest();
            *self = Quota { since: Some(now), ..Quota::default() };
        }
        let may_pass = self.passed < LINES_A_SECOND;
        match may_pass {
            true => self.passed += 1,
            false => self.left_out += 1,
        }
        (may_pass, missing)
    }

    /// How many were left out at the end.
    pub(crate) fn rest(&mut self) -> u64 {
        std::mem::take(&mut self.left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_its_lines_and_the_rest_is_counted() {
        let (begin, mut quota) = (Instant::now(), Quota::default());
        let passed = (0..1000).filter(|_| quota.line(begin).0).count();
        assert_eq!(passed, LINES_A_SECOND as usize);
        assert_eq!(quota.line(begin + SECOND), (true, 900));
        assert_eq!(quota.line(begin + SECOND), (true, 0), "told once");
        assert_eq!((0..200).filter(|_| quota.line(begin + SECOND).0).count(), 98);
        assert_eq!(quota.rest(), 102);
        assert_eq!(quota.rest(), 0);
    }
}
