//! Refusals for callers that speak gRPC: one table from a [`Problem`] to a gRPC
//! status, for the service and for everything that refuses before it is reached.
//! The problem's code goes along as `windlass-code`, so that programs branch on
//! the same words as over HTTP, and so does `retry-after`.

use super::problem::Problem;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};

/// Whether the caller reads gRPC and not problem documents.
pub(super) fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    kind.is_some_and(|kind| kind.starts_with(b"application/grpc"))
}

/// By the HTTP status, so that a new sort of problem has its place at once.
fn code(http: u16) -> Code {
    match http {
        400 | 415 | 422 => Code::InvalidArgument,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => Code::NotFound,
        405 | 501 => Code::Unimplemented,
        408 => Code::DeadlineExceeded,
        409 => Code::FailedPrecondition,
        413 | 429 => Code::ResourceExhausted,
        503 => Code::Unavailable,
        _ => Code::Internal,
    }
}

impl From<Problem> for Status {
    fn from(problem: Problem) -> Status {
        let name = problem.code().as_str();
        let wait = problem.seconds_to_wait();
        let body = problem.body("");
        let mut message = match body.errors.first() {
            Some(error) => format!("{}: {}", error.pointer, body.detail),
            None => body.detail,
        };
        if !body.hint.is_empty() {
            message.push_str("; ");
            message.push_str(&body.hint);
        }
        let mut more = MetadataMap::new();
        more.insert("windlass-code", MetadataValue::from_static(name));
        if let Some(seconds) = wait {
            more.insert("retry-after", seconds.into());
        }
        Status::with_metadata(code(body.status), message, more)
    }
}

/// A refusal as an answer: always 200, with the status in the headers.
pub(super) fn answer(problem: Problem) -> Response {
    Status::from(problem).into_http()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::problem::ProblemCode;

    #[test]
    fn problems_become_statuses() {
        for (problem, wanted) in [
            (ProblemCode::InvalidFields, Code::InvalidArgument),
            (ProblemCode::Forbidden, Code::PermissionDenied),
            (ProblemCode::LeaseLost, Code::FailedPrecondition),
            (ProblemCode::PayloadTooLarge, Code::ResourceExhausted),
            (ProblemCode::Draining, Code::Unavailable),
        ] {
            let status = Status::from(Problem::new(problem, "why"));
            assert_eq!(status.code(), wanted, "{problem:?}");
            assert_eq!(status.metadata().get("windlass-code").unwrap(), problem.as_str());
            assert!(status.message().starts_with("why; "), "{status}");
        }
        let busy = Status::from(Problem::new(ProblemCode::RateLimited, "why"));
        assert_eq!(busy.metadata().get("retry-after").unwrap(), "1");
        let field = Status::from(Problem::field("/max", "too many"));
        assert!(field.message().starts_with("/max: too many; "), "{field}");
    }

    #[test]
    fn an_answer_is_200_with_the_status_in_its_headers() {
        let answer = answer(Problem::new(ProblemCode::Forbidden, "näh"));
        assert_eq!(answer.status(), 200);
        let header = |name: &str| answer.headers().get(name).unwrap().to_str().unwrap().to_owned();
        assert_eq!(
            (header("content-type"), header("grpc-status")),
            ("application/grpc".into(), "7".into())
        );
        assert!(header("grpc-message").starts_with("n%C3%A4h"));
        assert_eq!(header("windlass-code"), "forbidden");
    }
}
