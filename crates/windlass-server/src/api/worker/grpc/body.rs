//! Bodies of gRPC under the rules of all others: a call's comes within its time and
//! counts in the room for all of them; a session's goes on for as long as the
//! session, and there what has come of an unfinished message counts.

use crate::api::App;
use crate::api::input::read_bytes;
use crate::api::problem::Answer;
use crate::api::room::Room;
use crate::listen::HasEnd;
use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use hyper::body::Frame;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tonic::Status;

/// Before each message stand a flag and its length.
const HEAD: usize = 5;
const SESSION: &str = "/windlass.worker.v1.Worker/Session";

pub(super) async fn bounded(
    State(app): State<Arc<App>>,
    request: Request,
    next: Next,
) -> Answer<Response> {
    if request.uri().path() == SESSION {
        let metered =
            |body| Body::new(Metered { body, room: Room::new(), place: Place::default() });
        return Ok(next.run(request.map(metered)).await);
    }
    let (parts, body) = request.into_parts();
    let most = app.terms.limits.body_max + HEAD;
    let (bytes, room) = read_bytes(&parts.headers, body, most).await?;
    let mut answer = next.run(Request::from_parts(parts, Body::from(bytes))).await;
    answer.extensions_mut().insert(HasEnd);
    // The call is done with what it was told.
    drop(room);
    Ok(answer)
}

/// The body of a session. Whoever asks for more is done with the whole messages.
struct Metered {
    body: Body,
    room: Room,
    place: Place,
}

impl HttpBody for Metered {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        this.room.keep(this.place.unfinished);
        let frame = std::task::ready!(Pin::new(&mut this.body).poll_frame(cx));
        if let Some(data) = frame.as_ref().and_then(|f| f.as_ref().ok()?.data_ref()) {
            if let Err(problem) = this.room.more_now(data.len()) {
                return Poll::Ready(Some(Err(axum::Error::new(Status::from(problem)))));
            }
            this.place.pass(data);
        }
        Poll::Ready(frame)
    }
}

/// Where in its messages a stream is.
#[derive(Debug, Default)]
struct Place {
    /// What has come of the head of the next message.
    head: Vec<u8>,
    /// What is to come of this message.
    left: usize,
    /// What has come of it, with its head.
    unfinished: usize,
}

impl Place {
    fn pass(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            let now = if self.left > 0 { self.left } else { HEAD - self.head.len() };
            let (came, rest) = data.split_at(now.min(data.len()));
            data = rest;
            self.unfinished += came.len();
            if self.left > 0 {
                self.left -= came.len();
            } else {
                self.head.extend_from_slice(came);
                let Ok([_, a, b, c, d]) = <[u8; HEAD]>::try_from(self.head.as_slice()) else {
                    return;
                };
                self.left = u32::from_be_bytes([a, b, c, d]) as usize;
                self.head.clear();
            }
            if self.left == 0 {
                self.unfinished = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::stream;
    use http_body_util::BodyExt;
    use tokio::sync::Semaphore;

    fn message(length: u8) -> Vec<u8> {
        [&[0, 0, 0, 0, length][..], &vec![7; length.into()]].concat()
    }

    #[test]
    fn the_place_is_known_however_it_is_cut() {
        let bytes = [message(10), message(0), message(200), message(30)[..20].to_vec()].concat();
        for size in 1..bytes.len() {
            let mut place = Place::default();
            bytes.chunks(size).for_each(|part| place.pass(part));
            assert_eq!((place.unfinished, place.left), (20, 15), "in pieces of {size}");
        }
    }

    #[tokio::test]
    async fn what_is_unfinished_takes_room() {
        static SMALL: Semaphore = Semaphore::const_new(100);
        let long = message(200);
        let parts = [message(60), message(60), long[..50].to_vec(), long[50..101].to_vec()];
        let parts = stream::iter(parts.map(Ok::<_, std::io::Error>));
        let (body, room) = (Body::from_stream(parts), Room::within(&SMALL));
        let mut metered = Metered { body, room, place: Place::default() };
        for free in [35, 35, 50] {
            metered.frame().await.unwrap().unwrap();
            assert_eq!(SMALL.available_permits(), free);
        }
        let refused = metered.frame().await.unwrap().unwrap_err();
        let status = Status::from_error(Box::new(refused));
        assert_eq!(status.code(), tonic::Code::ResourceExhausted);
        assert_eq!(status.metadata().get("windlass-code").unwrap(), "rate-limited");
        drop(metered);
        assert_eq!(SMALL.available_permits(), 100);
    }
}
