//! What people do to one task: cancel, pause, resume, requeue, rerun, edit. Each verb
//! is one change of the engine; the answer is the task as it stands now, with
//! 202 when the node that holds it has yet to obey.

use super::App;
use super::input::{Object, parse, parse_or_default, task_id};
use super::problem::{Answer, ProblemBody};
use super::submit::{not_null, small_body};
use super::tasks::find;
use super::view::{self, TaskView};
use crate::access::Caller;
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::sync::Arc;
use utoipa::ToSchema;
use windlass::{Changed, Engine, Json as JsonText, TaskChange};

/// The engine, whose audit rows name this caller.
pub(super) fn acting(app: &App, caller: &Caller) -> Engine {
    app.engine.acting_as(&*caller.who, caller.origin.to_string())
}

pub(super) fn status_of(changed: Changed) -> StatusCode {
    match changed {
        Changed::Done | Changed::Already => StatusCode::OK,
        Changed::Requested => StatusCode::ACCEPTED,
    }
}

pub(super) async fn change(
    app: &App,
    caller: &Caller,
    id: &str,
    change: TaskChange,
) -> Answer<Response> {
    let id = task_id(id)?;
    let changed = acting(app, caller).change(id, change).await?;
    let task = find(app, &id.to_string()).await?;
    Ok((status_of(changed), Json(view::task(app, caller, task).await?)).into_response())
}

macro_rules! verb {
    ($name:ident, $path:literal, $change:expr, $title:literal) => {
        #[doc = $title]
        #[utoipa::path(
            post, path = $path, tag = "tasks", params(("id" = String, Path)),
            responses(
                (status = 200, body = TaskView, description = "Done, or so already"),
                (status = 202, body = TaskView, description = "The node that holds it is asked"),
                (status = "4XX", body = ProblemBody, content_type = "application/problem+json"),
            )
        )]
        pub(super) async fn $name(
            State(app): State<Arc<App>>,
            caller: Caller,
            Path(id): Path<String>,
        ) -> Answer<Response> {
            change(&app, &caller, &id, $change).await
        }
    };
}

verb!(cancel, "/v1/tasks/{id}/cancel", TaskChange::Cancel, "Cancels a task");
verb!(pause, "/v1/tasks/{id}/pause", TaskChange::Pause, "Holds a task at its next step boundary");
verb!(resume, "/v1/tasks/{id}/resume", TaskChange::Resume, "Lets a paused task go on");

/// How to run it again; all of it is optional.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Requeue {
    /// Run again from this step on.
    from_step: Option<String>,
    /// Instead of the old payload.
    #[serde(default, deserialize_with = "present")]
    #[schema(schema_with = not_null)]
    payload: Option<Box<RawValue>>,
}

/// `null` is told apart from nothing, so that it can be refused.
fn present<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(d).map(Some)
}

impl Requeue {
    pub(super) fn change(self, payload_max: usize) -> Answer<TaskChange> {
        let payload = self.payload.map(|raw| JsonText::trusted(raw.get()));
        if let Some(payload) = &payload {
            windlass::core::task::check_payload(payload, payload_max)?;
        }
        Ok(TaskChange::Requeue { from_step: self.from_step, payload })
    }
}

/// Runs a failed or cancelled task again
///
/// Finished steps stay finished; history is kept.
#[utoipa::path(
    post, path = "/v1/tasks/{id}/requeue", tag = "tasks", params(("id" = String, Path)),
    request_body(content = Option<Requeue>),
    responses(
        (status = 200, body = TaskView),
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
    change(&app, &caller, &id, wanted).await
}

/// What may be changed about a task.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskEdit {
    /// Instead of the old payload; any JSON but null.
    #[schema(schema_with = not_null)]
    payload: Box<RawValue>,
}

/// Changes the payload of a task that does not run
///
/// A task that waits, is paused, failed or was cancelled; it does not run by that.
#[utoipa::path(
    patch, path = "/v1/tasks/{id}", tag = "tasks", params(("id" = String, Path)),
    request_body = TaskEdit,
    responses(
        (status = 200, body = TaskView),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn edit(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Answer<Response> {
    let text = small_body(&headers, body, &app).await?;
    let Object(TaskEdit { payload }): Object<TaskEdit> = parse(&text)?;
    let payload = JsonText::trusted(payload.get());
    windlass::core::task::check_payload(&payload, app.engine.settings().payload_max)?;
    change(&app, &caller, &id, TaskChange::EditPayload(payload)).await
}

/// Does the work of an ended task again, as a new task
#[utoipa::path(
    post, path = "/v1/tasks/{id}/rerun", tag = "tasks", params(("id" = String, Path)),
    responses(
        (status = 201, body = TaskView, description = "The new task"),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn rerun(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answer<Response> {
    let of = task_id(&id)?;
    let again = acting(&app, &caller).rerun::<serde_json::Value>(of).await?;
    let task = find(&app, &again.id().to_string()).await?;
    let view = view::task(&app, &caller, task).await?;
    let location = HeaderValue::from_str(&format!("/v1/tasks/{}", view.id));
    let mut response = (StatusCode::CREATED, Json(view)).into_response();
    if let Ok(location) = location {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}
