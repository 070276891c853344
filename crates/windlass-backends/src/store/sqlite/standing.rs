//! The one place where a task's new standing meets the tables beside its row:
//! ready, due, lease, done, keys, attempts, dead letters, parents. Whoever
//! changes a task (a record, an operator, a job) ends here; nothing here decides.

use super::error::sql;
use super::statements::Hot;
use super::tx::Tx;
use crate::store::{attempt_of, clears_checkpoint, no_such};
use rusqlite::params;
use windlass_core::Result;
use windlass_core::children::Totals;
use windlass_core::clock::Timestamp;
use windlass_core::id::TaskId;
use windlass_core::json::Json;
use windlass_core::outcome::{Failure, WaitingOn};
use windlass_core::standing::{Place, Standing};
use windlass_core::state::State;
use windlass_core::store::{Attempt, AttemptEnd, DeadLetter, OutboxTopic};
use windlass_core::task::Card;

impl Tx<'_, '_> {
    /// Puts a task's new standing in place and keeps everything beside it true.
    /// `failure` is what the attempt that ends here, if one does, failed with.
    pub(super) fn put_down(
        &mut self,
        card: &Card,
        lane: i64,
        before: &Standing,
        after: &mut Standing,
        failure: Option<&Failure>,
        now: Timestamp,
    ) -> Result<()> {
        let ends = after.state.is_ended() && !before.state.is_ended();
        let revives = before.state.is_ended() && !after.state.is_ended();
        if ends && after.has_children {
            after.children = Some(self.totals(card.id)?);
            self.judge_later(card.id)?;
        }
        if before.place() != after.place() {
            self.leave(before.place(), lane, card)?;
            self.enter(after.place(), lane, card)?;
        }
        if before.leased && !after.leased && !after.state.is_ended() {
            let end = Some((AttemptEnd::Settled(after.state), now));
            let attempt = attempt_of(before, end, failure.cloned());
            self.archive_attempt(card.id, &Attempt { settled: after.settled, ..attempt })?;
        }
        if revives {
            self.revive(card.id, before)?;
        }
        if ends {
            if card.unique {
                self.give_unique_back(card.id)?;
            }
            if let Some(parent) = card.parent {
                self.judge_later(parent)?;
            }
        }
        if after.state == State::Waiting
            && matches!(after.waiting_on, Some(WaitingOn::Children { .. }))
        {
            self.judge_later(card.id)?;
        }
        if is_plain_end(card, before, after) {
            self.insert_done(card.id, after)?;
        } else {
            self.update_row(card.id, after)?;
        }
        self.completed += i64::from(ends && after.state == State::Completed);
        if clears_checkpoint(after.state) && after.version.0 > 0 {
            let text = "UPDATE windlass_step SET live = 0, output = NULL WHERE task = ?1";
            self.run("record", text, params![card.id.key()])?;
        }
        self.keep_dead_letter(card.id, lane, before.state, after.state)
    }

    fn keep_dead_letter(
        &mut self,
        id: TaskId,
        lane: i64,
        before: State,
        after: State,
    ) -> Result<()> {
        if before == State::Failed && after != State::Failed {
            self.run(
                "record",
                "DELETE FROM windlass_dead_letter WHERE task = ?1",
                params![id.key()],
            )?;
        }
        if after != State::Failed || before == State::Failed {
            return Ok(());
        }
        self.run(
            "record",
            "INSERT OR REPLACE INTO windlass_dead_letter (task, lane) VALUES (?1, ?2)",
            params![id.key(), lane],
        )?;
        if self.outbox_rule()?.dead_letters {
            let (task, _) = self.task(id)?.ok_or_else(|| no_such("task", id))?;
            self.send_out(OutboxTopic::DeadLetter, Some(id), &DeadLetter::of(&task)?.to_json())?;
        }
        Ok(())
    }

    /// An ended task comes back: the attempt that ended it becomes a row.
    fn revive(&self, id: TaskId, before: &Standing) -> Result<()> {
        if before.attempt > 0 {
            let at = before.finished_at.unwrap_or(before.updated_at);
            let end = Some((AttemptEnd::Settled(before.state), at));
            let failure = before.failure.clone().filter(|_| before.state == State::Failed);
            self.archive_attempt(id, &attempt_of(before, end, failure))?;
        }
        self.run(
            "change",
            "UPDATE windlass_task SET children = NULL WHERE id = ?1",
            params![id.key()],
        )?;
        Ok(())
    }

    pub(super) fn archive_attempt(&self, id: TaskId, attempt: &Attempt) -> Result<()> {
        let Some((end, at)) = attempt.ended else { return Ok(()) };
        let failure = attempt.failure.as_ref().map(Json::of).transpose()?;
        // A task may end without a lease after an attempt that has its row.
        self.run(
            "record",
            "INSERT OR IGNORE INTO windlass_attempt
               (task, token, run, attempt, node, started_at, ended_at, ended, settled, failure)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            params![
                id.key(),
                attempt.token.0.cast_signed(),
                attempt.run,
                attempt.attempt,
                attempt.node.key(),
                attempt.started_at.as_micros(),
                at.as_micros(),
                end.code(),
                attempt.settled.cast_signed(),
                failure.as_ref().map(Json::as_str),
            ],
        )?;
        Ok(())
    }

