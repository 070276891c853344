//! A task and the application's own row, committed together or not at all. The
//! application writes its order with its own rusqlite connection to the engine's
//! file and submits the task in the same transaction. What is rolled back leaves
//! neither order nor task.

#![allow(clippy::print_stdout)] // an example talks to a person

use rusqlite::{Connection, TransactionBehavior};
use std::time::Duration;
use windlass::prelude::*;
use windlass_backends::store::sqlite::take_turns;

#[derive(Serialize, Deserialize)]
struct Confirm {
    order: i64,
}

impl TaskKind for Confirm {
    const NAME: &'static str = "order.confirm";
    type Output = String;

    async fn run(self, _cx: Cx) -> Result<String, TaskError> {
        Ok(format!("order {} is confirmed", self.order))
    }
}

fn orders(db: &Connection) -> rusqlite::Result<i64> {
    db.query_row("SELECT count(*) FROM app_order", [], |row| row.get(0))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("shop.db");
    let url = format!("sqlite://{}", file.display());
    let engine = Windlass::open(&url).await?.register::<Confirm>().start().await?;

    let mut db = Connection::open(&file)?;
    take_turns(&db)?; // waits for its turn like the engine does
    db.execute("CREATE TABLE app_order (id INTEGER PRIMARY KEY)", [])?;

    // Immediate: a transaction that first reads could not write any more later.
    let mut tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    tx.execute("INSERT INTO app_order (id) VALUES (1)", [])?;
    let task = engine.submit_in(&mut tx, Confirm { order: 1 }).await?;
    tx.commit()?;
    let handle = task.committed(); // without this it starts at the next poll, within a second
    println!("committed: {}", handle.result().await?);

    let mut tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    tx.execute("INSERT INTO app_order (id) VALUES (2)", [])?;
    let task = engine.submit_in(&mut tx, Confirm { order: 2 }).await?;
    let id = task.id();
    drop(task); // nothing to announce
    tx.rollback()?;
    let found = engine.task(id).await?;
    println!("rolled back: {} order, task exists: {}", orders(&db)?, found.is_some());

    engine.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}
