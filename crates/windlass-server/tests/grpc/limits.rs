//! What is refused before the service is reached, and sizes. Whatever refuses, a
//! client of gRPC must get a status and not a document.

use crate::client::{client, done, held, says, wish, word};
use crate::place::LIMITS;
use crate::worker::place;
use serde_json::json;
use std::time::Duration;
use tonic::Code;
use windlass_server::api::worker_proto as proto;

const LEASE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_message_above_the_limit_is_refused_and_changes_nothing() {
    let place = place(LEASE).await;
    let task = place.submit(json!({"kind": "far"})).await;
    let mut client = client(&place).await;
    let answer = client.lease(wish(1)).await.unwrap().into_inner();
    let lease = &answer.leases[0];
    let large = format!("\"{}\"", "x".repeat(LIMITS.body_max));
    let mut said = proto::ReportRequest {
        worker_id: answer.worker_id.clone(),
        held: vec![held(lease)],
        reports: vec![says(lease, done(&large))],
        leaving: false,
    };
    let refused = client.report(said.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange, "{refused}");
    assert_eq!(place.get(&format!("/v1/tasks/{task}")).await.json["state"], "running");

    // Below the limit of a message, and above the one of an output.
    let large = format!("\"{}\"", "x".repeat(LIMITS.body_max - 1000));
    said.reports = vec![says(lease, done(&large))];
    let told = client.report(said).await.unwrap().into_inner();
    assert_eq!(told.results, ["ok"]);
    let ended = place.get(&format!("/v1/tasks/{task}")).await.json.clone();
    assert_eq!((&ended["state"], &ended["failure"]["class"]), (&json!("failed"), &json!("output")));
}

/// A call as a client of gRPC makes it, with other headers.
async fn call(url: String, header: (&str, &str)) -> reqwest::Response {
    let client = reqwest::Client::new();
    let request =
        client.post(url).header("content-type", "application/grpc").header("te", "trailers");
    request.header(header.0, header.1).body(vec![0; 5]).send().await.unwrap()
}

#[tokio::test]
async fn refusals_outside_the_service_are_statuses_too() {
    let place = place(LEASE).await;
    let header = |answer: &reqwest::Response, name: &str| {
        answer.headers().get(name).map(|v| v.to_str().unwrap().to_owned()).unwrap_or_default()
    };
    let method = place.url("/windlass.worker.v1.Worker/Lease");
    let foreign = call(method.clone(), ("origin", "http://elsewhere.example")).await;
    assert_eq!((foreign.status().as_u16(), header(&foreign, "grpc-status")), (200, "7".into()));
    assert_eq!(header(&foreign, "windlass-code"), "forbidden");
    assert_eq!(header(&foreign, "content-type"), "application/grpc");
    assert!(header(&foreign, "grpc-message").contains("other%20sites"), "{foreign:?}");
    assert!(!header(&foreign, "request-id").is_empty());

    for (path, wanted) in [
        ("/windlass.worker.v1.Worker/Nothing", "12"),
        ("/windlass.other.v1.Worker/Lease", "12"),
        ("/v1/tasks/tsk_0000000000001", "12"),
    ] {
        let answer = call(place.url(path), ("x-test", "1")).await;
        assert_eq!(answer.status(), 200, "{path}");
        assert_eq!(header(&answer, "grpc-status"), wanted, "{path}: {answer:?}");
    }
    let person = place.post("/windlass.other.v1.Worker/Lease", json!({})).await;
    person.problem(404, "not-found");
}

#[tokio::test]
async fn a_server_that_stops_says_so() {
    let place = place(LEASE).await;
    let mut client = client(&place).await;
    place.engine.shutdown(Duration::ZERO).await.unwrap();
    let refused = client.lease(wish(1)).await.unwrap_err();
    assert_eq!((refused.code(), word(&refused)), (Code::Unavailable, "draining"));
}
