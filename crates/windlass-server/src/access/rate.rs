//! How many requests one token may send: a bucket for each, filled steadily. What
//! a request does is not known here; whoever is too fast is told how long to wait.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use windlass::core::access::TOKENS_MAX;
use windlass::core::limits::Rate;

/// Room for the tokens of a store and a file.
const BUCKETS_MAX: usize = 2 * TOKENS_MAX;

#[derive(Debug)]
pub(super) struct Buckets {
    rate: Rate,
    /// By a token's id: when its bucket would be full again.
    full_at: Mutex<HashMap<String, Instant>>,
}

impl Buckets {
    pub(super) fn new(rate: Rate) -> Buckets {
        Buckets { rate, full_at: Mutex::default() }
    }

    /// Takes one; an error says how long until there is one. A bucket holds as
    /// much as the rate gives in its unit of time.
    pub(super) fn take(&self, id: &str, now: Instant) -> Result<(), Duration> {
        let one = self.rate.per / self.rate.count.max(1);
        let mut buckets = self.full_at.lock();
        if buckets.len() >= BUCKETS_MAX && !buckets.contains_key(id) {
            // Full ones are as good as none.
            buckets.retain(|_, full_at| *full_at > now);
        }
        match buckets.get_mut(id) {
            Some(full_at) => {
                let next = (*full_at).max(now) + one;
                let over = next.saturating_duration_since(now).saturating_sub(self.rate.per);
                if !over.is_zero() {
                    return Err(over);
                }
                *full_at = next;
            }
            None => drop(buckets.insert(id.to_owned(), now + one)),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_empties_and_fills() {
        let buckets = Buckets::new("10/s".parse().unwrap());
        let now = Instant::now();
        let taken = (0..20).filter(|_| buckets.take("a", now).is_ok()).count();
        assert_eq!(taken, 10);
        assert_eq!(buckets.take("a", now), Err(Duration::from_millis(100)));
        assert!(buckets.take("b", now).is_ok(), "each has its own");
        let later = now + Duration::from_millis(250);
        let taken = (0..20).filter(|_| buckets.take("a", later).is_ok()).count();
        assert_eq!(taken, 2);
        let much_later = now + Duration::from_secs(60);
        let taken = (0..20).filter(|_| buckets.take("a", much_later).is_ok()).count();
        assert_eq!(taken, 10);
    }
}
