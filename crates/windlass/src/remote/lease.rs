//! Giving tasks to a worker: it joins, claims through this engine, and waits when
//! there is nothing. A claim whose answer does not arrive is not noticed here: the
//! worker does not name its tasks, and its next heartbeat gives them back.

use super::give::count_wait;
use super::hub::{Call, Interest};
use super::known::Worker;
use super::{
    KINDS_MAX, LEASES_MAX, Lease, LeaseAnswer, LeaseRequest, QUEUES_MAX, WAIT_MAX, Workers,
};
use crate::crash::crash_point;
use crate::parts::{Parts, Phase};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use windlass_core::error::{Error, ErrorKind, Result};
use windlass_core::id::{NodeId, TaskId};
use windlass_core::lease::{ClaimNo, Token};
use windlass_core::store::{
    Claim, Claimed, Kinds, Lane, NewNode, NodeInfo, Renewal, Renewed, Stage, Tally, Wanted,
};
use windlass_core::task::{NAME_MAX, QueueName};

/// How often a worker looks for what dead nodes left.
const ORPHANS_EVERY: Duration = Duration::from_secs(1);

/// Tasks that are claimed at a time for one answer, and the payloads and recorded
/// outputs after which it is not filled further: at most a piece goes beyond.
const PIECE: usize = 50;
const BYTES_MAX: usize = 8 << 20;

impl Workers {
    /// Gives up to `max` tasks, or waits for some. `LeaseLost`: the id's lease has
    /// ended; ask again without an id.
    pub async fn lease(&self, request: LeaseRequest) -> Result<LeaseAnswer> {
        let parts = &self.parts;
        parts.check_open("lease")?;
        check(&request)?;
        let interest = Arc::new(interest(parts, &request));
        let id = match request.id {
            Some(id) => self.alive(id).await.map(|()| id)?,
            None => self.join(&request, &interest).await?,
        };
        parts.remote.known.worker(id, |worker| worker.interest = Some(interest.clone()));
        let leases = self.wait_for(id, &interest, &request).await?;
        Ok(LeaseAnswer { id, lease: parts.settings.lease, leases })
    }

    async fn wait_for(
        &self,
        id: NodeId,
        interest: &Arc<Interest>,
        request: &LeaseRequest,
    ) -> Result<Vec<Lease>> {
        let parts = &self.parts;
        let mut call = Call::default();
        if request.wait.is_zero() {
            return self.take(id, interest, request.max, call).await.map(Option::unwrap_or_default);
        }
        let mut over = parts.clock.sleep_until(parts.clock.uptime() + request.wait);
        // In the list before the first look: nothing is missed in between.
        let ticket = parts.remote.hub.enter(id, interest, request.max)?;
        loop {
            match self.take(id, interest, request.max, call).await? {
                Some(leases) if !leases.is_empty() => {
                    drop(ticket);
                    if leases.len() >= request.max.min(PIECE) {
                        parts.remote.hub.more_for(interest);
                    }
                    return Ok(leases);
                }
                Some(_) => {}
                None => ticket.hand_on(call),
            }
            tokio::select! {
                biased;
                () = parts.reached(Phase::Draining) => return Ok(vec![]),
                next = ticket.called() => call = next,
                () = &mut over => return Ok(vec![]),
            }
        }
    }

    async fn join(&self, request: &LeaseRequest, interest: &Arc<Interest>) -> Result<NodeId> {
        let parts = &self.parts;
        let node = NewNode {
            name: request.worker.clone(),
            remote: true,
            queues: interest.queues.clone(),
            version: request.version.clone().unwrap_or_default(),
            lease: parts.settings.lease,
            sole: false,
            instead_of: None,
        };
        let sent = parts.clock.uptime();
        let joined = parts.store.join(node, parts.now()).await?;
        parts.remote.known.note(joined.node, |worker| {
            let alive_until = sent + parts.settings.lease;
            let (seen, joined_at) = (sent, parts.clock.now());
            *worker =
                Worker { alive_until, seen, renewed: Some(sent), joined_at, ..Worker::default() };
        });
        parts.feed.changed();
        tracing::info!(node = %joined.node, worker = request.worker, "a remote worker joined");
        Ok(joined.node)
    }

