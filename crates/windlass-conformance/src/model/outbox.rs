//! The outbox in the model: which dead letters must leave the store, and in
//! which order per lane. What a store hands out is checked against it, not
//! foretold: numbers, and the order among lanes, are the store's.

use super::Model;
use std::collections::BTreeMap;
use windlass_core::clock::Timestamp;
use windlass_core::id::{NodeId, TaskId};
use windlass_core::store::{OUTBOX_LANES, OutboxOp, OutboxRow, OutboxTopic, outbox_lane};

/// One dead letter on its way out. Its number is known once a store gave it.
#[derive(Debug, Clone, PartialEq)]
struct Letter {
    task: TaskId,
    seq: Option<i64>,
}

impl Letter {
    /// The oldest letter of a task that is not yet given has no number.
    fn is_told_by(&self, row: &OutboxRow) -> bool {
        row.topic == OutboxTopic::DeadLetter
            && row.task == Some(self.task)
            && self.seq.is_none_or(|seq| seq == row.seq)
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
struct Lane {
    letters: Vec<Letter>,
    holder: Option<NodeId>,
    until: Timestamp,
    /// Put off until then.
    not_before: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Outbox {
    on: bool,
    lanes: BTreeMap<u8, Lane>,
}

impl Model {
    /// Dead letters go out from now on.
    pub fn switch_outbox_on(&mut self) {
        self.outbox.on = true;
    }

    /// How many facts wait.
    pub fn outbox_len(&self) -> usize {
        self.outbox.lanes.values().map(|lane| lane.letters.len()).sum()
    }

    /// Numbers of the letters this node has got and not yet confirmed.
    pub fn letters_of(&self, node: NodeId) -> Vec<i64> {
        let lanes = self.outbox.lanes.values().filter(|lane| lane.holder == Some(node));
        lanes.flat_map(|lane| &lane.letters).filter_map(|letter| letter.seq).collect()
    }

    pub(super) fn post(&mut self, task: TaskId) {
        if self.outbox.on {
            let lane = self.outbox.lanes.entry(outbox_lane(Some(task))).or_default();
            lane.letters.push(Letter { task, seq: None });
        }
    }

    /// `Take` gives a node every lane that is free or its own already.
    pub(super) fn outbox(&mut self, op: &OutboxOp, now: Timestamp) {
        match op {
            OutboxOp::Take { node, hold, .. } => {
                for lane in 0..OUTBOX_LANES {
                    let lane = self.outbox.lanes.entry(lane).or_default();
                    if lane.until <= now || lane.holder == Some(*node) {
                        lane.holder = Some(*node);
                        lane.until = now.plus(*hold);
                    }
                }
            }
            OutboxOp::Done { node, seqs } => {
                for lane in self.outbox.lanes.values_mut().filter(|l| l.holder == Some(*node)) {
                    lane.letters.retain(|l| l.seq.is_none_or(|seq| !seqs.contains(&seq)));
                }
            }
            OutboxOp::Later { node, seq, at } => {
                for lane in self.outbox.lanes.values_mut().filter(|l| l.holder == Some(*node)) {
                    if lane.letters.iter().any(|l| l.seq == Some(*seq)) {
                        lane.not_before = *at;
                    }
                }
            }
        }
    }

    /// Checks what `Take` gave, after the model has done it too. Only the order
    /// of one task's letters is promised.
    pub fn check_letters(
        &mut self,
        node: NodeId,
        max: usize,
        rows: &[OutboxRow],
        now: Timestamp,
    ) -> Result<(), String> {
        let open = |lane: &Lane| lane.holder == Some(node) && lane.not_before <= now;
        let lanes = self.outbox.lanes.values().filter(|lane| open(lane));
        let waiting: usize = lanes.map(|lane| lane.letters.len()).sum();
        if rows.len() != waiting.min(max) {
            return Err(format!("{} letters of {waiting}, asked for {max}", rows.len()));
        }
        let mut newest: BTreeMap<u8, i64> = BTreeMap::new();
        for row in rows {
            let lane = self.outbox.lanes.get_mut(&row.lane).filter(|lane| open(lane));
            let lane = lane.ok_or_else(|| format!("{node} does not have the lane of {row:?}"))?;
            let letter = lane.letters.iter_mut().find(|l| l.is_told_by(row));
            let letter = letter.ok_or_else(|| format!("{row:?} is unknown"))?;
            if newest.insert(row.lane, row.seq).is_some_and(|before| before >= row.seq) {
                return Err(format!("{row:?} is given out of order"));
            }
            letter.seq = Some(row.seq);
        }
        Ok(())
    }
}
