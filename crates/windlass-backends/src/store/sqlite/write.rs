//! Submitting and recording. Everything that may be refused is looked at before
//! the first row is written. `put_down` is the only place where a task's new
//! standing meets the tables beside its row.

use super::error::sql;
use super::rows::{Held, steps_of};
use super::statements::Hot;
use super::tx::Tx;
use crate::store::{check_batch, check_write, lease_lost, no_such, same_submission};
use rusqlite::{OptionalExtension, params};
use std::collections::HashMap;
use windlass_core::checkpoint::{StepOutcome, StepRecord};
use windlass_core::children::Totals;
use windlass_core::clock::Timestamp;
use windlass_core::id::TaskId;
use windlass_core::json::Json;
use windlass_core::lease::LeaseKey;
use windlass_core::outcome::{Failure, WaitingOn};
use windlass_core::standing::{Place, Standing};
use windlass_core::state::State;
use windlass_core::store::{
    AttemptEnd, DeadLetter, OutboxTopic, Submit, Submitted, Write, Written,
};
use windlass_core::task::{Card, NewTask, QueueName, Task, Unique};
use windlass_core::{Code, Error, Result};

/// Depths of limited queues are counted again after this long.
const DEPTH_FRESH: std::time::Duration = std::time::Duration::from_secs(1);

/// What will become of one task of a batch.
enum Plan {
    Insert,
    Answer(Submitted),
}

/// Keys that earlier tasks of the same batch take.
#[derive(Default)]
struct BatchKeys<'a> {
    /// Only filled when the ids of the batch do not rise.
    ids: HashMap<TaskId, &'a NewTask>,
    idempotency: HashMap<&'a str, (u128, TaskId)>,
    unique: HashMap<&'a str, TaskId>,
    children: HashMap<(TaskId, &'a str), TaskId>,
}

impl Tx<'_, '_> {
    pub(super) fn submit(&mut self, batch: &Submit, now: Timestamp) -> Result<Vec<Submitted>> {
        check_batch(batch)?;
        let schedule = self.check_fire(batch.fires.as_ref())?;
        let mut keys = BatchKeys::default();
        let mut plans = Vec::with_capacity(batch.tasks.len());
        let rising = batch.tasks.windows(2).all(|pair| pair[0].id < pair[1].id);
        let mut repeats = true;
        for new in &batch.tasks {
            // A batch was written whole or not at all: after the first id that
            // is new, the others are, and the insert itself would tell.
            repeats = repeats && self.state_of(new.id)?.is_some();
            let twin = if rising { None } else { keys.ids.insert(new.id, new) };
            plans.push(match twin {
                Some(twin) => {
                    same_submission(&Task::born(twin, now), new)?;
                    Plan::Answer(Submitted::New { id: new.id, state: twin.birth(now).0 })
                }
                None if repeats => self.known_id(new)?.map_or(Plan::Insert, Plan::Answer),
                None => self.plan(new, &mut keys, now)?,
            });
        }
        self.check_depth(batch, &plans, now)?;
        self.move_schedule(schedule, batch.fires.as_ref(), now)?;
        let mut answers = Vec::with_capacity(plans.len());
        for (new, plan) in batch.tasks.iter().zip(plans) {
            answers.push(match plan {
                Plan::Insert => self.insert(new, now)?,
                Plan::Answer(answer) => answer,
            });
        }
        Ok(answers)
    }

