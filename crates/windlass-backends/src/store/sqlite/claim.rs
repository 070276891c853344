//! Giving tasks to nodes: joining, claiming, renewing. A claim reads the heads
//! of the lanes it may take from, merged by priority and age, and moves each
//! task from `ready` to `lease`; the task's own row is only read. Kinds that a
//! node does not serve are other lanes, so they cost it nothing.

use super::error::sql;
use super::rows::{
    Held, LEASE, Logs, NODE, QUEUE, held_from, lay_over, node_from, queue_rules_from, stage_code,
    steps_of,
};
use super::statements::Hot;
use super::tx::Tx;
use crate::store::{
    QueueRules, attempt_of, check_claim, clears_checkpoint, free_slot, node_event, renew_node,
    storable,
};
use rusqlite::{OptionalExtension, params};
use std::collections::{HashMap, HashSet, VecDeque};
use windlass_core::checkpoint::Checkpoint;
use windlass_core::clock::Timestamp;
use windlass_core::event::EventName;
use windlass_core::id::{IdMint, NodeId, SLOTS, TaskId};
use windlass_core::json::Json;
use windlass_core::lease::{AfterCrash, Token};
use windlass_core::standing::{Inside, Place, Standing};
use windlass_core::store::{
    AttemptEnd, CLAIM_MAX, Claim, Claimed, Joined, Kinds, Lane, NewNode, NodeInfo, Renewal,
    Renewed, Stage, Wanted,
};
use windlass_core::task::{Card, QueueName, Task};
use windlass_core::{Error, Result};

/// The least that is read from one lane at a time.
const CHUNK: usize = 32;

/// One lane of a queue during a claim.
struct Source {
    lane: i64,
    /// How many more of its kind may be taken.
    left: usize,
    heads: VecDeque<(i64, i64)>,
    /// Read on after this key.
    after: Option<(i64, i64)>,
    /// Nothing is left behind `heads`.
    drained: bool,
}

