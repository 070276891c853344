//! Writing down what attempts say, many at a time. Writes wait in one queue; the
//! recorder takes what is there, at most so many, gives it to the store as one
//! batch and answers everybody. No delay is added: an idle recorder writes at
//! once, a busy one in larger batches. Attempts come before it, events after.

use crate::crash::crash_point;
use crate::meters::{Checkpointing, Went};
use crate::parts::{Parts, Phase, bump};
use crate::run::Run;
use crate::trace::tell_end;
use crate::wake::Wake;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use windlass_core::error::{Error, ErrorKind, Result};
use windlass_core::outcome::{Class, Outcome, TaskError as Cause};
use windlass_core::state::State;
use windlass_core::store::{AttemptEnd, Write, Written};

/// Most writes in one batch.
const BATCH_MAX: usize = 1000;
/// Most writes that wait; attempts keep their slot beyond that.
const WAITING_MAX: usize = 4096;
/// The store is asked again after this, then twice as long, up to a second.
const FIRST_DELAY: Duration = Duration::from_millis(20);
const LONGEST_DELAY: Duration = Duration::from_secs(1);

/// Who wants to know how a write went.
enum Then {
    Nobody,
    Tell(oneshot::Sender<Result<Written>>),
    /// It ends this run.
    End(Arc<Run>),
}

pub(crate) struct Entry {
    /// Boxed: it is large, and it is handed on several times.
    write: Box<Write>,
    then: Then,
}

/// The way to the recorder.
pub(crate) struct Recorder {
    queue: mpsc::Sender<Entry>,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").finish_non_exhaustive()
    }
}

pub(crate) type Entries = mpsc::Receiver<Entry>;

/// A place in the queue.
pub(crate) struct Room<'a>(mpsc::Permit<'a, Entry>);

impl Room<'_> {
    pub(crate) fn send(self, write: Write, caller: Option<oneshot::Sender<Result<Written>>>) {
        let then = caller.map_or(Then::Nobody, Then::Tell);
        self.0.send(Entry { write: Box::new(write), then });
    }
}

impl Recorder {
    pub(crate) fn new() -> (Recorder, Entries) {
        let (queue, entries) = mpsc::channel(WAITING_MAX);
        (Recorder { queue }, entries)
    }

    /// Waits for a place; `None`: the engine has stopped.
    pub(crate) async fn room(&self) -> Option<Room<'_>> {
        self.queue.reserve().await.ok().map(Room)
    }

    /// Writes and waits for the answer.
    pub(crate) async fn write(&self, write: Box<Write>) -> Result<Written> {
        let stopped = || Error::unavailable("record", "the engine has stopped");
        let (caller, answer) = oneshot::channel();
        let entry = Entry { write, then: Then::Tell(caller) };
        self.queue.send(entry).await.map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }

    /// A write that can be lost: nobody waits for it.
    pub(crate) fn try_send(&self, write: Write) -> bool {
        self.queue.try_send(Entry { write: Box::new(write), then: Then::Nobody }).is_ok()
    }

    /// The last word about a run.
    pub(crate) async fn end(&self, run: Arc<Run>, write: Box<Write>) {
        let entry = Entry { write, then: Then::End(run) };
        if let Err(TrySendError::Full(entry)) = self.queue.try_send(entry) {
            // After the stop nobody writes any more: the store will find out.
            let _ = self.queue.send(entry).await;
        }
    }
}

/// Runs until the engine stops.
pub(crate) async fn record(parts: Arc<Parts>, mut entries: Entries) {
    let mut batch = Vec::with_capacity(BATCH_MAX);
    loop {
        tokio::select! {
            biased;
            taken = entries.recv_many(&mut batch, BATCH_MAX) => if taken == 0 { return },
            () = parts.reached(Phase::Stopped) => return,
        }
        flush(&parts, std::mem::take(&mut batch)).await;
    }
}

async fn flush(parts: &Arc<Parts>, batch: Vec<Entry>) {
    may_die(&batch, "record.step.before", "record.end.before");
    let answers = tokio::select! {
        answers = write_batch(parts, &batch) => answers,
        () = parts.reached(Phase::Stopped) => return,
    };
    may_die(&batch, "record.step.after", "record.end.after");
    let mut again = vec![];
    for (entry, answer) in batch.into_iter().zip(answers) {
        count(parts, &entry.write, &answer);
        match entry.then {
            Then::Nobody => {}
            Then::Tell(caller) => {
                // A step whose attempt is gone does not want to know.
                let _ = caller.send(answer);
            }
            Then::End(run) => {
                let answer = as_answered_first(parts, &run, &entry.write, answer).await;
                again.extend(ended(parts, run, &entry.write, answer));
            }
        }
    }
    parts.bell.ring(Wake::Slot);
    parts.feed.changed();
    parts.tell_if_idle();
    if !again.is_empty() {
        Box::pin(flush(parts, again)).await;
    }
}

