//! Bulk jobs: begun, moved on in the transaction that changes the tasks of a
//! step, stopped. What a job does and when it ends is core's; its row is one
//! document beside the time of its end.

use super::error::sql;
use super::tx::Tx;
use crate::store::{batch_words, check_running, check_taken, no_such};
use rusqlite::{Connection, OptionalExtension, params};
use windlass_core::Result;
use windlass_core::batch::{Batch, BatchStep, Order, RUNNING_MAX, Target};
use windlass_core::clock::Timestamp;
use windlass_core::control::Changed;
use windlass_core::id::BatchId;
use windlass_core::json::Json;
use windlass_core::store::{Actor, Batches};

impl Tx<'_, '_> {
    /// A refusal is an answer with its audit row, like that of any change.
    pub(super) fn start_batch(
        &mut self,
        order: &Order,
        by: &Actor,
        now: Timestamp,
    ) -> Result<Result<Changed>> {
        if batch(self.conn, order.id)?.is_some() {
            return Ok(Ok(Changed::Already));
        }
        let batch = Batch::new(order.clone(), by, now);
        let running = batches(self.conn, Batches::Running, None, RUNNING_MAX)?.len();
        let result = check_running(running).map(|()| Changed::Done);
        self.note(by, order.action.as_str(), &batch_words(&batch), &result, now)?;
        if result.is_ok() {
            self.put_batch(&batch)?;
        }
        Ok(result)
    }

    pub(super) fn step_batch(
        &mut self,
        step: &BatchStep,
        now: Timestamp,
    ) -> Result<Vec<Result<Changed>>> {
        let mut batch = self.batch(step.batch)?;
        batch.check(step)?;
        let mut answers = Vec::with_capacity(step.targets.len());
        for target in &step.targets {
            answers.push(self.try_to(|tx| tx.touch(&batch, *target, now))?);
        }
        batch.took(step, &answers, now);
        if !batch.is_running() {
            let (verb, id) = (batch.order.action.as_str(), batch.id().to_string());
            self.note_words(&batch.by(), verb, &id, &batch.summary(), now)?;
        }
        self.put_batch(&batch)?;
        Ok(answers)
    }

    fn touch(&mut self, batch: &Batch, target: Target, now: Timestamp) -> Result<Changed> {
        let (task, _) = self.task(target.task)?.ok_or_else(|| no_such("task", target.task))?;
        check_taken(batch, &task, self.has_dead_letter(target.task)?)?;
        match (batch.order.change(), target.again) {
            (Some(change), _) => self.change_task(target.task, &change, now),
            (None, again) => self.rerun(target.task, again.unwrap_or(target.task), now),
        }
    }

    pub(super) fn stop_batch(
        &mut self,
        id: BatchId,
        by: &Actor,
        now: Timestamp,
    ) -> Result<Changed> {
        let mut batch = self.batch(id)?;
        let changed = batch.stop(by, now)?;
        self.put_batch(&batch)?;
        Ok(changed)
    }

    fn batch(&self, id: BatchId) -> Result<Batch> {
        batch(self.conn, id)?.ok_or_else(|| no_such("batch", id))
    }

    fn put_batch(&self, batch: &Batch) -> Result<()> {
        let text =
            "INSERT OR REPLACE INTO windlass_batch (id, finished_at, body) VALUES (?1, ?2, ?3)";
        let finished = batch.finished_at.map(Timestamp::as_micros);
        self.run("batch", text, params![batch.id().key(), finished, Json::of(batch)?.as_str()])?;
        Ok(())
    }
}

pub(super) fn batch(conn: &Connection, id: BatchId) -> Result<Option<Batch>> {
    let body: Option<String> = conn
        .prepare_cached("SELECT body FROM windlass_batch WHERE id = ?1")
        .and_then(|mut s| s.query_row([id.key()], |r| r.get(0)).optional())
        .map_err(sql("batch"))?;
    body.map(|body| Json::trusted(body).to()).transpose()
}

pub(super) fn batches(
    conn: &Connection,
    which: Batches,
    before: Option<BatchId>,
    limit: usize,
) -> Result<Vec<Batch>> {
    let condition = match which {
        Batches::All => "",
        Batches::Running => " AND finished_at IS NULL",
    };
    let text = format!(
        "SELECT body FROM windlass_batch WHERE id < ?1{condition} ORDER BY id DESC LIMIT ?2"
    );
    let before = before.map_or(i64::MAX, BatchId::key);
    let mut statement = conn.prepare_cached(&text).map_err(sql("batches"))?;
    let rows = statement
        .query_map(params![before, limit], |r| r.get::<_, String>(0))
        .map_err(sql("batches"))?;
    rows.map(|body| Json::trusted(body.map_err(sql("batches"))?).to()).collect()
}
