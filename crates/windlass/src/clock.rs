//! The machine's clock. Waiting uses the runtime's timers, which go by the
//! monotonic clock; only what is written down uses the wall clock.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use windlass_core::clock::{Clock, Timestamp};
use windlass_core::store::BoxFuture;

/// The clock of production.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    pub fn new() -> Self {
        SystemClock { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        // A machine set before 1970 gets 1970: better than no time at all.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::ZERO.plus(since)
    }

    fn uptime(&self) -> Duration {
        self.start.elapsed()
    }

    fn sleep_until(&self, at: Duration) -> BoxFuture<'static, ()> {
        let far = self.start.checked_add(at);
        match far {
            Some(at) => Box::pin(tokio::time::sleep_until(at.into())),
            None => Box::pin(std::future::pending()),
        }
    }
}
