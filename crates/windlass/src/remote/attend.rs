//! One look of the whole process for all polls that wait: which kinds have work
//! that somebody else wrote, whether a dead node left something, and which waiting
//! workers need their lease extended. While nobody waits, nothing is asked.

use super::Workers;
use crate::parts::{Parts, Phase};
use std::sync::Arc;
use std::time::Duration;
use windlass_core::error::Result;
use windlass_core::store::NodeInfo;

/// Many changes at once are one reason to look.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Runs until the engine stops.
pub(crate) async fn attend(parts: Arc<Parts>) {
    let workers = Workers { parts: parts.clone() };
    let every = parts.settings.poll.min(parts.settings.times().heartbeat());
    let mut looked = None;
    loop {
        let idle = parts.remote.hub.is_empty();
        tokio::select! {
            biased;
            () = parts.reached(Phase::Stopped) => return,
            () = parts.remote.hub.news.notified() => {}
            () = parts.clock.sleep_until(parts.clock.uptime() + every), if !idle => {}
        }
        if parts.remote.hub.is_empty() {
            continue;
        }
        if let Some(at) = looked {
            tokio::select! {
                biased;
                () = parts.reached(Phase::Stopped) => return,
                () = parts.clock.sleep_until(at + LOOK_EVERY) => {}
            }
        }
        looked = Some(parts.clock.uptime());
        if let Err(error) = workers.look().await {
            tracing::warn!(%error, "cannot look for work of waiting workers");
        }
    }
}

impl Workers {
    async fn look(&self) -> Result<()> {
        let parts = &self.parts;
        let hub = &parts.remote.hub;
        hub.offer(&parts.store.ready_kinds().await?);
        let nodes = parts.store.nodes().await?;
        let now = parts.clock.now();
        if nodes.iter().any(|node| node.lease_until <= now && node.active > 0) {
            hub.offer_orphans();
        }
        for id in hub.workers() {
            let info = nodes.iter().find(|node| node.id == id && node.lease_until > now);
            match info {
                Some(info) => self.attend_to(info).await,
                // Its poll finds out and says so.
                None => hub.call_worker(id),
            }
        }
        Ok(())
    }

    async fn attend_to(&self, info: &NodeInfo) {
        let parts = &self.parts;
        let (now, uptime) = (parts.clock.now(), parts.clock.uptime());
        let changed = parts.remote.known.note(info.id, |worker| {
            let before = worker.held_back;
            worker.learn(info, now, uptime);
            before != worker.held_back
        });
        if changed {
            parts.remote.hub.call_worker(info.id);
        }
        if let Err(error) = self.keep_idle(info).await {
            tracing::warn!(%error, node = %info.id, "the lease of a waiting worker was not extended");
        }
    }
}
