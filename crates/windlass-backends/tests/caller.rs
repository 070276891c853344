//! Tasks submitted inside a caller's own SQLite transaction: they share its
//! fate, its neighbours stay whole whatever goes wrong, and the store's writer,
//! which sees none of it happen, stays right about everything it remembers.
#![allow(clippy::expect_used, clippy::panic)] // a test tells by panicking

use parking_lot::Mutex;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;
use windlass_backends::CallerTx;
use windlass_backends::store::sqlite::{SqliteOptions, SqliteStore, take_turns};
use windlass_core::clock::{Now, Timestamp};
use windlass_core::event::Position;
use windlass_core::id::{NodeId, TaskId};
use windlass_core::json::Json;
use windlass_core::lease::{ClaimNo, PoisonRule};
use windlass_core::state::State;
use windlass_core::store::{
    Actor, Change, Claim, Fire, Kinds, Lane, NewNode, OutboxOp, OutboxRule, QueueChange, Reader,
    Setting, Store, Submit, Submitted, Wanted,
};
use windlass_core::task::{ChildOf, IdempotencyKey, Kind, NewTask, QueueName, Unique};
use windlass_core::{Code, Error, ErrorKind, Result};

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const DAY: Duration = Duration::from_secs(86_400);

/// A store with a node, and an application's connection to the same file.
struct Home {
    store: SqliteStore,
    node: NodeId,
    path: PathBuf,
    app: Connection,
    _dir: tempfile::TempDir,
}

impl Home {
    async fn new() -> Home {
        Home::joined(NOW).await
    }

    async fn joined(at: Timestamp) -> Home {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("home.db");
        let store = SqliteStore::open(SqliteOptions::at(&path)).expect("a store");
        let node = NewNode {
            name: "engine".to_owned(),
            remote: false,
            queues: vec![],
            version: String::new(),
            lease: DAY,
            sole: true,
            instead_of: None,
        };
        let node = store.join(node, Now::At(at)).await.expect("a node").node;
        let app = connect(&path);
        app.execute_batch("CREATE TABLE app_order (id INTEGER PRIMARY KEY)").expect("a table");
        Home { store, node, path, app, _dir: dir }
    }

    async fn by_store(&self, tasks: Vec<NewTask>) -> Result<Vec<Submitted>> {
        self.store.submit(tasks.into(), Now::At(NOW)).await
    }

    /// An order and its tasks in one transaction.
    async fn order(&mut self, order: i64, tasks: Vec<NewTask>) -> Result<Vec<Submitted>> {
        let node = self.node;
        let mut tx = begin(&mut self.app);
        insert_order(&tx, order);
        let answers = submit(&mut tx, node, tasks).await;
        tx.commit().expect("the caller's transaction commits, whatever submit said");
        answers
    }

    fn orders(&self) -> Vec<i64> {
        let mut statement = self.app.prepare("SELECT id FROM app_order ORDER BY id").expect("rows");
        statement.query_map([], |r| r.get(0)).expect("rows").flatten().collect()
    }

    async fn positions(&self) -> Vec<i64> {
        self.positions_after(None).await.unwrap_or_default()
    }

    /// The next page of the feed, if there is one.
    async fn positions_after(&self, last: Option<i64>) -> Option<Vec<i64>> {
        let after = Position(last.unwrap_or(0));
        let events = self.store.events(after, 500).await.expect("events");
        (!events.is_empty()).then(|| events.iter().map(|e| e.position.0).collect())
    }

    /// How many tasks the store has, by any state.
    async fn tasks(&self) -> u64 {
        self.store.stats().await.expect("stats").states.values().sum()
    }

    async fn claim(&self, kinds: Kinds) -> Vec<(TaskId, Kind)> {
        let claim = Claim {
            node: self.node,
            number: ClaimNo(1),
            wanted: Wanted::Ready,
            lanes: vec![Lane { queue: QueueName::default(), max: 100, kinds }],
            max: 100,
            poison: PoisonRule::default(),
            begins: true,
        };
        let claimed = self.store.claim(claim, Now::At(NOW)).await.expect("leases");
        claimed.into_iter().map(|c| (c.task.id, c.task.kind)).collect()
    }
}

