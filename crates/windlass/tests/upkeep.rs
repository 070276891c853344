//! The periodic jobs, seen through a running engine: retention deletes what is
//! old and nothing else, keys are forgotten, dead nodes are announced. When a
//! job runs is the engine's part; what it does to rows is the store's suite's.

#![allow(clippy::expect_used, clippy::panic)] // a test fails by panicking

mod bench_of_engines;

use bench_of_engines::{Ground, LEASE, eventually, job, on_both_stores, secs};
use windlass::{Answer, EventName, Position, State};

on_both_stores!(
    ended_tasks_are_purged_after_their_time,
    an_idempotency_key_is_forgotten_after_its_time,
    a_dead_node_is_announced,
);

const DAY: u64 = 24 * 3600;

/// Longer than a lease, so the node joins again; its periodic work goes on.
async fn days(ground: &Ground, engine: &windlass::Engine, days: u64) {
    let joined = engine.status().rejoined;
    ground.clock.advance(secs(days * DAY));
    eventually("it joins again", || engine.status().rejoined > joined).await;
    ground.pass(secs(1), &[engine]).await;
}

async fn ended_tasks_are_purged_after_their_time(ground: Ground) {
    let engine = ground.engine().await;
    let done = engine.submit(job("done")).await.expect("written");
    done.result().await.expect("a name");
    let waits = engine.submit(job("waits")).delay(secs(30 * DAY)).await.expect("written");
    days(&ground, &engine, 6).await;
    assert_eq!(ground.task(&done).await.state(), State::Completed, "not yet");
    days(&ground, &engine, 2).await;
    loop {
        ground.pass(secs(1), &[&engine]).await;
        if ground.store.task(done.id()).await.expect("a read").is_none() {
            break;
        }
    }
    assert_eq!(ground.task(&waits).await.state(), State::Scheduled, "not ended, not purged");
}

async fn an_idempotency_key_is_forgotten_after_its_time(ground: Ground) {
    let engine = ground.engine().await;
    let submit = async || engine.submit(job("once")).idempotency_key("k").await.expect("written");
    let first = submit().await;
    assert_eq!((submit().await.answer(), first.answer()), (Answer::Replayed, Answer::New));
    first.result().await.expect("a name");
    days(&ground, &engine, 2).await;
    let later = submit().await;
    assert_eq!(later.answer(), Answer::New);
    assert_ne!(later.id(), first.id());
}

async fn a_dead_node_is_announced(ground: Ground) {
    let stays = ground.engine().await;
    let goes = ground.engine().await;
    let dead = goes.status().node.to_string();
    let mut events = stays.events(Position::START);
    drop(goes);
    ground.pass(LEASE + secs(15), &[&stays]).await;
    loop {
        let event = events.next().await.expect("running").expect("a read");
        if event.name == EventName::NodeLost {
            let data = event.data.to_json();
            assert!(data.as_str().contains(&dead), "{data:?} does not name {dead}");
            return;
        }
    }
}
