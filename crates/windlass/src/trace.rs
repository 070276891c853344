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
use windlass_core::task::Task;

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

/// The trace's id in a W3C `traceparent`: `00-<32 hex>-<16 hex>-<2 hex>`, not
/// all zeros.
pub fn trace_id(traceparent: &str) -> Option<&str> {
    let hex = |part: &str, len: usize| {
        part.len() == len && part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    let id = |part: &str, len: usize| hex(part, len) && part.bytes().any(|b| b != b'0');
    let mut parts = traceparent.split('-');
    let (version, trace, span, flags) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let fits = version == "00" && id(trace, 32) && id(span, 16) && hex(flags, 2);
    (fits && parts.next().is_none()).then_some(trace)
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

#[cfg(test)]
mod tests {
    use super::trace_id;

    #[test]
    fn only_a_w3c_traceparent_has_a_trace_id() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let whole = format!("00-{trace}-00f067aa0ba902b7-01");
        assert_eq!(trace_id(&whole), Some(trace));
        let zeros = "0".repeat(32);
        for bad in [
            String::new(),
            trace.to_owned(),
            format!("{whole}-00"),
            whole.to_uppercase(),
            whole.replacen("00-", "ff-", 1),
            whole.replace(trace, &zeros),
            whole.replace("00f067aa0ba902b7", &zeros[..16]),
            whole.replace("-01", "-1"),
        ] {
            assert_eq!(trace_id(&bad), None, "{bad}");
        }
    }
}
