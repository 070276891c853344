//! Looking at tasks: lists with a filter and signed cursors, one task (waiting
//! for its end, if wished), and everything the store knows of its past. Only
//! reads; what changes a task is in `control.rs` and `submit.rs`.

use super::App;
use super::input::{Params, task_id};
use super::pieces::Pieces;
use super::problem::{Answer, Problem, ProblemBody, ProblemCode};
use super::sight::Sight;
use super::view::{self, AttemptView, CheckpointView, TaskView};
use crate::access::Caller;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, Instant};
use utoipa::{IntoParams, ToSchema};
use windlass::core::clock::parse_duration;
use windlass::core::filter::Filter;
use windlass::core::history::{Entry, history as story};
use windlass::core::store::PAGE_MAX;
use windlass::core::why::{Seen, why as sentence};
use windlass::{Json as JsonText, Query, State as TaskState, Task, TaskId, Timestamp};

/// Longest time a request may wait for a task's end.
const WAIT_MAX: Duration = Duration::from_secs(600);
/// Counting stops here.
const COUNT_MAX: usize = 10_000;
/// How many of the newest tasks an ending is looked for in.
const ENDING_AMONG: usize = 10_000;
const ENDING_MIN: usize = 6;
/// A page of the store may be empty while there is more: so many are looked at.
const LOOKS_MAX: usize = 40;
/// How many tasks are taken from the store at once: each may be megabytes.
const AT_ONCE: usize = 25;
/// A page ends when its tasks have so many bytes.
pub(super) const PAGE_BYTES: usize = 8 * 1024 * 1024;
/// Counting takes so long at the most.
const COUNT_TIME: Duration = Duration::from_secs(5);

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListParams {
    /// A filter, e.g. `state:failed queue:media age:>1h`
    #[serde(default)]
    q: String,
    #[serde(default = "fifty")]
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: usize,
    /// `next_cursor` of the page before
    cursor: Option<String>,
    /// How an id ends, 6 characters or more: among the 10,000 newest tasks
    ending: Option<String>,
    /// Also count what matches, up to 10,000
    #[serde(default)]
    count: bool,
}

fn fifty() -> usize {
    50
}

/// A page of tasks, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TaskPage {
    items: Vec<TaskView>,
    /// Absent on the last page.
    next_cursor: Option<String>,
    /// Only when asked for; 10,000 means that many or more. A filter that hardly
    /// matches is counted for five seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<usize>,
}

pub(super) fn filter_of(q: &str) -> Answer<Filter> {
    Filter::parse(q).map_err(|e| Problem::from(e).at("?q", "see docs/reference/filters.md"))
}

pub(super) fn check_limit(limit: usize) -> Answer<()> {
    match limit {
        1..=PAGE_MAX => Ok(()),
        _ => Err(Problem::field("?limit", format!("limit must be 1 to {PAGE_MAX}"))),
    }
}

/// Lists tasks
#[utoipa::path(
    get, path = "/v1/tasks", tag = "tasks", params(ListParams),
    responses(
        (status = 200, body = TaskPage),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(params): Params<ListParams>,
) -> Answer<Json<TaskPage>> {
    check_limit(params.limit)?;
    let filter = filter_of(&params.q)?;
    Sight::of(&app, &caller).check(&filter)?;
    if let Some(ending) = &params.ending {
        let items = ending_with(&app, &caller, &filter, ending, params.limit).await?;
        return Ok(Json(TaskPage { items, next_cursor: None, count: None }));
    }
    let cursor = params.cursor.as_deref();
    let before = cursor.map(|c| app.cursors.read("tasks", &params.q, c)).transpose()?;
    let (tasks, next) = page(&app, &filter, before, params.limit).await?;
    let count = match params.count {
        true => Some(count(&app, filter).await?),
        false => None,
    };
    let next_cursor = next.map(|last| app.cursors.make("tasks", &params.q, last));
    Ok(Json(TaskPage { items: views(&app, &caller, tasks).await?, next_cursor, count }))
}

async fn views(app: &App, caller: &Caller, tasks: Vec<Task>) -> Answer<Vec<TaskView>> {
    let mut items = Vec::with_capacity(tasks.len());
    for task in tasks {
        items.push(view::task(app, caller, task).await?);
    }
    Ok(items)
}

