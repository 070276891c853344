//! The outbox in the model: which dead letters must leave the store, in which
//! order per lane. What a store hands out is checked against it, not foretold:
//! which lane comes first is the store's choice.

use super::Model;
use std::collections::BTreeMap;
use windlass_core::clock::Timestamp;
use windlass_core::id::{NodeId, TaskId};
use windlass_core::store::{OUTBOX_LANES, OutboxOp, OutboxRow, OutboxTopic, outbox_lane};

/// One dead letter on its way out. Its number is known once a store gave it.
#[derive(Debug, Clone, PartialEq)]
pub struct Letter {
    pub task: TaskId,
    pub seq: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Outbox {
    /// The rule is on.
    on: bool,
    lanes: BTreeMap<u8, Vec<Letter>>,
    /// Who holds a lane, and until when; a lane that waits is held by nobody.
    held: BTreeMap<u8, (Option<NodeId>, Timestamp)>,
}

impl Model {
    /// Dead letters go out from now on.
    pub fn switch_outbox_on(&mut self) {
        self.outbox.on = true;
    }

    /// How many facts wait.
    pub fn outbox_len(&self) -> usize {
        self.outbox.lanes.values().map(Vec::len).sum()
    }

    /// Letters that a store gave out and that are not confirmed, by holder.
    pub fn letters_held(&self, node: NodeId) -> Vec<i64> {
        let lanes = self.outbox.held.iter().filter(|(_, (by, _))| *by == Some(node));
        let letters = lanes.filter_map(|(lane, _)| self.outbox.lanes.get(lane)).flatten();
        letters.filter_map(|letter| letter.seq).collect()
    }

    pub(super) fn post(&mut self, task: TaskId) {
        if self.outbox.on {
            let lane = self.outbox.lanes.entry(outbox_lane(Some(task))).or_default();
            lane.push(Letter { task, seq: None });
        }
    }

    fn lane_is_free(&self, lane: u8, now: Timestamp) -> bool {
        self.outbox.held.get(&lane).is_none_or(|(_, until)| *until <= now)
    }

    /// Checks what `Take` gave and remembers who holds which lane.
    pub fn taken(&mut self, op: &OutboxOp, rows: &[OutboxRow], now: Timestamp) -> Result<(), String> {
        let OutboxOp::Take { node, hold, max } = op else { return Ok(()) };
        let mut by_lane: BTreeMap<u8, Vec<&OutboxRow>> = BTreeMap::new();
        for row in rows {
            by_lane.entry(row.lane).or_default().push(row);
        }
        if rows.len() > *max {
            return Err(format!("{} letters, at most {max} were asked for", rows.len()));
        }
        for (lane, rows) in &by_lane {
            if !self.lane_is_free(*lane, now) {
                return Err(format!("lane {lane} was given, but it is not free"));
            }
            let waiting = self.outbox.lanes.entry(*lane).or_default();
            for (row, letter) in rows.iter().zip(waiting.iter_mut()) {
                let known = letter.seq.is_none_or(|seq| seq == row.seq);
                let right = row.task == Some(letter.task) && row.topic == OutboxTopic::DeadLetter;
                if !known || !right {
                    return Err(format!("lane {lane} gave {row:?}, its oldest is {letter:?}"));
                }
                letter.seq = Some(row.seq);
            }
            if rows.len() > waiting.len() {
                return Err(format!("lane {lane} gave more than it has"));
            }
            self.outbox.held.insert(*lane, (Some(*node), now.plus(*hold)));
        }
        let nothing = rows.is_empty() && *max > 0;
        let free = (0..OUTBOX_LANES).find(|lane| {
            self.lane_is_free(*lane, now) && self.outbox.lanes.get(lane).is_some_and(|l| !l.is_empty())
        });
        match free {
            Some(lane) if nothing => Err(format!("lane {lane} is free and has letters, none given")),
            _ => Ok(()),
        }
    }

    pub(super) fn outbox(&mut self, op: &OutboxOp, now: Timestamp) {
        match op {
            OutboxOp::Take { .. } => {}
            OutboxOp::Done { node, seqs } => {
                let mine = self.outbox.held.iter().filter(|(_, (by, _))| *by == Some(*node));
                let mine: Vec<u8> = mine.map(|(lane, _)| *lane).collect();
                for lane in mine {
                    let letters = self.outbox.lanes.entry(lane).or_default();
                    let before = letters.len();
                    letters.retain(|l| l.seq.is_none_or(|seq| !seqs.contains(&seq)));
                    let _ = before;
                }
            }
            OutboxOp::Later { seq, at, .. } => {
                let has = |l: &&Letter| l.seq == Some(*seq);
                let lanes = &self.outbox.lanes;
                let lane = lanes.iter().find(|(_, ls)| ls.iter().any(|l| has(&l)));
                if let Some((lane, _)) = lane {
                    self.outbox.held.insert(*lane, (None, *at));
                }
            }
        }
        let _ = now;
    }
}
