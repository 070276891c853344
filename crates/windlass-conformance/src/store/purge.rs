//! Retention: what is deleted when, in bounded pieces, and what never is. The
//! feed can be cut at its old end without harming a reader or a position.

use crate::harness::make::{DAY, HOUR, done, retryable, step, steps};
use crate::harness::world::only;
use crate::harness::{Shape, World};
use windlass_core::control::TaskChange;
use windlass_core::event::Position;
use windlass_core::state::State;
use windlass_core::store::{Change, Job, Retention, Submitted};

/// Keeps everything for years except what a case shortens.
fn keep() -> Retention {
    let years = 3650 * DAY;
    Retention { ended: years, dead_letters: years, events: years, audit: years }
}

pub async fn ended_tasks_go_after_their_time(w: World) {
    let node = w.tireless("a").await;
    let completed = w.running(&node).await;
    w.write(steps(&completed, vec![step("a", 1)])).await;
    w.finish(&completed).await;
    let cancelled = w.submit(w.task()).await;
    w.cancel(cancelled).await;
    w.advance(DAY - HOUR);
    let young = w.running(&node).await;
    w.finish(&young).await;
    let purge = Job::Purge(Retention { ended: DAY, ..keep() });
    assert_eq!(w.exhaust(purge).await, 0);
    w.advance(2 * HOUR);
    assert!(w.exhaust(purge).await > 0);
    for id in [completed.task.id, cancelled] {
        assert_eq!(w.find(id).await, None);
        assert!(w.attempts(id).await.is_empty());
        assert_eq!(w.checkpoint(id).await, None);
    }
    assert_eq!(w.list_ids("").await, [young.task.id]);
    assert_eq!(w.stats().await.states.get(&State::Completed), Some(&1));
}

pub async fn dead_letters_have_their_own_time(w: World) {
    let node = w.tireless("a").await;
    let (letter, discarded) = (w.failed(&node).await, w.failed(&node).await);
    w.change(discarded, TaskChange::Discard).await;
    w.advance(2 * DAY);
    let purge = Job::Purge(Retention { ended: DAY, dead_letters: 3 * DAY, ..keep() });
    w.exhaust(purge).await;
    assert_eq!(w.list_ids("").await, [letter], "a discarded one is merely ended");
    assert_eq!(w.dead_letters().await.len(), 1);
    w.advance(2 * DAY);
    w.exhaust(purge).await;
    assert!(w.list("").await.is_empty());
    assert!(w.dead_letters().await.is_empty());
    assert_eq!(w.stats().await.dead_letters, 0);
}

pub async fn live_tasks_are_never_deleted(w: World) {
    let node = w.tireless("a").await;
    let retrying = w.running(&node).await;
    w.settle(&retrying, retryable()).await;
    let running = w.running(&node).await;
    let paused = w.submit(w.task()).await;
    w.change(paused, TaskChange::Pause).await;
    w.submit_all(vec![w.task(), w.task().after(1000 * DAY)]).await;
    w.advance(900 * DAY / 3);
    let before = w.list("").await;
    w.exhaust(Job::Purge(Retention { events: 3650 * DAY, ..Retention::default() })).await;
    assert_eq!(w.list("").await, before);
    assert_eq!(before.len(), 5);
    w.finish(&running).await;
}

pub async fn a_live_key_keeps_its_task(w: World) {
    let node = w.tireless("a").await;
    let keyed = w.submit(w.task().keyed("k", 1)).await;
    w.finish(&w.claim_one(&node).await).await;
    w.advance(DAY - HOUR);
    let purge = Job::Purge(Retention { ended: HOUR, ..keep() });
    w.exhaust(purge).await;
    let again = w.try_submit(vec![w.task().keyed("k", 1)]).await.unwrap();
    assert_eq!(again, [Submitted::Replayed { id: keyed }]);
    assert!(w.find(keyed).await.is_some());
    w.advance(2 * HOUR);
    w.exhaust(Job::Keys).await;
    w.exhaust(purge).await;
    assert!(w.find(keyed).await.is_none());
}

