//! Bulk jobs. A step changes its tasks and moves the job on in one transaction,
//! once, whoever repeats it; what no longer matches is left alone; the audit
//! list has the beginning and the end, not each task.

use crate::harness::look::filter;
use crate::harness::make::{DAY, SECOND, requeue};
use crate::harness::world::{ann, only};
use crate::harness::{World, refused};
use std::sync::atomic::{AtomicI64, Ordering};
use windlass_core::batch::{
    Action, Among, Batch, BatchState, BatchStep, Counts, Order, RUNNING_MAX, Target, Verdict, Walk,
};
use windlass_core::control::{Changed, TaskChange};
use windlass_core::error::{Code, Result};
use windlass_core::id::{BatchId, TaskId};
use windlass_core::state::State;
use windlass_core::store::{Batches, Change, Job, Retention};

static NEXT: AtomicI64 = AtomicI64::new(1);

fn order(action: Action, text: &str) -> Order {
    Order::new(BatchId::from_key(NEXT.fetch_add(1, Ordering::Relaxed)), action, filter(text))
}

async fn start(w: &World, order: Order) -> Batch {
    let id = order.id;
    let answer = only(w.operate(Change::Batch(Box::new(order))).await);
    assert_eq!(answer.expect("a batch that begins"), Changed::Done);
    stored(w, id).await
}

async fn stored(w: &World, id: BatchId) -> Batch {
    w.store().batch(id).await.expect("an answer").expect("a batch")
}

fn step(batch: &Batch, tasks: &[TaskId], walk: Walk) -> BatchStep {
    let targets = tasks.iter().map(|&task| Target { task, again: None }).collect();
    let (version, verdicts) = (batch.version, vec![]);
    BatchStep { batch: batch.id(), version, verdicts, targets, skipped: 0, walk }
}

async fn try_step(w: &World, step: &BatchStep) -> Result<Vec<Result<Changed>>> {
    w.store().change(Change::Step(Box::new(step.clone())), ann(), w.now()).await
}

async fn take(w: &World, step: &BatchStep) -> (Vec<Result<Changed>>, Batch) {
    let answers = try_step(w, step).await.expect("a step that is taken");
    assert_eq!(answers.len(), step.targets.len(), "one answer per target");
    (answers, stored(w, step.batch).await)
}

async fn cancelled(w: &World, n: usize) -> Vec<TaskId> {
    let ids = w.submit_all(w.many(n)).await;
    w.operate(Change::Tasks { ids: ids.clone(), change: TaskChange::Cancel }).await;
    ids
}

pub async fn a_batch_is_kept_as_it_was_ordered(w: World) {
    let mut wanted = order(Action::Requeue, "state:cancelled label.a:b");
    wanted.rate = Some("5/s".parse().unwrap());
    (wanted.from_step, wanted.stop_above) = (Some("scan".to_owned()), Some(20));
    let batch = start(&w, wanted.clone()).await;
    assert_eq!(batch, Batch::new(wanted.clone(), &ann(), w.at()));
    let again = only(w.operate(Change::Batch(Box::new(wanted))).await).unwrap();
    assert_eq!(again, Changed::Already);
    let row = w.audit().await.remove(0);
    assert_eq!((row.action.as_str(), row.outcome.as_str(), row.by), ("requeue", "done", ann()));
    assert!(row.target.contains(&batch.id().to_string()), "{}", row.target);
    assert!(row.target.contains("label.a:b"), "{}", row.target);
}

pub async fn a_bad_order_is_refused(w: World) {
    let bad = Change::Batch(Box::new(order(Action::Cancel, "")));
    refused(w.store().change(bad, ann(), w.now()).await, Code::InvalidFields);
    assert!(w.store().batches(Batches::All, None, 10).await.unwrap().is_empty());
}

