//! How a command ends: the exit codes, and the one error type of the command
//! line. Every failure carries a hint that says what to do next. Here is also the
//! one table from the server's problem codes to exit codes; nothing else in the
//! command line looks at HTTP statuses to decide how to end.

use std::fmt;
use std::process::ExitCode;

/// The exit codes of INTERFACES section 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Ok,
    Failed,
    Usage,
    NotFound,
    NotAllowed,
    Conflict,
    Unreachable,
    Partly,
    TimedOut,
    TaskFailed,
    TaskCancelled,
    Interrupted,
}

impl Exit {
    pub fn number(self) -> u8 {
        match self {
            Exit::Ok => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::NotFound => 3,
            Exit::NotAllowed => 4,
            Exit::Conflict => 5,
            Exit::Unreachable => 6,
            Exit::Partly => 7,
            Exit::TimedOut => 8,
            Exit::TaskFailed => 10,
            Exit::TaskCancelled => 11,
            Exit::Interrupted => 130,
        }
    }

    /// What a refusal of the server means for the exit code. The code decides;
    /// the status only where there is none, as with a proxy in between.
    pub(crate) fn of_problem(code: &str, status: u16) -> Exit {
        match code {
            "bad-json" | "bad-filter" | "bad-cursor" | "invalid-fields" | "unknown-kind"
            | "payload-too-large" => Exit::Usage,
            "unauthenticated" | "forbidden" | "read-only" => Exit::NotAllowed,
            "not-found" => Exit::NotFound,
            "state-conflict"
            | "version-conflict"
            | "lease-lost"
            | "idempotency-in-progress"
            | "idempotency-key-reused" => Exit::Conflict,
            "store-unavailable" | "draining" => Exit::Unreachable,
            "queue-full" | "rate-limited" => Exit::Failed,
            _ => Exit::of_status(status),
        }
    }

    fn of_status(status: u16) -> Exit {
        match status {
            400 | 413 | 415 | 422 => Exit::Usage,
            401 | 403 | 405 => Exit::NotAllowed,
            404 | 410 => Exit::NotFound,
            409 | 412 => Exit::Conflict,
            502..=504 => Exit::Unreachable,
            _ => Exit::Failed,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.number())
    }
}

/// Why a command did not do what it was asked, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub code: Exit,
    pub message: String,
    pub hint: String,
}

impl Failure {
    pub fn new(code: Exit, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Failure { code, message: message.into(), hint: hint.into() }
    }

    /// The command was written wrongly.
    pub fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Failure::new(Exit::Usage, message, hint)
    }

    /// Whoever read our output has gone (`| head`): nothing went wrong, and
    /// there is nobody to tell.
    pub(crate) fn nobody_reads() -> Self {
        Failure::new(Exit::Ok, "", "")
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.message.is_empty()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\nhint: {}", self.message, self.hint)
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_code_has_its_exit_code() {
        let table = [
            ("bad-json", 400, 2),
            ("bad-filter", 400, 2),
            ("bad-cursor", 400, 2),
            ("invalid-fields", 422, 2),
            ("unknown-kind", 422, 2),
            ("payload-too-large", 413, 2),
            ("idempotency-key-reused", 422, 5),
            ("idempotency-in-progress", 409, 5),
            ("state-conflict", 409, 5),
            ("version-conflict", 409, 5),
            ("lease-lost", 409, 5),
            ("not-found", 404, 3),
            ("unauthenticated", 401, 4),
            ("forbidden", 403, 4),
            ("read-only", 405, 4),
            ("queue-full", 429, 1),
            ("rate-limited", 429, 1),
            ("store-unavailable", 503, 6),
            ("draining", 503, 6),
            ("", 502, 6),
            ("", 404, 3),
            ("", 500, 1),
            ("something-new", 409, 5),
        ];
        for (code, status, exit) in table {
            assert_eq!(Exit::of_problem(code, status).number(), exit, "{code} {status}");
        }
    }
}
