//! A server in this process with bounds of its own, for cases that need short
//! times; and a certificate for those that need TLS.

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::net::TcpListener;
use windlass::Windlass;
use windlass_server::api::{self, App, Limits, Meter, Terms};
use windlass_server::listen::{self, Bounds, Door};
use windlass_server::tls::Certificates;
use windlass_server::{demo, tls};

static METER: LazyLock<Meter> = LazyLock::new(|| api::install_meter().expect("counters"));

pub(crate) struct Place {
    pub(crate) at: SocketAddr,
    pub(crate) client: reqwest::Client,
}

/// Everything that takes long takes this long.
pub(crate) const SHORT: Duration = Duration::from_secs(2);

pub(crate) fn short() -> Bounds {
    Bounds {
        header_time: SHORT,
        handshake_time: SHORT,
        write_time: SHORT,
        idle_time: 2 * SHORT,
        fresh: Duration::from_millis(100),
        closing_time: Duration::from_secs(1),
        ..Bounds::default()
    }
}

impl Place {
    pub(crate) async fn new(bounds: Bounds) -> Place {
        Place::at_door(Door { bounds, certificates: None }).await
    }

    pub(crate) async fn at_door(door: Door) -> Place {
        let builder = demo::add(Windlass::in_memory().await.expect("a store"));
        let engine = builder.start().await.expect("an engine");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let at = listener.local_addr().expect("an address");
        let limits = Limits { body_max: 1024 * 1024, bulk_max: 1024 * 1024 };
        let app = App::new(engine, at, Terms::plain(limits), METER.clone()).await.expect("an app");
        let router = api::router(app);
        tokio::spawn(listen::serve_at(listener, router, door, std::future::pending()));
        tls::use_ring();
        // The server closes kept connections after a short time; one that is about to be
        // closed must not be used again.
        let client = reqwest::Client::builder().timeout(Duration::from_secs(60));
        let client = client.pool_idle_timeout(SHORT / 4);
        Place { at, client: client.build().expect("a client") }
    }

    /// Submits a task and reads it.
    pub(crate) async fn ordinary(&self) {
        let url = format!("http://{}/v1/tasks", self.at);
        let task = serde_json::json!({ "kind": "demo.hello", "payload": { "name": "Ada" } });
        let answer = self.client.post(&url).json(&task).send().await.expect("an answer");
        assert_eq!(answer.status(), 201);
        let task: serde_json::Value = answer.json().await.expect("JSON");
        let url = format!("{url}/{}", task["id"].as_str().expect("an id"));
        let answer = self.client.get(url).send().await.expect("an answer");
        assert_eq!(answer.status(), 200);
        answer.bytes().await.expect("a body");
    }
}

/// A certificate for this machine.
pub(crate) fn certificates() -> Arc<Certificates> {
    let folder = tempfile::tempdir().expect("a folder");
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).expect("a file");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("a file");
    Certificates::read(cert, key).expect("a pair")
}
