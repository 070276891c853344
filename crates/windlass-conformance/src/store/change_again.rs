//! Running ended work again: requeues (the same task, a new run) and reruns (a
//! new task linked to the old one).

use crate::harness::make::{
    MINUTE, failed_try, fails, json, requeue, requeue_from, retryable, step,
};
use crate::harness::world::only;
use crate::harness::{Node, Shape, World, refused, refused_as};
use windlass_core::control::{Changed, TaskChange};
use windlass_core::error::{Code, ErrorKind};
use windlass_core::id::TaskId;
use windlass_core::lease::Token;
use windlass_core::outcome::Outcome;
use windlass_core::state::State;
use windlass_core::store::{Change, Write};

/// A failed task with the steps a, b and c in its checkpoint.
async fn failed_after_steps(w: &World, node: &Node) -> TaskId {
    let claimed = w.running(node).await;
    let steps = vec![step("a", 1), failed_try("b", 2), step("b", 3), step("c", 4)];
    w.write(Write { steps, ..w.settling(&claimed, fails()) }).await;
    claimed.task.id
}

pub async fn a_requeue_is_a_new_run(w: World) {
    let node = w.tireless("a").await;
    let id = w.submit(w.task()).await;
    w.settle(&w.claim_one(&node).await, retryable()).await;
    w.advance(MINUTE);
    w.promote().await;
    w.settle(&w.claim_one(&node).await, fails()).await;
    w.advance(MINUTE);
    assert_eq!(w.change(id, requeue()).await, Changed::Done);
    let standing = w.get(id).await.standing;
    assert_eq!((standing.state, standing.due_at), (State::Queued, w.at()));
    assert_eq!((standing.run, standing.retries, standing.attempt), (2, 0, 2));
    assert_eq!((standing.finished_at, standing.waiting_on), (None, None));
    assert!(w.dead_letters().await.is_empty());
    let story = w.story(id).await;
    assert_eq!(story[story.len() - 2..], ["task.requeued", "dead_letter.requeued"]);
    let claimed = w.claim_one(&node).await;
    assert_eq!((claimed.task.standing.run, claimed.task.standing.token), (2, Token(3)));
    let runs: Vec<u32> = w.attempts(id).await.iter().map(|a| a.run).collect();
    assert_eq!(runs, [1, 1, 2], "the history is kept");
    w.finish(&claimed).await;
    w.sound().await;
}

pub async fn a_cancelled_task_can_be_requeued(w: World) {
    let node = w.node("a").await;
    let id = w.submit(w.task()).await;
    w.cancel(id).await;
    w.change(id, requeue()).await;
    assert_eq!(w.story(id).await[1..], ["task.cancelled", "task.requeued"]);
    assert_eq!(w.claim_one(&node).await.task.id, id);
}

pub async fn other_ends_cannot_be_requeued(w: World) {
    let node = w.node("a").await;
    let done = w.running(&node).await;
    w.finish(&done).await;
    let rolled_back = w.running(&node).await;
    w.settle(&rolled_back, Outcome::RollBack).await;
    w.settle(&w.claim_one(&node).await, Outcome::RolledBack).await;
    let before = w.snapshot().await;
    for id in [done.task.id, rolled_back.task.id] {
        refused(w.try_change(id, requeue()).await, Code::StateConflict);
    }
    w.unchanged_since(&before).await;
}

pub async fn a_requeue_goes_on_from_the_checkpoint(w: World) {
    let node = w.node("a").await;
    let id = failed_after_steps(&w, &node).await;
    w.change(id, requeue()).await;
    assert_eq!(w.finished(id).await, ["a", "b", "c"]);
    let claimed = w.claim_one(&node).await;
    assert_eq!(claimed.checkpoint.as_ref().unwrap().finished().count(), 3);
    w.step(&claimed, step("d", 5)).await;
    let entry = w.checkpoint(id).await.unwrap().entries.pop().unwrap();
    assert_eq!((entry.run, entry.attempt), (2, 2));
}

