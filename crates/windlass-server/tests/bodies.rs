//! Bodies that are too large, too deep, endless or no text at all, sent to a real
//! server one after the other. Each is refused in the usual form, none of them is
//! an error of the server, and its memory stays within bounds meanwhile.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout)] // a test fails by panicking

mod process;

use process::{Home, PATIENCE, Process};
use reqwest::Response;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const MIB: usize = 1024 * 1024;
/// The default of `server.body_max`.
const BODY_MAX: usize = 16 * MIB;
/// More than the process has when it is idle.
const GROWTH_MAX: u64 = 50_000_000;

/// How much the process has grown at most since it was idle.
struct Scale<'a> {
    server: &'a Process,
    idle: u64,
}

impl<'a> Scale<'a> {
    fn new(server: &'a Process) -> Scale<'a> {
        server.forget_peak();
        Scale { server, idle: server.memory("VmRSS") }
    }

    #[track_caller]
    fn holds(&self, what: &str) {
        let peak = self.server.memory("VmHWM").saturating_sub(self.idle);
        let now = self.server.memory("VmRSS").saturating_sub(self.idle);
        let mib = |bytes: u64| bytes as f64 / MIB as f64;
        println!("{what}: grown by {:.1} MiB at most, {:.1} MiB now", mib(peak), mib(now));
        assert!(peak < GROWTH_MAX, "{what}: grown by {:.1} MiB", mib(peak));
    }
}

/// A submission of exactly so many bytes.
fn of_size(bytes: usize) -> String {
    let (before, after) = (r#"{"kind":"demo.hello","payload":{"name":""#, r#""}}"#);
    let text = "x".repeat(bytes - before.len() - after.len());
    format!("{before}{text}{after}")
}

/// Brackets around brackets, and then the kind.
fn of_depth(depth: usize) -> String {
    let (open, close) = ("[".repeat(depth), "]".repeat(depth));
    format!(r#"{{"payload":{open}{close},"kind":"demo.hello"}}"#)
}

fn bulk_of(tasks: usize) -> String {
    let task = json!({ "kind": "demo.hello", "payload": { "name": "x".repeat(100) } });
    json!({ "tasks": vec![task; tasks] }).to_string()
}

/// As many small things as a body can hold.
fn crowds() -> [(&'static str, String); 4] {
    let body = |before: &str, entry: &str, after: &str| {
        let room = BODY_MAX - before.len() - after.len();
        let mut text = before.to_owned();
        let entries = (0..room / (entry.len() + 8)).map(|i| entry.replace('#', &i.to_string()));
        text.push_str(&entries.collect::<Vec<_>>().join(","));
        text + after
    };
    [
        ("/v1/tasks", body(r#"{"kind":"demo.chain","steps":["#, "\"\"", "]}")),
        ("/v1/tasks", body(r#"{"kind":"demo.chain","labels":{"#, "\"#\":\"\"", "}}")),
        ("/v1/tasks", format!(r#"{{"kind":"{}"}}"#, "x".repeat(BODY_MAX - 11))),
        ("/v1/tasks/bulk", body(r#"{"tasks":["#, r#"{"kind":"demo.hello"}"#, "]}")),
    ]
}

async fn post(home: &Home, path: &str, body: impl Into<reqwest::Body>) -> Response {
    let request = home.client.post(home.url(path)).header("content-type", "application/json");
    request.body(body).send().await.expect("an answer")
}

async fn refused(answer: Response, status: u16, code: &str) {
    let kind = answer.headers().get("content-type").cloned();
    let (is, text) = (answer.status(), answer.text().await.expect("text"));
    assert_eq!(is.as_u16(), status, "{text}");
    assert_eq!(kind.expect("a content type"), "application/problem+json", "{text}");
    let problem: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(problem["code"], code, "{text}");
    assert!(text.len() < 10_000, "the answer repeats what was sent: {} bytes", text.len());
}

/// Sends chunks until the server has had enough; gives what it said and how
/// much it took.
async fn endless(home: &Home) -> (String, usize) {
    let stream = TcpStream::connect(home.at).await.expect("a connection");
    let (mut from, mut to) = stream.into_split();
    let head = format!(
        "POST /v1/tasks HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n\
         transfer-encoding: chunked\r\n\r\n",
        home.at
    );
    to.write_all(head.as_bytes()).await.expect("a head that is taken");
    let sending = tokio::spawn(async move {
        let chunk = format!("{:x}\r\n{}\r\n", 64 * 1024, "x".repeat(64 * 1024));
        let mut sent = 0;
        while to.write_all(chunk.as_bytes()).await.is_ok() {
            sent += chunk.len();
        }
        sent
    });
    let mut said = vec![];
    // A reset ends it as well as a close.
    let _ = tokio::time::timeout(PATIENCE, from.read_to_end(&mut said)).await.expect("an end");
    drop(from);
    let sent = tokio::time::timeout(Duration::from_secs(30), sending).await;
    let sent = sent.expect("a connection that is closed").expect("a number");
    (String::from_utf8_lossy(&said).into_owned(), sent)
}

#[tokio::test]
async fn no_body_is_too_much() {
    // Made before there is a connection: it takes so long that the server would
    // close one that waits.
    let crowds = crowds();
    let home = Home::new("");
    let server = home.ready().await;
    // What every server needs once is there.
    let warm = post(&home, "/v1/tasks", of_size(1000)).await;
    assert_eq!(warm.status(), 201);
    let scale = Scale::new(&server);

    // Within the limit of bodies, and over that of payloads.
    for size in [BODY_MAX - 1, BODY_MAX] {
        refused(post(&home, "/v1/tasks", of_size(size)).await, 413, "payload-too-large").await;
        scale.holds(&format!("{size} bytes"));
    }
    let over = of_size(BODY_MAX + 1);
    refused(post(&home, "/v1/tasks", over).await, 413, "payload-too-large").await;
    scale.holds("one byte too many");
    // The same without saying so before.
    let pieces = futures::stream::iter((0..17).map(|_| Ok::<_, std::io::Error>(vec![b' '; MIB])));
    let chunked = post(&home, "/v1/tasks", reqwest::Body::wrap_stream(pieces)).await;
    refused(chunked, 413, "payload-too-large").await;
    scale.holds("chunks beyond the limit");

    let (said, sent) = endless(&home).await;
    assert!(said.starts_with("HTTP/1.1 413 "), "after {sent} bytes: {said:?}");
    assert!(said.contains("application/problem+json"), "{said}");
    scale.holds(&format!("an endless body ({} MiB were taken)", sent / MIB));

    refused(post(&home, "/v1/tasks", of_depth(100_000)).await, 400, "bad-json").await;
    scale.holds("100,000 brackets");
    let mut broken = of_size(MIB).into_bytes();
    broken[MIB / 2] = 0xff;
    refused(post(&home, "/v1/tasks", broken).await, 400, "bad-json").await;
    scale.holds("no UTF-8");

    refused(post(&home, "/v1/tasks/bulk", bulk_of(10_001)).await, 422, "invalid-fields").await;
    scale.holds("a bulk of 10,001");
    for (path, body) in crowds {
        let what = format!("{path} {:.40}", body);
        refused(post(&home, path, body).await, 422, "invalid-fields").await;
        scale.holds(&what);
    }
    let whole = post(&home, "/v1/tasks/bulk", bulk_of(10_000)).await;
    assert_eq!(whole.status(), 201);
    scale.holds("a bulk of 10,000");
    let answer = post(&home, "/v1/tasks", of_size(1000)).await;
    assert_eq!(answer.status(), 201, "it still works");
}

/// Eight million empty reports are 16 MiB as a message of gRPC, and would be more than
/// a gigabyte of reports.
#[tokio::test]
async fn no_message_is_too_much() {
    let home = Home::new("");
    let server = home.ready().await;
    let mut message = [0x5a, 0].repeat((BODY_MAX - 5) / 2);
    let length = u32::try_from(message.len()).expect("a length").to_be_bytes();
    message.splice(0..0, [&[0][..], &length].concat());
    let scale = Scale::new(&server);
    let request = home.client.post(home.url("/windlass.worker.v1.Worker/Report"));
    let request = request.header("content-type", "application/grpc").header("te", "trailers");
    let answer = request.body(message).send().await.expect("an answer");
    let said = answer.headers().get("grpc-message").expect("words").to_str().expect("text");
    assert!(said.starts_with("/reports:%20more"), "{said}");
    scale.holds("eight million reports");
}
