//! One reader of the feed for all clients. It follows the store while anybody
//! listens and keeps the newest events in memory, so that a thousand idle
//! clients cost the store nothing; a client that is behind reads the store
//! itself. Nobody waits for a slow client, and nothing is skipped: a client
//! remembers its own position.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::watch;
use windlass::core::event::EventData;
use windlass::core::store::PAGE_MAX;
use windlass::{Engine, Event, Position};

/// How many of the newest events are kept in memory, and how much of their data.
const KEPT: usize = 2000;
const KEPT_BYTES: usize = 8 * 1024 * 1024;

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
    bytes: usize,
    following: bool,
}

impl Kept {
    fn from(after: Position, following: bool) -> Kept {
        Kept { after, events: VecDeque::new(), bytes: 0, following }
    }
}

/// Results are the one thing in an event that can be large.
fn size_of(event: &Event) -> usize {
    match &event.data {
        EventData::Result(json) | EventData::Json(json) => json.as_str().len(),
        EventData::None | EventData::Started { .. } => 0,
    }
}

impl Feed {
    pub(super) fn of(engine: &Engine) -> Arc<Feed> {
        let kept = Kept::from(Position::START, false);
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
        *kept = Kept::from(newest, true);
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
                        *kept = Kept::from(Position(i64::MAX), false);
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

    /// The engine has stopped: clients are woken and see that nobody follows.
    fn end(&self) {
        self.kept.lock().following = false;
        self.newest.send_modify(|_| {});
    }

    fn keep(&self, events: Vec<Event>) {
        let mut kept = self.kept.lock();
        kept.bytes += events.iter().map(size_of).sum::<usize>();
        kept.events.extend(events.into_iter().map(Arc::new));
        while kept.events.len() > KEPT || (kept.bytes > KEPT_BYTES && kept.events.len() > 1) {
            let Some(old) = kept.events.pop_front() else { break };
            kept.bytes -= size_of(&old);
            kept.after = old.position;
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
            self.news.borrow_and_update();
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
            // Looked at after the news was taken as seen, so an end is never missed.
            if !self.feed.kept.lock().following {
                return None;
            }
            self.news.changed().await.ok()?;
        }
    }
}
