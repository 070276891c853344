//! Many clients that follow the events and have nothing to hear. They are in
//! this process and the server is in another, so that its memory is its own.

use super::http::{Connection, request};
use super::work::Payload;
use serde_json::Value;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// An event that has not come by then does not come.
const PATIENCE: Duration = Duration::from_secs(30);

/// A stream of events, and what came on it.
#[derive(Debug)]
struct Listener {
    stream: TcpStream,
    heard: Vec<u8>,
}

impl Listener {
    async fn open(at: SocketAddr) -> io::Result<Listener> {
        let mut stream = TcpStream::connect(at).await?;
        let request =
            format!("GET /v1/events HTTP/1.1\r\nhost: {at}\r\naccept: text/event-stream\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut listener = Listener { stream, heard: vec![] };
        listener.hear(b"\r\n\r\n").await?;
        if !listener.heard.starts_with(b"HTTP/1.1 200 ") {
            let text = String::from_utf8_lossy(&listener.heard);
            return Err(io::Error::other(format!("no stream of events: {text:.200}")));
        }
        Ok(listener)
    }

    /// Reads until these bytes have come.
    async fn hear(&mut self, wanted: &[u8]) -> io::Result<()> {
        while !self.heard.windows(wanted.len()).any(|w| w == wanted) {
            if self.stream.read_buf(&mut self.heard).await? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
pub(super) struct Listeners(Vec<Listener>);

impl Listeners {
    pub(super) async fn open(at: SocketAddr, count: u64) -> io::Result<Listeners> {
        let mut listeners = vec![];
        for _ in 0..count {
            listeners.push(Listener::open(at).await?);
        }
        Ok(Listeners(listeners))
    }

    /// Submits one task; gives the seconds until everybody has heard of it.
    pub(super) async fn tell(&mut self, at: SocketAddr, payload: &Payload) -> io::Result<f64> {
        let mut connection = Connection::open(at).await?;
        let began = Instant::now();
        let task: Value = serde_json::from_slice(connection.submit(&request(at, payload)).await?)?;
        let id = task["id"].as_str().unwrap_or_default().to_owned();
        if id.is_empty() {
            return Err(io::Error::other("the answer names no task"));
        }
        let mut hearing = JoinSet::new();
        for mut listener in self.0.drain(..) {
            let id = id.clone();
            hearing.spawn(async move {
                let late = |_| io::Error::other("an event did not reach everybody");
                timeout(PATIENCE, listener.hear(id.as_bytes())).await.map_err(late)??;
                io::Result::Ok(listener)
            });
        }
        while let Some(heard) = hearing.join_next().await {
            self.0.push(heard.map_err(io::Error::other)??);
        }
        Ok(began.elapsed().as_secs_f64())
    }
}
