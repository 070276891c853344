//! Speaks HTTP to a server: builds requests, reads answers, and turns problem
//! documents and lost connections into failures. It comes after the global flags
//! and before every command. It knows paths only as the callers give them, and
//! it never shows the token.

use super::failure::{Exit, Failure};
use super::fields::{clean, text};
use super::global::Global;
use super::trust;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, Url};
use serde_json::Value;
use std::time::Duration;

const CONNECT: Duration = Duration::from_secs(3);
/// Longer than any answer takes that is not a long poll.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often a request that is safe to repeat is sent again.
const REPEATS: u32 = 3;

/// Whether sending a request twice does the same as sending it once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    Never,
    Safe,
}

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) method: Method,
    path: Vec<String>,
    query: Vec<(&'static str, String)>,
    headers: Vec<(HeaderName, String)>,
    pub(crate) body: Option<Value>,
    repeat: Repeat,
    if_lost: Option<String>,
}

impl Call {
    fn new(method: Method, path: &[&str], repeat: Repeat) -> Self {
        let path = path.iter().map(|part| (*part).to_owned()).collect();
        Call {
            method,
            path,
            query: Vec::new(),
            headers: Vec::new(),
            body: None,
            repeat,
            if_lost: None,
        }
    }

    /// `path` in pieces: each is escaped by itself.
    pub(crate) fn get(path: &[&str]) -> Self {
        Call::new(Method::GET, path, Repeat::Safe)
    }

    pub(crate) fn post(path: &[&str]) -> Self {
        Call::new(Method::POST, path, Repeat::Never)
    }

    pub(crate) fn patch(path: &[&str]) -> Self {
        Call::new(Method::PATCH, path, Repeat::Safe)
    }

    pub(crate) fn delete(path: &[&str]) -> Self {
        Call::new(Method::DELETE, path, Repeat::Never)
    }

    pub(crate) fn query(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.query.push((key, value.into()));
        self
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((HeaderName::from_static(name), value.to_owned()));
        self
    }

    pub(crate) fn body(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }

    pub(crate) fn repeat(mut self, repeat: Repeat) -> Self {
        self.repeat = repeat;
        self
    }

    /// What to do when the answer is lost and the server may have acted.
    pub(crate) fn if_lost(mut self, hint: impl Into<String>) -> Self {
        self.if_lost = Some(hint.into());
        self
    }

    /// `/v1/tasks`, for people.
    pub(crate) fn shown_path(&self) -> String {
        format!("/{}", self.path.join("/"))
    }
}

/// An answer that was no refusal.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
    /// The body says that it is JSON, and is not.
    unreadable: bool,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// How sending went wrong, before it becomes a failure.
enum Broken {
    /// No connection was made: the server has seen nothing.
    Connect(reqwest::Error),
    /// The connection ended before the answer: the server may have acted.
    Later(reqwest::Error),
}

pub(crate) struct Client {
    http: reqwest::Client,
    base: Url,
    bearer: Option<HeaderValue>,
    verbose: bool,
}

