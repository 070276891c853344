//! Submitting inside a caller's own rusqlite transaction. The same code as the
//! writer's runs on the caller's connection, with nothing remembered from
//! elsewhere and nothing kept, inside a savepoint: whatever goes wrong is undone
//! and the caller's transaction goes on. SQLite has one writer at a time, so
//! event positions given here are in the order of the commits.

use super::error::{file_of, sql};
use super::migrate::is_windlass;
use super::statements::Statements;
use super::tx::{Memory, Tx};
use crate::caller::{CallerTx, LocalFuture};
use crate::store::instant;
use rusqlite::{Connection, ErrorCode, Transaction};
use windlass_core::clock::{Now, Timestamp};
use windlass_core::id::NodeId;
use windlass_core::store::{Submit, Submitted};
use windlass_core::{Code, Error, Result};

const OP: &str = "submit_in";

impl CallerTx for Transaction<'_> {
    fn backend(&self) -> &'static str {
        super::NAME
    }

    fn submit(
        &mut self,
        node: NodeId,
        batch: Submit,
        now: Now,
    ) -> LocalFuture<'_, Result<Vec<Submitted>>> {
        Box::pin(async move { submit(self, node, &batch, instant(now)) })
    }
}

fn submit(
    tx: &mut Transaction<'_>,
    node: NodeId,
    batch: &Submit,
    now: Timestamp,
) -> Result<Vec<Submitted>> {
    check_supported(batch)?;
    // A savepoint without a transaction would be one, and commit by itself.
    if tx.is_autocommit() {
        return Err(Error::invalid(OP, "the transaction has ended; begin another one"));
    }
    let savepoint = tx.savepoint_with_name("windlass_submit").map_err(sql(OP))?;
    match write(&savepoint, node, batch, now) {
        Ok(answers) => savepoint.commit().map(|()| answers).map_err(sql(OP)),
        Err(error) => Err(match savepoint.finish() {
            Ok(()) => error,
            // After a full or failing disk SQLite ends the whole transaction.
            Err(_) => {
                Error::unavailable(OP, "the transaction is lost; roll it back").because(error)
            }
        }),
    }
}

/// What only the writer can do: it has leases and schedules in mind that it
/// would not see change.
fn check_supported(batch: &Submit) -> Result<()> {
    let message = if batch.fires.is_some() {
        "a schedule fires with submit, not inside a caller's transaction"
    } else if batch.tasks.iter().any(|task| task.child_of.is_some()) {
        "children cannot be submitted inside a caller's transaction; \
         submit them from a step of their parent, or with submit"
    } else {
        return Ok(());
    };
    Err(Error::new(Code::Unsupported, OP, message))
}

fn write(
    conn: &Connection,
    node: NodeId,
    batch: &Submit,
    now: Timestamp,
) -> Result<Vec<Submitted>> {
    lock(conn)?;
    let mut memory = Memory::default();
    let mut hot = Statements::new(conn);
    let mut tx = Tx::new(&mut hot, &mut memory);
    if !is_windlass(conn)? {
        return Err(no_tables(conn));
    }
    if tx.node(node)?.is_none() {
        return Err(another_database(conn, node));
    }
    let answers = tx.submit(batch, now)?;
    tx.finish()?;
    Ok(answers)
}

/// Takes the write lock with a write that changes nothing. It comes before the
/// first read, because a transaction that has read does not wait for the lock.
fn lock(conn: &Connection) -> Result<()> {
    // In the main file: rows of an attached one would be another commit.
    let locked = conn
        .prepare_cached("DELETE FROM main.windlass_meta WHERE 0")
        .and_then(|mut s| s.execute([]));
    let Err(cause) = locked else { return Ok(()) };
    let stale = cause
        .sqlite_error()
        .is_some_and(|e| e.extended_code == rusqlite::ffi::SQLITE_BUSY_SNAPSHOT);
    Err(match cause.sqlite_error_code() {
        _ if stale => {
            let message = format!(
                "{}: another transaction has written since this one first read, so it can no longer \
                 write; roll it back and begin it again with TransactionBehavior::Immediate",
                file_of(conn)
            );
            Error::unavailable(OP, message).because(cause)
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            let message = format!(
                "{} is busy with another transaction; roll this one back and begin it again with \
                 TransactionBehavior::Immediate, which waits its turn",
                file_of(conn)
            );
            Error::unavailable(OP, message).because(cause)
        }
        Some(ErrorCode::Unknown) | None => no_tables(conn).because(cause),
        _ => sql(OP)(cause),
    })
}

fn another_database(conn: &Connection, node: NodeId) -> Error {
    let message = format!(
        "{} does not know {node}: the transaction belongs to another database than the engine's",
        file_of(conn)
    );
    Error::invalid(OP, message)
}

fn no_tables(conn: &Connection) -> Error {
    let message = format!(
        "{} has no tables of Windlass: the transaction belongs to another database than the engine's",
        file_of(conn)
    );
    Error::invalid(OP, message)
}
