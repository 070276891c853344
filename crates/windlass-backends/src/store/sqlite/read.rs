//! Everything a reader may ask, on read-only connections of their own: a read
//! never waits for the writer, and nothing here can write. Lists push what
//! indexes can answer into SQL and leave the rest to the filter itself, so a
//! filter means the same on every store; a page looks at a bounded number of
//! rows.

use super::SqliteStore;
use super::batches::{batch, batches};
use super::claim::checkpoint;
use super::error::sql;
use super::pack::unpack;
use super::queues::{queues, ready_kinds};
use super::rows::{Lanes, Logs, NODE, WHOLE, node_from, one_task, steps_of, whole_task};
use super::standing::totals;
use rusqlite::{Connection, OptionalExtension, params, params_from_iter};
use serde::de::DeserializeOwned;
use windlass_core::access::AccessToken;
use windlass_core::batch::Batch;
use windlass_core::checkpoint::{Checkpoint, StepEntry};
use windlass_core::children::Totals;
use windlass_core::clock::Timestamp;
use windlass_core::event::{Event, Position};
use windlass_core::id::{BatchId, NodeId, TaskId};
use windlass_core::json::Json;
use windlass_core::lease::Token;
use windlass_core::limits::Limit;
use windlass_core::outcome::Failure;
use windlass_core::schedule::Schedule;
use windlass_core::state::State;
use windlass_core::store::{
    Actor, Attempt, AttemptEnd, AuditRow, Batches, BoxFuture, DeadLetter, NodeInfo, PAGE_MAX, Page,
    Query, QueueInfo, Reader, Stats,
};
use windlass_core::task::{Kind, QueueName, Task};
use windlass_core::{Error, Result};

/// Rows one page may look at before it gives what it has.
const SCAN_MAX: usize = 20_000;
/// No task's id is made longer than this before its row is written.
const MADE_BEFORE: std::time::Duration = std::time::Duration::from_secs(86_400);
/// Most events in one answer.
const EVENTS_MAX: usize = 10_000;

impl Reader for SqliteStore {
    fn task(&self, id: TaskId) -> BoxFuture<'_, Result<Option<Task>>> {
        self.read(move |conn, lanes| one(conn, lanes, id))
    }

    fn tasks(&self, query: Query, now: Timestamp) -> BoxFuture<'_, Result<Page<Task>>> {
        self.read(move |conn, lanes| page(conn, lanes, &query, Of::Tasks, now))
    }

    fn checkpoint(&self, id: TaskId) -> BoxFuture<'_, Result<Option<Checkpoint>>> {
        self.read(move |conn, lanes| match one(conn, lanes, id)? {
            Some(task) => checkpoint(conn, id, &task.standing),
            None => Ok(None),
        })
    }

    fn attempts(&self, id: TaskId) -> BoxFuture<'_, Result<Vec<Attempt>>> {
        self.read(move |conn, lanes| attempts(conn, lanes, id))
    }

    fn children(&self, parent: TaskId) -> BoxFuture<'_, Result<Totals>> {
        self.read(move |conn, _| totals(conn, parent))
    }

    fn dead_letters(
        &self,
        query: Query,
        now: Timestamp,
    ) -> BoxFuture<'_, Result<Page<DeadLetter>>> {
        self.read(move |conn, lanes| {
            let page = page(conn, lanes, &query, Of::DeadLetters, now)?;
            let items = page.items.iter().map(DeadLetter::of).collect::<Result<_>>()?;
            Ok(Page { items, next: page.next })
        })
    }

    fn events(&self, after: Position, limit: usize) -> BoxFuture<'_, Result<Vec<Event>>> {
        self.read(move |conn, _| events(conn, after, limit.min(EVENTS_MAX)))
    }

    fn queues(&self) -> BoxFuture<'_, Result<Vec<QueueInfo>>> {
        self.read(move |conn, _| queues(conn))
    }

    fn ready_kinds(&self) -> BoxFuture<'_, Result<Vec<(QueueName, Kind)>>> {
        self.read(move |conn, _| ready_kinds(conn))
    }

    fn nodes(&self) -> BoxFuture<'_, Result<Vec<NodeInfo>>> {
        self.read(move |conn, _| nodes(conn))
    }

    fn next_due(&self) -> BoxFuture<'_, Result<Option<Timestamp>>> {
        self.read(move |conn, _| {
            let at = number(conn, "SELECT at FROM windlass_due ORDER BY at, id LIMIT 1")?;
            Ok(at.map(Timestamp::from_micros))
        })
    }

    fn audit(&self, before: Option<i64>, limit: usize) -> BoxFuture<'_, Result<Vec<AuditRow>>> {
        self.read(move |conn, _| audit(conn, before, limit.min(PAGE_MAX)))
    }

    fn setting(&self, key: String) -> BoxFuture<'_, Result<Option<Json>>> {
        self.read(move |conn, _| {
            conn.prepare_cached("SELECT value FROM windlass_setting WHERE key = ?1")
                .and_then(|mut s| {
                    s.query_row([&key], |r| r.get::<_, String>(0).map(Json::trusted)).optional()
                })
                .map_err(sql("setting"))
        })
    }

    fn schedules(&self) -> BoxFuture<'_, Result<Vec<Schedule>>> {
        self.read(move |conn, _| bodies(conn, "SELECT body FROM windlass_schedule ORDER BY name"))
    }

    fn limits(&self) -> BoxFuture<'_, Result<Vec<Limit>>> {
        self.read(move |conn, _| bodies(conn, "SELECT body FROM windlass_rate_limit ORDER BY name"))
    }

    fn tokens(&self) -> BoxFuture<'_, Result<Vec<AccessToken>>> {
        self.read(move |conn, _| tokens(conn))
    }

    fn batch(&self, id: BatchId) -> BoxFuture<'_, Result<Option<Batch>>> {
        self.read(move |conn, _| batch(conn, id))
    }

    fn batches(
        &self,
        which: Batches,
        before: Option<BatchId>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<Batch>>> {
        self.read(move |conn, _| batches(conn, which, before, limit.min(PAGE_MAX)))
    }

    fn stats(&self) -> BoxFuture<'_, Result<Stats>> {
        self.read(move |conn, _| stats(conn))
    }
}

