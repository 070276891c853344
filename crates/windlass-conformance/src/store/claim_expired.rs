//! Taking over from dead nodes: when it is allowed, what the next attempt gets,
//! and when the death of nodes is held against a task.

use crate::harness::make::{SECOND, done, lane, lane_of, lease, retryable, step};
use crate::harness::world::{LEASE, ids, new_node, only};
use crate::harness::{Node, Shape, World, refused};
use std::time::Duration;
use windlass_core::checkpoint::Version;
use windlass_core::control::{Changed, TaskChange};
use windlass_core::error::Code;
use windlass_core::id::TaskId;
use windlass_core::lease::{PoisonRule, Token};
use windlass_core::outcome::{Class, Outcome, Reason};
use windlass_core::state::State;
use windlass_core::store::{AttemptEnd, Claim, Claimed, NewNode, Write};

/// What a dying node was doing.
#[derive(Clone, Copy)]
enum Death {
    Idle,
    BegunByClaim,
    BegunByWrite,
}

/// A fresh node takes the task, and dies.
async fn die(w: &World, claim: impl FnOnce(&Node) -> Claim, death: Death) -> Claimed {
    let node = w.node("mortal").await;
    let begins = matches!(death, Death::BegunByClaim);
    let claimed = only(w.ask(Claim { begins, ..claim(&node) }).await);
    if matches!(death, Death::BegunByWrite) {
        w.write(Write { begins: true, ..Write::new(lease(&claimed)) }).await;
    }
    w.advance(LEASE + SECOND);
    claimed
}

async fn crashes(w: &World, id: TaskId) -> u32 {
    w.get(id).await.standing.crashes
}

pub async fn only_after_the_lease_has_ended(w: World) {
    let (a, b) = (w.node("a").await, w.tireless("b").await);
    let claimed = w.running(&a).await;
    w.advance_to(a.lease_until.minus(Duration::from_micros(1)));
    assert!(w.ask(b.expired(10)).await.is_empty());
    assert!(w.claim(&b, 10).await.is_empty(), "it is nobody's ready task");
    w.advance_to(a.lease_until);
    let taken = only(w.ask(b.expired(10)).await);
    assert_eq!(taken.task.id, claimed.task.id);
    assert_eq!((taken.task.standing.token, taken.task.standing.attempt), (Token(2), 2));
    assert_eq!(taken.task.standing.node, Some(b.id));
    refused(w.try_settle(&claimed, done()).await, Code::LeaseLost);
    w.settle(&taken, done()).await;
    assert_eq!(w.state(taken.task.id).await, State::Completed);
}

pub async fn it_is_told_and_kept_in_the_history(w: World) {
    let (a, b) = (w.node("a").await, w.tireless("b").await);
    let id = w.running(&a).await.task.id;
    w.advance(LEASE + SECOND);
    w.ask(b.expired(10)).await;
    let story = ["task.submitted", "task.started", "task.lease_lost", "task.started"];
    assert_eq!(w.story(id).await, story);
    let attempts = w.attempts(id).await;
    assert_eq!(attempts[0].ended, Some((AttemptEnd::Lost, w.at())));
    assert_eq!((attempts[1].node, attempts[1].ended), (b.id, None));
    assert_eq!(w.get(id).await.standing.retries, 0, "a lost lease burns no retry");
    w.sound().await;
}

pub async fn a_renewed_lease_keeps_its_tasks(w: World) {
    let (a, b) = (w.node("a").await, w.tireless("b").await);
    let claimed = w.running(&a).await;
    w.advance(LEASE - SECOND);
    w.renew(a.renewal(&[&claimed])).await;
    w.advance(LEASE - SECOND);
    assert!(w.ask(b.expired(10)).await.is_empty());
    w.finish(&claimed).await;
}

pub async fn only_queues_and_kinds_that_are_served(w: World) {
    let (a, b) = (w.node("a").await, w.tireless("b").await);
    let all = w.submit_all(vec![w.task().kind("x"), w.task().kind("y"), w.task().queue("q")]).await;
    let lanes = vec![lane("default", 9), lane("q", 9)];
    assert_eq!(w.ask(Claim { lanes, ..a.ready(9) }).await.len(), 3);
    w.advance(LEASE + SECOND);
    let lanes = vec![lane_of("default", 9, &[("y", 9)])];
    assert_eq!(ids(&w.ask(Claim { lanes, ..b.expired(9) }).await), [all[1]]);
    assert_eq!(w.ask(Claim { lanes: vec![lane("q", 9)], ..b.expired(9) }).await.len(), 1);
    assert_eq!(w.get(all[0]).await.standing.token, Token(1));
}

