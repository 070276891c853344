//! What only a file can promise: one owner, settings that hold, migrations that
//! survive their own death, and a claim that stays honest over a hundred
//! thousand tasks.
#![allow(clippy::expect_used, clippy::panic)] // a test tells by panicking

mod shared;

use shared::Sqlite;
use std::collections::HashSet;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use windlass_backends::CallerTx;
use windlass_backends::open::open_store;
use windlass_backends::store::sqlite::{
    SqliteOptions, SqliteStore, Synchronous, migration_statements,
};
use windlass_core::ErrorKind;
use windlass_core::clock::{Now, Timestamp};
use windlass_core::id::{IdMint, NodeId, TaskId};
use windlass_core::json::Json;
use windlass_core::lease::{ClaimNo, PoisonRule};
use windlass_core::state::State;
use windlass_core::store::{Claim, Kinds, Lane, Migrated, NewNode, Reader, Store, Wanted};
use windlass_core::task::{Kind, NewTask, QueueName};

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

/// The number of the newest schema.
const SCHEMA: u32 = 4;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

#[test]
fn a_second_owner_is_refused_and_told_why() {
    let dir = folder();
    let options = Sqlite::default().options(dir.path());
    let first = SqliteStore::open(options.clone()).expect("the first owner");
    let error = SqliteStore::open(options.clone()).expect_err("a second owner");
    assert_eq!(error.kind(), ErrorKind::Conflict);
    let pid = std::process::id().to_string();
    assert!(error.message().contains(&format!("process {pid}")), "{error}");
    drop(first);
    SqliteStore::open(options).expect("the file is free again");
}

#[test]
fn another_name_of_the_file_is_the_same_file() {
    let dir = folder();
    let (real, link) = (dir.path().join("real.db"), dir.path().join("link.db"));
    let owner = SqliteStore::open(SqliteOptions::at(&real)).expect("an owner");
    std::os::unix::fs::symlink(&real, &link).expect("a link");
    let error = SqliteStore::open(SqliteOptions::at(&link)).expect_err("the same file");
    assert_eq!(error.kind(), ErrorKind::Conflict);
    drop(owner);
    SqliteStore::open(SqliteOptions::at(&link)).expect("free again");
}

/// Opens the file named by the environment and reports the error; run as a
/// process of its own by the test below.
#[test]
fn child_that_opens() {
    let Ok(path) = std::env::var("WINDLASS_TEST_OPEN") else { return };
    let mut options = SqliteOptions::at(path);
    if let Ok(statement) = std::env::var("WINDLASS_TEST_DIE_AT") {
        options = options.dying_at(statement.parse().expect("a number"));
    }
    match SqliteStore::open(options) {
        Ok(_) => std::process::exit(0),
        Err(error) if error.kind() == ErrorKind::Conflict => std::process::exit(42),
        Err(_) => std::process::exit(1),
    }
}

fn open_in_child(path: &Path, die_at: Option<usize>) -> std::process::ExitStatus {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "child_that_opens"]).env("WINDLASS_TEST_OPEN", path);
    if let Some(statement) = die_at {
        command.env("WINDLASS_TEST_DIE_AT", statement.to_string());
    }
    command.output().expect("a child process").status
}

#[test]
fn another_process_is_refused_while_the_owner_lives() {
    let dir = folder();
    let path = dir.path().join("owned.db");
    let owner = SqliteStore::open(SqliteOptions::at(&path)).expect("an owner");
    assert_eq!(open_in_child(&path, None).code(), Some(42));
    drop(owner);
    assert_eq!(open_in_child(&path, None).code(), Some(0));
}

