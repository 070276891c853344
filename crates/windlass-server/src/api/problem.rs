//! Every refusal as `application/problem+json`. A [`Problem`] is what handlers
//! return; it says what is wrong, where, and what to do. The one table from an
//! engine's error to a status is here. The body itself is written by
//! `envelope.rs`, which knows the request's id.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;
use windlass::{Code, Error};

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

    /// Code, status, title, hint.
    fn row(self) -> (&'static str, StatusCode, &'static str, &'static str) {
        use ProblemCode as P;
        use StatusCode as S;
        match self {
            P::BadJson => {
                ("bad-json", S::BAD_REQUEST, "The body is not JSON", "send one JSON document")
            }
            P::BadFilter => (
                "bad-filter",
                S::BAD_REQUEST,
                "The filter cannot be read",
                "write terms like state:failed queue:media age:>1h",
            ),
            P::BadCursor => (
                "bad-cursor",
                S::BAD_REQUEST,
                "The cursor does not belong to this list",
                "start again without a cursor, with the same q",
            ),
            P::InvalidFields => (
                "invalid-fields",
                S::UNPROCESSABLE_ENTITY,
                "A field is wrong",
                "correct the fields named in errors and send it again",
            ),
            P::UnknownKind => (
                "unknown-kind",
                S::UNPROCESSABLE_ENTITY,
                "Nobody serves this kind",
                "GET /v1/kinds lists the kinds; add a handler to the configuration, \
                 or set server.unknown_kinds = \"park\"",
            ),
            P::PayloadTooLarge => (
                "payload-too-large",
                S::PAYLOAD_TOO_LARGE,
                "Too large",
                "send less at once, or put large data elsewhere and send its address",
            ),
            P::IdempotencyKeyReused => (
                "idempotency-key-reused",
                S::UNPROCESSABLE_ENTITY,
                "The idempotency key belongs to another request",
                "use a new key for a new request",
            ),
            P::StateConflict => (
                "state-conflict",
                S::CONFLICT,
                "The state does not allow this",
                "look at the state first: GET the resource",
            ),
            P::VersionConflict => (
                "version-conflict",
                S::CONFLICT,
                "Somebody else was faster",
                "read it again and repeat",
            ),
            P::LeaseLost => {
                ("lease-lost", S::CONFLICT, "The lease has ended", "claim the task again")
            }
            P::NotFound => {
                ("not-found", S::NOT_FOUND, "There is no such thing", "look at the list first")
            }
            P::Forbidden => (
                "forbidden",
                S::FORBIDDEN,
                "Not allowed",
                "call the server by its own address, from this machine",
            ),
            P::ReadOnly => (
                "read-only",
                S::METHOD_NOT_ALLOWED,
                "This method is not possible here",
                "the Allow header lists the methods of this address",
            ),
            P::QueueFull => (
                "queue-full",
                S::TOO_MANY_REQUESTS,
                "The queue is full",
                "wait until it has drained, or raise its depth_max",
            ),
            P::RateLimited => {
                ("rate-limited", S::TOO_MANY_REQUESTS, "Too many requests", "wait and try again")
            }
            P::StoreUnavailable => (
                "store-unavailable",
                S::SERVICE_UNAVAILABLE,
                "The store does not answer",
                "try again; GET /readyz?verbose says more",
            ),
            P::Draining => (
                "draining",
                S::SERVICE_UNAVAILABLE,
                "Takes nothing new at the moment",
                "try again later, or send it to another node or queue",
            ),
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
}

pub type Answer<T> = Result<T, Problem>;

impl Problem {
    pub fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        let (_, status, _, hint) = code.row();
        Problem { code, status, detail: detail.into(), hint: hint.to_owned(), errors: vec![] }
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
        self.errors.push(FieldError { pointer: pointer.into(), detail: detail.into() });
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

    pub fn code(&self) -> ProblemCode {
        self.code
    }

    pub(super) fn body(self, request_id: &str) -> ProblemBody {
        let (code, _, title, _) = self.code.row();
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

/// The body is written by the envelope, which knows the request's id.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        if matches!(self.code, ProblemCode::QueueFull | ProblemCode::RateLimited) {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
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
        Problem::new(code, error.message())
    }
}
