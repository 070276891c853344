//! A server of its own for each test: an engine with a few kinds that do what
//! the payload says, behind the real listener on a free port.

use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::net::TcpListener;
use windlass::core::access::Role;
use windlass::{
    Builder, Clock as _, Engine, Exponential, KindOptions, StepCall, SystemClock, Windlass,
};
use windlass_server::access::{Gate, secret, tokens_file};
use windlass_server::api::{self, App, Limits, Meter, Terms};
use windlass_server::config::{AuthConfig, AuthMode};
use windlass_server::handlers::Scrubbed;
use windlass_server::redact::Redactor;
use windlass_server::{demo, listen};

/// The counters of the whole test process.
static METER: LazyLock<Meter> = LazyLock::new(|| api::install_meter().expect("counters"));

pub(crate) const LIMITS: Limits = Limits { body_max: 2 * 1024 * 1024, bulk_max: 4 * 1024 * 1024 };

pub(crate) struct Place {
    pub(crate) engine: Engine,
    pub(crate) at: SocketAddr,
    pub(crate) client: reqwest::Client,
    token: Option<String>,
    /// With the file of tokens.
    pub(crate) folder: Option<tempfile::TempDir>,
}

/// Does what its payload says, so that a test can have any outcome.
async fn obey(call: StepCall) -> Result<Value, windlass::TaskError> {
    let wish: Value = serde_json::from_str(call.payload.as_str()).expect("JSON");
    match wish["do"].as_str().unwrap_or("done") {
        "fail" => Err(windlass::fatal(wish["why"].as_str().unwrap_or("told to fail"))),
        "leak" => {
            let password = wish["user"]["password"].as_str().unwrap_or_default();
            Err(windlass::fatal(format!("no login with {password}")))
        }
        "retry" => Err(windlass::retryable("told to retry")),
        "skip" => Err(windlass::skip("told to skip")),
        "wait" => {
            call.cx.cancelled().await;
            call.cx.check()?;
            Ok(json!({}))
        }
        _ => Ok(json!({ call.step: wish["value"], "payload": wish })),
    }
}

pub(crate) fn kinds(builder: Builder, redactor: &Redactor) -> Builder {
    let again = Exponential { first: Duration::from_secs(3600), ..Exponential::TASK };
    let options = KindOptions::new().retry(again).step_retries(0).queue("jobs");
    let names = ["one", "two", "three"];
    let builder = names.iter().fold(demo::add(builder), |b, name| {
        b.handler(name, Scrubbed::new(Arc::new(obey), redactor.clone()))
    });
    // One whose words nobody cleans before they are written.
    let builder = builder.handler("raw", obey).plan_with("raw", ["raw"], options.clone());
    builder.plan_with("chain", names, options.clone()).plan_with("obey", ["one"], options)
}

impl Place {
    pub(crate) async fn new() -> Place {
        Place::of(Windlass::in_memory().await.expect("a store")).await
    }

    pub(crate) async fn of(builder: Builder) -> Place {
        let (page, redactor) = (api::Page::On, Redactor::default());
        Place::open(builder, &AuthConfig::default(), page, redactor).await
    }

    /// A server that asks for tokens; `admin` has one.
    pub(crate) async fn signed_in(auth: AuthConfig, page: api::Page, hidden: &[&str]) -> Place {
        let hidden: Vec<String> = hidden.iter().map(|field| (*field).to_owned()).collect();
        let redactor = Redactor::new(&hidden).expect("fields");
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("tokens.toml");
        let now = SystemClock::new().now();
        let (secret, token) = secret::make("root", Role::Admin, now, None).expect("a token");
        tokens_file::add(&file, token, now).expect("a file");
        let tokens_file = file.display().to_string();
        let auth = AuthConfig { mode: AuthMode::Token, tokens_file, ..auth };
        let builder = Windlass::in_memory().await.expect("a store");
        let mut place = Place::open(builder, &auth, page, redactor).await;
        place.token = Some(secret.expose().to_owned());
        place.folder = Some(dir);
        place
    }

    /// The same server for the holder of another token.
    pub(crate) fn with_token(&self, token: &str) -> Place {
        let Place { engine, at, client, .. } = self;
        let (engine, client, token) = (engine.clone(), client.clone(), Some(token.to_owned()));
        Place { engine, at: *at, client, token, folder: None }
    }