impl Client {
    pub(crate) fn new(global: &Global) -> Result<Self, Failure> {
        let base = read_server(&global.server)?;
        let http = trust::trusting(reqwest::Client::builder(), &base, global.ca_file.as_deref())?
            .connect_timeout(CONNECT)
            .user_agent(concat!("windlass/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|e| trust::no_client(&e))?;
        Ok(Client { http, base, bearer: bearer(global)?, verbose: global.verbose > 0 })
    }

    /// The server's address, without what an address may hide.
    pub(crate) fn server(&self) -> String {
        let port = self.base.port().map_or(String::new(), |port| format!(":{port}"));
        format!("{}://{}{port}", self.base.scheme(), self.base.host_str().unwrap_or_default())
    }

    /// Sends and returns the body of the answer.
    pub(crate) async fn body(&self, call: Call) -> Result<Value, Failure> {
        Ok(self.send(call).await?.body)
    }

    /// Sends; a refusal is a failure.
    pub(crate) async fn send(&self, call: Call) -> Result<Answer, Failure> {
        let answer = self.look(&call).await?;
        match answer.status {
            200..300 if answer.unreadable => Err(self.unreadable(&call)),
            200..300 => Ok(answer),
            _ => Err(self.refusal(&answer)),
        }
    }

    /// Sends and returns whatever the server answers.
    pub(crate) async fn look(&self, call: &Call) -> Result<Answer, Failure> {
        // Once a connection was made, the server may have acted, whatever
        // becomes of later tries.
        let mut reached = false;
        for tries in 1.. {
            let again = call.repeat == Repeat::Safe && tries <= REPEATS;
            match self.try_once(call).await {
                Ok(answer) if again && in_progress(&answer) => reached = true,
                Ok(answer) => return Ok(answer),
                Err(Broken::Connect(e)) if !reached => return Err(self.unreachable(&e)),
                // Who has waited long enough for one answer will not for four.
                Err(Broken::Connect(e) | Broken::Later(e)) if !again || e.is_timeout() => {
                    return Err(self.cut_off(&e, call.if_lost.as_deref()));
                }
                Err(_) => reached = true,
            }
            tokio::time::sleep(pause(tries)).await;
        }
        Err(Failure::new(Exit::Failed, "gave up sending", "try again"))
    }

    async fn try_once(&self, call: &Call) -> Result<Answer, Broken> {
        let response = self.request(call).timeout(PATIENCE).send().await.map_err(broken)?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let bytes = response.bytes().await.map_err(Broken::Later)?;
        let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
        let (body, read) = match bytes.len() {
            0 => (Value::Null, true),
            _ => serde_json::from_slice(&bytes).map_or_else(|_| (text(), false), |b| (b, true)),
        };
        let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let unreadable = !read && kind.is_some_and(|kind| kind.contains("json"));
        Ok(Answer { status, headers, body, unreadable })
    }

    /// Opens an answer that goes on without end, such as the event feed.
    pub(crate) async fn open(&self, call: &Call) -> Result<Response, Failure> {
        // Only the beginning has a time limit, which a request's own cannot say.
        let answer = tokio::time::timeout(PATIENCE, self.request(call).send()).await;
        let response = match answer.map(|answer| answer.map_err(broken)) {
            Ok(Ok(response)) => response,
            Ok(Err(Broken::Connect(e))) => return Err(self.unreachable(&e)),
            Ok(Err(Broken::Later(e))) => return Err(self.cut_off(&e, call.if_lost.as_deref())),
            Err(_) => {
                let message = format!("{} does not answer", self.server());
                let hint = "`windlass doctor` looks for the cause";
                return Err(Failure::new(Exit::Unreachable, message, hint));
            }
        };
        if response.status().is_success() {
            return Ok(response);
        }
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.bytes().await.unwrap_or_default();
        let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
        Err(self.refusal(&Answer { status, headers, body, unreadable: false }))
    }

    fn request(&self, call: &Call) -> RequestBuilder {
        let mut url = self.base.clone();
        if let Ok(mut parts) = url.path_segments_mut() {
            parts.pop_if_empty().extend(&call.path);
        }
        if !call.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&call.query);
        }
        let mut request = self.http.request(call.method.clone(), url);
        if let Some(bearer) = &self.bearer {
            request = request.header(AUTHORIZATION, bearer.clone());
        }
        for (name, value) in &call.headers {
            request = request.header(name.clone(), value);
        }
        match &call.body {
            Some(body) => request.json(body),
            None => request,
        }
    }

    fn refusal(&self, answer: &Answer) -> Failure {
        let problem = &answer.body;
        let code = text(problem, "code");
        let mut message = ["detail", "title"]
            .iter()
            .map(|key| clean(text(problem, key)))
            .find(|words| !words.is_empty())
            .unwrap_or_else(|| format!("{} answered {}", self.server(), answer.status));
        for error in problem.get("errors").and_then(Value::as_array).into_iter().flatten() {
            let (pointer, detail) = (clean(text(error, "pointer")), clean(text(error, "detail")));
            if !message.contains(&detail) {
                message.push_str(&format!("\n  {pointer}: {detail}"));
            }
        }
        let id = answer.header("request-id").unwrap_or_else(|| text(problem, "request_id"));
        if self.verbose && !id.is_empty() {
            message.push_str(&format!("\n  request id {}", clean(id)));
        }
        let hint = match clean(text(problem, "hint")) {
            hint if hint.is_empty() => default_hint(code, answer.status).to_owned(),
            hint => in_commands(&hint),
        };
        Failure::new(Exit::of_problem(code, answer.status), message, hint)
    }

    fn unreachable(&self, error: &reqwest::Error) -> Failure {
        if let Some(failure) = trust::refused(error, &self.server()) {
            return failure;
        }
        let message = format!("no server at {}: {}", self.server(), root_cause(error));
        let hint = "start one with `windlass dev`, or say where it is with --server URL";
        Failure::new(Exit::Unreachable, message, hint)
    }

    /// What cannot be read must not pass for nothing.
    fn unreadable(&self, call: &Call) -> Failure {
        let message =
            format!("the answer of {} to {} is not JSON", self.server(), call.shown_path());
        let hint = "see what it is with curl; `windlass doctor` compares versions";
        Failure::new(Exit::Failed, message, hint)
    }

    pub(crate) fn cut_off(&self, error: &reqwest::Error, hint: Option<&str>) -> Failure {
        let cause = root_cause(error);
        let message =
            format!("the connection to {} broke before the answer: {cause}", self.server());
        let look = "the server may have done it: look before you send it again";
        Failure::new(Exit::Unreachable, message, hint.unwrap_or(look))
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("server", &self.server()).finish_non_exhaustive()
    }
}

