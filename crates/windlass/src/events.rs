//! Reading the feed of events: in order per task, from any position, without
//! missing a late commit. A subscription reads the store and is woken by what
//! this process writes; what others write it finds at the next poll. A slow
//! reader slows nobody: the feed is in the store, not in a channel.

use crate::parts::{Parts, Phase};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use tokio::sync::Notify;
use windlass_core::error::Result;
use windlass_core::event::{Event, Position};
use windlass_core::store::PAGE_MAX;

/// Wakes readers after a commit of this process.
#[derive(Debug, Default)]
pub(crate) struct Feed {
    readers: AtomicUsize,
    news: Notify,
}

impl Feed {
    pub(crate) fn changed(&self) {
        if self.readers.load(Ordering::Acquire) > 0 {
            self.news.notify_waiters();
        }
    }
}

/// Events one after another. Remember [`Subscription::position`] to go on there
/// later, in another process too.
#[derive(Debug)]
pub struct Subscription {
    parts: Weak<Parts>,
    after: Position,
    page: VecDeque<Event>,
}

impl Subscription {
    pub(crate) fn new(parts: &Arc<Parts>, after: Position) -> Self {
        parts.feed.readers.fetch_add(1, Ordering::AcqRel);
        Subscription { parts: Arc::downgrade(parts), after, page: VecDeque::new() }
    }

    /// The position of the last event that was given out.
    pub fn position(&self) -> Position {
        self.after
    }

    /// Waits for the next event; `None` once the engine has stopped. A failed
    /// read can be repeated: nothing is skipped.
    pub async fn next(&mut self) -> Option<Result<Event>> {
        if let Err(error) = self.fill().await? {
            return Some(Err(error));
        }
        let event = self.page.pop_front()?;
        self.after = event.position;
        Some(Ok(event))
    }

    /// Waits like [`Subscription::next`] and gives what is there then, at most
    /// `max` events and never none, unless `max` is 0.
    pub async fn page(&mut self, max: usize) -> Option<Result<Vec<Event>>> {
        if let Err(error) = self.fill().await? {
            return Some(Err(error));
        }
        let page: Vec<Event> = self.page.drain(..max.min(self.page.len())).collect();
        self.after = page.last().map_or(self.after, |event| event.position);
        Some(Ok(page))
    }

    /// Waits until the page has something.
    async fn fill(&mut self) -> Option<Result<()>> {
        loop {
            if !self.page.is_empty() {
                return Some(Ok(()));
            }
            let parts = self.parts.upgrade()?;
            let news = parts.feed.news.notified();
            match parts.store.events(self.after, PAGE_MAX).await {
                Ok(page) if page.is_empty() => {}
                Ok(page) => {
                    self.page = page.into();
                    continue;
                }
                Err(error) => return Some(Err(error)),
            }
            if parts.phase() == Phase::Stopped {
                return None;
            }
            tokio::select! {
                () = news => {}
                () = parts.clock.sleep_until(parts.clock.uptime() + parts.settings.poll) => {}
                () = parts.reached(Phase::Stopped) => {}
            }
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(parts) = self.parts.upgrade() {
            parts.feed.readers.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
