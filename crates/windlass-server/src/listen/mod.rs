//! Connections: taking them, bounding them, ending them. Each gets a task that
//! shakes hands if TLS is wanted, then reads requests until the client goes, has
//! been silent for too long, or must make room. `bounds.rs` has the numbers. What
//! is asked on a connection is `api/`'s business.

mod bounds;
mod crowd;
mod pace;
mod patient;

pub use bounds::{Bounds, CONNECTIONS_MAX, Loopback};
pub(crate) use pace::HasEnd;

use crate::tls::Certificates;
use axum::Router;
use axum::extract::ConnectInfo;
use bounds::{
    HEADERS_MAX, PING_EVERY, PONG_TIME, RESETS_MAX, SEND_BUFFER, SOCKET_BUFFER, STREAMS_MAX,
};
use crowd::{Admitted, Asking, Crowd, Line, Seat};
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use pace::{Paced, Streams, has_end};
use patient::Patient;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;
use tower::Service;

/// A condition that lasts is told of this often.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// The first byte of every TLS connection.
const TLS_FIRST: u8 = 0x16;
const WRONG_PORT: &str = r#"{"type":"about:blank","title":"Bad Request","status":400,"detail":"this port speaks https, and the request came as plain http","hint":"write https:// instead of http://"}"#;
/// What somebody who came without TLS may still send before the port is closed.
const WRONG_MAX: u64 = 64 * 1024;

/// What a listener needs beside its router.
#[derive(Debug, Default)]
pub struct Door {
    pub bounds: Bounds,
    /// Plain HTTP without.
    pub certificates: Option<Arc<Certificates>>,
}

/// Serves plain HTTP with the usual bounds until `stop` is ready, then lets
/// answers under way finish.
pub async fn serve(listener: TcpListener, router: Router, stop: impl Future<Output = ()>) {
    serve_at(listener, router, Door::default(), stop).await;
}

/// The same with bounds and certificates of its own.
pub async fn serve_at(
    listener: TcpListener,
    router: Router,
    door: Door,
    stop: impl Future<Output = ()>,
) {
    let closing_time = door.bounds.closing_time;
    let crowd = Crowd::new(door.bounds);
    let (close, closing) = watch::channel(());
    let host = Arc::new(Host { builder: builder(&door.bounds), door, router });
    let mut stop = std::pin::pin!(stop);
    let mut told = Told::default();
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &crowd, &mut told) => accepted,
            () = &mut stop => break,
        };
        let Some((stream, peer, seat)) = accepted else { continue };
        let (host, closing) = (host.clone(), closing.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = host.attend(stream, peer, &seat.line, closing) => {}
                () = seat.line.sent_away() => tracing::debug!(%peer, "closed to make room"),
            }
            drop(seat);
        });
    }
    drop((listener, close));
    if timeout(closing_time, crowd.empty()).await.is_err() {
        tracing::info!("connections that are still open are cut off");
    }
}

fn builder(bounds: &Bounds) -> Builder<Streams> {
    let mut builder = Builder::new(Streams { bounds: *bounds });
    let mut http1 = builder.http1();
    http1.timer(TokioTimer::new()).header_read_timeout(bounds.header_time);
    http1.max_buf_size(HEADERS_MAX);
    let mut http2 = builder.http2();
    http2.timer(TokioTimer::new()).max_header_list_size(HEADERS_MAX as u32);
    http2.max_concurrent_streams(STREAMS_MAX).max_send_buf_size(SEND_BUFFER);
    http2.max_pending_accept_reset_streams(RESETS_MAX);
    http2.max_local_error_reset_streams(RESETS_MAX);
    http2.keep_alive_interval(Some(PING_EVERY)).keep_alive_timeout(PONG_TIME);
    builder
}

/// When what was last said; strangers must not fill the log.
#[derive(Debug, Default)]
struct Told {
    errors: Option<Instant>,
    full: Option<Instant>,
    refused: Option<Instant>,
    shed: Option<Instant>,
    /// Closed since that was told.
    gone: u64,
}

impl Told {
    fn tell_shed(&mut self, crowd: &Crowd) {
        self.gone += crowd.take_shed();
        if self.gone > 0 && is_due(&mut self.shed) {
            let closed = std::mem::take(&mut self.gone);
            tracing::warn!(closed, "silent connections are closed to make room for others");
        }
    }
}

fn is_due(told: &mut Option<Instant>) -> bool {
    let due = told.is_none_or(|at| at.elapsed() > TELL_EVERY);
    if due {
        *told = Some(Instant::now());
    }
    due
}

