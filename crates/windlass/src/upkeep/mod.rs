//! Small named periodic jobs, safe on every node at once: there is no leader.
//! The store does the work of each in bounded pieces; here is when. What
//! depends on a precise time, tasks becoming due, is in `due.rs`; bulk jobs are
//! moved on by `batches.rs`.

pub(crate) mod batches;
pub(crate) mod due;

use crate::parts::{Parts, Phase};
use crate::wake::Wake;
use std::sync::Arc;
use std::time::Duration;
use windlass_core::error::Result;
use windlass_core::store::{Job, Upkept};

/// Pieces per call.
const LIMIT: usize = 1000;
/// Calls per turn; the rest waits for the next one.
const CALLS_MAX: usize = 50;

/// A job and how often it runs.
struct Chore {
    name: &'static str,
    job: Job,
    every: Duration,
    next: Duration,
}

/// Runs until the engine stops.
pub(crate) async fn upkeep(parts: Arc<Parts>) {
    let mut chores = chores(&parts);
    loop {
        let now = parts.clock.uptime();
        for chore in &mut chores {
            if chore.next <= now {
                run(&parts, chore.name, chore.job).await;
                chore.next = parts.clock.uptime() + chore.every;
            }
        }
        let next = chores.iter().map(|c| c.next).min().unwrap_or(now + parts.settings.poll);
        tokio::select! {
            () = parts.clock.sleep_until(next) => {}
            () = parts.family_now.notified() => {
                run(&parts, "children", Job::Children).await;
            }
            () = parts.reached(Phase::Stopped) => return,
        }
    }
}

fn chores(parts: &Parts) -> Vec<Chore> {
    let (poll, minute) = (parts.settings.poll, Duration::from_secs(60));
    let lease = parts.settings.times();
    [
        ("expire", Job::Expire, poll),
        ("children", Job::Children, poll),
        ("nodes", Job::Nodes, lease.heartbeat()),
        ("keys", Job::Keys, minute),
        ("purge", Job::Purge(parts.settings.retention), minute),
    ]
    .into_iter()
    .map(|(name, job, every)| Chore { name, job, every, next: Duration::ZERO })
    .collect()
}

/// How many pieces were done.
async fn run(parts: &Parts, name: &'static str, job: Job) -> usize {
    let done = in_pieces(parts, job).await.unwrap_or_else(|error| {
        tracing::warn!(job = name, %error, "upkeep failed; it runs again later");
        0
    });
    if done > 0 {
        tracing::debug!(job = name, done, "upkeep");
        parts.feed.changed();
        parts.waiters.tell_all();
    }
    done
}

/// Does a job until nothing is left, or its turn is over.
async fn in_pieces(parts: &Parts, job: Job) -> Result<usize> {
    let mut done = 0;
    for _ in 0..CALLS_MAX {
        let upkept: Upkept = tokio::select! {
            upkept = parts.store.upkeep(job, LIMIT, parts.now()) => upkept?,
            () = parts.reached(Phase::Stopped) => break,
        };
        done += upkept.done;
        if !upkept.ready.is_empty() {
            parts.bell.ring(Wake::Work);
            // Of which kinds they are is found by one look.
            parts.remote.hub.look();
        }
        if !upkept.more {
            break;
        }
    }
    Ok(done)
}