pub async fn batches_are_listed_newest_first(w: World) {
    let mut ids = vec![];
    for _ in 0..3 {
        ids.push(start(&w, order(Action::Pause, "queue:q")).await.id());
    }
    w.operate(Change::StopBatch(ids[1])).await;
    let list = async |which, before, limit| -> Vec<BatchId> {
        let found = w.store().batches(which, before, limit).await.unwrap();
        found.iter().map(Batch::id).collect()
    };
    assert_eq!(list(Batches::All, None, 10).await, [ids[2], ids[1], ids[0]]);
    assert_eq!(list(Batches::All, Some(ids[2]), 1).await, [ids[1]]);
    assert_eq!(list(Batches::Running, None, 10).await, [ids[2], ids[0]]);
    assert_eq!(w.store().batch(BatchId::from_key(-5)).await.unwrap(), None);
}

pub async fn a_step_changes_tasks_and_moves_on_together(w: World) {
    let ids = cancelled(&w, 4).await;
    let batch = start(&w, order(Action::Requeue, "state:cancelled")).await;
    w.advance(SECOND);
    let first = step(&batch, &[ids[3], ids[2]], Walk::To(ids[2]));
    let (answers, batch) = take(&w, &first).await;
    assert!(answers.iter().all(|a| matches!(a, Ok(Changed::Done))), "{answers:?}");
    assert_eq!((batch.version, batch.before, batch.updated_at), (1, Some(ids[2]), w.at()));
    assert_eq!(batch.counts, Counts { matched: 2, changed: 2, ..Counts::default() });
    use State::{Cancelled, Queued};
    assert_eq!(w.states(&ids).await, [Cancelled, Cancelled, Queued, Queued]);
    assert_eq!(w.get(ids[3]).await.standing.run, 2);
    let (_, batch) = take(&w, &step(&batch, &[ids[1], ids[0]], Walk::End)).await;
    assert_eq!((batch.state, batch.finished_at), (BatchState::Done, Some(w.at())));
    assert_eq!(batch.counts.changed, 4);
    assert_eq!(w.told("task.requeued").await, 4);
    w.sound().await;
}

pub async fn a_step_sent_again_touches_nothing(w: World) {
    let ids = cancelled(&w, 2).await;
    let batch = start(&w, order(Action::Requeue, "state:cancelled")).await;
    let once = step(&batch, &ids, Walk::To(ids[0]));
    take(&w, &once).await;
    // So that it would match again.
    w.operate(Change::Tasks { ids: ids.clone(), change: TaskChange::Cancel }).await;
    let (before, kept) = (w.snapshot().await, stored(&w, batch.id()).await);
    refused(try_step(&w, &once).await, Code::VersionConflict);
    w.unchanged_since(&before).await;
    assert_eq!(stored(&w, batch.id()).await, kept);
    assert_eq!(w.get(ids[0]).await.standing.run, 2);
}

pub async fn an_unknown_batch_takes_no_step(w: World) {
    let ids = cancelled(&w, 1).await;
    let batch = Batch::new(order(Action::Requeue, "state:cancelled"), &ann(), w.at());
    refused(try_step(&w, &step(&batch, &ids, Walk::End)).await, Code::NotFound);
    refused(only(w.operate(Change::StopBatch(batch.id())).await), Code::NotFound);
    assert_eq!(w.state(ids[0]).await, State::Cancelled);
}

pub async fn a_stopped_batch_takes_no_step(w: World) {
    let ids = cancelled(&w, 1).await;
    let batch = start(&w, order(Action::Requeue, "state:cancelled")).await;
    let stop = async || only(w.operate(Change::StopBatch(batch.id())).await).unwrap();
    assert_eq!(stop().await, Changed::Done);
    let row = w.audit().await.remove(0);
    assert_eq!((row.action.as_str(), row.target), ("stop", batch.id().to_string()));
    assert_eq!(stop().await, Changed::Already);
    refused(try_step(&w, &step(&batch, &ids, Walk::End)).await, Code::StateConflict);
    assert_eq!(w.state(ids[0]).await, State::Cancelled);
    let kept = stored(&w, batch.id()).await;
    assert_eq!((kept.state, kept.reason.as_deref()), (BatchState::Stopped, Some("stopped by ann")));
}