fn connect(path: &Path) -> Connection {
    let conn = Connection::open(path).expect("a connection");
    take_turns(&conn).expect("a setting");
    conn
}

fn begin(conn: &mut Connection) -> Transaction<'_> {
    conn.transaction_with_behavior(TransactionBehavior::Immediate).expect("a transaction")
}

fn insert_order(conn: &Connection, order: i64) {
    conn.execute("INSERT INTO app_order (id) VALUES (?1)", [order]).expect("an order");
}

/// As the engine does it: through the trait, knowing no driver.
async fn submit(
    tx: &mut dyn CallerTx,
    node: NodeId,
    batch: impl Into<Submit>,
) -> Result<Vec<Submitted>> {
    assert_eq!(tx.backend(), "sqlite");
    tx.submit(node, batch.into(), Now::At(NOW)).await
}

fn id(key: i64) -> TaskId {
    TaskId::from_key(key)
}

fn kind(name: &str) -> Kind {
    Kind::new(name).expect("a name")
}

fn task(key: i64) -> NewTask {
    of_kind(key, "k")
}

fn of_kind(key: i64, name: &str) -> NewTask {
    NewTask::new(id(key), kind(name), Json::trusted("{}"))
}

fn with_key(key: i64, name: &str, body: u128) -> NewTask {
    let idempotency = Some(IdempotencyKey { key: name.to_owned(), body, ttl: DAY });
    NewTask { idempotency, ..task(key) }
}

fn unique(key: i64, name: &str) -> NewTask {
    let mut new = task(key);
    new.extras_mut().unique = Some(Unique { key: name.to_owned(), for_: None });
    new
}

fn queued(key: i64) -> Submitted {
    Submitted::New { id: id(key), state: State::Queued }
}

fn refused(result: Result<Vec<Submitted>>, code: Code, word: &str) -> Error {
    let error = result.expect_err("a refusal");
    assert_eq!(error.code(), code, "{error}");
    assert!(error.message().contains(word), "{error}");
    error
}

#[tokio::test]
async fn tasks_are_committed_with_the_callers_rows_and_run() {
    let mut home = Home::new().await;
    let node = home.node;
    let mut tx = begin(&mut home.app);
    insert_order(&tx, 1);
    let answers = submit(&mut tx, node, vec![task(1), task(2)]).await.expect("answers");
    assert_eq!(answers, [queued(1), queued(2)]);
    assert_eq!(submit(&mut tx, node, vec![task(3)]).await.expect("again"), [queued(3)]);
    assert!(home.store.task(id(1)).await.expect("a read").is_none(), "not before the commit");
    tx.commit().expect("a commit");
    assert_eq!(home.orders(), [1]);
    let claimed = home.claim(Kinds::Any).await;
    assert_eq!(claimed.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [id(1), id(2), id(3)]);
    let again = home.by_store(vec![task(1)]).await.expect("the same submission");
    assert_eq!(again, [Submitted::New { id: id(1), state: State::Running }]);
}

#[tokio::test]
async fn a_rolled_back_transaction_leaves_nothing() {
    let mut home = Home::new().await;
    let (node, before) = (home.node, home.positions().await);
    let mut keyed = with_key(1, "key", 7);
    keyed.extras_mut().unique = Some(Unique { key: "one".to_owned(), for_: None });
    let mut tx = begin(&mut home.app);
    insert_order(&tx, 1);
    assert_eq!(submit(&mut tx, node, vec![keyed]).await.expect("answers"), [queued(1)]);
    tx.rollback().expect("a rollback");
    assert_eq!((home.orders(), home.tasks().await), (vec![], 0));
    assert_eq!(home.positions().await, before);
    assert!(home.claim(Kinds::Any).await.is_empty());
    // The keys are free for other tasks, and the id for another content.
    let tasks = vec![with_key(2, "key", 8), unique(3, "one"), of_kind(1, "other")];
    let answers = home.by_store(tasks).await.expect("answers");
    assert_eq!(answers, [queued(2), queued(3), queued(1)]);
}