    /// Finds out what a submission means without writing anything.
    fn plan<'a>(
        &mut self,
        new: &'a NewTask,
        keys: &mut BatchKeys<'a>,
        now: Timestamp,
    ) -> Result<Plan> {
        if let Some(answer) = self.known_key(new, keys, now)? {
            return Ok(Plan::Answer(answer));
        }
        if let Some(unique) = new.unique().filter(|_| self.memory.guards.unique) {
            let stored = self.unique_holder(&unique.key, now)?;
            if let Some(id) = stored.or_else(|| keys.unique.get(unique.key.as_str()).copied()) {
                return Ok(Plan::Answer(Submitted::Existing { id }));
            }
            keys.unique.insert(&unique.key, new.id);
        }
        if let Some(child) = &new.child_of {
            let state =
                self.state_of(child.parent)?.ok_or_else(|| no_such("parent", child.parent))?;
            if state.is_ended() {
                let message = format!("parent {} has ended", child.parent);
                return Err(Error::conflict("submit", message));
            }
            let known = self.child(child.parent, &child.key)?;
            let known =
                known.or_else(|| keys.children.get(&(child.parent, child.key.as_str())).copied());
            if let Some(id) = known {
                return Ok(Plan::Answer(Submitted::Existing { id }));
            }
            keys.children.insert((child.parent, &child.key), new.id);
        }
        if let Some(idem) = &new.idempotency {
            keys.idempotency.insert(&idem.key, (idem.body, new.id));
        }
        Ok(Plan::Insert)
    }

    /// A repeat of a submission whose answer was lost.
    fn known_id(&mut self, new: &NewTask) -> Result<Option<Submitted>> {
        let Some((stored, _)) = self.task(new.id)? else { return Ok(None) };
        same_submission(&stored, new)?;
        Ok(Some(Submitted::New { id: new.id, state: stored.state() }))
    }

    fn known_key(
        &self,
        new: &NewTask,
        keys: &BatchKeys<'_>,
        now: Timestamp,
    ) -> Result<Option<Submitted>> {
        let Some(idem) = &new.idempotency else { return Ok(None) };
        let stored = self
            .conn
            .prepare_cached("SELECT body, task FROM idempotency WHERE key = ?1 AND until > ?2")
            .and_then(|mut s| {
                s.query_row(params![idem.key, now.as_micros()], |r| {
                    Ok((u128::from_be_bytes(r.get(0)?), TaskId::from_key(r.get(1)?)))
                })
                .optional()
            })
            .map_err(sql("submit"))?;
        let Some((body, id)) = stored.or_else(|| keys.idempotency.get(idem.key.as_str()).copied())
        else {
            return Ok(None);
        };
        if body != idem.body {
            let message = format!("idempotency key `{}` was used for another submission", idem.key);
            return Err(Error::new(Code::KeyReused, "submit", message));
        }
        Ok(Some(Submitted::Replayed { id }))
    }

    pub(super) fn unique_holder(&self, key: &str, now: Timestamp) -> Result<Option<TaskId>> {
        self.conn
            .prepare_cached(
                "SELECT task FROM unique_key WHERE key = ?1 AND (until IS NULL OR until > ?2)",
            )
            .and_then(|mut s| {
                s.query_row(params![key, now.as_micros()], |r| r.get(0).map(TaskId::from_key))
                    .optional()
            })
            .map_err(sql("submit"))
    }

    fn child(&self, parent: TaskId, key: &str) -> Result<Option<TaskId>> {
        self.conn
            .prepare_cached("SELECT id FROM task WHERE parent = ?1 AND child_key = ?2")
            .and_then(|mut s| {
                s.query_row(params![parent.key(), key], |r| r.get(0).map(TaskId::from_key))
                    .optional()
            })
            .map_err(sql("submit"))
    }

    /// The state of a task; a held one shows the state it was claimed in.
    pub(super) fn state_of(&mut self, id: TaskId) -> Result<Option<State>> {
        let statement = self.hot.get(Hot::State)?;
        let code =
            statement.query_row([id.key()], |r| r.get(0)).optional().map_err(sql("submit"))?;
        code.map(State::from_code).transpose()
    }

    fn check_depth(&mut self, batch: &Submit, plans: &[Plan], now: Timestamp) -> Result<()> {
        let mut more: Vec<(&QueueName, u64)> = vec![];
        for (new, plan) in batch.tasks.iter().zip(plans) {
            if matches!(plan, Plan::Answer(_)) {
                continue;
            }
            match more.iter_mut().find(|(name, _)| *name == &new.queue) {
                Some((_, count)) => *count += 1,
                None => more.push((&new.queue, 1)),
            }
        }
        for (name, more) in more {
            let Some(max) = self.queue_rules(name)?.and_then(|rules| rules.2) else { continue };
            let depth = self.depth(name, now)?;
            if depth + more > max {
                let message = format!("queue `{name}` holds {depth} of at most {max}");
                return Err(Error::new(Code::QueueFull, "submit", message));
            }
            self.memory.depths.insert(name.clone(), (depth + more, now));
        }
        Ok(())
    }

    /// Counting a deep queue takes time, so the count is kept for a second and
    /// own submissions are added to it.
    fn depth(&mut self, queue: &QueueName, now: Timestamp) -> Result<u64> {
        if let Some((depth, at)) = self.memory.depths.get(queue)
            && now.since(*at) < DEPTH_FRESH
            && *at <= now
        {
            return Ok(*depth);
        }
        let count: i64 = self
            .conn
            .prepare_cached(
                "SELECT (SELECT count(*) FROM ready WHERE lane IN (SELECT id FROM lane WHERE queue = ?1))
                      + (SELECT count(*) FROM due d JOIN task t ON t.id = d.id
                         WHERE t.lane IN (SELECT id FROM lane WHERE queue = ?1))",
            )
            .and_then(|mut s| s.query_row([queue.as_str()], |r| r.get(0)))
            .map_err(sql("submit"))?;
        Ok(count.unsigned_abs())
    }

    /// Writes a task that was planned for.
    pub(super) fn insert(&mut self, new: &NewTask, now: Timestamp) -> Result<Submitted> {
        let (state, due) = new.birth(now);
        let mut standing = Standing::born(state, due, now);
        let card = card_of(new);
        standing.submitted(&card, now, &mut self.out);
        let lane = self.memory.lanes.make(self.conn, &new.queue, &new.kind)?;
        let deadline = new.deadline.map(|d| due.plus(d));
        self.insert_row(new, &standing, lane, deadline, now)?;
        self.completed += i64::from(state == State::Completed);
        self.enter(standing.place(), lane, &card)?;
        if let Some(at) = deadline.filter(|_| !state.is_ended()) {
            let text = "INSERT INTO deadline (at, id) VALUES (?1, ?2)";
            self.run("submit", text, params![at.as_micros(), new.id.key()])?;
        }
        self.insert_keys(new, state, now)?;
        if let Some(child) = &new.child_of {
            self.mark_parent(child.parent, state)?;
        }
        Ok(Submitted::New { id: new.id, state })
    }

    fn insert_row(
        &mut self,
        new: &NewTask,
        standing: &Standing,
        lane: i64,
        deadline: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<()> {
        let extras = new.extras.as_ref().map(Json::of).transpose()?;
        let waiting_on = standing.waiting_on.as_ref().map(Json::of).transpose()?;
        let inserted = self.hot.run(
            Hot::InsertTask,
            params![
                new.id.key(),
                lane,
                standing.state.code(),
                new.priority,
                now.as_micros(),
                standing.due_at.as_micros(),
                standing.event_n,
                deadline.map(Timestamp::as_micros),
                new.child_of.as_ref().map(|c| c.parent.key()),
                new.child_of.as_ref().map(|c| c.key.as_str()),
                new.idempotency.as_ref().map(|i| i.key.as_str()),
                extras.as_ref().map(Json::as_str),
                new.payload.as_str(),
                waiting_on.as_ref().map(Json::as_str),
                standing.finished_at.map(Timestamp::as_micros),
            ],
        );
        match inserted {
            Err(error) if self.state_of(new.id)?.is_some() => {
                // Rows of this batch are written already: all of it must go.
                self.dirty = true;
                let message = format!("{} exists and is another task", new.id);
                Err(Error::conflict("submit", message).because(error))
            }
            Err(error) => Err(error),
            Ok(_) => Ok(()),
        }
    }

    fn insert_keys(&self, new: &NewTask, state: State, now: Timestamp) -> Result<()> {
        if let Some(idem) = &new.idempotency {
            self.run(
                "submit",
                "INSERT OR REPLACE INTO idempotency (key, body, task, until) VALUES (?1, ?2, ?3, ?4)",
                params![idem.key, idem.body.to_be_bytes(), new.id.key(), now.plus(idem.ttl).as_micros()],
            )?;
        }
        match new.unique() {
            Some(unique) if unique.for_.is_some() || !state.is_ended() => {
                self.take_unique(unique, new.id, now)
            }
            _ => Ok(()),
        }
    }

    pub(super) fn take_unique(&self, unique: &Unique, id: TaskId, now: Timestamp) -> Result<()> {
        let until = unique.for_.map(|d| now.plus(d).as_micros());
        let text = "INSERT OR REPLACE INTO unique_key (key, task, until) VALUES (?1, ?2, ?3)";
        self.run("submit", text, params![unique.key, id.key(), until])?;
        Ok(())
    }

    fn mark_parent(&mut self, parent: TaskId, child: State) -> Result<()> {
        for text in [
            "UPDATE task SET has_children = 1 WHERE id = ?1",
            "UPDATE lease SET has_children = 1 WHERE task = ?1",
        ] {
            self.run("submit", text, params![parent.key()])?;
        }
        if let Some(held) = self.memory.leases.get_mut(&parent) {
            held.standing.has_children = true;
        }
        if child.is_ended() { self.judge_later(parent) } else { Ok(()) }
    }

    /// An upkeep job will look at this parent.
    pub(super) fn judge_later(&self, parent: TaskId) -> Result<()> {
        self.run(
            "children",
            "INSERT OR IGNORE INTO parent_due (parent) VALUES (?1)",
            params![parent.key()],
        )?;
        Ok(())
    }

    pub(super) fn record(
        &mut self,
        writes: &[Write],
        now: Timestamp,
    ) -> Result<Vec<Result<Written>>> {
        let mut answers = Vec::with_capacity(writes.len());
        for write in writes {
            let mark = self.events();
            let answer = self.record_one(write, now);
            match answer {
                Err(error) if super::error::is_fatal(&error) => return Err(error),
                Err(_) => self.forget_events_after(mark),
                Ok(_) => {}
            }
            answers.push(answer);
        }
        Ok(answers)
    }

    fn record_one(&mut self, write: &Write, now: Timestamp) -> Result<Written> {
        check_write(write)?;
        let held = match self.held(write.lease.task)? {
            Some(held) => held,
            None => return self.record_after_the_end(write, now),
        };
        if let Some(written) = self.refuse_or_repeat(&held, write)? {
            return Ok(written);
        }
        self.apply(held, write, now)
    }

    fn apply(&mut self, held: Held, write: &Write, now: Timestamp) -> Result<Written> {
        let card = &held.card;
        let mut standing = held.standing.clone();
        if let Some((keep, why)) = &write.keep_steps {
            standing.discarded(card, *keep, why, now, &mut self.out);
        }
        for step in &write.steps {
            standing.step(card, step, now, &mut self.out);
        }
        if let Some(progress) = &write.progress {
            standing.progressed(card, progress, now, &mut self.out);
        }
        if let Some(settlement) = &write.settle {
            let guard = self.memory.guards.transition();
            standing.close(card, settlement, now, guard, &mut self.out)?;
        }
        // From here on nothing is refused any more.
        self.write_steps(write, &held.standing, now)?;
        for child in &write.children {
            let key = child.child_of.as_ref().map_or("", |c| c.key.as_str());
            if self.child(card.id, key)?.is_none() {
                self.insert(child, now)?;
                standing.has_children = true;
            }
        }
        let written = Written {
            state: standing.state,
            version: standing.version,
            requests: standing.requests,
            repeated: false,
        };
        if write.settle.is_some() {
            let failure = standing.failure.clone();
            self.put_down(card, held.lane, &held.standing, &mut standing, failure.as_ref(), now)?;
        } else {
            let in_step = held.in_step || write.begins || !write.steps.is_empty();
            self.keep_lease(Held { standing, in_step, ..held })?;
        }
        Ok(written)
    }

    /// No lease: either this very write ended it, or the writer is late.
    fn record_after_the_end(&mut self, write: &Write, now: Timestamp) -> Result<Written> {
        let (task, lane) = self.task(write.lease.task)?.ok_or_else(|| lease_lost(&write.lease))?;
        if self.was_settled(&task.standing, write)? {
            return Ok(repeated(&task.standing));
        }
        if self.memory.guards.token {
            return Err(lease_lost(&write.lease));
        }
        let (card, standing) = (task.card(), task.standing);
        let claim = windlass_core::lease::ClaimNo(0);
        self.apply(Held { card, lane, standing, claim, in_step: false, alone: false }, write, now)
    }

    /// `Ok(None)`: the write may go on. A write that is in the store already
    /// answers as repeated; anything else that does not fit is refused.
    fn refuse_or_repeat(&mut self, held: &Held, write: &Write) -> Result<Option<Written>> {
        let standing = &held.standing;
        let key = LeaseKey {
            task: held.card.id,
            node: standing.node.unwrap_or(write.lease.node),
            token: standing.token,
        };
        if self.memory.guards.token && write.lease != key {
            let settled = self.was_settled(standing, write)?;
            return if settled {
                Ok(Some(repeated(standing)))
            } else {
                Err(lease_lost(&write.lease))
            };
        }
        let Some(first) = write.steps.first() else { return Ok(None) };
        match first.version.check(standing.version) {
            Ok(()) => Ok(None),
            Err(_) if write.settle.is_none() && self.are_stored(write)? => {
                Ok(Some(repeated(standing)))
            }
            Err(_) if !self.memory.guards.version => Ok(None),
            Err(refused) => Err(refused),
        }
    }

    /// Whether the lease of `write` ended by this very write.
    fn was_settled(&self, standing: &Standing, write: &Write) -> Result<bool> {
        let Some(settlement) = &write.settle else { return Ok(false) };
        if standing.node == Some(write.lease.node)
            && standing.is_left_by(settlement, write.lease.token)
        {
            return Ok(true);
        }
        let token = i64::try_from(write.lease.token.0).unwrap_or(i64::MAX);
        let ended = self
            .conn
            .prepare_cached(
                "SELECT ended FROM attempt WHERE task = ?1 AND token = ?2 AND node = ?3",
            )
            .and_then(|mut s| {
                s.query_row(params![write.lease.task.key(), token, write.lease.node.key()], |r| {
                    r.get(0)
                })
                .optional()
            })
            .map_err(sql("record"))?;
        let Some(ended) = ended.map(AttemptEnd::from_code).transpose()? else { return Ok(false) };
        Ok(settlement.verdicts().any(|v| ended == AttemptEnd::Settled(v.to)))
    }

    fn are_stored(&self, write: &Write) -> Result<bool> {
        let stored = steps_of(self.conn, write.lease.task)?;
        let same = |step: &StepRecord| {
            stored.iter().any(|e| e.record == *step && e.node == write.lease.node)
        };
        Ok(write.steps.iter().all(same))
    }

    fn write_steps(&mut self, write: &Write, standing: &Standing, now: Timestamp) -> Result<()> {
        if let Some((keep, _)) = write.keep_steps {
            self.keep_steps(write.lease.task, keep)?;
        }
        for step in &write.steps {
            let undone = step.outcome == StepOutcome::Undone;
            if undone {
                let text = "UPDATE step SET live = 0 WHERE task = ?1 AND name = ?2";
                self.run("record", text, params![write.lease.task.key(), step.name])?;
            }
            self.hot.run(
                Hot::InsertStep,
                params![
                    write.lease.task.key(),
                    step.version.0.cast_signed(),
                    !undone,
                    step.outcome.code(),
                    standing.run,
                    standing.attempt,
                    write.lease.node.key(),
                    now.as_micros(),
                    i64::try_from(step.duration.as_micros()).unwrap_or(i64::MAX),
                    step.name,
                    step.class.map(|c| c.as_str()),
                    step.reason,
                    step.output.as_ref().map(Json::as_str),
                ],
            )?;
        }
        Ok(())
    }

    /// Takes finished steps beyond the first `keep` out of the checkpoint.
    pub(super) fn keep_steps(&self, task: TaskId, keep: usize) -> Result<()> {
        let keep = i64::try_from(keep).unwrap_or(i64::MAX);
        self.run(
            "record",
            "UPDATE step SET live = 0 WHERE task = ?1 AND version IN (
               SELECT version FROM step WHERE task = ?1 AND live AND outcome IN (0, 1)
               ORDER BY version LIMIT -1 OFFSET ?2)",
            params![task.key(), keep],
        )?;
        Ok(())
    }

    /// Writes what a held task has come to, without ending its lease.
    pub(super) fn keep_lease(&mut self, mut held: Held) -> Result<()> {
        let (id, standing) = (held.card.id, &mut held.standing);
        self.hot.run(
            Hot::KeepLease,
            params![
                id.key(),
                standing.version.0.cast_signed(),
                standing.event_n,
                standing.crashes,
                held.in_step,
                standing.requests.bits(),
                standing.has_children,
            ],
        )?;
        // Progress lives in the task's row; absent here means unchanged.
        if let Some(progress) = standing.progress.take() {
            let text = "UPDATE task SET progress = ?2 WHERE id = ?1";
            self.run("record", text, params![id.key(), Json::of(&progress)?.as_str()])?;
        }
        self.memory.keep_lease(id, held);
        Ok(())
    }

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
            let end = AttemptEnd::Settled(after.state);
            self.archive_attempt(card.id, before, end, now, failure)?;
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
        if matches!(after.state, State::Completed | State::RolledBack) && after.version.0 > 0 {
            let text = "UPDATE step SET live = 0, output = NULL WHERE task = ?1";
            self.run("record", text, params![card.id.key()])?;
        }
        self.keep_dead_letter(card.id, before.state, after.state)
    }

    fn keep_dead_letter(&mut self, id: TaskId, before: State, after: State) -> Result<()> {
        if before == State::Failed && after != State::Failed {
            self.run("record", "DELETE FROM dead_letter WHERE task = ?1", params![id.key()])?;
        }
        if after != State::Failed || before == State::Failed {
            return Ok(());
        }
        self.run(
            "record",
            "INSERT OR REPLACE INTO dead_letter (task) VALUES (?1)",
            params![id.key()],
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
            let end = AttemptEnd::Settled(before.state);
            self.archive_attempt(id, before, end, at, before.failure.as_ref())?;
        }
        self.run("change", "UPDATE task SET children = NULL WHERE id = ?1", params![id.key()])?;
        Ok(())
    }

    pub(super) fn archive_attempt(
        &self,
        id: TaskId,
        standing: &Standing,
        end: AttemptEnd,
        at: Timestamp,
        failure: Option<&Failure>,
    ) -> Result<()> {
        let failure = failure.map(Json::of).transpose()?;
        // A task may end without a lease after an attempt that has its row.
        self.run(
            "record",
            "INSERT OR IGNORE INTO attempt (task, token, run, attempt, node, started_at, ended_at, ended, failure)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            params![
                id.key(),
                standing.token.0.cast_signed(),
                standing.run,
                standing.attempt,
                standing.node.map_or(0, |n| n.key()),
                standing.started_at.unwrap_or(standing.updated_at).as_micros(),
                at.as_micros(),
                end.code(),
                failure.as_ref().map(Json::as_str),
            ],
        )?;
        Ok(())
    }

    fn give_unique_back(&self, id: TaskId) -> Result<()> {
        self.run(
            "record",
            "DELETE FROM unique_key WHERE task = ?1 AND until IS NULL AND key =
               (SELECT json_extract(extras, '$.unique.key') FROM task WHERE id = ?1)",
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
            "UPDATE task SET state = ?2, due_at = ?3, updated_at = ?4, started_at = ?5, finished_at = ?6,
               node = ?7, run = ?8, attempt = ?9, retries = ?10, crashes = ?11, token = ?12, version = ?13,
               event_n = ?14, has_children = ?15, held_from = ?16, waiting_on = ?17,
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
                s.result.as_ref().map(Json::as_str),
            ],
        )?;
        Ok(())
    }

    pub(super) fn enter(&mut self, place: Place, lane: i64, card: &Card) -> Result<()> {
        let (text, key) = match place {
            Place::Nowhere | Place::Leased => return Ok(()),
            Place::Due(at) => {
                ("INSERT OR IGNORE INTO due (at, id) VALUES (?1, ?2)", at.as_micros())
            }
            Place::Ready => {
                self.hot.run(Hot::EnterReady, params![lane, -card.priority, card.id.key()])?;
                return Ok(());
            }
        };
        self.run("due", text, params![key, card.id.key()])?;
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
                let text = "DELETE FROM due WHERE at = ?1 AND id = ?2";
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
        .prepare_cached("SELECT state, count(*) FROM task WHERE parent = ?1 GROUP BY state")
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

fn repeated(standing: &Standing) -> Written {
    let (state, version, requests) = (standing.state, standing.version, standing.requests);
    Written { state, version, requests, repeated: true }
}

fn card_of(new: &NewTask) -> Card {
    Card {
        id: new.id,
        kind: new.kind.clone(),
        queue: new.queue.clone(),
        priority: new.priority,
        parent: new.child_of.as_ref().map(|c| c.parent),
        unique: new.unique().is_some(),
        correlation_id: new.correlation_id().map(Into::into),
    }
}

/// The unique key of a task that holds only until the task ends.
pub(super) fn live_unique(task: &Task) -> Option<&Unique> {
    task.extras.as_ref()?.unique.as_ref().filter(|u| u.for_.is_none())
}
