//! Queues: look, pause, resume, drain, limits. A queue exists when a node serves
//! it, a task is in it, or somebody set something about it. Changes are the
//! engine's; they reach every node through the store.

use super::App;
use super::control::acting;
use super::input::{Object, given, parse};
use super::problem::{Answer, Problem, ProblemBody};
use super::submit::small_body;
use super::tasks::Items;
use super::view::QueueView;
use crate::access::Caller;
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use serde::Deserialize;
use std::sync::Arc;
use utoipa::ToSchema;
use windlass::QueueChange;
use windlass::core::store::QueueInfo;

const CONCURRENCY_MAX: u32 = 1_000_000;

async fn all(app: &App) -> Answer<Vec<QueueView>> {
    let stored = app.reader().queues().await?;
    let mut queues: Vec<QueueView> = stored.iter().map(QueueView::from).collect();
    for (name, ..) in app.engine.status().queues {
        if !stored.iter().any(|q| q.name == name) {
            queues.push(QueueView::from(&QueueInfo::empty(name)));
        }
    }
    queues.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(queues)
}

async fn find(app: &App, name: &str) -> Answer<Json<QueueView>> {
    let found = all(app).await?.into_iter().find(|q| q.name == name);
    found.map(Json).ok_or_else(|| {
        Problem::not_found(format!("there is no queue `{name:.200}`"))
            .hint("GET /v1/queues lists the queues")
    })
}

/// Lists queues
#[utoipa::path(
    get, path = "/v1/queues", tag = "queues",
    responses((status = 200, body = Items<QueueView>))
)]
pub(super) async fn list(State(app): State<Arc<App>>) -> Answer<Json<Items<QueueView>>> {
    Ok(Items::of(all(&app).await?))
}

/// Shows a queue
#[utoipa::path(
    get, path = "/v1/queues/{name}", tag = "queues", params(("name" = String, Path)),
    responses(
        (status = 200, body = QueueView),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn one(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
) -> Answer<Json<QueueView>> {
    find(&app, &name).await
}

/// What to change; what is absent stays, null takes a limit away.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct QueuePatch {
    /// At most so many at once, across all nodes.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 1_000_000)]
    concurrency: Option<Option<u32>>,
    /// Submissions beyond it are refused.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u64>)]
    depth_max: Option<Option<u64>>,
}

/// Changes the limits of a queue
#[utoipa::path(
    patch, path = "/v1/queues/{name}", tag = "queues", params(("name" = String, Path)),
    request_body = QueuePatch,
    responses(
        (status = 200, body = QueueView),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn set(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Answer<Json<QueueView>> {
    let text = small_body(&headers, body, &app).await?;
    let Object(patch): Object<QueuePatch> = parse(&text)?;
    let fits = |n: u32| (1..=CONCURRENCY_MAX).contains(&n);
    if patch.concurrency.flatten().is_some_and(|n| !fits(n)) {
        let detail =
            format!("concurrency must be 1 to {CONCURRENCY_MAX}; pause the queue to stop it");
        return Err(Problem::field("/concurrency", detail));
    }
    let too_many = |n: &u64| i64::try_from(*n).is_err();
    if patch.depth_max.flatten().as_ref().is_some_and(too_many) {
        return Err(Problem::field("/depth_max", format!("depth_max is at most {}", i64::MAX)));
    }
    let engine = acting(&app, &caller);
    if let Some(concurrency) = patch.concurrency {
        engine.change_queue(&name, QueueChange::Concurrency(concurrency)).await?;
    }
    if let Some(depth_max) = patch.depth_max {
        engine.change_queue(&name, QueueChange::DepthMax(depth_max)).await?;
    }
    find(&app, &name).await
}

macro_rules! verb {
    ($name:ident, $path:literal, $change:expr, $title:literal) => {
        #[doc = $title]
        #[utoipa::path(
            post, path = $path, tag = "queues", params(("name" = String, Path)),
            responses(
                (status = 200, body = QueueView),
                (status = "4XX", body = ProblemBody, content_type = "application/problem+json"),
            )
        )]
        pub(super) async fn $name(
            State(app): State<Arc<App>>,
            caller: Caller,
            Path(name): Path<String>,
        ) -> Answer<Json<QueueView>> {
            acting(&app, &caller).change_queue(&name, $change).await?;
            find(&app, &name).await
        }
    };
}

verb!(
    pause,
    "/v1/queues/{name}/pause",
    QueueChange::Pause,
    "Starts nothing of this queue any more"
);
verb!(resume, "/v1/queues/{name}/resume", QueueChange::Resume, "Ends a pause or a drain");
verb!(
    drain,
    "/v1/queues/{name}/drain",
    QueueChange::Drain,
    "Takes nothing new; what is there goes on"
);
