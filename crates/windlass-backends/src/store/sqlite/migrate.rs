//! Bringing the schema up to date, in a file that may hold the application's
//! tables too. Ours begin with `windlass_`, and the schema's number is a row of
//! `windlass_meta`: `user_version` and `application_id` belong to the
//! application. Each migration runs in one transaction together with the number
//! it leads to, so a process that dies at any statement leaves the file as it was
//! before, and the next start does it again.

use super::error::{file_of, sql};
use rusqlite::{Connection, ErrorCode, TransactionBehavior, params};
use windlass_core::store::Migrated;
use windlass_core::{Code, Error, Result};

const OP: &str = "migrate";

/// All migrations, in order. Never edit one that was released. Each statement
/// ends with a semicolon at the end of a line; each `CREATE` begins a line.
const MIGRATIONS: &[&str] = &[
    include_str!("migrations/0001_ledger.sql"),
    include_str!("migrations/0002_server.sql"),
    include_str!("migrations/0003_access.sql"),
    include_str!("migrations/0004_batches.sql"),
];

/// Called before each statement with its number; tests die there.
pub(super) type BeforeStatement = fn(usize, Option<usize>);

pub(super) fn migrate(
    conn: &mut Connection,
    before: BeforeStatement,
    die_at: Option<usize>,
) -> Result<Migrated> {
    let from = schema(conn)?.unwrap_or(0);
    let mut places = 0..;
    let mut next = || before(places.next().unwrap_or(usize::MAX), die_at);
    for (number, text) in (1_u32..).zip(MIGRATIONS).skip(from as usize) {
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(sql(OP))?;
        for statement in statements_of(text) {
            next();
            tx.execute(statement, []).map_err(sql(OP))?;
        }
        next();
        let text = "INSERT OR REPLACE INTO windlass_meta (key, value) VALUES ('schema', ?1)";
        tx.execute(text, params![number]).map_err(sql(OP))?;
        next();
        tx.commit().map_err(sql(OP))?;
    }
    Ok(Migrated { from, to: newest() })
}

fn statements_of(text: &str) -> impl Iterator<Item = &str> {
    text.split(";\n").filter(|part| !part.trim().is_empty())
}

/// The names of the tables and indexes a migration makes.
fn made_by(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter(|line| line.starts_with("CREATE "))
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with("windlass_")))
}

/// The number of our schema in a connection's main file, not in one that is
/// attached to it. `None` also when `windlass_meta` is somebody else's.
fn schema(conn: &Connection) -> Result<Option<u32>> {
    let text = "SELECT value FROM main.windlass_meta WHERE key = 'schema'";
    let found = conn.prepare_cached(text).and_then(|mut s| s.query_row([], |r| r.get(0)));
    match found {
        Ok(number) => Ok(Some(number)),
        // No such table, column or row, or no such number in it.
        Err(cause) if matches!(cause.sqlite_error_code(), Some(ErrorCode::Unknown) | None) => {
            Ok(None)
        }
        Err(cause) => Err(sql(OP)(cause)),
    }
}

/// Whether a connection's main file has the tables of this build.
pub(super) fn is_windlass(conn: &Connection) -> Result<bool> {
    Ok(schema(conn)? == Some(newest()))
}

fn newest() -> u32 {
    u32::try_from(MIGRATIONS.len()).unwrap_or(u32::MAX)
}

/// Refuses what is no database, what a newer Windlass has made, and a file in
/// which a name that we need is taken. Only reads.
pub(super) fn check_file(conn: &Connection) -> Result<()> {
    let file = file_of(conn);
    let names = names(conn).map_err(|cause| match cause.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => {
            let message = format!("{file} is not a SQLite database; Windlass needs another file");
            Error::conflict(OP, message).because(cause)
        }
        _ => sql(OP)(cause),
    })?;
    let (found, newest) = (schema(conn)?.unwrap_or(0), newest());
    if found > newest {
        let message = format!(
            "{file} has schema {found}, this build knows up to {newest}; use a newer Windlass"
        );
        return Err(Error::new(Code::Unsupported, OP, message));
    }
    let mut needed = MIGRATIONS.iter().skip(found as usize).flat_map(|text| made_by(text));
    match needed.find(|name| names.iter().any(|taken| taken == name)) {
        Some(name) => {
            let message = format!(
                "{file} has a `{name}` that Windlass did not make; rename it, or give Windlass \
                 another file"
            );
            Err(Error::conflict(OP, message))
        }
        None => Ok(()),
    }
}

/// What the file calls its tables, views and indexes; SQLite compares such names
/// without regard to case.
fn names(conn: &Connection) -> rusqlite::Result<Vec<String>> {
    let text = "SELECT lower(name) FROM main.sqlite_schema WHERE type <> 'trigger'";
    conn.prepare(text)?.query_map([], |r| r.get(0))?.collect()
}

/// How many places a migration from nothing can die at: before each statement,
/// before the number, before the commit.
#[cfg(feature = "sabotage")]
pub(super) fn statements() -> usize {
    MIGRATIONS.iter().map(|text| statements_of(text).count() + 2).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_is_made_has_our_prefix_and_is_looked_for_before() {
        let mut conn = Connection::open_in_memory().unwrap();
        let migrated = migrate(&mut conn, |_, _| {}, None).unwrap();
        assert_eq!((migrated.from, migrated.to), (0, newest()));
        assert!(is_windlass(&conn).unwrap());
        let mut found = names(&conn).unwrap();
        found.retain(|name| !name.starts_with("sqlite_"));
        let mut known: Vec<&str> = MIGRATIONS.iter().flat_map(|text| made_by(text)).collect();
        found.sort();
        known.sort_unstable();
        assert_eq!(found, known);
    }
}
