//! What people do to tasks: the table of `control.rs` on real rows, refusals
//! that change nothing, and one audit row for each change. Requeues and reruns
//! are in `change_again.rs`, queues and nodes in `change_places.rs`.

use crate::harness::make::{HOUR, done, fails, json, requeue, retryable, waits};
use crate::harness::world::{ann, only};
use crate::harness::{Node, Shape, World, refused, refused_as};
use windlass_core::children::Then;
use windlass_core::control::{Changed, TaskChange};
use windlass_core::error::{Code, ErrorKind};
use windlass_core::id::TaskId;
use windlass_core::outcome::{Outcome, WaitingOn};
use windlass_core::state::State;
use windlass_core::store::Change;

/// A task in this state, made by ordinary means.
async fn in_state(w: &World, node: &Node, state: State) -> TaskId {
    let settled = async |outcome| {
        let claimed = w.running(node).await;
        w.settle(&claimed, outcome).await;
        claimed.task.id
    };
    let id = match state {
        State::Scheduled => w.submit(w.task().after(HOUR)).await,
        State::Queued => w.submit(w.task()).await,
        State::Running => w.running(node).await.task.id,
        State::Retrying => settled(retryable()).await,
        State::Waiting => settled(waits(Then::End)).await,
        State::Paused => settled(Outcome::Pause { why: "p".to_owned() }).await,
        State::RollingBack => settled(Outcome::RollBack).await,
        State::Failed => settled(fails()).await,
        State::Cancelled => settled(Outcome::Cancelled).await,
        _ => settled(done()).await,
    };
    assert_eq!(w.state(id).await, state);
    id
}

