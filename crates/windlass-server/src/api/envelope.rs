//! What goes around every request: an id, the gate (who is it, and may they), the
//! check without sign-in that the caller means this server and is no foreign web page, the headers of every answer, and the body of
//! problems. It wraps the whole router, so that answers made by the framework itself look like ours.

use super::answers::roomed;
use super::problem::{Problem, ProblemCode};
use super::rights::{check, check_read_only, needed};
use super::status::{self, is_grpc};
use super::{App, Page};
use crate::access::Caller;
use axum::extract::{ConnectInfo, MatchedPath, Request, State};
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tracing::Instrument as _;

const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");
const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
/// Longest id that is taken over from the caller.
const ID_MAX: usize = 100;

/// The id of a request, given by the caller or made here.
#[derive(Debug, Clone)]
pub(super) struct RequestId(String);

impl RequestId {
    fn of(headers: &HeaderMap) -> RequestId {
        let fits = |text: &&str| {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/".contains(c);
            !text.is_empty() && text.len() <= ID_MAX && text.chars().all(plain)
        };
        let given = headers.get(REQUEST_ID).and_then(|v| v.to_str().ok()).filter(fits);
        RequestId(
            given.map_or_else(|| format!("req_{:016x}", rand::random::<u64>()), str::to_owned),
        )
    }
}

pub(super) async fn envelope(
    State(app): State<Arc<App>>,
    request: Request,
    next: Next,
) -> Response {
    let id = RequestId::of(request.headers());
    let grpc = is_grpc(request.headers());
    // A body cannot be held while something is waited for.
    let (mut parts, body) = request.into_parts();
    let mut response = match admitted(&app, &parts).await {
        Ok(caller) => {
            parts.extensions.insert(caller);
            let request = Request::from_parts(parts, body);
            // Lines of the log about this request carry its id.
            let span = tracing::info_span!("request", request_id = id.0);
            roomed(next.run(request).instrument(span).await).await
        }
        Err(problem) => problem.into_response(),
    };
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        if grpc {
            response = status::answer(problem);
        } else {
            response = document(problem, response, &id.0);
        }
    }
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(&id.0) {
        headers.insert(REQUEST_ID, value);
    }
    headers.entry(header::X_CONTENT_TYPE_OPTIONS).or_insert(NOSNIFF);
    headers.entry(header::CACHE_CONTROL).or_insert(NO_STORE);
    response
}

/// Who sends the request, if it may be sent at all: the right server, a caller
/// who is known, the role that the route needs.
async fn admitted(app: &App, request: &Parts) -> Result<Caller, Problem> {
    if !app.terms.gate.asks() {
        trusted(app, request)?;
    }
    let peer = request.extensions.get::<ConnectInfo<SocketAddr>>();
    let origin = peer.map_or(app.listen.ip(), |peer| peer.0.ip().to_canonical());
    let route = request.extensions.get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let Some(role) = needed(&request.method, route) else { return Ok(Caller::nobody(origin)) };
    let (headers, now) = (&request.headers, app.engine.now());
    let caller = app.terms.gate.admit(app.reader(), headers, origin, now).await?;
    check(&caller, role)?;
    if app.terms.page == Page::ReadOnly {
        check_read_only(&request.method, role)?;
    }
    Ok(caller)
}

/// A refusal for everybody else.
fn document(problem: Problem, response: Response, id: &str) -> Response {
    let text = serde_json::to_string(&problem.body(id)).unwrap_or_default();
    let (mut parts, _) = response.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(header::CONTENT_TYPE, PROBLEM);
    Response::from_parts(parts, text.into())
}

/// Without sign-in the loopback address is the only wall, and a web page that a
/// person on this machine looks at can send requests there. Browsers say whose
/// page it is (`Origin`) and which name led here (`Host`); both must be ours.
fn trusted(app: &App, request: &Parts) -> Result<(), Problem> {
    let headers = &request.headers;
    // HTTP/2 has it in the address, HTTP/1 may have it in both.
    let named = headers.get_all(header::HOST).iter().map(|host| host.to_str().unwrap_or_default());
    let addressed = request.uri.authority().map(|a| a.as_str());
    let mut hosts = named.chain(addressed);
    let Some(host) = hosts.next() else {
        return Err(Problem::new(ProblemCode::Forbidden, "the request names no host"));
    };
    if hosts.any(|other| other != host) {
        return Err(Problem::new(ProblemCode::Forbidden, "the request names several hosts"));
    }
    if !is_own(app, host) {
        let detail = format!("`{host:.100}` is not a name of this server");
        return Err(Problem::new(ProblemCode::Forbidden, detail));
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let own =
        origin.to_str().ok().and_then(|o| o.split_once("://")).is_some_and(|(_, h)| h == host);
    if own {
        return Ok(());
    }
    Err(Problem::new(ProblemCode::Forbidden, "requests from pages of other sites are refused"))
}

fn is_own(app: &App, host: &str) -> bool {
    let name = host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok());
    let name = name.map_or(host, |(name, _)| name).trim_matches(['[', ']']);
    let local = name.eq_ignore_ascii_case("localhost");
    local || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback() || ip == app.listen.ip())
}

/// Nothing lives at this address.
pub(super) async fn nowhere(request: Request) -> Problem {
    let path = request.uri().path();
    if is_grpc(request.headers()) {
        // What clients of gRPC expect of a service that is not there.
        let problem = Problem::not_found(format!("there is no method {path:.200}"));
        let problem = problem.hint("proto/worker.proto has all of them");
        return problem.status(axum::http::StatusCode::NOT_IMPLEMENTED);
    }
    Problem::not_found(format!("there is nothing at {path:.200}"))
        .hint("GET /v1/openapi.json lists every address")
}

/// Something lives here, but not for this method.
pub(super) async fn wrong_method(request: Request) -> Problem {
    let (method, path) = (request.method(), request.uri().path());
    Problem::new(ProblemCode::ReadOnly, format!("{path:.200} takes no {method:.20}"))
}

/// A bug of ours: the caller gets a problem, the log the details.
pub(super) fn panicked(panic: Box<dyn std::any::Any + Send + 'static>) -> Response {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    tracing::error!(panic = text, "a request handler panicked");
    let problem = Problem::new(ProblemCode::StoreUnavailable, "the server has a bug here");
    let problem = problem.hint("the server's log has the details under this request's time");
    problem.status(axum::http::StatusCode::INTERNAL_SERVER_ERROR).into_response()
}
