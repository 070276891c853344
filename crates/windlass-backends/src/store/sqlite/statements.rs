//! The statements of the hot path, prepared once for the life of a connection.
//! Everything else goes through the connection's own cache, which costs a hash
//! of the text and a reset of all bindings each time: too much for statements
//! that run a hundred thousand times a second.

use super::error::sql;
use super::rows::{FRESH, LEASE, TASK};
use rusqlite::{Connection, Statement};
use windlass_core::Result;

macro_rules! hot {
    ($($(#[$doc:meta])* $name:ident = $text:expr;)+) => {
        /// A statement of the hot path.
        #[derive(Debug, Clone, Copy)]
        pub(super) enum Hot { $($(#[$doc])* $name),+ }

        impl Hot {
            const COUNT: usize = [$(Hot::$name),+].len();

            fn text(self) -> String {
                match self { $(Hot::$name => $text.to_owned()),+ }
            }
        }
    };
}

hot! {
    Begin = "BEGIN IMMEDIATE";
    Commit = "COMMIT";
    Rollback = "ROLLBACK";
    InsertTask =
        "INSERT INTO windlass_task (id, lane, state, priority, created_at, due_at, updated_at, run,
           attempt, retries, crashes, token, version, event_n, has_children, settled, deadline, parent, child_key,
           extras, payload, waiting_on, finished_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?5, 1, 0, 0, 0, 0, 0, ?7, 0, 0, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";
    /// Whether a task exists, and its state if nobody holds it.
    State =
        "SELECT coalesce((SELECT 16 FROM windlass_done WHERE id = ?1), state)
         FROM windlass_task WHERE id = ?1";
    EnterReady = "INSERT OR IGNORE INTO windlass_ready (lane, rank, id) VALUES (?1, ?2, ?3)";
    LeaveReady = "DELETE FROM windlass_ready WHERE lane = ?1 AND rank = ?2 AND id = ?3";
    /// The head of a lane up to a task.
    LeaveReadyUpTo = "DELETE FROM windlass_ready WHERE lane = ?1 AND rank = ?2 AND id <= ?3";
    Heads =
        "SELECT rank, id FROM windlass_ready WHERE lane = ?1 AND (rank, id) > (?2, ?3)
         ORDER BY rank, id LIMIT ?4";
    /// A task that is neither held nor done.
    Task = format!("SELECT {TASK} FROM windlass_task t WHERE t.id = ?1");
    /// The same when nothing has happened to it since it was submitted.
    FreshTask =
        format!("SELECT {FRESH} FROM windlass_task t WHERE t.id = ?1 AND t.token = 0 AND t.run = 1 AND t.state = 3");
    Lease = format!("SELECT {LEASE} FROM windlass_lease e WHERE e.task = ?1");
    InsertLease =
        "INSERT OR REPLACE INTO windlass_lease (task, node, token, claim, in_step, alone, requests, lane,
           priority, state, due_at, started_at, run, attempt, retries, crashes, version, event_n, has_children,
           has_unique, parent, correlation)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19,
           ?20, ?21, ?22)";
    KeepLease =
        "UPDATE windlass_lease SET version = ?2, event_n = ?3, crashes = ?4, in_step = ?5, requests = ?6,
           has_children = ?7 WHERE task = ?1";
    LeaveLease = "DELETE FROM windlass_lease WHERE task = ?1";
    InsertDone =
        "INSERT INTO windlass_done (id, node, started_at, finished_at, run, attempt, retries, crashes, token,
           version, event_n, settled, result)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
    InsertStep =
        "INSERT INTO windlass_step (task, version, live, outcome, run, attempt, node, at, duration, name,
           class, reason, output, log)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";
    NextPosition = "SELECT position + count FROM windlass_event ORDER BY position DESC LIMIT 1";
    InsertEvents = "INSERT INTO windlass_event (position, count, at, body) VALUES (?1, ?2, ?3, ?4)";
}

/// Prepared on first use, kept as long as the connection.
pub(super) struct Statements<'c> {
    conn: &'c Connection,
    prepared: [Option<Statement<'c>>; Hot::COUNT],
}

impl<'c> Statements<'c> {
    pub(super) fn new(conn: &'c Connection) -> Self {
        Statements { conn, prepared: std::array::from_fn(|_| None) }
    }

    pub(super) fn conn(&self) -> &'c Connection {
        self.conn
    }

    pub(super) fn get(&mut self, hot: Hot) -> Result<&mut Statement<'c>> {
        let place = &mut self.prepared[hot as usize];
        match place {
            Some(statement) => Ok(statement),
            None => {
                let statement = self.conn.prepare(&hot.text()).map_err(sql("prepare"))?;
                Ok(place.insert(statement))
            }
        }
    }

    pub(super) fn run(&mut self, hot: Hot, params: impl rusqlite::Params) -> Result<usize> {
        self.get(hot)?.execute(params).map_err(sql("write"))
    }
}
