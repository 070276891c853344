//! What user code holds while it runs: named steps that are remembered,
//! progress, cancellation, resources. A [`Cx`] is a cheap handle on the attempt;
//! clones are the same attempt. It records through the journal and knows
//! nothing of stores, leases or other tasks.

use crate::run::Run;
use crate::said::{Said, Stop, TaskError};
use crate::trace::step_span;
use crate::tried::{Limit, Tried, Try};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::any::{Any, TypeId};
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tracing::Instrument;
use windlass_core::checkpoint::StepOutcome;
use windlass_core::id::TaskId;
use windlass_core::json::Json;
use windlass_core::outcome::{Class, StepRef, TaskError as Cause};
use windlass_core::retry::{Exponential, Jitter};
use windlass_core::task::{Progress, Task};

/// The longest wish of another side that is waited for in place.
const IN_PLACE_MAX: Duration = Exponential::STEP.cap;

/// The running attempt, as user code sees it: its steps, its progress, its
/// resources, and whether it should stop. Clones are the same attempt.
#[derive(Clone)]
pub struct Cx {
    pub(crate) run: Arc<Run>,
}

impl fmt::Debug for Cx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cx").field("task", &self.run.task.id).finish_non_exhaustive()
    }
}

impl Cx {
    /// The task's id, as the submitter got it.
    pub fn id(&self) -> TaskId {
        self.run.task.id
    }

    /// The task as it was when this attempt began.
    pub fn task(&self) -> &Task {
        &self.run.task
    }

    /// How many times a node took this task, this time included. Retries,
    /// crashes, snoozes and requeues all count.
    pub fn attempt(&self) -> u32 {
        self.run.task.standing.attempt
    }

    /// Grows with each claim of the task: pass it to systems that can refuse a
    /// writer that was overtaken.
    pub fn fencing_token(&self) -> u64 {
        self.run.lease.token.0
    }

    /// The same for every try of this step in this run: pass it to systems that
    /// do a request with a known key only once.
    pub fn idempotency_key(&self, step: &str) -> String {
        format!("{}:{}:{step}", self.run.task.id, self.run.task.standing.run)
    }

    /// Does `work` and remembers what it gave before going on. When the task runs
    /// again after a crash or a failure, a step that was recorded answers at
    /// once, by its name, without calling `work`. A name can be used once in a
    /// run.
    ///
    /// `work` is called again in place when it fails, by the kind's step retry;
    /// each try is limited by the kind's step timeout. A node that dies after
    /// `work` and before the record leads to one more call, so what it does
    /// outside must bear repetition: see [`Cx::idempotency_key`].
    ///
    /// Errors must be returned from `run` (usually by `?`): one that says that
    /// the task was cancelled, paused or lost comes out of here too.
    ///
    /// ```
    /// # use windlass::prelude::*;
    /// # async fn run(cx: Cx, url: String) -> Result<u64, TaskError> {
    /// // The error type of a bare `async` block has to be named once.
    /// let size = cx.step("measure", || async { Ok::<_, TaskError>(url.len() as u64) }).await?;
    /// # Ok(size) }
    /// ```
    pub async fn step<T, E, F, Fut>(
        &self,
        name: impl Into<String>,
        mut work: F,
    ) -> Result<T, TaskError>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Result<T, E>>,
        T: Serialize + DeserializeOwned,
        E: Into<TaskError>,
    {
        let limit = Limit::sharp(self.run.step_timeout(None));
        self.step_within(name.into(), limit, |_| work()).await
    }

    pub(crate) async fn step_within<T, E, F, Fut>(
        &self,
        name: String,
        limit: Limit,
        work: F,
    ) -> Result<T, TaskError>
    where
        F: FnMut(&Try) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        T: Serialize + DeserializeOwned,
        E: Into<TaskError>,
    {
        let run = &self.run;
        run.check_stop()?;
        let (step, recorded) = run.journal.enter(name)?;
        if let Some(output) = recorded {
            return decode(&step, output.as_ref());
        }
        let _inside = run.journal.inside(&step);
        let span = step_span(&step.name);
        self.tries(&step, limit, work).instrument(span).await
    }

    /// Tries a step until it is recorded, or may not be tried again.
    async fn tries<T, E, F, Fut>(
        &self,
        step: &StepRef,
        limit: Limit,
        mut work: F,
    ) -> Result<T, TaskError>
    where
        F: FnMut(&Try) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        T: Serialize + DeserializeOwned,
        E: Into<TaskError>,
    {
        let run = &self.run;
        let mut retry = 0;
        loop {
            let began = run.parts.clock.uptime();
            let this = Try::default();
            let said = run.within_step(limit, &this, async { work(&this).await }).await;
            let took = run.parts.clock.uptime().saturating_sub(began);
            let tried = |outcome, output, reason, class| {
                let log = this.take_log();
                run.save(step, Tried { outcome, output, reason, class, took, log })
            };
            let error = match said {
                Ok(Ok(value)) => {
                    let output = Json::of(&value).map_err(|e| unserialisable(step, &e))?;
                    reads_back::<T>(step, &output)?;
                    tried(StepOutcome::Done, Some(output), None, None).await?;
                    return Ok(value);
                }
                Ok(Err(error)) => error.into().at(step),
                Err(timeout) => timeout.at(step),
            };
            let cause = match error.said {
                Said::Skip(reason) => {
                    tried(StepOutcome::Skipped, None, Some(reason), None).await?;
                    return decode(step, None);
                }
                Said::Error(cause) => cause,
                Said::Fail { ref reason, .. } => {
                    let (why, class) = (Some(reason.clone()), Some(Class::Fatal));
                    tried(StepOutcome::Failed, None, why, class).await?;
                    return Err(error);
                }
                Said::Snooze(_) | Said::Stop(_) => return Err(error),
            };
            let why = Some(cause.message.clone());
            tried(StepOutcome::Failed, None, why, Some(cause.class)).await?;
            retry += 1;
            match self.step_delay(retry, &cause) {
                Some(delay) => self.pause_between_tries(delay).await?,
                None => return Err(TaskError { said: Said::Error(cause) }),
            }
        }
    }