pub async fn a_unique_time_keeps_its_task(w: World) {
    let node = w.tireless("a").await;
    let unique = w.submit(w.task().unique_for("u", 3 * DAY)).await;
    w.finish(&w.claim_one(&node).await).await;
    w.advance(2 * DAY);
    let purge = Job::Purge(Retention { ended: HOUR, ..keep() });
    w.exhaust(purge).await;
    let again = w.try_submit(vec![w.task().unique_for("u", DAY)]).await.unwrap();
    assert_eq!(again, [Submitted::Existing { id: unique }]);
    assert!(w.find(unique).await.is_some(), "an answer names a task that is there");
    w.advance(2 * DAY);
    w.exhaust(purge).await;
    assert!(w.find(unique).await.is_none());
}

pub async fn deletion_comes_in_pieces(w: World) {
    w.submit_all((0..25).map(|_| w.task().plan(&[])).collect()).await;
    w.advance(2 * DAY);
    let purge = Job::Purge(Retention { ended: DAY, ..keep() });
    let first = w.upkeep(purge, 10).await;
    assert!(first.more && first.done <= 10, "{first:?}");
    assert!(w.list("").await.len() >= 15);
    w.exhaust(purge).await;
    assert!(w.list("").await.is_empty());
}

pub async fn old_events_go_and_readers_go_on(w: World) {
    let old = w.submit_all(w.many(10)).await;
    let seen = w.store().events(Position::START, 5).await.unwrap().pop().unwrap().position;
    w.advance(2 * DAY);
    let young = w.submit(w.task()).await;
    let newest = w.stats().await.newest_event;
    w.exhaust(Job::Purge(Retention { events: DAY, ..keep() })).await;
    for position in [Position::START, seen] {
        let left = only(w.feed_after(position).await);
        assert_eq!((left.task, left.position), (Some(young), newest));
    }
    assert_eq!(w.list("").await.len(), 11, "the tasks stay: {old:?}");
}

pub async fn positions_are_never_given_again(w: World) {
    for _ in 0..3 {
        w.submit(w.task()).await;
    }
    let newest = w.stats().await.newest_event;
    w.advance(2 * DAY);
    w.exhaust(Job::Purge(Retention { events: DAY, ..keep() })).await;
    assert!(w.feed().await.len() <= 1, "the newest may stay as a mark");
    assert_eq!(w.stats().await.newest_event, newest);
    let id = w.submit(w.task()).await;
    let event = only(w.feed_after(newest).await);
    assert_eq!(event.task, Some(id));
    assert!(event.position > newest);
}

pub async fn old_audit_rows_go(w: World) {
    let id = w.submit(w.task()).await;
    w.change(id, TaskChange::Pause).await;
    w.advance(2 * DAY);
    w.change(id, TaskChange::Resume).await;
    assert_eq!(w.audit().await.len(), 2);
    w.exhaust(Job::Purge(Retention { audit: DAY, ..keep() })).await;
    let row = only(w.audit().await);
    assert!(row.action.contains("resume"), "{}", row.action);
}

pub async fn long_lists_go_to_the_end(w: World) {
    let node = w.tireless("a").await;
    let claimed = w.running(&node).await;
    for n in 1..=1100 {
        w.step(&claimed, step("s", n)).await;
    }
    let ids = vec![claimed.task.id; 1500];
    w.operate(Change::Tasks { ids, change: TaskChange::Pause }).await;
    w.advance(2 * DAY);
    let young = w.submit(w.task()).await;
    w.change(young, TaskChange::Cancel).await;
    w.exhaust(Job::Purge(Retention { events: DAY, audit: DAY, ..keep() })).await;
    assert!(w.feed().await.iter().all(|e| e.task == Some(young)));
    assert_eq!(w.audit().await.len(), 1);
}

pub async fn a_purged_id_is_free_of_ghosts(w: World) {
    let node = w.tireless("a").await;
    let new = w.task().unique_live("u").keyed("k", 1);
    w.submit(new).await;
    let claimed = w.claim_one(&node).await;
    w.settle(&claimed, done()).await;
    w.advance(30 * DAY);
    w.exhaust(Job::Keys).await;
    w.exhaust(Job::Purge(Retention { ended: DAY, ..keep() })).await;
    let again = w.task().unique_live("u").keyed("k", 1);
    let id = again.id;
    let answer = w.try_submit(vec![again]).await.unwrap();
    assert_eq!(answer, [Submitted::New { id, state: State::Queued }]);
    assert!(w.try_settle(&claimed, done()).await.is_err());
}
