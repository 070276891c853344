//! Giving tasks to nodes: joining, claiming, renewing. A claim checks that its
//! node is alive, so a node that was away too long gets nothing; a renewal
//! takes back what the node does not know it holds.

use super::{Held, Inner};
use crate::store::attempt_of;
use crate::store::{check_claim, free_slot, no_such, node_event};
use std::collections::{HashMap, HashSet};
use windlass_core::checkpoint::Checkpoint;
use windlass_core::clock::Timestamp;
use windlass_core::event::EventName;
use windlass_core::id::{IdMint, NodeId, SLOTS, TaskId};
use windlass_core::lease::{AfterCrash, Token};
use windlass_core::standing::{Events, Inside};
use windlass_core::store::{
    AttemptEnd, CLAIM_MAX, Claim, Claimed, Joined, Kinds, Lane, NewNode, NodeInfo, Renewal,
    Renewed, Stage, Wanted,
};
use windlass_core::task::Kind;
use windlass_core::{Error, Result};

impl Inner {
    pub(super) fn join(&mut self, new: NewNode, now: Timestamp) -> Result<Joined> {
        let (slot, crowded) = self.seat(&new, now)?;
        if new.sole {
            let own = self.nodes.values_mut().filter(|n| !n.remote);
            own.for_each(|n| n.lease_until = n.lease_until.min(now));
            self.spare_workers(now.plus(new.lease));
        }
        if crowded {
            self.forget_lost(SLOTS.into(), now, now);
        }
        if let Some(before) = new.instead_of {
            for row in self.tasks.values_mut() {
                if let Some(held) = &mut row.held {
                    held.in_step &= row.task.standing.node != Some(before);
                }
            }
        }
        let key = IdMint::new(slot).next_key(now).max(self.newest_node + 1);
        self.newest_node = key;
        let node = NodeId::from_key(key);
        let lease_until = now.plus(new.lease);
        self.nodes.insert(
            node,
            NodeInfo {
                id: node,
                slot,
                name: new.name,
                remote: new.remote,
                queues: new.queues,
                version: new.version,
                joined_at: now,
                heartbeat_at: now,
                lease_until,
                stage: Stage::Serving,
                paused: false,
                active: 0,
                consumed: 0,
                failed: 0,
            },
        );
        self.publish(vec![node_event(EventName::NodeJoined, node, now)]);
        Ok(Joined { node, slot, lease_until })
    }

    /// A slot, and whether nodes that are gone must be forgotten for it.
    fn seat(&self, new: &NewNode, now: Timestamp) -> Result<(u16, bool)> {
        let slots = |stays: &dyn Fn(&NodeInfo) -> bool| -> Vec<(u16, bool)> {
            self.nodes.values().filter(|n| stays(n)).map(|n| (n.slot, n.remote)).collect()
        };
        if let Ok(slot) = free_slot(&slots(&|_| true), new.remote) {
            return Ok((slot, false));
        }
        let lives = |n: &NodeInfo| n.lease_until > now && (n.remote || !new.sole);
        let stays = |n: &NodeInfo| lives(n) || self.holds_any(n.id);
        free_slot(&slots(&stays), new.remote).map(|slot| (slot, true))
    }

    /// Nobody could take the heartbeats of workers that lived when anybody was last
    /// heard of.
    fn spare_workers(&mut self, until: Timestamp) {
        let heard = self.nodes.values().map(|n| n.heartbeat_at).max();
        let lost = &self.announced_lost;
        let lived =
            |n: &&mut NodeInfo| n.remote && Some(n.lease_until) > heard && !lost.contains(&n.id);
        self.nodes
            .values_mut()
            .filter(lived)
            .for_each(|n| n.lease_until = n.lease_until.max(until));
    }

    pub(super) fn holds_any(&self, node: NodeId) -> bool {
        self.leased.iter().any(|id| self.tasks[id].task.standing.node == Some(node))
    }

    fn check_live(&self, node: NodeId, now: Timestamp) -> Result<()> {
        match self.nodes.get(&node) {
            Some(info) if info.lease_until > now => Ok(()),
            _ => Err(Error::lease_lost("node", format!("the lease of {node} has ended"))),
        }
    }