pub async fn a_requeue_from_a_step_drops_it_and_the_later_ones(w: World) {
    let node = w.node("a").await;
    let id = failed_after_steps(&w, &node).await;
    assert_eq!(w.change(id, requeue_from("b")).await, Changed::Done);
    assert_eq!(w.finished(id).await, ["a"]);
    let claimed = w.claim_one(&node).await;
    assert_eq!(claimed.checkpoint.as_ref().unwrap().finished().count(), 1);
    w.step(&claimed, step("b", claimed.task.standing.version.0 + 1)).await;
    assert_eq!(w.finished(id).await, ["a", "b"]);
    let history: usize = w.attempts(id).await.iter().map(|a| a.steps.len()).sum();
    assert_eq!(history, 5, "the history keeps what was dropped");
}

pub async fn a_requeue_from_an_unknown_step_is_refused(w: World) {
    let node = w.node("a").await;
    let id = failed_after_steps(&w, &node).await;
    let before = w.snapshot().await;
    refused_as(w.try_change(id, requeue_from("z")).await, ErrorKind::Invalid);
    w.unchanged_since(&before).await;
}

pub async fn a_requeue_may_bring_a_new_payload(w: World) {
    let node = w.node("a").await;
    let id = w.failed(&node).await;
    let payload = Some(json(r#"{"size":3}"#));
    w.change(id, TaskChange::Requeue { from_step: None, payload }).await;
    assert_eq!(w.get(id).await.payload, json(r#"{"size":3}"#));
    assert_eq!(w.claim_one(&node).await.task.payload, json(r#"{"size":3}"#));
}

pub async fn a_refused_requeue_keeps_the_payload(w: World) {
    let node = w.node("a").await;
    let claimed = w.running(&node).await;
    let payload = Some(json(r#"{"size":3}"#));
    let change = TaskChange::Requeue { from_step: None, payload };
    refused(w.try_change(claimed.task.id, change).await, Code::StateConflict);
    assert_eq!(w.get(claimed.task.id).await.payload, claimed.task.payload);
}

pub async fn a_second_failure_is_a_second_dead_letter(w: World) {
    let node = w.node("a").await;
    let id = w.failed(&node).await;
    w.change(id, requeue()).await;
    w.settle(&w.claim_one(&node).await, fails()).await;
    assert_eq!(only(w.dead_letters().await).attempts, 2);
    assert_eq!(w.told("dead_letter.entered").await, 2);
}

pub async fn a_rerun_is_a_new_task_linked_to_the_old(w: World) {
    let node = w.node("a").await;
    let task = w.task().kind("image.resize").priority(3).label("tenant", "acme");
    let old = w.submit(task.unique_live("u").keyed("k", 1)).await;
    w.finish(&w.claim_one(&node).await).await;
    let old_task = w.get(old).await;
    let id = w.id();
    assert!(matches!(only(w.operate(Change::Rerun { of: old, id }).await), Ok(Changed::Done)));
    let new = w.get(id).await;
    let extras = new.extras.as_ref().unwrap();
    assert_eq!((extras.rerun_of, &extras.unique), (Some(old), &None));
    assert_eq!((new.state(), new.standing.run, new.priority), (State::Queued, 1, 3));
    assert_eq!((&new.kind, &new.payload), (&old_task.kind, &old_task.payload));
    assert_eq!(new.label("tenant"), Some("acme"));
    assert_eq!(w.story(id).await, ["task.submitted"]);
    assert_eq!(w.get(old).await, old_task, "the old one is not touched");
    assert_eq!(w.claim_one(&node).await.task.id, id);
}

pub async fn a_rerun_sent_again_makes_one_task(w: World) {
    let node = w.node("a").await;
    let of = w.failed(&node).await;
    let id = w.id();
    w.operate(Change::Rerun { of, id }).await;
    let before = w.snapshot().await;
    let again = only(w.operate(Change::Rerun { of, id }).await);
    assert!(again.is_ok(), "{again:?}");
    w.unchanged_since(&before).await;
}

pub async fn only_ended_tasks_are_rerun(w: World) {
    let live = w.submit(w.task()).await;
    let before = w.snapshot().await;
    let rerun = async |of| only(w.operate(Change::Rerun { of, id: w.id() }).await);
    refused_as(rerun(live).await, ErrorKind::Conflict);
    refused(rerun(w.id()).await, Code::NotFound);
    w.unchanged_since(&before).await;
}
