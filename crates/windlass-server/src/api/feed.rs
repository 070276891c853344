//! One reader of the feed for all clients. It follows the store while anybody
//! listens and keeps the newest events in memory, so that a thousand idle
//! clients cost the store nothing; a client that is behind reads the store
//! itself. Nobody waits for a slow client, and nothing is skipped: a client
//! remembers its own position.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::watch;
use windlass::core::store::PAGE_MAX;
use windlass::{Engine, Event, Position};

/// How many of the newest events are kept in memory.
const KEPT: usize = 2000;

/// The newest events, and news of them.
#[derive(Debug)]
pub struct Feed {
    kept: Mutex<Kept>,
    newest: watch::Sender<Position>,
    engine: Engine,
}

#[derive(Debug)]
struct Kept {
    /// Everything after this position is in `events`.
    after: Position,
    events: VecDeque<Arc<Event>>,
    following: bool,
}

impl Feed {
    pub(super) fn of(engine: &Engine) -> Arc<Feed> {
        let kept = Kept { after: Position::START, events: VecDeque::new(), following: false };
        let newest = watch::Sender::new(Position::START);
        Arc::new(Feed { kept: Mutex::new(kept), newest, engine: engine.clone() })
    }

    /// A client that has seen everything up to `after`.
    pub(super) async fn join(
        self: &Arc<Feed>,
        after: Option<Position>,
    ) -> windlass::Result<Client> {
        let newest = self.engine.reader().stats().await?.newest_event;
        let news = self.newest.subscribe();
        self.follow(newest);
        Ok(Client { feed: self.clone(), after: after.unwrap_or(newest), news })
    }

    /// Begins to follow the store, unless somebody does.
    fn follow(self: &Arc<Feed>, newest: Position) {
        let mut kept = self.kept.lock();
        if kept.following {
            return;
        }
        *kept = Kept { after: newest, events: VecDeque::new(), following: true };
        let feed = Arc::clone(self);
        tokio::spawn(async move { feed.read_on(newest).await });
    }

    async fn read_on(&self, after: Position) {
        let mut subscription = self.engine.events(after);
        loop {
            let page = tokio::select! {
                page = subscription.page(PAGE_MAX) => page,
                // The last client is gone: so is the reason to read.
                () = self.newest.closed() => {
                    let mut kept = self.kept.lock();
                    if self.newest.receiver_count() == 0 {
                        kept.following = false;
                        return;
                    }
                    continue;
                }
            };
            match page {
                None => return self.end(),
                Some(Ok(events)) => self.keep(events),
                Some(Err(error)) => {
                    tracing::warn!(%error, "the feed cannot be read; trying again");
                    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                }
            }
        }
    }

    /// The engine has stopped: clients hear it by an unchanged position.
    fn end(&self) {
        self.kept.lock().following = false;
        self.newest.send_modify(|_| {});
    }

    fn keep(&self, events: Vec<Event>) {
        let mut kept = self.kept.lock();
        kept.events.extend(events.into_iter().map(Arc::new));
        while kept.events.len() > KEPT {
            if let Some(old) = kept.events.pop_front() {
                kept.after = old.position;
            }
        }
        if let Some(newest) = kept.events.back().map(|e| e.position) {
            drop(kept);
            self.newest.send_replace(newest);
        }
    }

    /// What is in memory after a position; `None`: only the store knows.
    fn in_memory(&self, after: Position) -> Option<Vec<Arc<Event>>> {
        let kept = self.kept.lock();
        if after < kept.after {
            return None;
        }
        let from = kept.events.partition_point(|e| e.position <= after);
        Some(kept.events.range(from..).take(PAGE_MAX).cloned().collect())
    }
}

/// One listener.
#[derive(Debug)]
pub(super) struct Client {
    feed: Arc<Feed>,
    after: Position,
    news: watch::Receiver<Position>,
}

impl Client {
    /// The next events, at least one; `None` once the engine has stopped.
    pub(super) async fn next(&mut self) -> Option<windlass::Result<Vec<Arc<Event>>>> {
        loop {
            let seen = *self.news.borrow_and_update();
            let events = match self.feed.in_memory(self.after) {
                Some(events) => events,
                None => match self.feed.engine.reader().events(self.after, PAGE_MAX).await {
                    Ok(events) => events.into_iter().map(Arc::new).collect(),
                    Err(error) => return Some(Err(error)),
                },
            };
            if let Some(last) = events.last() {
                self.after = last.position;
                return Some(Ok(events));
            }
            self.news.changed().await.ok()?;
            let stopped = *self.news.borrow() == seen && !self.feed.kept.lock().following;
            if stopped {
                return None;
            }
        }
    }
}