#[test]
fn a_migration_that_dies_at_any_statement_is_completed_by_the_next_start() {
    let whole = folder();
    let expected = schema(&whole.path().join("whole.db"));
    // One for each table and index, one for each change of what was made before;
    // and in each migration one for the schema's number, one for the commit.
    let made = expected.iter().filter(|made| made.contains("CREATE") && made.contains("windlass_"));
    let (changes, migrations) = (4, 4);
    assert_eq!(migration_statements(), made.count() + changes + 2 * migrations);
    for statement in 0..migration_statements() {
        let dir = folder();
        let path = dir.path().join("torn.db");
        let status = open_in_child(&path, Some(statement));
        assert_eq!(status.code(), None, "the process must die at statement {statement}");
        assert_eq!(schema(&path), expected, "after dying at statement {statement}");
    }
    let dir = folder();
    let beyond = open_in_child(&dir.path().join("x.db"), Some(migration_statements()));
    assert_eq!(beyond.code(), Some(0), "beyond the last statement nothing dies");
}

/// The schema of a file after it was opened by this process.
fn schema(path: &Path) -> Vec<String> {
    drop(SqliteStore::open(SqliteOptions::at(path)).expect("a store"));
    let conn = rusqlite::Connection::open(path).expect("a file");
    let mut statement =
        conn.prepare("SELECT type || name || sql FROM sqlite_schema ORDER BY 1").expect("a schema");
    let rows = statement.query_map([], |r| r.get(0)).expect("rows");
    let mut found: Vec<String> = rows.flatten().collect();
    let text = "SELECT value FROM windlass_meta WHERE key = 'schema'";
    let number: i64 = conn.query_row(text, [], |r| r.get(0)).expect("a number");
    found.push(format!("schema {number}"));
    found
}

#[tokio::test]
async fn a_file_of_the_first_schema_keeps_its_rows() {
    let dir = folder();
    let path = dir.path().join("older.db");
    let conn = rusqlite::Connection::open(&path).expect("a file");
    conn.execute_batch(include_str!("../src/store/sqlite/migrations/0001_ledger.sql"))
        .expect("the first schema");
    // A failed task with its dead letter and a step, a paused task, a paused queue.
    conn.execute_batch(
        r#"INSERT INTO windlass_meta VALUES ('schema', 1);
           INSERT INTO windlass_lane VALUES (3, 'mail', 'send'), (4, 'media', 'scan');
           INSERT INTO windlass_task (id, lane, state, priority, created_at, due_at, updated_at,
             started_at, finished_at, node, run, attempt, retries, crashes, token, version,
             event_n, has_children, settled, payload, failure)
           VALUES
             (10, 4, 18, 0, 1, 1, 5, 2, 5, 7, 1, 1, 0, 0, 1, 1, 4, 0, 0, '{}',
              '{"reason":"fatal","class":"fatal","message":"no such file"}'),
             (11, 3, 7, 0, 1, 1, 1, NULL, NULL, NULL, 1, 0, 0, 0, 0, 0, 2, 0, 0, '{}', NULL);
           INSERT INTO windlass_dead_letter VALUES (10);
           INSERT INTO windlass_step (task, version, live, outcome, run, attempt, node, at,
             duration, name) VALUES (10, 1, 1, 0, 1, 1, 7, 3, 9, 'fetch');
           INSERT INTO windlass_queue VALUES ('mail', 1, 2, NULL);"#,
    )
    .expect("rows");
    drop(conn);
    let store = SqliteStore::open(SqliteOptions::at(&path)).expect("a store");
    assert_eq!(store.migrated(), Migrated { from: 1, to: SCHEMA });
    let queues = store.queues().await.expect("queues");
    let told: Vec<_> = queues
        .iter()
        .map(|q| (q.name.as_str(), q.paused, q.draining, q.concurrency, q.dead_letters))
        .collect();
    assert_eq!(told, [("mail", true, false, Some(2), 0), ("media", false, false, None, 1)]);
    assert_eq!(queues[0].count(State::Paused), 1);
    let attempts = store.attempts(TaskId::from_key(10)).await.expect("attempts");
    assert_eq!(attempts[0].steps[0].record.name, "fetch");
    assert_eq!(attempts[0].steps[0].record.log, None);
}

