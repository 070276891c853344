//! Submitting inside a caller's own rusqlite transaction on the store's file:
//! the task exists if and only if the caller's rows do. The engine hears of it
//! by `committed`, or at its next poll.

#![allow(clippy::expect_used, clippy::panic)] // a test fails by panicking

mod bench_of_engines;

use bench_of_engines::{Ground, job, secs, settle, within};
use rusqlite::{Connection, Transaction, TransactionBehavior};
use std::path::Path;
use windlass::{Answer, Code, ErrorKind};
use windlass_backends::store::sqlite::take_turns;

/// The program's own connection to the store's file, with a table of its own.
fn connect(ground: &Ground) -> Connection {
    let dir = ground.dir.as_ref().expect("a store in a file");
    let conn = open(&dir.path().join("bench.db"));
    conn.execute("CREATE TABLE app_order (id INTEGER PRIMARY KEY)", []).expect("a table");
    conn
}

fn open(path: &Path) -> Connection {
    let conn = Connection::open(path).expect("a connection");
    take_turns(&conn).expect("a setting");
    conn
}

fn begin(conn: &mut Connection) -> Transaction<'_> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate);
    let tx = tx.expect("a transaction");
    tx.execute("INSERT INTO app_order DEFAULT VALUES", []).expect("an order");
    tx
}

fn orders(conn: &Connection) -> i64 {
    conn.query_row("SELECT count(*) FROM app_order", [], |row| row.get(0)).expect("a count")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn task_and_rows_are_committed_together_and_wake_at_once() {
    let ground = Ground::sqlite().await;
    within(async {
        let engine = ground.engine().await;
        let mut conn = connect(&ground);
        let mut tx = begin(&mut conn);
        let submitted = engine.submit_in(&mut tx, job("a")).label("tenant", "acme").await;
        let submitted = submitted.expect("submitted");
        assert!(engine.task(submitted.id()).await.expect("a read").is_none(), "not committed");
        tx.commit().expect("a commit");
        let handle = submitted.committed();
        // The clock stands still: nobody polls.
        assert_eq!(handle.result().await.expect("a name"), "a");
        let task = handle.task().await.expect("a task");
        assert_eq!((task.label("tenant"), orders(&conn)), (Some("acme"), 1));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn task_and_rows_are_rolled_back_together() {
    let ground = Ground::sqlite().await;
    within(async {
        let engine = ground.engine().await;
        let mut conn = connect(&ground);
        let mut tx = begin(&mut conn);
        let submitted = engine.submit_in(&mut tx, job("a")).await.expect("submitted");
        tx.rollback().expect("a rollback");
        let handle = submitted.committed();
        assert_eq!(handle.result().await.expect_err("no task").kind(), ErrorKind::NotFound);
        ground.pass(secs(2), &[&engine]).await;
        assert_eq!((ground.tasks().await, orders(&conn)), (0, 0));
        assert!(ground.floor.log().began.is_empty());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_wake_up_the_next_poll_finds_it() {
    let ground = Ground::sqlite().await;
    within(async {
        let engine = ground.engine().await;
        let mut conn = connect(&ground);
        let mut tx = begin(&mut conn);
        let id = engine.submit_in(&mut tx, job("a")).await.expect("submitted").id();
        let later = engine.submit_in(&mut tx, job("later")).delay(secs(3)).await;
        let later = later.expect("submitted").id();
        tx.commit().expect("a commit");
        settle().await;
        assert!(ground.floor.log().began.is_empty(), "nobody told the engine");
        ground.pass(secs(1), &[&engine]).await;
        engine.handle::<String>(id).result().await.expect("a name");
        ground.pass(secs(2), &[&engine]).await;
        engine.handle::<String>(later).result().await.expect("a name");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conflict_or_a_refusal_leaves_the_transaction_usable() {
    let ground = Ground::sqlite().await;
    within(async {
        let engine = ground.engine().await;
        let first = engine.submit(job("first").waiting()).unique("k").await.expect("written");
        ground.floor.until_begun("first").await;
        let mut conn = connect(&ground);
        let mut tx = begin(&mut conn);
        let found = engine.submit_in(&mut tx, job("second")).unique("k").await.expect("found");
        assert_eq!(found.id(), first.id());
        let error = engine.submit_in(&mut tx, job("bad")).priority(99).await;
        assert_eq!(error.expect_err("no priority").kind(), ErrorKind::Invalid);
        let new = engine.submit_in(&mut tx, job("third")).await.expect("submitted");
        tx.commit().expect("a commit");
        assert_eq!(found.committed().answer(), Answer::Existing);
        let new = new.committed();
        assert_eq!(new.answer(), Answer::New);
        assert_eq!(new.result().await.expect("a name"), "third");
        assert_eq!((orders(&conn), ground.tasks().await), (1, 2));
        ground.floor.open_all();
        first.result().await.expect("a name");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_of_something_else_is_refused() {
    let ground = Ground::memory().await;
    let other = Ground::sqlite().await;
    within(async {
        let dir = tempfile::tempdir().expect("a folder");
        let mut plain = open(&dir.path().join("plain.db"));
        plain.execute("CREATE TABLE app_order (id INTEGER PRIMARY KEY)", []).expect("a table");
        let mut tx = begin(&mut plain);
        let engine = ground.engine().await;
        let error = engine.submit_in(&mut tx, job("a")).await.expect_err("memory");
        assert_eq!(error.code(), Code::Unsupported);
        assert!(error.message().contains("`memory`") && error.message().contains("`sqlite`"));
        let engine = other.engine().await;
        let error = engine.submit_in(&mut tx, job("a")).await.expect_err("another file");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.message().contains("another database"), "{error}");
        tx.commit().expect("the transaction goes on");
        assert_eq!((orders(&plain), other.tasks().await), (1, 0));
        let third = Ground::sqlite().await;
        third.engine().await;
        let mut conn = connect(&third);
        let mut tx = begin(&mut conn);
        other.clock.advance(secs(1));
        let stranger = other.engine().await;
        let error = stranger.submit_in(&mut tx, job("a")).await.expect_err("another store");
        assert!(error.message().contains("another database"), "{error}");
    })
    .await;
}
