//! Who may talk to a server without sign-in, and what unknown addresses and
//! methods get.

use crate::place::{Got, Place};
use reqwest::Method;
use serde_json::json;

#[tokio::test]
async fn pages_of_other_sites_are_refused() {
    let place = Place::new().await;
    let port = place.at.port();
    for (name, value) in [
        ("origin", "https://evil.example".to_owned()),
        ("origin", "null".to_owned()),
        ("host", "evil.example".to_owned()),
        ("host", format!("evil.example:{port}")),
        ("host", "127.0.0.1.evil.example".to_owned()),
        ("host", "192.168.1.1".to_owned()),
    ] {
        let request = place.client.post(place.url("/v1/tasks")).header(name, value);
        let request = request.json(&json!({"kind": "demo.hello"}));
        Got::of(request.send().await.expect("an answer")).await.problem(403, "forbidden");
    }
    for (name, several) in [("host", "localhost"), ("idempotency-key", "b")] {
        let request = place.client.post(place.url("/v1/tasks")).header(name, "127.0.0.1");
        let request = request.header(name, several).json(&json!({"kind": "demo.hello"}));
        let got = Got::of(request.send().await.expect("an answer")).await;
        assert!([400, 403, 422].contains(&got.status.as_u16()), "{name}: {}", got.text);
    }
    for (name, value) in [
        ("origin", format!("http://127.0.0.1:{port}")),
        ("host", "localhost".to_owned()),
        ("host", format!("[::1]:{port}")),
    ] {
        let request = place.client.post(place.url("/v1/tasks")).header(name, value);
        let request = request.json(&json!({"kind": "demo.hello"}));
        Got::of(request.send().await.expect("an answer")).await.is(201);
    }
    assert_eq!(place.get("/v1/tasks?count=true").await.json["count"], 3);
}

#[tokio::test]
async fn unknown_addresses_and_methods_get_problems() {
    let place = Place::new().await;
    for path in
        ["/v2/tasks", "/v1", "/v1/tasks/tsk_0000000000001/nothing", "/favicon.ico", "/..%2f"]
    {
        place.get(path).await.problem(404, "not-found");
    }
    for (method, path, allowed) in [
        (Method::DELETE, "/v1/tasks", "GET"),
        (Method::GET, "/v1/tasks/bulk", "POST"),
        (Method::PUT, "/v1/queues/jobs", "PATCH"),
        (Method::POST, "/livez", "GET"),
    ] {
        let got = place.send(method, path, None).await;
        got.problem(405, "read-only");
        assert!(got.header("allow").contains(allowed), "{path}: {:?}", got.headers);
    }
}

#[tokio::test]
async fn a_request_keeps_its_id() {
    let place = Place::new().await;
    let ask = |id: &'static str| {
        let request = place.client.get(place.url("/v1/tasks/x")).header("request-id", id);
        async move { Got::of(request.send().await.expect("an answer")).await }
    };
    assert_eq!(ask("abc-123").await.json["request_id"], "abc-123");
    let made = ask("not plain: <script>").await;
    assert!(made.header("request-id").starts_with("req_"), "{made:?}");
    assert!(!place.get("/livez").await.header("request-id").is_empty());
}