pub async fn every_change_in_every_state(w: World) {
    use State::*;
    let node = w.tireless("a").await;
    let edit = TaskChange::EditPayload(json(r#"{"size":2}"#));
    let changes = [TaskChange::Cancel, TaskChange::Pause, TaskChange::Resume].into_iter().chain([
        requeue(),
        TaskChange::Rollback,
        TaskChange::Discard,
        edit,
    ]);
    let changes: Vec<TaskChange> = changes.collect();
    //            cancel       pause     resume    requeue   rollback        discard   edit
    let table = [
        (Scheduled, ["cancelled", "paused", "-", "-", "-", "-", "scheduled"]),
        (Queued, ["cancelled", "paused", "-", "-", "-", "-", "queued"]),
        (Running, ["asked", "asked", "-", "-", "asked", "-", "-"]),
        (Retrying, ["cancelled", "paused", "-", "-", "rolling_back", "-", "retrying"]),
        (Waiting, ["cancelled", "paused", "-", "-", "-", "-", "-"]),
        (Paused, ["cancelled", "already", "queued", "-", "rolling_back", "-", "paused"]),
        (RollingBack, ["-", "paused", "-", "-", "already", "-", "-"]),
        (Completed, ["-", "-", "-", "-", "-", "-", "-"]),
        (Failed, ["-", "-", "-", "queued", "rolling_back", "failed", "failed"]),
        (Cancelled, ["already", "-", "-", "queued", "rolling_back", "-", "cancelled"]),
    ];
    for (state, expected) in table {
        for (change, expected) in changes.iter().zip(expected) {
            let id = in_state(&w, &node, state).await;
            assert_eq!(word(&w, id, change).await, expected, "{} a {state} task", change.verb());
        }
    }
    w.sound().await;
}

/// What a change did, as one word; a refusal must leave the task as it was.
async fn word(w: &World, id: TaskId, change: &TaskChange) -> String {
    let before = (w.get(id).await, w.feed().await.len());
    match w.try_change(id, change.clone()).await {
        Ok(Changed::Done) => {
            if let TaskChange::EditPayload(payload) = change {
                assert_eq!(&w.get(id).await.payload, payload);
            }
            w.state(id).await.to_string()
        }
        Ok(Changed::Requested) => "asked".to_owned(),
        Ok(Changed::Already) => "already".to_owned(),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
            assert_eq!((w.get(id).await, w.feed().await.len()), before, "a refusal wrote");
            "-".to_owned()
        }
    }
}

pub async fn a_cancelled_task_is_not_claimed(w: World) {
    let node = w.tireless("a").await;
    let queued = w.submit(w.task()).await;
    let later = w.submit(w.task().after(HOUR)).await;
    for id in [queued, later] {
        assert_eq!(w.cancel(id).await, Changed::Done);
        let standing = w.get(id).await.standing;
        assert_eq!((standing.finished_at, standing.waiting_on), (Some(w.at()), None));
        assert_eq!(w.story(id).await.last(), Some(&"task.cancelled"));
    }
    w.advance(2 * HOUR);
    assert_eq!(w.promote().await, 0);
    assert!(w.claim(&node, 10).await.is_empty());
    assert_eq!(w.store().next_due().await.unwrap(), None);
    w.sound().await;
}

pub async fn a_running_task_is_asked_once(w: World) {
    let node = w.node("a").await;
    let claimed = w.running(&node).await;
    assert_eq!(w.cancel(claimed.task.id).await, Changed::Requested);
    assert_eq!(w.cancel(claimed.task.id).await, Changed::Already);
    let standing = w.get(claimed.task.id).await.standing;
    assert_eq!(standing.state, State::Running);
    assert!(standing.requests.cancel && !standing.requests.pause);
}

pub async fn a_pause_that_is_taken_back_in_time(w: World) {
    let node = w.node("a").await;
    let claimed = w.running(&node).await;
    let id = claimed.task.id;
    assert_eq!(w.change(id, TaskChange::Pause).await, Changed::Requested);
    assert_eq!(w.change(id, TaskChange::Resume).await, Changed::Done);
    assert!(w.renew(node.renewal(&[&claimed])).await.requests.is_empty());
    assert_eq!(w.settle(&claimed, retryable()).await.state, State::Retrying);
}

pub async fn a_paused_task_is_neither_claimed_nor_promoted(w: World) {
    let node = w.tireless("a").await;
    let queued = w.submit(w.task()).await;
    let later = w.submit(w.task().after(HOUR)).await;
    for id in [queued, later] {
        w.change(id, TaskChange::Pause).await;
        let on = w.get(id).await.standing.waiting_on;
        assert!(matches!(on, Some(WaitingOn::Person { .. })), "{on:?}");
    }
    w.advance(2 * HOUR);
    assert_eq!(w.promote().await, 0);
    assert!(w.claim(&node, 10).await.is_empty());
    assert_eq!(w.states(&[queued, later]).await, [State::Paused, State::Paused]);
    for id in [queued, later] {
        w.change(id, TaskChange::Resume).await;
    }
    assert_eq!(w.claim(&node, 10).await.len(), 2, "their time came while they were held");
}

pub async fn a_resumed_task_goes_back_to_its_time(w: World) {
    let id = w.submit(w.task().after(HOUR)).await;
    let due = w.get(id).await.standing.due_at;
    w.change(id, TaskChange::Pause).await;
    w.change(id, TaskChange::Resume).await;
    let standing = w.get(id).await.standing;
    assert_eq!((standing.state, standing.due_at), (State::Scheduled, due));
    assert_eq!(standing.waiting_on, Some(WaitingOn::Time { until: due }));
    assert_eq!(w.store().next_due().await.unwrap(), Some(due));
    w.advance(HOUR);
    assert_eq!(w.promote().await, 1);
}

pub async fn an_edited_payload_is_what_runs(w: World) {
    let node = w.node("a").await;
    let id = w.submit(w.task()).await;
    let edit = |text: &str| TaskChange::EditPayload(json(text));
    assert_eq!(w.change(id, edit(r#"{"size":2}"#)).await, Changed::Done);
    assert_eq!(w.get(id).await.payload, json(r#"{"size":2}"#));
    let claimed = w.claim_one(&node).await;
    assert_eq!(claimed.task.payload, json(r#"{"size":2}"#));
    refused_as(w.try_change(id, edit("{}")).await, ErrorKind::Conflict);
    assert_eq!(w.get(id).await.payload, json(r#"{"size":2}"#));
}

pub async fn a_payload_of_null_is_refused(w: World) {
    let node = w.node("a").await;
    let (queued, failed) = (w.submit(w.task()).await, w.failed(&node).await);
    let before = w.snapshot().await;
    refused_as(
        w.try_change(queued, TaskChange::EditPayload(json("null"))).await,
        ErrorKind::Invalid,
    );
    let change = TaskChange::Requeue { from_step: None, payload: Some(json("null")) };
    refused_as(w.try_change(failed, change).await, ErrorKind::Invalid);
    w.unchanged_since(&before).await;
}

pub async fn a_discarded_dead_letter_leaves_the_task_failed(w: World) {
    let node = w.node("a").await;
    let (id, other) = (w.failed(&node).await, w.failed(&node).await);
    assert_eq!(w.change(id, TaskChange::Discard).await, Changed::Done);
    assert_eq!(w.state(id).await, State::Failed);
    assert_eq!(only(w.dead_letters().await).task, Some(other));
    assert_eq!(w.stats().await.dead_letters, 1);
    assert_eq!(w.story(id).await.last(), Some(&"dead_letter.discarded"));
    let before = w.snapshot().await;
    assert_eq!(w.change(id, TaskChange::Discard).await, Changed::Already);
    w.unchanged_since(&before).await;
}

pub async fn a_rollback_of_a_failed_task_takes_its_dead_letter(w: World) {
    let node = w.node("a").await;
    let id = w.failed(&node).await;
    assert_eq!(w.change(id, TaskChange::Rollback).await, Changed::Done);
    let standing = w.get(id).await.standing;
    assert_eq!((standing.state, standing.finished_at), (State::RollingBack, None));
    assert!(w.dead_letters().await.is_empty());
    assert_eq!(w.story(id).await.last(), Some(&"task.rolling_back"));
    w.sound().await;
}

pub async fn an_unknown_task_does_not_harm_the_others(w: World) {
    let good = w.submit_all(w.many(2)).await;
    let ids = vec![good[0], w.id(), good[1]];
    let mut answers = w.operate(Change::Tasks { ids, change: TaskChange::Cancel }).await;
    assert_eq!(answers.len(), 3);
    refused(answers.remove(1), Code::NotFound);
    assert!(answers.iter().all(|a| matches!(a, Ok(Changed::Done))), "{answers:?}");
    assert_eq!(w.states(&good).await, [State::Cancelled, State::Cancelled]);
}

pub async fn every_change_is_in_the_audit_list(w: World) {
    let id = w.submit(w.task()).await;
    w.cancel(id).await;
    let row = w.audit().await.remove(0);
    assert_eq!((row.by, row.at), (ann(), w.at()));
    assert!(row.action.contains("cancel"), "{}", row.action);
    assert!(row.target.contains(&id.to_string()), "{}", row.target);
    assert!(!row.outcome.is_empty() && row.outcome != Code::StateConflict.as_str());
}

pub async fn refused_changes_are_in_the_audit_list_too(w: World) {
    let id = w.submit(w.task()).await;
    refused(w.try_change(id, TaskChange::Resume).await, Code::StateConflict);
    let row = w.audit().await.remove(0);
    assert!(row.action.contains("resume"), "{}", row.action);
    assert!(row.target.contains(&id.to_string()), "{}", row.target);
    assert_eq!(row.outcome, Code::StateConflict.as_str());
    let nobody = w.id();
    refused(w.try_change(nobody, TaskChange::Cancel).await, Code::NotFound);
    let row = w.audit().await.remove(0);
    assert!(row.target.contains(&nobody.to_string()), "{}", row.target);
    assert_eq!(row.outcome, Code::NotFound.as_str());
}
