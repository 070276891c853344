//! Redirects: the same server is followed with method and body, a few times;
//! anything else is an error that names where it would have gone.

use crate::rig::{Play, Receiver, Rig, near, once, output, say, spec, why};
use serde_json::json;

fn to(status: u16, location: &str) -> Play {
    say(&format!("{status} X"), &format!("location: {location}\r\n"), "")
}

/// What becomes of a redirect; the second listener must not hear of it.
async fn fails(status: u16, location: &str) -> (&'static str, String) {
    let other = Receiver::new(|_, _| say("200 OK", "", "{}")).await;
    let location = location.replace("OTHER", &other.at.to_string());
    let receiver = Receiver::new(move |_, _| to(status, &location)).await;
    let task = Rig::ask(&receiver).await.run().await;
    assert_eq!(other.connections(), 0);
    (why(&task).1, why(&task).2.to_owned())
}

#[tokio::test]
async fn the_same_server_is_followed() {
    for status in [307, 308] {
        let receiver = Receiver::new(move |n, _| match n {
            0 => to(status, "/second?x=1"),
            1 => to(status, "third"),
            _ => say("200 OK", "", "{\"n\":3}"),
        })
        .await;
        let task = Rig::ask(&receiver).await.run().await;
        assert_eq!(output(&task), json!({"n": 3}));
        let requests = receiver.requests();
        let lines: Vec<&str> = requests.iter().map(|r| r.line.as_str()).collect();
        let expected = ["POST /step HTTP/1.1", "POST /second?x=1 HTTP/1.1", "POST /third HTTP/1.1"];
        assert_eq!(lines, expected);
        assert!(requests.iter().all(|r| r.body == requests[0].body && !r.body.is_empty()));
        assert_eq!(requests[2].header("idempotency-key"), requests[0].header("idempotency-key"));
    }
}

#[tokio::test]
async fn but_not_for_ever() {
    let receiver = Receiver::new(|_, _| to(307, "/again")).await;
    let task = Rig::ask(&receiver).await.run().await;
    let (_, class, message) = why(&task);
    assert_eq!((class, receiver.requests().len()), ("fatal", 4), "{message}");
    assert!(message.contains("more than 3 times"), "{message}");
}

#[tokio::test]
async fn another_server_is_not() {
    for status in [301, 302, 303, 307, 308] {
        let (class, message) = fails(status, "http://OTHER/x?token=hunter2").await;
        assert_eq!(class, "fatal");
        assert!(message.contains("points to `127.0.0.1`"), "{message}");
        assert!(!message.contains("hunter2"), "{message}");
    }
    let (class, message) = fails(307, "http://example.com/").await;
    assert!(class == "fatal" && message.contains("`example.com`"), "{message}");
    let (class, message) = fails(307, "file:///etc/passwd").await;
    assert!(class == "fatal" && message.contains("not followed"), "{message}");
}

#[tokio::test]
async fn another_scheme_is_not() {
    let receiver = Receiver::new(|_, request| {
        let host = request.header("host").expect("a host").to_owned();
        to(307, &format!("https://{host}/"))
    })
    .await;
    let task = Rig::ask(&receiver).await.run().await;
    assert_eq!((why(&task).1, receiver.connections()), ("fatal", 1));
}

#[tokio::test]
async fn a_post_is_not_made_a_get() {
    for status in [301, 302, 303] {
        let (class, message) = fails(status, "/elsewhere").await;
        assert_eq!(class, "fatal");
        assert!(message.contains("use 307 or 308"), "{message}");
    }
}

#[tokio::test]
async fn a_redirect_without_a_place_is_fatal() {
    let receiver = Receiver::new(|_, _| say("307 X", "", "")).await;
    let rig = Rig::with(spec(&receiver.url("/")), near(), once()).await;
    assert_eq!(why(&rig.run().await).1, "fatal");
}
