//! Large answers take room until their last byte is with the client, so that many
//! who ask for much and read slowly cannot fill the memory together. The room goes
//! with the bytes themselves, wherever they wait; how slowly a client may take them
//! is said in `listen/bounds.rs`. Streams make their text as it is taken: they take
//! no room here.

use super::room::{ANSWERS_MAX, Room};
use axum::body::{Body, HttpBody};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Smaller ones are not counted.
const LARGE: usize = 256 * 1024;

/// The answer with its room, or a refusal.
pub(super) async fn roomed(answer: Response) -> Response {
    within(answer, Room::of_answers()).await
}

async fn within(answer: Response, mut room: Room) -> Response {
    let size = answer.body().size_hint().exact().unwrap_or(0);
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    if size <= LARGE {
        return answer;
    }
    // One alone is never too large.
    if let Err(problem) = room.more(size.min(ANSWERS_MAX)).await {
        return problem.into_response();
    }
    let room = Arc::new(room);
    answer.map(|body| Body::new(Roomed { body, room }))
}

/// A body whose bytes carry their room.
struct Roomed {
    body: Body,
    room: Arc<Room>,
}

impl HttpBody for Roomed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(cx));
        let kept = |data| Bytes::from_owner(Kept { data, _room: self.room.clone() });
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(kept))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

struct Kept {
    data: Bytes,
    _room: Arc<Room>,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use tokio::sync::Semaphore;

    fn answer(bytes: usize) -> Response {
        "x".repeat(bytes).into_response()
    }

    #[tokio::test]
    async fn room_is_held_until_the_bytes_are_gone() {
        static SMALL: Semaphore = Semaphore::const_new(3 * LARGE);
        let first = within(answer(2 * LARGE), Room::within(&SMALL)).await;
        assert_eq!(first.body().size_hint().exact(), Some(2 * LARGE as u64));
        let refused = within(answer(2 * LARGE), Room::within(&SMALL)).await;
        assert_eq!(refused.status(), 429);
        assert_eq!(refused.headers()["retry-after"], "1");
        assert_eq!(within(answer(LARGE), Room::within(&SMALL)).await.status(), 200, "a small one");

        let bytes = first.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(bytes.len(), 2 * LARGE);
        assert_eq!(SMALL.available_permits(), LARGE, "the body is gone, its bytes are not");
        drop(bytes);
        assert_eq!(SMALL.available_permits(), 3 * LARGE);
        let next = within(answer(2 * LARGE), Room::within(&SMALL)).await;
        assert_eq!(next.status(), 200);
        drop(next);
        assert_eq!(SMALL.available_permits(), LARGE * 3, "an answer nobody takes gives it back");
    }
}
