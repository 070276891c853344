//! Connections: taking them, bounding them, ending them. Reading a header has a
//! time limit, headers and connections a maximum, and a client that does not
//! take its answer is cut off. What is asked on a connection is `api/`'s
//! business.

use axum::Router;
use axum::extract::ConnectInfo;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, Sleep};
use tower::Service;

/// A header must have come within this time, and so must the first word of a
/// connection and the next one of a connection that is kept: clients keep them for
/// about as long.
const HEADER_TIME: Duration = Duration::from_secs(30);
/// So many bytes tell the protocol: the preface of HTTP/2.
const FIRST_BYTES: usize = 24;
/// All headers together.
const HEADERS_MAX: usize = 64 * 1024;
/// A client that takes nothing of its answer for this long is cut off.
const WRITE_TIME: Duration = Duration::from_secs(30);
/// A condition that lasts is told of this often.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// More wait until one is closed.
const CONNECTIONS_MAX: usize = 10_000;
/// How long answers under way may take after a stop was asked for.
const CLOSING_TIME: Duration = Duration::from_secs(5);

/// Serves until `stop` is ready, then lets answers under way finish.
pub async fn serve(listener: TcpListener, router: Router, stop: impl Future<Output = ()>) {
    let mut builder = Builder::new(TokioExecutor::new());
    let mut http1 = builder.http1();
    http1.timer(TokioTimer::new()).header_read_timeout(HEADER_TIME).max_buf_size(HEADERS_MAX);
    let mut http2 = builder.http2();
    http2.timer(TokioTimer::new()).max_header_list_size(HEADERS_MAX as u32);
    http2.max_concurrent_streams(200).keep_alive_interval(Some(Duration::from_secs(30)));
    let closing = GracefulShutdown::new();
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut stop = std::pin::pin!(stop);
    let mut told = None;
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &room) => accepted,
            () = &mut stop => break,
        };
        let (stream, peer, place) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of files, mostly: those that are open will close.
                if told.is_none_or(|at: Instant| at.elapsed() > TELL_EVERY) {
                    tracing::warn!(%error, "connections cannot be taken");
                    told = Some(Instant::now());
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let router = router.clone();
        let service = hyper::service::service_fn(move |mut request: hyper::Request<Incoming>| {
            request.extensions_mut().insert(ConnectInfo(peer));
            router.clone().call(request)
        });
        let connection = builder
            .serve_connection_with_upgrades(TokioIo::new(Patient::new(stream)), service)
            .into_owned();
        let connection = closing.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%peer, error, "a connection broke off");
            }
            drop(place);
        });
    }
    drop(listener);
    if tokio::time::timeout(CLOSING_TIME, closing.shutdown()).await.is_err() {
        tracing::info!("connections that are still open are cut off");
    }
}

type Place = tokio::sync::OwnedSemaphorePermit;

async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> io::Result<(TcpStream, SocketAddr, Place)> {
    let place = room.clone().acquire_owned().await.map_err(io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    // Answers are small and somebody waits for them.
    stream.set_nodelay(true)?;
    Ok((stream, peer, place))
}

/// A stream that gives up on a peer that says nothing at first, or takes nothing.
struct Patient {
    stream: TcpStream,
    /// Running until the first bytes have come: before those nobody else watches
    /// the time, because it is not known yet which protocol they will be.
    silent: Option<Pin<Box<Sleep>>>,
    heard: usize,
    /// Running while a write waits.
    until: Option<Pin<Box<Sleep>>>,
}

impl Patient {
    fn new(stream: TcpStream) -> Self {
        let silent = Some(Box::pin(tokio::time::sleep(HEADER_TIME)));
        Patient { stream, silent, heard: 0, until: None }
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
        let sleep = || Box::pin(tokio::time::sleep_until(Instant::now() + WRITE_TIME));
        let until = self.until.get_or_insert_with(sleep);
        match until.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Patient {
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

impl AsyncWrite for Patient {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.judged(cx, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.judged(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        self.judged(cx, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
