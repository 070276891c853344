//! The HTTP API: one file per resource, each handler parses, calls one thing of
//! the engine, and answers. `input.rs` reads requests, `view.rs` writes answers,
//! `problem.rs` refuses, `envelope.rs` goes around all of them; `feed.rs` fans
//! events out. The OpenAPI document is collected from the handlers themselves.

mod answers;
mod batches;
mod control;
mod cursor;
mod dead_letters;
mod envelope;
mod events;
mod feed;
mod few;
mod health;
mod input;
mod metrics;
mod nodes;
mod overview;
mod page;
mod pieces;
pub mod problem;
mod queues;
pub mod rights;
mod room;
mod sight;
mod status;
mod submit;
mod tasks;
mod tokens;
pub mod view;
mod worker;

use crate::access::Gate;
use crate::redact::Redactor;
use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::OpenApi;
use utoipa::openapi::OpenApi as Document;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass::core::task::Kind;
use windlass::{Engine, Reader};

pub use feed::Feed;
pub use metrics::{Meter, install as install_meter};
pub(crate) use room::BODIES_MAX;
pub use worker::grpc::proto as worker_proto;

/// What requests share.
#[derive(Debug)]
pub struct App {
    pub engine: Engine,
    /// Where this server listens.
    pub listen: SocketAddr,
    pub terms: Terms,
    pub meter: Meter,
    cursors: cursor::Cursors,
    feed: Arc<Feed>,
    started: Instant,
    looked: health::Looked,
    /// The OpenAPI document as text, one copy for all who ask.
    document: bytes::Bytes,
}

/// Whether there is a page for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    On,
    /// A page that only shows, before an API that takes no changes by hand.
    ReadOnly,
    Off,
}

/// How large requests may be.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub body_max: usize,
    pub bulk_max: usize,
}

/// The terms on which requests are answered.
#[derive(Debug)]
pub struct Terms {
    pub limits: Limits,
    pub gate: Gate,
    pub page: Page,
    pub redactor: Redactor,
}

impl Terms {
    /// No sign-in, nothing hidden, a page.
    pub fn plain(limits: Limits) -> Terms {
        Terms { limits, gate: Gate::off(), page: Page::On, redactor: Redactor::default() }
    }
}

impl App {
    pub async fn new(
        engine: Engine,
        listen: SocketAddr,
        terms: Terms,
        meter: Meter,
    ) -> windlass::Result<Arc<App>> {
        let cursors = cursor::Cursors::of(&engine).await?;
        Ok(Arc::new(App {
            cursors,
            feed: Feed::of(&engine),
            engine,
            listen,
            terms,
            meter,
            started: Instant::now(),
            looked: health::Looked::default(),
            document: document().to_json().unwrap_or_default().into(),
        }))
    }

    fn reader(&self) -> &dyn Reader {
        self.engine.reader()
    }

    fn retries_of(&self, kind: &Kind) -> Option<u32> {
        self.engine.retries_of(kind)
    }
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Windlass",
        description = "A durable background-task engine. Every error is application/problem+json.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")
    ),
    tags(
        (name = "tasks", description = "Submit, look, act"),
        (name = "batches", description = "One verb on everything a filter matches"),
        (name = "dead letters", description = "Failed tasks that wait for a person"),
        (name = "queues", description = "Lanes with their own concurrency and limits"),
        (name = "nodes", description = "Running processes"),
        (name = "workers", description = "Workers in other processes"),
        (name = "events", description = "What happened, live or page by page"),
        (name = "access", description = "Who may do what"),
        (name = "server", description = "Overviews and health"),
    )
)]
struct Described;

fn described() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::with_openapi(Described::openapi())
        .routes(routes!(submit::submit, tasks::list))
        .routes(routes!(submit::bulk))
        .routes(routes!(tasks::one, control::edit))
        .routes(routes!(tasks::result))
        .routes(routes!(tasks::checkpoint))
        .routes(routes!(tasks::attempts))
        .routes(routes!(tasks::history))
        .routes(routes!(tasks::logs))
        .routes(routes!(tasks::why))
        .routes(routes!(control::cancel))
        .routes(routes!(control::pause))
        .routes(routes!(control::resume))
        .routes(routes!(control::requeue))
        .routes(routes!(control::rerun))
        .routes(routes!(batches::start, batches::list))
        .routes(routes!(batches::one))
        .routes(routes!(batches::stop))
        .routes(routes!(dead_letters::list))
        .routes(routes!(dead_letters::export))
        .routes(routes!(dead_letters::one))
        .routes(routes!(dead_letters::requeue))
        .routes(routes!(dead_letters::discard))
        .routes(routes!(queues::list))
        .routes(routes!(queues::one, queues::set))
        .routes(routes!(queues::pause))
        .routes(routes!(queues::resume))
        .routes(routes!(queues::drain))
        .routes(routes!(nodes::list))
        .routes(routes!(nodes::one))
        .routes(routes!(nodes::pause))
        .routes(routes!(nodes::resume))
        .routes(routes!(nodes::drain))
        .routes(routes!(worker::lease))
        .routes(routes!(worker::report))
        .routes(routes!(events::events))
        .routes(routes!(overview::stats))
        .routes(routes!(overview::kinds))
        .routes(routes!(overview::audit))
        .routes(routes!(tokens::whoami))
        .routes(routes!(tokens::list, tokens::create))
        .routes(routes!(tokens::revoke))
        .routes(routes!(health::live))
        .routes(routes!(health::ready))
}

/// The OpenAPI document, collected from the handlers.
pub fn document() -> Document {
    let (_, mut document) = described().split_for_parts();
    document.info.version = env!("CARGO_PKG_VERSION").to_owned();
    document
}

/// Everything the server answers.
pub fn router(app: Arc<App>) -> Router {
    let (routes, _) = described().split_for_parts();
    let routes = match app.terms.page {
        Page::On | Page::ReadOnly => routes.route("/", get(page::overview)),
        Page::Off => routes,
    };
    routes
        .route("/v1/openapi.json", get(overview::openapi))
        .route("/metrics", get(metrics::metrics))
        .merge(worker::grpc::routes(&app))
        .fallback(envelope::nowhere)
        .method_not_allowed_fallback(envelope::wrong_method)
        // In one: each call of `layer` boxes every request and answer once more.
        .layer((
            from_fn_with_state(app.clone(), envelope::envelope),
            CatchPanicLayer::custom(envelope::panicked),
        ))
        .with_state(app)
}
