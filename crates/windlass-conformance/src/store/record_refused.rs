//! Who may write about a running task: only the holder of the newest token.
//! Every sort of write is tried by somebody who may not, and nothing changes.

use crate::harness::make::{SECOND, done, fails, lease, requeue, retryable, settled, step, waits};
use crate::harness::world::{LEASE, only};
use crate::harness::{Shape, World, refused};
use windlass_core::children::Then;
use windlass_core::error::{Code, ErrorKind};
use windlass_core::lease::{LeaseKey, Token};
use windlass_core::outcome::Outcome;
use windlass_core::state::State;
use windlass_core::store::{Claimed, Write};
use windlass_core::task::Progress;

/// One write of every sort with this lease.
fn every_sort(w: &World, claimed: &Claimed, key: LeaseKey) -> Vec<Write> {
    let blank = || Write::new(key);
    let progress = Some(Progress { done: 1, total: 2, note: None, data: None });
    let child = w.task().under(key.task, "1:step:0");
    let mut writes = vec![
        Write { begins: true, ..blank() },
        Write { steps: vec![step("late", 99)], ..blank() },
        Write { progress, ..blank() },
        Write { children: vec![child], steps: vec![step("late", 99)], ..blank() },
        Write { keep_steps: Some((0, "the plan changed".to_owned())), ..blank() },
    ];
    let until = w.at().plus(SECOND);
    let outcomes = [
        done(),
        fails(),
        retryable(),
        Outcome::Snooze { until },
        Outcome::Limited { name: "l".to_owned(), until },
        waits(Then::Resume),
        Outcome::Release,
        Outcome::Pause { why: "p".to_owned() },
        Outcome::Cancelled,
        Outcome::RollBack,
    ];
    let settle = |outcome| Write::settling(key, settled(claimed, outcome, w.at()));
    writes.extend(outcomes.into_iter().map(settle));
    writes
}

async fn all_refused(w: &World, writes: Vec<Write>) {
    let before = w.snapshot().await;
    for write in writes.clone() {
        let shown = format!("{write:?}");
        let error = w.try_write(write).await.expect_err(&shown);
        assert_eq!(error.kind(), ErrorKind::LeaseLost, "{shown}: {error}");
    }
    for answer in w.record(writes).await {
        refused(answer, Code::LeaseLost);
    }
    w.unchanged_since(&before).await;
}

pub async fn a_stale_token_writes_nothing(w: World) {
    let (a, b) = (w.node("a").await, w.tireless("b").await);
    let stale = w.running(&a).await;
    w.step(&stale, step("fetch", 1)).await;
    w.advance(LEASE + SECOND);
    let newest = only(w.ask(b.expired(1)).await);
    all_refused(&w, every_sort(&w, &stale, lease(&stale))).await;
    w.finish(&newest).await;
}

pub async fn another_node_writes_nothing(w: World) {
    let (a, b) = (w.node("a").await, w.node("b").await);
    let claimed = w.running(&a).await;
    w.step(&claimed, step("fetch", 1)).await;
    let key = LeaseKey { node: b.id, ..lease(&claimed) };
    all_refused(&w, every_sort(&w, &claimed, key)).await;
}

pub async fn a_token_of_the_future_writes_nothing(w: World) {
    let node = w.node("a").await;
    let claimed = w.running(&node).await;
    let key = LeaseKey { token: Token(2), ..lease(&claimed) };
    all_refused(&w, every_sort(&w, &claimed, key)).await;
}

pub async fn the_same_node_with_its_older_token_writes_nothing(w: World) {
    let node = w.node("a").await;
    let old = w.running(&node).await;
    w.settle(&old, retryable()).await;
    w.advance(10 * SECOND);
    w.promote().await;
    let new = w.claim_one(&node).await;
    let mut writes = every_sort(&w, &old, lease(&old));
    // What the old lease did write is a repeat, not a stale write.
    writes.retain(|w| w.settle.as_ref().is_none_or(|s| s.verdict.to != State::Retrying));
    all_refused(&w, writes).await;
    w.finish(&new).await;
}

pub async fn an_unknown_task_is_not_written(w: World) {
    let node = w.node("a").await;
    let claimed = w.running(&node).await;
    let key = LeaseKey { task: w.id(), ..lease(&claimed) };
    let before = w.snapshot().await;
    for write in every_sort(&w, &claimed, key) {
        assert!(w.try_write(write).await.is_err());
    }
    w.unchanged_since(&before).await;
}

pub async fn an_ended_task_is_settled_once(w: World) {
    let node = w.node("a").await;
    for (first, second) in [(done(), fails()), (fails(), done()), (retryable(), done())] {
        let claimed = w.running(&node).await;
        w.settle(&claimed, first).await;
        let before = w.snapshot().await;
        refused(w.try_settle(&claimed, second).await, Code::LeaseLost);
        let steps = vec![step("late", 99)];
        refused(w.try_write(Write { steps, ..Write::new(lease(&claimed)) }).await, Code::LeaseLost);
        w.unchanged_since(&before).await;
    }
}

pub async fn a_requeued_task_is_out_of_reach_of_its_former_run(w: World) {
    let node = w.node("a").await;
    let old = w.running(&node).await;
    w.settle(&old, fails()).await;
    w.change(old.task.id, requeue()).await;
    let before = w.snapshot().await;
    refused(w.try_settle(&old, done()).await, Code::LeaseLost);
    w.unchanged_since(&before).await;
    let new = w.claim_one(&node).await;
    refused(w.try_settle(&old, done()).await, Code::LeaseLost);
    w.finish(&new).await;
}
