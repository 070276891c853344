//! Claiming what is ready: order, bounds, what is passed over, and the lease
//! that comes with each task. Taking over from dead nodes is in
//! `claim_expired.rs`.

use crate::harness::make::{HOUR, MINUTE, SECOND, done, lane, lane_of, queue, step};
use crate::harness::world::{ids, only};
use crate::harness::{Node, Shape, World, refused};
use windlass_core::control::TaskChange;
use windlass_core::error::Code;
use windlass_core::event::EventData;
use windlass_core::id::TaskId;
use windlass_core::lease::Token;
use windlass_core::outcome::{Outcome, Reason};
use windlass_core::state::State;
use windlass_core::store::{CLAIM_MAX, Claim, QueueChange};

pub async fn a_claim_gives_a_lease(w: World) {
    let node = w.node("a").await;
    let id = w.submit(w.task()).await;
    w.advance(SECOND);
    let claimed = w.claim_one(&node).await;
    assert_eq!(claimed.checkpoint, None);
    assert!(!claimed.alone);
    let standing = &claimed.task.standing;
    assert_eq!((standing.state, standing.leased), (State::Running, true));
    assert_eq!((standing.token, standing.attempt, standing.run), (Token(1), 1, 1));
    assert_eq!((standing.node, standing.started_at), (Some(node.id), Some(w.at())));
    assert_eq!(claimed.task, w.get(id).await);
    assert_eq!(w.story(id).await, ["task.submitted", "task.started"]);
    let told = EventData::Started { run: 1, attempt: 1, node: node.id };
    assert_eq!(w.events_of(id).await[1].data.to_json(), told.to_json());
    let attempt = only(w.attempts(id).await);
    assert_eq!((attempt.token, attempt.run, attempt.attempt), (Token(1), 1, 1));
    assert_eq!((attempt.node, attempt.started_at, attempt.ended), (node.id, w.at(), None));
    w.sound().await;
}

pub async fn a_claimed_task_is_not_claimed_again(w: World) {
    let (a, b) = (w.node("a").await, w.node("b").await);
    let id = w.submit(w.task()).await;
    w.claim_one(&a).await;
    let before = w.snapshot().await;
    for node in [&a, &b] {
        assert!(w.claim(node, 10).await.is_empty());
        assert!(w.ask(node.ids(&[id])).await.is_empty());
        assert!(w.ask(node.expired(10)).await.is_empty());
    }
    w.unchanged_since(&before).await;
}

pub async fn highest_priority_goes_first_then_the_oldest(w: World) {
    let node = w.node("a").await;
    let shapes = [("x", 0), ("y", 5), ("x", -10), ("x", 5), ("y", 0), ("z", 10), ("y", -10)];
    let mut tasks: Vec<_> =
        shapes.iter().map(|(kind, priority)| w.task().kind(kind).priority(*priority)).collect();
    let order = [5, 1, 3, 0, 4, 2, 6].map(|i| tasks[i].id);
    // Age is the id's, not the order of arrival.
    tasks.reverse();
    w.submit_all(tasks).await;
    assert_eq!(ids(&w.claim(&node, 4).await), order[..4]);
    assert_eq!(ids(&w.claim(&node, 4).await), order[4..]);
}

pub async fn no_more_than_asked_for(w: World) {
    let node = w.node("a").await;
    w.submit_all(w.many(5)).await;
    assert!(w.claim(&node, 0).await.is_empty());
    assert_eq!(w.claim(&node, 2).await.len(), 2);
    assert_eq!(w.claim(&node, 2).await.len(), 2);
    assert_eq!(w.claim(&node, 2).await.len(), 1);
    assert!(w.claim(&node, 2).await.is_empty());
}

pub async fn a_claim_never_takes_more_than_the_maximum(w: World) {
    let node = w.node("a").await;
    w.submit_all(w.many(CLAIM_MAX + 5)).await;
    assert_eq!(w.claim(&node, usize::MAX).await.len(), CLAIM_MAX);
    assert_eq!(w.claim(&node, usize::MAX).await.len(), 5);
    let all = w.submit_all(w.many(CLAIM_MAX + 5)).await;
    assert_eq!(w.ask(node.ids(&all)).await.len(), CLAIM_MAX);
    assert_eq!(w.ask(node.ids(&all)).await.len(), 5);
}

pub async fn a_kinds_own_maximum_holds(w: World) {
    let node = w.node("a").await;
    let tasks = (0..9).map(|i| w.task().kind(["x", "y", "z"][i % 3])).collect();
    let all: Vec<TaskId> = w.submit_all(tasks).await;
    let lanes = vec![lane_of("default", 9, &[("x", 1), ("y", 2), ("z", 0)])];
    let claimed = w.ask(Claim { lanes, ..node.ready(9) }).await;
    assert_eq!(ids(&claimed), [all[0], all[1], all[4]]);
}

