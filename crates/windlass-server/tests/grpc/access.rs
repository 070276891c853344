//! Sign-in over gRPC: refusals are statuses, the role counts, and a session ends
//! with its token.

use crate::client::{client, hello, wish, word};
use crate::place::Place;
use reqwest::Method;
use std::time::Duration;
use tokio::sync::mpsc::channel;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request};
use windlass_server::api::{Page, worker_proto as proto};
use windlass_server::config::{AuthConfig, RateLimit};

fn signed<T>(message: T, token: Option<&str>) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(token) = token {
        let value = format!("Bearer {token}").parse().expect("a value");
        request.metadata_mut().insert("authorization", value);
    }
    request
}

#[tokio::test]
async fn a_worker_shows_its_token() {
    let place = Place::signed_in(AuthConfig::default(), Page::On, &[]).await;
    let viewer = place.token("v", "viewer").await;
    let worker = place.token("w", "worker").await;
    let mut client = client(&place).await;
    for (token, code, name) in [
        (None, Code::Unauthenticated, "unauthenticated"),
        (Some("wl_0123456789ab_wrong"), Code::Unauthenticated, "unauthenticated"),
        (Some(viewer.as_str()), Code::PermissionDenied, "forbidden"),
    ] {
        let refused = client.lease(signed(wish(1), token)).await.expect_err("no lease");
        assert_eq!((refused.code(), word(&refused)), (code, name), "{refused:?}");
    }
    let now = proto::LeaseRequest { wait: None, ..wish(1) };
    client.lease(signed(now, Some(&worker))).await.expect("an answer");
}

#[tokio::test]
async fn a_session_ends_with_its_token() {
    let place = Place::signed_in(AuthConfig::default(), Page::On, &[]).await;
    let worker = place.token("w", "worker").await;
    let mut client = client(&place).await;
    let (say, said) = channel(4);
    let first = proto::session_request::Said::Hello(hello(1));
    say.send(proto::SessionRequest { said: Some(first) }).await.expect("room");
    let opened = client.session(signed(ReceiverStream::new(said), Some(&worker))).await;
    let mut told = opened.expect("a session").into_inner();
    told.message().await.expect("a welcome").expect("a message");
    place.send(Method::DELETE, "/v1/tokens/w", None).await.is(204);
    let ended = tokio::time::timeout(Duration::from_secs(30), told.message()).await;
    let status = ended.expect("an end").expect_err("a status");
    assert_eq!((status.code(), word(&status)), (Code::Unauthenticated, "unauthenticated"));
}

#[tokio::test]
async fn what_is_said_in_a_session_counts_in_the_rate() {
    let rate = RateLimit::parse("20/m").expect("a rate");
    let place = Place::signed_in(AuthConfig { rate, ..AuthConfig::default() }, Page::On, &[]).await;
    let worker = place.token("w", "worker").await;
    let mut client = client(&place).await;
    let (say, said) = channel(64);
    let hello = proto::session_request::Said::Hello(hello(1));
    say.send(proto::SessionRequest { said: Some(hello) }).await.expect("room");
    for number in 0..40 {
        let one = proto::session_request::Said::Say(proto::Say { number, ..Default::default() });
        say.send(proto::SessionRequest { said: Some(one) }).await.expect("room");
    }
    let opened = client.session(signed(ReceiverStream::new(said), Some(&worker))).await;
    let mut told = opened.expect("a session").into_inner();
    let mut heard = 0;
    let status = loop {
        match tokio::time::timeout(Duration::from_secs(30), told.message()).await.expect("words") {
            Ok(message) => assert!(message.is_some(), "the session ended in peace"),
            Err(status) => break status,
        }
        heard += 1;
    };
    // The welcome, and less than everything.
    assert!((10..=22).contains(&heard), "{heard}");
    assert_eq!((status.code(), word(&status)), (Code::ResourceExhausted, "rate-limited"));
    let again = client.lease(signed(wish(1), Some(&worker))).await.expect_err("too fast");
    for refused in [status, again] {
        let wait = refused.metadata().get("retry-after").expect("a time").to_str().expect("text");
        assert!((1..=60).contains(&wait.parse::<u64>().expect("seconds")), "{wait}");
    }
}
