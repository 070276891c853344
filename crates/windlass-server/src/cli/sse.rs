//! Reads the event feed as server-sent events and keeps it open: when the
//! connection ends it connects again and resumes after the last event seen. It
//! comes before `follow.rs` and `event.rs`, which say what events mean.

use super::client::{Call, Client};
use super::failure::{Exit, Failure};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use serde_json::Value;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

/// A server sends at least comments; one that is silent for so long is gone.
const SILENCE: Duration = Duration::from_secs(60);
/// How long a server may be away before the reader gives up.
const AWAY: Duration = Duration::from_secs(60);
const PAUSE_FIRST: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// A message of the feed is small; more is not a feed.
const MESSAGE_MAX: usize = 4 * 1024 * 1024;

/// What the feed has to say.
#[derive(Debug)]
pub(crate) enum Told {
    Event(Value),
    /// The connection was lost and is there again; events may have been missed
    /// if the server has forgotten them.
    Again,
}

type Chunks = BoxStream<'static, reqwest::Result<Bytes>>;

/// An open feed.
pub(crate) struct Feed<'a> {
    client: &'a Client,
    call: Call,
    chunks: Option<Chunks>,
    parser: Parser,
    ready: VecDeque<Value>,
    last_id: Option<String>,
    heard: Instant,
    lost_at: Option<Instant>,
    pause: Duration,
}

impl<'a> Feed<'a> {
    /// Connects; a server that is not there is a failure at once.
    pub(crate) async fn open(client: &'a Client, call: Call) -> Result<Self, Failure> {
        let mut feed = Feed {
            client,
            call: call.header("accept", "text/event-stream"),
            chunks: None,
            parser: Parser::default(),
            ready: VecDeque::new(),
            last_id: None,
            heard: Instant::now(),
            lost_at: None,
            pause: PAUSE_FIRST,
        };
        feed.connect().await?;
        Ok(feed)
    }

    async fn connect(&mut self) -> Result<(), Failure> {
        let mut call = self.call.clone();
        if let Some(id) = &self.last_id {
            call = call.header("last-event-id", id);
        }
        let response = self.client.open(&call).await?;
        self.parser = Parser::default();
        self.heard = Instant::now();
        self.lost_at = None;
        self.chunks = Some(response.bytes_stream().boxed());
        Ok(())
    }

    /// The next event. May be dropped and called again without losing any.
    pub(crate) async fn next(&mut self) -> Result<Told, Failure> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Told::Event(event));
            }
            let Some(chunks) = &mut self.chunks else {
                self.connect_again().await?;
                return Ok(Told::Again);
            };
            match timeout_at(self.heard + SILENCE, chunks.next()).await {
                Ok(Some(Ok(chunk))) => self.take(&chunk)?,
                Ok(Some(Err(_)) | None) | Err(_) => {
                    self.chunks = None;
                    self.lost_at.get_or_insert_with(Instant::now);
                }
            }
        }
    }

    fn take(&mut self, chunk: &[u8]) -> Result<(), Failure> {
        self.heard = Instant::now();
        self.pause = PAUSE_FIRST;
        for message in self.parser.push(chunk) {
            if message.id.is_some() {
                self.last_id = message.id;
            }
            if let Ok(event) = serde_json::from_str(&message.data) {
                self.ready.push_back(event);
            }
        }
        if self.parser.pending() > MESSAGE_MAX {
            let hint = "see whether --server is a Windlass server";
            return Err(Failure::new(Exit::Failed, "the answer is not an event feed", hint));
        }
        Ok(())
    }

    async fn connect_again(&mut self) -> Result<(), Failure> {
        loop {
            sleep(self.pause).await;
            self.pause = (self.pause * 2).min(PAUSE_MAX);
            let failure = match self.connect().await {
                Ok(()) => return Ok(()),
                Err(failure) => failure,
            };
            let away = self.lost_at.is_some_and(|at| at.elapsed() > AWAY);
            if failure.code != Exit::Unreachable || away {
                return Err(failure);
            }
        }
    }
}

/// One message of a feed.
#[derive(Debug, PartialEq, Eq)]
struct Message {
    id: Option<String>,
    data: String,
}

/// Takes bytes as they come and gives whole messages.
#[derive(Debug, Default)]
struct Parser {
    line: Vec<u8>,
    id: Option<String>,
    data: String,
}

impl Parser {
    fn pending(&self) -> usize {
        self.line.len() + self.data.len()
    }

    fn push(&mut self, bytes: &[u8]) -> Vec<Message> {
        let mut messages = Vec::new();
        for &byte in bytes {
            if byte != b'\n' {
                self.line.push(byte);
                continue;
            }
            let line = std::mem::take(&mut self.line);
            let line = String::from_utf8_lossy(&line);
            messages.extend(self.end_line(line.trim_end_matches('\r')));
        }
        messages
    }

    fn end_line(&mut self, line: &str) -> Option<Message> {
        if line.is_empty() {
            let (id, mut data) = (self.id.take(), std::mem::take(&mut self.data));
            // Each line of data ends with a line end; the last one is not meant.
            data.pop();
            return (!data.is_empty()).then_some(Message { id, data });
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => self.id = Some(value.to_owned()),
            "data" => {
                self.data.push_str(value);
                self.data.push('\n');
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(id: &str, data: &str) -> Message {
        Message { id: Some(id.to_owned()), data: data.to_owned() }
    }

    #[test]
    fn messages_are_read_however_they_are_cut() {
        let text = b": hello\r\n\r\nid: 7\r\nevent: x\ndata: {\"a\":\ndata: 1}\n\nid:8\ndata:2\n\n";
        let expected = [message("7", "{\"a\":\n1}"), message("8", "2")];
        for size in 1..text.len() {
            let mut parser = Parser::default();
            let messages: Vec<Message> = text.chunks(size).flat_map(|c| parser.push(c)).collect();
            assert_eq!(messages, expected, "in pieces of {size}");
        }
    }

    #[test]
    fn comments_and_half_messages_are_no_events() {
        let mut parser = Parser::default();
        assert!(parser.push(b": keep-alive\n\nid: 3\ndata: x").is_empty());
        assert_eq!(parser.push(b"y\n\n"), [message("3", "xy")]);
    }
}
