//! Requests that somebody would like the server to send in his place. Canaries
//! listen on loopback, on several addresses; no URL, redirect or name server gets
//! a connection to one of them. That they sing is shown in the same breath.

use crate::names::NameServer;
use crate::rig::{Play, Receiver, Request, Rig, ended, far, near, once, output, say, spec, why};
use crate::tricks::{open, urls};
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use windlass::prelude::*;
use windlass_server::handlers::HttpHandler;
use windlass_server::outbound::{Outbound, Reach};

/// Counts as public in these cases, so that nothing leaves the machine.
const PUBLIC: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 9, 9, 9));
/// The same, and nobody listens there.
const EMPTY: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 9, 9, 8));
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const HERE6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);
/// Ports that somebody else may hold on one of the addresses.
const TRIES: usize = 20;

/// Listeners that must not be reached, all on one port, and one for every address
/// on another.
struct Canaries {
    own: Vec<Receiver>,
    every: Receiver,
}

fn sing(_: usize, _: &Request) -> Play {
    say("200 OK", "", "{\"canary\":true}")
}

impl Canaries {
    async fn new() -> Canaries {
        let every = Receiver::at((Ipv6Addr::UNSPECIFIED, 0).into(), sing).await;
        let every = every.expect("a listener for both families");
        for _ in 0..TRIES {
            let first = Receiver::new(sing).await;
            let port = first.at.port();
            let more = [IpAddr::V4(Ipv4Addr::new(127, 1, 2, 3)), HERE6];
            let more = more.map(|ip| Receiver::at(SocketAddr::new(ip, port), sing));
            let [second, third] = more;
            if let (Ok(second), Ok(third)) = (second.await, third.await) {
                return Canaries { own: vec![first, second, third], every };
            }
        }
        panic!("no port is free on all addresses");
    }

    fn ports(&self) -> [u16; 2] {
        [self.own[0].at.port(), self.every.at.port()]
    }

    fn port(&self) -> u16 {
        self.ports()[0]
    }

    fn counts(&self) -> Vec<usize> {
        self.own.iter().chain([&self.every]).map(Receiver::connections).collect()
    }

    fn assert_silent(&self) {
        assert_eq!(self.counts(), [0, 0, 0, 0], "a canary was reached");
    }

    /// With `allow_private` each of them answers, so silence means something.
    async fn assert_alive(&self) {
        let outbound = near();
        for url in self.ports().into_iter().flat_map(open) {
            let task = Rig::with(spec(&url), outbound.clone(), once()).await.run().await;
            assert_eq!(output(&task), json!({"canary": true}), "{url}");
        }
        assert!(self.counts().iter().all(|count| *count > 0), "{:?}", self.counts());
    }
}

/// Class and message of what becomes of each URL, all in one engine. The first one
/// that is not refused ends it: a broken guard must not send the rest.
async fn become_of(urls: &[String], outbound: &Outbound) -> Vec<(&'static str, String)> {
    let mut builder = Windlass::in_memory().await.expect("a store");
    for (n, url) in urls.iter().enumerate() {
        let (name, spec) = (format!("h{n}"), spec(url));
        let handler = HttpHandler::new(spec, outbound.clone());
        builder = builder.handler(&name, handler).plan_with(&format!("k{n}"), [name], once());
    }
    let engine = builder.start().await.expect("an engine");
    let mut results = vec![];
    for (n, url) in urls.iter().enumerate() {
        let kind = format!("k{n}");
        let handle = engine.submit_named(&kind, &json!({})).await.expect("submitted");
        let task = ended(handle).await;
        let (_, class, message) = why(&task);
        assert_eq!(class, "fatal", "{url}: {message}");
        results.push((class, message.to_owned()));
    }
    results
}

#[tokio::test]
async fn no_url_reaches_a_canary() {
    let canaries = Canaries::new().await;
    let urls: Vec<String> = canaries.ports().into_iter().flat_map(urls).collect();
    assert!(urls.len() >= 2 * 400, "only {}", urls.len());
    let mut by_allow = 0;
    for (url, (class, message)) in urls.iter().zip(become_of(&urls, &far(&[])).await) {
        assert_eq!(class, "fatal", "{url}: {message}");
        by_allow += usize::from(message.ends_with("set allow_private = true if it is meant"));
        assert!(
            message.contains("allow_private") && message.contains("refused"),
            "{url}: {message}"
        );
    }
    assert!(by_allow >= 100 && by_allow < urls.len(), "{by_allow} of {}", urls.len());
    canaries.assert_silent();
    canaries.assert_alive().await;
}

