//! Queues as readers see them: what people have set, and counts from the small
//! tables and two indexes. No task row is read but one for each kind and
//! priority, so a deep queue costs a walk over its keys. Only reads.

use super::error::sql;
use super::rows::{QUEUE, queue_rules_from};
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::collections::{BTreeMap, HashMap};
use windlass_core::Result;
use windlass_core::clock::Timestamp;
use windlass_core::state::State;
use windlass_core::store::QueueInfo;
use windlass_core::task::{Kind, QueueName};

const OP: &str = "queues";

/// The words of the index on states at rest, so that SQLite sees that it may
/// use it.
const RESTING: &str = "t.state IN (2, 5, 6, 7, 8)";

pub(super) fn queues(conn: &Connection) -> Result<Vec<QueueInfo>> {
    let mut infos = settings(conn)?;
    let lanes = lanes(conn)?;
    for (lane, queue) in &lanes {
        if let (Some(info), Some(since)) = (infos.get_mut(queue), oldest_ready(conn, *lane)?) {
            info.oldest_ready = Some(info.oldest_ready.map_or(since, |known| known.min(since)));
        }
    }
    let mut add = |counts: Vec<Counted>, put: fn(&mut QueueInfo, &Counted)| {
        for counted in counts {
            let info = lanes.get(&counted.lane).and_then(|queue| infos.get_mut(queue));
            info.into_iter().for_each(|info| put(info, &counted));
        }
    };
    add(count(conn, READY)?, |info, c| *info.states.entry(State::Queued).or_default() += c.n);
    // A rollback waits in line as well, and is counted by its own state.
    add(count(conn, &rolling())?, |info, c| {
        let queued = info.states.entry(State::Queued).or_default();
        *queued = queued.saturating_sub(c.n);
    });
    add(count(conn, &resting())?, |info, c| *info.states.entry(c.state).or_default() += c.n);
    add(count(conn, LEASED)?, |info, c| {
        info.leased += c.n;
        // The row of a held rollback says that it rolls back.
        if c.state == State::Running {
            *info.states.entry(State::Running).or_default() += c.n;
        }
    });
    add(count(conn, DEAD)?, |info, c| info.dead_letters += c.n);
    let mut infos: Vec<_> = infos.into_values().collect();
    infos.iter_mut().for_each(|info| info.states.retain(|_, n| *n > 0));
    Ok(infos)
}

/// Lanes in which something is ready: one look at an index for each.
pub(super) fn ready_kinds(conn: &Connection) -> Result<Vec<(QueueName, Kind)>> {
    let text = "SELECT l.queue, l.kind FROM windlass_lane l
                WHERE EXISTS (SELECT 1 FROM windlass_ready r WHERE r.lane = l.id)
                  AND l.queue NOT IN (SELECT name FROM windlass_queue WHERE paused)";
    let named = |r: &Row<'_>| {
        Ok((QueueName::trusted(r.get::<_, String>(0)?), Kind::trusted(r.get::<_, String>(1)?)))
    };
    let mut statement = conn.prepare_cached(text).map_err(sql(OP))?;
    let rows = statement.query_map([], named).map_err(sql(OP))?;
    rows.collect::<rusqlite::Result<_>>().map_err(sql(OP))
}

/// A number of tasks of one lane. The state means something only where the
/// statement says it.
struct Counted {
    lane: i64,
    state: State,
    n: u64,
}

/// Lane by lane: grouping all of them takes half as long again.
const READY: &str = "SELECT l.id, 3, (SELECT count(*) FROM windlass_ready r WHERE r.lane = l.id)
                     FROM windlass_lane l";
const LEASED: &str = "SELECT lane, state, count(*) FROM windlass_lease GROUP BY lane, state";
const DEAD: &str = "SELECT lane, 18, count(*) FROM windlass_dead_letter GROUP BY lane";

fn resting() -> String {
    format!(
        "SELECT t.lane, t.state, count(*) FROM windlass_task t WHERE {RESTING}
         GROUP BY t.state, t.lane"
    )
}

fn rolling() -> String {
    format!(
        "SELECT t.lane, t.state, count(*) FROM windlass_task t
         JOIN windlass_ready r ON r.lane = t.lane AND r.rank = -t.priority AND r.id = t.id
         WHERE {RESTING} AND t.state = 8 GROUP BY t.lane"
    )
}

