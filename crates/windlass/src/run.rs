//! One attempt, as a list of named steps: begin, resume, call, judge, record.
//! [`Run`] is what the parts of the engine share about it while it lasts: the
//! attempt itself, the code's `Cx`, the watch over its times, the heartbeat.
//! Dispatch comes before it, the recorder after it; it knows no queue.

use crate::crash::crash_point;
use crate::cx::Cx;
use crate::journal::Journal;
use crate::meters::{Checkpointing, Pair, Went};
use crate::parts::Parts;
use crate::plan::run_plan;
use crate::registry::{Body, KindEntry, Ran};
use crate::said::{Said, Stop, TaskError};
use crate::slots::Slot;
use crate::trace::task_span;
use crate::tried::{Tried, UnderWay};
use parking_lot::Mutex;
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;
use windlass_core::checkpoint::{Checkpoint, StepOutcome, StepRecord, Validated, validate};
use windlass_core::lease::{LeaseKey, Requests};
use windlass_core::outcome::{Class, Outcome, StepRef, TaskError as Cause};
use windlass_core::retry::{Exponential, Jitter, RetryPolicy};
use windlass_core::settle::{Attempted, Rules, Settlement, UnknownErrors, settle};
use windlass_core::state::State;
use windlass_core::store::{BoxFuture, Claimed, Write};
use windlass_core::task::{Progress, Task};

/// Progress is written at most this often.
pub(crate) const PROGRESS_EVERY: Duration = Duration::from_millis(500);

/// A task this node holds, and what its attempt needs.
pub(crate) struct Run {
    pub(crate) parts: Arc<Parts>,
    pub(crate) task: Task,
    pub(crate) kind: Arc<KindEntry>,
    pub(crate) lease: LeaseKey,
    pub(crate) alone: bool,
    pub(crate) meters: Arc<Pair>,
    /// What log lines about it carry.
    pub(crate) span: tracing::Span,
    /// Taken when the attempt begins.
    checkpoint: Mutex<Option<Checkpoint>>,
    pub(crate) journal: Journal,
    pub(crate) locals: Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
    /// Uptime when user code began; 0: not yet.
    began: AtomicU64,
    /// Microseconds from there to the judgement.
    took: AtomicU64,
    pub(crate) tries_under_way: Mutex<Vec<UnderWay>>,
    stop: AtomicU8,
    stopped: Notify,
    /// Whoever sets it may settle; nobody else.
    judged: AtomicBool,
    life: AtomicU8,
    /// The end was refused once, and a failure is sent instead.
    refused: AtomicBool,
    abort: Mutex<Abort>,
    /// For code on a thread of its own, which has no abort handle.
    aborted: Notify,
    progress: Mutex<Pending>,
}

#[derive(Debug, Default)]
struct Abort {
    handle: Option<AbortHandle>,
    wanted: bool,
}

#[derive(Debug, Default)]
struct Pending {
    latest: Option<Progress>,
    /// Uptime of the last write.
    sent: Option<Duration>,
}

impl Pending {
    /// One was written just now.
    fn is_fresh(&self, now: Duration) -> bool {
        self.sent.is_some_and(|sent| now.saturating_sub(sent) < PROGRESS_EVERY)
    }
}

/// Whether user code has really ended.
const ALIVE: u8 = 0;
/// It was judged and goes on all the same.
const OVERRUN: u8 = 1;
const ENDED: u8 = 2;

const STOPS: [Stop; 4] = [Stop::Pause, Stop::Cancel, Stop::RollBack, Stop::Fenced];

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("lease", &self.lease).finish_non_exhaustive()
    }
}

impl Run {
    pub(crate) fn new(
        parts: Arc<Parts>,
        kind: Arc<KindEntry>,
        claimed: Claimed,
        lease: LeaseKey,
    ) -> Arc<Run> {
        let requests = claimed.task.standing.requests;
        let run = Arc::new(Run {
            meters: parts.meters.pair(&claimed.task.kind, &claimed.task.queue),
            span: task_span(&claimed.task, &lease),
            parts,
            kind,
            lease,
            alone: claimed.alone,
            checkpoint: Mutex::new(claimed.checkpoint),
            journal: Journal::default(),
            locals: Mutex::default(),
            began: AtomicU64::new(0),
            took: AtomicU64::new(0),
            tries_under_way: Mutex::default(),
            stop: AtomicU8::new(0),
            stopped: Notify::new(),
            judged: AtomicBool::new(false),
            life: AtomicU8::new(ALIVE),
            refused: AtomicBool::new(false),
            abort: Mutex::default(),
            aborted: Notify::new(),
            progress: Mutex::default(),
            task: claimed.task,
        });
        run.requested(requests);
        run
    }

