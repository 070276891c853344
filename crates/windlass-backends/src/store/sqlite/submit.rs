//! Submitting: what a batch means is found out before its first row is written
//! (known ids, answered keys, unique keys, parents, depth), then the rows go in.
//! A refusal leaves nothing behind.

use super::error::sql;
use super::statements::Hot;
use super::tx::Tx;
use crate::store::batch::{Batch, Plan, Stored};
use crate::store::{check_batch, same_submission};
use rusqlite::{OptionalExtension, params};
use windlass_core::clock::Timestamp;
use windlass_core::id::TaskId;
use windlass_core::json::Json;
use windlass_core::standing::Standing;
use windlass_core::state::State;
use windlass_core::store::{Submit, Submitted};
use windlass_core::task::{Card, NewTask, QueueName, Task, Unique};
use windlass_core::{Code, Error, Result};

/// Depths of limited queues are counted again after this long.
const DEPTH_FRESH: std::time::Duration = std::time::Duration::from_secs(1);

impl Tx<'_, '_> {
    pub(super) fn submit(&mut self, batch: &Submit, now: Timestamp) -> Result<Vec<Submitted>> {
        check_batch(batch)?;
        let schedule = self.check_fire(batch.fires.as_ref())?;
        let mut planned = Batch::new(self.memory.guards);
        let mut plans = Vec::with_capacity(batch.tasks.len());
        let rising = batch.tasks.windows(2).all(|pair| pair[0].id < pair[1].id);
        let unwritten = self.is_unwritten(batch)?;
        for new in &batch.tasks {
            let twin = if rising { None } else { planned.twin(new, now)? };
            let known = if unwritten { None } else { self.known_id(new)? };
            plans.push(match known.map(Plan::Answer).or(twin) {
                Some(plan) => plan,
                None => planned.plan(new, &self.stored(new, now)?, now)?,
            });
        }
        self.check_queues(batch, &plans, now)?;
        self.move_schedule(schedule, batch.fires.as_ref(), now)?;
        let mut answers = Vec::with_capacity(plans.len());
        for (new, plan) in batch.tasks.iter().zip(plans) {
            answers.push(match plan {
                Plan::Insert => self.insert(new, now)?,
                Plan::Answer(answer) => answer,
                Plan::Existing(id) => {
                    self.take_key(new, id, now)?;
                    Submitted::Existing { id }
                }
            });
        }
        Ok(answers)
    }

