//! Slow strangers of several sorts. Each opens a connection, does as little as
//! it can, and notices when the server has had enough of it.

use super::http2::Http2;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// Between two bytes of one who drips.
const DRIP: Duration = Duration::from_millis(500);
/// An answer of more than a few buffers.
pub(crate) const LARGE: &str = "/v1/openapi.json";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sort {
    /// Says nothing at all.
    Silent,
    /// A byte of its header now and then.
    Header,
    /// A byte of its body now and then.
    Body,
    /// Asks a lot and reads nothing.
    Unread,
    /// Begins a TLS handshake.
    Handshake,
    /// HTTP/2 without a window, but with answers to pings.
    Window,
}

impl Sort {
    pub(crate) const PLAIN: [Sort; 5] =
        [Sort::Silent, Sort::Header, Sort::Body, Sort::Unread, Sort::Window];
}

/// One connection until the server ends it; gives how long that took.
pub(crate) async fn one(sort: Sort, at: SocketAddr) -> std::io::Result<Duration> {
    let began = Instant::now();
    match sort {
        Sort::Window => without_window(at).await?,
        Sort::Unread => unread(at).await?,
        Sort::Silent => dripping(at, "", "").await?,
        Sort::Handshake => dripping(at, "\x16\x03\x01\x02\x00\x01\x00", "").await?,
        Sort::Header => dripping(at, "GET /livez HTTP/1.1\r\nX-Slow: ", "x").await?,
        Sort::Body => {
            let head =
                format!("POST /v1/tasks HTTP/1.1\r\nHost: {at}\r\nContent-Length: 1000\r\n\r\n{{");
            dripping(at, &head, " ").await?;
        }
    }
    Ok(began.elapsed())
}

async fn dripping(at: SocketAddr, first: &str, drop: &str) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(at).await?;
    stream.write_all(first.as_bytes()).await?;
    let mut said = [0; 1024];
    loop {
        match tokio::time::timeout(DRIP, stream.read(&mut said)).await {
            Ok(Ok(0) | Err(_)) => return Ok(()),
            Ok(Ok(_)) => {}
            // A server that has gone shows at the next read.
            Err(_) => drop_one(&mut stream, drop).await,
        }
    }
}

async fn drop_one(stream: &mut TcpStream, drop: &str) {
    let _ = stream.write_all(drop.as_bytes()).await;
}

/// Sends requests until the server takes no more, because its answers are not
/// taken; the end shows when one byte more is sent.
async fn unread(at: SocketAddr) -> std::io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(4096)?;
    let mut stream = socket.connect(at).await?;
    let request = format!("GET {LARGE} HTTP/1.1\r\nHost: {at}\r\n\r\n").repeat(100);
    stream.write_all(request.as_bytes()).await?;
    loop {
        // tidy: allow-sleep because a slow stranger is what is tested
        tokio::time::sleep(DRIP).await;
        if stream.write_all(b"\r\n").await.is_err() {
            return Ok(());
        }
    }
}

/// Many requests on one connection, no room for any answer. The server may end
/// the answers and leave the connection: that is as good.
async fn without_window(at: SocketAddr) -> std::io::Result<()> {
    const STREAMS: u32 = 50;
    let mut http2 = Http2::open(at, 0).await?;
    for n in 0..STREAMS {
        http2.get(2 * n + 1, LARGE).await?;
    }
    let mut ended = 0;
    while ended < STREAMS {
        match http2.next().await {
            Ok(frame) if frame.kind == super::http2::RESET => ended += 1,
            Ok(frame) if frame.kind == super::http2::DATA => {
                let data = frame.body.len();
                return Err(std::io::Error::other(format!("{data} bytes without a window")));
            }
            Ok(_) => {}
            Err(_) => return Ok(()),
        }
    }
    Ok(())
}