fn broken(error: reqwest::Error) -> Broken {
    if error.is_connect() { Broken::Connect(error) } else { Broken::Later(error) }
}

/// An earlier try of ours is still being worked on.
fn in_progress(answer: &Answer) -> bool {
    answer.status == 409 && text(&answer.body, "code") == "idempotency-in-progress"
}

fn pause(tries: u32) -> Duration {
    let spread = rand::random_range(0.75..1.25);
    Duration::from_millis(100 * (1 << tries)).mul_f64(spread)
}

/// The innermost cause says most: "Connection refused".
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    if error.is_timeout() { "no answer in time".to_owned() } else { cause.to_string() }
}

/// Hints are written for users of HTTP; here the same is a command.
fn in_commands(hint: &str) -> String {
    const SAID: [(&str, &str); 9] = [
        ("GET /v1/tasks", "`windlass task list`"),
        ("GET /v1/queues", "`windlass queue list`"),
        ("GET /v1/nodes", "`windlass node list`"),
        ("GET /v1/dead-letters", "`windlass dead list`"),
        ("GET /v1/batches", "`windlass batch list`"),
        ("GET /v1/audit", "`windlass audit list`"),
        ("GET the resource", "`windlass task show` or `windlass queue show`"),
        (
            "send `Authorization: Bearer TOKEN`",
            "put a token into WINDLASS_TOKEN, or pass --token-file",
        ),
        ("correct the fields named in errors", "correct what is named above"),
    ];
    SAID.iter().fold(hint.to_owned(), |hint, (http, command)| hint.replace(http, command))
}

fn default_hint(code: &str, status: u16) -> &'static str {
    match Exit::of_problem(code, status) {
        Exit::Usage => "`windlass help COMMAND` shows what a command takes",
        Exit::NotFound => {
            "`windlass task list` shows what there is; ended tasks are purged in time"
        }
        Exit::NotAllowed if status == 401 => {
            "put a token into WINDLASS_TOKEN, or pass --token-file"
        }
        Exit::NotAllowed => "ask for a token with a higher role",
        Exit::Conflict => "`windlass task show ID` tells the state; try again if that suits",
        Exit::Unreachable => "wait a moment and try again; `windlass doctor` looks for the cause",
        _ if status == 429 => "wait a moment and try again",
        _ => "the server's log says more; pass -v for the request id",
    }
}

fn read_server(text: &str) -> Result<Url, Failure> {
    let hint = "write --server (or WINDLASS_SERVER) like http://127.0.0.1:7450";
    let url = Url::parse(text).ok().filter(Url::has_host);
    let url = url.ok_or_else(|| Failure::usage("the server's address is not a URL", hint))?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        other => Err(Failure::usage(format!("a server is not reached by {other}://"), hint)),
    }
}

fn bearer(global: &Global) -> Result<Option<HeaderValue>, Failure> {
    let token = match &global.token_file {
        Some(path) => std::fs::read_to_string(path).map_err(|e| {
            let message = format!("cannot read the token file {}: {e}", path.display());
            Failure::usage(message, "--token-file names a file that holds the token")
        })?,
        None => std::env::var("WINDLASS_TOKEN").unwrap_or_default(),
    };
    if token.trim().is_empty() {
        return Ok(None);
    }
    let mut value = HeaderValue::from_str(&format!("Bearer {}", token.trim())).map_err(|_| {
        Failure::usage("the token has characters that no token has", "give one line of plain text")
    })?;
    value.set_sensitive(true);
    Ok(Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_people_write() {
        assert!(read_server("http://127.0.0.1:7450").is_ok());
        assert!(read_server("https://example.com").is_ok());
        for (text, says) in [
            ("127.0.0.1:7450", "not a URL"),
            ("localhost:7450", "not a URL"),
            ("ftp://example.com", "ftp"),
        ] {
            let failure = read_server(text).unwrap_err();
            assert_eq!(failure.code, Exit::Usage, "{text}");
            assert!(failure.message.contains(says), "{text}: {}", failure.message);
        }
    }

    #[test]
    fn hints_name_commands() {
        let hint = in_commands("it may have been purged; GET /v1/tasks lists what there is");
        assert_eq!(hint, "it may have been purged; `windlass task list` lists what there is");
        assert_eq!(in_commands("wait"), "wait");
    }

    #[test]
    fn every_refusal_has_a_hint() {
        for status in [400, 401, 403, 404, 409, 413, 422, 429, 500, 503] {
            assert!(!default_hint("", status).is_empty());
        }
        assert!(default_hint("unauthenticated", 401).contains("WINDLASS_TOKEN"));
    }
}
