//! The clients: each takes the next key, and repeats its request until it is
//! answered, as a client with an idempotency key should. They count what happens
//! to their requests and know nothing of who kills the server.

use crate::checker::Told;
use crate::process::{PATIENCE, pause};
use parking_lot::Mutex;
use reqwest::StatusCode;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Clients at once.
pub(crate) const CLIENTS: usize = 8;

/// What all clients share.
#[derive(Debug)]
pub(crate) struct Traffic {
    url: String,
    client: reqwest::Client,
    keys: u64,
    next: AtomicU64,
    /// Requests that have begun and have no end yet.
    pub(crate) under_way: AtomicU64,
    pub(crate) answered: AtomicU64,
    /// Answers that said the task was there already.
    pub(crate) replayed: AtomicU64,
    /// Requests that had a connection and got no answer.
    pub(crate) cut_off: AtomicU64,
    /// Requests that found nobody.
    pub(crate) refused: AtomicU64,
    told: Mutex<Vec<Told>>,
    /// Keys whose first request got no answer.
    doubtful: Mutex<Vec<u64>>,
}

impl Traffic {
    pub(crate) fn new(url: String, client: reqwest::Client, keys: u64) -> Arc<Traffic> {
        Arc::new(Traffic {
            url,
            client,
            keys,
            next: AtomicU64::new(0),
            under_way: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            replayed: AtomicU64::new(0),
            cut_off: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            told: Mutex::default(),
            doubtful: Mutex::default(),
        })
    }

    /// Starts the clients, which end when every key is answered.
    pub(crate) fn begin(self: &Arc<Self>) -> JoinSet<()> {
        let mut clients = JoinSet::new();
        for _ in 0..CLIENTS {
            let traffic = self.clone();
            clients.spawn(async move {
                loop {
                    let key = traffic.next.fetch_add(1, SeqCst);
                    if key >= traffic.keys {
                        return;
                    }
                    traffic.until_answered(key).await;
                    traffic.answered.fetch_add(1, SeqCst);
                }
            });
        }
        clients
    }

    async fn until_answered(&self, key: u64) {
        let (began, mut doubtful) = (Instant::now(), false);
        loop {
            self.under_way.fetch_add(1, SeqCst);
            let answer = self.once(key).await;
            self.under_way.fetch_sub(1, SeqCst);
            let error = match answer {
                Ok(told) => break self.told.lock().push(told),
                Err(error) => error,
            };
            assert!(!error.is_status(), "key {key} was answered with {error}");
            assert!(began.elapsed() < PATIENCE, "key {key} is never answered: {error}");
            if error.is_connect() {
                self.refused.fetch_add(1, SeqCst);
            } else {
                self.cut_off.fetch_add(1, SeqCst);
                doubtful = true;
            }
            pause(Duration::from_millis(3)).await;
        }
        if doubtful {
            self.doubtful.lock().push(key);
        }
    }

    async fn once(&self, key: u64) -> reqwest::Result<Told> {
        let body = json!({ "kind": "demo.hello", "payload": { "name": key.to_string() } });
        let request = self.client.post(&self.url).header("idempotency-key", format!("key-{key}"));
        let answer = request.json(&body).send().await?.error_for_status()?;
        let (status, replayed) = (answer.status(), answer.headers().get("idempotency-replayed"));
        let replayed = replayed.is_some_and(|v| v == "true");
        let expected = if replayed { StatusCode::OK } else { StatusCode::CREATED };
        assert_eq!(status, expected, "key {key}");
        let task: Value = answer.json().await?;
        let id = task["id"].as_str().expect("an id").to_owned();
        self.replayed.fetch_add(u64::from(replayed), SeqCst);
        Ok(Told { key, id })
    }

    /// Asks again with keys that were answered: all whose requests were cut off,
    /// and some others.
    pub(crate) async fn ask_again(&self) {
        let mut keys = self.doubtful.lock().clone();
        keys.extend((0..self.keys).step_by(50));
        for key in keys {
            let before = self.replayed.load(SeqCst);
            let told = self.once(key).await.expect("an answer");
            assert_eq!(self.replayed.load(SeqCst), before + 1, "key {key} was written again");
            self.told.lock().push(told);
        }
    }

    pub(crate) fn told(&self) -> Vec<Told> {
        self.told.lock().clone()
    }
}
