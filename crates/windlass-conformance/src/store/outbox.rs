//! Facts on their way out: written in the transaction they tell of, in order
//! within their lane, one holder per lane at a time, deleted only when the
//! broker confirmed them.

use crate::harness::make::{MINUTE, SECOND, done, fails, step, steps};
use crate::harness::world::only;
use crate::harness::{Node, Shape, World, refused};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use windlass_core::error::Code;
use windlass_core::store::{DeadLetter, Job, OutboxOp, OutboxRow, OutboxTopic, Write, outbox_lane};

const HOLD: Duration = Duration::from_secs(30);

async fn take(w: &World, node: &Node, max: usize) -> Vec<OutboxRow> {
    w.outbox(OutboxOp::Take { node: node.id, hold: HOLD, max }).await
}

async fn confirm(w: &World, node: &Node, rows: &[OutboxRow]) {
    let seqs = rows.iter().map(|r| r.seq).collect();
    w.outbox(OutboxOp::Done { node: node.id, seqs }).await;
}

/// Rows about tasks, without those about nodes and queues.
fn about_tasks(rows: Vec<OutboxRow>) -> Vec<OutboxRow> {
    rows.into_iter().filter(|r| r.task.is_some()).collect()
}

pub async fn nothing_leaves_without_a_rule(w: World) {
    let node = w.tireless("a").await;
    w.failed(&node).await;
    assert!(take(&w, &node, 100).await.is_empty());
    assert_eq!(w.stats().await.outbox, 0);
}

pub async fn a_dead_letter_leaves_with_its_task(w: World) {
    let node = w.tireless("a").await;
    w.outbox_rule(true, false).await;
    let id = w.failed(&node).await;
    assert_eq!(w.stats().await.outbox, 1);
    let row = only(take(&w, &node, 100).await);
    assert_eq!((row.topic, row.task), (OutboxTopic::DeadLetter, Some(id)));
    assert_eq!(row.lane, outbox_lane(Some(id)));
    let letter = DeadLetter::of(&w.get(id).await).unwrap();
    let sent: serde_json::Value = row.body.to().unwrap();
    assert_eq!(sent, letter.to_json().to::<serde_json::Value>().unwrap());
}

pub async fn every_way_to_fail_leaves_a_row(w: World) {
    let node = w.tireless("a").await;
    w.outbox_rule(true, false).await;
    w.submit(w.task().deadline(SECOND)).await;
    w.advance(MINUTE);
    w.exhaust(Job::Expire).await;
    assert_eq!(w.stats().await.outbox, 1);
    w.submit(w.task().deadline(SECOND)).await;
    w.advance(MINUTE);
    assert!(w.claim(&node, 10).await.is_empty());
    assert_eq!(w.stats().await.outbox, 2);
    assert_eq!(w.dead_letters().await.len(), 2);
}

pub async fn a_refused_write_leaves_no_row(w: World) {
    let node = w.tireless("a").await;
    w.outbox_rule(true, true).await;
    let claimed = w.running(&node).await;
    w.step(&claimed, step("a", 5)).await;
    let before = w.stats().await.outbox;
    let stale = Write { steps: vec![step("b", 1)], ..w.settling(&claimed, fails()) };
    refused(w.try_write(stale).await, Code::VersionConflict);
    let mut batch = w.many(3);
    batch[2].priority = 99;
    assert!(w.try_submit(batch).await.is_err());
    assert_eq!(w.stats().await.outbox, before);
}

pub async fn events_leave_in_order(w: World) {
    let node = w.tireless("a").await;
    w.outbox_rule(false, true).await;
    let ids = w.submit_all(w.many(20)).await;
    for claimed in w.claim(&node, 20).await {
        w.write(steps(&claimed, vec![step("a", 1)])).await;
        w.finish(&claimed).await;
    }
    let rows = about_tasks(take(&w, &node, 1000).await);
    assert_eq!(rows.len(), 80);
    assert!(rows.iter().all(|r| r.topic == OutboxTopic::Event));
    let mut lanes: BTreeMap<u8, i64> = BTreeMap::new();
    for row in &rows {
        assert_eq!(row.lane, outbox_lane(row.task));
        let last = lanes.insert(row.lane, row.seq).unwrap_or(i64::MIN);
        assert!(row.seq > last, "rows of a lane come in order");
    }
    let story = ["task.submitted", "task.started", "task.step_completed", "task.completed"];
    for id in ids {
        let bodies: Vec<&str> =
            rows.iter().filter(|r| r.task == Some(id)).map(|r| r.body.as_str()).collect();
        assert_eq!(bodies.len(), story.len());
        assert!(bodies.iter().zip(story).all(|(b, name)| b.contains(name)), "{bodies:?}");
    }
}

pub async fn a_rule_that_ends_keeps_what_it_wrote(w: World) {
    let node = w.tireless("a").await;
    w.outbox_rule(true, false).await;
    let id = w.failed(&node).await;
    w.outbox_rule(false, false).await;
    w.failed(&node).await;
    assert_eq!(only(take(&w, &node, 100).await).task, Some(id));
}