    // What the engine wants of the attempt.

    /// People asked something of this task. A wish is never taken back here:
    /// should a pause have been, the store lets the task go on.
    pub(crate) fn requested(&self, requests: Requests) {
        if requests.rollback {
            self.want(Stop::RollBack);
        } else if requests.cancel {
            self.want(Stop::Cancel);
        } else if requests.pause {
            self.want(Stop::Pause);
        }
    }

    /// A stronger wish stays.
    pub(crate) fn want(&self, stop: Stop) {
        let code = STOPS.iter().position(|s| *s == stop).map_or(0, |i| i + 1);
        let code = u8::try_from(code).unwrap_or(u8::MAX);
        if self.stop.fetch_max(code, Ordering::AcqRel) < code {
            self.stopped.notify_waiters();
            // The grace period begins now, not at the watch's next look.
            self.parts.watch_now.notify_one();
        }
    }

    pub(crate) fn stop_wanted(&self) -> Option<Stop> {
        let code = usize::from(self.stop.load(Ordering::Acquire));
        code.checked_sub(1).and_then(|i| STOPS.get(i)).copied()
    }

    pub(crate) fn check_stop(&self) -> Result<(), TaskError> {
        self.stop_wanted().map_or(Ok(()), |stop| Err(TaskError::stop(stop)))
    }

    pub(crate) async fn stopping(&self) {
        self.until(|stop| stop.is_some()).await;
    }

    pub(crate) async fn cancelled(&self) {
        self.until(|stop| stop.is_some_and(|s| s != Stop::Pause)).await;
    }

    async fn until(&self, enough: impl Fn(Option<Stop>) -> bool) {
        loop {
            let told = self.stopped.notified();
            if enough(self.stop_wanted()) {
                return;
            }
            told.await;
        }
    }

    // Times.

    pub(crate) fn began(&self) -> Option<Duration> {
        instant(&self.began)
    }

    /// When the first of the tries under way must have ended.
    pub(crate) fn step_until(&self) -> Option<Duration> {
        self.tries_under_way.lock().iter().map(|t| t.until).min()
    }

    /// What the tries under way need to end after they were told to stop.
    pub(crate) fn needs_to_stop(&self) -> Duration {
        self.tries_under_way.lock().iter().map(|t| t.stopping).max().unwrap_or_default()
    }

    pub(crate) fn task_timeout(&self) -> Duration {
        let own = self.task.extras.as_ref().and_then(|e| e.timeouts?.task);
        own.unwrap_or(self.kind.rules.task_timeout)
    }

    /// The task's own word comes first, then the handler's, then the kind's.
    pub(crate) fn step_timeout(&self, handler: Option<Duration>) -> Duration {
        let own = self.task.extras.as_ref().and_then(|e| e.timeouts?.step);
        own.or(handler).unwrap_or(self.kind.rules.step_timeout)
    }

    // What the attempt writes.

    /// Writes a step and waits until it is in the store.
    pub(crate) async fn save(&self, step: &StepRef, tried: Tried) -> Result<(), TaskError> {
        let Tried { outcome, output, reason, class, took: duration, log } = tried;
        crash_point("step.before");
        let (caller, answer) = oneshot::channel();
        let room = self.parts.recorder.room().await.ok_or_else(fenced)?;
        let mut write = Write::new(self.lease);
        write.progress = self.take_due_progress();
        {
            // Versions reach the recorder in the order they are given.
            let mut pages = self.journal.lock();
            write.steps.push(StepRecord {
                name: step.name.clone(),
                outcome,
                version: pages.next_version(),
                output,
                reason,
                class,
                duration,
                log,
            });
            room.send(write, Some(caller));
        }
        match answer.await {
            Ok(Ok(written)) => {
                crash_point("step.recorded");
                self.requested(written.requests);
                if outcome.is_finished() {
                    self.journal.lock().finish();
                    self.parts.after_step(self, &step.name);
                }
                Ok(())
            }
            Ok(Err(refused)) if refused.kind() == windlass_core::ErrorKind::LeaseLost => {
                self.want(Stop::Fenced);
                Err(fenced())
            }
            Ok(Err(refused)) => {
                let message = format!("step `{}` was not saved: {refused}", step.name);
                Err(TaskError::class(Class::Persistence, message).at(step))
            }
            Err(_) => Err(fenced()),
        }
    }

