//! A write whose answer was lost is sent again: it answers as written, tells so,
//! and changes nothing, whatever happened to the task in between.

use crate::harness::make::{
    MINUTE, done, done_with, fails, lease, requeue, retryable, step, steps, waits,
};
use crate::harness::{Node, Shape, World};
use windlass_core::checkpoint::{StepRecord, Version};
use windlass_core::children::Then;
use windlass_core::control::TaskChange;
use windlass_core::outcome::Outcome;
use windlass_core::state::State;
use windlass_core::store::{Claimed, Write};

/// Sends the write again and checks that nothing changes.
async fn again(w: &World, write: Write) -> windlass_core::store::Written {
    let before = w.snapshot().await;
    let written = w.write(write).await;
    assert!(written.repeated, "{written:?}");
    w.unchanged_since(&before).await;
    written
}

pub async fn every_settlement_may_be_sent_again(w: World) {
    let node = w.node("a").await;
    let until = w.at().plus(MINUTE);
    let outcomes = [
        done(),
        done_with("7"),
        fails(),
        retryable(),
        Outcome::Snooze { until },
        Outcome::Limited { name: "l".to_owned(), until },
        Outcome::Wait(windlass_core::outcome::WaitingOn::Signal { name: "s".to_owned() }),
        Outcome::Release,
        Outcome::Pause { why: "p".to_owned() },
        Outcome::Cancelled,
        Outcome::RollBack,
    ];
    for outcome in outcomes {
        let claimed = w.running(&node).await;
        let write = w.settling(&claimed, outcome);
        let first = w.write(write.clone()).await;
        assert!(!first.repeated);
        let second = again(&w, write).await;
        assert_eq!((second.state, second.version), (first.state, first.version));
    }
    w.sound().await;
}

pub async fn a_done_sent_again_later_is_still_a_repeat(w: World) {
    let node = w.node("a").await;
    let claimed = w.running(&node).await;
    let write = w.settling(&claimed, done_with(r#"{"a":1}"#));
    w.write(write.clone()).await;
    w.advance(MINUTE);
    assert_eq!(again(&w, write).await.state, State::Completed);
    assert_eq!(w.told("task.completed").await, 1);
}

pub async fn a_failure_sent_again_makes_one_dead_letter(w: World) {
    let node = w.node("a").await;
    let claimed = w.running(&node).await;
    let write = w.settling(&claimed, fails());
    w.write(write.clone()).await;
    again(&w, write).await;
    assert_eq!(w.dead_letters().await.len(), 1);
    assert_eq!(w.told("dead_letter.entered").await, 1);
}

pub async fn a_failure_sent_again_after_a_requeue(w: World) {
    let node = w.node("a").await;
    let claimed = w.running(&node).await;
    let write = w.settling(&claimed, fails());
    w.write(write.clone()).await;
    w.change(claimed.task.id, requeue()).await;
    again(&w, write.clone()).await;
    w.claim_one(&node).await;
    again(&w, write).await;
}

async fn retried(w: &World, node: &Node) -> (Claimed, Write) {
    let claimed = w.running(node).await;
    let write = Write { steps: vec![step("fetch", 1)], ..w.settling(&claimed, retryable()) };
    w.write(write.clone()).await;
    (claimed, write)
}

pub async fn a_retry_sent_again_after_its_time_came(w: World) {
    let node = w.tireless("a").await;
    let (_, write) = retried(&w, &node).await;
    w.advance(MINUTE);
    w.promote().await;
    again(&w, write).await;
}

pub async fn a_retry_sent_again_while_another_node_runs_it(w: World) {
    let (a, b) = (w.tireless("a").await, w.tireless("b").await);
    let (claimed, write) = retried(&w, &a).await;
    w.advance(MINUTE);
    w.promote().await;
    let taken = w.claim_one(&b).await;
    again(&w, write.clone()).await;
    w.step(&taken, step("scale", 2)).await;
    again(&w, write.clone()).await;
    w.finish(&taken).await;
    again(&w, write).await;
    assert_eq!(w.get(claimed.task.id).await.standing.retries, 1);
}

pub async fn a_step_sent_again_is_recorded_once(w: World) {
    let node = w.node("a").await;
    let claimed = w.running(&node).await;
    let first = steps(&claimed, vec![step("fetch", 1)]);
    w.write(first.clone()).await;
    assert_eq!(again(&w, first.clone()).await.version, Version(1));
    let second = steps(&claimed, vec![step("scale", 2), step("store", 3)]);
    w.write(second.clone()).await;
    assert_eq!(again(&w, second).await.version, Version(3));
    again(&w, first).await;
    assert_eq!(w.finished(claimed.task.id).await, ["fetch", "scale", "store"]);
}

pub async fn a_step_that_took_odd_nanoseconds_sent_again(w: World) {
    let node = w.node("a").await;
    let claimed = w.running(&node).await;
    let duration = std::time::Duration::from_nanos(1_234_567);
    let write = steps(&claimed, vec![StepRecord { duration, ..step("fetch", 1) }]);
    w.write(write.clone()).await;
    again(&w, write).await;
}

pub async fn steps_with_their_settlement_sent_again(w: World) {
    let node = w.node("a").await;
    let claimed = w.running(&node).await;
    let write = Write { steps: vec![step("fetch", 1)], ..w.settling(&claimed, done()) };
    w.write(write.clone()).await;
    let written = again(&w, write).await;
    assert_eq!((written.state, written.version), (State::Completed, Version(1)));
}

pub async fn a_cancelled_settlement_sent_again(w: World) {
    let node = w.node("a").await;
    let claimed = w.running(&node).await;
    w.change(claimed.task.id, TaskChange::Cancel).await;
    let write = w.settling(&claimed, retryable());
    assert_eq!(w.write(write.clone()).await.state, State::Cancelled);
    assert_eq!(again(&w, write).await.state, State::Cancelled);
}

pub async fn the_same_write_twice_in_one_call(w: World) {
    let node = w.node("a").await;
    let claimed = w.running(&node).await;
    let write = w.settling(&claimed, done());
    let answers = w.record(vec![write.clone(), write]).await;
    let repeated: Vec<bool> = answers.iter().map(|a| a.as_ref().unwrap().repeated).collect();
    assert_eq!(repeated, [false, true]);
    assert_eq!(w.story(claimed.task.id).await.len(), 3);
}

pub async fn children_sent_again_are_written_once(w: World) {
    let node = w.node("a").await;
    let claimed = w.running(&node).await;
    let id = claimed.task.id;
    let children = vec![w.task().under(id, "1:split:0"), w.task().under(id, "1:split:1")];
    let write = Write { children, steps: vec![step("split", 1)], ..Write::new(lease(&claimed)) };
    w.write(write.clone()).await;
    again(&w, write).await;
    assert_eq!(w.store().children(id).await.unwrap().total, 2);
}

pub async fn a_wait_sent_again_after_the_parent_was_woken(w: World) {
    let node = w.node("a").await;
    let parent = w.running(&node).await;
    let child = w.task().under(parent.task.id, "1:split:0");
    let child_id = child.id;
    let write = Write {
        children: vec![child],
        steps: vec![step("split", 1)],
        ..w.settling(&parent, waits(Then::Resume))
    };
    w.write(write.clone()).await;
    w.finish(&w.claim_id(&node, child_id).await).await;
    w.judge_children().await;
    assert_eq!(w.state(parent.task.id).await, State::Queued);
    again(&w, write).await;
}
