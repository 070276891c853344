//! Heartbeats: one call keeps all of a node's leases, tells it what it lost and
//! what people want, and gives back what a lost claim answer left behind. An
//! ended lease is never revived.

use crate::harness::make::{SECOND, done, lease, retryable, step};
use crate::harness::world::{LEASE, only};
use crate::harness::{Node, World, refused};
use windlass_core::control::{Changed, TaskChange};
use windlass_core::error::Code;
use windlass_core::lease::{ClaimNo, Requests, Token};
use windlass_core::outcome::Outcome;
use windlass_core::state::State;
use windlass_core::store::{AttemptEnd, NodeChange, Renewal, Stage, Tally, Write};

pub async fn a_renewal_extends_the_lease(w: World) {
    let node = w.node("a").await;
    let claimed = w.running(&node).await;
    let feed = w.feed().await;
    w.advance(10 * SECOND);
    let renewed = w.renew(node.renewal(&[&claimed])).await;
    assert_eq!(renewed.lease_until, w.at().plus(LEASE));
    assert!(renewed.lost.is_empty() && renewed.requests.is_empty());
    assert_eq!((renewed.given_back, renewed.paused, renewed.draining), (0, false, false));
    let info = w.node_info(&node).await.unwrap();
    assert_eq!((info.heartbeat_at, info.lease_until), (w.at(), renewed.lease_until));
    assert_eq!(info.active, 1);
    assert_eq!(w.feed().await, feed, "a heartbeat is no news");
    assert_eq!(w.get(claimed.task.id).await, claimed.task);
}

pub async fn an_ended_lease_is_never_revived(w: World) {
    let node = w.node("a").await;
    let claimed = w.running(&node).await;
    w.advance_to(node.lease_until);
    let before = w.snapshot().await;
    refused(w.try_renew(node.renewal(&[&claimed])).await, Code::LeaseLost);
    refused(w.try_renew(Node::stranger().renewal(&[])).await, Code::LeaseLost);
    w.unchanged_since(&before).await;
}

pub async fn what_is_no_longer_held_is_told(w: World) {
    let (node, other) = (w.node("a").await, w.node("b").await);
    let (kept, ended) = (w.running(&node).await, w.running(&node).await);
    w.finish(&ended).await;
    let released = w.running(&node).await;
    w.settle(&released, Outcome::Release).await;
    w.claim_one(&other).await;
    let renewed = w.renew(node.renewal(&[&kept, &ended, &released])).await;
    let mut lost = renewed.lost;
    lost.sort();
    let mut expected = vec![ended.task.id, released.task.id];
    expected.sort();
    assert_eq!(lost, expected, "also a task that another node holds now");
    assert_eq!(renewed.given_back, 0);
}

pub async fn requests_are_told_for_held_tasks_only(w: World) {
    let (a, b) = (w.node("a").await, w.node("b").await);
    let (mine, quiet, theirs) = (w.running(&a).await, w.running(&a).await, w.running(&b).await);
    assert_eq!(w.cancel(mine.task.id).await, Changed::Requested);
    assert_eq!(w.change(mine.task.id, TaskChange::Pause).await, Changed::Requested);
    assert_eq!(w.change(theirs.task.id, TaskChange::Rollback).await, Changed::Requested);
    let renewed = w.renew(a.renewal(&[&mine, &quiet])).await;
    let wish = Requests { cancel: true, pause: true, rollback: false };
    assert_eq!(renewed.requests, [(mine.task.id, wish)]);
    let again = w.renew(a.renewal(&[&mine, &quiet])).await;
    assert_eq!(again.requests, [(mine.task.id, wish)], "until it is acted upon");
    let renewed = w.renew(b.renewal(&[&theirs])).await;
    let wish = Requests { rollback: true, ..Requests::NONE };
    assert_eq!(renewed.requests, [(theirs.task.id, wish)]);
}

pub async fn a_lost_claim_answer_goes_back_with_nothing_burnt(w: World) {
    let node = w.node("a").await;
    let held = w.running(&node).await;
    let unknown = w.running(&node).await;
    let id = unknown.task.id;
    let renewed = w.renew(node.renewal(&[&held])).await;
    assert_eq!((renewed.given_back, renewed.lost), (1, vec![]));
    let standing = w.get(id).await.standing;
    assert_eq!((standing.state, standing.leased), (State::Queued, false));
    assert_eq!((standing.retries, standing.crashes), (0, 0));
    assert_eq!(w.attempts(id).await[0].ended, Some((AttemptEnd::GivenBack, w.at())));
    assert_eq!(w.state(held.task.id).await, State::Running);
    assert_eq!(w.claim_one(&node).await.task.standing.token, Token(2));
    assert_eq!(w.story(id).await, ["task.submitted", "task.started", "task.started"]);
    w.sound().await;
}

pub async fn a_request_survives_a_lost_claim_answer(w: World) {
    let node = w.node("a").await;
    let id = w.running(&node).await.task.id;
    assert_eq!(w.cancel(id).await, Changed::Requested);
    w.renew(node.renewal(&[])).await;
    // Whether it ends at once or with its next attempt is the store's choice.
    for claimed in w.claim(&node, 10).await {
        w.settle(&claimed, retryable()).await;
    }
    assert_eq!(w.state(id).await, State::Cancelled);
}

pub async fn writes_with_a_lease_given_back_are_refused(w: World) {
    let node = w.node("a").await;
    let claimed = w.running(&node).await;
    w.renew(node.renewal(&[])).await;
    let before = w.snapshot().await;
    refused(w.try_settle(&claimed, done()).await, Code::LeaseLost);
    let steps = vec![step("fetch", 1)];
    refused(w.try_write(Write { steps, ..Write::new(lease(&claimed)) }).await, Code::LeaseLost);
    w.unchanged_since(&before).await;
}

