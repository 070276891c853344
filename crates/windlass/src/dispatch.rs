//! Taking work: one loop, woken by the closed list of reasons in `wake.rs`. It
//! asks for room, claims that much, and starts what it got. One claim is under
//! way at a time; while it is, finished attempts add up to a larger next one.
//! The store comes before it, `run.rs` after it.

use crate::crash::crash_point;
use crate::parts::{Parts, Phase};
use crate::run::{Run, attempt};
use crate::settings::Pool;
use crate::slots::Room;
use crate::wake::Wake;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use tracing::Instrument;
use windlass_core::error::ErrorKind;
use windlass_core::lease::LeaseKey;
use windlass_core::outcome::Outcome;
use windlass_core::store::{Claim, Claimed, Kinds, Wanted};
use windlass_core::task::{Kind, QueueName};

/// Runs until the engine stops.
pub(crate) async fn dispatch(parts: Arc<Parts>) {
    let mut desk = Desk {
        parts: parts.clone(),
        orphans: HashSet::new(),
        alone: VecDeque::new(),
        alone_now: None,
    };
    desk.expect_orphans();
    desk.work().await;
    let mut poll = parts.clock.sleep_until(parts.clock.uptime() + parts.settings.poll);
    loop {
        let polled = tokio::select! {
            biased;
            wakes = parts.bell.next() => wakes.has(Wake::Poll),
            () = &mut poll => true,
        };
        if parts.phase() == Phase::Stopped {
            return;
        }
        if polled {
            desk.expect_orphans();
            poll = parts.clock.sleep_until(parts.clock.uptime() + parts.settings.poll);
        }
        desk.work().await;
    }
}

struct Desk {
    parts: Arc<Parts>,
    /// Queues in which dead nodes may have left tasks.
    orphans: HashSet<QueueName>,
    /// Tasks that must have the node for themselves, waiting for it.
    alone: VecDeque<Arc<Run>>,
    alone_now: Option<Arc<Run>>,
}

impl Desk {
    fn expect_orphans(&mut self) {
        self.orphans = self.parts.slots.queues().map(|(name, ..)| name.clone()).collect();
    }

    /// Claims and starts until there is no room or no work.
    async fn work(&mut self) {
        let mut dry = 0;
        loop {
            if !self.settle_alone() || !self.parts.may_claim() {
                return;
            }
            let room = self.parts.slots.room(&self.parts.kinds, self.parts.settings.claim_max);
            if room.lanes.is_empty() {
                return;
            }
            if self.take_over(&room, dry + 1 >= room.looks).await {
                dry = 0;
                continue;
            }
            let Some(taken) = self.claim(Wanted::Ready, &room).await else { return };
            dry = if may_be_more(&taken, &room) { 0 } else { dry + 1 };
            self.begin(taken);
            // One that must be alone may have its empty node right now.
            if dry >= room.looks && !self.suspects_due() {
                return;
            }
        }
    }

    /// Takes what dead nodes left; `false`: nothing was found. A queue without
    /// room is asked when it has some, others only until nothing was found.
    async fn take_over(&mut self, room: &Room, last: bool) -> bool {
        let lanes = room.lanes.iter().filter(|lane| self.orphans.contains(&lane.queue));
        let room = Room { lanes: lanes.cloned().collect(), max: room.max, looks: room.looks };
        if room.lanes.is_empty() {
            return false;
        }
        let taken = self.claim(Wanted::Expired, &room).await.unwrap_or_default();
        if taken.is_empty() && last {
            room.lanes.iter().for_each(|lane| drop(self.orphans.take(&lane.queue)));
        }
        let found = !taken.is_empty();
        if found {
            tracing::info!(tasks = taken.len(), "took over tasks of dead nodes");
        }
        self.begin(taken);
        found
    }

    /// One waits for the node and may have it. Until then others run: should
    /// the node die meanwhile, it did not die of those that wait.
    fn suspects_due(&self) -> bool {
        !self.alone.is_empty() && self.parts.may_try_suspects()
    }

    /// Whether other work may be taken: a task that must run alone first gets
    /// an empty node, and then keeps it.
    fn settle_alone(&mut self) -> bool {
        if let Some(run) = &self.alone_now {
            if self.parts.held.get(run.task.id).is_some_and(|held| held.lease == run.lease) {
                return false;
            }
            self.alone_now = None;
        }
        // A lost lease takes waiting ones away.
        self.alone.retain(|run| self.parts.held.get(run.task.id).is_some());
        if !self.suspects_due() {
            return true;
        }
        if self.parts.held.len() == self.alone.len() {
            self.alone_now = self.alone.pop_front();
            if let Some(run) = self.alone_now.clone() {
                start(run);
            }
        }
        false
    }

