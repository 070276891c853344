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
use windlass_core::task::{Kind, QueueName};

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

    fn lane_of(&self, queue: &QueueName) -> Option<usize> {
        self.claim.lanes.iter().position(|lane| lane.queue == *queue)
    }

    fn is_full(&self) -> bool {
        self.taken.len() >= self.claim.max
    }

    fn lane_is_full(&self, lane: usize) -> bool {
        self.by_lane.get(&lane).is_some_and(|n| *n >= self.claim.lanes[lane].max)
            || self.claim.lanes[lane].max == 0
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
        match &claim.wanted {
            Wanted::Ready => self.claim_ready(&mut room, now),
            Wanted::Ids(ids) => {
                for id in ids {
                    self.claim_id(*id, &mut room, now);
                }
            }
            Wanted::Expired => self.claim_expired(&mut room, now),
        }
        Ok(room.taken.iter().map(|id| took(&self.tasks[id])).collect())
    }

    fn claim_ready(&mut self, room: &mut Room<'_>, now: Timestamp) {
        for lane in 0..room.claim.lanes.len() {
            let queue = &room.claim.lanes[lane].queue;
            if self.paused.contains(queue) {
                continue;
            }
            let ready = self.tasks.values().filter(|r| r.new.queue == *queue && r.is_ready());
            let mut line: Vec<_> = ready.map(|r| (Reverse(r.new.priority), r.id())).collect();
            line.sort();
            for (_, id) in line {
                if room.is_full() || room.lane_is_full(lane) {
                    break;
                }
                self.start_or_expire(id, lane, room, now);
            }
        }
    }

    fn claim_id(&mut self, id: TaskId, room: &mut Room<'_>, now: Timestamp) {
        let Some(row) = self.tasks.get(&id).filter(|r| r.is_ready()) else { return };
        let Some(lane) = room.lane_of(&row.new.queue) else { return };
        if room.is_full() || room.lane_is_full(lane) || self.paused.contains(&row.new.queue) {
            return;
        }
        self.start_or_expire(id, lane, room, now);
    }

    fn start_or_expire(&mut self, id: TaskId, lane: usize, room: &mut Room<'_>, now: Timestamp) {
        let claim = room.claim;
        let row = self.tasks.get_mut(&id).expect("looked up before");
        if !room.wants(lane, &row.new.kind) {
            return;
        }
        let before = row.state;
        if row.too_late(now) {
            row.fail(Reason::Expired, Class::Timeout, now);
        } else {
            row.requests = Requests::NONE;
            row.begin(claim, now);
            room.take(lane, row);
        }
        self.follow_up(id, before);
    }

    fn claim_expired(&mut self, room: &mut Room<'_>, now: Timestamp) {
        let ids: Vec<TaskId> = self.tasks.keys().copied().collect();
        for id in ids {
            let row = &self.tasks[&id];
            let lost = row.leased && row.node.is_some_and(|n| !self.is_live(n, now));
            let Some(lane) = room.lane_of(&row.new.queue).filter(|_| lost) else { continue };
            let shut = room.lane_is_full(lane) || self.paused.contains(&row.new.queue);
            if room.is_full() || shut || !room.wants(lane, &row.new.kind) {
                continue;
            }
            let row = self.tasks.get_mut(&id).expect("looked up before");
            let before = row.state;
            if row.lose_node(room.claim, now) {
                room.take(lane, row);
            }
            self.follow_up(id, before);
        }
    }
}

impl Row {
    fn begin(&mut self, claim: &Claim, now: Timestamp) {
        self.start(claim.node, claim.number, now);
        self.in_step = claim.begins;
        let limit = claim.poison.limit;
        self.alone = limit > 0 && self.crashes > 0 && self.crashes + 1 >= limit;
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
