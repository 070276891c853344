//! Random claims and heartbeats: some answers are taken for lost, some nodes
//! fall silent, some lists of held tasks are wrong.

use super::{History, Player, remember, submits};
use crate::model::{Op, Took};
use rand::RngExt;
use rand::seq::SliceRandom;
use std::time::Duration;
use windlass_core::error::Code;
use windlass_core::id::{NodeId, TaskId};
use windlass_core::lease::{ClaimNo, LeaseKey, PoisonRule, Token};
use windlass_core::store::{Claim, Kinds, Lane, Renewal, Renewed, Stage, Tally, Wanted};

impl History {
    pub(super) async fn claim_ready(&mut self) -> Result<(), String> {
        self.claim(Wanted::Ready).await
    }

    pub(super) async fn claim_expired(&mut self) -> Result<(), String> {
        self.claim(Wanted::Expired).await
    }

    pub(super) async fn claim_ids(&mut self) -> Result<(), String> {
        let ready = self.model.tasks.values().filter(|r| r.is_ready()).map(|r| r.id());
        let mut ids: Vec<TaskId> = ready.collect();
        ids.shuffle(&mut self.rng);
        ids.truncate(3);
        ids.extend(self.any_task());
        if self.chance(20) {
            ids.push(TaskId::from_key(9));
            ids.extend(ids.first().copied());
        }
        ids.shuffle(&mut self.rng);
        self.claim(Wanted::Ids(ids)).await
    }

    async fn claim(&mut self, wanted: Wanted) -> Result<(), String> {
        let node = self.pick(self.nodes.len());
        let lanes = self.lanes();
        let player = &mut self.nodes[node];
        player.claims += 1;
        let (node, number) = (player.id, ClaimNo(player.claims));
        let claim = Claim {
            node,
            number,
            wanted,
            lanes,
            max: self.rng.random_range(0..8),
            poison: PoisonRule { limit: [3, 2, 2, 1, 1, 0][self.pick(6)] },
            begins: self.chance(70),
        };
        self.perform(Op::Claim(claim)).await
    }

    fn lanes(&mut self) -> Vec<Lane> {
        let mut queues = submits::queues();
        queues.shuffle(&mut self.rng);
        if self.chance(30) {
            queues.truncate(self.rng.random_range(1..3));
        }
        queues.into_iter().map(|queue| self.lane(queue)).collect()
    }

    fn lane(&mut self, queue: windlass_core::task::QueueName) -> Lane {
        let max = self.rng.random_range(0..6);
        let kinds = if self.chance(65) {
            Kinds::Any
        } else {
            let mut kinds = submits::kinds();
            kinds.shuffle(&mut self.rng);
            kinds.truncate(self.rng.random_range(1..=4));
            Kinds::Only(kinds.into_iter().map(|k| (k, self.rng.random_range(0..4))).collect())
        };
        Lane { queue, max, kinds }
    }

    pub(super) fn learn_claim(&mut self, claim: &Claim, answer: &Result<Vec<Took>, Code>) {
        let word = match claim.wanted {
            Wanted::Ready => "claim.ready",
            Wanted::Ids(_) => "claim.ids",
            Wanted::Expired => "claim.expired",
        };
        match answer {
            Err(code) => self.note(&format!("{word}.{}", code.as_str())),
            Ok(taken) => {
                self.report.add(word, taken.len() as u64);
                self.report.add("claim.alone", taken.iter().filter(|t| t.alone).count() as u64);
                let asked = taken.iter().filter(|t| t.requests.any()).count();
                self.report.add("claim.with_requests", asked as u64);
                let believed_lost = self.chance(8);
                if believed_lost {
                    self.note("claim.answer_lost");
                    return;
                }
                let player = self.nodes.iter_mut().find(|p| p.id == claim.node);
                if let Some(player) = player {
                    player.held.extend(taken.iter().map(|t| (t.task, t.token)));
                    player.consumed += taken.len() as u64;
                }
            }
        }
    }

    pub(super) async fn renew(&mut self) -> Result<(), String> {
        let which = self.pick(self.nodes.len());
        if self.nodes[which].silent && self.chance(80) {
            return Ok(());
        }
        if self.chance(4) {
            self.nodes[which].silent = true;
            self.note("node.silent");
            return Ok(());
        }
        let stage = match self.dice(100) {
            0..92 => Stage::Serving,
            92..97 => Stage::Draining,
            _ => Stage::Leaving,
        };
        let held = self.held_list(which);
        let player = &self.nodes[which];
        let (node, claims, consumed) = (player.id, player.claims, player.consumed);
        let answered = if self.chance(85) { claims } else { self.rng.random_range(0..=claims) };
        let tally = if self.chance(80) { Tally::Total } else { Tally::More };
        let renewal = Renewal {
            node,
            lease: Duration::from_secs([20, 30, 60][self.pick(3)]),
            held,
            answered: ClaimNo(answered),
            stage,
            consumed,
            failed: consumed / 10,
            tally,
        };
        self.perform(Op::Renew(renewal)).await
    }

    /// What the node will say it holds: mostly the truth.
    fn held_list(&mut self, which: usize) -> Vec<(TaskId, Token)> {
        let mut held = self.nodes[which].held.clone();
        if !held.is_empty() && self.chance(15) {
            let dropped = self.pick(held.len());
            held.remove(dropped);
        }
        if self.chance(10)
            && let Some(task) = self.any_task()
        {
            let token = self.model.tasks[&task].token;
            let wrong = held.iter().all(|(t, _)| *t != task);
            held.extend(wrong.then_some((task, token)));
        }
        held
    }

    pub(super) fn learn_renew(&mut self, renewal: &Renewal, answer: &Result<Renewed, Code>) {
        let Some(which) = self.nodes.iter().position(|p| p.id == renewal.node) else { return };
        match answer {
            Err(code) => {
                self.note(&format!("renew.{}", code.as_str()));
                self.retire(which);
            }
            Ok(renewed) => {
                self.note("renew");
                self.report.add("renew.given_back", renewed.given_back as u64);
                self.report.add("renew.lost", renewed.lost.len() as u64);
                self.report.add("renew.requests", renewed.requests.len() as u64);
                self.forget_what_went(which);
                if !self.model.nodes.contains_key(&renewal.node) {
                    self.note("node.left");
                    self.retire(which);
                }
            }
        }
    }

    /// A node keeps only what the store still knows as its own.
    fn forget_what_went(&mut self, which: usize) {
        let player = &mut self.nodes[which];
        let (mine, gone): (Vec<_>, Vec<_>) = player.held.iter().partition(|(task, token)| {
            let key = LeaseKey { task: *task, node: player.id, token: *token };
            self.model.tasks[task].lease() == Some(key)
        });
        let node = player.id;
        player.held = mine;
        for (task, token) in gone {
            remember(&mut self.old_leases, LeaseKey { task, node, token });
        }
    }

    /// A node whose lease is lost; what it held may still be written about.
    fn retire(&mut self, which: usize) {
        let Player { id, held, .. } = self.nodes.remove(which);
        for (task, token) in held {
            remember(&mut self.old_leases, LeaseKey { task, node: id, token });
        }
    }

    pub(super) fn any_node(&mut self) -> NodeId {
        let which = self.pick(self.nodes.len());
        self.nodes[which].id
    }
}
