//! Tokens from their making to their end, who the audit list names, read-only
//! servers, and the rate of one token.

use crate::place::Place;
use reqwest::Method;
use serde_json::json;
use windlass::core::access::Role;
use windlass_server::access::{secret, tokens_file};
use windlass_server::api::Page;
use windlass_server::config::{AuthConfig, RateLimit};

async fn server() -> Place {
    Place::signed_in(AuthConfig::default(), Page::On, &[]).await
}

#[tokio::test]
async fn a_token_is_shown_once_works_and_is_revoked() {
    let place = server().await;
    let body = json!({"name": "ci", "role": "submitter", "expires_in": "1h"});
    let made = place.post("/v1/tokens", body).await;
    let token = made.is(201).json["token"].as_str().unwrap().to_owned();
    let ci = place.with_token(&token);
    let me = ci.get("/v1/whoami").await;
    let me = &me.is(200).json;
    assert_eq!(
        (&me["who"], &me["role"], &me["auth"]),
        (&json!("ci"), &json!("submitter"), &json!("token"))
    );
    assert!(me["expires_at"].is_string() && me["origin"] == "127.0.0.1", "{me}");
    ci.submit(json!({"kind": "demo.hello"})).await;
    ci.get("/v1/tokens").await.problem(403, "forbidden");

    let list = place.get("/v1/tokens").await;
    assert_eq!(list.items().len(), 2);
    assert!(!list.text.contains(&token[16..]) && !list.text.contains("blake3"), "{}", list.text);
    let kept: Vec<_> = list.items().iter().map(|t| (&t["name"], &t["kept"])).collect();
    assert_eq!(kept, [(&json!("root"), &json!("file")), (&json!("ci"), &json!("store"))]);

    place
        .post("/v1/tokens", json!({"name": "ci", "role": "viewer"}))
        .await
        .problem(409, "state-conflict");
    place.send(Method::DELETE, "/v1/tokens/ci", None).await.is(204);
    ci.get("/v1/whoami").await.problem(401, "unauthenticated");
    place.send(Method::DELETE, "/v1/tokens/ci", None).await.problem(404, "not-found");
    place.send(Method::DELETE, "/v1/tokens/root", None).await.problem(409, "state-conflict");
}

#[tokio::test]
async fn bad_wishes_for_tokens_change_nothing() {
    let place = server().await;
    for (body, pointer) in [
        (json!({"name": "a", "role": "root"}), "/role"),
        (json!({"name": "a", "role": "viewer", "expires_in": "soon"}), "/expires_in"),
        (json!({"name": "a", "role": "viewer", "expires_at": "soon"}), "/expires_at"),
        (json!({"role": "viewer"}), ""),
    ] {
        let got = place.post("/v1/tokens", body).await;
        assert_eq!(got.problem(422, "invalid-fields").pointer(), pointer, "{}", got.text);
    }
    for (name, role) in [("a b", "viewer"), ("", "viewer")] {
        let body = json!({"name": name, "role": role});
        place.post("/v1/tokens", body).await.problem(422, "invalid-fields");
    }
    let body = json!({"name": "a", "role": "viewer", "expires_in": "0s"});
    place.post("/v1/tokens", body).await.problem(422, "invalid-fields");
    assert_eq!(place.get("/v1/tokens").await.items().len(), 1);
}

#[tokio::test]
async fn the_file_of_tokens_is_read_again() {
    let place = server().await;
    let file = place.folder.as_ref().unwrap().path().join("tokens.toml");
    let now = place.engine.now();
    let (secret, token) = secret::make("late", Role::Viewer, now, None).unwrap();
    let late = place.with_token(secret.expose());
    late.get("/v1/whoami").await.problem(401, "unauthenticated");
    tokens_file::add(&file, token, now).unwrap();
    let began = std::time::Instant::now();
    while late.get("/v1/whoami").await.status != 200 {
        assert!(began.elapsed().as_secs() < 30, "the file was never read again");
    }
    // A file that cannot be read takes nobody's rights, and gives none.
    std::fs::write(&file, "no toml").unwrap();
    tokens_file::read(&file).unwrap_err();
    let began = std::time::Instant::now();
    while began.elapsed().as_millis() < 1500 {
        late.get("/v1/whoami").await.is(200);
    }
    // The store is heard all the same: tokens are made, and revoked at once.
    let ci = place.with_token(&place.token("ci", "viewer").await);
    ci.get("/v1/whoami").await.is(200);
    place.send(Method::DELETE, "/v1/tokens/ci", None).await.is(204);
    ci.get("/v1/whoami").await.problem(401, "unauthenticated");
    // Another token of the same name is another caller.
    place.token("ci", "viewer").await;
    ci.get("/v1/whoami").await.problem(401, "unauthenticated");
}

