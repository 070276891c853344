//! Facts on their way out. Rows are written with the change they tell of; a
//! relay takes lanes for a while, so that the rows of one task leave in order
//! however many relays there are.

use super::error::sql;
use super::tx::Tx;
use rusqlite::params;
use windlass_core::Result;
use windlass_core::clock::Timestamp;
use windlass_core::id::{NodeId, TaskId};
use windlass_core::json::Json;
use windlass_core::store::{OUTBOX_LANES, OutboxOp, OutboxRow, OutboxTopic, PIECES_MAX};

impl Tx<'_, '_> {
    pub(super) fn outbox(&mut self, op: &OutboxOp, now: Timestamp) -> Result<Vec<OutboxRow>> {
        match op {
            OutboxOp::Take { node, hold, max } => {
                for lane in 0..OUTBOX_LANES {
                    self.run(
                        "outbox",
                        "INSERT INTO windlass_outbox_lane (lane, node, until, not_before)
                         VALUES (?1, ?2, ?3, 0)
                         ON CONFLICT (lane) DO UPDATE SET node = ?2, until = ?3
                         WHERE until <= ?4 OR node = ?2",
                        params![lane, node.key(), now.plus(*hold).as_micros(), now.as_micros()],
                    )?;
                }
                self.outbox_rows(*node, (*max).min(PIECES_MAX), now)
            }
            OutboxOp::Done { node, seqs } => {
                for seq in seqs {
                    self.run(
                        "outbox",
                        "DELETE FROM windlass_outbox WHERE seq = ?1
                           AND lane IN (SELECT lane FROM windlass_outbox_lane WHERE node = ?2)",
                        params![seq, node.key()],
                    )?;
                }
                Ok(vec![])
            }
            OutboxOp::Later { node, seq, at } => {
                self.run(
                    "outbox",
                    "UPDATE windlass_outbox_lane SET not_before = ?3 WHERE node = ?2
                       AND lane = (SELECT lane FROM windlass_outbox WHERE seq = ?1)",
                    params![seq, node.key(), at.as_micros()],
                )?;
                Ok(vec![])
            }
        }
    }

    fn outbox_rows(&self, node: NodeId, max: usize, now: Timestamp) -> Result<Vec<OutboxRow>> {
        let mut statement = self
            .conn
            .prepare_cached(
                "SELECT o.seq, o.lane, o.topic, o.task, o.body FROM windlass_outbox o
                 JOIN windlass_outbox_lane l ON l.lane = o.lane
                 WHERE l.node = ?1 AND l.not_before <= ?2 ORDER BY o.seq LIMIT ?3",
            )
            .map_err(sql("outbox"))?;
        let rows = statement
            .query_map(params![node.key(), now.as_micros(), max], |r| {
                Ok(OutboxRow {
                    seq: r.get(0)?,
                    lane: r.get(1)?,
                    topic: if r.get::<_, i64>(2)? == 0 {
                        OutboxTopic::DeadLetter
                    } else {
                        OutboxTopic::Event
                    },
                    task: r.get::<_, Option<i64>>(3)?.map(TaskId::from_key),
                    body: Json::trusted(r.get::<_, String>(4)?),
                })
            })
            .map_err(sql("outbox"))?;
        rows.collect::<rusqlite::Result<_>>().map_err(sql("outbox"))
    }
}
