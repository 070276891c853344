//! Bulk jobs: begin one on everything a filter matches, see what it would meet,
//! how far it is, stop it. The job is the engine's and outlives the request and
//! the process; here an order is read and a batch is shown.

use super::App;
use super::control::acting;
use super::input::{Object, Params, parse};
use super::problem::{Answer, Problem, ProblemBody, ProblemCode};
use super::sight::Sight;
use super::submit::small_body;
use super::tasks::check_limit;
use crate::access::Caller;
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;
use utoipa::{IntoParams, ToSchema};
use windlass::core::batch::{Action, Among, Batch, Order, Preview};
use windlass::core::filter::Filter;
use windlass::core::id::BatchId;
use windlass::core::limits::Rate;
use windlass::core::store::Batches;
use windlass::{Engine, Error, Timestamp};

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = BatchAction)]
#[allow(dead_code)] // Only its schema is used.
enum ActionWord {
    Cancel,
    Pause,
    Resume,
    Requeue,
    Rerun,
    Discard,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = BatchOf)]
#[allow(dead_code)] // Only its schema is used.
enum OfWord {
    Tasks,
    DeadLetters,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = BatchState)]
#[allow(dead_code)] // Only its schema is used.
enum BatchWord {
    Running,
    Done,
    Stopped,
}

/// A bulk job that somebody wants.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BatchOrder {
    #[schema(value_type = ActionWord)]
    action: Action,
    /// The filter, which must not be empty; `age:>=0s` matches everything.
    #[schema(min_length = 1, max_length = 4096, example = "state:failed queue:media")]
    q: String,
    /// Where to look; dead letters for `discard`, tasks otherwise.
    #[schema(value_type = Option<OfWord>)]
    of: Option<Among>,
    /// No more than so many changes, e.g. `5/s`, `100/m`.
    rate: Option<String>,
    /// For `requeue`: run again from this step on.
    from_step: Option<String>,
    /// For `requeue` and `rerun`: stop when more than so many percent fail again.
    #[schema(minimum = 0, maximum = 99)]
    stop_above: Option<u8>,
    /// Only count what it would meet.
    #[serde(default)]
    dry_run: bool,
}

impl BatchOrder {
    fn order(self, engine: &Engine) -> Answer<Order> {
        let filter = Filter::parse(&self.q)
            .map_err(|e| Problem::from(e).at("/q", "see docs/reference/filters.md"))?;
        let rate = self.rate.as_deref().map(Rate::from_str).transpose();
        let mut order = engine.order(self.action, filter)?;
        order.rate = rate.map_err(|e| Problem::field("/rate", e.message()))?;
        order.among = self.of.unwrap_or(order.among);
        (order.from_step, order.stop_above) = (self.from_step, self.stop_above);
        order.validate().map_err(|e| misfit(&e))?;
        Ok(order)
    }
}

/// What is wrong with an order begins with the field it is about.
fn misfit(error: &Error) -> Problem {
    let field = error.message().split([' ', ':']).next().unwrap_or_default();
    Problem::field(format!("/{field}"), error.message())
}

/// What a batch would meet.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct BatchPreview {
    #[schema(value_type = ActionWord)]
    action: Action,
    q: String,
    /// Tasks that match now.
    matched: u64,
    /// Those whose state allows it.
    eligible: u64,
    /// Those that would be skipped.
    ineligible: u64,
    /// There may be more: counting ends at 100,000 tasks, and after five seconds.
    more: bool,
    /// The same by state; states without tasks are absent.
    states: BTreeMap<&'static str, InState>,
}

/// Tasks in one state.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct InState {
    eligible: u64,
    ineligible: u64,
}

impl BatchPreview {
    fn of(order: &Order, preview: &Preview) -> Self {
        let all = preview.total();
        let states = preview.states.iter().map(|(state, n)| {
            (state.as_str(), InState { eligible: n.eligible, ineligible: n.ineligible })
        });
        BatchPreview {
            action: order.action,
            q: order.filter.to_string(),
            matched: all.eligible + all.ineligible,
            eligible: all.eligible,
            ineligible: all.ineligible,
            more: preview.more,
            states: states.collect(),
        }
    }
}

/// A bulk job. `changed`, `requested`, `already`, `skipped` and `failed` add up to
/// `matched`.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Batch)]
pub(super) struct BatchView {
    id: String,
    #[schema(value_type = ActionWord)]
    action: Action,
    #[schema(value_type = OfWord)]
    of: Among,
    q: String,
    rate: Option<String>,
    from_step: Option<String>,
    stop_above: Option<u8>,
    #[schema(value_type = BatchWord)]
    state: &'static str,
    /// Why it was stopped.
    reason: Option<String>,
    who: String,
    /// Tasks made later are not touched.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    finished_at: Option<Timestamp>,
    /// Tasks that matched, so far.
    matched: u64,
    changed: u64,
    /// The nodes that hold them were asked.
    requested: u64,
    /// It was so already.
    already: u64,
    /// Their state did not allow it, or they no longer matched.
    skipped: u64,
    failed: u64,
    /// What became of tasks that were sent again; counted with `stop_above` only.
    again: AgainView,
    /// The first ten that failed.
    errors: Vec<TroubleView>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BatchAgain)]
pub(super) struct AgainView {
    /// On their way.
    watched: usize,
    /// They ended, or failed for the first time.
    answered: u64,
    failed: u64,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BatchError)]
