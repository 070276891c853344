//! The one error type of Windlass. `kind` is for branching, `op` names the
//! operation that failed, `message` says what to do, `source` keeps the private
//! cause. Backends convert their driver's errors into this in one place each;
//! nothing above a store ever sees a driver's error type.

use std::fmt;

/// What went wrong, as far as a caller may branch on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The thing named does not exist.
    NotFound,
    /// The state of the thing does not allow this (also: a key that is taken).
    Conflict,
    /// The caller's lease or node incarnation is no longer the newest.
    LeaseLost,
    /// The input is wrong; repeating it cannot help.
    Invalid,
    /// The backend cannot answer now; repeating may help.
    Unavailable,
    /// This backend or build cannot do it.
    Unsupported,
    /// Stored data does not make sense.
    Corrupt,
}

impl ErrorKind {
    /// The word used in logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorKind::NotFound => "not-found",
            ErrorKind::Conflict => "conflict",
            ErrorKind::LeaseLost => "lease-lost",
            ErrorKind::Invalid => "invalid",
            ErrorKind::Unavailable => "unavailable",
            ErrorKind::Unsupported => "unsupported",
            ErrorKind::Corrupt => "corrupt",
        }
    }
}

/// The public code of INTERFACES section 4, finer than the kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    BadFilter,
    BadCursor,
    InvalidFields,
    UnknownKind,
    PayloadTooLarge,
    KeyReused,
    StateConflict,
    VersionConflict,
    LeaseLost,
    NotFound,
    QueueFull,
    StoreUnavailable,
    Draining,
    Unsupported,
    Corrupt,
}

impl Code {
    /// The code as users see it in problem documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Code::BadFilter => "bad-filter",
            Code::BadCursor => "bad-cursor",
            Code::InvalidFields => "invalid-fields",
            Code::UnknownKind => "unknown-kind",
            Code::PayloadTooLarge => "payload-too-large",
            Code::KeyReused => "idempotency-key-reused",
            Code::StateConflict => "state-conflict",
            Code::VersionConflict => "version-conflict",
            Code::LeaseLost => "lease-lost",
            Code::NotFound => "not-found",
            Code::QueueFull => "queue-full",
            Code::StoreUnavailable => "store-unavailable",
            Code::Draining => "draining",
            Code::Unsupported => "unsupported",
            Code::Corrupt => "corrupt",
        }
    }

    /// The kind every error with this code has: the code implies the kind, so
    /// the two can never disagree.
    pub fn kind(self) -> ErrorKind {
        match self {
            Code::BadFilter
            | Code::BadCursor
            | Code::InvalidFields
            | Code::UnknownKind
            | Code::PayloadTooLarge => ErrorKind::Invalid,
            Code::KeyReused | Code::StateConflict | Code::VersionConflict => ErrorKind::Conflict,
            Code::LeaseLost => ErrorKind::LeaseLost,
            Code::NotFound => ErrorKind::NotFound,
            Code::QueueFull | Code::StoreUnavailable | Code::Draining => ErrorKind::Unavailable,
            Code::Unsupported => ErrorKind::Unsupported,
            Code::Corrupt => ErrorKind::Corrupt,
        }
    }
}

type Cause = Box<dyn std::error::Error + Send + Sync + 'static>;

/// An error of any part of Windlass.
pub struct Error {
    code: Code,
    op: &'static str,
    message: String,
    source: Option<Cause>,
}

/// The result of anything that can fail with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub fn new(code: Code, op: &'static str, message: impl Into<String>) -> Self {
        Error { code, op, message: message.into(), source: None }
    }

    /// A field of the input is wrong: the message names the field and what to do.
    pub fn invalid(op: &'static str, message: impl Into<String>) -> Self {
        Error::new(Code::InvalidFields, op, message)
    }

    pub fn not_found(op: &'static str, message: impl Into<String>) -> Self {
        Error::new(Code::NotFound, op, message)
    }

    pub fn conflict(op: &'static str, message: impl Into<String>) -> Self {
        Error::new(Code::StateConflict, op, message)
    }

    pub fn lease_lost(op: &'static str, message: impl Into<String>) -> Self {
        Error::new(Code::LeaseLost, op, message)
    }

    pub fn unavailable(op: &'static str, message: impl Into<String>) -> Self {
        Error::new(Code::StoreUnavailable, op, message)
    }

    pub fn corrupt(op: &'static str, message: impl Into<String>) -> Self {
        Error::new(Code::Corrupt, op, message)
    }

    /// Keeps the private cause; it is shown in logs, never branched on.
    pub fn because(mut self, cause: impl Into<Cause>) -> Self {
        self.source = Some(cause.into());
        self
    }

    pub fn kind(&self) -> ErrorKind {
        self.code.kind()
    }

    pub fn code(&self) -> Code {
        self.code
    }

    pub fn op(&self) -> &'static str {
        self.op
    }

    pub fn message(&self) -> &str {
        &self.message
    }
}

/// Readable too: it is what a program shows that returns it from `main`.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} [{}]", self.code.as_str())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.op, self.message)?;
        if let Some(cause) = &self.source {
            write!(f, " ({cause})")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|c| c.as_ref() as _)
    }
}