/// A full page if there is one; the store's own pages may be short.
pub(super) async fn page(
    app: &App,
    filter: &Filter,
    mut before: Option<TaskId>,
    limit: usize,
) -> Answer<(Vec<Task>, Option<TaskId>)> {
    let (mut items, mut bytes, mut empty) = (vec![], 0, 0);
    let mut pieces = Pieces::of(AT_ONCE);
    while items.len() < limit && bytes < PAGE_BYTES && empty < LOOKS_MAX {
        let at_once = pieces.next(limit - items.len());
        let query = Query { filter: filter.clone(), before, limit: at_once };
        let page = app.reader().tasks(query, app.engine.now()).await?;
        bytes += pieces.took(page.items.iter().map(size_of));
        empty += usize::from(page.items.is_empty());
        items.extend(page.items);
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    Ok((items, before))
}

fn size_of(task: &Task) -> usize {
    let result = task.standing.result.as_ref().map_or(0, |json| json.as_str().len());
    task.payload.as_str().len() + result
}

/// What a filter that hardly matches would walk the whole store for is counted
/// as far as the time reaches.
async fn count(app: &App, filter: Filter) -> Answer<usize> {
    let (mut total, mut before, began) = (0, None, Instant::now());
    loop {
        let query = Query { filter: filter.clone(), before, limit: 4 * AT_ONCE };
        let page = app.reader().tasks(query, app.engine.now()).await?;
        total += page.items.len();
        before = page.next;
        if before.is_none() || total >= COUNT_MAX || began.elapsed() > COUNT_TIME {
            return Ok(total.min(COUNT_MAX));
        }
    }
}

async fn ending_with(
    app: &App,
    caller: &Caller,
    filter: &Filter,
    ending: &str,
    limit: usize,
) -> Answer<Vec<TaskView>> {
    if ending.chars().count() < ENDING_MIN {
        let detail = format!("an ending needs {ENDING_MIN} characters or more");
        return Err(Problem::field("?ending", detail));
    }
    let ending = ending.to_ascii_lowercase();
    let (mut found, mut seen, mut before, mut bytes) = (vec![], 0, None, 0);
    let mut pieces = Pieces::of(4 * AT_ONCE);
    let now = app.engine.now();
    while seen < ENDING_AMONG && found.len() < limit && bytes < PAGE_BYTES {
        let at_once = pieces.next(ENDING_AMONG - seen);
        let query = Query { filter: Filter::default(), before, limit: at_once };
        let page = app.reader().tasks(query, now).await?;
        seen += page.items.len();
        pieces.took(page.items.iter().map(size_of));
        let fits = |t: &Task| t.id.to_string().ends_with(&ending) && filter.matches(t, now);
        let fitting = page.items.into_iter().filter(fits);
        found.extend(fitting.inspect(|task| bytes += size_of(task)));
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    found.truncate(limit);
    views(app, caller, found).await
}

pub(super) async fn find(app: &App, id: &str) -> Answer<Task> {
    let id = task_id(id)?;
    let found = app.engine.task(id).await?;
    found.ok_or_else(|| {
        Problem::not_found(format!("there is no task {id}"))
            .hint("it may have been purged; GET /v1/tasks lists what there is")
    })
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct WaitParams {
    /// Answer when the task has ended, or after this time at the latest, e.g. `30s`
    wait: Option<String>,
}

/// Shows a task
#[utoipa::path(
    get, path = "/v1/tasks/{id}", tag = "tasks", params(("id" = String, Path), WaitParams),
    responses(
        (status = 200, body = TaskView),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn one(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Params(params): Params<WaitParams>,
) -> Answer<Json<TaskView>> {
    let mut task = find(&app, &id).await?;
    if let Some(wait) = params.wait {
        let wait = parse_duration(&wait).map_err(|e| Problem::field("?wait", e.message()))?;
        if wait > WAIT_MAX {
            return Err(Problem::field("?wait", "wait at most 10m, and ask again"));
        }
        if !task.state().is_ended() {
            let handle = app.engine.handle::<serde_json::Value>(task.id);
            // Time over, or the server stops: the task as it is now.
            let _ = tokio::time::timeout(wait, handle.ended()).await;
            task = find(&app, &id).await?;
        }
    }
    Ok(Json(view::task(&app, &caller, task).await?))
}

/// Gives a task's result
///
/// The bare result. 202 while it is not there yet.
#[utoipa::path(
    get, path = "/v1/tasks/{id}/result", tag = "tasks", params(("id" = String, Path)),
    responses(
        (status = 200, body = serde_json::Value, description = "The result itself"),
        (status = 202, body = NotYet, description = "Not ended yet"),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn result(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answer<Response> {
    let task = find(&app, &id).await?;
    match task.state() {
        TaskState::Completed | TaskState::CompletedWithErrors => {
            let result = task.standing.result.clone().unwrap_or(JsonText::trusted("null"));
            let shown = Sight::of(&app, &caller).json(result);
            let json = [(header::CONTENT_TYPE, "application/json")];
            Ok((json, shown.as_str().to_owned()).into_response())
        }
        state if state.is_ended() => {
            let failure = task.standing.failure.as_ref();
            let why = failure.map_or_else(String::new, |f| format!(": {}", f.error.message));
            let why = Sight::of(&app, &caller).words(&task.payload).clean(why);
            let problem =
                Problem::new(ProblemCode::StateConflict, format!("{} is {state}{why}", task.id));
            Err(problem.hint("a failed or cancelled task has no result; requeue it to try again"))
        }
        state => {
            let body = Json(NotYet { state: state.as_str() });
            Ok((StatusCode::ACCEPTED, [(header::RETRY_AFTER, "1")], body).into_response())
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct NotYet {
    state: &'static str,
}

/// Shows what a task would resume from
///
/// 404 when it has recorded nothing, has completed, or was rolled back.
#[utoipa::path(
    get, path = "/v1/tasks/{id}/checkpoint", tag = "tasks", params(("id" = String, Path)),
    responses(
        (status = 200, body = CheckpointView),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn checkpoint(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answer<Json<CheckpointView>> {
    let task = find(&app, &id).await?;
    let found = app.reader().checkpoint(task.id).await?;
    let none = || {
        Problem::not_found(format!("{} has no checkpoint: it is {}", task.id, task.state()))
            .hint("the steps of ended runs are in /attempts")
    };
    let view = view::checkpoint(&found.ok_or_else(none)?)?;
    Ok(Json(Sight::of(&app, &caller).checkpoint(view, &task)))
}

/// A whole list.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Items<T> {
    pub items: Vec<T>,
}

impl<T> Items<T> {
    pub(super) fn of(items: impl IntoIterator<Item = T>) -> Json<Items<T>> {
        Json(Items { items: items.into_iter().collect() })
    }
}

/// Lists the attempts of a task, with their steps
#[utoipa::path(
    get, path = "/v1/tasks/{id}/attempts", tag = "tasks", params(("id" = String, Path)),
    responses(
        (status = 200, body = Items<AttemptView>),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn attempts(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answer<Json<Items<AttemptView>>> {
    let task = find(&app, &id).await?;
    let attempts = app.reader().attempts(task.id).await?;
    let sight = Sight::of(&app, &caller);
    let words = sight.words(&task.payload);
    Ok(Items::of(attempts.iter().map(|attempt| sight.attempt(attempt.into(), &words))))
}

/// Tells the story of a task, oldest first
#[utoipa::path(
    get, path = "/v1/tasks/{id}/history", tag = "tasks", params(("id" = String, Path)),
    responses(
        (status = 200, body = Items<serde_json::Value>),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn history(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answer<Json<Items<Entry>>> {
    let task = find(&app, &id).await?;
    let attempts = app.reader().attempts(task.id).await?;
    let words = Sight::of(&app, &caller).words(&task.payload);
    Ok(Items::of(story(&task, &attempts).into_iter().map(|mut entry: Entry| {
        entry.message = entry.message.map(|text| words.clean(text));
        entry
    })))
}

/// The end of what a handler wrote to its stderr in one try of a step.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LogView {
    run: u32,
    attempt: u32,
    step: String,
    outcome: view::StepOutcomeWord,
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    text: String,
}

/// Shows the logs of a task's attempts
///
/// The end of what handlers outside Rust wrote to stderr, per try of a step.
#[utoipa::path(
    get, path = "/v1/tasks/{id}/logs", tag = "tasks", params(("id" = String, Path)),
    responses(
        (status = 200, body = Items<LogView>),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn logs(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answer<Json<Items<LogView>>> {
    let task = find(&app, &id).await?;
    let attempts = app.reader().attempts(task.id).await?;
    let steps = attempts.into_iter().flat_map(|a| a.steps);
    let words = Sight::of(&app, &caller).words(&task.payload);
    Ok(Items::of(steps.filter_map(|entry| {
        Some(LogView {
            run: entry.run,
            attempt: entry.attempt,
            outcome: entry.record.outcome.into(),
            at: entry.at,
            text: words.clean(entry.record.log?),
            step: entry.record.name,
        })
    })))
}

/// Why a task does not run.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Why {
    #[schema(value_type = view::StateWord)]
    state: &'static str,
    /// One sentence.
    why: String,
}

/// Says in one sentence why a task is not running
#[utoipa::path(
    get, path = "/v1/tasks/{id}/why", tag = "tasks", params(("id" = String, Path)),
    responses(
        (status = 200, body = Why),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn why(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answer<Json<Why>> {
    let task = find(&app, &id).await?;
    let queues = app.reader().queues().await?;
    let nodes = app.reader().nodes().await?;
    let seen = Seen {
        kind_served: app.engine.serves(task.kind.as_str()),
        queue: queues.iter().find(|q| q.name == task.queue),
        nodes: &nodes,
    };
    let why = sentence(&task, &seen, app.engine.now());
    let why = Sight::of(&app, &caller).words(&task.payload).clean(why);
    Ok(Json(Why { state: task.state().as_str(), why }))
}