#[tokio::test]
async fn a_dropped_future_does_nothing() {
    let mut home = Home::new().await;
    let node = home.node;
    let mut tx = begin(&mut home.app);
    drop(tx.submit(node, vec![task(1)].into(), Now::At(NOW)));
    tx.commit().expect("a commit");
    assert_eq!(home.tasks().await, 0);
}

#[tokio::test]
async fn a_unique_conflict_is_an_answer() {
    let mut home = Home::new().await;
    home.by_store(vec![unique(1, "one")]).await.expect("written");
    let answers = home.order(1, vec![unique(2, "one"), task(3)]).await.expect("answers");
    assert_eq!(answers, [Submitted::Existing { id: id(1) }, queued(3)]);
    assert_eq!(home.orders(), [1]);
    home.order(2, vec![unique(4, "two")]).await.expect("answers");
    let answers = home.by_store(vec![unique(5, "two")]).await.expect("answers");
    assert_eq!(answers, [Submitted::Existing { id: id(4) }]);
}

#[tokio::test]
async fn an_idempotency_key_is_answered_both_ways() {
    let mut home = Home::new().await;
    home.by_store(vec![with_key(1, "a", 7)]).await.expect("written");
    let answers = home.order(1, vec![with_key(2, "a", 7)]).await.expect("answers");
    assert_eq!(answers, [Submitted::Replayed { id: id(1) }]);
    home.order(2, vec![with_key(3, "b", 7)]).await.expect("written");
    let answers = home.by_store(vec![with_key(4, "b", 7)]).await.expect("answers");
    assert_eq!(answers, [Submitted::Replayed { id: id(3) }]);
    let reused = home.order(3, vec![task(5), with_key(6, "b", 8)]).await;
    refused(reused, Code::KeyReused, "another submission");
    assert_eq!((home.orders(), home.tasks().await), (vec![1, 2, 3], 2));
}

#[tokio::test]
async fn a_refused_batch_is_undone_and_the_transaction_goes_on() {
    let mut home = Home::new().await;
    let node = home.node;
    home.by_store(vec![task(9)]).await.expect("written");
    let before = home.positions().await;
    let mut tx = begin(&mut home.app);
    // Only the insert of the second one finds out: the first is written by then.
    let taken = submit(&mut tx, node, vec![of_kind(1, "new"), of_kind(9, "other")]).await;
    refused(taken, Code::StateConflict, "another task");
    let bad = NewTask { priority: 99, ..task(2) };
    refused(submit(&mut tx, node, vec![task(1), bad]).await, Code::InvalidFields, "priority");
    insert_order(&tx, 1);
    assert_eq!(submit(&mut tx, node, vec![task(3)]).await.expect("answers"), [queued(3)]);
    tx.commit().expect("a commit");
    assert_eq!((home.orders(), home.tasks().await), (vec![1], 2));
    assert_eq!(home.positions().await.len(), before.len() + 1);
}

#[tokio::test]
async fn children_and_schedules_are_not_for_callers() {
    let mut home = Home::new().await;
    let node = home.node;
    home.by_store(vec![task(1)]).await.expect("a parent");
    let child_of = Some(ChildOf { parent: id(1), key: "0".to_owned() });
    let child = home.order(1, vec![NewTask { child_of, ..task(2) }]).await;
    refused(child, Code::Unsupported, "from a step of their parent");
    let fires = Fire { schedule: "s".to_owned(), expected: None, next_at: None, last_at: None };
    let mut tx = begin(&mut home.app);
    let batch = Submit { tasks: vec![task(2)], fires: Some(fires) };
    refused(submit(&mut tx, node, batch).await, Code::Unsupported, "schedule");
}

