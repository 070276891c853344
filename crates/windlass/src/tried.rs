//! One try of a step: how long it may take, how its code hears that the time is
//! over, and what is recorded of it. `cx.rs` makes a try and records it, a
//! plan's handler holds the other end through its `StepCall`. Nothing here
//! knows retries, stores or what the step does.

use crate::run::Run;
use crate::said::TaskError;
use parking_lot::Mutex;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::Notify;
use windlass_core::checkpoint::StepOutcome;
use windlass_core::json::Json;
use windlass_core::outcome::Class;

/// How long one try of a step may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    pub(crate) timeout: Duration,
    /// What its code needs beyond that to end what it started outside.
    pub(crate) stopping: Duration,
}

impl Limit {
    /// The code is dropped when its time is over.
    pub(crate) fn sharp(timeout: Duration) -> Limit {
        Limit { timeout, stopping: Duration::ZERO }
    }
}

/// The end of what a handler wrote about its work: kept with the recorded try.
/// Clones are the same cell.
#[derive(Clone, Default)]
pub struct StepLog(Arc<Mutex<Option<String>>>);

impl StepLog {
    /// Replaces what was there.
    pub fn set(&self, end: impl Into<String>) {
        *self.0.lock() = Some(end.into());
    }

    fn take(&self) -> Option<String> {
        self.0.lock().take()
    }
}

impl fmt::Debug for StepLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = self.0.lock().as_ref().map_or(0, String::len);
        f.debug_struct("StepLog").field("bytes", &kept).finish()
    }
}

/// What a try shares with code outside of it.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    over: AtomicBool,
    told: Notify,
    pub(crate) log: StepLog,
}

impl Shared {
    fn tell(&self) {
        self.over.store(true, Ordering::Release);
        self.told.notify_waiters();
    }

    /// Ready when the time of the try is over.
    pub(crate) async fn over(&self) {
        loop {
            let told = self.told.notified();
            if self.over.load(Ordering::Acquire) {
                return;
            }
            told.await;
        }
    }
}

/// One try under way. Most steps never ask for the shared part, so it is made
/// when somebody does.
#[derive(Debug, Default)]
pub(crate) struct Try {
    shared: OnceLock<Arc<Shared>>,
}

impl Try {
    pub(crate) fn share(&self) -> Arc<Shared> {
        self.shared.get_or_init(Arc::default).clone()
    }

    pub(crate) fn take_log(&self) -> Option<String> {
        self.shared.get().and_then(|shared| shared.log.take())
    }

    fn tell(&self) {
        if let Some(shared) = self.shared.get() {
            shared.tell();
        }
    }
}

/// How a try went, as it is recorded.
#[derive(Debug)]
pub(crate) struct Tried {
    pub(crate) outcome: StepOutcome,
    pub(crate) output: Option<Json>,
    pub(crate) reason: Option<String>,
    pub(crate) class: Option<Class>,
    pub(crate) took: Duration,
    pub(crate) log: Option<String>,
}

impl Run {
    /// Runs one try of a step; too long is a retryable error, whatever the code
    /// says after it was told to stop.
    pub(crate) async fn within_step<T>(
        &self,
        limit: Limit,
        this: &Try,
        work: impl Future<Output = T>,
    ) -> Result<T, TaskError> {
        let Limit { timeout, stopping } = limit;
        let until = self.parts.clock.uptime().saturating_add(timeout);
        let last = until.saturating_add(stopping);
        let _watched = Watched::new(&self.tries_under_way, UnderWay { until: last, stopping });
        let mut work = std::pin::pin!(work);
        // Most steps end at the first look, and need no timer.
        let first = std::future::poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await;
        if let Poll::Ready(said) = first {
            return Ok(said);
        }
        tokio::select! {
            biased;
            said = &mut work => return Ok(said),
            () = self.parts.clock.sleep_until(until) => this.tell(),
        }
        if !stopping.is_zero() {
            tokio::select! {
                biased;
                _ = work => {}
                () = self.parts.clock.sleep_until(last) => {}
            }
        }
        Err(TaskError::class(Class::Timeout, format!("the step ran longer than {timeout:?}")))
    }
}

/// What the watch sees of a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnderWay {
    /// Uptime by which it must have ended.
    pub(crate) until: Duration,
    pub(crate) stopping: Duration,
}

/// A try whose time is watched, until it ends or is given up by the code.
struct Watched<'a> {
    tries: &'a Mutex<Vec<UnderWay>>,
    mine: UnderWay,
}

impl<'a> Watched<'a> {
    fn new(tries: &'a Mutex<Vec<UnderWay>>, mine: UnderWay) -> Self {
        tries.lock().push(mine);
        Watched { tries, mine }
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        let mut tries = self.tries.lock();
        if let Some(at) = tries.iter().position(|other| *other == self.mine) {
            tries.swap_remove(at);
        }
    }
}
