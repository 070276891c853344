//! A client that costs as little as possible, because it shares the machine with
//! the server it loads: one prepared request is written again and again on a
//! connection that stays open, and of an answer only the status and the length
//! are looked at. It knows just the HTTP/1.1 that our own server speaks.

use super::left::Left;
use super::orders::{Measured, NOTHING, Spread, UNSERVED};
use super::process;
use super::work::Payload;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

const READ: usize = 4096;

/// One connection that stays open.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// An answer: its status, and where its body begins.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    body: usize,
    length: usize,
}

impl Connection {
    pub(super) async fn open(at: SocketAddr) -> io::Result<Connection> {
        let stream = TcpStream::connect(at).await?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, buffer: Vec::with_capacity(READ) })
    }

    /// Sends a request and gives the body of the answer, which must be 201.
    pub(super) async fn submit(&mut self, request: &[u8]) -> io::Result<&[u8]> {
        self.send(request, 201).await
    }

    /// The same with another status.
    pub(super) async fn send(&mut self, request: &[u8], wanted: u16) -> io::Result<&[u8]> {
        self.stream.write_all(request).await?;
        self.buffer.clear();
        loop {
            if let Some(head) = head_of(&self.buffer)? {
                if head.status != wanted {
                    let text = String::from_utf8_lossy(&self.buffer[head.body..]);
                    let wrong = format!("the server answered {}: {text:.200}", head.status);
                    return Err(io::Error::other(wrong));
                }
                if let Some(body) = self.buffer.get(head.body..head.body + head.length) {
                    // Borrowed again: the loop would not let it go otherwise.
                    let (from, to) = (head.body, head.body + body.len());
                    return Ok(&self.buffer[from..to]);
                }
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// The head of an answer, once all of it is there.
fn head_of(buffer: &[u8]) -> io::Result<Option<Head>> {
    let Some(end) = buffer.windows(4).position(|w| w == b"\r\n\r\n") else { return Ok(None) };
    let strange = || io::Error::new(ErrorKind::InvalidData, "not an answer of our server");
    let text = std::str::from_utf8(&buffer[..end]).map_err(|_| strange())?;
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|s| s.parse().ok());
    let length = lines.find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let (status, length) = (status.ok_or_else(strange)?, length.ok_or_else(strange)?);
    Ok(Some(Head { status, body: end + 4, length }))
}

/// A submission as bytes, ready to be sent.
pub(super) fn request(at: SocketAddr, payload: &Payload) -> Vec<u8> {
    let body = serde_json::json!({"kind": NOTHING, "queue": UNSERVED, "payload": payload});
    let body = body.to_string();
    let length = body.len();
    format!(
        "POST /v1/tasks HTTP/1.1\r\nhost: {at}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// Connections that submit at once, each one task after the other.
#[derive(Debug)]
pub(super) struct Load {
    connections: Vec<Connection>,
    request: Arc<[u8]>,
}

impl Load {
    pub(super) async fn open(at: SocketAddr, callers: u64, payload: &Payload) -> io::Result<Load> {
        let mut connections = vec![];
        for _ in 0..callers {
            connections.push(Connection::open(at).await?);
        }
        Ok(Load { connections, request: request(at, payload).into() })
    }

    /// CPU is this process's, the client's.
    pub(super) async fn round(&mut self, tasks: u64) -> io::Result<Measured> {
        let (began, cpu) = (Instant::now(), process::cpu());
        let left = Left::new(tasks);
        let mut calls = JoinSet::new();
        for mut connection in self.connections.drain(..) {
            let (left, request) = (left.clone(), self.request.clone());
            calls.spawn(async move {
                let mut seconds = vec![];
                while left.take(1) > 0 {
                    let began = Instant::now();
                    connection.submit(&request).await?;
                    seconds.push(began.elapsed().as_secs_f64());
                }
                io::Result::Ok((connection, seconds))
            });
        }
        let mut all = vec![];
        while let Some(call) = calls.join_next().await {
            let (connection, seconds) = call.map_err(io::Error::other)??;
            self.connections.push(connection);
            all.extend(seconds);
        }
        let (wall, cpu) = (began.elapsed().as_secs_f64(), process::cpu() - cpu);
        Ok(Measured { wall, cpu, spread: Spread::of(all) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_of_answers() {
        let text = b"HTTP/1.1 201 Created\r\ncontent-type: x\r\ncontent-length: 2\r\n\r\n{}";
        let head = Head { status: 201, body: text.len() - 2, length: 2 };
        assert_eq!(head_of(text).unwrap(), Some(head));
        assert_eq!(head_of(&text[..30]).unwrap(), None);
        assert!(head_of(b"SSH-2.0\r\n\r\n").is_err());
        assert!(head_of(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }
}
