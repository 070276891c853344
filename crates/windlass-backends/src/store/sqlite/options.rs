//! How a SQLite store is opened: the URL users write, and the settings that are
//! applied to each connection and read back, because SQLite ignores a pragma it
//! cannot honour without a word.

use super::error::sql;
use super::migrate::check_file;
use crate::store::guards::Guards;
use rusqlite::{Connection, OpenFlags};
use std::path::{Path, PathBuf};
use std::time::Duration;
use windlass_core::{Error, Result};

/// What a commit survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Synchronous {
    /// The death of the machine.
    #[default]
    Full,
    /// The death of the process; the last commits may be lost with the machine.
    Normal,
}

impl Synchronous {
    pub fn as_str(self) -> &'static str {
        match self {
            Synchronous::Full => "full",
            Synchronous::Normal => "normal",
        }
    }

    fn pragma(self) -> i64 {
        match self {
            Synchronous::Full => 2,
            Synchronous::Normal => 1,
        }
    }
}

/// Where the file is and how it is treated.
#[derive(Debug, Clone)]
pub struct SqliteOptions {
    pub path: PathBuf,
    pub synchronous: Synchronous,
    /// Page cache of the writer in MiB.
    pub cache_mb: u32,
    pub(super) guards: Guards,
    /// Dies before this statement of a migration; tests only.
    pub(super) die_at: Option<usize>,
}

impl SqliteOptions {
    pub fn at(path: impl Into<PathBuf>) -> Self {
        SqliteOptions {
            path: path.into(),
            synchronous: Synchronous::Full,
            cache_mb: 64,
            guards: Guards::default(),
            die_at: None,
        }
    }

    /// A store with one guard switched off, to prove that the suite notices.
    #[cfg(feature = "sabotage")]
    #[must_use]
    pub fn sabotaged(mut self, guards: Guards) -> Self {
        self.guards = guards;
        self
    }

    /// The process dies before this statement of a migration.
    #[cfg(feature = "sabotage")]
    #[must_use]
    pub fn dying_at(mut self, statement: usize) -> Self {
        self.die_at = Some(statement);
        self
    }

    /// Reads `sqlite://PATH?synchronous=full|normal&cache_mb=N`.
    pub fn parse(url: &str) -> Result<Self> {
        let bad = |what: String| Error::invalid("open", what);
        let rest = url
            .strip_prefix("sqlite://")
            .ok_or_else(|| bad(format!("`{url}`: write sqlite://path/to/file.db")))?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        if path.is_empty() || path == ":memory:" {
            return Err(bad(format!("`{url}` names no file; use memory: to keep nothing")));
        }
        let mut options = SqliteOptions::at(path);
        for pair in query.split('&').filter(|p| !p.is_empty()) {
            match pair.split_once('=') {
                Some(("synchronous", "full")) => options.synchronous = Synchronous::Full,
                Some(("synchronous", "normal")) => options.synchronous = Synchronous::Normal,
                Some(("cache_mb", n)) if n.parse::<u32>().is_ok_and(|n| n > 0) => {
                    options.cache_mb = n.parse().unwrap_or(64);
                }
                _ => {
                    let known = "known are synchronous=full, synchronous=normal and cache_mb=N";
                    return Err(bad(format!(
                        "`{pair}` in the store's URL is not an option; {known}"
                    )));
                }
            }
        }
        Ok(options)
    }

