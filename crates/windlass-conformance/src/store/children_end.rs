//! Parents that end before their children: the children are cancelled, the
//! totals stay as they were, and no child is deleted before its parent.

use super::children::{end, family, totals};
use crate::harness::make::{DAY, HOUR, done, fails, retryable};
use crate::harness::{Shape, World};
use windlass_core::children::{Policy, Then};
use windlass_core::state::State;
use windlass_core::store::{Job, Retention};

pub async fn the_first_failure_ends_a_fail_fast_parent(w: World) {
    let node = w.node("a").await;
    let (parent, children) = family(&w, &node, Policy::FailFast, Then::Resume, 4).await;
    let running = w.claim_id(&node, children[2]).await;
    end(&w, &node, children[0], done()).await;
    w.judge_children().await;
    assert_eq!(w.state(parent).await, State::Waiting);
    end(&w, &node, children[1], fails()).await;
    w.judge_children().await;
    assert_eq!(w.state(parent).await, State::Failed);
    assert!(w.dead_letter(parent).await.is_some());
    assert_eq!(w.state(children[3]).await, State::Cancelled);
    assert_eq!(w.state(children[2]).await, State::Running);
    let renewed = w.renew(node.renewal(&[&running])).await;
    assert!(renewed.requests[0].1.cancel, "a running child is asked");
    assert_eq!(w.settle(&running, retryable()).await.state, State::Cancelled);
    w.sound().await;
}

pub async fn totals_freeze_when_the_parent_ends(w: World) {
    let node = w.node("a").await;
    let (parent, children) = family(&w, &node, Policy::FailFast, Then::End, 3).await;
    end(&w, &node, children[0], fails()).await;
    w.judge_children().await;
    let frozen = w.get(parent).await.standing.children;
    assert_eq!(frozen, Some(totals(0, 1, 0, 2)));
    w.judge_children().await;
    assert_eq!(w.states(&children[1..]).await, [State::Cancelled, State::Cancelled]);
    assert_eq!(w.get(parent).await.standing.children, frozen);
}

pub async fn cancelling_a_parent_cancels_its_children(w: World) {
    let node = w.node("a").await;
    let (parent, children) = family(&w, &node, Policy::All, Then::Resume, 3).await;
    let running = w.claim_id(&node, children[0]).await;
    w.settle(&w.claim_id(&node, children[1]).await, retryable()).await;
    w.cancel(parent).await;
    let frozen = w.get(parent).await.standing.children;
    assert_eq!(frozen, Some(totals(0, 0, 0, 3)));
    w.judge_children().await;
    let states = w.states(&children).await;
    assert_eq!(states, [State::Running, State::Cancelled, State::Cancelled]);
    assert_eq!(w.settle(&running, retryable()).await.state, State::Cancelled);
    w.judge_children().await;
    assert_eq!(w.state(parent).await, State::Cancelled);
    assert_eq!(w.get(parent).await.standing.children, frozen);
    w.sound().await;
}

pub async fn a_cancel_reaches_grandchildren(w: World) {
    let node = w.node("a").await;
    let (top, middle) = family(&w, &node, Policy::All, Then::End, 1).await;
    let leaf = w.submit(w.task().under(middle[0], "1")).await;
    w.cancel(top).await;
    w.judge_children().await;
    assert_eq!(w.states(&[middle[0], leaf]).await, [State::Cancelled, State::Cancelled]);
}

pub async fn a_cancel_asked_of_a_running_parent_reaches_its_children(w: World) {
    let node = w.node("a").await;
    let parent = w.running(&node).await;
    let child = w.submit(w.task().under(parent.task.id, "1")).await;
    w.cancel(parent.task.id).await;
    w.judge_children().await;
    assert_eq!(w.state(child).await, State::Queued, "not before the parent has ended");
    assert_eq!(w.settle(&parent, retryable()).await.state, State::Cancelled);
    w.judge_children().await;
    assert_eq!(w.state(child).await, State::Cancelled);
}

pub async fn many_children_are_ended_in_bounded_pieces(w: World) {
    let node = w.node("a").await;
    let (parent, children) = family(&w, &node, Policy::All, Then::End, 25).await;
    w.cancel(parent).await;
    let first = w.upkeep(Job::Children, 10).await;
    let ended = w.list("state:cancelled kind:child").await.len();
    assert!(ended <= 10, "{ended} at once");
    assert!(first.more);
    for _ in 0..20 {
        w.upkeep(Job::Children, 10).await;
    }
    assert_eq!(w.list("state:cancelled kind:child").await.len(), children.len());
}

pub async fn a_child_is_never_purged_before_its_parent(w: World) {
    let node = w.tireless("a").await;
    let (parent, children) = family(&w, &node, Policy::All, Then::End, 2).await;
    end(&w, &node, children[0], done()).await;
    w.advance(30 * DAY);
    let purge = Job::Purge(Retention { ended: DAY, ..Retention::default() });
    w.exhaust(purge).await;
    assert!(w.find(children[0]).await.is_some(), "its parent still counts it");
    end(&w, &node, children[1], done()).await;
    w.judge_children().await;
    assert_eq!(w.get(parent).await.standing.children, Some(totals(2, 0, 0, 0)));
    w.advance(DAY + HOUR);
    w.exhaust(purge).await;
    assert!(w.list("").await.is_empty());
}
