//! Answers of HTTP/2 that nobody takes. There a client can leave one answer
//! standing while the connection lives, so each answer has its own clock: it runs
//! while a piece of the body waits for the client's window, and when it has run
//! too long, or the pieces are taken too slowly, that answer ends, and no other. Bodies are cut into pieces, so that a
//! large one shows progress.

use super::bounds::Bounds;
use super::crowd::Asking;
use axum::body::Body;
use bytes::Bytes;
use hyper::Response;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use hyper::rt::Executor;
use parking_lot::Mutex;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::time::Instant;

/// A client must take this much of an answer in each `write_time`.
const PIECE: usize = 16 * 1024;

tokio::task_local! {
    /// The clock of the answer that this task makes.
    static PACE: Arc<Pace>;
}

/// An answer that must be taken at a rate though its length is not known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HasEnd;

/// Whether it ends as soon as the client has taken it.
pub(super) fn has_end(answer: &Response<Body>) -> bool {
    answer.body().size_hint().exact().is_some() || answer.extensions().get::<HasEnd>().is_some()
}

#[derive(Debug, Default)]
struct Pace(Mutex<Clock>);

#[derive(Debug, Default)]
struct Clock {
    /// Since when the client has a piece to take; `None` while it waits for us.
    since: Option<Instant>,
    /// The first piece; only for answers that have an end.
    began: Option<Instant>,
    has_end: bool,
    handed_over: usize,
}

impl Pace {
    fn handed_over(&self, bytes: usize) {
        let (mut clock, now) = (self.0.lock(), Instant::now());
        clock.since = Some(now);
        clock.handed_over += bytes;
        if clock.has_end {
            clock.began.get_or_insert(now);
        }
    }

    fn asked_for_more(&self) {
        self.0.lock().since = None;
    }

    fn is_over(&self, bounds: &Bounds) -> bool {
        let clock = self.0.lock();
        let time = bounds.time_for(clock.handed_over);
        clock.since.is_some_and(|since| since.elapsed() >= bounds.write_time)
            || clock.began.is_some_and(|began| began.elapsed() >= time)
    }

    async fn stalled(&self, bounds: &Bounds) {
        while !self.is_over(bounds) {
            tokio::time::sleep(bounds.write_time / 4).await;
        }
    }
}

/// Runs each request of an HTTP/2 connection as a task with a clock.
#[derive(Debug, Clone)]
pub(super) struct Streams {
    pub(super) bounds: Bounds,
}

impl<F> Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, answer: F) {
        let (pace, bounds) = (Arc::new(Pace::default()), self.bounds);
        tokio::spawn(PACE.scope(pace.clone(), async move {
            tokio::select! {
                () = answer => {}
                () = pace.stalled(&bounds) => tracing::debug!("an answer that nobody takes is ended"),
            }
        }));
    }
}

/// A body on its way out, which keeps its request under way.
#[derive(Debug)]
pub(super) struct Paced {
    body: Body,
    /// What is left of the piece that came last.
    left: Bytes,
    /// Only for HTTP/2; HTTP/1 notices at the socket.
    pace: Option<Arc<Pace>>,
    _asking: Asking,
}

impl Paced {
    pub(super) fn new(body: Body, asking: Asking, has_end: bool) -> Paced {
        let pace = PACE.try_with(Arc::clone).ok();
        if let Some(pace) = &pace {
            pace.0.lock().has_end = has_end;
        }
        Paced { body, left: Bytes::new(), pace, _asking: asking }
    }

    fn next_piece(&mut self) -> Bytes {
        let length = match self.left.len() {
            length if length > PIECE => PIECE,
            // The last byte goes alone: it waits until the client has room for
            // everything before it, and until then the clock runs.
            length if length > 1 && self.body.is_end_stream() => length - 1,
            length => length,
        };
        self.left.split_to(length)
    }
}

impl HttpBody for Paced {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        let Some(pace) = this.pace.clone() else { return Pin::new(&mut this.body).poll_frame(cx) };
        pace.asked_for_more();
        if this.left.is_empty() {
            match std::task::ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.left = data,
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                end => return Poll::Ready(end),
            }
        }
        let piece = this.next_piece();
        pace.handed_over(piece.len());
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, left) = (self.body.size_hint(), self.left.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower() + left);
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper + left);
        }
        hint
    }
}
