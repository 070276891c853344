//! From SQLite's errors to ours: the one conversion. Busy, full and failing
//! disks may pass, so they are `Unavailable`; everything else SQLite reports
//! about a statement of ours means that the file is not what we think.

use rusqlite::{Connection, ErrorCode};
use windlass_core::{Code, Error};

/// For `.map_err(sql("claim"))`.
pub(super) fn sql(op: &'static str) -> impl Fn(rusqlite::Error) -> Error {
    move |cause| {
        let code = match cause.sqlite_error_code() {
            Some(
                ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::DiskFull
                | ErrorCode::SystemIoFailure
                | ErrorCode::CannotOpen
                | ErrorCode::OutOfMemory
                | ErrorCode::OperationInterrupted
                | ErrorCode::ReadOnly,
            ) => Code::StoreUnavailable,
            _ => Code::Corrupt,
        };
        Error::new(code, op, "the SQLite store could not do it").because(cause)
    }
}

/// An error after which the transaction must not be committed. Refusals are
/// not: they are decided before anything is written.
pub(super) fn is_fatal(error: &Error) -> bool {
    matches!(error.code(), Code::StoreUnavailable | Code::Corrupt)
}

/// What messages call a connection's file.
pub(super) fn file_of(conn: &Connection) -> &str {
    conn.path().filter(|path| !path.is_empty()).unwrap_or("the database")
}

/// The store is closing: its threads are gone.
pub(super) fn closed(op: &'static str) -> Error {
    Error::unavailable(op, "the store is closed")
}
