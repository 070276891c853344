//! Depth limits of queues and the firing of schedules: both may refuse a whole
//! submission, and then nothing of it is written. Depth is what is queued or
//! waits for a time; stores may know a fall of it up to a second late.

use crate::harness::make::{HOUR, SECOND, done, retryable};
use crate::harness::{Shape, World, refused, refused_as};
use windlass_core::error::{Code, ErrorKind};
use windlass_core::state::State;
use windlass_core::store::{QueueChange, Submitted};

async fn limited(w: &World, depth: u64) {
    w.change_queue("q", QueueChange::DepthMax(Some(depth))).await;
}

pub async fn a_full_queue_refuses(w: World) {
    limited(&w, 3).await;
    for _ in 0..3 {
        w.submit(w.task().queue("q")).await;
    }
    let before = w.snapshot().await;
    let batch = vec![w.task(), w.task().queue("q")];
    refused(w.try_submit(batch).await, Code::QueueFull);
    w.unchanged_since(&before).await;
    w.submit(w.task()).await;
}

pub async fn a_queue_that_drains_stays_open(w: World) {
    let node = w.tireless("a").await;
    limited(&w, 10).await;
    for _ in 0..30 {
        let id = w.submit(w.task().queue("q")).await;
        for claimed in w.ask(in_q(node.ids(&[id]))).await {
            w.settle(&claimed, done()).await;
        }
        w.advance(SECOND / 5);
    }
}

pub async fn a_batch_beyond_the_depth_is_refused_whole(w: World) {
    limited(&w, 3).await;
    let batch = |n| w.many(n).into_iter().map(|t| t.queue("q")).collect();
    let before = w.snapshot().await;
    refused(w.try_submit(batch(4)).await, Code::QueueFull);
    w.unchanged_since(&before).await;
    w.submit_all(batch(3)).await;
}

pub async fn waiting_for_a_time_counts_as_depth(w: World) {
    let node = w.node("a").await;
    limited(&w, 2).await;
    w.submit(w.task().queue("q").after(HOUR)).await;
    let id = w.submit(w.task().queue("q")).await;
    let claimed = w.ask(in_q(node.ids(&[id]))).await;
    w.settle(&claimed[0], retryable()).await;
    w.advance(2 * SECOND);
    refused(w.try_submit(vec![w.task().queue("q")]).await, Code::QueueFull);
}

pub async fn running_and_ended_tasks_are_not_depth(w: World) {
    let node = w.node("a").await;
    limited(&w, 2).await;
    w.submit_all(vec![w.task().queue("q"), w.task().queue("q")]).await;
    let claimed = w.ask(in_q(node.ready(2))).await;
    w.settle(&claimed[0], done()).await;
    w.advance(2 * SECOND);
    w.submit_all(vec![w.task().queue("q"), w.task().queue("q")]).await;
    w.advance(2 * SECOND);
    refused(w.try_submit(vec![w.task().queue("q")]).await, Code::QueueFull);
}

pub async fn a_replay_is_answered_by_a_full_queue(w: World) {
    limited(&w, 2).await;
    let keyed = w.submit(w.task().queue("q").keyed("k", 1)).await;
    let unique = w.submit(w.task().queue("q").unique_live("u")).await;
    let before = w.snapshot().await;
    let again = vec![w.task().queue("q").keyed("k", 1), w.task().queue("q").unique_live("u")];
    let answers = w.try_submit(again).await.unwrap();
    assert_eq!(answers, [Submitted::Replayed { id: keyed }, Submitted::Existing { id: unique }]);
    w.unchanged_since(&before).await;
}

pub async fn a_lifted_limit_lets_tasks_in(w: World) {
    limited(&w, 1).await;
    w.submit(w.task().queue("q")).await;
    refused_as(w.try_submit(vec![w.task().queue("q")]).await, ErrorKind::Unavailable);
    w.change_queue("q", QueueChange::DepthMax(None)).await;
    w.advance(2 * SECOND);
    w.submit(w.task().queue("q")).await;
    assert_eq!(w.queue("q").await.count(State::Queued), 2);
}

fn in_q(claim: windlass_core::store::Claim) -> windlass_core::store::Claim {
    windlass_core::store::Claim { lanes: vec![crate::harness::make::lane("q", 10)], ..claim }
}