/// Opens a file that must be refused and stay byte for byte as it is.
fn refused_untouched(path: &Path, kind: ErrorKind, word: &str) {
    let before = std::fs::read(path).expect("a file");
    let error = SqliteStore::open(SqliteOptions::at(path)).expect_err(word);
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.message().contains(word), "{error}");
    assert_eq!(std::fs::read(path).expect("a file"), before, "it was touched");
}

#[test]
fn what_is_no_database_is_left_alone() {
    let dir = folder();
    for (name, size) in [("short.txt", 1), ("long.txt", 10_000)] {
        let path = dir.path().join(name);
        std::fs::write(&path, "some text\n".repeat(size)).expect("a file");
        refused_untouched(&path, ErrorKind::Conflict, "is not a SQLite database");
    }
}

#[test]
fn a_file_of_the_future_is_left_alone() {
    let dir = folder();
    let path = dir.path().join("newer.db");
    drop(SqliteStore::open(SqliteOptions::at(&path)).expect("a store"));
    let conn = rusqlite::Connection::open(&path).expect("a file");
    let text = "UPDATE windlass_meta SET value = 999 WHERE key = 'schema'";
    assert_eq!(conn.execute(text, []).expect("a row"), 1);
    drop(conn);
    refused_untouched(&path, ErrorKind::Unsupported, "has schema 999");
}

#[test]
fn a_file_in_which_our_names_are_taken_is_left_alone() {
    let dir = folder();
    for (i, (theirs, name)) in [
        ("CREATE TABLE windlass_meta (x)", "windlass_meta"),
        ("CREATE TABLE Windlass_Meta (key, value)", "windlass_meta"),
        (
            "CREATE TABLE windlass_meta (key, value); INSERT INTO windlass_meta VALUES ('schema', 'x')",
            "windlass_meta",
        ),
        ("CREATE VIEW windlass_queue AS SELECT 1 AS name", "windlass_queue"),
        ("CREATE TABLE t (x); CREATE INDEX windlass_task_state ON t (x)", "windlass_task_state"),
    ]
    .into_iter()
    .enumerate()
    {
        let path = dir.path().join(format!("{i}.db"));
        let conn = rusqlite::Connection::open(&path).expect("a file");
        conn.execute_batch(theirs).expect(theirs);
        drop(conn);
        refused_untouched(&path, ErrorKind::Conflict, &format!("`{name}`"));
    }
}

/// An application's database, with names and marks as applications have them.
fn application(path: &Path) -> rusqlite::Connection {
    let conn = rusqlite::Connection::open(path).expect("a file");
    conn.execute_batch(
        "PRAGMA user_version = 7;
         PRAGMA application_id = 99;
         CREATE TABLE task (id INTEGER PRIMARY KEY AUTOINCREMENT, title TEXT);
         CREATE TABLE node (name TEXT PRIMARY KEY);
         CREATE TABLE queue (x);
         CREATE TABLE event (at TEXT, task REFERENCES task);
         CREATE TABLE meta (version);
         CREATE INDEX task_state ON task (title);
         INSERT INTO task (title) VALUES ('one'), ('two');
         INSERT INTO node VALUES ('theirs');
         INSERT INTO queue VALUES (1);
         INSERT INTO event VALUES ('now', 1);
         INSERT INTO meta VALUES (3);",
    )
    .expect("the application's schema");
    conn
}

fn pragma(conn: &rusqlite::Connection, name: &str) -> String {
    conn.query_row(&format!("SELECT CAST({name} AS TEXT) FROM pragma_{name}"), [], |r| r.get(0))
        .expect(name)
}