    /// Whether this is a worker whose lease has not ended. One that waits for work
    /// and holds nothing is kept alive by that; one that holds something must say
    /// so itself, or nobody would notice that it lost an answer.
    pub(super) async fn alive(&self, id: NodeId) -> Result<()> {
        let parts = &self.parts;
        let (now, third) = (parts.clock.uptime(), parts.settings.times().heartbeat());
        let fresh = |w: &mut Worker| w.alive_until > now && now.saturating_sub(w.seen) < third;
        if parts.remote.known.worker(id, fresh) == Some(true) {
            return Ok(());
        }
        let nodes = parts.store.nodes().await?;
        let info = nodes.iter().find(|node| node.id == id && node.remote);
        match info.filter(|info| info.lease_until > parts.clock.now()) {
            Some(info) => {
                parts.remote.known.note(id, |w| w.learn(info, parts.clock.now(), now));
                self.keep_idle(info).await
            }
            None => {
                parts.remote.known.forget(id);
                let message = format!("the lease of {id} has ended; lease without worker_id");
                Err(Error::lease_lost("worker", message))
            }
        }
    }

    /// Extends the lease of a worker that holds nothing. Nothing goes back by this:
    /// no claim counts as answered.
    pub(super) async fn keep_idle(&self, info: &NodeInfo) -> Result<()> {
        let parts = &self.parts;
        let beat = parts.settings.times().heartbeat();
        if info.active > 0 || parts.clock.now().since(info.heartbeat_at) < beat {
            return Ok(());
        }
        self.renew(info.id, vec![], ClaimNo(0), Stage::Serving).await.map(drop)
    }

    /// One heartbeat in the name of a worker.
    pub(super) async fn renew(
        &self,
        id: NodeId,
        held: Vec<(TaskId, Token)>,
        answered: ClaimNo,
        stage: Stage,
    ) -> Result<Renewed> {
        let parts = &self.parts;
        let known = &parts.remote.known;
        let holds = held.len();
        let unsaid =
            |w: &mut Worker| (std::mem::take(&mut w.consumed), std::mem::take(&mut w.failed));
        let (consumed, failed) = known.worker(id, unsaid).unwrap_or_default();
        let sent = parts.clock.uptime();
        let lease = parts.settings.lease;
        let renewal = Renewal {
            node: id,
            lease,
            held,
            answered,
            stage,
            consumed,
            failed,
            tally: Tally::More,
        };
        let renewed = parts.store.renew(renewal, parts.now()).await;
        match &renewed {
            Ok(renewed) => known.note(id, |w| {
                w.alive_until = sent + lease;
                (w.seen, w.renewed) = (sent, Some(sent));
                w.held_back = renewed.paused || renewed.draining;
                w.holds = holds - renewed.lost.len().min(holds);
            }),
            Err(error) if error.kind() == ErrorKind::LeaseLost => known.forget(id),
            // Perhaps written, perhaps not: better too few than counted twice.
            Err(_) => {}
        }
        renewed
    }

    /// Claims; `None`: this worker may take nothing now.
    async fn take(
        &self,
        id: NodeId,
        interest: &Interest,
        max: usize,
        call: Call,
    ) -> Result<Option<Vec<Lease>>> {
        let parts = &self.parts;
        let now = parts.clock.uptime();
        let every = ORPHANS_EVERY.min(parts.settings.times().heartbeat());
        let state = parts.remote.known.worker(id, |w| {
            let due = w.looked.is_none_or(|at| now.saturating_sub(at) >= every);
            let orphans = due || call.orphans;
            if orphans {
                w.looked = Some(now);
            }
            let full = w.held_back || w.alone.is_some() || (w.suspect.is_some() && w.holds > 0);
            (full, orphans, w.suspect.take_if(|_| w.holds == 0))
        });
        // Forgotten meanwhile: asked again by the next call.
        let Some((full, orphans, suspect)) = state else {
            return self.alive(id).await.map(|()| None);
        };
        if full {
            return Ok(None);
        }
        if let Some(suspect) = suspect {
            let claimed = self.claim(id, Wanted::Ids(vec![suspect]), interest, 1).await?;
            if !claimed.is_empty() {
                return Ok(Some(self.give(id, claimed).await));
            }
        }
        let mut claimed = vec![];
        if orphans {
            claimed = self.claim(id, Wanted::Expired, interest, max.min(PIECE)).await?;
            for Claimed { task, .. } in &claimed {
                parts.meters.pair(&task.kind, &task.queue).taken_over();
            }
        }
        self.fill(id, interest, max, &mut claimed).await?;
        Ok(Some(self.give(id, claimed).await))
    }

