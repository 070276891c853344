//! A worker as the tests drive it, one call at a time: it keeps its id and what it
//! holds, and nothing else.

use crate::place::{Got, Place};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use windlass::{Builder, KindOptions, UnknownKinds, Windlass};

/// Retries of the kind that workers serve here.
pub(crate) const RETRIES: u32 = 2;

/// A server for workers, with this lease.
pub(crate) async fn place(lease: Duration) -> Place {
    serve(Windlass::in_memory().await.expect("a store"), lease).await
}

/// The same with its store in a folder.
pub(crate) async fn place_on(folder: &Path, lease: Duration) -> Place {
    let url = format!("sqlite://{}", folder.join("t.db").display());
    serve(Windlass::open(&url).await.expect("a store"), lease).await
}

async fn serve(builder: Builder, lease: Duration) -> Place {
    let options = KindOptions::new().retries(RETRIES).queue("jobs");
    let builder = builder.unknown_kinds(UnknownKinds::Park).remote_kind("far", options);
    Place::of(builder.settings(|s| {
        s.lease = lease;
        s.suspects_wait = Duration::ZERO;
        s.cancel_grace = Duration::from_millis(200);
    }))
    .await
}

pub(crate) struct Worker<'a> {
    pub(crate) place: &'a Place,
    pub(crate) id: Option<String>,
    pub(crate) held: Vec<Value>,
}

/// What a lease gave.
#[derive(Debug, Clone)]
pub(crate) struct Leased {
    pub(crate) id: String,
    pub(crate) token: u64,
    pub(crate) all: Value,
}

impl Leased {
    pub(crate) fn of(lease: &Value) -> Leased {
        let id = lease["task"]["id"].as_str().expect("an id").to_owned();
        Leased { id, token: lease["token"].as_u64().expect("a token"), all: lease.clone() }
    }

    pub(crate) fn held(&self) -> Value {
        json!({"task": self.id, "token": self.token})
    }

    /// A report about it.
    pub(crate) fn says(&self, what: &str, said: Value) -> Value {
        json!({"task": self.id, "token": self.token, what: said})
    }

    pub(crate) fn step(&self, name: &str, version: u64) -> Value {
        let output = json!({name: version});
        self.says(
            "step",
            json!({"name": name, "outcome": "done", "output": output, "version": version}),
        )
    }

    pub(crate) fn done(&self, output: Value) -> Value {
        self.says("finish", json!({"outcome": "done", "output": output}))
    }
}

impl<'a> Worker<'a> {
    pub(crate) fn new(place: &'a Place) -> Worker<'a> {
        Worker { place, id: None, held: vec![] }
    }

    /// Leases with these words instead of the usual ones.
    pub(crate) async fn ask(&self, words: Value) -> Got {
        let mut body = json!({"worker": "w", "worker_id": self.id, "kinds": ["far"], "queues": ["jobs"], "max": 10});
        let words = words.as_object().expect("words").clone();
        body.as_object_mut().expect("an object").extend(words);
        self.place.post("/v1/worker/lease", body).await
    }

    pub(crate) async fn lease(&mut self, words: Value) -> Vec<Leased> {
        let got = self.ask(words).await;
        got.is(200);
        self.id = Some(got.json["worker_id"].as_str().expect("an id").to_owned());
        let leases = got.json["leases"].as_array().expect("leases").iter();
        let leases: Vec<Leased> = leases.map(Leased::of).collect();
        self.held.extend(leases.iter().map(Leased::held));
        leases
    }

    pub(crate) async fn one(&mut self) -> Leased {
        let mut leases = self.lease(json!({"wait": "10s"})).await;
        assert_eq!(leases.len(), 1, "{leases:?}");
        leases.remove(0)
    }

    pub(crate) async fn try_report(&self, reports: Value) -> Got {
        let body = json!({"worker_id": self.id, "held": self.held, "reports": reports});
        self.place.post("/v1/worker/report", body).await
    }

    /// Results and requests.
    pub(crate) async fn report(&self, reports: Value) -> (Vec<String>, Vec<Value>) {
        let got = self.try_report(reports).await;
        let json = &got.is(200).json;
        let words = json["results"].as_array().expect("results").iter();
        let words = words.map(|w| w.as_str().expect("a word").to_owned()).collect();
        (words, json["requests"].as_array().expect("requests").clone())
    }
}
