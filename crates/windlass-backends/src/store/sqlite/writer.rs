//! The one thread that writes. It takes what is waiting, at most so many
//! commands and bytes, runs all of it in one transaction, commits once and
//! answers everybody: group commit without an artificial delay. A command that
//! is refused leaves no trace, because it is refused before it writes; should
//! SQLite itself fail within a group, the group is rolled back and each command
//! runs alone, so that one bad command never fails its neighbours.

use super::error::{closed, is_fatal};
use super::statements::{Hot, Statements};
use super::tx::{Memory, Tx};
use rusqlite::Connection;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tokio::sync::{mpsc, oneshot};
use windlass_core::{Error, Result};

/// Most commands in one transaction.
const GROUP_MAX: usize = 1000;
/// Most bytes of commands in one transaction.
const GROUP_BYTES: usize = 1024 * 1024;
/// Commands that may wait for the writer; submitters wait beyond that.
pub(super) const WAITING_MAX: usize = 4096;

const BUSY: &str = "nothing was written: another transaction holds the database";

/// A command on its way to the writer.
pub(super) trait Command: Send {
    /// Runs it and keeps the answer.
    fn run(&mut self, tx: &mut Tx<'_, '_>);
    /// The error that forbids a commit, if the run ended in one.
    fn is_fatal(&self) -> bool;
    /// The run was refused: what it pushed must go.
    fn is_refused(&self) -> bool;
    /// Replaces the answer: the commit did not happen.
    fn fail(&mut self, error: Error);
    /// Tells the caller.
    fn reply(self: Box<Self>);
    fn bytes(&self) -> usize;
}

struct Job<T, F> {
    work: F,
    bytes: usize,
    answer: Option<Result<T>>,
    caller: oneshot::Sender<Result<T>>,
}

impl<T: Send, F: FnMut(&mut Tx<'_, '_>) -> Result<T> + Send> Command for Job<T, F> {
    fn run(&mut self, tx: &mut Tx<'_, '_>) {
        self.answer = Some((self.work)(tx));
    }

    fn is_fatal(&self) -> bool {
        matches!(&self.answer, Some(Err(error)) if is_fatal(error))
    }

    fn is_refused(&self) -> bool {
        matches!(&self.answer, Some(Err(_)))
    }

    fn fail(&mut self, error: Error) {
        self.answer = Some(Err(error));
    }

    fn reply(self: Box<Self>) {
        if let Some(answer) = self.answer {
            // A caller that went away does not want to know.
            let _ = self.caller.send(answer);
        }
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The way to the writer.
#[derive(Clone)]
pub(super) struct Writer {
    commands: mpsc::Sender<Box<dyn Command>>,
}

impl Writer {
    /// Runs `work` in a transaction of the writer and waits until it is durable.
    pub(super) async fn write<T, F>(&self, bytes: usize, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut Tx<'_, '_>) -> Result<T> + Send + 'static,
    {
        let (caller, answer) = oneshot::channel();
        let job = Box::new(Job { work, bytes, answer: None, caller });
        self.commands.send(job).await.map_err(|_| closed("write"))?;
        answer.await.map_err(|_| closed("write"))?
    }
}

pub(super) type Commands = mpsc::Receiver<Box<dyn Command>>;

pub(super) fn channel() -> (Writer, Commands) {
    let (commands, queue) = mpsc::channel(WAITING_MAX);
    (Writer { commands }, queue)
}

/// Runs until every [`Writer`] is gone.
pub(super) fn run(conn: &Connection, mut memory: Memory, mut commands: Commands) {
    let mut hot = Statements::new(conn);
    while let Some(first) = commands.blocking_recv() {
        let mut bytes = first.bytes();
        let mut group = vec![first];
        while group.len() < GROUP_MAX && bytes < GROUP_BYTES {
            let Ok(next) = commands.try_recv() else { break };
            bytes = bytes.saturating_add(next.bytes());
            group.push(next);
        }
        run_group(&mut hot, &mut memory, &mut group);
        group.into_iter().for_each(|command| command.reply());
    }
}

fn run_group(hot: &mut Statements<'_>, memory: &mut Memory, group: &mut [Box<dyn Command>]) {
    // Without a transaction nobody gets anything: trying one by one would make
    // each of them wait for the same lock.
    if let Err(error) = begin(hot) {
        let cause = error.to_string();
        let busy = || Error::unavailable("write", BUSY).because(cause.as_str());
        return group.iter_mut().for_each(|command| command.fail(busy()));
    }
    // A bug in one command must not close the store for everybody.
    let done = catch_unwind(AssertUnwindSafe(|| transaction(hot, memory, group)));
    let Err(error) = done.unwrap_or_else(|_| Err(panicked())) else { return };
    memory.forget();
    // After some errors SQLite has rolled back by itself.
    let rolled_back = hot.conn().is_autocommit() || hot.run(Hot::Rollback, []).is_ok();
    if let [alone] = group {
        // Its own error says more than the transaction's.
        if !alone.is_refused() {
            alone.fail(error);
        }
        return;
    }
    for command in group {
        if rolled_back {
            run_group(hot, memory, std::slice::from_mut(command));
        } else {
            command.fail(Error::unavailable("write", "the transaction cannot be rolled back"));
        }
    }
}

/// Waits for the transactions of callers and other programs, as long as the
/// connection's busy handler does.
fn begin(hot: &mut Statements<'_>) -> Result<()> {
    // A rollback that failed left its transaction open, and no other could ever
    // begin: it is tried again until it is done.
    if !hot.conn().is_autocommit() {
        hot.run(Hot::Rollback, [])?;
    }
    hot.run(Hot::Begin, []).map(drop)
}

fn panicked() -> Error {
    Error::corrupt("write", "a bug in the store; the command was rolled back")
}

fn transaction(
    hot: &mut Statements<'_>,
    memory: &mut Memory,
    group: &mut [Box<dyn Command>],
) -> Result<()> {
    let mut tx = Tx::new(hot, memory);
    for command in group {
        let mark = tx.events();
        command.run(&mut tx);
        if command.is_fatal() || tx.dirty {
            return Err(Error::unavailable("write", "the transaction was rolled back"));
        }
        if command.is_refused() {
            tx.forget_events_after(mark);
        }
    }
    tx.finish()?;
    hot.run(Hot::Commit, [])?;
    Ok(())
}
