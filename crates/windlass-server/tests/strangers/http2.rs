//! HTTP/2 by hand: frames as bytes, so that a test can do what no client library
//! would. It answers pings and settings, as a client that wants to stay does.

use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
const WINDOW: u8 = 8;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) body: Vec<u8>,
}

impl Frame {
    pub(crate) fn is_last(&self) -> bool {
        self.kind == DATA && self.flags & END_STREAM != 0
    }
}

pub(crate) struct Http2 {
    socket: TcpStream,
    at: SocketAddr,
}

impl Http2 {
    /// A connection whose answers have this window each.
    pub(crate) async fn open(at: SocketAddr, window: u32) -> std::io::Result<Http2> {
        let mut http2 = Http2 { socket: TcpStream::connect(at).await?, at };
        http2.socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await?;
        let setting = [&[0, 4][..], &window.to_be_bytes()].concat();
        http2.send(SETTINGS, 0, 0, &setting).await?;
        Ok(http2)
    }

    async fn send(&mut self, kind: u8, flags: u8, stream: u32, body: &[u8]) -> std::io::Result<()> {
        let length = (body.len() as u32).to_be_bytes();
        let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
        self.socket.write_all(&[&head, body].concat()).await
    }

    /// GET; streams of clients have odd numbers that grow.
    pub(crate) async fn get(&mut self, stream: u32, path: &str) -> std::io::Result<()> {
        let host = self.at.to_string();
        // The method and scheme by number, path and host as they are.
        let mut block = vec![0x82, 0x86, 0x04, path.len() as u8];
        block.extend(path.as_bytes());
        block.extend([0x01, host.len() as u8]);
        block.extend(host.as_bytes());
        block.extend(b"\x00\x06accept\x11text/event-stream");
        self.send(HEADERS, END_STREAM | END_HEADERS, stream, &block).await
    }

    pub(crate) async fn reset(&mut self, stream: u32) -> std::io::Result<()> {
        self.send(RESET, 0, stream, &8_u32.to_be_bytes()).await
    }

    pub(crate) async fn give_window(&mut self, stream: u32, bytes: u32) -> std::io::Result<()> {
        self.send(WINDOW, 0, stream, &bytes.to_be_bytes()).await
    }

    /// The next frame that says something.
    pub(crate) async fn next(&mut self) -> std::io::Result<Frame> {
        loop {
            let mut head = [0; 9];
            self.socket.read_exact(&mut head).await?;
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            let mut body = vec![0; length];
            self.socket.read_exact(&mut body).await?;
            match (head[3], head[4] & ACK) {
                (PING, 0) => self.send(PING, ACK, 0, &body).await?,
                (SETTINGS, 0) => self.send(SETTINGS, ACK, 0, &[]).await?,
                (PING | SETTINGS | WINDOW, _) => {}
                (kind, _) => return Ok(Frame { kind, flags: head[4], stream, body }),
            }
        }
    }

    /// Everything until a frame of this kind for this stream.
    pub(crate) async fn until(&mut self, kind: u8, stream: u32) -> std::io::Result<Frame> {
        loop {
            let frame = self.next().await?;
            if frame.kind == kind && frame.stream == stream {
                return Ok(frame);
            }
        }
    }

    /// The whole answer of a stream, in bytes of its body.
    pub(crate) async fn whole(&mut self, stream: u32) -> std::io::Result<usize> {
        let mut bytes = 0;
        loop {
            let frame = self.until(DATA, stream).await?;
            bytes += frame.body.len();
            if frame.is_last() {
                return Ok(bytes);
            }
        }
    }
}