#[tokio::test]
async fn another_database_is_refused() {
    let home = Home::new().await;
    // Nodes are known by the instant and the slot they joined with.
    let other = Home::joined(NOW.plus(Duration::from_millis(1))).await;
    let folder = tempfile::tempdir().expect("a folder");
    let plain = connect(&folder.path().join("plain.db"));
    let similar = connect(&folder.path().join("similar.db"));
    similar
        .execute_batch("CREATE TABLE windlass_meta (key, value); CREATE TABLE windlass_node (id)")
        .expect("tables");
    // Its own tables in front, the engine's file only attached: the two could
    // not be committed together.
    let attached = connect(&folder.path().join("attached.db"));
    attached.execute("ATTACH ?1 AS home", [home.path.to_str()]).expect("attached");
    let third = Home::joined(NOW.plus(Duration::from_millis(2))).await;
    let both = connect(&third.path);
    both.execute("ATTACH ?1 AS home", [home.path.to_str()]).expect("attached");
    for (mut conn, word) in [
        (connect(&other.path), "does not know"),
        (plain, "no tables"),
        (similar, "no tables"),
        (attached, "no tables"),
        (both, "does not know"),
    ] {
        conn.execute_batch("CREATE TABLE main.mine (id)").expect("a table");
        let mut tx = begin(&mut conn);
        tx.execute("INSERT INTO mine VALUES (1)", []).expect("a row");
        let error =
            refused(submit(&mut tx, home.node, vec![task(1)]).await, Code::InvalidFields, word);
        assert!(error.message().contains("another database than the engine's"), "{error}");
        tx.commit().expect("its own row is committed");
        let rows: i64 =
            conn.query_row("SELECT count(*) FROM mine", [], |r| r.get(0)).expect("rows");
        assert_eq!(rows, 1);
    }
    assert_eq!((home.tasks().await, other.tasks().await), (0, 0));
}

#[tokio::test]
async fn an_ended_transaction_is_refused() {
    let mut home = Home::new().await;
    let node = home.node;
    let mut tx = begin(&mut home.app);
    tx.execute_batch("COMMIT").expect("ended behind its back");
    refused(submit(&mut tx, node, vec![task(1)]).await, Code::InvalidFields, "has ended");
    drop(tx);
    assert_eq!(home.tasks().await, 0);
}

#[tokio::test]
async fn the_feed_has_neither_gaps_nor_repeats() {
    let mut home = Home::new().await;
    let node = home.node;
    for round in 0..10 {
        home.by_store(vec![task(round * 10), task(round * 10 + 1)]).await.expect("written");
        home.order(round, vec![task(round * 10 + 2)]).await.expect("written");
        let mut tx = begin(&mut home.app);
        submit(&mut tx, node, vec![task(round * 10 + 3)]).await.expect("written");
        submit(&mut tx, node, vec![task(round * 10 + 4)]).await.expect("written");
        if round % 2 == 0 {
            tx.commit().expect("a commit");
        }
    }
    let tasks = 10 * 3 + 5 * 2;
    assert_eq!(home.tasks().await, tasks);
    // One event for each task, one for the node that joined.
    let expected: Vec<i64> = (1..=i64::try_from(tasks).expect("small") + 1).collect();
    assert_eq!(home.positions().await, expected);
    assert_eq!(home.store.stats().await.expect("stats").newest_event.0, expected.len() as i64);
}

/// A rolled back transaction gives its lane numbers back: who remembered them
/// would put tasks under wrong names.
#[tokio::test]
async fn kinds_made_by_a_rolled_back_transaction_are_made_again() {
    let mut home = Home::new().await;
    let node = home.node;
    let mut tx = begin(&mut home.app);
    submit(&mut tx, node, vec![of_kind(1, "a"), of_kind(2, "b")]).await.expect("written");
    tx.rollback().expect("a rollback");
    home.by_store(vec![of_kind(3, "b"), of_kind(4, "a")]).await.expect("written");
    let only = Kinds::Only(vec![(kind("a"), 9)]);
    assert_eq!(home.claim(only).await, [(id(4), kind("a"))]);
    assert_eq!(home.claim(Kinds::Any).await, [(id(3), kind("b"))]);
}