    /// Claims and holds; `None`: nothing can be taken now.
    async fn claim(&self, wanted: Wanted, room: &Room) -> Option<Vec<Arc<Run>>> {
        let parts = &self.parts;
        // Whoever paused this node meanwhile sees nothing start after that.
        if !parts.may_claim() {
            return None;
        }
        let (node, number) = (parts.node(), parts.held.next_claim());
        let takes_over = wanted == Wanted::Expired;
        let claim = Claim {
            node,
            number,
            wanted,
            lanes: room.lanes.clone(),
            max: room.max,
            poison: parts.poison(),
            begins: true,
        };
        let answer = tokio::select! {
            answer = parts.store.claim(claim, parts.now()) => answer,
            () = parts.reached(Phase::Stopped) => return None,
        };
        crash_point("claim.answered");
        if let (true, Ok(claimed)) = (takes_over, &answer) {
            self.count_taken_over(claimed);
        }
        match answer {
            // An answer that outlived its node is worth nothing.
            Ok(_) if parts.node() != node || parts.is_fenced() => None,
            Ok(claimed) => {
                let runs: Vec<_> = claimed.into_iter().filter_map(|c| self.run(c)).collect();
                let first = parts.held.len() == 0;
                if !parts.held.answered(number, &runs) {
                    parts.renew_now.notify_one();
                    return None;
                }
                if first {
                    parts.watch_now.notify_one();
                    parts.busy.notify_one();
                }
                if !takes_over {
                    runs.iter().for_each(|run| count_wait(run));
                }
                Some(runs)
            }
            Err(error) => {
                // The answer may be lost, not the claim: the next heartbeat
                // gives back what this node does not know it has.
                parts.held.gave_up(number);
                parts.renew_now.notify_one();
                match error.kind() {
                    ErrorKind::LeaseLost => tracing::warn!(%error, "claim refused"),
                    _ => tracing::warn!(%error, "claim failed; trying again at the next poll"),
                }
                None
            }
        }
    }

    fn count_taken_over(&self, claimed: &[Claimed]) {
        for Claimed { task, .. } in claimed {
            self.parts.meters.pair(&task.kind, &task.queue).taken_over();
        }
    }

    fn run(&self, claimed: Claimed) -> Option<Arc<Run>> {
        let Some(kind) = self.parts.registry.get(&claimed.task.kind).cloned() else {
            // Not held, so the next heartbeat gives it back.
            tracing::error!(task = %claimed.task.id, "claimed a kind that is not served here");
            return None;
        };
        let standing = &claimed.task.standing;
        let node = standing.node.unwrap_or_else(|| self.parts.node());
        let lease = LeaseKey { task: claimed.task.id, node, token: standing.token };
        Some(Run::new(self.parts.clone(), kind, claimed, lease))
    }

    fn begin(&mut self, runs: Vec<Arc<Run>>) {
        if !runs.is_empty() {
            self.parts.feed.changed();
        }
        for run in runs {
            if run.alone { self.alone.push_back(run) } else { start(run) }
        }
    }
}

/// Whether another claim could find work: this one was filled by its room or by
/// a kind's.
fn may_be_more(taken: &[Arc<Run>], room: &Room) -> bool {
    if taken.is_empty() {
        return false;
    }
    if taken.len() >= room.max {
        return true;
    }
    let mut by_kind: HashMap<&Kind, usize> = HashMap::new();
    taken.iter().for_each(|run| *by_kind.entry(&run.task.kind).or_default() += 1);
    let filled = |kind: &Kind, max: usize| by_kind.get(kind).is_some_and(|n| *n >= max);
    room.lanes.iter().any(|lane| match &lane.kinds {
        Kinds::Any => false,
        Kinds::Only(kinds) => kinds.iter().any(|(kind, max)| filled(kind, *max)),
    })
}

fn count_wait(run: &Run) {
    let standing = &run.task.standing;
    if let Some(started) = standing.started_at {
        run.meters.waited(started.since(standing.due_at));
    }
}

/// Starts an attempt where its kind wants to run.
fn start(run: Arc<Run>) {
    let slot = run.parts.slots.take(run.clone());
    let work = attempt(run.clone(), slot).instrument(run.span.clone());
    match run.kind.rules.pool {
        Pool::Io => {
            let task = tokio::spawn(work);
            run.started(task.abort_handle());
        }
        Pool::Cpu => {
            let runtime = tokio::runtime::Handle::current();
            let thread = std::thread::Builder::new().name("windlass-cpu".to_owned());
            let aborted = run.clone();
            let work = async move {
                tokio::select! {
                    biased;
                    () = aborted.aborted() => {}
                    () = work => {}
                }
            };
            let started = thread.spawn(move || runtime.block_on(work));
            if let Err(error) = started {
                tracing::error!(%error, "no thread for a task; it goes back");
                tokio::spawn(async move {
                    if run.may_judge() {
                        let write = run.ending(Outcome::Release);
                        run.parts.recorder.end(run.clone(), write).await;
                    }
                });
            }
        }
    }
}