pub(super) struct TroubleView {
    task: String,
    code: String,
    message: String,
}

impl BatchView {
    fn seen(batch: Batch, sight: &Sight) -> Self {
        let (order, counts, again) = (batch.order, batch.counts, batch.again);
        let errors = batch.errors.into_iter().map(|e| {
            let task = e.task.to_string();
            TroubleView { task, code: e.code, message: e.message }
        });
        BatchView {
            id: order.id.to_string(),
            action: order.action,
            of: order.among,
            q: sight.filter(order.filter.to_string()),
            rate: order.rate.map(|rate| rate.to_string()),
            from_step: order.from_step,
            stop_above: order.stop_above,
            state: batch.state.as_str(),
            reason: batch.reason,
            who: batch.who,
            created_at: batch.created_at,
            updated_at: batch.updated_at,
            finished_at: batch.finished_at,
            matched: counts.matched,
            changed: counts.changed,
            requested: counts.requested,
            already: counts.already,
            skipped: counts.skipped,
            failed: counts.failed,
            again: AgainView {
                watched: again.watched.len(),
                answered: again.answered,
                failed: again.failed,
            },
            errors: errors.collect(),
        }
    }
}

/// A bulk job that has begun, or what one would meet.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum BatchAnswer {
    Begun(Box<BatchView>),
    Preview(BatchPreview),
}

/// Begins a bulk job, or counts what it would meet
///
/// The job goes on by itself, also after a restart, and touches each task once.
/// The same request again begins another job.
#[utoipa::path(
    post, path = "/v1/batches", tag = "batches", request_body = BatchOrder,
    responses(
        (status = 202, body = BatchAnswer, description = "It has begun; with `dry_run` what it would meet, and nothing was changed"),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn start(
    State(app): State<Arc<App>>,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Answer<Response> {
    let text = small_body(&headers, body, &app).await?;
    let Object(wanted): Object<BatchOrder> = parse(&text)?;
    let (engine, dry_run) = (acting(&app, &caller), wanted.dry_run);
    let order = wanted.order(&engine)?;
    if dry_run {
        let preview = engine.preview(&order).await?;
        let answer = BatchAnswer::Preview(BatchPreview::of(&order, &preview));
        return Ok((StatusCode::ACCEPTED, Json(answer)).into_response());
    }
    let begun = engine.start_batch(order).await?;
    let view = BatchView::seen(begun, &Sight::of(&app, &caller));
    let location = HeaderValue::from_str(&format!("/v1/batches/{}", view.id));
    let answer = BatchAnswer::Begun(Box::new(view));
    let mut response = (StatusCode::ACCEPTED, Json(answer)).into_response();
    if let Ok(location) = location {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct BatchParams {
    #[serde(default = "fifty")]
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: usize,
    /// `next_cursor` of the page before
    cursor: Option<String>,
}

fn fifty() -> usize {
    50
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct BatchPage {
    items: Vec<BatchView>,
    next_cursor: Option<String>,
}

/// Lists bulk jobs, newest first
#[utoipa::path(
    get, path = "/v1/batches", tag = "batches", params(BatchParams),
    responses(
        (status = 200, body = BatchPage),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(params): Params<BatchParams>,
) -> Answer<Json<BatchPage>> {
    check_limit(params.limit)?;
    let before = params.cursor.as_deref().map(BatchId::from_str).transpose();
    let before = before
        .map_err(|_| Problem::new(ProblemCode::BadCursor, "the cursor is not of this list"))?;
    let found = app.reader().batches(Batches::All, before, params.limit).await?;
    let last = found.last().map(|batch| batch.id().to_string());
    let next_cursor = last.filter(|_| found.len() == params.limit);
    let sight = Sight::of(&app, &caller);
    Ok(Json(BatchPage {
        items: found.into_iter().map(|b| BatchView::seen(b, &sight)).collect(),
        next_cursor,
    }))
}

fn batch_id(text: &str) -> Answer<BatchId> {
    BatchId::from_str(text).map_err(|e| {
        Problem::not_found(e.message()).hint("GET /v1/batches lists batches with their ids")
    })
}

async fn find(app: &App, caller: &Caller, id: BatchId) -> Answer<Json<BatchView>> {
    let found = app.reader().batch(id).await?;
    found.map(|batch| Json(BatchView::seen(batch, &Sight::of(app, caller)))).ok_or_else(|| {
        Problem::not_found(format!("there is no batch {id}"))
            .hint("GET /v1/batches lists them; ended ones are kept as long as the audit list")
    })
}

/// Shows a bulk job
#[utoipa::path(
    get, path = "/v1/batches/{id}", tag = "batches", params(("id" = String, Path)),
    responses(
        (status = 200, body = BatchView),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn one(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answer<Json<BatchView>> {
    find(&app, &caller, batch_id(&id)?).await
}

/// Stops a bulk job; what it did stays done
#[utoipa::path(
    post, path = "/v1/batches/{id}/stop", tag = "batches", params(("id" = String, Path)),
    responses(
        (status = 200, body = BatchView, description = "Stopped, or so already"),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn stop(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answer<Json<BatchView>> {
    let id = batch_id(&id)?;
    acting(&app, &caller).stop_batch(id).await?;
    find(&app, &caller, id).await
}