#[tokio::test]
async fn kinds_made_by_a_committed_transaction_are_known_to_the_store() {
    let mut home = Home::new().await;
    let only = Kinds::Only(vec![(kind("new"), 9)]);
    assert!(home.claim(only.clone()).await.is_empty(), "the store has looked and found none");
    home.order(1, vec![of_kind(1, "new")]).await.expect("written");
    home.by_store(vec![of_kind(2, "new"), of_kind(3, "newer")]).await.expect("written");
    home.order(2, vec![of_kind(4, "newer")]).await.expect("written");
    let claimed = home.claim(only).await;
    assert_eq!(claimed, [(id(1), kind("new")), (id(2), kind("new"))]);
    let newer = home.claim(Kinds::Any).await;
    assert_eq!(newer, [(id(3), kind("newer")), (id(4), kind("newer"))]);
    let read = home.store.task(id(4)).await.expect("a read").expect("a task");
    assert_eq!(read.kind, kind("newer"));
}

#[tokio::test]
async fn counts_include_both_ways() {
    let mut home = Home::new().await;
    let rule = OutboxRule { dead_letters: false, events: true };
    home.store.put(Setting::Outbox(rule), Actor::engine(), Now::At(NOW)).await.expect("a rule");
    let empty_plan = |key| {
        let mut new = task(key);
        new.extras_mut().steps = Some(vec![]);
        new
    };
    home.by_store(vec![empty_plan(1)]).await.expect("written");
    home.order(1, vec![empty_plan(2)]).await.expect("written");
    home.by_store(vec![empty_plan(3)]).await.expect("written");
    let stats = home.store.stats().await.expect("stats");
    assert_eq!(stats.states.get(&State::Completed), Some(&3));
    let take = OutboxOp::Take { node: home.node, hold: DAY, max: 100 };
    let rows = home.store.outbox(take, Now::At(NOW)).await.expect("rows");
    let told = |key| rows.iter().filter(|row| row.task == Some(id(key))).count();
    assert_eq!((told(1), told(2), told(3)), (2, 2, 2), "submitted and completed");
}

