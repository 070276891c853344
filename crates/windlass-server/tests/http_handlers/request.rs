//! What a receiver is told: document, headers, signature; and that connections
//! are used again.

use crate::rig::{AT_ONCE, Receiver, Rig, near, once, output, say, spec};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::time::{Duration, SystemTime};
use windlass::prelude::*;
use windlass_server::handlers::own_header;
use windlass_server::outbound::SigningSecret;

/// HMAC as its definition says, without the crate that signs.
fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut block = [0; 64];
    block[..key.len()].copy_from_slice(key);
    let inner = Sha256::new().chain_update(block.map(|b| b ^ 0x36)).chain_update(message);
    let outer = Sha256::new().chain_update(block.map(|b| b ^ 0x5c));
    outer.chain_update(inner.finalize()).finalize().to_vec()
}

#[tokio::test]
async fn document_and_headers() {
    let receiver = Receiver::new(|_, _| say("200 OK", "", "{}")).await;
    let mut spec = spec(&receiver.url("/step?key=1"));
    let (name, value) = own_header("Authorization", "Bearer t0ken").expect("a header");
    spec.headers.insert(name, value);
    let rig = Rig::with(spec, near(), once()).await;
    let task = rig.run().await;
    let request = &receiver.requests()[0];
    assert_eq!(request.line, "POST /step?key=1 HTTP/1.1");
    let key = format!("{}:{}:h", task.id, task.standing.run);
    let document = request.json();
    assert_eq!(document["idempotency_key"], key);
    assert_eq!((&document["task"]["kind"], &document["step"]), (&json!("job"), &json!("h")));
    assert_eq!((&document["payload"], &document["input_path"]), (&json!({"n": 1}), &json!(null)));
    for (name, value) in [
        ("content-type", "application/json"),
        ("idempotency-key", &key),
        ("webhook-id", &key),
        ("windlass-fencing-token", "1"),
        ("authorization", "Bearer t0ken"),
        ("host", &receiver.at.to_string()),
    ] {
        assert_eq!(request.header(name), Some(value), "{name}");
    }
    for absent in ["webhook-signature", "referer", "cookie", "accept-encoding", "traceparent"] {
        assert_eq!(request.header(absent), None, "{absent}");
    }
    let agent = request.header("user-agent").expect("an agent");
    assert!(agent.starts_with("windlass/"), "{agent}");
}

#[tokio::test]
async fn the_trace_goes_on() {
    let receiver = Receiver::new(|_, _| say("200 OK", "", "{}")).await;
    let rig = Rig::ask(&receiver).await;
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let submitted = rig.engine.submit_named("job", &json!({})).traceparent(trace).await;
    crate::rig::ended(submitted.expect("submitted")).await;
    assert_eq!(receiver.requests()[0].header("traceparent"), Some(trace));
}

#[tokio::test]
async fn the_signature_holds_and_the_id_stays() {
    let key = [7; 32];
    let receiver = Receiver::new(|n, _| match n {
        0 => say("500 X", "", ""),
        _ => say("200 OK", "", "{}"),
    })
    .await;
    let mut spec = spec(&receiver.url("/"));
    let secret = SigningSecret::parse(&format!("whsec_{}", STANDARD.encode(key)));
    spec.secret = Some(secret.expect("a secret"));
    let options = KindOptions::new().step_retry(AT_ONCE);
    output(&Rig::with(spec, near(), options).await.run().await);
    let requests = receiver.requests();
    assert_eq!(requests.len(), 2);
    for request in &requests {
        let id = request.header("webhook-id").expect("an id");
        let timestamp = request.header("webhook-timestamp").expect("a time");
        let mut signed = format!("{id}.{timestamp}.").into_bytes();
        signed.extend_from_slice(&request.body);
        let signature = request.header("webhook-signature").expect("a signature");
        assert_eq!(signature, format!("v1,{}", STANDARD.encode(hmac(&key, &signed))));
        let sent = SystemTime::UNIX_EPOCH + Duration::from_secs(timestamp.parse().expect("digits"));
        assert!(sent.elapsed().expect("the past") < Duration::from_secs(60));
    }
    assert_eq!(requests[0].header("webhook-id"), requests[1].header("webhook-id"));
}

#[tokio::test]
async fn connections_are_used_again() {
    let receiver = Receiver::new(|_, _| say("200 OK", "", "{}")).await;
    let rig = Rig::ask(&receiver).await;
    for _ in 0..5 {
        output(&rig.run().await);
    }
    assert_eq!(receiver.requests().len(), 5);
    assert!(receiver.connections() < 5, "{} connections", receiver.connections());
}

#[tokio::test]
async fn proxies_of_the_environment_are_not_asked() {
    // The whole process has the variable; nobody listens there.
    let receiver = Receiver::new(|_, _| say("200 OK", "", "{}")).await;
    let program = std::env::current_exe().expect("this test");
    if std::env::var_os("HTTP_PROXY").is_none() {
        let mut again = tokio::process::Command::new(program);
        again.args(["--exact", "request::proxies_of_the_environment_are_not_asked"]);
        for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
            again.env(name, "http://127.0.0.1:9");
        }
        let ran = again.output().await.expect("run");
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(ran.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    output(&Rig::ask(&receiver).await.run().await);
    assert_eq!(receiver.requests().len(), 1);
}
