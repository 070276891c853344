//! A small server that answers what a test tells it to and remembers what it was
//! asked, and a way to run the binary against it. It knows none of the API: the
//! tests of the command line look at requests, exit codes and words only.

use axum::Router;
use axum::body::Bytes;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::process::{Output, Stdio};
use std::sync::Arc;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::process::Command;

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    /// `GET /v1/tasks?q=...`
    pub(crate) line: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// An answer: status, headers, body.
pub(crate) struct Answer(pub(crate) u16, pub(crate) Vec<(&'static str, String)>, pub(crate) String);

impl Answer {
    pub(crate) fn json(status: u16, body: &Value) -> Answer {
        Answer(status, vec![("content-type", "application/json".into())], body.to_string())
    }

    pub(crate) fn problem(status: u16, code: &str) -> Answer {
        let body = json!({"code": code, "status": status, "title": "no", "detail": format!("told {code}")});
        Answer(status, vec![("request-id", "req-7".into())], body.to_string())
    }

    pub(crate) fn items(items: &[Value]) -> Answer {
        Answer::json(200, &json!({"items": items, "next_cursor": null}))
    }

    /// A feed that ends after these events, numbered from `first`.
    pub(crate) fn feed(first: usize, events: &[Value]) -> Answer {
        let one = |(n, event): (usize, &Value)| format!("id: {}\ndata: {event}\n\n", first + n);
        let text: String = events.iter().enumerate().map(one).collect();
        Answer(200, vec![("content-type", "text/event-stream".into())], text)
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let mut response = self.2.into_response();
        *response.status_mut() = StatusCode::from_u16(self.0).unwrap();
        for (name, value) in self.1 {
            response.headers_mut().insert(name, value.parse().unwrap());
        }
        response
    }
}

pub(crate) struct Fake {
    pub(crate) url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Fake {
    pub(crate) async fn start(answer: impl Fn(&Seen) -> Answer + Send + Sync + 'static) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (log, answer) = (seen.clone(), Arc::new(answer));
        let app = Router::new().fallback(move |request: Request| {
            let (log, answer) = (log.clone(), answer.clone());
            async move {
                let (head, body) = request.into_parts();
                let body: Bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
                let seen = Seen {
                    line: format!("{} {}", head.method, head.uri),
                    headers: head.headers,
                    body: serde_json::from_slice(&body).unwrap_or(Value::Null),
                };
                let answer = answer(&seen);
                log.lock().push(seen);
                answer
            }
        });
        tokio::spawn(async move { axum::serve(listener, app).await });
        Fake { url, seen }
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }

    /// The lines of all requests whose line begins like this.
    pub(crate) fn lines(&self, start: &str) -> Vec<String> {
        let seen = self.seen().into_iter().map(|seen| seen.line);
        seen.filter(|line| line.starts_with(start)).collect()
    }

    /// Runs the binary against this server.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Ran {
        run(&self.url, arguments, "").await
    }
}

/// How the binary ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// Every error ends with a line that says what to do.
    pub(crate) fn hint(&self) -> &str {
        let last = self.stderr.trim_end().lines().last().unwrap_or_default();
        assert!(last.starts_with("hint: "), "no hint at the end: {self:?}");
        last
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        Ran {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// The binary with nothing of this process's environment.
pub(crate) fn windlass(server: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.env_clear().env("WINDLASS_SERVER", server).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

pub(crate) async fn run(server: &str, arguments: &[&str], stdin: &str) -> Ran {
    let mut child = windlass(server, arguments).stdin(Stdio::piped()).spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    // A command that reads no stdin closes it: not an error here.
    let _ = pipe.write_all(stdin.as_bytes()).await;
    drop(pipe);
    child.wait_with_output().await.unwrap().into()
}
