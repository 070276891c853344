//! What is refused before the service is reached, and sizes. Whatever refuses, a
//! client of gRPC must get a status and not a document.

use crate::client::{Session, client, done, held, hello, says, wish, word};
use crate::place::LIMITS;
use crate::worker::place;
use serde_json::json;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
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
    let expected = (Code::ResourceExhausted, "payload-too-large");
    assert_eq!((refused.code(), word(&refused)), expected, "{refused}");
    assert_eq!(place.get(&format!("/v1/tasks/{task}")).await.json["state"], "running");

    // Below the limit of a message, and above the one of an output.
    let large = format!("\"{}\"", "x".repeat(LIMITS.body_max - 1000));
    said.reports = vec![says(lease, done(&large))];
    let told = client.report(said).await.unwrap().into_inner();
    assert_eq!(told.results, ["ok"]);
    let ended = place.get(&format!("/v1/tasks/{task}")).await.json.clone();
    assert_eq!((&ended["state"], &ended["failure"]["class"]), (&json!("failed"), &json!("output")));
}

/// Half a million of them are a message of a megabyte, and would be a hundred in
/// memory: they are counted and not read.
#[tokio::test]
async fn a_list_above_its_limit_is_not_read() {
    let place = place(LEASE).await;
    let mut client = client(&place).await;
    let reports = vec![proto::Report::default(); 500_000];
    let said = proto::ReportRequest { reports: reports.clone(), ..Default::default() };
    let refused = client.report(said).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().starts_with("/reports: more than 1000"), "{refused}");
    let kinds = vec![String::new(); 500_000];
    let refused = client.lease(proto::LeaseRequest { kinds, ..wish(1) }).await.unwrap_err();
    assert!(refused.message().starts_with("/kinds: more than 256"), "{refused}");

    let mut session = Session::open(&client, hello(1)).await;
    session.say(proto::Say { reports, ..Default::default() }).await;
    let refused = session.next().await.unwrap_err();
    assert_eq!((refused.code(), word(&refused)), (Code::InvalidArgument, "invalid-fields"));
    assert!(refused.message().starts_with("/say/reports: more than"), "{refused}");
}

#[tokio::test]
async fn a_call_that_does_not_come_is_given_up() {
    let place = place(LEASE).await;
    let mut stream = TcpStream::connect(place.at).await.unwrap();
    let head = format!(
        "POST /windlass.worker.v1.Worker/Report HTTP/1.1\r\nHost: {}\r\nTE: trailers\r\n\
         Content-Type: application/grpc\r\nContent-Length: 1000\r\n\r\n\0",
        place.at
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 1024];
    let read = tokio::time::timeout(Duration::from_secs(60), stream.read(&mut answer)).await;
    let answer = String::from_utf8_lossy(&answer[..read.expect("an answer").unwrap()]).into_owned();
    assert!(answer.contains("grpc-status: 4"), "{answer}");
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
