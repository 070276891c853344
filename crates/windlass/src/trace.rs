//! What log lines about an attempt carry: a span for the attempt, one for each
//! step inside it, and one line when it has ended. Lines from inside handlers
//! get the spans by themselves; lines of the engine name the attempt's span as
//! their parent. When nobody listens nothing is made.

use crate::run::Run;
use std::time::Duration;
use tracing::Span;
use windlass_core::lease::LeaseKey;
use windlass_core::settle::Settlement;
use windlass_core::state::State;
use windlass_core::task::{Task, trace_id};

/// The span of one attempt.
pub(crate) fn task_span(task: &Task, lease: &LeaseKey) -> Span {
    let extras = task.extras.as_deref();
    tracing::info_span!(
        target: "windlass::task",
        "task",
        task = %task.id,
        kind = %task.kind,
        queue = %task.queue,
        attempt = task.standing.attempt,
        run = task.standing.run,
        node = %lease.node,
        correlation_id = extras.and_then(|e| e.correlation_id.as_deref()),
        user_id = extras.and_then(|e| e.user_id.as_deref()),
        trace_id = extras.and_then(|e| e.trace.as_deref()).and_then(trace_id),
    )
}

/// The span of one step, inside whatever the code is in.
pub(crate) fn step_span(step: &str) -> Span {
    tracing::info_span!(target: "windlass::task", "step", step)
}

/// One line for an attempt that has ended. A node that logs at INFO writes
/// nothing about tasks that complete.
pub(crate) fn tell_end(run: &Run, settlement: &Settlement, state: State, took: Duration) {
    let verdict = settlement.verdicts().find(|v| v.to == state);
    let error = verdict.and_then(|v| v.failure.as_ref()).map(|f| f.error.message.as_str());
    let (task, kind, outcome) = (&run.task.id, &run.task.kind, state.as_str());
    macro_rules! line {
        ($level:ident) => {
            tracing::$level!(
                target: "windlass::task", parent: &run.span,
                %task, %kind, outcome, ?took, error, "the attempt ended"
            )
        };
    }
    match state {
        State::Failed => line!(warn),
        State::Retrying => line!(info),
        _ => line!(debug),
    }
}