pub async fn kinds_nobody_serves_stay_queued(w: World) {
    let node = w.node("a").await;
    let tasks = vec![w.task().kind("x").priority(9), w.task().kind("y"), w.task().kind("x")];
    let all = w.submit_all(tasks).await;
    let lanes = vec![lane_of("default", 10, &[("y", 10)])];
    let claimed = w.ask(Claim { lanes: lanes.clone(), ..node.ready(10) }).await;
    assert_eq!(ids(&claimed), [all[1]]);
    assert!(w.ask(Claim { lanes, ..node.ids(&[all[0]]) }).await.is_empty());
    assert_eq!(w.states(&all).await, [State::Queued, State::Running, State::Queued]);
    assert_eq!(w.story(all[0]).await, ["task.submitted"]);
}

pub async fn kinds_nobody_serves_do_not_hide_those_behind_them(w: World) {
    let node = w.node("a").await;
    let mut tasks: Vec<_> = (0..1500).map(|_| w.task().kind("x").priority(9)).collect();
    let wanted = w.task().kind("y");
    let id = wanted.id;
    tasks.push(wanted);
    w.submit_all(tasks).await;
    let lanes = vec![lane_of("default", 10, &[("y", 10)])];
    assert_eq!(ids(&w.ask(Claim { lanes, ..node.ready(10) }).await), [id]);
}

pub async fn queues_not_served_are_left_alone(w: World) {
    let node = w.node("a").await;
    let id = w.submit(w.task().queue("other")).await;
    assert!(w.claim(&node, 10).await.is_empty());
    assert!(w.ask(node.ids(&[id])).await.is_empty());
    assert!(w.ask(Claim { lanes: vec![], ..node.ready(10) }).await.is_empty());
    assert_eq!(w.state(id).await, State::Queued);
}

pub async fn one_lane_cannot_starve_the_next(w: World) {
    let node = w.node("a").await;
    let (a, b) = two_backlogs(&w).await;
    let lanes = vec![lane("a", 3), lane("b", 3)];
    let claimed = ids(&w.ask(Claim { lanes, ..node.ready(6) }).await);
    assert_eq!(claimed, [&a[..3], &b[..3]].concat());
}

pub async fn lanes_are_served_in_their_order(w: World) {
    let node = w.node("a").await;
    let (a, b) = two_backlogs(&w).await;
    let lanes = vec![lane("b", 3), lane("a", 3)];
    let claimed = ids(&w.ask(Claim { lanes, ..node.ready(5) }).await);
    assert_eq!(claimed, [&b[..3], &a[..2]].concat());
}

async fn two_backlogs(w: &World) -> (Vec<TaskId>, Vec<TaskId>) {
    let a = w.submit_all((0..10).map(|_| w.task().queue("a")).collect()).await;
    let b = w.submit_all((0..10).map(|_| w.task().queue("b")).collect()).await;
    (a, b)
}

pub async fn a_paused_queue_gives_nothing(w: World) {
    let node = w.node("a").await;
    let id = w.submit(w.task()).await;
    w.change_queue("default", QueueChange::Pause).await;
    let before = w.snapshot().await;
    assert!(w.claim(&node, 10).await.is_empty());
    assert!(w.ask(node.ids(&[id])).await.is_empty());
    w.unchanged_since(&before).await;
    w.change_queue("default", QueueChange::Resume).await;
    assert_eq!(w.claim_one(&node).await.task.id, id);
}

pub async fn ids_that_are_not_ready_are_passed_over(w: World) {
    let node = w.node("a").await;
    let running = w.running(&node).await.task.id;
    let ended = w.failed(&node).await;
    let later = w.submit(w.task().after(HOUR)).await;
    let paused = w.submit(w.task()).await;
    w.change(paused, TaskChange::Pause).await;
    let other = w.submit(w.task().queue("other")).await;
    let ready = w.submit(w.task()).await;
    let unknown = w.id();
    let before = [running, ended, later, paused, other];
    let states = w.states(&before).await;
    let all = [unknown, running, ended, later, paused, other, ready, ready];
    assert_eq!(ids(&w.ask(node.ids(&all)).await), [ready]);
    assert_eq!(w.states(&before).await, states);
    w.sound().await;
}

pub async fn a_task_that_waits_for_a_time_is_not_ready(w: World) {
    let node = w.node("a").await;
    w.submit(w.task().after(MINUTE)).await;
    w.settle(&w.running(&node).await, Outcome::Snooze { until: w.at().plus(MINUTE) }).await;
    assert!(w.claim(&node, 10).await.is_empty());
}

pub async fn tokens_and_attempts_rise_with_each_claim(w: World) {
    let (a, b) = (w.node("a").await, w.node("b").await);
    let id = w.submit(w.task()).await;
    for n in 1..=4 {
        let node = [&a, &b][n as usize % 2];
        let claimed = w.claim_one(node).await;
        let standing = &claimed.task.standing;
        assert_eq!((standing.token, standing.attempt), (Token(n), n as u32));
        w.settle(&claimed, Outcome::Release).await;
    }
    let tokens: Vec<Token> = w.attempts(id).await.iter().map(|a| a.token).collect();
    assert_eq!(tokens, [1, 2, 3, 4].map(Token));
}