    /// The same server, seen through another address.
    #[allow(dead_code)] // only the tests of workers do
    pub(crate) fn seen_at(&self, at: SocketAddr) -> Place {
        let (engine, client) = (self.engine.clone(), reqwest::Client::new());
        Place { engine, at, client, token: self.token.clone(), folder: None }
    }

    /// Makes a token through the API.
    pub(crate) async fn token(&self, name: &str, role: &str) -> String {
        let got = self.post("/v1/tokens", json!({"name": name, "role": role})).await;
        got.is(201).json["token"].as_str().expect("a token").to_owned()
    }

    async fn open(
        builder: Builder,
        auth: &AuthConfig,
        page: api::Page,
        redactor: Redactor,
    ) -> Place {
        let meter = METER.clone();
        let engine = kinds(builder, &redactor).queue("jobs", 20).start().await.expect("an engine");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let at = listener.local_addr().expect("an address");
        let gate = Gate::open(&engine, auth).await.expect("a gate");
        let terms = Terms { limits: LIMITS, gate, page, redactor };
        let app = App::new(engine.clone(), at, terms, meter).await.expect("an app");
        tokio::spawn(listen::serve(listener, api::router(app), std::future::pending()));
        windlass_server::tls::use_ring();
        Place { engine, at, client: reqwest::Client::new(), token: None, folder: None }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.at)
    }

    pub(crate) async fn send(&self, method: Method, path: &str, body: Option<Value>) -> Got {
        let request = self.client.request(method, self.url(path));
        let request = match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        let request = match body {
            Some(body) => request.json(&body),
            None => request,
        };
        Got::of(request.send().await.expect("an answer")).await
    }

    pub(crate) async fn get(&self, path: &str) -> Got {
        self.send(Method::GET, path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Got {
        self.send(Method::POST, path, Some(body)).await
    }

    /// A verb without a body.
    pub(crate) async fn ask(&self, path: &str) -> Got {
        self.send(Method::POST, path, None).await
    }

    /// Submits, and gives the id.
    pub(crate) async fn submit(&self, submission: Value) -> String {
        let got = self.post("/v1/tasks", submission).await;
        got.is(201).json["id"].as_str().expect("an id").to_owned()
    }

    /// Submits and waits for the end.
    pub(crate) async fn ended(&self, submission: Value) -> Value {
        let id = self.submit(submission).await;
        self.get(&format!("/v1/tasks/{id}?wait=30s")).await.is(200).json.clone()
    }

    /// Waits until a task has this state.
    pub(crate) async fn until(&self, id: &str, state: &str) -> Value {
        let began = std::time::Instant::now();
        loop {
            let task = self.get(&format!("/v1/tasks/{id}")).await.is(200).json.clone();
            if task["state"] == state {
                return task;
            }
            assert!(began.elapsed() < Duration::from_secs(30), "never {state}: {task}");
            // tidy: allow-sleep because the other side of a socket announces nothing
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// An answer, read.
#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) status: StatusCode,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) text: String,
    pub(crate) json: Value,
}

impl Got {
    pub(crate) async fn of(response: Response) -> Got {
        let (status, headers) = (response.status(), response.headers().clone());
        let text = response.text().await.expect("a body");
        let json = serde_json::from_str(&text).unwrap_or(Value::Null);
        Got { status, headers, text, json }
    }

    #[track_caller]
    pub(crate) fn is(&self, status: u16) -> &Got {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        self
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
    }

    /// A problem in its right shape.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16, code: &str) -> &Got {
        self.is(status);
        assert_eq!(self.header("content-type"), "application/problem+json");
        assert_eq!(self.json["code"], code, "{}", self.text);
        assert_eq!(self.json["status"], status, "{}", self.text);
        for field in ["type", "title", "detail", "request_id", "hint"] {
            assert!(self.json[field].as_str().is_some_and(|t| !t.is_empty()), "{}", self.text);
        }
        assert_eq!(self.json["request_id"], self.header("request-id"));
        self
    }

    pub(crate) fn pointer(&self) -> &str {
        self.json["errors"][0]["pointer"].as_str().unwrap_or_default()
    }

    pub(crate) fn detail(&self) -> &str {
        self.json["detail"].as_str().unwrap_or_default()
    }

    pub(crate) fn items(&self) -> &Vec<Value> {
        self.json["items"].as_array().expect("items")
    }
}
