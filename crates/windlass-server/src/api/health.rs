//! Whether the process lives and whether it should get requests. Alive means
//! that it answers; ready means that the store answers, the node's lease holds
//! and nobody is shutting it down.

use super::App;
use super::input::Params;
use super::problem::{Answer, ProblemBody};
use crate::tls::{Certificates, Good};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use utoipa::{IntoParams, ToSchema};

const PATIENCE: Duration = Duration::from_secs(2);

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

#[derive(Debug, Serialize, ToSchema)]
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
        (status = 200, body = Readiness, description = "Ready; `parts` are told with `verbose`"),
        (status = 503, body = Readiness, description = "Not ready"),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn ready(
    State(app): State<Arc<App>>,
    certificates: Option<Extension<Arc<Certificates>>>,
    Params(params): Params<ReadyParams>,
) -> Answer<Response> {
    let mut parts = vec![store(&app).await, node(&app)];
    parts.extend(certificates.map(|Extension(certificates)| certificate(&certificates)));
    let ready = parts.iter().all(|p| p.state != "failed");
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let quiet = params.verbose.is_none_or(|v| v == "false" || v == "0");
    let parts = if quiet { vec![] } else { parts };
    Ok((status, Json(Readiness { ready, parts })).into_response())
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