pub(super) fn tokens(conn: &Connection) -> Result<Vec<AccessToken>> {
    bodies(conn, "SELECT body FROM windlass_token ORDER BY name")
}

fn number(conn: &Connection, text: &str) -> Result<Option<i64>> {
    conn.prepare_cached(text)
        .and_then(|mut s| s.query_row([], |r| r.get(0)).optional())
        .map_err(sql("read"))
}

fn bodies<T: DeserializeOwned>(conn: &Connection, text: &str) -> Result<Vec<T>> {
    let mut statement = conn.prepare_cached(text).map_err(sql("read"))?;
    let rows = statement.query_map([], |r| r.get::<_, String>(0)).map_err(sql("read"))?;
    rows.map(|body| Json::trusted(body.map_err(sql("read"))?).to()).collect()
}

fn one(conn: &Connection, lanes: &mut Lanes, id: TaskId) -> Result<Option<Task>> {
    Ok(one_task(conn, lanes, id)?.map(|(task, _)| task))
}

/// What a page lists.
#[derive(Clone, Copy, PartialEq)]
enum Of {
    Tasks,
    DeadLetters,
}

fn page(
    conn: &Connection,
    lanes: &mut Lanes,
    query: &Query,
    of: Of,
    now: Timestamp,
) -> Result<Page<Task>> {
    let limit = query.limit.clamp(1, PAGE_MAX);
    let (conditions, mut values) = conditions(conn, query, of, now)?;
    let text =
        format!("{} WHERE t.id < ?1{conditions} ORDER BY t.id DESC LIMIT {SCAN_MAX}", *WHOLE);
    values.insert(0, query.before.map_or(i64::MAX, TaskId::key));
    let mut statement = conn.prepare_cached(&text).map_err(sql("list"))?;
    let mut rows = statement.query(params_from_iter(values)).map_err(sql("list"))?;
    let mut page = Page { items: vec![], next: None };
    let mut looked = 0;
    while let Some(row) = rows.next().map_err(sql("list"))? {
        let (task, _) = whole_task(conn, lanes, row)?;
        looked += 1;
        let id = task.id;
        if query.filter.matches(&task, now) {
            page.items.push(task);
        }
        if page.items.len() == limit || looked == SCAN_MAX {
            page.next = Some(id);
            break;
        }
    }
    Ok(page)
}

/// What indexes can answer: a superset of what the filter matches.
fn conditions(
    conn: &Connection,
    query: &Query,
    of: Of,
    now: Timestamp,
) -> Result<(String, Vec<i64>)> {
    let mut text = String::new();
    let mut values = vec![];
    let mut one_of = |column: &str, keys: Vec<i64>| {
        let marks = vec!["?"; keys.len()].join(", ");
        text.push_str(&format!(" AND {column} IN ({marks})"));
        values.extend(keys);
    };
    if let Some(ids) = query.filter.ids() {
        one_of("t.id", ids.into_iter().map(TaskId::key).collect());
    }
    if let Some(parents) = query.filter.parents() {
        one_of("t.parent", parents.into_iter().map(TaskId::key).collect());
    }
    if of == Of::DeadLetters {
        text.push_str(" AND t.id IN (SELECT task FROM windlass_dead_letter)");
    }
    if let Some(states) = query.filter.states() {
        text.push_str(&state_condition(conn, &states)?);
    }
    if let (Some(from), _) = query.filter.created_range(now) {
        // Ids are made shortly before the row, so rows far older need no look.
        let oldest = TaskId::floor(from.minus(MADE_BEFORE)).key();
        text.push_str(&format!(" AND t.id >= {oldest}"));
    }
    Ok((text, values))
}

