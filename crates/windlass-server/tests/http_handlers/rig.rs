//! A receiver that writes down what it was sent and answers as the case says, byte
//! by byte if need be; and an engine in memory whose only handler asks it.

use parking_lot::Mutex;
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use windlass::core::outcome::Failure;
use windlass::prelude::*;
use windlass::{State, Task};
use windlass_server::handlers::{HttpHandler, HttpSpec};
use windlass_server::outbound::{Outbound, Reach, Target};

/// Retries that wait for nothing.
pub(crate) const AT_ONCE: Exponential = Exponential {
    retries: 3,
    first: Duration::ZERO,
    factor: 1.0,
    cap: Duration::ZERO,
    jitter: 0.0,
};
/// Nothing that is waited for takes this long.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) line: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) at: Instant,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

/// What a receiver does with a request.
#[derive(Debug, Clone)]
pub(crate) enum Play {
    Say(Vec<u8>),
    /// Says this much, then nothing until the other side goes.
    Hang(Vec<u8>),
    /// Says this much and goes.
    Leave(Vec<u8>),
}

/// A whole answer.
pub(crate) fn say(status: &str, headers: &str, body: &str) -> Play {
    let length = body.len();
    Play::Say(
        format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n{headers}\r\n{body}").into(),
    )
}

#[derive(Default)]
struct Seen {
    requests: Mutex<Vec<Request>>,
    connections: AtomicUsize,
    gone: AtomicUsize,
}

/// Listens until it is dropped.
pub(crate) struct Receiver {
    pub(crate) at: SocketAddr,
    seen: Arc<Seen>,
    listening: tokio::task::JoinHandle<()>,
}

impl Receiver {
    pub(crate) async fn new(
        play: impl Fn(usize, &Request) -> Play + Send + Sync + 'static,
    ) -> Self {
        Receiver::at((Ipv4Addr::LOCALHOST, 0).into(), play).await.expect("a listener")
    }

    /// The play gets the number of the request, from 0.
    pub(crate) async fn at(
        at: SocketAddr,
        play: impl Fn(usize, &Request) -> Play + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind(at).await?;
        let (at, seen) = (listener.local_addr()?, Arc::new(Seen::default()));
        let (kept, play) = (seen.clone(), Arc::new(play));
        let listening = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                seen.connections.fetch_add(1, Ordering::SeqCst);
                let (seen, play) = (seen.clone(), play.clone());
                tokio::spawn(async move {
                    let _ = serve(stream, &seen, &*play).await;
                    seen.gone.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        Ok(Receiver { at, seen: kept, listening })
    }

    /// A URL that leads here.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.at)
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.seen.requests.lock().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    /// Connections that are over.
    pub(crate) fn gone(&self) -> usize {
        self.seen.gone.load(Ordering::SeqCst)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn serve(
    mut stream: TcpStream,
    seen: &Seen,
    play: &(dyn Fn(usize, &Request) -> Play + Send + Sync),
) -> std::io::Result<()> {
    let mut held = vec![];
    while let Some(request) = read(&mut stream, &mut held).await? {
        let n = {
            let mut requests = seen.requests.lock();
            requests.push(request.clone());
            requests.len() - 1
        };
        match play(n, &request) {
            Play::Say(bytes) => stream.write_all(&bytes).await?,
            Play::Leave(bytes) => {
                stream.write_all(&bytes).await?;
                return stream.shutdown().await;
            }
            Play::Hang(bytes) => {
                stream.write_all(&bytes).await?;
                let mut rest = [0; 1024];
                while stream.read(&mut rest).await? > 0 {}
                return Ok(());
            }
        }
    }
    Ok(())
}

/// The next request of a connection; `None` when the other side went.
async fn read(stream: &mut TcpStream, held: &mut Vec<u8>) -> std::io::Result<Option<Request>> {
    let head = loop {
        if let Some(at) = held.windows(4).position(|four| four == b"\r\n\r\n") {
            break at;
        }
        if stream.read_buf(held).await? == 0 {
            return Ok(None);
        }
    };
    let text = String::from_utf8_lossy(&held[..head]).into_owned();
    held.drain(..head + 4);
    let mut lines = text.split("\r\n");
    let line = lines.next().unwrap_or_default().to_owned();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length: usize = length.map_or(0, |(_, value)| value.parse().expect("a length"));
    while held.len() < length {
        if stream.read_buf(held).await? == 0 {
            return Ok(None);
        }
    }
    let body = held.drain(..length).collect();
    Ok(Some(Request { line, headers, body, at: Instant::now() }))
}

/// One step of the kind `job`, without retries.
pub(crate) fn once() -> KindOptions {
    KindOptions::new().step_retries(0).retries(0)
}

pub(crate) fn spec(url: &str) -> HttpSpec {
    HttpSpec::new(Target::parse(url).unwrap_or_else(|e| panic!("{url}: {e}")))
}

/// A client that may reach private addresses.
pub(crate) fn near() -> Outbound {
    Outbound::new(Reach::Private).expect("a client")
}

/// A client that may not, but for these.
pub(crate) fn far(except: &[IpAddr]) -> Outbound {
    let names = windlass_server::outbound::SystemNames;
    Outbound::with(Reach::Public, names, except.iter().copied()).expect("a client")
}

pub(crate) struct Rig {
    pub(crate) engine: Engine,
}

impl Rig {
    /// Asks this receiver, once.
    pub(crate) async fn ask(receiver: &Receiver) -> Rig {
        Rig::with(spec(&receiver.url("/step")), near(), once()).await
    }

    pub(crate) async fn with(spec: HttpSpec, outbound: Outbound, options: KindOptions) -> Rig {
        let builder = Windlass::in_memory().await.expect("a store");
        let builder =
            builder.handler("h", HttpHandler::new(spec, outbound)).plan_with("job", ["h"], options);
        Rig { engine: builder.start().await.expect("an engine") }
    }

    pub(crate) async fn submit(&self, payload: Value) -> Handle<Value> {
        self.engine.submit_named("job", &payload).await.expect("submitted")
    }

    /// Submits and waits for the end.
    pub(crate) async fn run(&self) -> Task {
        ended(self.submit(json!({"n": 1})).await).await
    }
}

pub(crate) async fn ended(handle: Handle<Value>) -> Task {
    tokio::time::timeout(LIMIT, handle.ended()).await.expect("in time").expect("an end")
}

/// The output of a task that must have completed.
pub(crate) fn output(task: &Task) -> Value {
    assert_eq!(task.state(), State::Completed, "{:?}", task.standing.failure);
    task.standing.result.as_ref().expect("a result").to().expect("JSON")
}

/// Reason, class and message of a failed task.
pub(crate) fn why(task: &Task) -> (&'static str, &'static str, &str) {
    let Failure { reason, error } = task.standing.failure.as_ref().expect("a failure");
    (reason.map_or("", |r| r.as_str()), error.class.as_str(), &error.message)
}

pub(crate) async fn until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < LIMIT, "in time: {what}");
        let look = Duration::from_millis(5);
        tokio::time::sleep(look).await; // tidy: allow-sleep because nobody tells when a socket changes
    }
}