    /// A write nobody waits for; `false`: the recorder is gone or full.
    fn send(&self, write: Write) -> bool {
        self.parts.recorder.try_send(write)
    }

    pub(crate) fn progressed(&self, progress: Progress) {
        self.progress.lock().latest = Some(progress);
        self.flush_progress();
    }

    /// Writes progress that waits, unless one was written just now.
    pub(crate) fn flush_progress(&self) {
        let now = self.parts.clock.uptime();
        // Sent under the lock: nothing may come after the end of the attempt.
        let mut pending = self.progress.lock();
        if self.stop_wanted() == Some(Stop::Fenced) || self.is_judged() {
            return;
        }
        if pending.is_fresh(now) {
            return;
        }
        if let Some(progress) = pending.latest.take() {
            let write = Write { progress: Some(progress.clone()), ..Write::new(self.lease) };
            if self.send(write) {
                pending.sent = Some(now);
            } else {
                pending.latest = Some(progress);
            }
        }
    }

    /// Progress that waits, unless one was written just now.
    fn take_due_progress(&self) -> Option<Progress> {
        let now = self.parts.clock.uptime();
        let mut pending = self.progress.lock();
        if pending.is_fresh(now) {
            return None;
        }
        let latest = pending.latest.take();
        if latest.is_some() {
            pending.sent = Some(now);
        }
        latest
    }

    fn take_progress(&self) -> Option<Progress> {
        let mut pending = self.progress.lock();
        let latest = pending.latest.take();
        if latest.is_some() {
            pending.sent = Some(self.parts.clock.uptime());
        }
        latest
    }

    // How it ends.

    /// The first to ask may settle.
    pub(crate) fn may_judge(&self) -> bool {
        let first = !self.judged.swap(true, Ordering::AcqRel);
        if first && let Some(began) = self.began() {
            let took = self.parts.clock.uptime().saturating_sub(began);
            self.took.store(micros(took), Ordering::Release);
        }
        first
    }

    pub(crate) fn is_judged(&self) -> bool {
        self.judged.load(Ordering::Acquire)
    }

    /// User code is gone; its resources go with it.
    pub(crate) fn end(&self) {
        if self.life.swap(ENDED, Ordering::AcqRel) == OVERRUN {
            self.parts.slots.count_overrun(-1);
        }
        self.drop_locals();
        // Whoever asked an attempt to stop waits for it to be gone. All others
        // say nothing: the watch looks at everything each time it is woken.
        if self.stop_wanted().is_some() && self.is_judged() {
            self.parts.watch_now.notify_one();
            self.parts.gone.notify_waiters();
        }
    }