#[tokio::test]
async fn the_audit_list_names_the_token_and_its_address() {
    let place = server().await;
    let ann = place.with_token(&place.token("ann", "operator").await);
    let id = ann.submit(json!({"kind": "demo.hello", "delay": "1h"})).await;
    ann.ask(&format!("/v1/tasks/{id}/cancel")).await.is(200);
    ann.ask("/v1/queues/default/pause").await.is(200);
    ann.ask(&format!("/v1/tasks/{id}/pause")).await.problem(409, "state-conflict");
    let audit = place.get("/v1/audit").await;
    let rows: Vec<_> = audit
        .items()
        .iter()
        .map(|row| {
            let text = |key: &str| row[key].as_str().unwrap().to_owned();
            (text("who"), text("origin"), text("action"), text("outcome"))
        })
        .collect();
    let row = |who: &str, action: &str, outcome: &str| {
        (who.to_owned(), "127.0.0.1".to_owned(), action.to_owned(), outcome.to_owned())
    };
    assert_eq!(rows[0], row("ann", "pause", "state-conflict"));
    assert_eq!(rows[1], row("ann", "pause", "done"));
    assert_eq!(rows[2], row("ann", "cancel", "done"));
    assert_eq!(rows[3], row("root", "create", "done"));
}

#[tokio::test]
async fn a_read_only_server_takes_no_changes_by_hand() {
    let place = Place::signed_in(AuthConfig::default(), Page::ReadOnly, &[]).await;
    let id = place.submit(json!({"kind": "demo.hello", "delay": "1h"})).await;
    let refused = [
        (Method::POST, format!("/v1/tasks/{id}/cancel")),
        (Method::POST, "/v1/queues/default/pause".to_owned()),
        (Method::PATCH, "/v1/queues/default".to_owned()),
        (Method::POST, "/v1/tokens".to_owned()),
    ];
    for (method, path) in refused {
        let got = place.send(method, &path, Some(json!({}))).await;
        assert!(got.problem(405, "read-only").detail().contains("read-only"), "{}", got.text);
    }
    assert_eq!(place.get(&format!("/v1/tasks/{id}")).await.json["state"], "scheduled");
    place.get("/").await.is(200);
}

#[tokio::test]
async fn one_token_cannot_send_more_than_its_rate() {
    let rate = RateLimit::parse("20/m").unwrap();
    let place = Place::signed_in(AuthConfig { rate, ..AuthConfig::default() }, Page::On, &[]).await;
    let other = place.with_token(&place.token("other", "viewer").await);
    let mut refused = 0;
    for _ in 0..40 {
        let got = place.get("/v1/whoami").await;
        if got.status == 429 {
            got.problem(429, "rate-limited");
            let wait: u64 = got.header("retry-after").parse().unwrap();
            assert!((1..=60).contains(&wait), "{wait}");
            refused += 1;
        }
    }
    assert!((15..=39).contains(&refused), "{refused}");
    other.get("/v1/whoami").await.is(200);
}

#[tokio::test]
async fn a_stream_of_events_ends_with_its_token() {
    let place = server().await;
    let token = place.token("eve", "viewer").await;
    let request = place.client.get(place.url("/v1/events")).bearer_auth(&token);
    let mut stream = request.header("accept", "text/event-stream").send().await.unwrap();
    assert_eq!(stream.status(), 200);
    place.submit(json!({"kind": "demo.hello"})).await;
    let first = stream.chunk().await.unwrap().expect("an event");
    assert!(String::from_utf8_lossy(&first).contains("task.submitted"));
    place.send(Method::DELETE, "/v1/tokens/eve", None).await.is(204);
    let late = place.submit(json!({"kind": "demo.hello"})).await;
    // It ends by itself, and so does this.
    let rest = tokio::time::timeout(std::time::Duration::from_secs(30), stream.text()).await;
    assert!(!rest.expect("an end").unwrap().contains(&late));
}