/// A few ready tasks are looked up one by one, a large backlog is met anyway
/// when the tasks are walked from the newest.
fn queued_condition(conn: &Connection) -> Result<&'static str> {
    let text = format!("SELECT count(*) FROM (SELECT 1 FROM windlass_ready LIMIT {SCAN_MAX})");
    let few = number(conn, &text)?.is_none_or(|n| n.unsigned_abs() < SCAN_MAX as u64);
    Ok(match few {
        true => " AND t.id IN (SELECT id FROM windlass_ready)",
        false => {
            " AND EXISTS (SELECT 1 FROM windlass_ready r
               WHERE r.lane = t.lane AND r.rank = -t.priority AND r.id = t.id)"
        }
    })
}

fn state_condition(conn: &Connection, states: &[State]) -> Result<String> {
    let codes: Vec<String> = states.iter().map(|s| s.code().to_string()).collect();
    let codes = codes.join(", ");
    let has = |state| states.contains(&state);
    // A held or completed task's row keeps the state it was claimed in.
    match states {
        [State::Running] => return Ok(" AND t.id IN (SELECT task FROM windlass_lease)".to_owned()),
        [State::Queued] => return queued_condition(conn).map(str::to_owned),
        _ => {}
    }
    if has(State::Running) || has(State::Queued) || has(State::Completed) {
        return Ok(format!(" AND (t.state IN (3, {codes}) OR e.task IS NOT NULL)"));
    }
    // The words of the partial index, so that SQLite sees that it may use it.
    Ok(format!(" AND t.state NOT IN (3, 16) AND t.state IN ({codes})"))
}

fn attempts(conn: &Connection, lanes: &mut Lanes, id: TaskId) -> Result<Vec<Attempt>> {
    let Some(task) = one(conn, lanes, id)? else { return Ok(vec![]) };
    let mut attempts = stored_attempts(conn, id)?;
    let standing = &task.standing;
    if standing.attempt > 0 && attempts.iter().all(|a| a.token != standing.token) {
        let at = standing.finished_at.unwrap_or(standing.updated_at);
        let ended = (!standing.leased).then_some((AttemptEnd::Settled(standing.state), at));
        let failure = standing.failure.clone().filter(|_| standing.state == State::Failed);
        attempts.push(crate::store::attempt_of(standing, ended, failure));
    }
    let steps = steps_of(conn, id, Logs::Read)?;
    for attempt in &mut attempts {
        let of_it = |e: &&StepEntry| e.attempt == attempt.attempt;
        attempt.steps = steps.iter().filter(of_it).cloned().collect();
    }
    Ok(attempts)
}

/// Attempts that have their own row, oldest first.
pub(super) fn stored_attempts(conn: &Connection, id: TaskId) -> Result<Vec<Attempt>> {
    let text = "SELECT token, run, attempt, node, started_at, ended_at, ended, failure, settled
                FROM windlass_attempt
                WHERE task = ?1 ORDER BY token";
    let mut statement = conn.prepare_cached(text).map_err(sql("attempts"))?;
    let mut rows = statement.query([id.key()]).map_err(sql("attempts"))?;
    let mut attempts = vec![];
    while let Some(r) = rows.next().map_err(sql("attempts"))? {
        let int = |i: usize| r.get::<_, i64>(i).map_err(sql("attempts"));
        let failure: Option<String> = r.get(7).map_err(sql("attempts"))?;
        attempts.push(Attempt {
            token: Token(int(0)?.cast_unsigned()),
            run: r.get(1).map_err(sql("attempts"))?,
            attempt: r.get(2).map_err(sql("attempts"))?,
            node: NodeId::from_key(int(3)?),
            started_at: Timestamp::from_micros(int(4)?),
            ended: Some((AttemptEnd::from_code(int(6)?)?, Timestamp::from_micros(int(5)?))),
            failure: failure.map(|f| Json::trusted(f).to::<Failure>()).transpose()?,
            steps: vec![],
            settled: int(8)?.cast_unsigned(),
        });
    }
    Ok(attempts)
}

