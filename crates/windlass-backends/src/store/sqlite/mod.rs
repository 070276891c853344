//! The embedded store: one SQLite file in WAL mode, one thread that writes with
//! group commit, a few that read. Here is how it is opened and how each method
//! of the contract reaches its thread. The data's way is `mod.rs` ->
//! `writer.rs` (the transaction) -> `tx.rs` and the files named after what they
//! write.

mod batches;
mod caller;
mod change;
mod claim;
mod error;
mod lock;
mod migrate;
mod options;
mod outbox;
mod pack;
mod queues;
mod read;
mod readers;
mod record;
mod rows;
mod settings;
mod standing;
mod statements;
mod submit;
mod tx;
mod upkeep;
mod writer;

pub use options::{SqliteOptions, Synchronous, take_turns};

use crate::store::{instant, kept_log};
use lock::Ownership;
use readers::Readers;
use rows::Lanes;
use rusqlite::Connection;
use std::fmt;
use std::path::Path;
use std::thread::JoinHandle;
use tx::{Memory, Tx};
use windlass_core::checkpoint::StepRecord;
use windlass_core::clock::Now;
use windlass_core::control::Changed;
use windlass_core::store::{
    Actor, BoxFuture, Capabilities, Change, Claim, Claimed, Job, Joined, Migrated, NewNode,
    OutboxOp, OutboxRow, Renewal, Renewed, Setting, Store, Submit, Submitted, Upkept, Write,
    Written,
};
use windlass_core::{Error, Result};
use writer::Writer;

/// The feature, the folder, the URL scheme.
const NAME: &str = "sqlite";

/// The store. Dropping the last handle closes the file and frees the ownership.
pub struct SqliteStore {
    options: SqliteOptions,
    migrated: Migrated,
    writer: Option<Writer>,
    readers: Option<Readers>,
    threads: Vec<JoinHandle<()>>,
    _ownership: Ownership,
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("options", &self.options).finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Takes ownership of the file, brings its schema up to date and starts the
    /// threads.
    pub fn open(options: SqliteOptions) -> Result<SqliteStore> {
        let ownership = Ownership::take(&options.path)?;
        let mut conn = options.connect()?;
        let migrated = migrate::migrate(&mut conn, before_statement, options.die_at)?;
        let (readers, mut threads) = Readers::start(&options)?;
        let (writer, commands) = writer::channel();
        let memory = Memory::new(options.guards);
        let thread = std::thread::Builder::new()
            .name("windlass-write".to_owned())
            .spawn(move || writer::run(&conn, memory, commands))
            .map_err(|e| Error::unavailable("open", "cannot start a thread").because(e))?;
        threads.push(thread);
        Ok(SqliteStore {
            options,
            migrated,
            writer: Some(writer),
            readers: Some(readers),
            threads,
            _ownership: ownership,
        })
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.options.path
    }

    /// What opening did to the schema.
    pub fn migrated(&self) -> Migrated {
        self.migrated
    }

    /// What a commit survives; shown to users when it is not the default.
    pub fn synchronous(&self) -> Synchronous {
        self.options.synchronous
    }

    fn write<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnMut(&mut Tx<'_, '_>) -> Result<T> + Send + 'static,
    ) -> BoxFuture<'_, Result<T>> {
        let writer = self.writer.clone();
        Box::pin(
            async move { writer.ok_or_else(|| error::closed("write"))?.write(bytes, work).await },
        )
    }

    fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection, &mut Lanes) -> Result<T> + Send + 'static,
    ) -> BoxFuture<'_, Result<T>> {
        let readers = self.readers.clone();
        Box::pin(async move { readers.ok_or_else(|| error::closed("read"))?.read(work).await })
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        // Without senders the threads end; the lock goes only after the file.
        self.writer = None;
        self.readers = None;
        for thread in self.threads.drain(..) {
            // A thread that panicked has told its callers by going away.
            let _ = thread.join();
        }
    }
}

/// Tests let the process die before a chosen statement of a migration.
fn before_statement(statement: usize, die_at: Option<usize>) {
    if die_at == Some(statement) {
        std::process::abort();
    }
}

/// Where a migration from nothing can be made to die.
#[cfg(feature = "sabotage")]
pub fn migration_statements() -> usize {
    migrate::statements()
}

/// About how much a batch adds to a transaction.
fn weight(batch: &Submit) -> usize {
    batch.tasks.iter().map(|t| t.payload.as_str().len() + 200).sum()
}

fn weight_of(writes: &[Write]) -> usize {
    let step = |w: &Write| -> usize {
        let output = |s: &StepRecord| s.output.as_ref().map_or(0, |o| o.as_str().len());
        w.steps.iter().map(|s| output(s) + kept_log(s).map_or(0, str::len) + 100).sum()
    };
    writes.iter().map(|w| step(w) + 200).sum()
}

fn weight_of_change(change: &Change) -> usize {
    match change {
        Change::Step(step) => 200 + step.targets.len() * 200,
        _ => 200,
    }
}

impl Store for SqliteStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities { name: NAME, durable: true, shared: false }
    }

    fn migrate(&self) -> BoxFuture<'_, Result<Migrated>> {
        // Opening has done it: nothing can be read or written before.
        let Migrated { to, .. } = self.migrated;
        Box::pin(std::future::ready(Ok(Migrated { from: to, to })))
    }

    fn join(&self, node: NewNode, now: Now) -> BoxFuture<'_, Result<Joined>> {
        self.write(200, move |tx| tx.join(&node, instant(now)))
    }

    fn submit(&self, batch: Submit, now: Now) -> BoxFuture<'_, Result<Vec<Submitted>>> {
        self.write(weight(&batch), move |tx| tx.submit(&batch, instant(now)))
    }

    fn claim(&self, claim: Claim, now: Now) -> BoxFuture<'_, Result<Vec<Claimed>>> {
        self.write(claim.max.saturating_mul(200), move |tx| tx.claim(&claim, instant(now)))
    }

    fn renew(&self, renewal: Renewal, now: Now) -> BoxFuture<'_, Result<Renewed>> {
        self.write(200, move |tx| tx.renew(&renewal, instant(now)))
    }

    fn record(&self, writes: Vec<Write>, now: Now) -> BoxFuture<'_, Result<Vec<Result<Written>>>> {
        self.write(weight_of(&writes), move |tx| tx.record(&writes, instant(now)))
    }

    fn change(
        &self,
        change: Change,
        by: Actor,
        now: Now,
    ) -> BoxFuture<'_, Result<Vec<Result<Changed>>>> {
        self.write(weight_of_change(&change), move |tx| tx.change(&change, &by, instant(now)))
    }

    fn upkeep(&self, job: Job, limit: usize, now: Now) -> BoxFuture<'_, Result<Upkept>> {
        self.write(limit.saturating_mul(200), move |tx| tx.upkeep(job, limit, instant(now)))
    }

    fn put(&self, setting: Setting, by: Actor, now: Now) -> BoxFuture<'_, Result<()>> {
        self.write(1000, move |tx| tx.put(&setting, &by, instant(now)))
    }

    fn outbox(&self, op: OutboxOp, now: Now) -> BoxFuture<'_, Result<Vec<OutboxRow>>> {
        self.write(200, move |tx| tx.outbox(&op, instant(now)))
    }
}
