//! Every refusal as `application/problem+json`. A [`Problem`] is what handlers
//! return; it says what is wrong, where, and what to do. The one table from an
//! engine's error to a status is here. The body itself is written by
//! `envelope.rs`, which knows the request's id.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use std::time::Duration;
use utoipa::ToSchema;
use windlass::{Code, Error};

/// Longest detail or pointer, in bytes.
const TEXT_MAX: usize = 1000;

/// What went wrong, as the body of an error answer (RFC 9457).
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ProblemBody {
    /// A name of this sort of problem.
    #[serde(rename = "type")]
    pub kind: String,
    /// The same for every problem of this sort.
    pub title: String,
    pub status: u16,
    /// What happened this time.
    pub detail: String,
    /// For programs to branch on.
    #[schema(value_type = ProblemCode)]
    pub code: String,
    /// Also in the `Request-Id` header and in the server's log.
    pub request_id: String,
    /// What to do next.
    pub hint: String,
    /// The fields that are wrong, as JSON pointers.
    pub errors: Vec<FieldError>,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct FieldError {
    pub pointer: String,
    pub detail: String,
}

/// All codes that this server gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProblemCode {
    BadJson,
    BadFilter,
    BadCursor,
    InvalidFields,
    UnknownKind,
    PayloadTooLarge,
    IdempotencyKeyReused,
    StateConflict,
    VersionConflict,
    LeaseLost,
    NotFound,
    Unauthenticated,
    Forbidden,
    /// The address does not take this method.
    ReadOnly,
    QueueFull,
    RateLimited,
    StoreUnavailable,
    Draining,
}

impl ProblemCode {
    pub fn as_str(self) -> &'static str {
        self.row().0
    }

    /// Code, status, title.
    fn row(self) -> (&'static str, u16, &'static str) {
        use ProblemCode as P;
        match self {
            P::BadJson => ("bad-json", 400, "The body is not JSON"),
            P::BadFilter => ("bad-filter", 400, "The filter cannot be read"),
            P::BadCursor => ("bad-cursor", 400, "The cursor does not belong to this list"),
            P::InvalidFields => ("invalid-fields", 422, "A field is wrong"),
            P::UnknownKind => ("unknown-kind", 422, "Nobody serves this kind"),
            P::PayloadTooLarge => ("payload-too-large", 413, "Too large"),
            P::IdempotencyKeyReused => {
                ("idempotency-key-reused", 422, "The idempotency key belongs to another request")
            }
            P::StateConflict => ("state-conflict", 409, "The state does not allow this"),
            P::VersionConflict => ("version-conflict", 409, "Somebody else was faster"),
            P::LeaseLost => ("lease-lost", 409, "The lease has ended"),
            P::NotFound => ("not-found", 404, "There is no such thing"),
            P::Unauthenticated => ("unauthenticated", 401, "Who are you?"),
            P::Forbidden => ("forbidden", 403, "Not allowed"),
            P::ReadOnly => ("read-only", 405, "This method is not possible here"),
            P::QueueFull => ("queue-full", 429, "The queue is full"),
            P::RateLimited => ("rate-limited", 429, "Too many requests"),
            P::StoreUnavailable => ("store-unavailable", 503, "The store does not answer"),
            P::Draining => ("draining", 503, "Takes nothing new at the moment"),
        }
    }

    fn status(self) -> StatusCode {
        StatusCode::from_u16(self.row().1).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// What to do, unless somebody knows better.
    fn hint(self) -> &'static str {
        use ProblemCode as P;
        match self {
            P::BadJson => "send one JSON document",
            P::BadFilter => "write terms like state:failed queue:media age:>1h",
            P::BadCursor => "start again without a cursor, with the same q",
            P::InvalidFields => "correct what is named here and send it again",
            P::UnknownKind => {
                "GET /v1/kinds lists the kinds; add a handler to the configuration, or set \
                 server.unknown_kinds = \"park\""
            }
            P::PayloadTooLarge => {
                "send less at once, or put large data elsewhere and send its address"
            }
            P::IdempotencyKeyReused => "use a new key for a new request",
            P::StateConflict => "look at the state first: GET the resource",
            P::VersionConflict => "read it again and repeat",
            P::LeaseLost => "claim the task again",
            P::NotFound => "look at the list first",
            P::Unauthenticated => {
                "send `Authorization: Bearer TOKEN`; an administrator makes tokens with \
                 `windlass token create`"
            }
            P::Forbidden => "call the server by its own address, from this machine",
            P::ReadOnly => "the Allow header lists the methods of this address",
            P::QueueFull => "wait until it has drained, or raise its depth_max",
            P::RateLimited => "wait and try again",
            P::StoreUnavailable => "try again; GET /readyz?verbose says more",
            P::Draining => "try again later, or send it to another node",
        }
    }
}

