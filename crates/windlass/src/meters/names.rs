//! The names of everything the engine measures, and one line about each for the
//! recorder. An exporter that wants its own buckets, or a server that adds to a
//! counter what only the store knows, takes the names from here. What is
//! measured when is in `pair.rs` and `store.rs`.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

/// Counter `{kind, queue}`: tasks that were newly written. A replayed key or a
/// unique task that exists already is none; a rerun is one.
pub const TASKS_SUBMITTED: &str = "windlass_tasks_submitted_total";
/// Counter `{kind, queue, outcome}`: attempts of this node that ended, by the
/// state the task went to, or `lost` with their lease.
pub const TASK_ATTEMPTS: &str = "windlass_task_attempts_total";
/// Histogram `{kind, queue, outcome}`: how long one attempt ran. As many samples
/// as attempts; one that never began took no time.
pub const TASK_RUN_DURATION: &str = "windlass_task_run_duration_seconds";
/// Histogram `{kind, queue}`: from being due to being claimed by this node. What
/// was taken over from a dead node has waited before, and is left out.
pub const TASK_WAIT_DURATION: &str = "windlass_task_wait_duration_seconds";
/// Histogram `{kind, queue, outcome}`: from the submission to the end, of tasks
/// that an attempt of this node ended or that were complete when submitted.
pub const TASK_TOTAL_DURATION: &str = "windlass_task_total_duration_seconds";
/// Counter `{kind, queue, reason}`: retries that attempts of this node burnt, by
/// the class of the error.
pub const TASK_RETRIES: &str = "windlass_task_retries_total";
/// Counter `{kind, queue, reason}`: tasks that failed for good in an attempt of
/// this node. What the store fails by itself is not in it, since no call tells
/// of it: `expired`, `poisoned`, `children`, and `rollback` by dead nodes. Those
/// can be counted from the events `dead_letter.entered`.
pub const DEAD_LETTERS_ENTERED: &str = "windlass_dead_letters_entered_total";
/// Counter `{operation, outcome}`: `save` counts steps (failed tries too),
/// `resume` attempts that began from a checkpoint, `discard` checkpoints that
/// were cut; `ok` or `refused`.
pub const CHECKPOINT_OPERATIONS: &str = "windlass_checkpoint_operations_total";
/// Counter `{queue}`: tasks this node took over because the lease of the node
/// that held them had ended. What this node itself loses is an attempt with the
/// outcome `lost`, so across nodes nothing is counted twice.
pub const LEASES_EXPIRED: &str = "windlass_leases_expired_total";
/// Counter: writes that came too late and were refused.
pub const STALE_WRITES_REFUSED: &str = "windlass_stale_writes_refused_total";
/// Counter `{store, operation, outcome}`: answered calls of the store; `ok` or
/// the kind of the error. A call nobody waits for any more is not counted.
pub const STORE_OPERATIONS: &str = "windlass_store_operations_total";
/// Histogram `{store, operation}`: how long the store took to answer.
pub const STORE_OPERATION_DURATION: &str = "windlass_store_operation_duration_seconds";
/// Gauge `{version}`: always 1.
pub const BUILD_INFO: &str = "windlass_build_info";

/// Tells the recorder what each name means.
pub(super) fn describe() {
    describe_counter!(TASKS_SUBMITTED, Unit::Count, "Tasks that were newly written");
    describe_counter!(TASK_ATTEMPTS, Unit::Count, "Attempts that ended, by what the task became");
    describe_histogram!(TASK_RUN_DURATION, Unit::Seconds, "How long one attempt ran");
    describe_histogram!(TASK_WAIT_DURATION, Unit::Seconds, "From being due to being started");
    describe_histogram!(TASK_TOTAL_DURATION, Unit::Seconds, "From the submission to the end");
    describe_counter!(TASK_RETRIES, Unit::Count, "Retries burnt, by the class of the error");
    describe_counter!(DEAD_LETTERS_ENTERED, Unit::Count, "Tasks that failed for good");
    describe_counter!(CHECKPOINT_OPERATIONS, Unit::Count, "Steps saved, resumes, discards");
    describe_counter!(LEASES_EXPIRED, Unit::Count, "Tasks taken over from nodes that died");
    describe_counter!(STALE_WRITES_REFUSED, Unit::Count, "Writes that came too late");
    describe_counter!(STORE_OPERATIONS, Unit::Count, "Answered calls of the store");
    describe_histogram!(STORE_OPERATION_DURATION, Unit::Seconds, "How long the store took");
    describe_gauge!(BUILD_INFO, "The version that runs; always 1");
}
