//! A stream that gives up on a peer that says nothing at first, or takes nothing
//! of what is written, or takes an answer too slowly. It stands between a connection, plain or TLS, and the HTTP
//! parser, and knows neither of them.

use super::bounds::Bounds;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// So many bytes tell the protocol: the preface of HTTP/2.
const FIRST_BYTES: usize = 24;

pub(super) struct Patient<S> {
    stream: S,
    /// Running until the first bytes have come: before those nobody else watches
    /// the time, because it is not known yet which protocol they will be.
    silent: Option<Pin<Box<Sleep>>>,
    heard: usize,
    bounds: Bounds,
    /// Running while a write waits.
    until: Option<Pin<Box<Sleep>>>,
    /// Since when there is more to write than the peer takes, and what it took.
    behind: Option<(Instant, usize)>,
    answers_end: Arc<AtomicBool>,
}

impl<S> Patient<S> {
    pub(super) fn new(stream: S, bounds: &Bounds) -> Self {
        let silent = Some(Box::pin(tokio::time::sleep(bounds.header_time)));
        let answers_end = Arc::default();
        let bounds = *bounds;
        Patient { stream, silent, heard: 0, bounds, until: None, behind: None, answers_end }
    }

    /// Whether the rate of answers holds for what is written now; said by whoever
    /// knows the answer, if there is only one at a time.
    pub(super) fn answers_end(&self) -> Arc<AtomicBool> {
        self.answers_end.clone()
    }

    fn written(
        &mut self,
        cx: &mut Context<'_>,
        polled: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let (Poll::Ready(Ok(bytes)), Some((_, taken))) = (&polled, &mut self.behind) {
            *taken += bytes;
        }
        self.judged(cx, polled)
    }

    /// Until when the peer must have taken something.
    fn patience(&mut self) -> Instant {
        let now = Instant::now();
        let (since, taken) = *self.behind.get_or_insert((now, 0));
        let until = now + self.bounds.write_time;
        match self.answers_end.load(Relaxed) {
            true => until.min(since + self.bounds.time_for(taken)),
            false => until,
        }
    }

    fn judged<T>(
        &mut self,
        cx: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.until = None;
            return polled;
        }
        if self.until.is_none() {
            self.until = Some(Box::pin(tokio::time::sleep_until(self.patience())));
        }
        let Some(until) = &mut self.until else { return Poll::Pending };
        match until.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        let this = &mut *self;
        let Some(silent) = &mut this.silent else { return polled };
        this.heard += buf.filled().len() - before;
        if this.heard >= FIRST_BYTES {
            this.silent = None;
        } else if polled.is_pending() && silent.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.written(cx, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.written(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        if polled.is_ready() {
            self.behind = None;
        }
        self.judged(cx, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.judged(cx, polled)
    }
}
