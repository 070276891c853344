//! Bodies of gRPC under the rules of all others: a call's comes within its time and
//! counts in the room for all of them; a session's goes on for as long as the
//! session, and there what has come of an unfinished message counts.

use crate::api::App;
use crate::api::input::read_bytes;
use crate::api::problem::Answer;
use crate::listen::HasEnd;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use std::sync::Arc;

/// Before each message stand a flag and its length.
const HEAD: usize = 5;
const SESSION: &str = "/windlass.worker.v1.Worker/Session";

pub(super) async fn bounded(
    State(app): State<Arc<App>>,
    request: Request,
    next: Next,
) -> Answer<Response> {
    if request.uri().path() == SESSION {
        return Ok(next.run(request).await);
    }
    let (parts, body) = request.into_parts();
    let most = app.terms.limits.body_max + HEAD;
    let (bytes, room) = read_bytes(&parts.headers, body, most).await?;
    let mut answer = next.run(Request::from_parts(parts, Body::from(bytes))).await;
    answer.extensions_mut().insert(HasEnd);
    // The call is done with what it was told.
    drop(room);
    Ok(answer)
}