#[tokio::test]
async fn a_full_queue_is_full_for_callers_too() {
    let mut home = Home::new().await;
    let change =
        Change::Queue { name: QueueName::default(), change: QueueChange::DepthMax(Some(3)) };
    home.store.change(change, Actor::engine(), Now::At(NOW)).await.expect("a limit");
    home.by_store(vec![task(1)]).await.expect("written");
    home.order(1, vec![task(2), task(3)]).await.expect("written");
    refused(home.order(2, vec![task(4)]).await, Code::QueueFull, "holds 3 of at most 3");
    assert_eq!(home.orders(), [1, 2]);
    // The store counts again after a second at the latest.
    let later = Now::At(NOW.plus(Duration::from_secs(2)));
    let full = home.store.submit(vec![task(5)].into(), later).await;
    refused(full, Code::QueueFull, "holds 3 of at most 3");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_writer_waits_for_a_callers_transaction() {
    let mut home = Home::new().await;
    let node = home.node;
    let mut tx = begin(&mut home.app);
    submit(&mut tx, node, vec![task(1)]).await.expect("written");
    let mut call = pin!(home.store.submit(vec![task(2)].into(), Now::At(NOW)));
    let waits = tokio::time::timeout(Duration::from_millis(300), &mut call).await;
    assert!(waits.is_err(), "it must wait for the caller, but answered {waits:?}");
    tx.commit().expect("a commit");
    assert_eq!(call.await.expect("written after the wait"), [queued(2)]);
    assert_eq!(home.positions().await, [1, 2, 3]);
}

/// One thread with transactions of its own, and the store's callers, as fast as
/// they can: everybody gets through.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_writer_and_a_caller_take_turns() {
    const EACH: i64 = 500;
    let home = Home::new().await;
    let (path, node) = (home.path.clone(), home.node);
    let caller = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let mut conn = connect(&path);
        for n in 0..EACH {
            let mut tx = begin(&mut conn);
            let tasks = vec![of_kind(1000 + n, &format!("kind-{}", n % 7))];
            runtime.block_on(submit(&mut tx, node, tasks)).expect("written");
            tx.commit().expect("a commit");
        }
    });
    for n in 0..EACH {
        let tasks = vec![of_kind(9000 + n, &format!("kind-{}", n % 11))];
        home.by_store(tasks).await.expect("written");
    }
    caller.join().expect("a caller");
    assert_eq!(home.tasks().await, 2 * EACH as u64);
    let mut positions = vec![];
    while let Some(more) = home.positions_after(positions.last().copied()).await {
        positions.extend(more);
    }
    assert_eq!(positions, (1..=2 * EACH + 1).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_stale_deferred_transaction_gets_a_clear_error() {
    let mut home = Home::new().await;
    let mut tx = home.app.transaction().expect("a deferred transaction");
    let orders = "SELECT count(*) FROM app_order";
    tx.query_row(orders, [], |r| r.get::<_, i64>(0)).expect("a read");
    home.store.submit(vec![task(1)].into(), Now::At(NOW)).await.expect("another one wrote");
    let error = submit(&mut tx, home.node, vec![task(2)]).await;
    let error = refused(error, Code::StoreUnavailable, "has written since this one first read");
    assert!(error.message().contains("TransactionBehavior::Immediate"), "{error}");
    assert!(error.message().contains("home.db"), "{error}");
    let read: i64 = tx.query_row(orders, [], |r| r.get(0)).expect("it still reads");
    assert_eq!(read, 0);
    drop(tx);
    home.order(1, vec![task(2)]).await.expect("begun again");
    assert_eq!(home.tasks().await, 2);
}

#[tokio::test]
async fn a_busy_database_is_named() {
    let mut home = Home::new().await;
    home.app.busy_timeout(Duration::ZERO).expect("a setting");
    let mut tx = home.app.transaction().expect("a deferred transaction");
    let mut other = connect(&home.path);
    let writing = begin(&mut other);
    let error = submit(&mut tx, home.node, vec![task(1)]).await;
    let error = refused(error, Code::StoreUnavailable, "is busy");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.message().contains("home.db"), "{error}");
    drop(writing);
    submit(&mut tx, home.node, vec![task(1)]).await.expect("it had read nothing, so it may");
    tx.commit().expect("a commit");
    assert_eq!(home.tasks().await, 1);
}

/// A connection inside a transaction, for the busy handler to end.
static WRITING: Mutex<Option<Connection>> = Mutex::new(None);

#[tokio::test]
async fn a_deferred_transaction_that_has_read_nothing_waits_its_turn() {
    let mut home = Home::new().await;
    let other = connect(&home.path);
    other.execute_batch("BEGIN IMMEDIATE; INSERT INTO app_order VALUES (1)").expect("a writer");
    *WRITING.lock() = Some(other);
    let end_it = |_| match WRITING.lock().take() {
        Some(other) => other.execute_batch("COMMIT").is_ok(),
        None => false,
    };
    home.app.busy_handler(Some(end_it)).expect("a handler");
    let mut tx = home.app.transaction().expect("a deferred transaction");
    submit(&mut tx, home.node, vec![task(1)]).await.expect("written after the wait");
    insert_order(&tx, 2);
    tx.commit().expect("a commit");
    assert!(WRITING.lock().is_none(), "the handler was asked");
    assert_eq!((home.orders(), home.tasks().await), (vec![1, 2], 1));
}
