//! Overviews: counts, the kinds this node serves, the audit list, and the
//! description of the API itself. Only reads.

use super::App;
use super::input::Params;
use super::problem::{Answer, ProblemBody};
use super::sight::Sight;
use super::tasks::{Items, check_limit};
use crate::access::Caller;
use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use utoipa::{IntoParams, ToSchema};
use windlass::Timestamp;
use windlass::core::clock::format_duration;
use windlass::core::store::AuditRow;

pub(super) async fn openapi(State(app): State<Arc<App>>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], app.document.clone()).into_response()
}

/// Counts for overviews.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Stats {
    version: &'static str,
    store: &'static str,
    node: String,
    uptime_seconds: u64,
    /// Tasks by state; states without tasks are absent.
    states: BTreeMap<&'static str, u64>,
    dead_letters: u64,
    queues: usize,
    nodes: usize,
    newest_event: String,
}

/// Counts tasks by state
#[utoipa::path(
    get, path = "/v1/stats", tag = "server", responses((status = 200, body = Stats))
)]
pub(super) async fn stats(State(app): State<Arc<App>>) -> Answer<Json<Stats>> {
    let stats = app.reader().stats().await?;
    Ok(Json(Stats {
        version: env!("CARGO_PKG_VERSION"),
        store: app.engine.store_name(),
        node: app.engine.status().node.to_string(),
        uptime_seconds: app.started.elapsed().as_secs(),
        states: stats.states.iter().map(|(state, n)| (state.as_str(), *n)).collect(),
        dead_letters: stats.dead_letters,
        queues: app.reader().queues().await?.len(),
        nodes: app.reader().nodes().await?.len(),
        newest_event: stats.newest_event.event_id().to_string(),
    }))
}

/// A kind that this node serves.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Kind)]
pub(super) struct KindView {
    name: String,
    queue: String,
    priority: i8,
    /// Null for kinds in Rust, whose steps are code.
    steps: Option<Vec<String>>,
    step_timeout: String,
    task_timeout: String,
    deadline: Option<String>,
    /// At most so many at once on this node.
    concurrency: Option<usize>,
    retries: Option<u32>,
}

/// Lists the kinds that this node serves
#[utoipa::path(
    get, path = "/v1/kinds", tag = "server", responses((status = 200, body = Items<KindView>))
)]
pub(super) async fn kinds(State(app): State<Arc<App>>) -> Json<Items<KindView>> {
    Items::of(app.engine.kinds().into_iter().map(|kind| KindView {
        retries: kind.retries(),
        name: kind.name.to_string(),
        queue: kind.queue.to_string(),
        priority: kind.priority,
        steps: kind.steps,
        step_timeout: format_duration(kind.step_timeout),
        task_timeout: format_duration(kind.task_timeout),
        deadline: kind.deadline.map(format_duration),
        concurrency: kind.concurrency,
    }))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct AuditParams {
    #[serde(default = "fifty")]
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: usize,
    /// `next_cursor` of the page before
    cursor: Option<i64>,
}

fn fifty() -> usize {
    50
}

/// One action of a person.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AuditEntry)]
pub(super) struct AuditView {
    seq: i64,
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    who: String,
    origin: String,
    action: String,
    target: String,
    outcome: String,
}

impl From<AuditRow> for AuditView {
    fn from(row: AuditRow) -> Self {
        let AuditRow { seq, at, by, action, target, outcome } = row;
        AuditView { seq, at, who: by.who, origin: by.origin, action, target, outcome }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AuditPage {
    items: Vec<AuditView>,
    next_cursor: Option<i64>,
}

/// Lists what people did, newest first
#[utoipa::path(
    get, path = "/v1/audit", tag = "server", params(AuditParams),
    responses(
        (status = 200, body = AuditPage),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn audit(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(params): Params<AuditParams>,
) -> Answer<Json<AuditPage>> {
    check_limit(params.limit)?;
    let rows = app.reader().audit(params.cursor, params.limit).await?;
    let next_cursor = (rows.len() == params.limit).then(|| rows.last().map(|r| r.seq)).flatten();
    let sight = Sight::of(&app, &caller);
    let items = rows.into_iter().map(|row| {
        let mut view = AuditView::from(row);
        view.target = sight.target(view.target);
        view
    });
    Ok(Json(AuditPage { items: items.collect(), next_cursor }))
}