/// The next connection with a seat; `None`: this one came to nothing.
async fn accept(
    listener: &TcpListener,
    crowd: &Arc<Crowd>,
    told: &mut Told,
) -> Option<(TcpStream, SocketAddr, Seat)> {
    let accepted = listener.accept().await.and_then(|(stream, peer)| {
        // Answers are small and somebody waits for them.
        stream.set_nodelay(true)?;
        rustix::net::sockopt::set_socket_send_buffer_size(&stream, SOCKET_BUFFER)?;
        Ok((stream, peer))
    });
    let (stream, peer) = match accepted {
        Ok(accepted) => accepted,
        Err(error) => {
            // Out of files, mostly: those that are open will close.
            if is_due(&mut told.errors) {
                tracing::warn!(%error, "connections cannot be taken");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            return None;
        }
    };
    loop {
        match crowd.admit(peer.ip()) {
            Admitted::In(seat) => {
                told.tell_shed(crowd);
                return Some((stream, peer, seat));
            }
            Admitted::Refuse => {
                if is_due(&mut told.refused) {
                    tracing::warn!(%peer, "one address has its share of connections, all busy");
                }
                return None;
            }
            Admitted::Wait => {
                if is_due(&mut told.full) {
                    let open = crowd.len();
                    tracing::warn!(open, "new connections wait: server.connections_max is reached");
                }
                crowd.somebody_left().await;
            }
        }
    }
}

/// What all connections share.
struct Host {
    builder: Builder<Streams>,
    door: Door,
    router: Router,
}

impl Host {
    /// One connection to its end.
    async fn attend(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        line: &Arc<Line>,
        closing: watch::Receiver<()>,
    ) {
        let Some(certificates) = &self.door.certificates else {
            return self.talk(stream, peer, line, closing).await;
        };
        let acceptor = TlsAcceptor::from(certificates.current());
        let time = self.door.bounds.handshake_time;
        match timeout(time, shake_hands(stream, acceptor)).await {
            Ok(Ok(stream)) => self.talk(stream, peer, line, closing).await,
            Ok(Err(error)) => tracing::debug!(%peer, %error, "a TLS handshake failed"),
            Err(_) => tracing::debug!(%peer, "a TLS handshake took too long"),
        }
    }

    async fn talk<S>(
        &self,
        stream: S,
        peer: SocketAddr,
        line: &Arc<Line>,
        mut closing: watch::Receiver<()>,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let bounds = &self.door.bounds;
        let (router, on) = (self.router.clone(), line.clone());
        let certificates = self.door.certificates.clone();
        let stream = Patient::new(stream, bounds);
        let answers_end = stream.answers_end();
        let service = hyper::service::service_fn(move |mut request: hyper::Request<Incoming>| {
            let asking = Asking::on(&on);
            let http1 = request.version() < hyper::Version::HTTP_2;
            request.extensions_mut().insert(ConnectInfo(peer));
            if let Some(certificates) = &certificates {
                request.extensions_mut().insert(certificates.clone());
            }
            let (answer, answers_end) = (router.clone().call(request), answers_end.clone());
            async move {
                let answer = answer.await?;
                let has_end = has_end(&answer);
                answers_end.store(has_end && http1, Relaxed);
                Ok::<_, Infallible>(answer.map(|body| Paced::new(body, asking, has_end)))
            }
        });
        let connection = self.builder.serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        tokio::select! {
            ended = connection.as_mut() => return broke_off(peer, ended),
            () = line.idle(bounds.idle_time) => {}
            // An error says that the other end is gone, which is the sign.
            _ = closing.changed() => {}
        }
        connection.as_mut().graceful_shutdown();
        match timeout(bounds.closing_time, connection).await {
            Ok(ended) => broke_off(peer, ended),
            Err(_) => tracing::debug!(%peer, "a connection is cut off"),
        }
    }
}

fn broke_off(peer: SocketAddr, ended: Result<(), Box<dyn std::error::Error + Send + Sync>>) {
    if let Err(error) = ended {
        tracing::debug!(%peer, error, "a connection broke off");
    }
}

/// The handshake, or a word to somebody who came without TLS.
async fn shake_hands(
    mut stream: TcpStream,
    acceptor: TlsAcceptor,
) -> io::Result<tokio_rustls::server::TlsStream<TcpStream>> {
    let mut first = [0];
    stream.peek(&mut first).await?;
    if first[0] == TLS_FIRST || !first[0].is_ascii_alphabetic() {
        return acceptor.accept(stream).await;
    }
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/problem+json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{WRONG_PORT}",
        WRONG_PORT.len()
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    // Closing before everything was read would take the answer back.
    let mut rest = stream.take(WRONG_MAX);
    tokio::io::copy(&mut rest, &mut tokio::io::sink()).await?;
    Err(io::Error::other("it spoke plain HTTP"))
}