    fn give_unique_back(&self, id: TaskId) -> Result<()> {
        self.run(
            "record",
            "DELETE FROM windlass_unique_key WHERE task = ?1 AND until IS NULL AND key =
               (SELECT json_extract(extras, '$.unique.key') FROM windlass_task WHERE id = ?1)",
            params![id.key()],
        )?;
        Ok(())
    }

    fn update_row(&self, id: TaskId, s: &Standing) -> Result<()> {
        let text = |json: Option<Result<Json>>| json.transpose();
        let waiting_on = text(s.waiting_on.as_ref().map(Json::of))?;
        let progress = text(s.progress.as_ref().map(Json::of))?;
        let failure = text(s.failure.as_ref().map(Json::of))?;
        let children = text(s.children.as_ref().map(Json::of))?;
        self.run(
            "record",
            "UPDATE windlass_task SET state = ?2, due_at = ?3, updated_at = ?4, started_at = ?5,
               finished_at = ?6, node = ?7, run = ?8, attempt = ?9, retries = ?10, crashes = ?11,
               token = ?12, version = ?13, event_n = ?14, has_children = ?15, held_from = ?16, waiting_on = ?17, settled = ?22,
               progress = coalesce(?18, progress), failure = coalesce(?19, failure),
               children = coalesce(?20, children), result = ?21
             WHERE id = ?1",
            params![
                id.key(),
                s.state.code(),
                s.due_at.as_micros(),
                s.updated_at.as_micros(),
                s.started_at.map(Timestamp::as_micros),
                s.finished_at.map(Timestamp::as_micros),
                s.node.map(|n| n.key()),
                s.run,
                s.attempt,
                s.retries,
                s.crashes,
                s.token.0.cast_signed(),
                s.version.0.cast_signed(),
                s.event_n,
                s.has_children,
                s.held_from.map(State::code),
                waiting_on.as_ref().map(Json::as_str),
                progress.as_ref().map(Json::as_str),
                failure.as_ref().map(Json::as_str),
                children.as_ref().map(Json::as_str),
                s.result.as_ref().map(Json::as_str),
                s.settled.cast_signed(),
            ],
        )?;
        Ok(())
    }

    fn insert_done(&mut self, id: TaskId, s: &Standing) -> Result<()> {
        let at = s.finished_at.unwrap_or(s.updated_at).as_micros();
        self.hot.run(
            Hot::InsertDone,
            params![
                id.key(),
                s.node.map_or(0, |n| n.key()),
                s.started_at.map_or(at, Timestamp::as_micros),
                at,
                s.run,
                s.attempt,
                s.retries,
                s.crashes,
                s.token.0.cast_signed(),
                s.version.0.cast_signed(),
                s.event_n,
                s.settled.cast_signed(),
                s.result.as_ref().map(Json::as_str),
            ],
        )?;
        Ok(())
    }

    pub(super) fn enter(&mut self, place: Place, lane: i64, card: &Card) -> Result<()> {
        match place {
            Place::Nowhere | Place::Leased => {}
            Place::Ready => {
                self.hot.run(Hot::EnterReady, params![lane, -card.priority, card.id.key()])?;
            }
            Place::Due(at) => {
                let text = "INSERT OR IGNORE INTO windlass_due (at, id, lane) VALUES (?1, ?2, ?3)";
                self.run("due", text, params![at.as_micros(), card.id.key(), lane])?;
            }
        }
        Ok(())
    }

    pub(super) fn leave(&mut self, place: Place, lane: i64, card: &Card) -> Result<()> {
        match place {
            Place::Nowhere => return Ok(()),
            Place::Leased => {
                self.memory.leases.remove(&card.id);
                self.hot.run(Hot::LeaveLease, [card.id.key()])?
            }
            Place::Due(at) => {
                let text = "DELETE FROM windlass_due WHERE at = ?1 AND id = ?2";
                self.run("due", text, params![at.as_micros(), card.id.key()])?
            }
            Place::Ready => {
                self.hot.run(Hot::LeaveReady, params![lane, -card.priority, card.id.key()])?
            }
        };
        Ok(())
    }

    pub(super) fn totals(&self, parent: TaskId) -> Result<Totals> {
        totals(self.conn, parent)
    }
}

/// Counts children from their rows.
pub(super) fn totals(conn: &rusqlite::Connection, parent: TaskId) -> Result<Totals> {
    let mut statement = conn
        .prepare_cached(
            "SELECT state, count(*) FROM windlass_task WHERE parent = ?1 GROUP BY state",
        )
        .map_err(sql("children"))?;
    let mut rows = statement.query([parent.key()]).map_err(sql("children"))?;
    let mut totals = Totals::default();
    while let Some(row) = rows.next().map_err(sql("children"))? {
        let (state, count): (i64, i64) =
            (row.get(0).map_err(sql("children"))?, row.get(1).map_err(sql("children"))?);
        totals.add(State::from_code(state)?, count.unsigned_abs());
    }
    Ok(totals)
}

/// A plain task completes from its lease: its row need not be touched. What its
/// row would have to change beside that is looked up elsewhere for children
/// (by their parent's index) and parents (totals).
fn is_plain_end(card: &Card, before: &Standing, after: &Standing) -> bool {
    before.leased
        && after.state == State::Completed
        && card.parent.is_none()
        && !after.has_children
        && after.progress.is_none()
}