pub async fn what_no_longer_matches_is_left_alone(w: World) {
    let ids = cancelled(&w, 2).await;
    let batch = start(&w, order(Action::Requeue, "state:cancelled run:1")).await;
    w.change(ids[0], requeue()).await;
    w.cancel(ids[0]).await;
    w.advance(SECOND);
    let late = cancelled(&w, 1).await[0];
    let gone = TaskId::from_key(11);
    let targets = [late, ids[1], ids[0], gone];
    let (answers, batch) = take(&w, &step(&batch, &targets, Walk::End)).await;
    let codes: Vec<_> = answers.iter().map(|a| a.as_ref().err().map(|e| e.code())).collect();
    let (conflict, nothing) = (Some(Code::StateConflict), Some(Code::NotFound));
    assert_eq!(codes, [conflict, None, conflict, nothing]);
    assert_eq!(w.get(ids[0]).await.standing.run, 2, "once, by the person");
    assert_eq!((w.state(late).await, w.state(ids[1]).await), (State::Cancelled, State::Queued));
    let counts = Counts { matched: 4, changed: 1, skipped: 3, ..Counts::default() };
    assert_eq!(batch.counts, counts);
}

pub async fn one_that_is_refused_does_not_harm_the_others(w: World) {
    let ids = cancelled(&w, 2).await;
    let mut wanted = order(Action::Requeue, "state:cancelled");
    wanted.from_step = Some("scan".to_owned());
    let batch = start(&w, wanted).await;
    let before = w.stats().await.newest_event;
    let (answers, batch) = take(&w, &step(&batch, &ids, Walk::End)).await;
    assert!(answers.iter().all(Result::is_err), "there is no such step: {answers:?}");
    assert_eq!((batch.counts.failed, batch.errors.len()), (2, 2));
    assert_eq!((batch.errors[0].task, batch.errors[0].code.as_str()), (ids[0], "invalid-fields"));
    assert!(w.feed_after(before).await.is_empty(), "a refusal is not told");
    assert_eq!(w.states(&ids).await, [State::Cancelled, State::Cancelled]);
}

pub async fn a_running_task_is_asked(w: World) {
    let node = w.tireless("a").await;
    let claimed = w.running(&node).await;
    let batch = start(&w, order(Action::Cancel, "state:running")).await;
    let (answers, batch) = take(&w, &step(&batch, &[claimed.task.id], Walk::End)).await;
    assert_eq!(*only(answers).as_ref().unwrap(), Changed::Requested);
    assert_eq!((batch.counts.requested, batch.counts.changed), (1, 0));
    assert!(w.get(claimed.task.id).await.standing.requests.cancel);
}

pub async fn a_rerun_makes_its_own_task(w: World) {
    let old = cancelled(&w, 1).await[0];
    let mut wanted = order(Action::Rerun, "state:cancelled");
    wanted.stop_above = Some(50);
    let batch = start(&w, wanted).await;
    refused(try_step(&w, &step(&batch, &[old], Walk::End)).await, Code::InvalidFields);
    let new = w.id();
    let mut rerun = step(&batch, &[old], Walk::To(old));
    rerun.targets[0].again = Some(new);
    let (_, batch) = take(&w, &rerun).await;
    let task = w.get(new).await;
    assert_eq!(task.extras.as_ref().and_then(|e| e.rerun_of), Some(old));
    assert_eq!(batch.again.watched, [new], "the new one is watched");
    let mut news = step(&batch, &[], Walk::End);
    news.verdicts = vec![(new, Verdict::Failed)];
    let (_, batch) = take(&w, &news).await;
    assert_eq!((batch.again.answered, batch.again.failed), (1, 1));
    assert!(batch.again.watched.is_empty());
}

