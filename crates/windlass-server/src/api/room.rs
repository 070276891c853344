//! Room for the bodies of all requests together, whoever sends them, and for large
//! answers. Bytes of a body are paid for as they come, so that an announcement costs
//! nothing, and given back when the request is done with its text. Who finds no room waits a moment and
//! is then refused.

use super::problem::{Answer, Problem, ProblemCode};
use std::ops::Deref;
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Bytes of bodies that are in memory at a time.
pub(crate) const BODIES_MAX: usize = 256 * 1024 * 1024;
/// How long one waits for others to finish.
const WAIT: Duration = Duration::from_secs(2);

/// Bytes of large answers that are in memory at a time.
pub(super) const ANSWERS_MAX: usize = 256 * 1024 * 1024;

static ALL: Semaphore = Semaphore::const_new(BODIES_MAX);
static ANSWERS: Semaphore = Semaphore::const_new(ANSWERS_MAX);

/// What one body takes.
#[derive(Debug)]
pub(super) struct Room {
    of: &'static Semaphore,
    taken: Option<SemaphorePermit<'static>>,
}

impl Room {
    pub(super) fn new() -> Room {
        Room { of: &ALL, taken: None }
    }

    pub(super) fn of_answers() -> Room {
        Room { of: &ANSWERS, taken: None }
    }

    /// Of its own, for a test.
    #[cfg(test)]
    pub(super) fn within(of: &'static Semaphore) -> Room {
        Room { of, taken: None }
    }

    /// More if there is some, without waiting.
    pub(super) fn more_now(&mut self, bytes: usize) -> Answer<()> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.add(self.of.try_acquire_many(bytes).ok())
    }

    /// Gives back all but so many bytes.
    pub(super) fn keep(&mut self, bytes: usize) {
        if let Some(taken) = &mut self.taken {
            drop(taken.split(taken.num_permits().saturating_sub(bytes)));
        }
    }

    pub(super) async fn more(&mut self, bytes: usize) -> Answer<()> {
        // No piece of a body is nearly as large.
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let found = match self.of.try_acquire_many(bytes) {
            Ok(found) => Some(found),
            Err(_) => {
                let waited = tokio::time::timeout(WAIT, self.of.acquire_many(bytes)).await;
                waited.ok().and_then(Result::ok)
            }
        };
        self.add(found)
    }

    fn add(&mut self, found: Option<SemaphorePermit<'static>>) -> Answer<()> {
        match (found, &mut self.taken) {
            (Some(found), Some(taken)) => taken.merge(found),
            (Some(found), none) => *none = Some(found),
            (None, _) => {
                let detail = "other requests take all the room there is for bodies or answers";
                return Err(Problem::new(ProblemCode::RateLimited, detail));
            }
        }
        Ok(())
    }
}

/// A body that was read, with the room it takes.
#[derive(Debug)]
pub(super) struct Text {
    text: String,
    _room: Room,
}

impl Text {
    pub(super) fn new(text: String, room: Room) -> Text {
        Text { text, _room: room }
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_finds_no_room_waits_and_is_refused() {
        static SMALL: Semaphore = Semaphore::const_new(100);
        let (mut one, mut other) = (Room::within(&SMALL), Room::within(&SMALL));
        one.more(60).await.unwrap();
        one.more(40).await.unwrap();
        let began = tokio::time::Instant::now();
        let refusal = other.more(1).await.unwrap_err();
        assert_eq!(refusal.code(), ProblemCode::RateLimited);
        assert!(began.elapsed() >= WAIT);

        let waiting = tokio::spawn(async move { other.more(100).await.map(|()| other) });
        tokio::task::yield_now().await;
        drop(Text::new("done".to_owned(), one));
        let other = waiting.await.unwrap().unwrap();
        assert_eq!(SMALL.available_permits(), 0);
        drop(other);
        assert_eq!(SMALL.available_permits(), 100, "everything was given back");
    }
}
