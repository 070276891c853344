//! A store that measures the one it stands before: each answered call is
//! counted by its outcome and timed. It changes nothing about the calls; the
//! engine and its readers see only this one.

use super::names;
use metrics::{Counter, Histogram, counter, histogram};
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use windlass_core::access::AccessToken;
use windlass_core::batch::Batch;
use windlass_core::checkpoint::Checkpoint;
use windlass_core::children::Totals;
use windlass_core::clock::{Clock, Now, Timestamp};
use windlass_core::control::Changed;
use windlass_core::error::{Code, Error, Result};
use windlass_core::event::{Event, Position};
use windlass_core::id::{BatchId, TaskId};
use windlass_core::json::Json;
use windlass_core::limits::Limit;
use windlass_core::schedule::Schedule;
use windlass_core::store::{
    Actor, Attempt, AuditRow, Batches, BoxFuture, Capabilities, Change, Claim, Claimed, DeadLetter,
    Job, Joined, Migrated, NewNode, NodeInfo, OutboxOp, OutboxRow, Page, Query, QueueInfo, Reader,
    Renewal, Renewed, Setting, Stats, Store, Submit, Submitted, Upkept, Write, Written,
};
use windlass_core::task::{Kind, QueueName, Task};

pub(crate) struct Metered {
    inner: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// By the operation's place.
    answered: [OnceLock<(Counter, Histogram)>; Operation::COUNT],
}

impl fmt::Debug for Metered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl Metered {
    pub(crate) fn new(inner: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        Metered { inner, clock, answered: [const { OnceLock::new() }; Operation::COUNT] }
    }

    fn timed<'a, T: Send + 'a>(
        &'a self,
        operation: Operation,
        call: BoxFuture<'a, Result<T>>,
    ) -> BoxFuture<'a, Result<T>> {
        Box::pin(async move {
            let began = self.clock.uptime();
            let answer = call.await;
            let took = self.clock.uptime().saturating_sub(began);
            self.answered(operation, took, answer.as_ref().err());
            answer
        })
    }

    fn answered(&self, operation: Operation, took: Duration, error: Option<&Error>) {
        let (store, name) = (self.inner.capabilities().name, operation.as_str());
        let count = |outcome| counter!(names::STORE_OPERATIONS, "store" => store, "operation" => name, "outcome" => outcome);
        let (went_well, times) = self.answered[operation as usize].get_or_init(|| {
            let labels = [("store", store), ("operation", name)];
            (count("ok"), histogram!(names::STORE_OPERATION_DURATION, &labels))
        });
        times.record(took);
        match error {
            None => went_well.increment(1),
            // A queue that is full is the store's word, not its failure.
            Some(error) if error.code() == Code::QueueFull => count("refused").increment(1),
            Some(error) => count(error.kind().as_str()).increment(1),
        }
    }
}

/// The calls of both traits: each is passed on and measured under its own name.
/// What stands behind `#` is no call, and is only passed on.
macro_rules! calls {
    ($($of:ident { $(# $plain:ident() -> $gives:ty;)* $($name:ident($($arg:ident: $type:ty),*) -> $answer:ty;)+ })+) => {
        #[allow(non_camel_case_types)] // named as the calls are
        #[derive(Debug, Clone, Copy)]
        enum Operation { $($($name,)+)+ }

        impl Operation {
            const COUNT: usize = [$($(stringify!($name),)+)+].len();

            fn as_str(self) -> &'static str {
                match self { $($(Operation::$name => stringify!($name),)+)+ }
            }
        }

        $(impl $of for Metered {
            $(fn $plain(&self) -> $gives {
                self.inner.$plain()
            })*
            $(fn $name(&self, $($arg: $type),*) -> BoxFuture<'_, Result<$answer>> {
                self.timed(Operation::$name, self.inner.$name($($arg),*))
            })+
        })+
    };
}

calls! {
    Store {
        # capabilities() -> Capabilities;
        migrate() -> Migrated;
        join(node: NewNode, now: Now) -> Joined;
        submit(batch: Submit, now: Now) -> Vec<Submitted>;
        claim(claim: Claim, now: Now) -> Vec<Claimed>;
        renew(renewal: Renewal, now: Now) -> Renewed;
        record(writes: Vec<Write>, now: Now) -> Vec<Result<Written>>;
        change(change: Change, by: Actor, now: Now) -> Vec<Result<Changed>>;
        upkeep(job: Job, limit: usize, now: Now) -> Upkept;
        put(setting: Setting, by: Actor, now: Now) -> ();
        outbox(op: OutboxOp, now: Now) -> Vec<OutboxRow>;
    }
    Reader {
        task(id: TaskId) -> Option<Task>;
        tasks(query: Query, now: Timestamp) -> Page<Task>;
        checkpoint(id: TaskId) -> Option<Checkpoint>;
        attempts(id: TaskId) -> Vec<Attempt>;
        children(parent: TaskId) -> Totals;
        dead_letters(query: Query, now: Timestamp) -> Page<DeadLetter>;
        events(after: Position, limit: usize) -> Vec<Event>;
        queues() -> Vec<QueueInfo>;
        ready_kinds() -> Vec<(QueueName, Kind)>;
        nodes() -> Vec<NodeInfo>;
        next_due() -> Option<Timestamp>;
        audit(before: Option<i64>, limit: usize) -> Vec<AuditRow>;
        setting(key: String) -> Option<Json>;
        schedules() -> Vec<Schedule>;
        limits() -> Vec<Limit>;
        tokens() -> Vec<AccessToken>;
        batch(id: BatchId) -> Option<Batch>;
        batches(which: Batches, before: Option<BatchId>, limit: usize) -> Vec<Batch>;
        stats() -> Stats;
    }
}