pub async fn claims_not_yet_answered_are_left_alone(w: World) {
    let node = w.node("a").await;
    let early = w.running(&node).await;
    let answered = node.latest_claim();
    let late = w.running(&node).await;
    let renewed = w.renew(Renewal { answered, ..node.renewal(&[]) }).await;
    assert_eq!(renewed.given_back, 1);
    assert_eq!(w.state(early.task.id).await, State::Queued);
    assert_eq!(w.state(late.task.id).await, State::Running);
    w.finish(&late).await;
    let renewed = w.renew(Renewal { answered: ClaimNo(0), ..node.renewal(&[]) }).await;
    assert_eq!(renewed.given_back, 0);
}

pub async fn a_take_over_can_be_given_back_too(w: World) {
    let (a, b) = (w.node("a").await, w.tireless("b").await);
    let id = w.running(&a).await.task.id;
    w.advance(LEASE + SECOND);
    w.ask(b.expired(1)).await;
    assert_eq!(w.renew(b.renewal(&[])).await.given_back, 1);
    assert_eq!(w.claim_one(&b).await.task.standing.token, Token(3));
    assert_eq!(w.state(id).await, State::Running);
}

pub async fn a_rollback_goes_back_as_a_rollback(w: World) {
    let node = w.node("a").await;
    let id = w.failed(&node).await;
    w.change(id, TaskChange::Rollback).await;
    w.claim_one(&node).await;
    assert_eq!(w.renew(node.renewal(&[])).await.given_back, 1);
    assert_eq!(w.state(id).await, State::RollingBack);
    assert_eq!(w.claim_one(&node).await.task.state(), State::RollingBack);
}

pub async fn tasks_of_other_nodes_are_not_given_back(w: World) {
    let (a, b) = (w.node("a").await, w.node("b").await);
    let claimed = w.running(&a).await;
    for _ in 0..3 {
        w.claim(&b, 1).await;
    }
    assert_eq!(w.renew(b.renewal(&[])).await.given_back, 0);
    w.finish(&claimed).await;
}

pub async fn a_leaving_node_is_gone_once_it_holds_nothing(w: World) {
    let node = w.node("a").await;
    let (held, dropped) = (w.running(&node).await, w.running(&node).await);
    let leaving = |held: &[&_]| Renewal { stage: Stage::Leaving, ..node.renewal(held) };
    assert_eq!(w.renew(leaving(&[&held])).await.given_back, 1);
    assert_eq!(w.state(dropped.task.id).await, State::Queued);
    assert_eq!(w.node_info(&node).await.unwrap().stage, Stage::Leaving);
    w.finish(&held).await;
    w.renew(leaving(&[])).await;
    assert!(w.nodes().await.is_empty());
    refused(w.try_renew(node.renewal(&[])).await, Code::LeaseLost);
    refused(w.try_ask(node.ready(1)).await, Code::LeaseLost);
    assert_eq!(w.node("b").await.slot, node.slot, "its slot is free");
}

pub async fn counts_and_stage_are_shown(w: World) {
    let node = w.node("a").await;
    for (consumed, failed, stage) in [(5, 1, Stage::Serving), (7, 2, Stage::Draining)] {
        w.renew(Renewal { consumed, failed, stage, ..node.renewal(&[]) }).await;
        let info = w.node_info(&node).await.unwrap();
        assert_eq!((info.consumed, info.failed, info.stage), (consumed, failed, stage));
    }
}

pub async fn counts_of_several_voices_add_up(w: World) {
    let node = w.node("a").await;
    let say = |consumed, failed, tally| Renewal { consumed, failed, tally, ..node.renewal(&[]) };
    for (said, expected) in [
        (say(5, 1, Tally::More), (5, 1)),
        (say(2, 0, Tally::More), (7, 1)),
        (say(0, 0, Tally::More), (7, 1)),
        (say(3, 2, Tally::Total), (3, 2)),
    ] {
        w.renew(said).await;
        let info = w.node_info(&node).await.unwrap();
        assert_eq!((info.consumed, info.failed), expected);
    }
}

pub async fn what_people_want_of_the_node_is_told(w: World) {
    let (node, other) = (w.node("a").await, w.node("b").await);
    let flags = async |node: &Node| {
        let renewed = w.renew(node.renewal(&[])).await;
        (renewed.paused, renewed.draining)
    };
    assert_eq!(flags(&node).await, (false, false));
    w.change_node(&node, NodeChange::Pause).await;
    assert_eq!(flags(&node).await, (true, false));
    assert!(w.node_info(&node).await.unwrap().paused);
    w.change_node(&node, NodeChange::Resume).await;
    assert_eq!(flags(&node).await, (false, false));
    w.change_node(&node, NodeChange::Drain).await;
    assert!(flags(&node).await.1);
    assert!(flags(&node).await.1, "until it has left");
    assert_eq!(flags(&other).await, (false, false));
}

pub async fn many_held_tasks_are_renewed_in_one_call(w: World) {
    let node = w.node("a").await;
    w.submit_all(w.many(1500)).await;
    let mut held = w.claim(&node, 1000).await;
    held.extend(w.claim(&node, 1000).await);
    assert_eq!(held.len(), 1500);
    let dropped = held.pop().unwrap();
    let renewed = w.renew(node.renewal(&held.iter().collect::<Vec<_>>())).await;
    assert_eq!((renewed.given_back, renewed.lost.len()), (1, 0));
    assert_eq!(only(w.list("state:queued").await).id, dropped.task.id);
    assert_eq!(w.node_info(&node).await.unwrap().active, 1499);
}
