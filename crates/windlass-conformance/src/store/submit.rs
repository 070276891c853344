//! Submitting: what a task is born as, what is refused, and that a refusal
//! writes nothing. Keys and depth have files of their own.

use crate::harness::make::{HOUR, MINUTE, SECOND, json, queue};
use crate::harness::{Shape, World, refused, refused_as};
use std::collections::BTreeSet;
use windlass_core::children::Policy;
use windlass_core::error::{Code, ErrorKind};
use windlass_core::id::TaskId;
use windlass_core::outcome::WaitingOn;
use windlass_core::retry::Exponential;
use windlass_core::state::State;
use windlass_core::store::Submitted;
use windlass_core::task::{Input, NewTask, SUBMIT_MAX, Task, Timeouts};

pub async fn a_task_is_queued_with_its_event(w: World) {
    let new = w.task();
    let answers = w.try_submit(vec![new.clone()]).await.unwrap();
    assert_eq!(answers, [Submitted::New { id: new.id, state: State::Queued }]);
    let mut expected = Task::born(&new, w.at());
    expected.standing.event_n = 1;
    assert_eq!(w.get(new.id).await, expected);
    let events = w.events_of(new.id).await;
    assert_eq!(w.story(new.id).await, ["task.submitted"]);
    assert_eq!(events[0].at, w.at());
    assert_eq!(events[0].kind, Some(new.kind));
    assert_eq!(events[0].queue, Some(queue("default")));
    w.sound().await;
}

pub async fn a_delayed_task_waits_for_its_time(w: World) {
    let new = w.task().after(MINUTE);
    let due = w.at().plus(MINUTE);
    let answers = w.try_submit(vec![new.clone()]).await.unwrap();
    assert_eq!(answers, [Submitted::New { id: new.id, state: State::Scheduled }]);
    let standing = w.get(new.id).await.standing;
    assert_eq!((standing.state, standing.due_at), (State::Scheduled, due));
    assert_eq!(standing.waiting_on, Some(WaitingOn::Time { until: due }));
    assert_eq!(w.story(new.id).await, ["task.submitted", "task.scheduled"]);
    assert_eq!(w.store().next_due().await.unwrap(), Some(due));
}

pub async fn a_start_in_the_past_is_now(w: World) {
    let mut new = w.task();
    new.start = windlass_core::task::Start::At(w.at().minus(HOUR));
    let id = w.submit(new).await;
    assert_eq!(w.state(id).await, State::Queued);
    assert_eq!(w.get(id).await.standing.due_at, w.at());
}

pub async fn an_empty_plan_completes_at_once(w: World) {
    let node = w.node("a").await;
    let new = w.task().plan(&[]);
    let answers = w.try_submit(vec![new.clone()]).await.unwrap();
    assert_eq!(answers, [Submitted::New { id: new.id, state: State::Completed }]);
    assert_eq!(w.get(new.id).await.standing.finished_at, Some(w.at()));
    assert_eq!(w.story(new.id).await, ["task.submitted", "task.completed"]);
    assert!(w.claim(&node, 10).await.is_empty());
    assert!(w.ask(node.ids(&[new.id])).await.is_empty());
    w.sound().await;
}

pub async fn every_field_reads_back(w: World) {
    let mut new = w
        .task()
        .kind("image.resize")
        .queue("media/high:1")
        .payload(r#"{"text":"ü \" \\ \u0000","list":[1,2.5,null]}"#)
        .priority(-10)
        .after(MINUTE)
        .deadline(HOUR)
        .plan(&["fetch", "scale"])
        .label("tenant", "acme 'n' sons")
        .unique_for("asset-42", HOUR)
        .policy(Policy::AtLeast(3));
    let extras = new.extras_mut();
    extras.correlation_id = Some("corr-1".to_owned());
    extras.user_id = Some("user-1".to_owned());
    extras.trace = Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned());
    extras.input = Some(Input { uri: "s3://bucket/key".to_owned(), sha256: None });
    extras.limit_key = Some("acme".to_owned());
    extras.retry = Some(Exponential::STEP);
    extras.timeouts = Some(Timeouts { step: Some(SECOND), task: None });
    w.submit(new.clone()).await;
    let mut expected = Task::born(&new, w.at());
    expected.standing.event_n = 2;
    assert_eq!(w.get(new.id).await, expected);
    assert_eq!(expected.deadline, Some(w.at().plus(MINUTE).plus(HOUR)));
    let correlated = w.events_of(new.id).await;
    assert!(correlated.iter().all(|e| e.correlation_id.as_deref() == Some("corr-1")));
}

pub async fn answers_come_in_order(w: World) {
    let mut tasks = w.many(20);
    tasks.reverse();
    let expected: Vec<TaskId> = tasks.iter().map(|t| t.id).collect();
    assert_eq!(w.submit_all(tasks).await, expected);
    w.sound().await;
}

pub async fn one_bad_task_spoils_the_whole_batch(w: World) {
    let before = w.snapshot().await;
    let mut tasks = w.many(10);
    tasks[7].priority = 11;
    refused(w.try_submit(tasks).await, Code::InvalidFields);
    w.unchanged_since(&before).await;
}