fn count(conn: &Connection, text: &str) -> Result<Vec<Counted>> {
    let mut statement = conn.prepare_cached(text).map_err(sql(OP))?;
    let mut rows = statement.query([]).map_err(sql(OP))?;
    let mut counts = vec![];
    while let Some(row) = rows.next().map_err(sql(OP))? {
        let int = |i| row.get::<_, i64>(i).map_err(sql(OP));
        let (lane, state, n) = (int(0)?, State::from_code(int(1)?)?, int(2)?.unsigned_abs());
        counts.push(Counted { lane, state, n });
    }
    Ok(counts)
}

/// All queues that ever had a task or a setting, with their settings.
fn settings(conn: &Connection) -> Result<BTreeMap<QueueName, QueueInfo>> {
    let text = format!(
        "SELECT n.queue, q.name IS NOT NULL, {QUEUE}
         FROM (SELECT queue FROM windlass_lane UNION SELECT name FROM windlass_queue) n
         LEFT JOIN windlass_queue q ON q.name = n.queue"
    );
    let read = |r: &Row<'_>| {
        let name = QueueName::trusted(r.get::<_, String>(0)?);
        let mut info = QueueInfo::empty(name.clone());
        if r.get(1)? {
            let rules = queue_rules_from(r, 2)?;
            (info.paused, info.draining) = (rules.paused, rules.draining);
            (info.concurrency, info.depth_max) = (rules.concurrency, rules.depth_max);
        }
        Ok((name, info))
    };
    let mut statement = conn.prepare_cached(&text).map_err(sql(OP))?;
    let rows = statement.query_map([], read).map_err(sql(OP))?;
    rows.collect::<rusqlite::Result<_>>().map_err(sql(OP))
}

fn lanes(conn: &Connection) -> Result<HashMap<i64, QueueName>> {
    let mut statement =
        conn.prepare_cached("SELECT id, queue FROM windlass_lane").map_err(sql(OP))?;
    let read = |r: &Row<'_>| Ok((r.get(0)?, QueueName::trusted(r.get::<_, String>(1)?)));
    let rows = statement.query_map([], read).map_err(sql(OP))?;
    rows.collect::<rusqlite::Result<_>>().map_err(sql(OP))
}

/// Since when a task of a lane is ready: the oldest of each priority is asked.
fn oldest_ready(conn: &Connection, lane: i64) -> Result<Option<Timestamp>> {
    let text = "SELECT r.rank, t.due_at FROM windlass_ready r JOIN windlass_task t ON t.id = r.id
                WHERE r.lane = ?1 AND r.rank > ?2 ORDER BY r.rank, r.id LIMIT 1";
    let mut statement = conn.prepare_cached(text).map_err(sql(OP))?;
    let mut oldest: Option<i64> = None;
    let mut rank = i64::MIN;
    // Each round goes on behind a priority, and there are 21 of them.
    loop {
        let head = statement
            .query_row(params![lane, rank], |r| Ok((r.get::<_, i64>(0)?, r.get::<_, i64>(1)?)))
            .optional()
            .map_err(sql(OP))?;
        let Some((found, due)) = head else { break };
        oldest = Some(oldest.map_or(due, |known| known.min(due)));
        rank = found;
    }
    Ok(oldest.map(Timestamp::from_micros))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::migrate::migrate;

    fn plan(conn: &Connection, text: &str) -> String {
        let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {text}")).unwrap();
        let rows = statement.query_map([], |r| r.get::<_, String>(3)).unwrap();
        rows.map(Result::unwrap).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn counting_reads_no_task_row() {
        let mut conn = Connection::open_in_memory().unwrap();
        migrate(&mut conn, |_, _| {}, None).unwrap();
        let covered = [
            (resting(), "USING COVERING INDEX windlass_task_resting"),
            (DEAD.to_owned(), "USING COVERING INDEX windlass_dead_letter_lane"),
            (READY.to_owned(), "SEARCH r USING PRIMARY KEY (lane=?)"),
        ];
        for (text, expected) in covered {
            let plan = plan(&conn, &text);
            assert!(plan.contains(expected), "{plan}");
            assert!(!plan.contains("TEMP B-TREE"), "{plan}");
        }
        let rolling = plan(&conn, &rolling());
        assert!(
            rolling.contains("INDEX windlass_task_"),
            "only rollbacks are looked at: {rolling}"
        );
        assert!(!rolling.contains("SCAN"), "{rolling}");
    }
}