    pub(super) fn claim(&mut self, claim: &Claim, now: Timestamp) -> Result<Vec<Claimed>> {
        check_claim(claim)?;
        self.check_live(claim.node, now)?;
        let max = claim.max.min(CLAIM_MAX);
        let mut out = vec![];
        let mut claimed = vec![];
        for (i, lane) in claim.lanes.iter().enumerate() {
            // Tasks of one queue are offered by its first lane only.
            let repeated = claim.lanes[..i].iter().any(|l| l.queue == lane.queue);
            if repeated || self.queues.get(&lane.queue).is_some_and(|q| q.paused) {
                continue;
            }
            let room = self.room(lane, claim).min(max - claimed.len());
            let mut picker = Picker { room, lane, kinds: HashMap::new() };
            for id in self.candidates(claim, lane) {
                if picker.room == 0 {
                    break;
                }
                self.offer(id, claim, &mut picker, now, &mut claimed, &mut out);
            }
        }
        if let Wanted::Ids(ids) = &claim.wanted {
            claimed.sort_by_key(|c| ids.iter().position(|id| *id == c.task.id));
        }
        self.publish(out);
        Ok(claimed)
    }

    /// How many more of a queue may run, by the lane and by the cluster.
    fn room(&self, lane: &Lane, claim: &Claim) -> usize {
        let Some(limit) = self.queues.get(&lane.queue).and_then(|q| q.concurrency) else {
            return lane.max;
        };
        // Taking over from a dead node adds no running task.
        if claim.wanted == Wanted::Expired {
            return lane.max;
        }
        let running =
            self.leased.iter().filter(|id| self.tasks[id].task.queue == lane.queue).count();
        lane.max.min((limit as usize).saturating_sub(running))
    }

    fn candidates(&self, claim: &Claim, lane: &Lane) -> Vec<TaskId> {
        let first = (lane.queue.clone(), i8::MIN, TaskId::from_key(i64::MIN));
        let ready = || self.ready.range(first..).take_while(|(queue, _, _)| *queue == lane.queue);
        let in_lane = |id: &&TaskId| self.tasks[id].task.queue == lane.queue;
        match &claim.wanted {
            // Beside what is taken, some may end here because they are too late.
            Wanted::Ready if lane.kinds == Kinds::Any => {
                let most = lane.max.min(CLAIM_MAX) + CLAIM_MAX;
                ready().map(|(_, _, id)| *id).take(most).collect()
            }
            Wanted::Ready => ready().map(|(_, _, id)| *id).collect(),
            Wanted::Ids(ids) => {
                let wanted: HashSet<&TaskId> = ids.iter().collect();
                let found: HashSet<TaskId> =
                    ready().map(|(_, _, id)| *id).filter(|id| wanted.contains(id)).collect();
                ids.iter().copied().filter(|id| found.contains(id)).collect()
            }
            Wanted::Expired => self.leased.iter().filter(in_lane).copied().collect(),
        }
    }

    /// Takes one candidate, ends it, or passes it over.
    fn offer(
        &mut self,
        id: TaskId,
        claim: &Claim,
        picker: &mut Picker<'_>,
        now: Timestamp,
        claimed: &mut Vec<Claimed>,
        out: &mut Events,
    ) {
        let row = &self.tasks[&id];
        if !picker.may_take(&row.task.kind) || claimed.iter().any(|c| c.task.id == id) {
            return;
        }
        let card = row.task.card();
        let mut standing = row.task.standing.clone();
        let expired = claim.wanted == Wanted::Expired;
        if expired {
            let dead = standing.node.filter(|n| self.check_live(*n, now).is_err());
            if dead.is_none() {
                return;
            }
            self.lose(id, now);
            let held = self.tasks[&id].held;
            let was = held.map_or(Inside { in_step: false, alone: false }, |h| Inside {
                in_step: h.in_step,
                alone: h.alone,
            });
            if let AfterCrash::Poisoned { .. } =
                standing.crashed(&card, claim.poison, was, now, out)
            {
                self.save(id, standing, None, now);
                return;
            }
            standing.take_over(&card, claim.node, now, out);
        } else if standing.is_expired(row.task.deadline, now) {
            let deadline = row.task.deadline.unwrap_or(now);
            if standing.expire(&card, deadline, now, self.guards.transition(), out).is_ok() {
                self.save(id, standing, None, now);
            }
            return;
        } else if standing.claim(&card, claim.node, now, self.guards.transition(), out).is_err() {
            return;
        }
        picker.took(&row_kind(self, id));
        self.save(id, standing, None, now);
        claimed.push(self.lease(id, claim));
    }

