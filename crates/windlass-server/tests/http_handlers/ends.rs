//! How tries end that get no answer: timeouts, cancels, slow bodies, servers that
//! leave or are not there. Each connection is seen to close.

use crate::names::NameServer;
use crate::rig::{LIMIT, Play, Receiver, Rig, ended, near, once, spec, until, why};
use serde_json::json;
use std::net::Ipv4Addr;
use std::time::Duration;
use windlass::State;
use windlass_server::outbound::{Outbound, Reach};

/// Long enough for a request to arrive on a busy machine.
const SHORT: Duration = Duration::from_secs(1);

async fn times_out(said: &'static str) {
    let receiver = Receiver::new(move |_, _| Play::Hang(said.into())).await;
    let mut spec = spec(&receiver.url("/"));
    spec.timeout = Some(SHORT);
    let task = Rig::with(spec, near(), once()).await.run().await;
    assert_eq!(why(&task).1, "timeout", "{said}");
    assert_eq!(receiver.requests().len(), 1);
    until("the connection is closed", || receiver.gone() == 1).await;
}

#[tokio::test]
async fn a_try_without_an_answer_times_out() {
    times_out("").await;
}

#[tokio::test]
async fn a_try_with_half_an_answer_times_out() {
    times_out("HTTP/1.1 200 OK\r\ncontent-le").await;
    times_out("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{\"a\":").await;
}

#[tokio::test]
async fn a_cancel_drops_the_request() {
    let receiver = Receiver::new(|_, _| Play::Hang(vec![])).await;
    let rig = Rig::ask(&receiver).await;
    let handle = rig.submit(json!({})).await;
    until("the request is there", || receiver.requests().len() == 1).await;
    rig.engine.cancel(handle.id()).await.expect("cancelled");
    let task = ended(handle).await;
    assert_eq!(task.state(), State::Cancelled);
    until("the connection is closed", || receiver.gone() == 1).await;
}

#[tokio::test]
async fn a_server_that_leaves_is_asked_again() {
    for said in ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{"] {
        let receiver = Receiver::new(move |_, _| Play::Leave(said.into())).await;
        let task = Rig::ask(&receiver).await.run().await;
        let (reason, class, message) = why(&task);
        assert_eq!((reason, class), ("exhausted", "retryable"), "{said}: {message}");
        assert!(message.starts_with("`127.0.0.1` "), "{message}");
    }
    let receiver = Receiver::new(|_, _| Play::Leave(b"SSH-2.0-x\r\n\r\n".into())).await;
    assert_eq!(why(&Rig::ask(&receiver).await.run().await).1, "retryable");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_asked_again() {
    let url = {
        let gone = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        format!("http://{}/x?token=hunter2", gone.local_addr().expect("an address"))
    };
    let task = Rig::with(spec(&url), near(), once()).await.run().await;
    let (reason, class, message) = why(&task);
    assert_eq!((reason, class), ("exhausted", "retryable"));
    assert!(message.starts_with("`127.0.0.1` cannot be reached: "), "{message}");
    assert!(!format!("{task:?}").contains("hunter2"), "{task:?}");
}

#[tokio::test]
async fn a_name_without_an_address_is_asked_again() {
    let names = NameServer::new(|_, _| vec![]).await;
    let outbound = Outbound::with(Reach::Public, names.resolver(), []).expect("a client");
    let task = Rig::with(spec("https://nobody.test/"), outbound, once()).await.run().await;
    let (_, class, message) = why(&task);
    assert_eq!((class, names.lookups()), ("retryable", 1));
    assert_eq!(message, "`nobody.test` cannot be reached: the name has no address");
}

#[tokio::test]
async fn the_reason_of_a_refusal_is_not_waited_for() {
    let said = "HTTP/1.1 503 X\r\ncontent-length: 100\r\n\r\nbusy\n";
    let receiver = Receiver::new(move |_, _| Play::Hang(said.into())).await;
    let mut spec = spec(&receiver.url("/"));
    spec.timeout = Some(LIMIT);
    let task = Rig::with(spec, near(), once()).await.run().await;
    let (_, class, message) = why(&task);
    assert_eq!(class, "retryable");
    assert!(message.ends_with(": busy"), "{message}");
}
