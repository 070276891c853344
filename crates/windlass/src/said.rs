//! What user code says when it does not return a value. A [`TaskError`] is made
//! by a constructor that names what should follow ([`fatal`], [`retryable`],
//! [`snooze`], [`skip`], [`fail`]) or by `?` from any error, which then counts as
//! unknown. `run.rs` turns it into an outcome; nothing here decides.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;
use windlass_core::outcome::{Class, Reason, StepRef, TaskError as Cause};

/// Why a step or a task ended without a value.
///
/// Made by [`retryable`], [`fatal`], [`unknown`], [`bad_output`], [`fail`],
/// [`skip`] or [`snooze`], or by `?` from any error. It is not an error type itself, which is
/// what lets `?` take every other one.
pub struct TaskError {
    pub(crate) said: Said,
}

#[derive(Clone)]
pub(crate) enum Said {
    Error(Cause),
    Fail {
        reason: String,
        step: Option<StepRef>,
    },
    Skip(String),
    Snooze(Duration),
    /// Not the code's wish: the engine wants the attempt to end here.
    Stop(Stop),
}

/// Why the engine ends an attempt at a boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    Cancel,
    Pause,
    RollBack,
    /// This attempt no longer owns its task.
    Fenced,
}

/// The error cannot go away by itself: the task fails at once, without a retry,
/// and waits in the dead-letter list.
pub fn fatal(message: impl fmt::Display) -> TaskError {
    TaskError::of(Class::Fatal, message)
}

/// The error may go away: the step is tried again by the kind's step retry, then
/// the task by its retry policy.
pub fn retryable(message: impl fmt::Display) -> TaskError {
    TaskError::of(Class::Retryable, message)
}

/// What came out is not what a step may give: the task fails at once, and the
/// class `output` says that the code is to blame, not the work.
pub fn bad_output(message: impl fmt::Display) -> TaskError {
    TaskError::of(Class::Output, message)
}

/// An error about which nothing is known, from anything that can be shown (for
/// error types that `?` cannot convert).
pub fn unknown(message: impl fmt::Display) -> TaskError {
    TaskError::of(Class::Unknown, message)
}

/// Gives up on purpose: nothing broke, and the task fails with this reason. It
/// ends like [`fatal`], which is for errors.
pub fn fail(reason: impl fmt::Display) -> TaskError {
    TaskError { said: Said::Fail { reason: reason.to_string(), step: None } }
}

/// Not needed this time: recorded with the reason and counted as done. The
/// value of a skipped step is `null`, so its type must be able to be that:
/// `()`, `Option<T>` or a JSON value. Returned from `run` itself it completes the
/// task, and the same holds for the type of the task's output.
pub fn skip(reason: impl fmt::Display) -> TaskError {
    TaskError { said: Said::Skip(reason.to_string()) }
}

/// Later: the task gives its slot back and comes again after `delay`. Finished
/// steps stay finished, and no retry is burnt.
pub fn snooze(delay: Duration) -> TaskError {
    TaskError { said: Said::Snooze(delay) }
}

impl TaskError {
    fn of(class: Class, message: impl fmt::Display) -> Self {
        TaskError { said: Said::Error(Cause::new(class, message.to_string())) }
    }

    pub(crate) fn class(class: Class, message: impl Into<String>) -> Self {
        TaskError { said: Said::Error(Cause::new(class, message)) }
    }

    pub(crate) fn stop(stop: Stop) -> Self {
        TaskError { said: Said::Stop(stop) }
    }

    pub(crate) fn undecodable(message: impl Into<String>) -> Self {
        let cause =
            Cause { reason: Some(Reason::Undecodable), ..Cause::new(Class::Fatal, message) };
        TaskError { said: Said::Error(cause) }
    }

    /// Not before `delay` has passed, as the other side wished (`Retry-After`).
    /// The policy's own delay counts when it is longer, and the policy still says
    /// whether there is a retry at all. Only errors that are retried heed it.
    pub fn after(mut self, delay: Duration) -> Self {
        if let Said::Error(cause) = &mut self.said {
            cause.retry_after = Some(delay);
        }
        self
    }

    /// More about the error than fits its one line.
    pub fn detail(mut self, detail: impl fmt::Display) -> Self {
        if let Said::Error(cause) = &mut self.said {
            cause.detail = Some(detail.to_string());
        }
        self
    }

    /// The same error in other words: `words` is given each text in it.
    pub fn reworded(mut self, words: impl Fn(&str) -> String) -> Self {
        match &mut self.said {
            Said::Error(cause) => {
                cause.message = words(&cause.message);
                cause.detail = cause.detail.as_deref().map(&words);
            }
            Said::Fail { reason, .. } | Said::Skip(reason) => *reason = words(reason),
            Said::Snooze(_) | Said::Stop(_) => {}
        }
        self
    }

    /// Names the step unless it is named already.
    pub(crate) fn at(mut self, step: &StepRef) -> Self {
        match &mut self.said {
            Said::Error(cause) => cause.step.get_or_insert_with(|| step.clone()),
            Said::Fail { step: at, .. } => at.get_or_insert_with(|| step.clone()),
            Said::Skip(_) | Said::Snooze(_) | Said::Stop(_) => return self,
        };
        self
    }
}

/// `?` on any error. Its type is lost, so it counts as unknown: retried, unless
/// the kind says otherwise.
impl<E: StdError + Send + Sync + 'static> From<E> for TaskError {
    fn from(error: E) -> Self {
        let mut causes = vec![];
        let mut next = error.source();
        while let Some(cause) = next {
            causes.push(cause.to_string());
            next = cause.source();
        }
        let mut cause = Cause::new(Class::Unknown, error.to_string());
        cause.detail = (!causes.is_empty()).then(|| causes.join(": "));
        TaskError { said: Said::Error(cause) }
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.said {
            Said::Error(cause) => f.write_str(&cause.message),
            Said::Fail { reason, .. } => f.write_str(reason),
            Said::Skip(reason) => write!(f, "skipped: {reason}"),
            Said::Snooze(delay) => write!(f, "again in {delay:?}"),
            Said::Stop(stop) => write!(f, "stopped: {stop:?}"),
        }
    }
}

impl fmt::Debug for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.said {
            Said::Error(cause) => write!(f, "{} ({})", cause.message, cause.class),
            _ => write!(f, "{self}"),
        }
    }
}