/// Everything in the file that is not Windlass's, as text.
fn theirs(conn: &rusqlite::Connection) -> Vec<String> {
    let mut found = vec![];
    for text in [
        "SELECT type || name || sql FROM sqlite_schema
         WHERE name NOT LIKE 'windlass%' AND name NOT LIKE 'sqlite%' ORDER BY 1",
        "SELECT id || title FROM task ORDER BY id",
        "SELECT name FROM node",
        "SELECT x || '' FROM queue",
        "SELECT at || task FROM event",
        "SELECT version || '' FROM meta",
    ] {
        let mut statement = conn.prepare(text).expect(text);
        let rows = statement.query_map([], |r| r.get::<_, String>(0)).expect(text);
        found.extend(rows.map(|row| row.expect(text)));
    }
    found
}

#[tokio::test]
async fn an_applications_database_gets_our_tables_and_keeps_everything_else() {
    let dir = folder();
    let path = dir.path().join("app.db");
    let mut app = application(&path);
    assert_eq!(pragma(&app, "journal_mode"), "delete");
    let before = theirs(&app);
    assert_eq!(before.len(), 6 + 6);
    let new = |key| {
        let kind = Kind::new("k").expect("a name");
        NewTask::new(TaskId::from_key(key), kind, Json::default())
    };
    // Each start finds another version: tools that migrate the application's
    // tables keep it there.
    for (start, version) in [(0, "7"), (1, "8"), (2, "0")] {
        let store = SqliteStore::open(SqliteOptions::at(&path)).expect("a store");
        let from = if start > 0 { SCHEMA } else { 0 };
        assert_eq!(store.migrated(), Migrated { from, to: SCHEMA });
        let node = join(&store, "engine").await;
        store.submit(vec![new(10 * start)].into(), Now::At(NOW)).await.expect("written");
        // The connection is older than our tables and the log.
        let tx = app.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate);
        let mut tx = tx.expect("a transaction");
        let batch = vec![new(10 * start + 1)].into();
        CallerTx::submit(&mut tx, node, batch, Now::At(NOW)).await.expect("written");
        tx.commit().expect("a commit");
        let store = Arc::new(store);
        assert_eq!(claim_all(store.clone(), node, 10).await.len(), 2);
        assert_eq!(pragma(&app, "journal_mode"), "wal");
        assert_eq!(pragma(&app, "user_version"), version);
        assert_eq!(pragma(&app, "application_id"), "99");
        assert_eq!(theirs(&app), before);
        let stats = store.stats().await.expect("stats");
        assert_eq!(stats.states.values().sum::<u64>(), 2 * (start.unsigned_abs() + 1));
        let next = if start == 0 { 8 } else { 0 };
        app.pragma_update(None, "user_version", next).expect("a migration of theirs");
    }
    app.execute("INSERT INTO task (title) VALUES ('three')", []).expect("a row");
    assert_eq!(app.last_insert_rowid(), 3, "their numbering goes on");
}

#[test]
fn the_durable_profile_is_the_default_and_the_faster_one_is_shown() {
    let dir = folder();
    let open = |query: &str| {
        let url = format!("sqlite://{}{query}", dir.path().join("p.db").display());
        SqliteStore::open(SqliteOptions::parse(&url).expect("a URL"))
            .expect("a store")
            .synchronous()
    };
    assert_eq!(open(""), Synchronous::Full);
    assert_eq!(open("?synchronous=normal"), Synchronous::Normal);
}

/// While another program writes, waiting callers hear of it together, and one
/// bad command of a group does not harm the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_with_a_bad_command_harms_nobody_else() {
    let dir = folder();
    let store =
        Arc::new(SqliteStore::open(Sqlite::default().options(dir.path())).expect("a store"));
    let task = |key: i64, payload: &str| {
        let kind = Kind::new("k").expect("a name");
        NewTask::new(TaskId::from_key(key), kind, Json::trusted(payload))
    };
    store.submit(vec![task(1, "{}")].into(), Now::At(NOW)).await.expect("written");
    // The ids of each batch do not exist but for the second one of the bad batch,
    // which only its insert finds out: the whole group is then rolled back.
    let mut calls = vec![];
    for i in 0..200_i64 {
        let store = store.clone();
        let second = if i == 100 { 1 } else { 1000 + 2 * i + 1 };
        let batch = vec![task(1000 + 2 * i, "{}"), task(second, "[]")];
        calls.push(tokio::spawn(async move { store.submit(batch.into(), Now::At(NOW)).await }));
    }
    let mut refused = 0;
    for call in calls {
        match call.await.expect("a caller") {
            Ok(answers) => assert_eq!(answers.len(), 2),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
                refused += 1;
            }
        }
    }
    assert_eq!(refused, 1);
    let stats = store.stats().await.expect("stats");
    assert_eq!(stats.states.values().sum::<u64>(), 1 + 199 * 2);
    assert!(store.task(TaskId::from_key(1200)).await.expect("a read").is_none());
}