fn events(conn: &Connection, after: Position, limit: usize) -> Result<Vec<Event>> {
    // The row that holds the next position may begin before it.
    let text = "SELECT position, count, body FROM windlass_event
                WHERE position >= coalesce((SELECT max(position) FROM windlass_event WHERE position <= ?1), 0)
                ORDER BY position";
    let mut statement = conn.prepare_cached(text).map_err(sql("events"))?;
    let mut rows = statement.query([after.0.saturating_add(1)]).map_err(sql("events"))?;
    let mut found = vec![];
    while found.len() < limit
        && let Some(row) = rows.next().map_err(sql("events"))?
    {
        let (first, count) =
            (row.get(0).map_err(sql("events"))?, row.get(1).map_err(sql("events"))?);
        let body = row.get_ref(2).map_err(sql("events"))?;
        let body = body.as_blob().map_err(|e| Error::corrupt("events", "not a blob").because(e))?;
        found.extend(unpack(body, first, count)?.into_iter().filter(|e| e.position > after));
    }
    found.truncate(limit);
    Ok(found)
}

fn nodes(conn: &Connection) -> Result<Vec<NodeInfo>> {
    let text = format!(
        "SELECT {NODE}, (SELECT count(*) FROM windlass_lease e WHERE e.node = n.id)
         FROM windlass_node n ORDER BY n.id"
    );
    let mut statement = conn.prepare_cached(&text).map_err(sql("nodes"))?;
    let mut rows = statement.query([]).map_err(sql("nodes"))?;
    let mut nodes = vec![];
    while let Some(row) = rows.next().map_err(sql("nodes"))? {
        let active: i64 = row.get(13).map_err(sql("nodes"))?;
        nodes.push(NodeInfo { active: active.unsigned_abs(), ..node_from(row)? });
    }
    Ok(nodes)
}

fn audit(conn: &Connection, before: Option<i64>, limit: usize) -> Result<Vec<AuditRow>> {
    let text = "SELECT seq, at, who, origin, action, target, outcome FROM windlass_audit
                WHERE seq < ?1 ORDER BY seq DESC LIMIT ?2";
    let mut statement = conn.prepare_cached(text).map_err(sql("audit"))?;
    let rows = statement
        .query_map(params![before.unwrap_or(i64::MAX), limit], |r| {
            Ok(AuditRow {
                seq: r.get(0)?,
                at: Timestamp::from_micros(r.get(1)?),
                by: Actor { who: r.get(2)?, origin: r.get(3)? },
                action: r.get(4)?,
                target: r.get(5)?,
                outcome: r.get(6)?,
            })
        })
        .map_err(sql("audit"))?;
    rows.collect::<rusqlite::Result<_>>().map_err(sql("audit"))
}

/// Counts by the small tables and the index of rare states; completed tasks are
/// counted as they end, because counting their rows would read them all.
fn stats(conn: &Connection) -> Result<Stats> {
    let count = |text: &str| Ok::<u64, Error>(number(conn, text)?.unwrap_or(0).unsigned_abs());
    let mut stats = Stats::default();
    let mut add = |state: State, n: u64| {
        if n > 0 {
            *stats.states.entry(state).or_default() += n;
        }
    };
    let text =
        "SELECT state, count(*) FROM windlass_task WHERE state NOT IN (3, 16) GROUP BY state";
    let mut statement = conn.prepare_cached(text).map_err(sql("stats"))?;
    let mut rows = statement.query([]).map_err(sql("stats"))?;
    while let Some(row) = rows.next().map_err(sql("stats"))? {
        let (code, n): (i64, i64) =
            (row.get(0).map_err(sql("stats"))?, row.get(1).map_err(sql("stats"))?);
        add(State::from_code(code)?, n.unsigned_abs());
    }
    let rolling =
        "SELECT count(*) FROM windlass_task t JOIN windlass_ready r ON r.lane = t.lane AND r.rank = -t.priority
                   AND r.id = t.id WHERE t.state NOT IN (3, 16) AND t.state = 8";
    add(
        State::Queued,
        count("SELECT count(*) FROM windlass_ready")?.saturating_sub(count(rolling)?),
    );
    add(State::Running, count("SELECT count(*) FROM windlass_lease WHERE state = 4")?);
    add(State::Completed, count("SELECT value FROM windlass_meta WHERE key = 'completed'")?);
    stats.dead_letters = count("SELECT count(*) FROM windlass_dead_letter")?;
    stats.outbox = count("SELECT count(*) FROM windlass_outbox")?;
    let newest = number(
        conn,
        "SELECT position + count - 1 FROM windlass_event ORDER BY position DESC LIMIT 1",
    )?;
    stats.newest_event = Position(newest.unwrap_or(0));
    Ok(stats)
}
