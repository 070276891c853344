//! Sizes and times: bodies around the limit, endless ones, deep ones, slow
//! ones, and headers that never end.

use crate::place::{Got, LIMITS, Place};
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

fn padded(size: usize) -> String {
    let empty = r#"{"kind":"demo.hello","payload":{"pad":""}}"#;
    let pad = "x".repeat(size - empty.len());
    format!(r#"{{"kind":"demo.hello","payload":{{"pad":"{pad}"}}}}"#)
}

async fn raw(place: &Place, body: impl Into<reqwest::Body>) -> Got {
    let request = place.client.post(place.url("/v1/tasks")).body(body);
    Got::of(request.send().await.expect("an answer")).await
}

#[tokio::test]
async fn bodies_around_the_limits() {
    let place = Place::new().await;
    for size in [LIMITS.body_max - 1, LIMITS.body_max] {
        let got = raw(&place, padded(size)).await;
        assert!(got.problem(413, "payload-too-large").detail().contains("payload"), "{}", got.text);
    }
    let got = raw(&place, padded(LIMITS.body_max + 1)).await;
    assert!(got.problem(413, "payload-too-large").detail().contains("body"), "{}", got.text);
    // The payload's own limit: `{"pad":""}` is ten bytes of it.
    let max = 1024 * 1024;
    let around = |payload: usize| padded(payload + r#"{"kind":"demo.hello","payload":}"#.len());
    raw(&place, around(max - 1)).await.is(201);
    raw(&place, around(max)).await.is(201);
    raw(&place, around(max + 1)).await.problem(413, "payload-too-large");
}

#[tokio::test]
async fn an_endless_body_is_cut_off() {
    let place = Place::new().await;
    let pieces = futures::stream::repeat_with(|| Ok::<_, std::io::Error>(vec![b' '; 64 * 1024]));
    let request =
        place.client.post(place.url("/v1/tasks")).body(reqwest::Body::wrap_stream(pieces));
    match request.send().await {
        Ok(response) => {
            Got::of(response).await.problem(413, "payload-too-large");
        }
        // The answer may be lost to the reset that ends the sending.
        Err(error) => assert!(error.is_request() || error.is_body(), "{error}"),
    }
    place.get("/livez").await.is(200);
}

#[tokio::test]
async fn documents_that_are_none() {
    let place = Place::new().await;
    let deep = format!(
        r#"{{"kind":"demo.hello","payload":{}{}}}"#,
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    let got = raw(&place, deep).await;
    assert!(got.problem(400, "bad-json").detail().contains("nested"), "{}", got.text);
    let got = raw(&place, b"{\"kind\":\"demo.hello\",\"payload\":\"\xff\xfe\"}".to_vec()).await;
    assert!(got.problem(400, "bad-json").detail().contains("byte 33"), "{}", got.text);
    let got = raw(&place, "{\"kind\":\n \"demo.hello\",,}").await;
    assert!(got.problem(400, "bad-json").detail().starts_with("line 2, column"), "{}", got.text);
    for half in [r#""\ud800""#, r#"{"a":[1,"\udc00 x"]}"#] {
        let got = raw(&place, format!(r#"{{"kind":"demo.hello","payload":{half}}}"#)).await;
        assert!(got.problem(400, "bad-json").detail().contains("surrogate"), "{}", got.text);
    }
    raw(&place, r#"{"kind":"demo.hello","payload":"\ud83d\ude00"}"#).await.is(201);
    for body in ["", "   ", "null", "{", "\u{0}", "{}{}", "{\"kind\":\"demo.hello\"} x", "1e999"] {
        let got = raw(&place, body).await;
        assert!([400, 422].contains(&got.status.as_u16()), "{body}: {}", got.text);
    }
}

#[tokio::test]
async fn a_header_that_never_ends_is_cut_off() {
    let place = Place::new().await;
    let began = Instant::now();
    let mut slow = TcpStream::connect(place.at).await.expect("a connection");
    slow.write_all(b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nX-Slow: ").await.expect("sent");
    let mut text = String::new();
    let read = tokio::time::timeout(Duration::from_secs(90), slow.read_to_string(&mut text));
    let _ = read.await.expect("the server gives up");
    assert!(began.elapsed() > Duration::from_secs(2), "it gave up at once: {text}");

    let mut large = TcpStream::connect(place.at).await.expect("a connection");
    let header = format!(
        "GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Large: {}\r\n\r\n",
        "x".repeat(200_000)
    );
    // The server may close before it has taken everything.
    let _ = large.write_all(header.as_bytes()).await;
    let mut text = String::new();
    let _ = large.read_to_string(&mut text).await;
    assert!(!text.contains("200 OK"), "{text}");
}

#[tokio::test]
async fn a_connection_that_says_nothing_is_cut_off() {
    let place = Place::new().await;
    let at = place.at;
    let says = |first: &'static [u8]| async move {
        let mut silent = TcpStream::connect(at).await.expect("a connection");
        silent.write_all(first).await.expect("sent");
        let mut text = vec![];
        let read = tokio::time::timeout(Duration::from_secs(90), silent.read_to_end(&mut text));
        let _ = read.await.expect("the server gives up");
        assert!(!String::from_utf8_lossy(&text).contains("200 OK"));
    };
    tokio::join!(says(b""), says(b"PRI * HT"));
}

#[tokio::test]
async fn a_body_that_stands_still_is_given_up() {
    let place = Place::new().await;
    let mut slow = TcpStream::connect(place.at).await.expect("a connection");
    let head = b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{";
    slow.write_all(head).await.expect("sent");
    let mut text = vec![0; 64];
    let read = tokio::time::timeout(Duration::from_secs(40), slow.read(&mut text));
    let n = read.await.expect("the server gives up").expect("an answer");
    assert!(String::from_utf8_lossy(&text[..n]).contains("408"), "{text:?}");
    assert_eq!(place.get("/v1/tasks?count=true").await.json["count"], json!(0));
}
