//! Bringing the file's schema up to date. Each migration runs in one
//! transaction together with the version number it leads to, so a process that
//! dies at any statement leaves the file as it was before, and the next start
//! does it again. A file of another program, or of a newer Windlass, is refused
//! and not touched.

use super::error::sql;
use rusqlite::{Connection, TransactionBehavior};
use windlass_core::store::Migrated;
use windlass_core::{Code, Error, Result};

/// `windlass` on a telephone keypad is too long; these are its first letters.
const APPLICATION_ID: i64 = 0x576e_646c;

/// All migrations, in order. Never edit one that was released.
const MIGRATIONS: &[&str] = &[include_str!("migrations/0001_ledger.sql")];

/// Called before each statement with its number; tests die there.
pub(super) type BeforeStatement = fn(usize, Option<usize>);

pub(super) fn migrate(
    conn: &mut Connection,
    before: BeforeStatement,
    die_at: Option<usize>,
) -> Result<Migrated> {
    let from = version(conn)?;
    let newest = newest();
    let mut statement = 0;
    for (i, text) in MIGRATIONS.iter().enumerate().skip(from as usize) {
        let tx = conn
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(sql("migrate"))?;
        for step in statements_of(text) {
            before(statement, die_at);
            statement += 1;
            tx.execute(step, []).map_err(sql("migrate"))?;
        }
        before(statement, die_at);
        tx.pragma_update(None, "application_id", APPLICATION_ID).map_err(sql("migrate"))?;
        tx.pragma_update(None, "user_version", i + 1).map_err(sql("migrate"))?;
        before(statement + 1, die_at);
        tx.commit().map_err(sql("migrate"))?;
    }
    Ok(Migrated { from, to: newest })
}

/// The statements of a migration file: each ends with a semicolon at the end of
/// a line.
fn statements_of(text: &str) -> impl Iterator<Item = &str> {
    text.split(";\n").filter(|part| !part.trim().is_empty())
}

fn version(conn: &Connection) -> Result<u32> {
    conn.pragma_query_value(None, "user_version", |r| r.get(0)).map_err(sql("migrate"))
}

fn application_id(conn: &Connection) -> Result<i64> {
    conn.pragma_query_value(None, "application_id", |r| r.get(0)).map_err(sql("migrate"))
}

/// Whether a connection's main file is a store, not one that is attached to it.
pub(super) fn is_windlass(conn: &Connection) -> Result<bool> {
    Ok(application_id(conn)? == APPLICATION_ID)
}

fn newest() -> u32 {
    u32::try_from(MIGRATIONS.len()).unwrap_or(u32::MAX)
}

/// Refuses files of other programs and of a newer Windlass. Only reads.
pub(super) fn check_owner(conn: &Connection) -> Result<()> {
    let (version, newest) = (version(conn)?, newest());
    let id = application_id(conn)?;
    let tables: i64 = conn
        .query_row("SELECT count(*) FROM sqlite_schema", [], |r| r.get(0))
        .map_err(sql("migrate"))?;
    let ours = id == APPLICATION_ID || (id == 0 && version == 0 && tables == 0);
    if ours && version > newest {
        let message = format!(
            "the file has schema {version}, this build knows up to {newest}; use a newer Windlass"
        );
        return Err(Error::new(Code::Unsupported, "migrate", message));
    }
    if ours {
        return Ok(());
    }
    let message = "the file is another program's database; give Windlass a file of its own";
    Err(Error::conflict("migrate", message))
}

/// How many places a migration from nothing can die at.
#[cfg(feature = "sabotage")]
pub(super) fn statements() -> usize {
    MIGRATIONS.iter().flat_map(|text| statements_of(text)).count() + 2
}