pub async fn a_node_whose_lease_ended_claims_nothing(w: World) {
    let (node, dead) = (w.tireless("a").await, w.node("b").await);
    w.running(&node).await;
    let id = w.submit(w.task()).await;
    w.advance_to(dead.lease_until);
    let before = w.snapshot().await;
    for node in [&dead, &Node::stranger()] {
        for claim in [node.ready(10), node.ids(&[id]), node.expired(10)] {
            refused(w.try_ask(claim).await, Code::LeaseLost);
        }
    }
    w.unchanged_since(&before).await;
}

pub async fn a_task_past_its_deadline_fails_instead_of_starting(w: World) {
    let node = w.tireless("a").await;
    let late = w.submit(w.task().deadline(MINUTE).priority(5)).await;
    let fine = w.submit(w.task().deadline(HOUR)).await;
    w.advance(2 * MINUTE);
    assert_eq!(ids(&w.claim(&node, 10).await), [fine]);
    let task = w.get(late).await;
    assert_eq!(task.state(), State::Failed);
    assert_eq!(task.standing.failure.unwrap().reason, Some(Reason::Expired));
    assert_eq!((task.standing.attempt, task.standing.finished_at), (0, Some(w.at())));
    assert_eq!(w.dead_letter(late).await.unwrap().reason, Reason::Expired);
    assert_eq!(w.story(late).await, ["task.submitted", "task.failed", "dead_letter.entered"]);
    w.sound().await;
}

pub async fn a_deadline_also_holds_for_claims_by_id(w: World) {
    let node = w.tireless("a").await;
    let late = w.submit(w.task().deadline(MINUTE)).await;
    w.advance(2 * MINUTE);
    assert!(w.ask(node.ids(&[late])).await.is_empty());
    assert_eq!(w.state(late).await, State::Failed);
}

pub async fn a_deadline_counts_from_when_the_task_is_due(w: World) {
    let node = w.tireless("a").await;
    let id = w.submit(w.task().after(HOUR).deadline(MINUTE)).await;
    w.advance(HOUR + MINUTE);
    w.promote().await;
    assert_eq!(w.claim_one(&node).await.task.id, id);
}

pub async fn a_task_that_once_started_does_not_expire(w: World) {
    let node = w.tireless("a").await;
    let id = w.submit(w.task().deadline(MINUTE)).await;
    w.settle(&w.claim_one(&node).await, Outcome::Release).await;
    w.advance(2 * MINUTE);
    assert_eq!(w.claim_one(&node).await.task.id, id);
}

pub async fn a_resumed_task_comes_with_its_checkpoint(w: World) {
    let (a, b) = (w.node("a").await, w.node("b").await);
    let first = w.running(&a).await;
    w.step(&first, step("fetch", 1)).await;
    w.step(&first, step("scale", 2)).await;
    w.settle(&first, Outcome::Release).await;
    let second = w.claim_one(&b).await;
    let checkpoint = second.checkpoint.unwrap();
    assert_eq!(Some(&checkpoint), w.checkpoint(first.task.id).await.as_ref());
    assert_eq!(second.task.standing.version, checkpoint.version);
    let names: Vec<&str> = checkpoint.finished().map(|e| e.record.name.as_str()).collect();
    assert_eq!(names, ["fetch", "scale"]);
    assert!(checkpoint.entries.iter().all(|e| e.node == a.id && e.attempt == 1));
}

pub async fn a_rollback_is_claimed_as_such(w: World) {
    let node = w.node("a").await;
    let id = w.failed(&node).await;
    w.change(id, TaskChange::Rollback).await;
    let claimed = w.claim_one(&node).await;
    assert_eq!((claimed.task.id, claimed.task.state()), (id, State::RollingBack));
    assert_eq!(claimed.task.standing.token, Token(2));
    assert!(w.claim(&node, 10).await.is_empty());
    assert_eq!(w.queue("default").await.leased, 1);
}

pub async fn a_queues_concurrency_holds_across_nodes(w: World) {
    let (a, b) = (w.node("a").await, w.node("b").await);
    w.change_queue("q", QueueChange::Concurrency(Some(3))).await;
    w.submit_all((0..10).map(|_| w.task().queue("q")).collect()).await;
    let from_q = |claim| Claim { lanes: vec![lane("q", 10)], ..claim };
    let first = w.ask(from_q(a.ready(2))).await;
    assert_eq!(first.len(), 2);
    assert_eq!(w.ask(from_q(b.ready(10))).await.len(), 1);
    assert!(w.ask(from_q(a.ready(10))).await.is_empty());
    w.settle(&first[0], done()).await;
    assert_eq!(w.ask(from_q(b.ready(10))).await.len(), 1);
    assert_eq!(w.queue("q").await.leased, 3);
    assert_eq!(w.queue("q").await.name, queue("q"));
}
