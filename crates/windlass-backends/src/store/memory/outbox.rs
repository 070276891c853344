//! Facts on their way out. Rows are written with the change they tell of; a
//! relay takes lanes for a while, so that the rows of one task leave in order
//! however many relays there are.

use super::Inner;
use windlass_core::Result;
use windlass_core::clock::Timestamp;
use windlass_core::id::TaskId;
use windlass_core::json::Json;
use windlass_core::store::{
    OUTBOX_LANES, OutboxOp, OutboxRow, OutboxTopic, PIECES_MAX, outbox_lane,
};

impl Inner {
    /// Adds a row, if the rule says that such facts leave the store.
    pub(super) fn send_out(&mut self, topic: OutboxTopic, task: Option<TaskId>, body: Json) {
        let wanted = match topic {
            OutboxTopic::DeadLetter => self.outbox_rule.dead_letters,
            OutboxTopic::Event => self.outbox_rule.events,
        };
        if wanted {
            self.outbox_seq += 1;
            let (seq, lane) = (self.outbox_seq, outbox_lane(task));
            self.outbox.insert(seq, OutboxRow { seq, lane, topic, task, body });
        }
    }

    pub(super) fn outbox(&mut self, op: &OutboxOp, now: Timestamp) -> Result<Vec<OutboxRow>> {
        match op {
            OutboxOp::Take { node, hold, max } => {
                for lane in 0..OUTBOX_LANES {
                    let lane = self.outbox_lanes.entry(lane).or_default();
                    if lane.until <= now || lane.node == Some(*node) {
                        lane.node = Some(*node);
                        lane.until = now.plus(*hold);
                    }
                }
                let mine = |row: &&OutboxRow| {
                    let lane = &self.outbox_lanes[&row.lane];
                    lane.node == Some(*node) && lane.not_before <= now
                };
                Ok(self
                    .outbox
                    .values()
                    .filter(mine)
                    .take((*max).min(PIECES_MAX))
                    .cloned()
                    .collect())
            }
            OutboxOp::Done { node, seqs } => {
                for seq in seqs {
                    let lane =
                        self.outbox.get(seq).and_then(|row| self.outbox_lanes.get(&row.lane));
                    if lane.is_some_and(|lane| lane.node == Some(*node)) {
                        self.outbox.remove(seq);
                    }
                }
                Ok(vec![])
            }
            OutboxOp::Later { node, seq, at } => {
                if let Some(row) = self.outbox.get(seq)
                    && let Some(lane) = self.outbox_lanes.get_mut(&row.lane)
                    && lane.node == Some(*node)
                {
                    lane.not_before = *at;
                }
                Ok(vec![])
            }
        }
    }
}