pub async fn a_taken_lane_is_closed_to_others(w: World) {
    let (a, b) = (w.tireless("a").await, w.tireless("b").await);
    w.outbox_rule(true, false).await;
    for _ in 0..20 {
        w.failed(&a).await;
    }
    let rows = take(&w, &a, 1000).await;
    assert_eq!(rows.len(), 20);
    assert!(take(&w, &b, 1000).await.is_empty());
    w.advance(HOLD - SECOND);
    assert!(take(&w, &b, 1000).await.is_empty());
    w.advance(2 * SECOND);
    assert_eq!(take(&w, &b, 1000).await, rows, "what was not confirmed comes again");
}

pub async fn confirmed_rows_are_gone(w: World) {
    let (a, b) = (w.tireless("a").await, w.tireless("b").await);
    w.outbox_rule(true, false).await;
    for _ in 0..10 {
        w.failed(&a).await;
    }
    let rows = take(&w, &a, 1000).await;
    confirm(&w, &a, &rows[..7]).await;
    assert_eq!(w.stats().await.outbox, 3);
    confirm(&w, &a, &rows[..7]).await;
    assert_eq!(w.stats().await.outbox, 3, "confirming again is fine");
    w.advance(HOLD + SECOND);
    let left: BTreeSet<i64> = take(&w, &b, 1000).await.iter().map(|r| r.seq).collect();
    assert_eq!(left, rows[7..].iter().map(|r| r.seq).collect());
}

pub async fn the_holder_goes_on_with_its_lanes(w: World) {
    let (a, b) = (w.tireless("a").await, w.tireless("b").await);
    w.outbox_rule(false, true).await;
    let claimed = w.running(&a).await;
    for n in 1..=8 {
        w.step(&claimed, step("s", n)).await;
    }
    let id = claimed.task.id;
    let mut sent = vec![];
    for _ in 0..40 {
        let rows = take(&w, &a, 3).await;
        assert!(rows.len() <= 3);
        confirm(&w, &a, &rows).await;
        sent.extend(rows.into_iter().filter(|r| r.task == Some(id)).map(|r| r.seq));
        assert!(take(&w, &b, 3).await.iter().all(|r| r.task != Some(id)), "one holder per lane");
        if sent.len() == 10 {
            break;
        }
    }
    assert_eq!(sent.len(), 10, "submitted, started and eight steps");
    assert!(sent.is_sorted());
}

pub async fn taking_again_holds_the_lanes_longer(w: World) {
    let (a, b) = (w.tireless("a").await, w.tireless("b").await);
    w.outbox_rule(true, false).await;
    w.failed(&a).await;
    let rows = take(&w, &a, 10).await;
    w.advance(HOLD - SECOND);
    assert_eq!(take(&w, &a, 10).await, rows);
    w.advance(HOLD - SECOND);
    assert!(take(&w, &b, 10).await.is_empty());
    w.advance(2 * SECOND);
    assert_eq!(take(&w, &b, 10).await, rows);
}

pub async fn a_row_that_must_wait_holds_back_its_lane_only(w: World) {
    let node = w.tireless("a").await;
    w.outbox_rule(true, false).await;
    for _ in 0..20 {
        w.failed(&node).await;
    }
    let rows = take(&w, &node, 1000).await;
    let stuck = &rows[0];
    let at = w.at().plus(MINUTE);
    w.outbox(OutboxOp::Later { node: node.id, seq: stuck.seq, at }).await;
    let others = |rows: &[OutboxRow]| -> BTreeSet<i64> {
        rows.iter().filter(|r| r.lane != stuck.lane).map(|r| r.seq).collect()
    };
    w.advance(HOLD + SECOND);
    let free = take(&w, &node, 1000).await;
    assert!(free.iter().all(|r| r.lane != stuck.lane));
    assert_eq!(others(&free), others(&rows));
    confirm(&w, &node, &free).await;
    w.advance_to(at);
    let again = take(&w, &node, 1000).await;
    assert_eq!(again[0], *stuck);
    assert!(again.iter().all(|r| r.lane == stuck.lane));
}

pub async fn a_task_that_fails_twice_leaves_twice(w: World) {
    let node = w.tireless("a").await;
    w.outbox_rule(true, false).await;
    let id = w.failed(&node).await;
    w.change(id, crate::harness::make::requeue()).await;
    w.settle(&w.claim_one(&node).await, fails()).await;
    let rows = take(&w, &node, 100).await;
    assert_eq!(rows.len(), 2);
    assert_eq!((rows[0].task, rows[0].lane), (rows[1].task, rows[1].lane));
    w.change(id, crate::harness::make::requeue()).await;
    w.settle(&w.claim_one(&node).await, done()).await;
    assert_eq!(w.stats().await.outbox, 2);
}