pub async fn no_more_than_asked_for(w: World) {
    let (a, b) = (w.node("a").await, w.tireless("b").await);
    w.submit_all(w.many(5)).await;
    w.claim(&a, 5).await;
    w.advance(LEASE + SECOND);
    assert_eq!(w.ask(b.expired(2)).await.len(), 2);
    assert_eq!(w.ask(b.expired(10)).await.len(), 3);
    assert!(w.ask(b.expired(10)).await.is_empty());
}

pub async fn a_later_attempt_resumes_from_the_checkpoint(w: World) {
    let (a, b) = (w.node("a").await, w.tireless("b").await);
    let claimed = w.running(&a).await;
    w.step(&claimed, step("fetch", 1)).await;
    w.advance(LEASE + SECOND);
    let taken = only(w.ask(b.expired(1)).await);
    let checkpoint = taken.checkpoint.clone().unwrap();
    assert_eq!(checkpoint.version, Version(1));
    assert_eq!(checkpoint.finished().count(), 1);
    w.step(&taken, step("scale", 2)).await;
    assert_eq!(w.finished(taken.task.id).await, ["fetch", "scale"]);
}

pub async fn a_rollback_is_taken_over_as_such(w: World) {
    let (a, b) = (w.node("a").await, w.tireless("b").await);
    let id = w.failed(&a).await;
    w.change(id, TaskChange::Rollback).await;
    w.claim_one(&a).await;
    w.advance(LEASE + SECOND);
    let taken = only(w.ask(b.expired(1)).await);
    assert_eq!((taken.task.id, taken.task.state()), (id, State::RollingBack));
    w.settle(&taken, Outcome::RolledBack).await;
    assert_eq!(w.state(id).await, State::RolledBack);
}

pub async fn a_death_between_steps_is_no_crash(w: World) {
    let id = w.submit(w.task()).await;
    die(&w, |n| n.ready(1), Death::Idle).await;
    die(&w, |n| n.expired(1), Death::Idle).await;
    assert_eq!(crashes(&w, id).await, 0);
}

pub async fn a_death_inside_a_step_is_a_crash(w: World) {
    let id = w.submit(w.task()).await;
    die(&w, |n| n.ready(1), Death::BegunByClaim).await;
    let second = die(&w, |n| n.expired(1), Death::BegunByWrite).await;
    assert_eq!(second.task.standing.crashes, 1);
    assert!(!second.alone);
    let third = die(&w, |n| n.expired(1), Death::Idle).await;
    assert_eq!(third.task.standing.crashes, 2);
    assert_eq!(crashes(&w, id).await, 2);
}

pub async fn a_recorded_step_clears_the_crashes(w: World) {
    let id = w.submit(w.task()).await;
    die(&w, |n| n.ready(1), Death::BegunByClaim).await;
    die(&w, |n| n.expired(1), Death::BegunByClaim).await;
    let node = w.node("b").await;
    let claimed = only(w.ask(node.expired(1)).await);
    assert_eq!((claimed.task.standing.crashes, claimed.alone), (2, true));
    w.step(&claimed, step("fetch", 1)).await;
    assert_eq!(crashes(&w, id).await, 0);
    w.advance(LEASE + SECOND);
    let again = die(&w, |n| n.expired(1), Death::Idle).await;
    assert!(!again.alone);
}

pub async fn a_node_that_dies_after_a_step_dies_inside_the_next(w: World) {
    let id = w.submit(w.task()).await;
    let node = w.node("a").await;
    let claimed = w.claim_one(&node).await;
    w.step(&claimed, step("fetch", 1)).await;
    w.advance(LEASE + SECOND);
    die(&w, |n| n.expired(1), Death::Idle).await;
    assert_eq!(crashes(&w, id).await, 1, "recording a step says that the task has begun");
}

pub async fn the_second_crash_makes_it_run_alone(w: World) {
    w.submit(w.task()).await;
    die(&w, |n| n.ready(1), Death::BegunByClaim).await;
    assert!(!die(&w, |n| n.expired(1), Death::BegunByClaim).await.alone);
    let node = w.node("b").await;
    let third = only(w.ask(node.expired(1)).await);
    assert!(third.alone);
    w.settle(&third, Outcome::Release).await;
    assert!(w.claim_one(&node).await.alone, "also when it comes from the queue");
}