    /// A connection that may write.
    pub(super) fn connect(&self) -> Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = open(&self.path, flags)?;
        // Before anything is set: a file that is refused stays as it is.
        check_file(&conn)?;
        let op = sql("open");
        conn.pragma_update(None, "page_size", PAGE_BYTES).map_err(&op)?;
        conn.pragma_update(None, "journal_mode", "wal").map_err(&op)?;
        conn.pragma_update(None, "synchronous", self.synchronous.pragma()).map_err(&op)?;
        conn.pragma_update(None, "cache_size", -i64::from(self.cache_mb) * 1024).map_err(&op)?;
        conn.pragma_update(None, "temp_store", "memory").map_err(&op)?;
        conn.pragma_update(None, "wal_autocheckpoint", WAL_PAGES).map_err(&op)?;
        self.verify(&conn)?;
        take_turns(&conn)?;
        Ok(conn)
    }

    /// A connection that cannot write, with a small cache of its own.
    pub(super) fn connect_reader(&self) -> Result<Connection> {
        let conn =
            open(&self.path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        conn.pragma_update(None, "query_only", true).map_err(sql("open"))?;
        conn.pragma_update(None, "cache_size", -8 * 1024).map_err(sql("open"))?;
        Ok(conn)
    }

    fn verify(&self, conn: &Connection) -> Result<()> {
        let read = |name: &str| -> Result<String> {
            let value = conn.query_row(&format!("PRAGMA {name}"), [], |row| {
                row.get::<_, rusqlite::types::Value>(0)
            });
            Ok(match value.map_err(sql("open"))? {
                rusqlite::types::Value::Integer(n) => n.to_string(),
                rusqlite::types::Value::Text(text) => text,
                other => format!("{other:?}"),
            })
        };
        let wanted = [
            ("journal_mode", "wal".to_owned()),
            ("synchronous", self.synchronous.pragma().to_string()),
            ("cache_size", (-i64::from(self.cache_mb) * 1024).to_string()),
            ("wal_autocheckpoint", WAL_PAGES.to_string()),
        ];
        for (name, wanted) in wanted {
            let found = read(name)?;
            if found != wanted {
                let message = format!(
                    "SQLite keeps {name} = {found} where {wanted} is needed; is the file on a network disk?"
                );
                return Err(Error::unavailable("open", message));
            }
        }
        Ok(())
    }
}

/// Of a new file; one that has pages keeps them.
const PAGE_BYTES: i64 = 8192;

/// The log is copied into the database when it has this many pages.
const WAL_PAGES: i64 = 4000;

/// About five seconds.
const LOOKS_MAX: i32 = 5000;

/// Makes a connection look for SQLite's write lock every millisecond, for about
/// five seconds, as the store's writer does. Connections for
/// [`CallerTx`](crate::CallerTx) should have it: SQLite's own busy timeout looks
/// less and less often, so whoever uses it hardly ever finds the lock free while
/// somebody else writes all the time.
pub fn take_turns(conn: &Connection) -> Result<()> {
    let look_again = |looks| {
        std::thread::sleep(Duration::from_millis(1));
        looks < LOOKS_MAX
    };
    conn.busy_handler(Some(look_again)).map_err(sql("open"))
}

fn open(path: &Path, flags: OpenFlags) -> Result<Connection> {
    let conn = Connection::open_with_flags(path, flags).map_err(|cause| {
        Error::unavailable("open", format!("cannot open {}", path.display())).because(cause)
    })?;
    conn.busy_timeout(Duration::from_secs(5)).map_err(sql("open"))?;
    conn.set_prepared_statement_cache_capacity(128);
    Ok(conn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_and_typing_errors_refused() {
        let options =
            SqliteOptions::parse("sqlite://a/b.db?synchronous=normal&cache_mb=256").unwrap();
        assert_eq!(options.path, Path::new("a/b.db"));
        assert_eq!((options.synchronous, options.cache_mb), (Synchronous::Normal, 256));
        assert_eq!(SqliteOptions::parse("sqlite:///x.db").unwrap().path, Path::new("/x.db"));
        for bad in [
            "sqlite://",
            "sqlite://:memory:",
            "sqlite:x.db",
            "sqlite://x?synchronous=off",
            "sqlite://x?cache_mb=0",
            "sqlite://x?q",
        ] {
            assert!(SqliteOptions::parse(bad).is_err(), "{bad}");
        }
    }
}
