//! Failed tasks that wait for a person: list, group by cause, show, send again,
//! discard, export. A dead letter is named by its own id or by its task's. The
//! cause of an error is found by core; here it is only counted.

use super::App;
use super::control::{Requeue, change};
use super::input::{Object, Params, parse_or_default, task_id};
use super::pieces::Pieces;
use super::problem::{Answer, Problem, ProblemBody};
use super::sight::Sight;
use super::submit::small_body;
use super::tasks::{PAGE_BYTES, check_limit, filter_of};
use crate::access::Caller;
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use futures::stream;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use utoipa::{IntoParams, ToSchema};
use windlass::core::cause::normalise;
use windlass::core::filter::Filter;
use windlass::core::store::Page;
use windlass::{DeadLetter, Json as JsonText, Query, TaskChange, TaskId, Timestamp};

/// Grouping looks at so many at the most.
const GROUP_MAX: usize = 10_000;
/// How many are taken from the store at once: each may be a megabyte.
const AT_ONCE: usize = 50;

/// One failed task.
#[derive(ToSchema)]
#[schema(as = DeadLetter)]
#[allow(dead_code)] // Only its schema is used: core writes the JSON.
struct DeadLetterView {
    id: String,
    task: Option<String>,
    kind: String,
    queue: String,
    reason: String,
    class: String,
    message: String,
    step: Option<String>,
    attempts: u32,
    node: Option<String>,
    #[schema(format = DateTime)]
    at: String,
    correlation_id: Option<String>,
    trace_id: Option<String>,
    message_id: Option<String>,
    source: Option<String>,
    payload: Value,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DeadParams {
    /// A filter on their tasks
    #[serde(default)]
    q: String,
    #[serde(default = "fifty")]
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: usize,
    cursor: Option<String>,
    /// `error`: count by cause instead of listing
    #[param(inline)]
    group_by: Option<GroupBy>,
}

fn fifty() -> usize {
    50
}

#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum GroupBy {
    Error,
}

/// Dead letters, newest task first; or, with `group_by`, their causes.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DeadPage {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<DeadLetterView>>)]
    items: Option<Vec<JsonText>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<Vec<Group>>,
    next_cursor: Option<String>,
}

/// Dead letters with the same cause.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Group {
    /// The message without its particulars.
    cause: String,
    count: u64,
    #[schema(value_type = String, format = DateTime)]
    newest: Timestamp,
    /// One of them.
    example: String,
    message: String,
}

/// Lists dead letters, or their causes
#[utoipa::path(
    get, path = "/v1/dead-letters", tag = "dead letters", params(DeadParams),
    responses(
        (status = 200, body = DeadPage),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(params): Params<DeadParams>,
) -> Answer<Json<DeadPage>> {
    check_limit(params.limit)?;
    let filter = filter_of(&params.q)?;
    Sight::of(&app, &caller).check(&filter)?;
    if let Some(GroupBy::Error) = params.group_by {
        let groups = Some(groups(&app, &Sight::of(&app, &caller), filter).await?);
        return Ok(Json(DeadPage { items: None, groups, next_cursor: None }));
    }
    let cursor = params.cursor.as_deref();
    let before = cursor.map(|c| app.cursors.read("dead-letters", &params.q, c)).transpose()?;
    let page = whole_page(&app, &filter, before, params.limit).await?;
    let next_cursor = page.next.map(|last| app.cursors.make("dead-letters", &params.q, last));
    let sight = Sight::of(&app, &caller);
    let items = Some(page.items.iter().map(|letter| sight.dead_letter(letter)).collect());
    Ok(Json(DeadPage { items, groups: None, next_cursor }))
}

/// One page of the store's.
async fn page(
    app: &App,
    filter: &Filter,
    before: Option<TaskId>,
    limit: usize,
) -> Answer<Page<DeadLetter>> {
    let query = Query { filter: filter.clone(), before, limit };
    Ok(app.engine.dead_letters(query).await?)
}

/// A page of the list, in pieces: it ends early when its payloads are large.
async fn whole_page(
    app: &App,
    filter: &Filter,
    before: Option<TaskId>,
    limit: usize,
) -> Answer<Page<DeadLetter>> {
    let mut whole = Page { items: vec![], next: before };
    let mut bytes = 0;
    while whole.items.len() < limit && bytes < PAGE_BYTES {
        let at_once = AT_ONCE.min(limit - whole.items.len());
        let piece = page(app, filter, whole.next, at_once).await?;
        bytes += piece.items.iter().map(|letter| letter.payload.as_str().len()).sum::<usize>();
        whole.items.extend(piece.items);
        whole.next = piece.next;
        if whole.next.is_none() {
            break;
        }
    }
    Ok(whole)
}

