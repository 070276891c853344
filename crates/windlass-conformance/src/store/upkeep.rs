//! The small periodic jobs about time: promote and expire. Each does bounded
//! pieces, says when there is more, and touches only what is due.

use crate::harness::make::{DAY, HOUR, MINUTE, SECOND, queue, retryable};
use crate::harness::{Shape, World};
use windlass_core::control::TaskChange;
use windlass_core::outcome::{Outcome, Reason};
use windlass_core::state::State;
use windlass_core::store::Job;

pub async fn only_due_tasks_are_promoted(w: World) {
    let node = w.tireless("a").await;
    let soon = w.submit(w.task().queue("q").after(MINUTE)).await;
    let late = w.submit(w.task().after(HOUR)).await;
    w.advance_to(w.get(soon).await.standing.due_at.minus(SECOND));
    let upkept = w.upkeep(Job::Promote, 100).await;
    assert_eq!((upkept.done, upkept.more, upkept.ready), (0, false, vec![]));
    w.advance(SECOND);
    let upkept = w.upkeep(Job::Promote, 100).await;
    assert_eq!((upkept.done, upkept.more, upkept.ready), (1, false, vec![queue("q")]));
    let standing = w.get(soon).await.standing;
    assert_eq!((standing.state, standing.waiting_on), (State::Queued, None));
    assert_eq!(w.state(late).await, State::Scheduled);
    assert_eq!(w.story(soon).await, ["task.submitted", "task.scheduled"], "in line is no news");
    let due = w.get(late).await.standing.due_at;
    assert_eq!(w.store().next_due().await.unwrap(), Some(due));
    assert!(w.claim(&node, 10).await.is_empty());
    w.sound().await;
}

pub async fn promotion_comes_in_pieces(w: World) {
    let tasks = (0..5).map(|i| w.task().queue(["q", "r"][i % 2]).after(MINUTE)).collect();
    let ids = w.submit_all(tasks).await;
    w.advance(MINUTE);
    let mut ready = vec![];
    for (done, more) in [(2, true), (2, true), (1, false)] {
        let upkept = w.upkeep(Job::Promote, 2).await;
        assert_eq!((upkept.done, upkept.more), (done, more));
        ready.extend(upkept.ready);
    }
    ready.sort();
    ready.dedup();
    assert_eq!(ready, [queue("q"), queue("r")]);
    assert_eq!(w.states(&ids).await, [State::Queued; 5]);
    assert_eq!(w.promote().await, 0);
}

pub async fn promoted_tasks_keep_their_place_in_line(w: World) {
    let node = w.tireless("a").await;
    let old = w.submit(w.task().after(MINUTE)).await;
    let urgent = w.submit(w.task().priority(5).after(MINUTE)).await;
    let young = w.submit(w.task()).await;
    w.advance(MINUTE);
    w.promote().await;
    let claimed = crate::harness::world::ids(&w.claim(&node, 10).await);
    assert_eq!(claimed, [urgent, old, young]);
}

pub async fn retries_and_snoozes_are_promoted(w: World) {
    let node = w.tireless("a").await;
    let retry = w.running(&node).await;
    w.settle(&retry, retryable()).await;
    let snooze = w.running(&node).await;
    w.settle(&snooze, Outcome::Snooze { until: w.at().plus(SECOND) }).await;
    w.advance(MINUTE);
    assert_eq!(w.promote().await, 2);
    let ids = [retry.task.id, snooze.task.id];
    assert_eq!(w.states(&ids).await, [State::Queued, State::Queued]);
    assert_eq!(w.get(ids[0]).await.standing.retries, 1);
}

pub async fn late_tasks_expire_with_a_dead_letter(w: World) {
    let late = w.submit(w.task().deadline(MINUTE)).await;
    let fine = w.submit(w.task().deadline(HOUR)).await;
    let never = w.submit(w.task()).await;
    w.advance(MINUTE);
    assert_eq!(w.exhaust(Job::Expire).await, 0, "not before the deadline has passed");
    w.advance(SECOND);
    assert_eq!(w.exhaust(Job::Expire).await, 1);
    let failure = w.get(late).await.standing.failure.unwrap();
    assert_eq!(failure.reason, Some(Reason::Expired));
    assert_eq!(w.dead_letter(late).await.unwrap().reason, Reason::Expired);
    assert_eq!(w.states(&[fine, never]).await, [State::Queued, State::Queued]);
    w.sound().await;
}

pub async fn a_task_nobody_promoted_in_time_expires(w: World) {
    let id = w.submit(w.task().after(MINUTE).deadline(MINUTE)).await;
    w.advance(HOUR);
    assert_eq!(w.exhaust(Job::Expire).await, 1);
    assert_eq!(w.state(id).await, State::Failed);
    assert_eq!(w.store().next_due().await.unwrap(), None);
    assert_eq!(w.promote().await, 0);
    w.sound().await;
}

pub async fn only_tasks_that_never_started_expire(w: World) {
    let node = w.tireless("a").await;
    let released = w.submit(w.task().deadline(MINUTE)).await;
    w.settle(&w.claim_one(&node).await, Outcome::Release).await;
    let running = w.submit(w.task().deadline(MINUTE)).await;
    w.claim_id(&node, running).await;
    let held = w.submit(w.task().deadline(MINUTE)).await;
    w.change(held, TaskChange::Pause).await;
    w.advance(DAY);
    assert_eq!(w.exhaust(Job::Expire).await, 0);
    let states = w.states(&[released, running, held]).await;
    assert_eq!(states, [State::Queued, State::Running, State::Paused]);
}

pub async fn expiry_comes_in_pieces(w: World) {
    let tasks = (0..5).map(|_| w.task().deadline(MINUTE)).collect();
    w.submit_all(tasks).await;
    w.advance(HOUR);
    for (done, more) in [(2, true), (2, true), (1, false)] {
        let upkept = w.upkeep(Job::Expire, 2).await;
        assert_eq!((upkept.done, upkept.more), (done, more));
    }
    assert_eq!(w.dead_letters().await.len(), 5);
}

pub async fn jobs_without_work_write_nothing(w: World) {
    let node = w.tireless("a").await;
    w.running(&node).await;
    w.failed(&node).await;
    w.submit_all(vec![w.task(), w.task().after(HOUR), w.task().keyed("k", 1)]).await;
    let before = w.snapshot().await;
    let purge = Job::Purge(windlass_core::store::Retention::default());
    for job in [Job::Promote, Job::Expire, Job::Children, purge, Job::Keys, Job::Nodes] {
        let upkept = w.upkeep(job, 100).await;
        assert_eq!((upkept.done, upkept.more), (0, false), "{job:?}");
    }
    w.unchanged_since(&before).await;
}