#[tokio::test]
async fn no_redirect_reaches_a_canary() {
    let canaries = Canaries::new().await;
    let mut tricks: Vec<String> = canaries.ports().into_iter().flat_map(urls).collect();
    // Seen from a URL of the same scheme, these are paths on its own server.
    tricks.retain(|url| !url.starts_with("http:127") && !url.starts_with("http:/127"));
    let told = tricks.clone();
    let elsewhere = move |_: usize, request: &Request| {
        let path = request.line.split(' ').nth(1).expect("a path");
        let (status, n) = path[1..].split_once('/').expect("a status and a number");
        let to = told[n.parse::<usize>().expect("a number")].replace(['\n', '\t'], "");
        // Header values of a URL with other letters are sent as bytes.
        say(&format!("{status} X"), &format!("location: {to}\r\n"), "")
    };
    let redirecting =
        Receiver::at(SocketAddr::new(PUBLIC, 0), elsewhere).await.expect("a listener");
    let statuses = [307, 308, 302];
    let urls: Vec<String> = (0..tricks.len())
        .map(|n| redirecting.url(&format!("/{}/{n}", statuses[n % statuses.len()])))
        .collect();
    assert!(urls.len() >= 2 * 400, "only {}", urls.len());
    for (n, (class, message)) in become_of(&urls, &far(&[PUBLIC])).await.into_iter().enumerate() {
        assert_eq!(class, "fatal", "{}: {message}", tricks[n]);
        assert!(message.contains("another server is not followed"), "{}: {message}", tricks[n]);
    }
    assert_eq!(redirecting.requests().len(), urls.len(), "each was redirected");
    canaries.assert_silent();
    canaries.assert_alive().await;
}

