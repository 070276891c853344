//! Windlass as a library: hand it a task, and it is written down before the
//! answer, run step by step, and found where it was after a crash. The path of
//! data is one way, one file each: `submit` -> store -> `dispatch` -> `run` ->
//! `record` -> `events`; `renew`, `watch` and `upkeep` keep it going.
//!
//! ```no_run
//! use windlass::prelude::*;
//!
//! #[derive(Serialize, Deserialize)]
//! struct Greet { name: String }
//!
//! impl TaskKind for Greet {
//!     const NAME: &'static str = "greet";
//!     type Output = String;
//!     async fn run(self, cx: Cx) -> Result<String, TaskError> {
//!         cx.step("compose", || async { Ok::<_, TaskError>(format!("Hello {}", self.name)) }).await
//!     }
//! }
//!
//! # async fn run() -> windlass::Result<()> {
//! let engine = Windlass::open("sqlite://app.db").await?.register::<Greet>().start().await?;
//! let handle = engine.submit(Greet { name: "Ada".into() }).await?;
//! println!("{}", handle.result().await?);
//! engine.shutdown(std::time::Duration::from_secs(30)).await
//! # }
//! ```

mod clock;
mod control;
mod crash;
mod cx;
mod dispatch;
mod engine;
mod events;
mod handle;
mod held;
mod journal;
mod kinds;
mod meters;
mod parts;
mod plan;
mod record;
mod registry;
pub mod remote;
mod renew;
mod run;
mod said;
mod settings;
mod slots;
mod submit;
pub mod testing;
mod trace;
mod tried;
mod upkeep;
mod wake;
mod watch;

pub use clock::SystemClock;
pub use control::Status;
#[cfg(feature = "crash-points")]
pub use crash::CRASH_POINTS;
pub use cx::Cx;
pub use engine::{Builder, Engine, Windlass, shutdown_signal};
pub use events::Subscription;
pub use handle::{Answer, Handle};
pub use kinds::KindInfo;
pub use meters::names as metric_names;
pub use registry::{StepCall, StepHandler, TaskKind};
pub use remote::Workers;
pub use said::{TaskError, bad_output, fail, fatal, retryable, skip, snooze, unknown};
pub use settings::{KindOptions, Pool, QUEUE_SLOTS, SLOTS_MAX, Settings, UnknownKinds};
pub use submit::{Submission, SubmissionIn, Uncommitted};
pub use tried::StepLog;
pub use windlass_backends::CallerTx;
pub use windlass_core as core;
pub use windlass_core::checkpoint::OnMismatch;
pub use windlass_core::children::Policy;
pub use windlass_core::clock::{Clock, Timestamp};
pub use windlass_core::control::{Changed, TaskChange};
pub use windlass_core::event::{Event, EventName, Position};
pub use windlass_core::id::{NodeId, TaskId};
pub use windlass_core::json::Json;
pub use windlass_core::retry::{Exponential, Jitter, RetryPolicy};
pub use windlass_core::settle::UnknownErrors;
pub use windlass_core::state::State;
pub use windlass_core::store::{
    Actor, AuditRow, DeadLetter, NodeChange, NodeInfo, Page, Query, QueueChange, QueueInfo, Reader,
    Stats,
};
pub use windlass_core::task::{Kind, Progress, QueueName, Task, trace_id};
pub use windlass_core::{Code, Error, ErrorKind, Result};

/// For programs that share the engine's SQLite file; see [`Engine::submit_in`].
#[cfg(feature = "sqlite")]
pub mod sqlite {
    pub use rusqlite;
    pub use windlass_backends::store::sqlite::take_turns;
}

/// What most programs need.
pub mod prelude {
    pub use crate::{
        Cx, Engine, Exponential, Handle, KindOptions, Pool, StepCall, TaskError, TaskKind,
        Windlass, fail, fatal, retryable, skip, snooze,
    };
    pub use serde::{Deserialize, Serialize};
}

/// The README and the guide are compiled and run like code.
#[cfg(doctest)]
mod prose {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/guide/first-task.md")]
    struct FirstTask;
    #[doc = include_str!("../../../docs/guide/adding-a-kind.md")]
    struct AddingAKind;
    #[doc = include_str!("../../../docs/guide/retries-and-timeouts.md")]
    struct RetriesAndTimeouts;
    #[cfg(feature = "sqlite")]
    #[doc = include_str!("../../../docs/guide/at-least-once.md")]
    struct AtLeastOnce;
}