impl Tx<'_, '_> {
    pub(super) fn join(&mut self, new: &NewNode, now: Timestamp) -> Result<Joined> {
        let (slot, crowded) = self.seat(new, now)?;
        if new.sole {
            let text =
                "UPDATE windlass_node SET lease_until = min(lease_until, ?1) WHERE NOT remote";
            self.run("join", text, params![now.as_micros()])?;
            let text = "UPDATE windlass_node SET lease_until = max(lease_until, ?1)
                        WHERE remote AND NOT announced
                          AND lease_until > (SELECT max(heartbeat_at) FROM windlass_node)";
            self.run("join", text, params![now.plus(new.lease).as_micros()])?;
        }
        if crowded {
            self.forget_lost(SLOTS.into(), now, now)?;
        }
        if let Some(before) = new.instead_of {
            let text = "UPDATE windlass_lease SET in_step = 0 WHERE node = ?1";
            self.run("join", text, params![before.key()])?;
            let mine = |held: &&mut Held| held.standing.node == Some(before);
            self.memory.leases.values_mut().filter(mine).for_each(|held| held.in_step = false);
        }
        let newest = self.meta("newest_node")?.unwrap_or(0);
        let key = IdMint::new(slot).next_key(now).max(newest + 1);
        self.set_meta("newest_node", key)?;
        let lease_until = now.plus(new.lease);
        self.run(
            "join",
            "INSERT INTO windlass_node (id, slot, name, remote, queues, version, joined_at, heartbeat_at,
               lease_until, stage, paused, announced, consumed, failed)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, ?8, 0, 0, 0, 0, 0)",
            params![
                key,
                slot,
                new.name,
                new.remote,
                Json::of(&new.queues)?.as_str(),
                new.version,
                now.as_micros(),
                lease_until.as_micros(),
            ],
        )?;
        let node = NodeId::from_key(key);
        self.out.push(node_event(EventName::NodeJoined, node, now));
        Ok(Joined { node, slot, lease_until })
    }

    /// A slot, and whether nodes that are gone must be forgotten for it.
    fn seat(&self, new: &NewNode, now: Timestamp) -> Result<(u16, bool)> {
        let all = "SELECT slot, remote FROM windlass_node";
        if let Ok(slot) = free_slot(&self.slots(all, [])?, new.remote) {
            return Ok((slot, false));
        }
        let stay = "SELECT slot, remote FROM windlass_node
                    WHERE (lease_until > ?1 AND NOT (?2 AND NOT remote))
                       OR id IN (SELECT node FROM windlass_lease)";
        let stay = self.slots(stay, params![now.as_micros(), new.sole])?;
        free_slot(&stay, new.remote).map(|slot| (slot, true))
    }

    fn slots(&self, text: &str, params: impl rusqlite::Params) -> Result<Vec<(u16, bool)>> {
        let mut statement = self.conn.prepare_cached(text).map_err(sql("join"))?;
        let rows = statement.query_map(params, |r| Ok((r.get(0)?, r.get(1)?)));
        rows.and_then(|rows| rows.collect()).map_err(sql("join"))
    }

    /// The node's row, if its lease has not ended.
    fn live_node(&self, id: NodeId, now: Timestamp) -> Result<NodeInfo> {
        match self.node(id)? {
            Some(node) if node.lease_until > now => Ok(node),
            _ => Err(Error::lease_lost("node", format!("the lease of {id} has ended"))),
        }
    }

    pub(super) fn node(&self, id: NodeId) -> Result<Option<NodeInfo>> {
        let text = format!("SELECT {NODE} FROM windlass_node n WHERE n.id = ?1");
        let mut statement = self.conn.prepare_cached(&text).map_err(sql("node"))?;
        let mut rows = statement.query([id.key()]).map_err(sql("node"))?;
        rows.next().map_err(sql("node"))?.map(node_from).transpose()
    }

    /// What people have said about a queue; nothing, when its row is missing.
    pub(super) fn queue_rules(&self, name: &QueueName) -> Result<QueueRules> {
        let text = format!("SELECT {QUEUE} FROM windlass_queue q WHERE q.name = ?1");
        self.conn
            .prepare_cached(&text)
            .and_then(|mut s| s.query_row([name.as_str()], |r| queue_rules_from(r, 0)).optional())
            .map(Option::unwrap_or_default)
            .map_err(sql("queue"))
    }

    pub(super) fn claim(&mut self, claim: &Claim, now: Timestamp) -> Result<Vec<Claimed>> {
        check_claim(claim)?;
        self.live_node(claim.node, now)?;
        let max = claim.max.min(CLAIM_MAX);
        let mut claimed = vec![];
        for (i, lane) in claim.lanes.iter().enumerate() {
            // Tasks of one queue are offered by its first lane only.
            if claimed.len() >= max || claim.lanes[..i].iter().any(|l| l.queue == lane.queue) {
                continue;
            }
            let rules = self.queue_rules(&lane.queue)?;
            if rules.paused {
                continue;
            }
            let room = self.room(lane, rules.concurrency, claim)?.min(max - claimed.len());
            match &claim.wanted {
                Wanted::Ready => self.claim_ready(claim, lane, room, now, &mut claimed)?,
                Wanted::Ids(ids) => self.claim_ids(claim, ids, lane, room, now, &mut claimed)?,
                Wanted::Expired => self.claim_expired(claim, lane, room, now, &mut claimed)?,
            }
        }
        if let Wanted::Ids(ids) = &claim.wanted {
            // Reversed, so that the first place of an id that is named twice wins.
            let order: HashMap<TaskId, usize> =
                ids.iter().enumerate().rev().map(|(i, id)| (*id, i)).collect();
            claimed.sort_by_key(|c| order.get(&c.task.id).copied());
        }
        Ok(claimed)
    }

    /// How many more of a queue may run, by the lane and by the cluster. Taking
    /// over from a dead node adds no running task.
    fn room(&self, lane: &Lane, limit: Option<u32>, claim: &Claim) -> Result<usize> {
        let Some(limit) = limit.filter(|_| claim.wanted != Wanted::Expired) else {
            return Ok(lane.max);
        };
        let text = "SELECT count(*) FROM windlass_lease
                    WHERE lane IN (SELECT id FROM windlass_lane WHERE queue = ?1)";
        let running: usize = self
            .conn
            .prepare_cached(text)
            .and_then(|mut s| s.query_row([lane.queue.as_str()], |r| r.get(0)))
            .map_err(sql("claim"))?;
        Ok(lane.max.min((limit as usize).saturating_sub(running)))
    }

    /// The lanes of a queue that hold kinds the node serves.
    fn sources(&mut self, lane: &Lane) -> Result<Vec<Source>> {
        let served: Vec<(i64, usize)> = match &lane.kinds {
            Kinds::Any => {
                let all = self.memory.lanes.of_queue(self.conn, &lane.queue)?;
                all.into_iter().map(|(id, _)| (id, usize::MAX)).collect()
            }
            Kinds::Only(list) => {
                let mut served = vec![];
                for (kind, max) in list {
                    let id = self.memory.lanes.find(self.conn, &lane.queue, kind)?;
                    // A kind that is named twice counts once, by its first maximum.
                    if let Some(id) = id.filter(|id| served.iter().all(|(known, _)| known != id)) {
                        served.push((id, *max));
                    }
                }
                served
            }
        };
        let source = |(lane, left)| Source {
            lane,
            left,
            heads: VecDeque::new(),
            after: None,
            drained: false,
        };
        Ok(served.into_iter().map(source).collect())
    }

    /// Reads the next heads of a lane.
    fn refill(&mut self, source: &mut Source, chunk: usize) -> Result<()> {
        let (rank, id) = source.after.unwrap_or((i64::MIN, i64::MIN));
        let statement = self.hot.get(Hot::Heads)?;
        let mut rows =
            statement.query(params![source.lane, rank, id, chunk]).map_err(sql("claim"))?;
        while let Some(row) = rows.next().map_err(sql("claim"))? {
            source
                .heads
                .push_back((row.get(0).map_err(sql("claim"))?, row.get(1).map_err(sql("claim"))?));
        }
        source.drained = source.heads.len() < chunk;
        source.after = source.heads.back().copied();
        Ok(())
    }

    /// The next task in claim order over all lanes.
    fn next_head(
        &mut self,
        sources: &mut [Source],
        chunk: usize,
    ) -> Result<Option<(usize, i64, TaskId)>> {
        let mut best: Option<(usize, (i64, i64))> = None;
        for (i, source) in sources.iter_mut().enumerate().filter(|(_, s)| s.left > 0) {
            if source.heads.is_empty() && !source.drained {
                self.refill(source, chunk)?;
            }
            if let Some(head) = source.heads.front().copied()
                && best.is_none_or(|(_, least)| head < least)
            {
                best = Some((i, head));
            }
        }
        Ok(best.map(|(i, (rank, id))| {
            sources[i].heads.pop_front();
            (i, rank, TaskId::from_key(id))
        }))
    }

    fn claim_ready(
        &mut self,
        claim: &Claim,
        lane: &Lane,
        room: usize,
        now: Timestamp,
        claimed: &mut Vec<Claimed>,
    ) -> Result<()> {
        let mut sources = self.sources(lane)?;
        let chunk = (room / sources.len().max(1)).max(CHUNK);
        for source in sources.iter_mut().filter(|source| source.left.min(room) > 0) {
            self.refill(source, chunk)?;
        }
        let found: usize = sources.iter().map(|source| source.heads.len()).sum();
        claimed.reserve(found.min(room));
        let mut room = room;
        // Within a lane nothing is passed over, so what was taken of it is its
        // head: one statement per lane and priority takes it out.
        let mut taken_up_to: HashMap<(i64, i64), i64> = HashMap::new();
        // Tasks past their deadline end here and take no room; their number must
        // be bounded all the same.
        let mut looks = room + CLAIM_MAX;
        while room > 0 && looks > 0 {
            looks -= 1;
            let Some((i, rank, id)) = self.next_head(&mut sources, chunk)? else { break };
            taken_up_to.insert((sources[i].lane, rank), id.key());
            if let Some(taken) = self.take_ready(id, claim, now)? {
                sources[i].left -= 1;
                room -= 1;
                claimed.push(taken);
            }
        }
        for ((lane, rank), id) in taken_up_to {
            self.hot.run(Hot::LeaveReadyUpTo, params![lane, rank, id])?;
        }
        Ok(())
    }

    fn claim_ids(
        &mut self,
        claim: &Claim,
        ids: &[TaskId],
        lane: &Lane,
        room: usize,
        now: Timestamp,
        claimed: &mut Vec<Claimed>,
    ) -> Result<()> {
        let mut sources = self.sources(lane)?;
        let mut room = room;
        for &id in ids {
            let Some(lane) = self.ready_lane(id)? else { continue };
            let Some(source) = sources.iter_mut().find(|s| s.lane == lane && s.left > 0) else {
                continue;
            };
            if room == 0 {
                break;
            }
            if let Some(taken) = self.take_ready(id, claim, now)? {
                let card = taken.task.card();
                self.leave(Place::Ready, lane, &card)?;
                source.left -= 1;
                room -= 1;
                claimed.push(taken);
            }
        }
        Ok(())
    }

    /// The lane of a task that is ready now.
    fn ready_lane(&self, id: TaskId) -> Result<Option<i64>> {
        let text = "SELECT t.lane FROM windlass_task t
                    JOIN windlass_ready r ON r.lane = t.lane AND r.rank = -t.priority AND r.id = t.id
                    WHERE t.id = ?1";
        self.conn
            .prepare_cached(text)
            .and_then(|mut s| s.query_row([id.key()], |r| r.get(0)).optional())
            .map_err(sql("claim"))
    }

    /// Gives a lease on one ready task, or ends it because it is too late. The
    /// caller takes it out of `ready`.
    fn take_ready(&mut self, id: TaskId, claim: &Claim, now: Timestamp) -> Result<Option<Claimed>> {
        let Some((mut task, lane)) = self.ready_task(id)? else { return Ok(None) };
        let card = task.card();
        let guard = self.memory.guards.transition();
        if task.standing.is_expired(task.deadline, now) {
            let before = task.standing.clone();
            let deadline = task.deadline.unwrap_or(now);
            task.standing.expire(&card, deadline, now, guard, &mut self.out)?;
            self.put_down(&card, lane, &before, &mut task.standing, None, now)?;
            return Ok(None);
        }
        if task.standing.claim(&card, claim.node, now, guard, &mut self.out).is_err() {
            return Ok(None);
        }
        self.lease(card, lane, task, claim).map(Some)
    }

    /// Writes the lease of a task that a node just took.
    fn lease(&mut self, card: Card, lane: i64, task: Task, claim: &Claim) -> Result<Claimed> {
        let alone = claim.poison.runs_alone(task.standing.crashes);
        let in_step = claim.begins && !alone;
        let s = &task.standing;
        self.hot.run(
            Hot::InsertLease,
            params![
                card.id.key(),
                claim.node.key(),
                s.token.0.cast_signed(),
                claim.number.0.cast_signed(),
                in_step,
                alone,
                s.requests.bits(),
                lane,
                card.priority,
                s.state.code(),
                s.due_at.as_micros(),
                s.started_at.unwrap_or(s.updated_at).as_micros(),
                s.run,
                s.attempt,
                s.retries,
                s.crashes,
                s.version.0.cast_signed(),
                s.event_n,
                s.has_children,
                card.unique,
                card.parent.map(TaskId::key),
                card.correlation_id,
            ],
        )?;
        let mut standing = task.standing.clone();
        // Absent means unchanged: what the row has stays there.
        (standing.result, standing.failure, standing.progress) = (None, None, None);
        standing.children = None;
        let held = Held { card, lane, standing, claim: claim.number, in_step, alone };
        self.memory.keep_lease(task.id, held);
        let checkpoint = self.live_checkpoint(&task)?;
        Ok(Claimed { task, checkpoint, alone })
    }

    fn live_checkpoint(&self, task: &Task) -> Result<Option<Checkpoint>> {
        if task.standing.version.0 == 0 {
            return Ok(None);
        }
        checkpoint(self.conn, task.id, &task.standing)
    }

    fn claim_expired(
        &mut self,
        claim: &Claim,
        lane: &Lane,
        room: usize,
        now: Timestamp,
        claimed: &mut Vec<Claimed>,
    ) -> Result<()> {
        let mut sources = self.sources(lane)?;
        let mut room = room;
        for held in self.orphans(now)? {
            let Some(source) = sources.iter_mut().find(|s| s.lane == held.lane && s.left > 0)
            else {
                continue;
            };
            if room == 0 {
                break;
            }
            if let Some(taken) = self.take_over(held, claim, now)? {
                source.left -= 1;
                room -= 1;
                claimed.push(taken);
            }
        }
        Ok(())
    }

    /// Leases whose node is gone. What runs is bounded by the nodes' slots, so
    /// looking at all leases is cheap.
    fn orphans(&mut self, now: Timestamp) -> Result<Vec<Held>> {
        let text = format!(
            "SELECT {LEASE} FROM windlass_lease e LEFT JOIN windlass_node n ON n.id = e.node
             WHERE n.id IS NULL OR n.lease_until <= ?1 ORDER BY e.task"
        );
        self.leases(&text, now.as_micros())
    }

    fn leases(&mut self, text: &str, key: i64) -> Result<Vec<Held>> {
        let mut statement = self.conn.prepare_cached(text).map_err(sql("lease"))?;
        let mut rows = statement.query([key]).map_err(sql("lease"))?;
        let mut found = vec![];
        while let Some(row) = rows.next().map_err(sql("lease"))? {
            found.push(held_from(self.conn, &mut self.memory.lanes, row, 0)?);
        }
        Ok(found)
    }

    fn take_over(&mut self, held: Held, claim: &Claim, now: Timestamp) -> Result<Option<Claimed>> {
        let Some((mut task, lane)) = self.free_task(held.card.id)? else { return Ok(None) };
        let was = Inside { in_step: held.in_step, alone: held.alone };
        let before = held.standing.clone();
        let card = held.card.clone();
        let lost = attempt_of(&before, Some((AttemptEnd::Lost, now)), None);
        self.archive_attempt(card.id, &lost)?;
        lay_over(&mut task, held);
        let standing = &mut task.standing;
        let fate = standing.crashed(&card, claim.poison, was, now, &mut self.out);
        if let AfterCrash::Poisoned { .. } = fate {
            self.put_down(&card, lane, &before, standing, None, now)?;
            return Ok(None);
        }
        standing.take_over(&card, claim.node, now, &mut self.out);
        self.lease(card, lane, task, claim).map(Some)
    }

    pub(super) fn renew(&mut self, renewal: &Renewal, now: Timestamp) -> Result<Renewed> {
        let mut node = self.live_node(renewal.node, now)?;
        let held: HashMap<TaskId, Token> = renewal.held.iter().copied().collect();
        let mut renewed = Renewed::default();
        let mut known = HashSet::new();
        let text =
            format!("SELECT {LEASE} FROM windlass_lease e WHERE e.node = ?1 ORDER BY e.task");
        let mine = self.leases(&text, renewal.node.key())?;
        let mut active = mine.len();
        for lease in mine {
            let (id, standing) = (lease.card.id, &lease.standing);
            if held.get(&id) == Some(&standing.token) {
                known.insert(id);
                if standing.requests.any() {
                    renewed.requests.push((id, standing.requests));
                }
            } else if renewal.has_answer(lease.claim) {
                self.give_back(&lease, now)?;
                renewed.given_back += 1;
                active -= 1;
            }
        }
        renewed.lost =
            renewal.held.iter().map(|(id, _)| *id).filter(|id| !known.contains(id)).collect();
        renew_node(&mut node, renewal, &mut renewed, now);
        if renewal.stage == Stage::Leaving && active == 0 {
            self.run("renew", "DELETE FROM windlass_node WHERE id = ?1", params![node.id.key()])?;
        } else {
            self.update_node(&node)?;
        }
        Ok(renewed)
    }

    pub(super) fn update_node(&self, node: &NodeInfo) -> Result<()> {
        self.run(
            "node",
            "UPDATE windlass_node SET heartbeat_at = ?2, lease_until = ?3, stage = ?4, paused = ?5,
               consumed = ?6, failed = ?7 WHERE id = ?1",
            params![
                node.id.key(),
                node.heartbeat_at.as_micros(),
                node.lease_until.as_micros(),
                stage_code(node.stage),
                node.paused,
                storable(node.consumed),
                storable(node.failed),
            ],
        )?;
        Ok(())
    }

    /// A claim whose answer got lost: the task goes back, nothing burnt.
    fn give_back(&mut self, held: &Held, now: Timestamp) -> Result<()> {
        let mut after = held.standing.clone();
        let guard = self.memory.guards.transition();
        after.give_back(&held.card, now, guard, &mut self.out)?;
        let back = attempt_of(&held.standing, Some((AttemptEnd::GivenBack, now)), None);
        self.archive_attempt(held.card.id, &back)?;
        self.put_down(&held.card, held.lane, &held.standing, &mut after, None, now)
    }
}

/// The live steps of a task.
pub(super) fn checkpoint(
    conn: &rusqlite::Connection,
    id: TaskId,
    standing: &Standing,
) -> Result<Option<Checkpoint>> {
    if clears_checkpoint(standing.state) {
        return Ok(None);
    }
    let entries: Vec<_> = steps_of(conn, id, Logs::Left)?.into_iter().filter(|e| e.live).collect();
    Ok((!entries.is_empty()).then_some(Checkpoint { version: standing.version, entries }))
}
