//! Queues that drain: new tasks are refused, and everything that is in the queue
//! goes on. Repeats of what was accepted before are answered as ever.

use crate::harness::make::{HOUR, SECOND, done, lane, lease, requeue, retryable, step};
use crate::harness::world::only;
use crate::harness::{Shape, World, refused};
use windlass_core::control::Changed;
use windlass_core::error::Code;
use windlass_core::id::TaskId;
use windlass_core::state::State;
use windlass_core::store::{Change, Claim, QueueChange, Submitted, Write};

async fn rerun(w: &World, of: TaskId) -> windlass_core::Result<Changed> {
    only(w.operate(Change::Rerun { of, id: w.id() }).await)
}

fn in_q(claim: Claim) -> Claim {
    Claim { lanes: vec![lane("q", 10)], ..claim }
}

pub async fn a_draining_queue_refuses_new_tasks(w: World) {
    w.submit(w.task().queue("q")).await;
    assert_eq!(w.change_queue("q", QueueChange::Drain).await, Changed::Done);
    assert_eq!(w.change_queue("q", QueueChange::Drain).await, Changed::Already);
    let info = w.queue("q").await;
    assert_eq!((info.draining, info.paused), (true, false));
    let before = w.snapshot().await;
    let error = w.try_submit(vec![w.task(), w.task().queue("q")]).await.expect_err("a refusal");
    assert_eq!(error.code(), Code::StateConflict);
    assert!(error.message().contains("`q`") && error.message().contains("resume"), "{error}");
    refused(w.try_submit(vec![w.task().queue("q").after(HOUR)]).await, Code::StateConflict);
    w.unchanged_since(&before).await;
    w.submit(w.task()).await;
}

pub async fn repeats_are_answered_by_a_draining_queue(w: World) {
    let plain = w.task().queue("q");
    let first = w.submit(plain.clone()).await;
    let keyed = w.submit(w.task().queue("q").keyed("k", 1)).await;
    let unique = w.submit(w.task().queue("q").unique_live("u")).await;
    w.change_queue("q", QueueChange::Drain).await;
    let again =
        vec![plain, w.task().queue("q").keyed("k", 1), w.task().queue("q").unique_live("u")];
    let expected = [
        Submitted::New { id: first, state: State::Queued },
        Submitted::Replayed { id: keyed },
        Submitted::Existing { id: unique },
    ];
    assert_eq!(w.try_submit(again).await.unwrap(), expected);
}

pub async fn what_is_in_a_draining_queue_goes_on(w: World) {
    let node = w.tireless("a").await;
    let id = w.submit(w.task().queue("q")).await;
    w.submit(w.task().queue("q").after(HOUR)).await;
    w.change_queue("q", QueueChange::Drain).await;
    let claimed = only(w.ask(in_q(node.ready(10))).await);
    assert_eq!(claimed.task.id, id);
    let child = w.task().queue("q").under(id, "1:split:0");
    let child_id = child.id;
    let write = Write {
        children: vec![child],
        steps: vec![step("split", 1)],
        ..Write::new(lease(&claimed))
    };
    w.write(write).await;
    w.settle(&claimed, retryable()).await;
    w.advance(2 * HOUR);
    assert_eq!(w.promote().await, 2);
    let taken = w.ask(in_q(node.ready(10))).await;
    assert_eq!(taken.len(), 3);
    assert!(taken.iter().any(|c| c.task.id == child_id), "a step may still write children");
    for claimed in &taken {
        w.settle(claimed, done()).await;
    }
    assert!(w.queue("q").await.states.is_empty(), "it is drained");
}

pub async fn a_requeue_is_let_in_and_a_rerun_is_not(w: World) {
    let node = w.node("a").await;
    let failed = w.failed(&node).await;
    w.change_queue("default", QueueChange::Drain).await;
    let before = w.snapshot().await;
    refused(rerun(&w, failed).await, Code::StateConflict);
    w.unchanged_since(&before).await;
    let row = w.audit().await.remove(0);
    assert_eq!((row.action.as_str(), row.outcome.as_str()), ("rerun", "state-conflict"));
    w.change(failed, requeue()).await;
    assert_eq!(w.state(failed).await, State::Queued);
    w.finish(&w.claim_one(&node).await).await;
    w.change_queue("default", QueueChange::Resume).await;
    assert_eq!(rerun(&w, failed).await.unwrap(), Changed::Done);
}

pub async fn resuming_ends_a_pause_and_a_drain(w: World) {
    w.change_queue("q", QueueChange::Pause).await;
    w.change_queue("q", QueueChange::Drain).await;
    w.change_queue("q", QueueChange::DepthMax(Some(9))).await;
    let info = w.queue("q").await;
    assert_eq!((info.paused, info.draining, info.depth_max), (true, true, Some(9)));
    assert_eq!(w.change_queue("q", QueueChange::Resume).await, Changed::Done);
    let info = w.queue("q").await;
    assert_eq!((info.paused, info.draining, info.depth_max), (false, false, Some(9)));
    w.advance(SECOND);
    w.submit(w.task().queue("q")).await;
    w.change_queue("q", QueueChange::Drain).await;
    assert_eq!(w.change_queue("q", QueueChange::Resume).await, Changed::Done);
    assert_eq!(w.change_queue("q", QueueChange::Resume).await, Changed::Already);
    let told = w.feed().await.into_iter().filter(|e| e.task.is_none());
    let names: Vec<&str> = told.map(|e| e.name.as_str()).collect();
    assert_eq!(names, ["queue.paused", "queue.resumed", "queue.resumed"]);
}
