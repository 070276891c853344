//! What people do to queues and nodes: pause, resume, bounds, drain. Each is
//! told once, shown to readers and kept in the audit list.

use crate::harness::make::queue;
use crate::harness::world::{ann, only};
use crate::harness::{Node, Shape, World, refused};
use windlass_core::control::Changed;
use windlass_core::error::Code;
use windlass_core::state::State;
use windlass_core::store::{Change, NodeChange, QueueChange};

async fn place_events(w: &World) -> Vec<&'static str> {
    let feed = w.feed().await.into_iter().filter(|e| e.task.is_none());
    feed.map(|e| e.name.as_str()).filter(|n| *n != "node.joined").collect()
}

pub async fn pausing_a_queue_is_told_and_shown(w: World) {
    w.submit(w.task().queue("q")).await;
    assert_eq!(w.change_queue("q", QueueChange::Pause).await, Changed::Done);
    assert!(w.queue("q").await.paused);
    assert_eq!(w.change_queue("q", QueueChange::Pause).await, Changed::Already);
    assert_eq!(w.change_queue("q", QueueChange::Resume).await, Changed::Done);
    assert!(!w.queue("q").await.paused);
    assert_eq!(w.change_queue("q", QueueChange::Resume).await, Changed::Already);
    assert_eq!(place_events(&w).await, ["queue.paused", "queue.resumed"]);
    let event = w.feed().await.into_iter().find(|e| e.name.as_str() == "queue.paused");
    assert_eq!(event.unwrap().queue, Some(queue("q")));
}

pub async fn a_queue_may_be_paused_before_its_first_task(w: World) {
    w.change_queue("q", QueueChange::Pause).await;
    assert!(w.queue("q").await.paused);
    w.submit(w.task().queue("q")).await;
    let info = w.queue("q").await;
    assert_eq!((info.paused, info.count(State::Queued)), (true, 1));
}

pub async fn the_bounds_of_a_queue_are_shown(w: World) {
    w.change_queue("q", QueueChange::Concurrency(Some(4))).await;
    w.change_queue("q", QueueChange::DepthMax(Some(100))).await;
    let info = w.queue("q").await;
    assert_eq!((info.concurrency, info.depth_max, info.paused), (Some(4), Some(100), false));
    w.change_queue("q", QueueChange::Concurrency(None)).await;
    let info = w.queue("q").await;
    assert_eq!((info.concurrency, info.depth_max), (None, Some(100)));
}

pub async fn changes_to_queues_are_in_the_audit_list(w: World) {
    for change in [
        QueueChange::Pause,
        QueueChange::Concurrency(Some(2)),
        QueueChange::Drain,
        QueueChange::Resume,
    ] {
        w.change_queue("q", change).await;
        let row = w.audit().await.remove(0);
        assert!(row.action.contains(change.verb()), "{}", row.action);
        assert!(row.target.contains('q'), "{}", row.target);
        assert_eq!((row.by, row.at), (ann(), w.at()));
    }
}

pub async fn changes_to_a_node_are_told_once(w: World) {
    let node = w.node("a").await;
    let table = [
        (NodeChange::Pause, Changed::Done),
        (NodeChange::Pause, Changed::Already),
        (NodeChange::Resume, Changed::Done),
        (NodeChange::Resume, Changed::Already),
        (NodeChange::Drain, Changed::Done),
        (NodeChange::Drain, Changed::Already),
    ];
    for (change, expected) in table {
        assert_eq!(w.change_node(&node, change).await, expected, "{change:?}");
    }
    assert_eq!(place_events(&w).await, ["node.paused", "node.resumed", "node.draining"]);
    let row = w.audit().await.remove(0);
    assert!(row.action.contains("drain"), "{}", row.action);
    assert!(row.target.contains(&node.id.to_string()), "{}", row.target);
}

pub async fn an_unknown_node_is_not_found(w: World) {
    let before = w.snapshot().await;
    let id = Node::stranger().id;
    for change in [NodeChange::Pause, NodeChange::Resume, NodeChange::Drain] {
        refused(only(w.operate(Change::Node { id, change }).await), Code::NotFound);
    }
    w.unchanged_since(&before).await;
    assert_eq!(w.audit().await[0].outcome, Code::NotFound.as_str());
}
