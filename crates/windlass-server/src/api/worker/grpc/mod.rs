//! The same calls over gRPC, on the same port: messages are read into the words of
//! the HTTP bodies, so that both are checked by the same rules, and what the engine
//! answers is written as messages. `session.rs` streams both. `count.rs` and
//! `body.rs` bound what comes before it is read. No logic of its own.

mod body;
mod count;
mod session;
mod words;

use super::discreet::discreet;
use super::{answered, refused, shown, worker_id};
use crate::access::{Caller, unadmitted};
use crate::api::App;
use crate::api::problem::{Answer, Problem};
use axum::Router;
use axum::middleware::from_fn_with_state;
pub(crate) use count::CountingCodec;
use proto::worker_server::{Worker, WorkerServer};
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio_stream::wrappers::ReceiverStream;
use tonic::service::Routes;
use tonic::{Request, Response, Status, Streaming};
use windlass::core::clock::format_duration;

/// Most sessions of one process.
const SESSIONS_MAX: usize = 10_000;

/// The messages of `proto/worker.proto`.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, clippy::nursery)]
pub mod proto {
    tonic::include_proto!("windlass.worker.v1");
}

/// The addresses `/windlass.worker.v1.Worker/...`.
pub(in crate::api) fn routes(app: &Arc<App>) -> Router<Arc<App>> {
    let sessions = Arc::new(Semaphore::new(SESSIONS_MAX));
    let service = WorkerServer::new(Service { app: app.clone(), sessions })
        .max_decoding_message_size(app.terms.limits.body_max);
    // Its own fallback would be a second one for the whole router.
    let routes: Router<()> = Routes::new(service).into_axum_router().reset_fallback();
    routes.layer(from_fn_with_state(app.clone(), body::bounded)).with_state(())
}

#[derive(Debug)]
struct Service {
    app: Arc<App>,
    sessions: Arc<Semaphore>,
}

#[tonic::async_trait]
impl Worker for Service {
    type SessionStream = ReceiverStream<Result<proto::SessionResponse, Status>>;

    async fn lease(
        &self,
        request: Request<proto::LeaseRequest>,
    ) -> Result<Response<proto::LeaseResponse>, Status> {
        let wish = words::lease(request.into_inner())?;
        let answer = self.app.engine.workers().lease(wish).await.map_err(refused)?;
        let leases = answer.leases.into_iter().map(|lease| words::leased(shown(&self.app, lease)?));
        Ok(Response::new(proto::LeaseResponse {
            worker_id: answer.id.to_string(),
            lease: format_duration(answer.lease),
            leases: leases.collect::<Answer<_>>()?,
        }))
    }

    async fn report(
        &self,
        request: Request<proto::ReportRequest>,
    ) -> Result<Response<proto::ReportResponse>, Status> {
        let proto::ReportRequest { worker_id: id, held, reports, leaving } = request.into_inner();
        let id = worker_id(&id)?;
        let mut said = words::report(&held, reports, leaving)?;
        discreet(&self.app, &mut said).await?;
        let answer = self.app.engine.workers().report(id, said).await.map_err(refused)?;
        let out = answered(answer);
        let requests = out.requests.into_iter().map(words::request).collect();
        let results = out.results.into_iter().map(str::to_owned).collect();
        Ok(Response::new(proto::ReportResponse { results, requests }))
    }

    async fn session(
        &self,
        request: Request<Streaming<proto::SessionRequest>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let place = self.sessions.clone().try_acquire_owned().map_err(|_| {
            let message = format!("{SESSIONS_MAX} sessions are open already");
            Problem::from(windlass::Error::unavailable("session", message))
        })?;
        let app = self.app.clone();
        let caller = request.extensions().get::<Caller>().cloned().ok_or_else(unadmitted)?;
        Ok(Response::new(session::open(app, caller, request.into_inner(), place)))
    }
}
