//! The schema and what outlives the process: migrating again changes nothing,
//! and a store that says it is durable gives back everything after reopening.

use super::children::family;
use crate::harness::make::{HOUR, SECOND, done_with, fails, requeue, retryable, step, steps};
use crate::harness::world::{LEASE, new_node, only};
use crate::harness::{Shape, World, refused};
use windlass_core::children::{Policy, Then};
use windlass_core::control::TaskChange;
use windlass_core::error::Code;
use windlass_core::lease::Token;
use windlass_core::state::State;
use windlass_core::store::{NewNode, OutboxOp, QueueChange, Setting, Submitted};

/// One task in each of many places.
async fn busy(w: &World) {
    let node = w.tireless("a").await;
    family(w, &node, Policy::All, Then::Resume, 2).await;
    let retried = w.running(&node).await;
    w.write(steps(&retried, vec![step("fetch", 1)])).await;
    w.settle(&retried, retryable()).await;
    w.settle(&w.running(&node).await, done_with(r#"{"made":1}"#)).await;
    w.settle(&w.running(&node).await, fails()).await;
    let running = w.running(&node).await;
    w.write(steps(&running, vec![step("fetch", 1), step("scale", 2)])).await;
    w.cancel(running.task.id).await;
    w.submit_all(vec![w.task().after(HOUR), w.task().keyed("k", 1).unique_live("u")]).await;
    w.change_queue("q", QueueChange::Pause).await;
    let value = Some(crate::harness::make::json("1"));
    w.put(Setting::Value { key: "theme".to_owned(), value }).await;
}

pub async fn migrating_again_changes_nothing(w: World) {
    busy(&w).await;
    let before = w.snapshot().await;
    let again = w.store().migrate().await.unwrap();
    assert_eq!(again.from, again.to);
    w.second().migrate().await.unwrap();
    w.unchanged_since(&before).await;
}

pub async fn everything_is_there_after_reopening(w: World) {
    busy(&w).await;
    let (before, audit) = (w.snapshot().await, w.audit().await);
    let w = w.reopen().await;
    w.unchanged_since(&before).await;
    assert_eq!(w.audit().await, audit);
    assert!(w.store().setting("theme".to_owned()).await.unwrap().is_some());
    w.sound().await;
}

pub async fn work_goes_on_after_reopening(w: World) {
    let old = w.node("a").await;
    let claimed = w.running(&old).await;
    w.write(steps(&claimed, vec![step("fetch", 1)])).await;
    let queued = w.submit(w.task()).await;
    let failed = w.failed(&old).await;
    let w = w.reopen().await;
    w.finish(&w.claim_id(&old, queued).await).await;
    w.change(failed, requeue()).await;
    w.advance(LEASE + SECOND);
    let new = w.tireless("b").await;
    let taken = only(w.ask(new.expired(10)).await);
    assert_eq!((taken.task.id, taken.task.standing.token), (claimed.task.id, Token(2)));
    assert_eq!(taken.checkpoint.as_ref().unwrap().finished().count(), 1);
    refused(w.try_settle(&claimed, done_with("1")).await, Code::LeaseLost);
    w.finish(&taken).await;
    assert_eq!(w.claim_one(&new).await.task.id, failed);
    w.sound().await;
}

pub async fn keys_are_held_after_reopening(w: World) {
    let keyed = w.submit(w.task().keyed("k", 1)).await;
    let unique = w.submit(w.task().unique_live("u")).await;
    let w = w.reopen().await;
    let batch = vec![w.task().keyed("k", 1), w.task().unique_live("u")];
    let answers = w.try_submit(batch).await.unwrap();
    assert_eq!(answers, [Submitted::Replayed { id: keyed }, Submitted::Existing { id: unique }]);
    refused(w.try_submit(vec![w.task().keyed("k", 2)]).await, Code::KeyReused);
}

pub async fn repeats_are_known_after_reopening(w: World) {
    let node = w.node("a").await;
    let claimed = w.running(&node).await;
    let write = w.settling(&claimed, retryable());
    w.write(write.clone()).await;
    let w = w.reopen().await;
    let before = w.snapshot().await;
    assert!(w.write(write).await.repeated);
    w.unchanged_since(&before).await;
}

pub async fn numbers_go_on_after_reopening(w: World) {
    w.outbox_rule(true, true).await;
    let id = w.submit(w.task()).await;
    w.change(id, TaskChange::Pause).await;
    let (newest, audited) = (w.stats().await.newest_event, w.audit().await[0].seq);
    let w = w.reopen().await;
    w.change(id, TaskChange::Resume).await;
    let event = only(w.feed_after(newest).await);
    assert_eq!((event.task, event.n), (Some(id), 3));
    assert!(w.audit().await[0].seq > audited);
    let node = w.tireless("a").await;
    let rows = w.outbox(OutboxOp::Take { node: node.id, hold: HOUR, max: 100 }).await;
    assert!(rows.iter().filter(|r| r.task == Some(id)).count() == 3, "{rows:?}");
}

pub async fn a_sole_owner_recovers_at_once_after_reopening(w: World) {
    let old = w.node("a").await;
    let claimed = w.running(&old).await;
    let w = w.reopen().await;
    let new = w.join(NewNode { sole: true, ..new_node("a") }).await;
    let taken = only(w.ask(new.expired(10)).await);
    assert_eq!(taken.task.id, claimed.task.id);
    w.finish(&taken).await;
    assert_eq!(w.state(claimed.task.id).await, State::Completed);
}
