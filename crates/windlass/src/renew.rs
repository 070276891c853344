//! The heartbeat: one call renews the lease of this node and of everything it
//! holds, names what it really holds, and brings back what people want of it.
//! When the lease cannot be renewed in time this node fences itself by its own
//! monotonic clock, drops everything and joins again under a new identity.

use crate::crash::crash_point;
use crate::parts::{Parts, Phase, bump};
use crate::wake::Wake;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use windlass_core::error::{Error, ErrorKind, Result};
use windlass_core::id::{NodeId, TaskId};
use windlass_core::lease::Token;
use windlass_core::store::{
    Actor, Change, Joined, NewNode, NodeChange, Renewal, Renewed, Stage, Tally,
};

/// While tasks are held the store is asked at least this often, so that a
/// cancel reaches them within two seconds however long the lease is.
const ASK_EVERY: Duration = Duration::from_secs(1);
const REJOIN_EVERY: Duration = Duration::from_millis(200);

/// Runs until the engine leaves: a heartbeat after the good-bye would find its
/// node gone and join again.
pub(crate) async fn renew(parts: Arc<Parts>) {
    let mut asked = parts.clock.uptime();
    loop {
        let beat = parts.settings.times().heartbeat();
        let wait = if parts.held.len() == 0 { beat } else { beat.min(ASK_EVERY) };
        // A loop that began late, on a busy machine, must not sleep beyond its lease.
        let until = (asked + wait).min(parts.fence_time());
        tokio::select! {
            biased;
            () = parts.reached(Phase::Leaving) => return,
            () = parts.clock.sleep_until(until) => {}
            () = parts.renew_now.notified() => {}
            () = parts.busy.notified() => continue,
        }
        asked = parts.clock.uptime();
        let beaten = tokio::select! {
            beaten = beat_once(&parts, stage(&parts)) => beaten,
            () = parts.clock.sleep_until(parts.fence_time()) => Ok(()),
            () = parts.reached(Phase::Leaving) => return,
        };
        let lost = match beaten {
            Err(error) if error.kind() == ErrorKind::LeaseLost => true,
            Err(error) => {
                tracing::warn!(%error, "the heartbeat failed");
                parts.is_fenced()
            }
            Ok(()) => parts.is_fenced(),
        };
        if lost && parts.phase() < Phase::Leaving {
            tracing::error!(held = parts.held.len(), "this node lost its lease");
            parts.fence();
            tokio::select! {
                () = rejoin(&parts) => {}
                () = parts.reached(Phase::Leaving) => return,
            }
        }
    }
}

/// What this node says of itself. A drain that people asked for is the store's
/// word: said again here, it could not be taken back.
pub(crate) fn stage(parts: &Parts) -> Stage {
    if parts.phase() == Phase::Serving { Stage::Serving } else { Stage::Draining }
}

/// One heartbeat.
pub(crate) async fn beat_once(parts: &Parts, stage: Stage) -> Result<()> {
    let (held, answered) = parts.held.snapshot();
    // A fence empties what is held: said to the store, that would give back what
    // this node has lost, as if nothing had happened to it.
    if parts.is_fenced() {
        return Err(Error::lease_lost("renew", "this node's lease has ended"));
    }
    let named: HashMap<TaskId, Token> = held.iter().copied().collect();
    let renewal = Renewal {
        node: parts.node(),
        lease: parts.settings.lease,
        held,
        answered,
        stage,
        consumed: parts.counters.consumed.load(Ordering::Relaxed),
        failed: parts.counters.failed.load(Ordering::Relaxed),
        tally: Tally::Total,
    };
    let sent = parts.clock.uptime();
    let pauses = parts.pauses.load(Ordering::Acquire);
    let renewed = parts.store.renew(renewal, parts.now()).await?;
    if parts.clock.uptime() >= parts.fence_time() {
        // The answer came after the own clock had ended the lease: it is over.
        return Ok(());
    }
    let could_claim = parts.may_claim();
    parts.renewed(sent);
    if !could_claim {
        parts.bell.ring(Wake::Control);
    }
    apply(parts, &renewed, &named);
    if parts.pauses.load(Ordering::Acquire) == pauses {
        let before = parts.paused.swap(renewed.paused, Ordering::AcqRel);
        let drained = parts.drained.swap(renewed.draining, Ordering::AcqRel);
        if (before, drained) != (renewed.paused, renewed.draining) {
            parts.bell.ring(Wake::Control);
        }
    }
    Ok(())
}

fn apply(parts: &Parts, renewed: &Renewed, named: &HashMap<TaskId, Token>) {
    for (id, requests) in &renewed.requests {
        if let Some(run) = parts.held.get(*id) {
            run.requested(*requests);
        }
    }
    for id in &renewed.lost {
        // One whose end is on its way to the store will hear from there.
        let run = parts.held.get(*id).filter(|run| named.get(id) == Some(&run.lease.token));
        if let Some(run) = run.filter(|run| !run.is_judged()) {
            tracing::warn!(parent: &run.span, task = %id, "the lease of a task is lost");
            parts.lose(&run);
        }
    }
    if renewed.given_back > 0 {
        tracing::info!(tasks = renewed.given_back, "tasks of a lost claim answer went back");
        parts.bell.ring(Wake::Work);
        parts.remote.hub.look();
    }
}

/// Who this node says it is.
pub(crate) async fn join(parts: &Parts, sole: bool, instead_of: Option<NodeId>) -> Result<Joined> {
    let node = NewNode {
        name: parts.settings.node_name.clone(),
        remote: false,
        queues: parts.slots.queues().map(|(name, ..)| name.clone()).collect(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        lease: parts.settings.lease,
        sole,
        instead_of,
    };
    let sent = parts.clock.uptime();
    let joined = parts.store.join(node, parts.now()).await?;
    crash_point("join.answered");
    parts.take_identity(joined);
    parts.renewed(sent);
    Ok(joined)
}

/// What people asked of the node counts for its new identity as well.
async fn restate(parts: &Parts, node: NodeId) {
    let wishes = [(&parts.paused, NodeChange::Pause), (&parts.drained, NodeChange::Drain)];
    for (wished, change) in wishes {
        if wished.load(Ordering::Acquire) {
            let change = Change::Node { id: node, change };
            if let Err(error) = parts.store.change(change, Actor::engine(), parts.now()).await {
                tracing::warn!(%error, "the new identity could not be paused");
            }
        }
    }
}

/// An ended incarnation is never revived: the process takes a new one.
async fn rejoin(parts: &Parts) {
    // What it held did not kill this process.
    let before = parts.node();
    loop {
        match join(parts, false, Some(before)).await {
            // The answer took longer than the lease it brought.
            Ok(_) if parts.is_fenced() => continue,
            Ok(joined) => {
                restate(parts, joined.node).await;
                tracing::warn!(node = %joined.node, "joined again under a new identity");
                bump(&parts.counters.rejoined, 1);
                parts.bell.ring(Wake::Poll);
                return;
            }
            Err(error) => tracing::warn!(%error, "cannot join"),
        }
        parts.clock.sleep_until(parts.clock.uptime() + REJOIN_EVERY).await;
    }
}