/// A refusal on its way out.
#[derive(Debug, Clone)]
pub struct Problem {
    code: ProblemCode,
    status: StatusCode,
    detail: String,
    hint: String,
    errors: Vec<FieldError>,
    /// Seconds to wait before the next try.
    retry_after: Option<u64>,
}

pub type Answer<T> = Result<T, Problem>;

impl Problem {
    pub fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        let (status, hint) = (code.status(), code.hint().to_owned());
        let retry_after =
            matches!(code, ProblemCode::QueueFull | ProblemCode::RateLimited).then_some(1);
        let detail = short(detail.into());
        Problem { code, status, detail, hint, errors: vec![], retry_after }
    }

    /// One field is wrong.
    pub fn field(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        let problem = Problem::new(ProblemCode::InvalidFields, detail.clone());
        problem.at(pointer, detail)
    }

    pub fn not_found(detail: impl Into<String>) -> Self {
        Problem::new(ProblemCode::NotFound, detail)
    }

    pub fn at(mut self, pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        let (pointer, detail) = (short(pointer.into()), short(detail.into()));
        self.errors.push(FieldError { pointer, detail });
        self
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// The same problem under another status (a body that came too slowly).
    pub fn status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// It may go better after this time; told in whole seconds.
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait.as_secs().saturating_add(1));
        self
    }

    pub(super) fn seconds_to_wait(&self) -> Option<u64> {
        self.retry_after
    }

    pub fn code(&self) -> ProblemCode {
        self.code
    }

    pub(super) fn body(self, request_id: &str) -> ProblemBody {
        let (code, _, title) = self.code.row();
        ProblemBody {
            kind: format!("urn:windlass:problem:{code}"),
            title: title.to_owned(),
            status: self.status.as_u16(),
            detail: self.detail,
            code: code.to_owned(),
            request_id: request_id.to_owned(),
            hint: self.hint,
            errors: self.errors,
        }
    }
}

/// A message may quote what was sent, which may be megabytes.
fn short(mut text: String) -> String {
    if text.len() > TEXT_MAX {
        let end = (0..=TEXT_MAX).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
        text.shrink_to_fit();
    }
    text
}

/// The body is written by the envelope, which knows the request's id.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if self.code == ProblemCode::Unauthenticated {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response.extensions_mut().insert(self);
        response
    }
}

/// The one table from an error of the engine to what users see.
impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let code = match error.code() {
            Code::BadFilter => ProblemCode::BadFilter,
            Code::BadCursor => ProblemCode::BadCursor,
            Code::InvalidFields | Code::Unsupported => ProblemCode::InvalidFields,
            Code::UnknownKind => ProblemCode::UnknownKind,
            Code::PayloadTooLarge => ProblemCode::PayloadTooLarge,
            Code::KeyReused => ProblemCode::IdempotencyKeyReused,
            Code::StateConflict => ProblemCode::StateConflict,
            Code::VersionConflict => ProblemCode::VersionConflict,
            Code::LeaseLost => ProblemCode::LeaseLost,
            Code::NotFound => ProblemCode::NotFound,
            Code::QueueFull => ProblemCode::QueueFull,
            Code::StoreUnavailable | Code::Corrupt => ProblemCode::StoreUnavailable,
            Code::Draining => ProblemCode::Draining,
        };
        if code == ProblemCode::StoreUnavailable {
            // The cause may name files and addresses: it is for the log alone.
            tracing::error!(%error, "the store failed a request");
        }
        // The advice of the library is for Rust programs; ours is the hint.
        let told = error.message();
        let told = match code {
            ProblemCode::UnknownKind => told.rsplit_once("; ").map_or(told, |(what, _)| what),
            _ => told,
        };
        Problem::new(code, told)
    }
}