pub async fn a_crash_while_alone_poisons_at_the_limit(w: World) {
    let id = w.submit(w.task()).await;
    die(&w, |n| n.ready(1), Death::BegunByClaim).await;
    die(&w, |n| n.expired(1), Death::BegunByClaim).await;
    assert!(die(&w, |n| n.expired(1), Death::BegunByWrite).await.alone);
    let node = w.node("b").await;
    assert!(w.ask(node.expired(1)).await.is_empty());
    let task = w.get(id).await;
    assert_eq!((task.state(), task.standing.crashes), (State::Failed, 3));
    let failure = task.standing.failure.unwrap();
    assert_eq!((failure.reason, failure.error.class), (Some(Reason::Poisoned), Class::Lost));
    assert_eq!(w.dead_letter(id).await.unwrap().reason, Reason::Poisoned);
    let story = w.story(id).await;
    assert_eq!(story[story.len() - 3..], ["task.lease_lost", "task.failed", "dead_letter.entered"]);
    assert_eq!(w.attempts(id).await[2].ended.unwrap().0, AttemptEnd::Lost);
    w.sound().await;
}

pub async fn a_death_while_it_waits_to_be_alone_is_no_crash(w: World) {
    let id = w.submit(w.task()).await;
    die(&w, |n| n.ready(1), Death::BegunByClaim).await;
    die(&w, |n| n.expired(1), Death::BegunByClaim).await;
    // However often: the claim says that tasks begin, but this one does not yet.
    for _ in 0..3 {
        let waiting = die(&w, |n| n.expired(1), Death::BegunByClaim).await;
        assert_eq!((waiting.task.standing.crashes, waiting.alone), (2, true));
    }
    assert_eq!((w.state(id).await, crashes(&w, id).await), (State::Running, 2));
    let begun = die(&w, |n| n.expired(1), Death::BegunByWrite).await;
    assert_eq!((begun.task.standing.crashes, begun.alone), (2, true));
    let node = w.node("b").await;
    assert!(w.ask(node.expired(1)).await.is_empty());
    let task = w.get(id).await;
    assert_eq!((task.state(), task.standing.crashes), (State::Failed, 3));
    assert_eq!(task.standing.failure.unwrap().reason, Some(Reason::Poisoned));
    w.sound().await;
}

pub async fn a_task_from_the_queue_waits_to_be_alone_too(w: World) {
    let id = w.submit(w.task()).await;
    die(&w, |n| n.ready(1), Death::BegunByClaim).await;
    die(&w, |n| n.expired(1), Death::BegunByClaim).await;
    let node = w.node("b").await;
    let claimed = only(w.ask(node.expired(1)).await);
    w.settle(&claimed, Outcome::Release).await;
    assert!(die(&w, |n| n.ready(1), Death::BegunByClaim).await.alone);
    let node = w.node("c").await;
    let claimed = only(w.ask(node.expired(1)).await);
    assert_eq!((claimed.task.standing.crashes, claimed.alone), (2, true));
    w.finish(&claimed).await;
    assert_eq!(w.state(id).await, State::Completed);
}

pub async fn a_limit_of_zero_never_poisons(w: World) {
    let id = w.submit(w.task()).await;
    let off = PoisonRule { limit: 0 };
    die(&w, |n| Claim { poison: off, ..n.ready(1) }, Death::BegunByClaim).await;
    for n in 1..=6 {
        let claimed = die(&w, |n| Claim { poison: off, ..n.expired(1) }, Death::BegunByClaim).await;
        assert_eq!((claimed.task.standing.crashes, claimed.alone), (n, false));
    }
    assert_eq!(w.state(id).await, State::Running);
}

pub async fn what_people_asked_of_the_dead_node_still_counts(w: World) {
    let (a, b) = (w.node("a").await, w.tireless("b").await);
    let id = w.running(&a).await.task.id;
    assert_eq!(w.cancel(id).await, Changed::Requested);
    w.advance(LEASE + SECOND);
    let taken = only(w.ask(b.expired(1)).await);
    assert!(taken.task.standing.requests.cancel);
    let renewed = w.renew(b.renewal(&[&taken])).await;
    assert_eq!(renewed.requests.len(), 1);
    assert!(renewed.requests[0].1.cancel);
    assert_eq!(w.settle(&taken, retryable()).await.state, State::Cancelled);
}

pub async fn a_process_that_lives_on_did_not_crash(w: World) {
    let id = w.submit(w.task()).await;
    let mut node = w.node("frozen").await;
    only(w.ask(Claim { begins: true, ..node.ready(1) }).await);
    for _ in 0..4 {
        w.advance(LEASE + SECOND);
        let again = NewNode { instead_of: Some(node.id), ..new_node("frozen") };
        node = w.join(again).await;
        let taken = only(w.ask(Claim { begins: true, ..node.expired(1) }).await);
        assert_eq!((taken.task.standing.crashes, taken.alone), (0, false));
    }
    w.advance(LEASE + SECOND);
    let other = w.node("other").await;
    only(w.ask(other.expired(1)).await);
    assert_eq!(crashes(&w, id).await, 1, "this time it died");
    w.sound().await;
}
