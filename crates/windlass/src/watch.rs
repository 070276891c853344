//! The watch over running attempts: one loop instead of a timer for each. It
//! ends attempts that ran longer than their task may, code that does not stop
//! when cancelled, and code that blocks beyond its step's time; it also writes
//! progress that waited. Whoever must be ended is first asked, then aborted; one
//! that goes on all the same is judged without it, and its slot counts as
//! overrun until it is really gone.

use crate::parts::{Parts, Phase};
use crate::run::Run;
use crate::said::Stop;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use windlass_core::id::TaskId;
use windlass_core::outcome::{Class, Outcome, TaskError as Cause};

/// How often running attempts are looked at.
const EVERY: Duration = Duration::from_millis(100);
/// How long an aborted attempt may take to be gone.
pub(crate) const STUCK_AFTER: Duration = Duration::from_secs(1);

/// An attempt that must end.
struct Doom {
    run: Arc<Run>,
    outcome: Outcome,
    /// Uptime at which it is aborted. A step that ends something outside has
    /// its time for that first.
    abort_at: Duration,
    aborted: bool,
}

/// Runs until the engine stops.
pub(crate) async fn watch(parts: Arc<Parts>) {
    let mut dooms: Vec<Doom> = vec![];
    let mut cancels: HashMap<TaskId, Duration> = HashMap::new();
    loop {
        let idle = parts.held.len() == 0 && dooms.is_empty();
        tokio::select! {
            () = parts.clock.sleep_until(parts.clock.uptime() + EVERY), if !idle => {}
            () = parts.watch_now.notified() => {}
            () = parts.reached(Phase::Stopped) => return,
        }
        let now = parts.clock.uptime();
        let running = parts.held.all();
        cancels.retain(|id, _| running.iter().any(|run| run.task.id == *id));
        for run in running {
            run.flush_progress();
            if let Some(outcome) = overdue(&run, now, &mut cancels)
                && run.may_judge()
            {
                tracing::warn!(parent: &run.span, task = %run.task.id, kind = %run.task.kind, ?outcome, "an attempt is ended");
                run.want(Stop::Cancel);
                let abort_at = now.saturating_add(time_to_stop(&run, &outcome));
                dooms.push(Doom { run, outcome, abort_at, aborted: false });
            }
        }
        dooms.iter_mut().for_each(|doom| doom.abort_if_due(now));
        for doom in take_due(&mut dooms, now) {
            if !doom.run.has_ended() {
                tracing::error!(parent: &doom.run.span, task = %doom.run.task.id, "the code goes on; its slot stays taken");
                doom.run.overruns();
            }
            let write = doom.run.ending(doom.outcome);
            parts.recorder.end(doom.run.clone(), write).await;
        }
    }
}

impl Doom {
    fn abort_if_due(&mut self, now: Duration) {
        if !self.aborted && now >= self.abort_at {
            self.aborted = true;
            self.run.abort_now();
        }
    }
}

/// Only an attempt that is over its time hears of it first here; the others
/// were asked before, or do not listen.
fn time_to_stop(run: &Run, outcome: &Outcome) -> Duration {
    match outcome {
        Outcome::Timeout { .. } => run.needs_to_stop(),
        _ => Duration::ZERO,
    }
}

/// Those that are gone, or will not go.
fn take_due(dooms: &mut Vec<Doom>, now: Duration) -> Vec<Doom> {
    let due = |d: &mut Doom| d.run.has_ended() || now.saturating_sub(d.abort_at) >= STUCK_AFTER;
    dooms.extract_if(.., due).collect()
}

/// Why this attempt must end now, if it must.
fn overdue(run: &Run, now: Duration, cancels: &mut HashMap<TaskId, Duration>) -> Option<Outcome> {
    let began = run.began()?;
    if run.is_judged() {
        return None;
    }
    let step = run.journal.current();
    if run.has_ended() {
        let error = Cause::new(Class::Panic, "the attempt ended without a word");
        return Some(Outcome::Error(Cause { step, ..error }));
    }
    if now.saturating_sub(began) >= run.task_timeout() {
        return Some(Outcome::Timeout { step });
    }
    if run.step_until().is_some_and(|until| now.saturating_sub(until) >= STUCK_AFTER) {
        let error = Cause::new(Class::Timeout, "the step ran longer than its timeout and blocks");
        return Some(Outcome::Error(Cause { step, ..error }));
    }
    let outcome = match run.stop_wanted()? {
        Stop::Cancel => Outcome::Cancelled,
        Stop::RollBack => Outcome::RollBack,
        Stop::Pause | Stop::Fenced => return None,
    };
    let asked = *cancels.entry(run.task.id).or_insert(now);
    (now.saturating_sub(asked) >= run.parts.settings.cancel_grace).then_some(outcome)
}
