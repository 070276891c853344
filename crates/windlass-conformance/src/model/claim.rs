//! Claiming in the model: which tasks a node gets, in which order, and what
//! happens to those that may not start any more.

use super::{Model, Row, Took};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use windlass_core::clock::Timestamp;
use windlass_core::error::Code;
use windlass_core::event::EventName;
use windlass_core::id::TaskId;
use windlass_core::lease::Requests;
use windlass_core::outcome::{Class, Reason};
use windlass_core::state::State;
use windlass_core::store::{AttemptEnd, Claim, Kinds, Wanted};
use windlass_core::task::Kind;

/// What one claim may still take.
struct Room<'a> {
    claim: &'a Claim,
    taken: Vec<TaskId>,
    by_lane: BTreeMap<usize, usize>,
    by_kind: BTreeMap<(usize, Kind), usize>,
}

impl<'a> Room<'a> {
    fn new(claim: &'a Claim) -> Self {
        Room { claim, taken: vec![], by_lane: BTreeMap::new(), by_kind: BTreeMap::new() }
    }

    fn is_full(&self, lane: usize) -> bool {
        let of_lane = self.by_lane.get(&lane).copied().unwrap_or(0);
        self.taken.len() >= self.claim.max || of_lane >= self.claim.lanes[lane].max
    }

    fn wants(&self, lane: usize, kind: &Kind) -> bool {
        let most = match &self.claim.lanes[lane].kinds {
            Kinds::Any => return true,
            Kinds::Only(list) => list.iter().find(|(k, _)| k == kind).map_or(0, |(_, max)| *max),
        };
        self.by_kind.get(&(lane, kind.clone())).copied().unwrap_or(0) < most
    }

    fn take(&mut self, lane: usize, row: &Row) {
        self.taken.push(row.id());
        *self.by_lane.entry(lane).or_default() += 1;
        *self.by_kind.entry((lane, row.new.kind.clone())).or_default() += 1;
    }
}

impl Model {
    pub(super) fn claim(&mut self, claim: &Claim, now: Timestamp) -> Result<Vec<Took>, Code> {
        if !self.is_live(claim.node, now) {
            return Err(Code::LeaseLost);
        }
        let mut room = Room::new(claim);
        for lane in 0..claim.lanes.len() {
            if self.paused.contains(&claim.lanes[lane].queue) {
                continue;
            }
            for id in self.line(claim, lane, now) {
                if room.is_full(lane) {
                    break;
                }
                self.offer(id, lane, &mut room, now);
            }
        }
        let mut taken = room.taken;
        if let Wanted::Ids(ids) = &claim.wanted {
            taken.sort_by_key(|id| ids.iter().position(|wanted| wanted == id));
        }
        Ok(taken.iter().map(|id| took(&self.tasks[id])).collect())
    }

    /// The tasks of a lane that this claim may look at, in their order.
    fn line(&self, claim: &Claim, lane: usize, now: Timestamp) -> Vec<TaskId> {
        let queue = &claim.lanes[lane].queue;
        let here = |row: &&Row| row.new.queue == *queue;
        match &claim.wanted {
            Wanted::Ready => {
                let ready = self.tasks.values().filter(here).filter(|r| r.is_ready());
                let mut line: Vec<_> = ready.map(|r| (Reverse(r.new.priority), r.id())).collect();
                line.sort();
                line.into_iter().map(|(_, id)| id).collect()
            }
            Wanted::Ids(ids) => {
                let known = ids.iter().filter_map(|id| self.tasks.get(id));
                known.filter(here).filter(|r| r.is_ready()).map(|r| r.id()).collect()
            }
            Wanted::Expired => {
                let dead = |r: &&Row| r.leased && r.node.is_some_and(|n| !self.is_live(n, now));
                self.tasks.values().filter(here).filter(dead).map(|r| r.id()).collect()
            }
        }
    }

    /// Takes one task, ends it, or passes it over.
    fn offer(&mut self, id: TaskId, lane: usize, room: &mut Room<'_>, now: Timestamp) {
        let claim = room.claim;
        let row = self.tasks.get_mut(&id).expect("it stood in line");
        // An id that was asked for twice is no longer there the second time.
        let there = claim.wanted == Wanted::Expired || row.is_ready();
        if !there || !room.wants(lane, &row.new.kind) {
            return;
        }
        let before = row.state;
        let taken = if claim.wanted == Wanted::Expired {
            row.lose_node(claim, now)
        } else if row.too_late(now) {
            row.fail(Reason::Expired, Class::Timeout, now);
            false
        } else {
            row.requests = Requests::NONE;
            row.begin(claim, now);
            true
        };
        if taken {
            room.take(lane, row);
        }
        self.follow_up(id, before);
    }
}

impl Row {
    fn begin(&mut self, claim: &Claim, now: Timestamp) {
        self.start(claim.node, claim.number, now);
        let limit = claim.poison.limit;
        self.alone = limit > 0 && self.crashes > 0 && self.crashes + 1 >= limit;
        // What must run alone waits for an empty node first.
        self.in_step = claim.begins && !self.alone;
    }

    /// Its node died. True: the claimer has it now; false: it was the culprit.
    fn lose_node(&mut self, claim: &Claim, now: Timestamp) -> bool {
        let limit = claim.poison.limit;
        let (in_step, asked) = (self.in_step, self.requests);
        if in_step {
            self.crashes += 1;
        }
        self.end_attempt(AttemptEnd::Lost, now);
        self.tell(EventName::LeaseLost);
        if limit > 0 && in_step && self.alone && self.crashes >= limit {
            let rolling = self.state == State::RollingBack;
            let reason = if rolling { Reason::Rollback } else { Reason::Poisoned };
            self.fail(reason, Class::Lost, now);
            return false;
        }
        self.requests = asked;
        self.begin(claim, now);
        true
    }
}

fn took(row: &Row) -> Took {
    let live = row.steps.iter().filter(|s| s.live);
    Took {
        task: row.id(),
        state: row.state,
        token: row.token,
        run: row.run,
        attempt: row.attempt,
        retries: row.retries,
        version: row.version,
        requests: row.requests,
        alone: row.alone,
        payload: row.new.payload.as_str().to_owned(),
        steps: live.map(|s| (s.record.name.clone(), s.record.version.0)).collect(),
    }
}