#[tokio::test]
async fn urls_open_stores_and_bad_ones_say_what_to_do() {
    let dir = folder();
    let url = format!("sqlite://{}", dir.path().join("u.db").display());
    assert_eq!(open_store(&url).await.expect("a store").capabilities().name, "sqlite");
    assert_eq!(open_store("memory:").await.expect("a store").capabilities().name, "memory");
    for (url, word) in [
        ("redis://x", "names no store"),
        ("windlass.db", "names no store"),
        ("postgres://x", "not in this build"),
        ("sqlite://", "names no file"),
        ("sqlite:///no/such/folder/x.db", "does not exist; create it"),
    ] {
        let error = open_store(url).await.expect_err(url);
        assert!(error.message().contains(word), "{error}");
    }
}

async fn join(store: &dyn Store, name: &str) -> NodeId {
    let node = NewNode {
        name: name.to_owned(),
        remote: false,
        queues: vec![],
        version: String::new(),
        lease: Duration::from_secs(600),
        sole: false,
        instead_of: None,
    };
    store.join(node, Now::At(NOW)).await.expect("a node").node
}

/// Claims until nothing is left, as one engine would.
async fn claim_all(store: Arc<SqliteStore>, node: NodeId, max: usize) -> Vec<TaskId> {
    let mut taken = vec![];
    for number in 1.. {
        let claim = Claim {
            node,
            number: ClaimNo(number),
            wanted: Wanted::Ready,
            lanes: vec![Lane { queue: QueueName::default(), max, kinds: Kinds::Any }],
            max,
            poison: PoisonRule::default(),
            begins: true,
        };
        let claimed = store.claim(claim, Now::At(NOW)).await.expect("leases");
        if claimed.is_empty() {
            break;
        }
        taken.extend(claimed.iter().map(|c| c.task.id));
    }
    taken
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_tasks_are_leased_once_each() {
    const TASKS: usize = 100_000;
    let dir = folder();
    let store =
        Arc::new(SqliteStore::open(Sqlite::default().options(dir.path())).expect("a store"));
    let mut mint = IdMint::new(0);
    let kind = Kind::new("k").expect("a name");
    for _ in 0..TASKS / 10_000 {
        let tasks: Vec<NewTask> = (0..10_000)
            .map(|_| NewTask::new(mint.task(NOW), kind.clone(), Json::default()))
            .collect();
        store.submit(tasks.into(), Now::At(NOW)).await.expect("written");
    }
    // Two engines' worth: each with several claims under way at once.
    let mut claimers = vec![];
    for engine in 0..2 {
        let node = join(&*store, &format!("engine {engine}")).await;
        for max in [1000, 333, 100, 7] {
            claimers.push(tokio::spawn(claim_all(store.clone(), node, max)));
        }
    }
    let mut seen = HashSet::new();
    let mut busy = 0;
    for claimer in claimers {
        let taken = claimer.await.expect("a claimer");
        busy += usize::from(!taken.is_empty());
        for id in taken {
            assert!(seen.insert(id), "{id} was leased twice");
        }
    }
    assert_eq!(seen.len(), TASKS);
    assert!(busy > 1, "the claims did not compete");
    assert_eq!(store.stats().await.expect("stats").states.values().sum::<u64>(), TASKS as u64);
}