    /// Drops the resources of the attempt; one that panics harms nobody.
    fn drop_locals(&self) {
        let locals = std::mem::take(&mut *self.locals.lock());
        for local in locals.into_values() {
            if catch_unwind(AssertUnwindSafe(|| drop(local))).is_err() {
                tracing::error!(task = %self.task.id, "a local panicked when it was dropped");
            }
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.life.load(Ordering::Acquire) == ENDED
    }

    /// It was judged without having ended: its slot stays taken.
    pub(crate) fn overruns(&self) {
        let order = Ordering::AcqRel;
        if self.life.compare_exchange(ALIVE, OVERRUN, order, Ordering::Acquire).is_ok() {
            self.parts.slots.count_overrun(1);
        }
    }

    /// Ready when the attempt is to be dropped.
    pub(crate) async fn aborted(&self) {
        self.aborted.notified().await;
    }

    /// Only whoever judged the attempt, or knows that it owns nothing, may call
    /// this: an end on its way to the recorder would be lost.
    pub(crate) fn abort_now(&self) {
        self.aborted.notify_one();
        let mut abort = self.abort.lock();
        abort.wanted = true;
        if let Some(handle) = &abort.handle {
            handle.abort();
        }
    }

    /// How to abort the attempt, which may have been wanted already.
    pub(crate) fn started(&self, handle: AbortHandle) {
        let mut abort = self.abort.lock();
        if abort.wanted {
            handle.abort();
        }
        abort.handle = Some(handle);
    }

    /// A refused end is answered by a failure, once.
    pub(crate) fn may_fail_again(&self) -> bool {
        !self.refused.swap(true, Ordering::AcqRel)
    }

    /// How long it ran until it was judged.
    pub(crate) fn took(&self) -> Duration {
        instant(&self.took).unwrap_or_default()
    }

    /// This attempt owns nothing any more; `false`: it had been judged before.
    pub(crate) fn fence(&self) -> bool {
        self.want(Stop::Fenced);
        let first = self.may_judge();
        if first && self.began().is_some() {
            self.overruns();
        }
        self.abort_now();
        first
    }

    pub(crate) fn retries_unknown(&self) -> bool {
        self.kind.rules.unknown_errors == UnknownErrors::Retry
    }

    pub(crate) fn settlement(&self, outcome: Outcome) -> Settlement {
        let own = self.task.extras.as_ref().and_then(|e| e.retry.as_ref());
        let retry: &dyn RetryPolicy = own.map_or(self.kind.rules.retry.as_ref(), |r| r);
        let rules = Rules { retry, unknown_errors: self.kind.rules.unknown_errors };
        let standing = &self.task.standing;
        let attempted = Attempted { state: standing.state, retries: standing.retries };
        let (now, jitter) = (self.parts.clock.now(), Jitter::new(rand::random()));
        // The policy may be the user's code, and the attempt must end all the same.
        let settled =
            catch_unwind(AssertUnwindSafe(|| settle(outcome, rules, attempted, now, jitter)));
        settled.unwrap_or_else(|panic| {
            let message = format!("the retry policy panicked: {}", panic_text(panic));
            let outcome = Outcome::Error(Cause::new(Class::Fatal, message));
            settle(outcome, Rules { retry: &Exponential::TASK, ..rules }, attempted, now, jitter)
        })
    }

    /// The write that ends the attempt.
    pub(crate) fn ending(&self, outcome: Outcome) -> Box<Write> {
        let mut write = Box::new(Write::settling(self.lease, self.settlement(outcome)));
        write.progress = self.take_progress();
        write
    }
}

fn fenced() -> TaskError {
    TaskError::stop(Stop::Fenced)
}

fn instant(cell: &AtomicU64) -> Option<Duration> {
    match cell.load(Ordering::Acquire) {
        0 => None,
        us => Some(Duration::from_micros(us)),
    }
}

fn micros(d: Duration) -> u64 {
    u64::try_from(d.as_micros()).unwrap_or(u64::MAX).max(1)
}

/// The attempt. The slot is given back when this future is gone, however it
/// went.
pub(crate) async fn attempt(run: Arc<Run>, slot: Slot) {
    let write = match begin(&run).await {
        Ok(()) => {
            let (outcome, skipped) = judge(&run, call(&run).await);
            last_word(&run, outcome, skipped)
        }
        Err(outcome) => last_word(&run, outcome, None),
    };
    // Before the next attempt can make its own.
    run.drop_locals();
    if let Some(write) = write {
        crash_point("settle.before");
        run.parts.recorder.end(run.clone(), write).await;
    }
    drop(slot);
}

/// Begins: a rollback nobody can do ends here, and so does a checkpoint that
/// does not fit. Otherwise the journal is filled.
async fn begin(run: &Arc<Run>) -> Result<(), Outcome> {
    run.began.store(micros(run.parts.clock.uptime()), Ordering::Release);
    if let Some(stop) = run.stop_wanted() {
        return Err(stopped(stop));
    }
    if run.alone {
        let begins = Box::new(Write { begins: true, ..Write::new(run.lease) });
        run.parts.recorder.write(begins).await.map_err(|_| Outcome::Release)?;
    }
    if run.task.standing.state == State::RollingBack {
        let reason = format!("kind `{}` has no compensations", run.kind.kind);
        return Err(Outcome::Fail { reason, step: None });
    }
    let Some(checkpoint) = run.checkpoint.lock().take() else { return Ok(()) };
    resume(run, &checkpoint).await
}

/// Validates what the task resumes from, drops what does not fit, and tells
/// how far it has come before its first step.
async fn resume(run: &Arc<Run>, checkpoint: &Checkpoint) -> Result<(), Outcome> {
    let plan = match &run.kind.body {
        Body::Plan(steps) => Some(run.task.steps().unwrap_or(steps)),
        Body::Typed(_) => None,
    };
    let finished: Vec<&str> = checkpoint.finished().map(|e| e.record.name.as_str()).collect();
    let keep = match validate(&finished, plan, run.kind.rules.on_mismatch) {
        Validated::Whole => finished.len(),
        Validated::Cut { keep, why } => {
            tracing::warn!(task = %run.task.id, keep, why, "checkpoint discarded");
            let cut = Box::new(Write { keep_steps: Some((keep, why)), ..Write::new(run.lease) });
            run.parts.recorder.write(cut).await.map_err(|_| Outcome::Release)?;
            keep
        }
        Validated::Held { why } => {
            tracing::warn!(task = %run.task.id, why, "checkpoint held");
            run.parts.meters.checkpoint(Checkpointing::Resume, Went::Refused, 1);
            return Err(Outcome::Pause { why: format!("checkpoint: {why}") });
        }
    };
    run.journal.resume(checkpoint, keep);
    run.parts.meters.checkpoint(Checkpointing::Resume, Went::Ok, 1);
    let done = keep as u64;
    let total = plan.map_or(0, |p| p.len() as u64).max(done);
    let fresh = Progress { done, total, note: None, data: None };
    let last = run.task.standing.progress.clone().unwrap_or(fresh);
    run.progressed(last);
    Ok(())
}

/// Calls user code; a panic in it is an error of this attempt.
async fn call(run: &Arc<Run>) -> Ran {
    let cx = Cx { run: run.clone() };
    let payload = run.task.payload.clone();
    let made = catch_unwind(AssertUnwindSafe(|| match &run.kind.body {
        Body::Typed(code) => code(payload, cx),
        Body::Plan(steps) => run_plan(cx, payload, steps.clone()),
    }));
    match made {
        Ok(work) => CatchPanic(work).await,
        Err(panic) => Err(panicked(panic)),
    }
}

struct CatchPanic(BoxFuture<'static, Ran>);

impl Future for CatchPanic {
    type Output = Ran;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ran> {
        let work = self.0.as_mut();
        catch_unwind(AssertUnwindSafe(|| work.poll(cx)))
            .unwrap_or_else(|panic| Poll::Ready(Err(panicked(panic))))
    }
}

fn panicked(panic: Box<dyn Any + Send>) -> TaskError {
    TaskError::class(Class::Panic, format!("the code panicked: {}", panic_text(panic)))
}

fn panic_text(panic: Box<dyn Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => match panic.downcast::<&str>() {
            Ok(text) => (*text).to_owned(),
            Err(other) => {
                // What a stranger's value does when it is dropped is not known.
                std::mem::forget(other);
                "no message".to_owned()
            }
        },
    }
}

/// From what the code said to an outcome. What people asked for meanwhile is not
/// weighed here: the settlement carries the alternatives, and the store picks.
fn judge(run: &Run, said: Ran) -> (Outcome, Option<String>) {
    let error = match said {
        Ok(output) => return (Outcome::Done { output }, None),
        Err(error) => error,
    };
    let step = run.journal.current();
    let outcome = match error.said {
        Said::Stop(stop) => stopped(stop),
        Said::Skip(reason) => return (Outcome::Done { output: None }, Some(reason)),
        Said::Fail { reason, step: at } => Outcome::Fail { reason, step: at.or(step) },
        Said::Snooze(delay) => Outcome::Snooze { until: run.parts.clock.now().plus(delay) },
        Said::Error(cause) => {
            let step = cause.step.clone().or(step);
            Outcome::Error(Cause { step, ..cause })
        }
    };
    (outcome, None)
}

fn stopped(stop: Stop) -> Outcome {
    match stop {
        Stop::Cancel => Outcome::Cancelled,
        // Goes back, and the store holds it there if the pause still stands.
        Stop::Pause => Outcome::Release,
        Stop::RollBack => Outcome::RollBack,
        Stop::Fenced => Outcome::Release,
    }
}

/// The write that ends the attempt; `None`: somebody else has judged it.
fn last_word(run: &Run, outcome: Outcome, skipped: Option<String>) -> Option<Box<Write>> {
    if run.stop_wanted() == Some(Stop::Fenced) || !run.may_judge() {
        return None;
    }
    let mut write = run.ending(outcome);
    if let Some(reason) = skipped {
        write.steps.push(StepRecord {
            name: run.kind.kind.as_str().to_owned(),
            outcome: StepOutcome::Skipped,
            version: run.journal.lock().next_version(),
            output: None,
            reason: Some(reason),
            class: None,
            duration: Duration::ZERO,
            log: None,
        });
    }
    Some(write)
}