pub async fn only_dead_letters_where_that_is_asked_for(w: World) {
    let node = w.tireless("a").await;
    let (kept, dropped) = (w.failed(&node).await, w.failed(&node).await);
    let mut wanted = order(Action::Requeue, "state:failed");
    wanted.among = Among::DeadLetters;
    let batch = start(&w, wanted).await;
    w.change(dropped, TaskChange::Discard).await;
    let (_, batch) = take(&w, &step(&batch, &[dropped, kept], Walk::End)).await;
    assert_eq!((batch.counts.changed, batch.counts.skipped), (1, 1));
    assert_eq!((w.state(kept).await, w.state(dropped).await), (State::Queued, State::Failed));
}

pub async fn discarding_takes_letters_off_the_list(w: World) {
    let node = w.tireless("a").await;
    let failed = w.failed(&node).await;
    let batch = start(&w, order(Action::Discard, "state:failed")).await;
    take(&w, &step(&batch, &[failed], Walk::End)).await;
    assert!(w.dead_letters().await.is_empty());
    assert_eq!(w.state(failed).await, State::Failed);
}

pub async fn the_audit_list_has_beginning_and_end(w: World) {
    let ids = cancelled(&w, 3).await;
    let rows = w.audit().await.len();
    let batch = start(&w, order(Action::Requeue, "state:cancelled")).await;
    let (_, batch) = take(&w, &step(&batch, &ids[1..], Walk::To(ids[1]))).await;
    take(&w, &step(&batch, &ids[..1], Walk::End)).await;
    let audit = w.audit().await;
    assert_eq!(audit.len(), rows + 2, "{audit:?}");
    assert_eq!((audit[0].action.as_str(), &audit[0].by), ("requeue", &ann()));
    assert_eq!(audit[0].target, batch.id().to_string());
    assert!(audit[0].outcome.starts_with("done: 3 changed"), "{}", audit[0].outcome);
}

pub async fn no_more_than_may_run_are_begun(w: World) {
    let mut newest = None;
    for _ in 0..RUNNING_MAX {
        newest = Some(start(&w, order(Action::Pause, "queue:q")).await.id());
    }
    let one_more = order(Action::Pause, "queue:q");
    let begin = async || only(w.operate(Change::Batch(Box::new(one_more.clone()))).await);
    refused(begin().await, Code::StateConflict);
    assert_eq!(w.audit().await[0].outcome, Code::StateConflict.as_str());
    assert_eq!(w.store().batch(one_more.id).await.unwrap(), None);
    w.operate(Change::StopBatch(newest.unwrap())).await;
    assert_eq!(begin().await.unwrap(), Changed::Done);
}

pub async fn old_batches_go_and_running_ones_stay(w: World) {
    let running = start(&w, order(Action::Pause, "queue:q")).await;
    let ended = start(&w, order(Action::Pause, "queue:q")).await;
    take(&w, &step(&ended, &[], Walk::End)).await;
    let purge = |audit| Job::Purge(Retention { audit, ..Retention::default() });
    w.advance(2 * DAY);
    w.exhaust(purge(3 * DAY)).await;
    assert!(w.store().batch(ended.id()).await.unwrap().is_some());
    w.exhaust(purge(DAY)).await;
    assert!(w.store().batch(ended.id()).await.unwrap().is_none());
    assert_eq!(stored(&w, running.id()).await, running);
}

pub async fn a_batch_goes_on_after_reopening(w: World) {
    let ids = cancelled(&w, 2).await;
    let mut wanted = order(Action::Requeue, "state:cancelled");
    wanted.rate = Some("5/s".parse().unwrap());
    let batch = start(&w, wanted).await;
    let (_, batch) = take(&w, &step(&batch, &ids[1..], Walk::To(ids[1]))).await;
    let w = w.reopen().await;
    assert_eq!(stored(&w, batch.id()).await, batch);
    let (_, batch) = take(&w, &step(&batch, &ids[..1], Walk::End)).await;
    assert_eq!((batch.counts.changed, batch.state), (2, BatchState::Done));
}
