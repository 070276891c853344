//! Whether the process lives and whether it should get requests. Alive means
//! that it answers; ready means that the store answers, the node's lease holds
//! and nobody is shutting it down.

use super::App;
use super::input::Params;
use super::problem::{Answer, ProblemBody};
use crate::access::Caller;
use crate::tls::{Certificates, Good};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;
use utoipa::{IntoParams, ToSchema};
use windlass::core::access::Role;

const PATIENCE: Duration = Duration::from_secs(2);
/// The store is not asked again for so long, whoever asks.
const GOOD_FOR: Duration = Duration::from_secs(1);

/// Says that the process lives
#[utoipa::path(
    get, path = "/livez", tag = "server",
    responses((status = 200, body = String, content_type = "text/plain"))
)]
pub(super) async fn live() -> &'static str {
    "ok\n"
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ReadyParams {
    /// Say how each part is
    verbose: Option<String>,
}

/// How the parts are.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Readiness {
    ready: bool,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
struct Part {
    name: &'static str,
    /// ok, degraded or failed
    state: &'static str,
    detail: String,
}

/// Says whether this node should get requests
#[utoipa::path(
    get, path = "/readyz", tag = "server", params(ReadyParams),
    responses(
        (status = 200, body = Readiness, description = "Ready; `parts` are told with `verbose`, to those who may look"),
        (status = 503, body = Readiness, description = "Not ready"),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn ready(
    State(app): State<Arc<App>>,
    caller: Caller,
    headers: HeaderMap,
    certificates: Option<Extension<Arc<Certificates>>>,
    Params(params): Params<ReadyParams>,
) -> Answer<Response> {
    let mut parts = vec![app.looked.share(store(&app)).await, node(&app)];
    parts.extend(certificates.map(|Extension(certificates)| certificate(&certificates)));
    let ready = parts.iter().all(|p| p.state != "failed");
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let quiet = params.verbose.is_none_or(|v| v == "false" || v == "0");
    let parts = if quiet || !may_see(&app, &headers, &caller).await { vec![] } else { parts };
    Ok((status, Json(Readiness { ready, parts })).into_response())
}

/// Everybody may ask whether; how the parts are is for those who may look.
async fn may_see(app: &App, headers: &HeaderMap, caller: &Caller) -> bool {
    let gate = &app.terms.gate;
    if gate.asks() && !headers.contains_key(header::AUTHORIZATION) {
        return false;
    }
    let admitted = gate.admit(app.reader(), headers, caller.origin, app.engine.now()).await;
    admitted.is_ok_and(|caller| caller.role.includes(Role::Viewer))
}

/// What the store said last. However many ask, one of them asks the store, and the
/// others wait for what it hears.
#[derive(Debug, Default)]
pub(super) struct Looked(Mutex<Option<(Instant, Part)>>);

impl Looked {
    async fn share(&self, ask: impl Future<Output = Part>) -> Part {
        let mut last = self.0.lock().await;
        if let Some((at, part)) = last.as_ref()
            && at.elapsed() < GOOD_FOR
        {
            return part.clone();
        }
        let part = ask.await;
        *last = Some((Instant::now(), part.clone()));
        part
    }
}

async fn store(app: &App) -> Part {
    let name = "store";
    match tokio::time::timeout(PATIENCE, app.reader().next_due()).await {
        Ok(Ok(_)) => Part { name, state: "ok", detail: app.engine.store_name().to_owned() },
        Ok(Err(error)) => {
            tracing::warn!(%error, "the store does not answer");
            Part { name, state: "failed", detail: "it does not answer".to_owned() }
        }
        Err(_) => {
            let detail = format!("it did not answer within {PATIENCE:?}");
            tracing::warn!("the store does not answer: {detail}");
            Part { name, state: "failed", detail }
        }
    }
}

/// Of the connection on which this is asked.
fn certificate(certificates: &Certificates) -> Part {
    let good = certificates.good();
    let (state, detail) = match (good.warning(), good) {
        (Some(warning), _) => ("degraded", warning),
        (None, Good::For(left)) => ("ok", format!("ends in {} days", left.as_secs() / 86_400)),
        (None, _) => ("ok", "its end cannot be read".to_owned()),
    };
    Part { name: "certificate", state, detail }
}

fn node(app: &App) -> Part {
    let status = app.engine.status();
    let (state, detail) = match status {
        _ if !app.engine.is_ready() => ("failed", "shutting down, or joining again".to_owned()),
        s if s.draining => ("degraded", format!("{} takes no new work: draining", s.node)),
        s if s.paused => ("degraded", format!("{} takes no new work: paused", s.node)),
        s if s.overrun > 0 => {
            ("degraded", format!("{} slots are taken by code that will not stop", s.overrun))
        }
        s => ("ok", s.node.to_string()),
    };
    Part { name: "node", state, detail }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    #[tokio::test]
    async fn one_asks_and_the_others_share_what_it_hears() {
        let (looked, asked) = (Looked::default(), AtomicU32::new(0));
        let ask = || async {
            asked.fetch_add(1, SeqCst);
            tokio::task::yield_now().await;
            Part { name: "store", state: "ok", detail: String::new() }
        };
        let parts = futures::future::join_all((0..1000).map(|_| looked.share(ask()))).await;
        assert!(parts.iter().all(|part| part.state == "ok"));
        assert_eq!(asked.load(SeqCst), 1);
        // tidy: allow-sleep because the age of an answer is what is tested
        tokio::time::sleep(GOOD_FOR).await;
        looked.share(ask()).await;
        assert_eq!(asked.load(SeqCst), 2, "news are asked for");
    }
}