    /// Those of a write's children that are not in the store yet.
    pub(super) fn new_children<'a>(
        &mut self,
        children: &'a [NewTask],
        now: Timestamp,
    ) -> Result<Vec<&'a NewTask>> {
        let mut planned = Batch::new(self.memory.guards);
        let mut new = vec![];
        for child in children {
            // Its place under its parent tells a repeat, whatever happened to it since.
            let place = child.child_of.as_ref();
            let stored = place.map(|c| self.child(c.parent, &c.key)).transpose()?.flatten();
            let known = stored.is_some() || self.known_id(child)?.is_some();
            if known || planned.twin(child, now)?.is_some() {
                continue;
            }
            let stored = self.stored(child, now)?;
            if matches!(planned.plan(child, &stored, now)?, Plan::Insert) {
                new.push(child);
            }
        }
        Ok(new)
    }

    /// What is known about the keys of a task.
    fn stored(&mut self, new: &NewTask, now: Timestamp) -> Result<Stored> {
        let mut stored = Stored::default();
        if let Some(idem) = &new.idempotency {
            stored.answered = self.answered(&idem.key, now)?;
        }
        if let Some(unique) = new.unique() {
            stored.holder = self.unique_holder(&unique.key, now)?;
        }
        if let Some(child) = &new.child_of {
            stored.parent = self.state_of(child.parent)?;
            stored.child = self.child(child.parent, &child.key)?;
        }
        Ok(stored)
    }

    /// A batch was written whole or not at all, so one id tells of all: that of
    /// a task without keys, which nothing but its id could have kept out. Should
    /// another id exist all the same, its insert will tell.
    fn is_unwritten(&mut self, batch: &Submit) -> Result<bool> {
        let plain =
            |t: &&NewTask| t.unique().is_none() && t.idempotency.is_none() && t.child_of.is_none();
        match batch.tasks.iter().find(plain) {
            Some(task) => Ok(self.state_of(task.id)?.is_none()),
            None => Ok(false),
        }
    }

    /// A repeat of a submission whose answer was lost.
    fn known_id(&mut self, new: &NewTask) -> Result<Option<Submitted>> {
        let Some((stored, _)) = self.task(new.id)? else { return Ok(None) };
        same_submission(&stored, new)?;
        Ok(Some(Submitted::New { id: new.id, state: stored.state() }))
    }

    /// Body and answer of an idempotency key that lives.
    fn answered(&self, key: &str, now: Timestamp) -> Result<Option<(u128, TaskId)>> {
        self.conn
            .prepare_cached(
                "SELECT body, task FROM windlass_idempotency WHERE key = ?1 AND until > ?2",
            )
            .and_then(|mut s| {
                s.query_row(params![key, now.as_micros()], |r| {
                    Ok((u128::from_be_bytes(r.get(0)?), TaskId::from_key(r.get(1)?)))
                })
                .optional()
            })
            .map_err(sql("submit"))
    }

    pub(super) fn unique_holder(&self, key: &str, now: Timestamp) -> Result<Option<TaskId>> {
        self.conn
            .prepare_cached(
                "SELECT task FROM windlass_unique_key WHERE key = ?1 AND (until IS NULL OR until > ?2)",
            )
            .and_then(|mut s| {
                s.query_row(params![key, now.as_micros()], |r| r.get(0).map(TaskId::from_key))
                    .optional()
            })
            .map_err(sql("submit"))
    }

    pub(super) fn child(&self, parent: TaskId, key: &str) -> Result<Option<TaskId>> {
        self.conn
            .prepare_cached("SELECT id FROM windlass_task WHERE parent = ?1 AND child_key = ?2")
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

    /// Whether the queues take what the batch adds to them.
    fn check_queues(&mut self, batch: &Submit, plans: &[Plan], now: Timestamp) -> Result<()> {
        let mut more: Vec<(&QueueName, u64)> = vec![];
        for (new, plan) in batch.tasks.iter().zip(plans) {
            if !matches!(plan, Plan::Insert) {
                continue;
            }
            match more.iter_mut().find(|(name, _)| *name == &new.queue) {
                Some((_, count)) => *count += 1,
                None => more.push((&new.queue, 1)),
            }
        }
        let mut counts = vec![];
        for (name, more) in more {
            let rules = self.queue_rules(name)?;
            rules.check_open("submit", name)?;
            let Some(max) = rules.depth_max else { continue };
            let (depth, counted_at) = self.depth(name, now)?;
            if depth + more > max {
                let message = format!("queue `{name}` holds {depth} of at most {max}");
                return Err(Error::new(Code::QueueFull, "submit", message));
            }
            counts.push((name.clone(), (depth + more, counted_at)));
        }
        // Only now is it sure that the batch goes in.
        self.memory.depths.extend(counts);
        Ok(())
    }

    /// Counting a deep queue takes time, so the count is kept for a second and
    /// own submissions are added to it.
    fn depth(&mut self, queue: &QueueName, now: Timestamp) -> Result<(u64, Timestamp)> {
        if let Some((depth, at)) = self.memory.depths.get(queue)
            && now.since(*at) < DEPTH_FRESH
            && *at <= now
        {
            return Ok((*depth, *at));
        }
        let count: i64 = self
            .conn
            .prepare_cached(
                "SELECT (SELECT count(*) FROM windlass_ready
                         WHERE lane IN (SELECT id FROM windlass_lane WHERE queue = ?1))
                      + (SELECT count(*) FROM windlass_due
                         WHERE lane IN (SELECT id FROM windlass_lane WHERE queue = ?1))",
            )
            .and_then(|mut s| s.query_row([queue.as_str()], |r| r.get(0)))
            .map_err(sql("submit"))?;
        Ok((count.unsigned_abs(), now))
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
            let text = "INSERT INTO windlass_deadline (at, id) VALUES (?1, ?2)";
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
        self.take_key(new, new.id, now)?;
        match new.unique() {
            Some(unique) if unique.for_.is_some() || !state.is_ended() => {
                self.take_unique(unique, new.id, now)
            }
            _ => Ok(()),
        }
    }

    /// Remembers the answer to an idempotency key.
    fn take_key(&self, new: &NewTask, answer: TaskId, now: Timestamp) -> Result<()> {
        if let Some(idem) = &new.idempotency {
            self.run(
                "submit",
                "INSERT OR REPLACE INTO windlass_idempotency (key, body, task, until) VALUES (?1, ?2, ?3, ?4)",
                params![idem.key, idem.body.to_be_bytes(), answer.key(), now.plus(idem.ttl).as_micros()],
            )?;
        }
        Ok(())
    }

    pub(super) fn take_unique(&self, unique: &Unique, id: TaskId, now: Timestamp) -> Result<()> {
        let until = unique.for_.map(|d| now.plus(d).as_micros());
        let text =
            "INSERT OR REPLACE INTO windlass_unique_key (key, task, until) VALUES (?1, ?2, ?3)";
        self.run("submit", text, params![unique.key, id.key(), until])?;
        Ok(())
    }

    fn mark_parent(&mut self, parent: TaskId, child: State) -> Result<()> {
        for text in [
            "UPDATE windlass_task SET has_children = 1 WHERE id = ?1",
            "UPDATE windlass_lease SET has_children = 1 WHERE task = ?1",
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
            "INSERT OR IGNORE INTO windlass_parent_due (parent) VALUES (?1)",
            params![parent.key()],
        )?;
        Ok(())
    }
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