pub async fn bad_fields_are_refused(w: World) {
    let before = w.snapshot().await;
    type Spoil = fn(NewTask) -> NewTask;
    let table: [Spoil; 6] = [
        |t| t.payload("null"),
        |t| t.priority(-11),
        |t| t.plan(&["a", "a"]),
        |t| t.plan(&["not a name"]),
        |t| t.label("tenant", "two\nlines"),
        |t| t.unique_live(""),
    ];
    for spoil in table {
        refused_as(w.try_submit(vec![spoil(w.task())]).await, ErrorKind::Invalid);
    }
    w.unchanged_since(&before).await;
}

pub async fn an_empty_batch_is_answered_empty(w: World) {
    let before = w.snapshot().await;
    assert_eq!(w.try_submit(vec![]).await.unwrap(), []);
    w.unchanged_since(&before).await;
}

pub async fn more_tasks_than_a_batch_holds_are_refused(w: World) {
    let before = w.snapshot().await;
    refused_as(w.try_submit(w.many(SUBMIT_MAX + 1)).await, ErrorKind::Invalid);
    w.unchanged_since(&before).await;
}

pub async fn a_batch_may_be_as_large_as_promised(w: World) {
    let ids = w.submit_all(w.many(SUBMIT_MAX)).await;
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), SUBMIT_MAX);
    let stats = w.stats().await;
    assert_eq!(stats.states.get(&State::Queued), Some(&(SUBMIT_MAX as u64)));
    assert_eq!(w.told("task.submitted").await, SUBMIT_MAX);
}

pub async fn the_same_submission_again_writes_nothing(w: World) {
    let batch = vec![w.task(), w.task().after(MINUTE).unique_live("u"), w.task().plan(&[])];
    let first = w.try_submit(batch.clone()).await.unwrap();
    let before = w.snapshot().await;
    w.advance(SECOND);
    let again = w.try_submit(batch).await.unwrap();
    assert!(again.iter().all(|s| matches!(s, Submitted::New { .. })), "{again:?}");
    let ids = |list: &[Submitted]| list.iter().map(|s| s.id()).collect::<Vec<_>>();
    assert_eq!(ids(&again), ids(&first));
    w.unchanged_since(&before).await;
}

pub async fn the_same_submission_again_after_the_end_runs_nothing(w: World) {
    let node = w.node("a").await;
    let new = w.task();
    w.submit(new.clone()).await;
    let claimed = w.claim_one(&node).await;
    w.submit(new.clone()).await;
    assert_eq!(w.state(new.id).await, State::Running);
    w.finish(&claimed).await;
    let before = w.snapshot().await;
    assert_eq!(w.submit(new).await, claimed.task.id);
    w.unchanged_since(&before).await;
}

pub async fn an_id_with_other_content_is_a_conflict(w: World) {
    let new = w.task();
    w.submit(new.clone()).await;
    let before = w.snapshot().await;
    let other = NewTask { payload: json(r#"{"size":2}"#), ..new };
    refused_as(w.try_submit(vec![w.task(), other]).await, ErrorKind::Conflict);
    w.unchanged_since(&before).await;
}

pub async fn an_id_twice_in_one_batch_makes_one_task(w: World) {
    let new = w.task();
    let answers = w.try_submit(vec![new.clone(), w.task(), new.clone()]).await.unwrap();
    assert_eq!((answers[0].id(), answers[2].id()), (new.id, new.id));
    assert_eq!(w.story(new.id).await, ["task.submitted"]);
    assert_eq!(w.list("").await.len(), 2);
    w.sound().await;
}

pub async fn an_id_twice_in_one_batch_with_other_content_is_a_conflict(w: World) {
    let new = w.task();
    let other = NewTask { payload: json(r#"{"size":2}"#), ..new.clone() };
    let before = w.snapshot().await;
    refused_as(w.try_submit(vec![new, other]).await, ErrorKind::Conflict);
    w.unchanged_since(&before).await;
}

pub async fn a_missing_parent_is_not_found(w: World) {
    let before = w.snapshot().await;
    let orphan = w.task().under(w.id(), "1");
    refused(w.try_submit(vec![w.task(), orphan]).await, Code::NotFound);
    w.unchanged_since(&before).await;
}

pub async fn an_ended_parent_takes_no_children(w: World) {
    let parent = w.submit(w.task().plan(&[])).await;
    let before = w.snapshot().await;
    let late = w.task().under(parent, "1");
    refused_as(w.try_submit(vec![w.task(), late]).await, ErrorKind::Conflict);
    w.unchanged_since(&before).await;
}

pub async fn a_childs_key_is_unique_under_its_parent(w: World) {
    let parent = w.submit(w.task()).await;
    let child = w.submit(w.task().under(parent, "1")).await;
    let before = w.snapshot().await;
    let again = w.try_submit(vec![w.task().under(parent, "1")]).await.unwrap();
    assert_eq!(again, [Submitted::Existing { id: child }]);
    w.unchanged_since(&before).await;
}

pub async fn a_child_names_its_parent(w: World) {
    let parent = w.submit(w.task()).await;
    let child = w.submit(w.task().under(parent, "1")).await;
    assert_eq!(w.get(child).await.parent, Some(parent));
    assert_eq!(w.store().children(parent).await.unwrap().total, 1);
}
