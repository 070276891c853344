//! The ceiling: what rusqlite can do with the same tables, the same settings
//! and the same batches when there is no contract to keep: no events, no keys,
//! no checks beyond the lease's token.

use crate::measure::{Phases, payload, timed};
use rusqlite::{Connection, TransactionBehavior, params};
use std::path::Path;
use tokio::sync::{mpsc, oneshot};

const SCHEMA: &str = "
    CREATE TABLE task (id INTEGER PRIMARY KEY, lane INTEGER NOT NULL, state INTEGER NOT NULL,
      priority INTEGER NOT NULL, created_at INTEGER NOT NULL, finished_at INTEGER, payload TEXT NOT NULL);
    CREATE TABLE ready (lane INTEGER, rank INTEGER, id INTEGER, PRIMARY KEY (lane, rank, id)) WITHOUT ROWID;
    CREATE TABLE lease (task INTEGER PRIMARY KEY, node INTEGER NOT NULL, token INTEGER NOT NULL);";

fn open(path: &Path) -> Connection {
    let conn = Connection::open(path).expect("a file");
    conn.pragma_update(None, "journal_mode", "wal").expect("wal");
    conn.pragma_update(None, "synchronous", 2).expect("full");
    conn.pragma_update(None, "cache_size", -64 * 1024).expect("a cache");
    conn.pragma_update(None, "wal_autocheckpoint", 4000).expect("a setting");
    conn.execute_batch(SCHEMA).expect("a schema");
    conn
}

fn in_transaction(conn: &mut Connection, f: impl FnOnce(&Connection)) {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).expect("a transaction");
    f(&tx);
    tx.commit().expect("a commit");
}

fn insert(conn: &Connection, ids: std::ops::Range<i64>, payload: &str) {
    let mut task = conn
        .prepare_cached("INSERT INTO task (id, lane, state, priority, created_at, payload) VALUES (?1, 1, 1, 0, ?2, ?3)")
        .expect("a statement");
    let mut ready = conn
        .prepare_cached("INSERT INTO ready (lane, rank, id) VALUES (1, 0, ?1)")
        .expect("a statement");
    for id in ids {
        task.execute(params![id, 1_800_000_000_000_000_i64, payload]).expect("a row");
        ready.execute([id]).expect("a row");
    }
}

fn claim(conn: &Connection, max: usize) -> Vec<(i64, String)> {
    let mut heads = conn
        .prepare_cached("SELECT id FROM ready WHERE lane = 1 ORDER BY rank, id LIMIT ?1")
        .expect("a statement");
    let ids: Vec<i64> = heads
        .query_map([max as i64], |r| r.get(0))
        .expect("rows")
        .collect::<Result<_, _>>()
        .expect("rows");
    let mut task =
        conn.prepare_cached("SELECT payload FROM task WHERE id = ?1").expect("a statement");
    let mut lease = conn
        .prepare_cached("INSERT INTO lease (task, node, token) VALUES (?1, 7, 1)")
        .expect("a statement");
    let mut leave = conn
        .prepare_cached("DELETE FROM ready WHERE lane = 1 AND rank = 0 AND id = ?1")
        .expect("a statement");
    ids.into_iter()
        .map(|id| {
            let payload = task.query_row([id], |r| r.get(0)).expect("a row");
            lease.execute([id]).expect("a row");
            leave.execute([id]).expect("a row");
            (id, payload)
        })
        .collect()
}

fn record(conn: &Connection, claimed: &[(i64, String)]) {
    let mut lease = conn
        .prepare_cached("DELETE FROM lease WHERE task = ?1 AND token = 1")
        .expect("a statement");
    let mut end = conn
        .prepare_cached("UPDATE task SET state = 16, finished_at = ?2 WHERE id = ?1")
        .expect("a statement");
    for (id, _) in claimed {
        lease.execute([id]).expect("a row");
        end.execute(params![id, 1_800_000_000_000_001_i64]).expect("a row");
    }
}

/// Inserts all, then claims all, then ends all, in batches.
pub(crate) fn life(path: &Path, batch: usize, tasks: usize) -> Phases {
    let mut conn = open(path);
    let payload = payload();
    let first = 1_i64 << 60;
    let submit = timed(|| {
        for i in 0..(tasks / batch) as i64 {
            let from = first + i * batch as i64;
            in_transaction(&mut conn, |tx| insert(tx, from..from + batch as i64, &payload));
        }
    });
    let (mut claims, mut records) = (0.0, 0.0);
    for _ in 0..tasks / batch {
        let mut claimed = vec![];
        claims += timed(|| in_transaction(&mut conn, |tx| claimed = claim(tx, batch)));
        assert_eq!(claimed.len(), batch);
        records += timed(|| in_transaction(&mut conn, |tx| record(tx, &claimed)));
    }
    [submit, claims, records]
}

/// Many callers, one row a call, one thread that commits what is there.
pub(crate) fn single(path: &Path, callers: usize, each: usize) -> f64 {
    let mut conn = open(path);
    let (send, mut queue) = mpsc::channel::<(i64, String, oneshot::Sender<()>)>(4096);
    let writer = std::thread::spawn(move || {
        while let Some(first) = queue.blocking_recv() {
            let mut group = vec![first];
            while group.len() < 1000 {
                let Ok(next) = queue.try_recv() else { break };
                group.push(next);
            }
            in_transaction(&mut conn, |tx| {
                group.iter().for_each(|(id, payload, _)| insert(tx, *id..*id + 1, payload));
            });
            group.into_iter().for_each(|(_, _, caller)| caller.send(()).expect("a caller"));
        }
    });
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
    let seconds = timed(|| {
        runtime.block_on(async {
            let mut calls = vec![];
            for caller in 0..callers {
                let send = send.clone();
                calls.push(tokio::spawn(async move {
                    for i in 0..each {
                        let (reply, answer) = oneshot::channel();
                        let id = (1_i64 << 60) + (i * callers + caller) as i64;
                        send.send((id, payload(), reply)).await.expect("a writer");
                        answer.await.expect("written");
                    }
                }));
            }
            for call in calls {
                call.await.expect("a caller");
            }
        });
    });
    drop(send);
    writer.join().expect("a writer");
    seconds
}
