//! What user code says, and the words for why a task failed. An [`Outcome`] is
//! only a statement; `settle.rs` turns it into what is written. Nothing here
//! knows retries, time or stores.

use crate::children::Then;
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::json::Json;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($variant),+ }

        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            pub const fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = Error;
            fn from_str(text: &str) -> Result<Self> {
                $name::ALL.iter().copied().find(|v| v.as_str() == text).ok_or_else(|| {
                    Error::invalid(stringify!($name), format!("`{text}` is not one of its words"))
                })
            }
        }
    };
}

words!(
    /// Why a task failed for good.
    Reason {
        Fatal = "fatal",
        Exhausted = "exhausted",
        Timeout = "timeout",
        Expired = "expired",
        Undecodable = "undecodable",
        Persistence = "persistence",
        Poisoned = "poisoned",
        Children = "children",
        Rollback = "rollback",
    }
);

words!(
    /// What sort of error it was.
    Class {
        Retryable = "retryable",
        Fatal = "fatal",
        Unknown = "unknown",
        Timeout = "timeout",
        Panic = "panic",
        Lost = "lost",
        Output = "output",
        Persistence = "persistence",
    }
);

/// Longest error message kept; the rest is cut.
pub const MESSAGE_MAX: usize = 2048;

/// Which step an error belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct StepRef {
    pub name: String,
    pub index: u32,
}

/// An error from user code, or from running it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Hash)]
pub struct TaskError {
    pub class: Class,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<StepRef>,
    /// The other side said when to come back (`Retry-After`).
    #[serde(skip)]
    pub retry_after: Option<Duration>,
    /// A reason more precise than the class gives.
    #[serde(skip)]
    pub reason: Option<Reason>,
}

impl TaskError {
    pub fn new(class: Class, message: impl Into<String>) -> Self {
        TaskError {
            class,
            message: cap(message.into()),
            detail: None,
            step: None,
            retry_after: None,
            reason: None,
        }
    }

    pub fn at_step(mut self, name: &str, index: u32) -> Self {
        self.step = Some(StepRef { name: name.to_owned(), index });
        self
    }
}

fn cap(mut text: String) -> String {
    if text.len() > MESSAGE_MAX {
        let end = (0..=MESSAGE_MAX).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}

/// The latest error of a task, and, when it failed for good, the reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Hash)]
pub struct Failure {
    /// Absent while the task may still succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    #[serde(flatten)]
    pub error: TaskError,
}

impl Failure {
    pub fn ended(reason: Reason, error: TaskError) -> Self {
        Failure { reason: Some(reason), error }
    }

    pub fn latest(error: TaskError) -> Self {
        Failure { reason: None, error }
    }
}

/// What a task that is not running waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Hash)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum WaitingOn {
    /// Children, and what happens when the last has ended.
    Children {
        then: Then,
    },
    Signal {
        name: String,
    },
    Limit {
        name: String,
        until: Timestamp,
    },
    Handler,
    Time {
        until: Timestamp,
    },
    /// Held by a person or by a checkpoint that no longer fits.
    Person {
        why: String,
    },
}

/// What an attempt says when it ends.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Every step is done or skipped.
    Done {
        output: Option<Json>,
    },
    /// User code gave up on purpose.
    Fail {
        reason: String,
        step: Option<StepRef>,
    },
    Error(TaskError),
    /// The whole attempt took longer than the task's timeout.
    Timeout {
        step: Option<StepRef>,
    },
    Snooze {
        until: Timestamp,
    },
    /// A limit gave this instant to the task.
    Limited {
        name: String,
        until: Timestamp,
    },
    /// Waits for children or a signal and holds no slot.
    Wait(WaitingOn),
    /// Shutdown, or claimed but never begun: nothing is burnt.
    Release,
    /// Stopped at a step boundary because a person, or the checkpoint, said so.
    Pause {
        why: String,
    },
    /// Stopped because a cancel was seen.
    Cancelled,
    /// Stopped at a boundary to undo what was done.
    RollBack,
    /// Every compensation has run.
    RolledBack,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_capped_on_a_character() {
        let error = TaskError::new(Class::Unknown, "é".repeat(MESSAGE_MAX));
        assert!(error.message.len() <= MESSAGE_MAX + '…'.len_utf8());
        assert!(error.message.ends_with('…'));
    }

    #[test]
    fn failures_read_back_with_their_words() {
        let failure = Failure::ended(
            Reason::Exhausted,
            TaskError::new(Class::Timeout, "late").at_step("scan", 2),
        );
        let text = serde_json::to_string(&failure).unwrap();
        assert!(text.contains(r#""reason":"exhausted","class":"timeout""#), "{text}");
        assert_eq!(serde_json::from_str::<Failure>(&text).unwrap(), failure);
        for word in Reason::ALL {
            assert_eq!(word.as_str().parse::<Reason>().unwrap(), *word);
        }
    }
}
