//! Answers of HTTP/2 that nobody takes. There a client can leave one answer
//! standing while the connection lives, so each answer has its own clock: it runs
//! while a piece of the body waits for the client's window, and when it has run
//! too long that answer ends, and no other. Bodies are cut into pieces, so that a
//! large one shows progress.

use super::crowd::Asking;
use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use hyper::rt::Executor;
use parking_lot::Mutex;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;

/// A client must take this much of an answer in each `write_time`.
const PIECE: usize = 16 * 1024;

tokio::task_local! {
    /// The clock of the answer that this task makes.
    static PACE: Arc<Pace>;
}

/// Since when the client has a piece to take; `None` while it waits for us.
#[derive(Debug, Default)]
struct Pace(Mutex<Option<Instant>>);

impl Pace {
    fn handed_over(&self) {
        *self.0.lock() = Some(Instant::now());
    }

    fn asked_for_more(&self) {
        *self.0.lock() = None;
    }

    async fn stalled(&self, time: Duration) {
        loop {
            tokio::time::sleep(time / 4).await;
            if self.0.lock().is_some_and(|since| since.elapsed() >= time) {
                return;
            }
        }
    }
}

/// Runs each request of an HTTP/2 connection as a task with a clock.
#[derive(Debug, Clone)]
pub(super) struct Streams {
    pub(super) write_time: Duration,
}

impl<F> Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, answer: F) {
        let (pace, time) = (Arc::new(Pace::default()), self.write_time);
        tokio::spawn(PACE.scope(pace.clone(), async move {
            tokio::select! {
                () = answer => {}
                () = pace.stalled(time) => tracing::debug!("an answer that nobody takes is ended"),
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
    pub(super) fn new(body: Body, asking: Asking) -> Paced {
        let pace = PACE.try_with(Arc::clone).ok();
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
        pace.handed_over();
        Poll::Ready(Some(Ok(Frame::data(this.next_piece()))))
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
