//! Nodes in the model: joining, heartbeats, and the claims whose answers got
//! lost. A node is live while now is before the end of its lease.

use super::{Answer, Model};
use windlass_core::clock::Timestamp;
use windlass_core::error::Code;
use windlass_core::event::EventName;
use windlass_core::id::{NodeId, TaskId};
use windlass_core::store::{NewNode, Renewal, Renewed, Stage, Tally};

/// One node.
#[derive(Debug, Clone, PartialEq)]
pub struct Host {
    pub new: NewNode,
    pub slot: u16,
    pub lease_until: Timestamp,
    pub stage: Stage,
    pub paused: bool,
    pub consumed: u64,
    pub failed: u64,
    /// Its loss has been told.
    pub lost: bool,
}

impl Model {
    pub(super) fn join(&mut self, new: &NewNode, id: NodeId, slot: u16, now: Timestamp) -> Answer {
        let free = !self.nodes.contains_key(&id) && self.nodes.values().all(|h| h.slot != slot);
        if let Some(before) = new.instead_of {
            let mine = self.tasks.values_mut().filter(|r| r.leased && r.node == Some(before));
            mine.for_each(|row| row.in_step = false);
        }
        let lease_until = now.plus(new.lease);
        let host = Host {
            new: new.clone(),
            slot,
            lease_until,
            stage: Stage::Serving,
            paused: false,
            consumed: 0,
            failed: 0,
            lost: false,
        };
        self.nodes.insert(id, host);
        self.places.push(EventName::NodeJoined);
        Answer::Joined(lease_until, free)
    }

    pub fn is_live(&self, node: NodeId, now: Timestamp) -> bool {
        self.nodes.get(&node).is_some_and(|h| now < h.lease_until)
    }

    /// What the store thinks this node holds.
    pub fn held_by(&self, node: NodeId) -> Vec<TaskId> {
        let mine = self.tasks.values().filter(|r| r.leased && r.node == Some(node));
        mine.map(|r| r.id()).collect()
    }

    pub(super) fn renew(&mut self, renewal: &Renewal, now: Timestamp) -> Result<Renewed, Code> {
        let node = renewal.node;
        if !self.is_live(node, now) {
            return Err(Code::LeaseLost);
        }
        let mut answer = Renewed { lease_until: now.plus(renewal.lease), ..Renewed::default() };
        let mut kept = vec![];
        for (task, token) in &renewal.held {
            let row = self.tasks.get(task);
            let held = row.filter(|r| r.leased && r.node == Some(node) && r.token == *token);
            match held {
                None => answer.lost.push(*task),
                Some(row) => {
                    kept.push(*task);
                    if row.requests.any() {
                        answer.requests.push((*task, row.requests));
                    }
                }
            }
        }
        answer.lost.sort();
        answer.requests.sort_by_key(|(id, _)| *id);
        let leaving = renewal.stage == Stage::Leaving;
        for id in self.held_by(node) {
            let row = self.tasks.get_mut(&id).expect("held");
            if !kept.contains(&id) && (leaving || row.claim <= renewal.answered) {
                let before = row.state;
                row.give_back(now);
                self.follow_up(id, before);
                answer.given_back += 1;
            }
        }
        let host = self.nodes.get_mut(&node).expect("live");
        host.lease_until = answer.lease_until;
        // A drain that people asked for stays.
        if renewal.stage != Stage::Serving {
            host.stage = renewal.stage;
        }
        let (consumed, failed) = match renewal.tally {
            Tally::Total => (0, 0),
            Tally::More => (host.consumed, host.failed),
        };
        host.consumed = consumed + renewal.consumed;
        host.failed = failed + renewal.failed;
        answer.paused = host.paused;
        answer.draining = host.stage != Stage::Serving;
        if leaving && self.held_by(node).is_empty() {
            self.nodes.remove(&node);
        }
        Ok(answer)
    }
}
