//! Tasks that wait for a time start at that time, not at the next poll. The
//! timer knows the earliest time from the store and from what this node itself
//! wrote; when it comes, the due tasks are moved to their queues.

use super::run;
use crate::parts::{Parts, Phase};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use windlass_core::clock::Timestamp;
use windlass_core::store::Job;

/// The earliest time somebody waits for, as far as this node knows.
#[derive(Debug, Default)]
pub(crate) struct Due {
    next: Mutex<Option<Timestamp>>,
    earlier: Notify,
}

impl Due {
    /// A task waits for `at`.
    pub(crate) fn note(&self, at: Timestamp) {
        let mut next = self.next.lock();
        if next.is_none_or(|known| at < known) {
            *next = Some(at);
            self.earlier.notify_one();
        }
    }

    /// The store may know an earlier time.
    pub(crate) fn look(&self) {
        self.earlier.notify_one();
    }

    /// Only for the timer itself: it wakes nobody.
    fn learn(&self, stored: Option<Timestamp>) {
        let mut next = self.next.lock();
        *next = next.iter().copied().chain(stored).min();
    }

    fn next(&self) -> Option<Timestamp> {
        *self.next.lock()
    }

    /// Forgets the time that came.
    fn came(&self, now: Timestamp) -> bool {
        let mut next = self.next.lock();
        let came = next.is_some_and(|at| at <= now);
        if came {
            *next = None;
        }
        came
    }
}

/// Runs until the engine stops.
pub(crate) async fn promote(parts: Arc<Parts>) {
    loop {
        let stored = parts.store.next_due().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot read when the next task is due");
            None
        });
        parts.due.learn(stored);
        let now = parts.clock.now();
        if parts.due.came(now) {
            let promoted = run(&parts, "promote", Job::Promote).await;
            // The time of a task that waits no longer hid the next one's.
            let hidden = stored.is_some_and(|at| at > now);
            if promoted > 0 || hidden {
                continue;
            }
        }
        let wait = parts.due.next().map_or(Duration::MAX, |at| at.since(parts.clock.now()));
        let until = parts.clock.uptime() + wait.min(parts.settings.poll);
        tokio::select! {
            () = parts.clock.sleep_until(until) => {}
            () = parts.due.earlier.notified() => {}
            () = parts.reached(Phase::Stopped) => return,
        }
    }
}