    /// How long until the next try of a failed step, if there is one.
    fn step_delay(&self, retry: u32, cause: &Cause) -> Option<Duration> {
        let rules = &self.run.kind.rules;
        let again = match cause.class {
            Class::Retryable | Class::Timeout => cause.reason.is_none(),
            Class::Unknown => self.run.retries_unknown() && cause.reason.is_none(),
            _ => false,
        };
        if !again {
            return None;
        }
        // A long wait belongs into the store, where it holds no slot.
        if cause.retry_after.is_some_and(|wish| wish > IN_PLACE_MAX) {
            return None;
        }
        let jitter = Jitter::new(rand::random());
        let delay = rules.step_retry.delay(retry, cause, jitter)?;
        Some(delay.max(cause.retry_after.unwrap_or_default()))
    }

    /// Cancel and pause take effect here, not after the delay.
    async fn pause_between_tries(&self, delay: Duration) -> Result<(), TaskError> {
        let run = &self.run;
        let until = run.parts.clock.uptime().saturating_add(delay);
        tokio::select! {
            () = run.parts.clock.sleep_until(until) => {}
            () = run.stopping() => {}
        }
        run.check_stop()
    }

    /// A resource of this attempt (a connection, a scratch folder): made on first
    /// use, kept for the steps and step retries that follow, dropped when the
    /// attempt ends, never saved. There is one of each type.
    pub async fn local<T, E, F, Fut>(&self, make: F) -> Result<Arc<T>, TaskError>
    where
        T: Send + Sync + 'static,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: Into<TaskError>,
    {
        let key = TypeId::of::<T>();
        let kept = self.run.locals.lock().get(&key).cloned();
        if let Some(kept) = kept.and_then(|k| k.downcast::<T>().ok()) {
            return Ok(kept);
        }
        let made: Arc<dyn Any + Send + Sync> = Arc::new(make().await.map_err(Into::into)?);
        // Two steps at once may both have made one: the first stays.
        let kept = self.run.locals.lock().entry(key).or_insert(made).clone();
        kept.downcast().map_err(|_| TaskError::class(Class::Fatal, "a local of another type"))
    }

    /// What the program gave the engine with [`crate::Builder::state`]; shared by
    /// all tasks. A type that was not given is a fatal error.
    pub fn state<T: Send + Sync + 'static>(&self) -> Result<Arc<T>, TaskError> {
        self.run.parts.registry.state::<T>().ok_or_else(|| {
            let name = std::any::type_name::<T>();
            TaskError::class(Class::Fatal, format!("no state `{name}`; add it with .state(..)"))
        })
    }

    /// How far the task has come. Cheap: at most two a second are written, the
    /// last one always is.
    pub fn progress(&self, done: usize, total: usize) {
        self.progress_with(Progress {
            done: done as u64,
            total: total as u64,
            note: None,
            data: None,
        });
    }

    /// Progress with a note or data.
    pub fn progress_with(&self, progress: Progress) {
        self.run.progressed(progress);
    }

    /// Ready when the task should stop: it was cancelled, or its node lost it.
    /// Code that waits for long should wait for this as well.
    pub async fn cancelled(&self) {
        self.run.cancelled().await;
    }

    /// A boundary without a step: an error when the attempt should end here
    /// (cancelled, paused, lost), to be passed on with `?`.
    pub fn check(&self) -> Result<(), TaskError> {
        self.run.check_stop()
    }

    /// Whether [`Cx::cancelled`] is ready.
    pub fn is_cancelled(&self) -> bool {
        matches!(self.run.stop_wanted(), Some(Stop::Cancel | Stop::RollBack | Stop::Fenced))
    }
}

fn decode<T: DeserializeOwned>(step: &StepRef, output: Option<&Json>) -> Result<T, TaskError> {
    let text = output.map_or("null", Json::as_str);
    serde_json::from_str(text).map_err(|e| {
        let message = match output {
            Some(_) => {
                format!("what step `{}` recorded does not fit its type any more: {e}", step.name)
            }
            None => format!("step `{}` was skipped, and its type cannot be null", step.name),
        };
        TaskError::class(Class::Fatal, message).at(step)
    })
}

/// What would not read back after a crash is refused before it is saved: a
/// number that is none (`NaN`) is written as `null`, for one.
fn reads_back<T: DeserializeOwned>(step: &StepRef, output: &Json) -> Result<(), TaskError> {
    let read: Result<T, _> = serde_json::from_str(output.as_str());
    read.map(drop).map_err(|e| {
        let message = format!("the output of step `{}` does not read back: {e}", step.name);
        TaskError::class(Class::Persistence, message).at(step)
    })
}

fn unserialisable(step: &StepRef, error: &windlass_core::Error) -> TaskError {
    let message = format!("the output of step `{}` cannot be saved: {error}", step.name);
    TaskError::class(Class::Persistence, message).at(step)
}
