//! Requests of people (cancel, pause) on their way to whoever speaks for a worker
//! in this process. They are in the store before they are told here, so one that is
//! missed comes with the next heartbeat; this only makes them fast.

use super::Workers;
use crate::parts::Phase;
use std::future::Future;
use tokio::sync::broadcast;
use windlass_core::id::TaskId;

/// Requests that a slow listener may be behind; then it looks at everything.
const BEHIND_MAX: usize = 256;

#[derive(Debug)]
pub(crate) struct Asks(broadcast::Sender<TaskId>);

impl Default for Asks {
    fn default() -> Self {
        Asks(broadcast::Sender::new(BEHIND_MAX))
    }
}

impl Asks {
    /// People want something of this task.
    pub(crate) fn tell(&self, task: TaskId) {
        // Nobody listens, mostly.
        let _ = self.0.send(task);
    }
}

/// Hears of requests as they are made through this engine; see [`Workers::asks`].
#[derive(Debug)]
pub struct Listening(broadcast::Receiver<TaskId>);

impl Listening {
    /// The task that something is wanted of; `None`: several, look at all.
    pub async fn next(&mut self) -> Option<TaskId> {
        match self.0.recv().await {
            Ok(task) => Some(task),
            Err(broadcast::error::RecvError::Lagged(_)) => None,
            // The engine is gone, and nothing will be asked.
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

impl Workers {
    /// Requests that are made through this engine from now on. What to do about a
    /// task is in the answer of its next report.
    pub fn asks(&self) -> Listening {
        Listening(self.parts.remote.asks.0.subscribe())
    }

    /// Ready when this engine gives no leases any more: it is about to stop.
    pub fn closing(&self) -> impl Future<Output = ()> + Send + 'static {
        let parts = self.parts.clone();
        async move { parts.reached(Phase::Draining).await }
    }
}
