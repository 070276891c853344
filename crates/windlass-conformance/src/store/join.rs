//! How nodes come and how they are lost: identities and slots, the sole owner
//! of a store, and the job that announces the dead.

use crate::harness::make::{HOUR, SECOND, queue};
use crate::harness::world::{LEASE, new_node, only};
use crate::harness::{World, refused};
use std::collections::BTreeSet;
use windlass_core::error::Code;
use windlass_core::id::{OWN_SLOTS, SLOTS};
use windlass_core::lease::Token;
use windlass_core::state::State;
use windlass_core::store::{Job, NewNode, Renewal, Stage};

pub async fn a_node_is_seen_by_readers(w: World) {
    let queues = vec![queue("default"), queue("media")];
    let node = w.join(NewNode { remote: true, queues: queues.clone(), ..new_node("a") }).await;
    assert_eq!(node.lease_until, w.at().plus(LEASE));
    let info = only(w.nodes().await);
    assert_eq!((info.id, info.slot, info.name.as_str()), (node.id, node.slot, "a"));
    assert_eq!((info.remote, info.queues, info.version.as_str()), (true, queues, "1.2.3"));
    assert_eq!((info.joined_at, info.heartbeat_at), (w.at(), w.at()));
    assert_eq!((info.lease_until, info.stage), (node.lease_until, Stage::Serving));
    assert_eq!((info.paused, info.active, info.consumed, info.failed), (false, 0, 0, 0));
    assert_eq!(w.told("node.joined").await, 1);
}

pub async fn live_nodes_have_their_own_slots(w: World) {
    let mut slots = BTreeSet::new();
    let mut identities = BTreeSet::new();
    for _ in 0..20 {
        let node = w.node("same name").await;
        assert!(node.slot < SLOTS);
        slots.insert(node.slot);
        identities.insert(node.id);
    }
    assert_eq!((slots.len(), identities.len()), (20, 20));
    assert_eq!(slots.last().unwrap() - slots.first().unwrap(), 19, "no slot is left out");
}

pub async fn the_smallest_free_slot_is_given_again(w: World) {
    let _a = w.tireless("a").await;
    let b = w.node("b").await;
    let c = w.node("c").await;
    assert!(b.slot < c.slot);
    w.advance(HOUR);
    w.exhaust(Job::Nodes).await;
    let d = w.tireless("d").await;
    assert_eq!(d.slot, b.slot);
    assert_ne!(d.id, b.id);
    assert_eq!(w.tireless("e").await.slot, c.slot);
}

pub async fn a_sole_owner_voids_the_leases_before_it(w: World) {
    let old = w.tireless("old").await;
    let claimed = w.running(&old).await;
    let new = w.join(NewNode { sole: true, ..new_node("new") }).await;
    let taken = only(w.ask(new.expired(10)).await);
    assert_eq!((taken.task.id, taken.task.standing.token), (claimed.task.id, Token(2)));
    refused(w.try_renew(old.renewal(&[&claimed])).await, Code::LeaseLost);
    refused(w.try_ask(old.ready(1)).await, Code::LeaseLost);
    w.finish(&taken).await;
}

pub async fn a_sole_owner_leaves_remote_workers_alone(w: World) {
    let remote = w.join(NewNode { remote: true, ..new_node("worker") }).await;
    let claimed = w.running(&remote).await;
    let new = w.join(NewNode { sole: true, ..new_node("new") }).await;
    assert!(w.ask(new.expired(10)).await.is_empty());
    assert!(w.renew(remote.renewal(&[&claimed])).await.lost.is_empty());
    w.finish(&claimed).await;
    assert_eq!(w.state(claimed.task.id).await, State::Completed);
}

pub async fn a_sole_owner_spares_workers_nobody_could_hear(w: World) {
    let old = w.node("old").await;
    let (dead, lives) = (w.join(worker()).await, w.join(worker()).await);
    let (lost, kept) = (w.running(&dead).await, w.running(&lives).await);
    w.advance(LEASE - SECOND);
    w.renew(lives.renewal(&[&kept])).await;
    w.renew(old.renewal(&[])).await;
    w.advance(2 * SECOND);
    // The owner hears once more, and is away for longer than a lease.
    w.renew(old.renewal(&[])).await;
    w.advance(HOUR);
    let new = w.join(NewNode { sole: true, ..new_node("new") }).await;
    let info = w.node_info(&lives).await.expect("its row");
    assert_eq!(info.lease_until, w.at().plus(LEASE));
    let taken = only(w.ask(new.expired(10)).await);
    assert_eq!(taken.task.id, lost.task.id, "it was dead before");
    assert!(w.renew(lives.renewal(&[&kept])).await.lost.is_empty());
    w.finish(&kept).await;
    assert_eq!(w.state(kept.task.id).await, State::Completed);
}