    /// Claims what is ready, piece by piece, until there is enough. What was claimed
    /// before a claim failed is given all the same.
    async fn fill(
        &self,
        id: NodeId,
        interest: &Interest,
        max: usize,
        claimed: &mut Vec<Claimed>,
    ) -> Result<()> {
        let mut bytes: usize = claimed.iter().map(size).sum();
        while claimed.len() < max && bytes < BYTES_MAX {
            let piece = (max - claimed.len()).min(PIECE);
            let ready = match self.claim(id, Wanted::Ready, interest, piece).await {
                Ok(ready) => ready,
                Err(error) if claimed.is_empty() => return Err(error),
                Err(error) => {
                    tracing::warn!(%error, node = %id, "a claim failed; what came before is given");
                    return Ok(());
                }
            };
            let last = ready.len() < piece;
            bytes += ready.iter().map(size).sum::<usize>();
            ready.iter().for_each(|c| count_wait(&self.parts, &c.task));
            claimed.extend(ready);
            if last {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn claim(
        &self,
        node: NodeId,
        wanted: Wanted,
        interest: &Interest,
        max: usize,
    ) -> Result<Vec<Claimed>> {
        let parts = &self.parts;
        let turn = parts.remote.turn.fetch_add(1, Ordering::Relaxed);
        let kinds: Vec<_> = interest.kinds.iter().map(|kind| (kind.clone(), max)).collect();
        let count = interest.queues.len();
        // Each claim begins with another queue, or the last would never have a turn.
        let lanes = (0..count).map(|i| Lane {
            queue: interest.queues[(turn + i) % count].clone(),
            max,
            kinds: Kinds::Only(kinds.clone()),
        });
        let claim = Claim {
            node,
            number: parts.remote.next_claim(parts.clock.now()),
            wanted,
            lanes: lanes.collect(),
            max,
            poison: parts.poison(),
            begins: true,
        };
        let claimed = parts.store.claim(claim, parts.now()).await;
        crash_point("claim.answered");
        if claimed.as_ref().is_err_and(|e| e.kind() == ErrorKind::LeaseLost) {
            parts.remote.known.forget(node);
        }
        claimed
    }
}

/// What a task takes in an answer, mostly.
fn size(claimed: &Claimed) -> usize {
    let entries = claimed.checkpoint.iter().flat_map(|c| &c.entries);
    let outputs = entries.filter_map(|e| e.record.output.as_ref());
    claimed.task.payload.as_str().len() + outputs.map(|o| o.as_str().len()).sum::<usize>()
}

fn interest(parts: &Parts, request: &LeaseRequest) -> Interest {
    let (mut queues, mut kinds) = (request.queues.clone(), request.kinds.clone());
    if queues.is_empty() {
        let named = kinds.iter().filter_map(|kind| parts.registry.rules(kind));
        queues = named.map(|rules| rules.queue.clone()).chain([QueueName::default()]).collect();
    }
    queues.sort();
    queues.dedup();
    kinds.sort();
    kinds.dedup();
    Interest { queues, kinds }
}

fn check(request: &LeaseRequest) -> Result<()> {
    let refuse = |message: String| Err(Error::invalid("lease", message));
    let name = &request.worker;
    if name.is_empty() || name.len() > NAME_MAX || name.chars().any(char::is_control) {
        return refuse(format!("worker `{name:.40}`: use 1 to {NAME_MAX} plain characters"));
    }
    if request.kinds.is_empty() || request.kinds.len() > KINDS_MAX {
        return refuse(format!("kinds: name 1 to {KINDS_MAX} kinds that the worker serves"));
    }
    if request.queues.len() > QUEUES_MAX {
        return refuse(format!("queues: name at most {QUEUES_MAX}"));
    }
    if request.max == 0 || request.max > LEASES_MAX {
        return refuse(format!("max must be 1 to {LEASES_MAX}: the worker's free slots"));
    }
    if request.wait > WAIT_MAX {
        return refuse("wait: at most 60s; ask again then".to_owned());
    }
    if request.version.as_ref().is_some_and(|v| v.len() > NAME_MAX) {
        return refuse(format!("version: at most {NAME_MAX} bytes"));
    }
    Ok(())
}
