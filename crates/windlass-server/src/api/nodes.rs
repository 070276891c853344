//! Nodes: who is there, how they are doing, and holding one back. A node hears
//! of a change with its next heartbeat; this server's own node at once.

use super::App;
use super::control::{acting, status_of};
use super::input::node_id;
use super::problem::{Answer, Problem, ProblemBody};
use super::tasks::Items;
use super::view::{self, NodeView};
use crate::access::Caller;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use std::sync::Arc;
use windlass::{NodeChange, NodeId};

async fn find(app: &App, id: NodeId) -> Answer<Json<NodeView>> {
    let nodes = app.reader().nodes().await?;
    let found = nodes.iter().find(|n| n.id == id);
    let found = found.map(|info| Json(view::node(info, app.engine.now())));
    found.ok_or_else(|| {
        Problem::not_found(format!("there is no node {id}"))
            .hint("each start of a process is a new node; GET /v1/nodes lists them")
    })
}

/// Lists nodes
#[utoipa::path(
    get, path = "/v1/nodes", tag = "nodes",
    responses((status = 200, body = Items<NodeView>))
)]
pub(super) async fn list(State(app): State<Arc<App>>) -> Answer<Json<Items<NodeView>>> {
    let nodes = app.reader().nodes().await?;
    Ok(Items::of(nodes.iter().map(|info| view::node(info, app.engine.now()))))
}

/// Shows a node
#[utoipa::path(
    get, path = "/v1/nodes/{id}", tag = "nodes", params(("id" = String, Path)),
    responses(
        (status = 200, body = NodeView),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn one(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
) -> Answer<Json<NodeView>> {
    find(&app, node_id(&id)?).await
}

macro_rules! verb {
    ($name:ident, $path:literal, $change:expr, $title:literal) => {
        #[doc = $title]
        #[utoipa::path(
            post, path = $path, tag = "nodes", params(("id" = String, Path)),
            responses(
                (status = 200, body = NodeView, description = "Done, or so already"),
                (status = 202, body = NodeView, description = "The node hears of it soon"),
                (status = "4XX", body = ProblemBody, content_type = "application/problem+json"),
            )
        )]
        pub(super) async fn $name(
            State(app): State<Arc<App>>,
            caller: Caller,
            Path(id): Path<String>,
        ) -> Answer<(StatusCode, Json<NodeView>)> {
            let id = node_id(&id)?;
            let changed = acting(&app, &caller).change_node(id, $change).await?;
            Ok((status_of(changed), find(&app, id).await?))
        }
    };
}

verb!(pause, "/v1/nodes/{id}/pause", NodeChange::Pause, "Gives a node no new work");
verb!(resume, "/v1/nodes/{id}/resume", NodeChange::Resume, "Ends a pause or a drain");
verb!(
    drain,
    "/v1/nodes/{id}/drain",
    NodeChange::Drain,
    "Lets a node finish what it has, and gives it nothing more"
);