pub async fn a_sole_owner_after_a_goodbye_spares_workers_too(w: World) {
    let old = w.node("old").await;
    let dead = w.join(worker()).await;
    let lost = w.running(&dead).await;
    w.advance(LEASE);
    w.exhaust(Job::Nodes).await;
    let lives = w.join(worker()).await;
    let kept = w.running(&lives).await;
    w.renew(Renewal { stage: Stage::Leaving, ..w.join(new_node("next")).await.renewal(&[]) }).await;
    w.advance(HOUR);
    let new = w.join(NewNode { sole: true, ..new_node("new") }).await;
    let taken = only(w.ask(new.expired(10)).await);
    assert_eq!(taken.task.id, lost.task.id, "it was announced as lost");
    assert!(w.renew(lives.renewal(&[&kept])).await.lost.is_empty());
    refused(w.try_ask(old.ready(1)).await, Code::LeaseLost);
}

pub async fn a_node_that_is_not_sole_voids_nothing(w: World) {
    let old = w.node("old").await;
    let claimed = w.running(&old).await;
    let new = w.node("new").await;
    assert!(w.ask(new.expired(10)).await.is_empty());
    w.finish(&claimed).await;
}

pub async fn a_lost_node_is_announced_once(w: World) {
    w.node("a").await;
    let b = w.tireless("b").await;
    w.exhaust(Job::Nodes).await;
    assert_eq!(w.told("node.lost").await, 0);
    w.advance(LEASE + SECOND);
    w.exhaust(Job::Nodes).await;
    assert_eq!(w.told("node.lost").await, 1);
    w.advance(HOUR);
    w.exhaust(Job::Nodes).await;
    assert_eq!(w.told("node.lost").await, 1);
    assert_eq!(only(w.nodes().await).id, b.id, "in the end it is forgotten");
}

pub async fn a_lost_node_with_tasks_is_announced_once_and_recovered(w: World) {
    let (a, b) = (w.node("a").await, w.tireless("b").await);
    let id = w.running(&a).await.task.id;
    w.advance(LEASE + SECOND);
    for _ in 0..3 {
        w.upkeep(Job::Nodes, 10).await;
        w.advance(HOUR);
    }
    assert_eq!(w.told("node.lost").await, 1);
    assert!(w.node_info(&a).await.is_some(), "it still holds something");
    let taken = only(w.ask(b.expired(10)).await);
    assert_eq!(taken.task.id, id);
    w.finish(&taken).await;
    w.advance(HOUR);
    w.exhaust(Job::Nodes).await;
    assert_eq!(only(w.nodes().await).id, b.id);
    assert_eq!(w.told("node.lost").await, 1);
    w.sound().await;
}

pub async fn many_lost_nodes_are_announced_in_pieces(w: World) {
    for _ in 0..5 {
        w.node("a").await;
    }
    w.advance(LEASE);
    let first = w.upkeep(Job::Nodes, 2).await;
    assert!(first.more && first.done <= 2, "{first:?}");
    w.exhaust(Job::Nodes).await;
    for _ in 0..4 {
        w.upkeep(Job::Nodes, 2).await;
    }
    assert_eq!(w.told("node.lost").await, 5);
}

pub async fn a_node_that_said_goodbye_is_not_lost(w: World) {
    let node = w.node("a").await;
    w.renew(Renewal { stage: Stage::Leaving, ..node.renewal(&[]) }).await;
    w.advance(LEASE + SECOND);
    w.exhaust(Job::Nodes).await;
    assert_eq!(w.told("node.lost").await, 0);
    assert!(w.nodes().await.is_empty());
}

fn worker() -> NewNode {
    NewNode { remote: true, ..new_node("worker") }
}

pub async fn dead_workers_keep_nobody_from_joining(w: World) {
    let holder = w.join(worker()).await;
    let held = w.running(&holder).await;
    for _ in 1..SLOTS - OWN_SLOTS {
        w.join(worker()).await;
    }
    for _ in 0..OWN_SLOTS {
        w.node("node").await;
    }
    refused(w.try_join(new_node("one more")).await, Code::StoreUnavailable);
    w.advance(LEASE);
    let node = w.node("one more").await;
    let told = usize::from(SLOTS);
    assert_eq!(w.told("node.lost").await, told, "all are announced, also what stays");
    let left: BTreeSet<_> = w.nodes().await.iter().map(|n| n.id).collect();
    assert_eq!(left, BTreeSet::from([holder.id, node.id]), "what it held must be taken over");
    assert_ne!(holder.slot, node.slot);
    assert_eq!(only(w.ask(node.expired(10)).await).task.id, held.task.id);
    w.exhaust(Job::Nodes).await;
    assert_eq!(w.told("node.lost").await, told, "and once");
}

pub async fn living_workers_leave_room_for_nodes(w: World) {
    for _ in 0..SLOTS - OWN_SLOTS {
        w.join(worker()).await;
    }
    refused(w.try_join(worker()).await, Code::StoreUnavailable);
    assert_eq!(w.nodes().await.len(), usize::from(SLOTS - OWN_SLOTS));
    for _ in 0..OWN_SLOTS {
        w.node("node").await;
    }
    refused(w.try_join(new_node("one more")).await, Code::StoreUnavailable);
    assert_eq!(w.told("node.lost").await, 0);
    // The sole owner knows that the others are gone.
    w.join(NewNode { sole: true, ..new_node("sole") }).await;
    assert_eq!(w.told("node.lost").await, usize::from(OWN_SLOTS));
    w.advance(LEASE);
    w.join(worker()).await;
}