    /// Notes the attempt that a dead node leaves behind.
    fn lose(&mut self, id: TaskId, now: Timestamp) {
        let Some(row) = self.tasks.get_mut(&id) else { return };
        let attempt = attempt_of(&row.task.standing, Some((AttemptEnd::Lost, now)), None);
        row.attempts.push(attempt);
    }

    fn lease(&mut self, id: TaskId, claim: &Claim) -> Claimed {
        let alone = claim.poison.runs_alone(self.tasks[&id].task.standing.crashes);
        if let Some(row) = self.tasks.get_mut(&id) {
            let in_step = claim.begins && !alone;
            row.held = Some(Held { claim: claim.number, in_step, alone });
        }
        let task = self.tasks[&id].task.clone();
        Claimed { checkpoint: self.live_checkpoint(id), task, alone }
    }

    pub(super) fn live_checkpoint(&self, id: TaskId) -> Option<Checkpoint> {
        let row = self.tasks.get(&id)?;
        let mut entries: Vec<_> = row.steps.iter().filter(|e| e.live).cloned().collect();
        entries.iter_mut().for_each(|e| e.record.log = None);
        let version = row.task.standing.version;
        (!entries.is_empty()).then_some(Checkpoint { version, entries })
    }

    pub(super) fn renew(&mut self, renewal: &Renewal, now: Timestamp) -> Result<Renewed> {
        self.check_live(renewal.node, now)?;
        let held: HashMap<TaskId, Token> = renewal.held.iter().copied().collect();
        let mut renewed = Renewed::default();
        let mine: Vec<TaskId> = self
            .leased
            .iter()
            .filter(|id| self.tasks[id].task.standing.node == Some(renewal.node))
            .copied()
            .collect();
        let mut known = HashSet::new();
        for id in mine {
            let row = &self.tasks[&id];
            let standing = &row.task.standing;
            let answered = row.held.is_none_or(|h| renewal.has_answer(h.claim));
            if held.get(&id) == Some(&standing.token) {
                known.insert(id);
                if standing.requests.any() {
                    renewed.requests.push((id, standing.requests));
                }
            } else if answered {
                self.give_back(id, now)?;
                renewed.given_back += 1;
            }
        }
        renewed.lost =
            renewal.held.iter().map(|(id, _)| *id).filter(|id| !known.contains(id)).collect();
        self.extend(renewal, &mut renewed, now)?;
        Ok(renewed)
    }

    fn extend(&mut self, renewal: &Renewal, renewed: &mut Renewed, now: Timestamp) -> Result<()> {
        let active = self.holds_any(renewal.node);
        let node =
            self.nodes.get_mut(&renewal.node).ok_or_else(|| no_such("node", renewal.node))?;
        crate::store::renew_node(node, renewal, renewed, now);
        if renewal.stage == Stage::Leaving && !active {
            self.nodes.remove(&renewal.node);
        }
        Ok(())
    }

    fn give_back(&mut self, id: TaskId, now: Timestamp) -> Result<()> {
        let Some(row) = self.tasks.get_mut(&id) else { return Ok(()) };
        let attempt = attempt_of(&row.task.standing, Some((AttemptEnd::GivenBack, now)), None);
        row.attempts.push(attempt);
        let (card, mut standing) = (row.task.card(), row.task.standing.clone());
        let mut out = vec![];
        standing.give_back(&card, now, self.guards.transition(), &mut out)?;
        self.save(id, standing, None, now);
        self.publish(out);
        Ok(())
    }
}

fn row_kind(inner: &Inner, id: TaskId) -> Kind {
    inner.tasks[&id].task.kind.clone()
}

/// Counts what a lane still may take.
struct Picker<'a> {
    room: usize,
    lane: &'a Lane,
    kinds: HashMap<Kind, usize>,
}

impl Picker<'_> {
    fn may_take(&self, kind: &Kind) -> bool {
        self.lane.kinds.max(kind) > self.kinds.get(kind).copied().unwrap_or(0)
    }

    fn took(&mut self, kind: &Kind) {
        self.room -= 1;
        *self.kinds.entry(kind.clone()).or_default() += 1;
    }
}