pub(crate) fn count(parts: &Parts, write: &Write, answer: &Result<Written>) {
    let went = match answer {
        Ok(_) => Went::Ok,
        Err(refused) => {
            if refused.kind() == ErrorKind::LeaseLost {
                bump(&parts.counters.stale_writes, 1);
                parts.meters.refused_stale();
            }
            Went::Refused
        }
    };
    parts.meters.checkpoint(Checkpointing::Save, went, write.steps.len());
    parts.meters.checkpoint(Checkpointing::Discard, went, usize::from(write.keep_steps.is_some()));
}

/// A repeated answer says where the task is now, which may be further on than
/// where this end led. The attempt's own row knows.
async fn as_answered_first(
    parts: &Parts,
    run: &Run,
    write: &Write,
    answer: Result<Written>,
) -> Result<Written> {
    let written = answer?;
    if !written.repeated {
        return Ok(written);
    }
    let attempts = tokio::select! {
        attempts = parts.store.attempts(run.task.id) => attempts.unwrap_or_default(),
        () = parts.reached(Phase::Stopped) => vec![],
    };
    let own = attempts.iter().find(|attempt| attempt.token == run.lease.token);
    let state = match own.and_then(|attempt| attempt.ended) {
        Some((AttemptEnd::Settled(state), _)) => state,
        // Not readable now: most likely what was asked for.
        _ => write.settle.as_ref().map_or(written.state, |settlement| settlement.verdict.to),
    };
    Ok(Written { state, ..written })
}

/// A test may let the process die here, by what the batch holds.
fn may_die(batch: &[Entry], with_step: &'static str, with_end: &'static str) {
    if !cfg!(feature = "crash-points") {
        return;
    }
    if batch.iter().any(|entry| !entry.write.steps.is_empty()) {
        crash_point(with_step);
    }
    if batch.iter().any(|entry| entry.write.settle.is_some()) {
        crash_point(with_end);
    }
}

/// Asks the store until it answers, or until this node's leases are void.
async fn write_batch(parts: &Parts, batch: &[Entry]) -> Vec<Result<Written>> {
    let mut delay = FIRST_DELAY;
    loop {
        let writes: Vec<Write> = batch.iter().map(|entry| (*entry.write).clone()).collect();
        let error = match parts.store.record(writes, parts.now()).await {
            Ok(answers) => return answers,
            Err(error) => error,
        };
        let void = parts.is_fenced() || batch.iter().all(|e| e.write.lease.node != parts.node());
        if void || error.kind() != ErrorKind::Unavailable {
            tracing::error!(%error, writes = batch.len(), "writes were not recorded");
            let told = |_: &Entry| match error.kind() {
                ErrorKind::Unavailable => Err(Error::lease_lost("record", "the lease has ended")),
                _ => Err(Error::corrupt("record", error.to_string())),
            };
            return batch.iter().map(told).collect();
        }
        tracing::warn!(%error, "the store did not answer; the writes are sent again");
        parts.clock.sleep_until(parts.clock.uptime() + delay).await;
        delay = (delay * 2).min(LONGEST_DELAY);
    }
}

/// The end of a run is written or refused. A refusal that is not about the
/// lease would leave the task held for ever: it fails instead, once.
fn ended(parts: &Parts, run: Arc<Run>, write: &Write, answer: Result<Written>) -> Option<Entry> {
    match answer {
        Ok(written) => {
            crash_point("settle.recorded");
            parts.held.remove(&run);
            settled(parts, &run, write, written);
            None
        }
        Err(refused) if refused.kind() == ErrorKind::LeaseLost => {
            tracing::warn!(parent: &run.span, task = %run.task.id, "a late write was refused");
            parts.refuse(&run);
            None
        }
        Err(refused) if run.may_fail_again() => {
            tracing::error!(parent: &run.span, task = %run.task.id, error = %refused, "the end was not recorded");
            let message = format!("the end of the attempt was refused: {refused}");
            let write = run.ending(Outcome::Error(Cause::new(Class::Persistence, message)));
            Some(Entry { write, then: Then::End(run) })
        }
        Err(refused) => {
            tracing::error!(parent: &run.span, task = %run.task.id, error = %refused, "the failure was not recorded");
            parts.refuse(&run);
            None
        }
    }
}

fn settled(parts: &Parts, run: &Run, write: &Write, written: Written) {
    bump(&parts.counters.consumed, 1);
    match written.state {
        State::Failed => bump(&parts.counters.failed, 1),
        State::Queued | State::RollingBack => {
            parts.bell.ring(Wake::Work);
            parts.remote.hub.wake(&run.task.queue, &run.task.kind, 1);
        }
        _ => {}
    }
    if let Some(settlement) = &write.settle {
        let (took, age) = (run.took(), parts.clock.now().since(run.task.created_at));
        run.meters.settled(settlement, written.state, took, age);
        tell_end(run, settlement, written.state, took);
        if let Some(at) = settlement.verdict.due_at {
            parts.due.note(at);
        }
    }
    if written.state.is_ended() {
        parts.waiters.tell(run.task.id);
        if run.task.parent.is_some() || run.task.standing.has_children {
            parts.family_now.notify_one();
        }
    }
}