/// A receiver where the public one would be, on the canaries' port.
async fn friend(canaries: &Canaries) -> Receiver {
    let leave = |_: usize, _: &Request| {
        let text =
            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 15\r\n\r\n{\"friend\":true}";
        Play::Leave(text.into())
    };
    Receiver::at(SocketAddr::new(PUBLIC, canaries.port()), leave).await.expect("a listener")
}

/// A client that asks this name server.
fn asking(names: &NameServer, reach: Reach) -> Outbound {
    Outbound::with(reach, names.resolver(), [PUBLIC, EMPTY]).expect("a client")
}

#[tokio::test]
async fn a_name_that_changes_its_mind_is_looked_at_each_time() {
    let canaries = Canaries::new().await;
    let friend = friend(&canaries).await;
    let names = NameServer::new(|n, _| match n {
        0 => vec![PUBLIC],
        n if n % 2 == 0 => vec![HERE],
        _ => vec![HERE, HERE6],
    })
    .await;
    let url = format!("http://rebind.test:{}/", canaries.port());
    let rig = Rig::with(spec(&url), asking(&names, Reach::Public), once()).await;
    assert_eq!(output(&rig.run().await), json!({"friend": true}));
    for _ in 0..5 {
        let task = rig.run().await;
        let (_, class, message) = why(&task);
        assert_eq!(class, "fatal", "{message}");
        let told = "`rebind.test` leads to 127.0.0.1, a loopback address, which is refused";
        assert!(message.starts_with(told) && message.contains("allow_private"), "{message}");
    }
    assert_eq!((names.lookups(), friend.connections()), (6, 1), "it did change");
    canaries.assert_silent();
    let rig = Rig::with(spec(&url), asking(&names, Reach::Private), once()).await;
    assert_eq!(output(&rig.run().await), json!({"canary": true}));
}

#[tokio::test]
async fn of_a_mixed_answer_only_the_public_part_is_used() {
    let canaries = Canaries::new().await;
    let friend = friend(&canaries).await;
    let orders = [vec![HERE, PUBLIC, HERE6], vec![PUBLIC, HERE, HERE6], vec![HERE6, HERE, PUBLIC]];
    let names = NameServer::new(move |n, name| match name {
        // One that may be reached and is not there: the next one is not tried.
        "empty.test" => vec![EMPTY, HERE, HERE6],
        _ => orders[n % orders.len()].clone(),
    })
    .await;
    let outbound = asking(&names, Reach::Public);
    let port = canaries.port();
    let rig =
        Rig::with(spec(&format!("http://mixed.test:{port}/")), outbound.clone(), once()).await;
    for _ in 0..12 {
        assert_eq!(output(&rig.run().await), json!({"friend": true}));
    }
    assert_eq!(friend.requests().len(), 12);
    let rig = Rig::with(spec(&format!("http://empty.test:{port}/")), outbound, once()).await;
    for _ in 0..3 {
        let task = rig.run().await;
        assert_eq!(why(&task).1, "retryable", "{:?}", why(&task));
        assert!(why(&task).2.contains("cannot be reached"), "{:?}", why(&task));
    }
    assert_eq!(names.lookups(), 15);
    canaries.assert_silent();
    canaries.assert_alive().await;
}

#[tokio::test]
async fn a_redirect_to_the_same_name_is_looked_up_again() {
    let canaries = Canaries::new().await;
    let redirect =
        "HTTP/1.1 307 X\r\nlocation: /again\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let at = SocketAddr::new(PUBLIC, canaries.port());
    let first = Receiver::at(at, move |_, _| Play::Leave(redirect.into())).await;
    let first = first.expect("a listener");
    let names = NameServer::new(|n, _| if n == 0 { vec![PUBLIC] } else { vec![HERE] }).await;
    let url = format!("http://rebind.test:{}/", canaries.port());
    let rig = Rig::with(spec(&url), asking(&names, Reach::Public), once()).await;
    let task = rig.run().await;
    assert_eq!((why(&task).1, names.lookups(), first.connections()), ("fatal", 2, 1));
    assert!(why(&task).2.contains("leads to 127.0.0.1"), "{:?}", why(&task));
    canaries.assert_silent();
    canaries.assert_alive().await;
}

#[tokio::test]
async fn names_that_lead_nowhere_public_are_refused() {
    let canaries = Canaries::new().await;
    let all: Vec<IpAddr> = [
        "127.0.0.1",
        "127.1.2.3",
        "::1",
        "::ffff:127.0.0.1",
        "0.0.0.0",
        "::",
        "10.0.0.1",
        "169.254.169.254",
        "::127.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::1",
        "fe80::1",
        "fd00::1",
    ]
    .iter()
    .map(|ip| ip.parse().expect("an address"))
    .collect();
    let count = all.len();
    let names = NameServer::new(move |_, name| {
        let n: usize = name.split('.').next().and_then(|n| n.parse().ok()).expect("a number");
        vec![all[n]]
    })
    .await;
    let urls: Vec<String> =
        (0..count).map(|n| format!("http://{n}.evil.test:{}/", canaries.port())).collect();
    let outbound = Outbound::with(Reach::Public, names.resolver(), []).expect("a client");
    for (url, (class, message)) in urls.iter().zip(become_of(&urls, &outbound).await) {
        assert_eq!(class, "fatal", "{url}: {message}");
        assert!(message.contains("leads to") && message.contains("allow_private"), "{message}");
    }
    assert_eq!(names.lookups(), count);
    canaries.assert_silent();
    canaries.assert_alive().await;
}

#[tokio::test]
async fn what_is_never_allowed_is_refused_with_allow_private_too() {
    let canaries = Canaries::new().await;
    let hosts = ["0.0.0.0", "0", "[::]", "[::ffff:0.0.0.0]", "255.255.255.255", "224.0.0.1"];
    let hosts = hosts.into_iter().chain(["169.254.169.254", "[fe80::1]", "[::127.0.0.1]"]);
    let urls: Vec<String> = canaries
        .ports()
        .into_iter()
        .flat_map(|port| hosts.clone().map(move |host| format!("http://{host}:{port}/")))
        .collect();
    for (url, (class, message)) in urls.iter().zip(become_of(&urls, &near()).await) {
        assert_eq!(class, "fatal", "{url}: {message}");
        assert!(message.contains("always refused"), "{url}: {message}");
    }
    canaries.assert_silent();
    canaries.assert_alive().await;
}