async fn groups(app: &App, sight: &Sight, filter: Filter) -> Answer<Vec<Group>> {
    let mut groups: HashMap<String, Group> = HashMap::new();
    let (mut seen, mut before) = (0, None);
    loop {
        let page = page(app, &filter, before, AT_ONCE).await?;
        seen += page.items.len();
        for letter in page.items {
            let message = sight.words(&letter.payload).clean(letter.message);
            let cause = normalise(&message);
            let group = groups.entry(cause.clone()).or_insert_with(|| Group {
                cause,
                count: 0,
                newest: letter.at,
                example: letter.id.to_string(),
                message,
            });
            group.count += 1;
            group.newest = group.newest.max(letter.at);
        }
        before = page.next;
        if before.is_none() || seen >= GROUP_MAX {
            break;
        }
    }
    let mut groups: Vec<Group> = groups.into_values().collect();
    groups.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.cause.cmp(&b.cause)));
    Ok(groups)
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ExportParams {
    /// A filter on their tasks
    #[serde(default)]
    q: String,
}

/// Exports dead letters, one JSON document per line
#[utoipa::path(
    get, path = "/v1/dead-letters/export", tag = "dead letters", params(ExportParams),
    responses(
        (status = 200, body = String, content_type = "application/x-ndjson"),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn export(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(params): Params<ExportParams>,
) -> Answer<Response> {
    let filter = filter_of(&params.q)?;
    Sight::of(&app, &caller).check(&filter)?;
    let pieces = Pieces::of(AT_ONCE);
    let first = page(&app, &filter, None, pieces.next(AT_ONCE)).await?;
    let sight = Sight::of(&app, &caller);
    let begun = Some(Export { app, sight, filter, pieces, next: Next::Piece(first) });
    let texts = stream::unfold(begun, |export| async move { export?.more().await });
    let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((kind, Body::from_stream(texts)).into_response())
}

/// An export under way. It holds one piece or its text, and asks for the next one
/// when the text is taken.
struct Export {
    app: Arc<App>,
    sight: Sight,
    filter: Filter,
    pieces: Pieces,
    next: Next,
}

enum Next {
    /// The first: an error there is still an answer of its own.
    Piece(Page<DeadLetter>),
    After(TaskId),
}

impl Export {
    async fn more(mut self) -> Option<(std::io::Result<Bytes>, Option<Export>)> {
        let piece = match self.next {
            Next::Piece(piece) => piece,
            Next::After(last) => {
                let limit = self.pieces.next(AT_ONCE);
                match page(&self.app, &self.filter, Some(last), limit).await {
                    Ok(piece) => piece,
                    // The status is sent: breaking off is the only way to say it.
                    Err(_) => return Some((Err(std::io::Error::other("the store failed")), None)),
                }
            }
        };
        self.pieces.took(piece.items.iter().map(|letter| letter.payload.as_str().len()));
        let mut text = String::new();
        for letter in piece.items {
            text.push_str(self.sight.dead_letter(&letter).as_str());
            text.push('\n');
        }
        let next = piece.next.map(|last| Export { next: Next::After(last), ..self });
        Some((Ok(Bytes::from(text)), next))
    }
}

/// Shows a dead letter
#[utoipa::path(
    get, path = "/v1/dead-letters/{id}", tag = "dead letters", params(("id" = String, Path)),
    responses(
        (status = 200, body = DeadLetterView),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn one(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answer<Json<JsonText>> {
    Ok(Json(Sight::of(&app, &caller).dead_letter(&find(&app, &id).await?)))
}

async fn find(app: &App, id: &str) -> Answer<DeadLetter> {
    let id = task_id(id)?;
    let page = page(app, &filter_of(&format!("id:{id}"))?, None, 1).await?;
    page.items.into_iter().next().ok_or_else(|| {
        Problem::not_found(format!("{id} has no dead letter"))
            .hint("GET /v1/dead-letters lists them; a requeued or discarded one is gone")
    })
}

/// Sends a dead letter again, with another payload if wished
#[utoipa::path(
    post, path = "/v1/dead-letters/{id}/requeue", tag = "dead letters",
    params(("id" = String, Path)), request_body(content = Option<Requeue>),
    responses(
        (status = 200, body = super::view::TaskView, description = "The task, queued again"),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn requeue(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Answer<Response> {
    let text = small_body(&headers, body, &app).await?;
    let Object(requeue): Object<Requeue> = parse_or_default(&text)?;
    let wanted = requeue.change(app.engine.settings().payload_max)?;
    find(&app, &id).await?;
    change(&app, &caller, &id, wanted).await
}

/// Takes a failed task off the list
#[utoipa::path(
    post, path = "/v1/dead-letters/{id}/discard", tag = "dead letters",
    params(("id" = String, Path)),
    responses(
        (status = 200, body = super::view::TaskView, description = "The task, still failed"),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn discard(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answer<Response> {
    change(&app, &caller, &id, TaskChange::Discard).await
}
