//! Settlements: each outcome leads to its state, time, counters, events and
//! dead letter, and people's requests pick the alternative. Who may write is in
//! `record_refused.rs`, repeats are in `record_repeat.rs`, steps in `steps.rs`.

use crate::harness::make::{HOUR, MINUTE, done, done_with, fails, json, lease, retryable, step};
use crate::harness::make::{settled, waits};
use crate::harness::world::only;
use crate::harness::{Shape, World};
use windlass_core::checkpoint::Version;
use windlass_core::children::Then;
use windlass_core::control::{Changed, TaskChange};
use windlass_core::error::ErrorKind;
use windlass_core::event::{EventData, RESULT_MAX};
use windlass_core::json::Json;
use windlass_core::outcome::{Class, Outcome, Reason, TaskError, WaitingOn};
use windlass_core::retry::Exponential;
use windlass_core::state::State;
use windlass_core::store::{AttemptEnd, Write};
use windlass_core::task::Progress;

pub async fn done_completes_with_its_result(w: World) {
    let node = w.node("a").await;
    let claimed = w.running(&node).await;
    let id = claimed.task.id;
    w.advance(MINUTE / 4);
    let written = w.settle(&claimed, done_with(r#"{"made":[1,2]}"#)).await;
    assert_eq!((written.state, written.repeated), (State::Completed, false));
    let standing = w.get(id).await.standing;
    assert_eq!((standing.state, standing.leased), (State::Completed, false));
    assert_eq!(standing.result, Some(json(r#"{"made":[1,2]}"#)));
    assert_eq!(standing.finished_at, Some(w.at()));
    assert_eq!((standing.node, standing.failure), (Some(node.id), None));
    assert_eq!(w.story(id).await, ["task.submitted", "task.started", "task.completed"]);
    let told = w.events_of(id).await[2].data.to_json();
    assert_eq!(told, EventData::Result(json(r#"{"made":[1,2]}"#)).to_json());
    let ended = only(w.attempts(id).await).ended;
    assert_eq!(ended, Some((AttemptEnd::Settled(State::Completed), w.at())));
    assert!(w.claim(&node, 10).await.is_empty());
    w.sound().await;
}

pub async fn a_large_result_is_kept_but_not_told(w: World) {
    let node = w.node("a").await;
    let claimed = w.running(&node).await;
    let large = Json::trusted(format!("\"{}\"", "x".repeat(RESULT_MAX)));
    w.settle(&claimed, Outcome::Done { output: Some(large.clone()) }).await;
    assert_eq!(w.get(claimed.task.id).await.standing.result, Some(large));
    let events = w.events_of(claimed.task.id).await;
    assert_eq!(events[2].name.as_str(), "task.completed");
    assert_eq!(events[2].data.to_json(), Json::default());
}

pub async fn fail_ends_with_a_dead_letter(w: World) {
    let node = w.node("a").await;
    let mut new = w.task().kind("image.resize").payload(r#"{"asset":7}"#);
    new.extras_mut().correlation_id = Some("corr-1".to_owned());
    let id = w.submit(new).await;
    let claimed = w.claim_one(&node).await;
    let error = TaskError::new(Class::Fatal, "no such file").at_step("fetch", 0);
    w.settle(&claimed, Outcome::Error(error)).await;
    let standing = w.get(id).await.standing;
    assert_eq!((standing.state, standing.finished_at), (State::Failed, Some(w.at())));
    assert_eq!(standing.failure.unwrap().reason, Some(Reason::Fatal));
    let letter = only(w.dead_letters().await);
    assert_eq!((letter.task, letter.id), (Some(id), id.into()));
    assert_eq!((letter.kind.as_str(), letter.queue.as_str()), ("image.resize", "default"));
    assert_eq!((letter.reason, letter.class), (Reason::Fatal, Class::Fatal));
    assert_eq!((letter.message.as_str(), letter.step.as_deref()), ("no such file", Some("fetch")));
    assert_eq!((letter.attempts, letter.node, letter.at), (1, Some(node.id), w.at()));
    assert_eq!(letter.correlation_id.as_deref(), Some("corr-1"));
    assert_eq!(letter.payload, json(r#"{"asset":7}"#));
    let story = ["task.submitted", "task.started", "task.failed", "dead_letter.entered"];
    assert_eq!(w.story(id).await, story);
    let attempt = only(w.attempts(id).await);
    assert_eq!(attempt.ended.unwrap().0, AttemptEnd::Settled(State::Failed));
    assert_eq!(attempt.failure.unwrap().error.message, "no such file");
    w.sound().await;
}

pub async fn an_error_waits_for_its_retry(w: World) {
    let node = w.node("a").await;
    let claimed = w.running(&node).await;
    let id = claimed.task.id;
    w.settle(&claimed, retryable()).await;
    let until = w.at().plus(Exponential::TASK.first);
    let standing = w.get(id).await.standing;
    assert_eq!((standing.state, standing.due_at, standing.retries), (State::Retrying, until, 1));
    assert_eq!(standing.waiting_on, Some(WaitingOn::Time { until }));
    let failure = standing.failure.unwrap();
    assert_eq!((failure.reason, failure.error.message.as_str()), (None, "busy"));
    assert_eq!(w.store().next_due().await.unwrap(), Some(until));
    assert_eq!(w.story(id).await, ["task.submitted", "task.started", "task.retrying"]);
    assert!(w.dead_letters().await.is_empty());
    w.advance_to(until);
    w.promote().await;
    let again = w.claim_one(&node).await;
    assert_eq!((again.task.standing.retries, again.task.standing.attempt), (1, 2));
    let latest = w.get(id).await.standing.failure.expect("the latest error stays in sight");
    assert_eq!(latest.error.message, "busy");
}

pub async fn the_latest_error_stays_in_sight(w: World) {
    let node = w.tireless("a").await;
    let claimed = w.running(&node).await;
    let id = claimed.task.id;
    w.settle(&claimed, retryable()).await;
    let message = async || w.get(id).await.standing.failure.map(|f| f.error.message);
    for outcome in [Outcome::Release, done()] {
        w.advance(MINUTE);
        w.promote().await;
        w.settle(&w.claim_one(&node).await, outcome).await;
        assert_eq!(message().await.as_deref(), Some("busy"));
    }
    let failed: Vec<bool> = w.attempts(id).await.iter().map(|a| a.failure.is_some()).collect();
    assert_eq!(failed, [true, false, false], "it belongs to its own attempt");
}

pub async fn the_last_retry_is_the_end(w: World) {
    let node = w.tireless("a").await;
    let id = w.submit(w.task()).await;
    for n in 1..=Exponential::TASK.retries {
        w.settle(&w.claim_one(&node).await, retryable()).await;
        let standing = w.get(id).await.standing;
        assert_eq!((standing.state, standing.retries), (State::Retrying, n));
        assert_eq!(standing.due_at, w.at().plus(Exponential::TASK.base(n)));
        w.advance_to(standing.due_at);
        w.promote().await;
    }
    w.settle(&w.claim_one(&node).await, retryable()).await;
    assert_eq!(w.state(id).await, State::Failed);
    let letter = only(w.dead_letters().await);
    assert_eq!((letter.reason, letter.attempts), (Reason::Exhausted, 16));
    assert_eq!(w.attempts(id).await.len(), 16);
    w.sound().await;
}

pub async fn a_snooze_and_a_limit_wait_for_their_time(w: World) {
    let node = w.node("a").await;
    let until = w.at().plus(HOUR);
    let name = "openai".to_owned();
    let table = [
        (Outcome::Snooze { until }, WaitingOn::Time { until }),
        (
            Outcome::Limited { name: name.clone(), until },
            WaitingOn::Limit { name: name.clone(), until },
        ),
    ];
    for (outcome, waiting_on) in table {
        let claimed = w.running(&node).await;
        w.settle(&claimed, outcome).await;
        let standing = w.get(claimed.task.id).await.standing;
        assert_eq!((standing.state, standing.due_at), (State::Scheduled, until));
        assert_eq!((standing.waiting_on, standing.retries), (Some(waiting_on), 0));
        let story = ["task.submitted", "task.started", "task.scheduled"];
        assert_eq!(w.story(claimed.task.id).await, story);
    }
}

pub async fn waiting_holds_no_slot(w: World) {
    let node = w.node("a").await;
    let signal = WaitingOn::Signal { name: "approved".to_owned() };
    let claimed = w.running(&node).await;
    w.settle(&claimed, Outcome::Wait(signal.clone())).await;
    let standing = w.get(claimed.task.id).await.standing;
    assert_eq!((standing.state, standing.leased), (State::Waiting, false));
    assert_eq!(standing.waiting_on, Some(signal));
    assert_eq!(w.story(claimed.task.id).await, ["task.submitted", "task.started", "task.waiting"]);
    assert_eq!(w.queue("default").await.leased, 0);
    w.advance(HOUR);
    w.promote().await;
    assert_eq!(w.state(claimed.task.id).await, State::Waiting);
}

pub async fn a_release_burns_nothing(w: World) {
    let node = w.node("a").await;
    let claimed = w.running(&node).await;
    w.settle(&claimed, Outcome::Release).await;
    let standing = w.get(claimed.task.id).await.standing;
    assert_eq!((standing.state, standing.retries, standing.attempt), (State::Queued, 0, 1));
    assert_eq!(w.story(claimed.task.id).await, ["task.submitted", "task.started"]);
    assert_eq!(w.claim_one(&node).await.task.id, claimed.task.id);
}

pub async fn a_pause_holds_the_task(w: World) {
    let node = w.node("a").await;
    let claimed = w.running(&node).await;
    let id = claimed.task.id;
    w.settle(&claimed, Outcome::Pause { why: "checkpoint".to_owned() }).await;
    let standing = w.get(id).await.standing;
    assert_eq!(standing.state, State::Paused);
    assert_eq!(standing.waiting_on, Some(WaitingOn::Person { why: "checkpoint".to_owned() }));
    assert!(w.claim(&node, 10).await.is_empty());
    assert_eq!(w.change(id, TaskChange::Resume).await, Changed::Done);
    assert_eq!(w.claim_one(&node).await.task.id, id);
    let story = ["task.submitted", "task.started", "task.paused", "task.resumed", "task.started"];
    assert_eq!(w.story(id).await, story);
}

pub async fn cancelled_is_an_end(w: World) {
    let node = w.node("a").await;
    let claimed = w.running(&node).await;
    w.settle(&claimed, Outcome::Cancelled).await;
    let standing = w.get(claimed.task.id).await.standing;
    assert_eq!((standing.state, standing.finished_at), (State::Cancelled, Some(w.at())));
    assert!(w.dead_letters().await.is_empty());
    assert_eq!(
        w.story(claimed.task.id).await,
        ["task.submitted", "task.started", "task.cancelled"]
    );
}

pub async fn a_rollback_backs_off_and_ends(w: World) {
    let node = w.tireless("a").await;
    let claimed = w.running(&node).await;
    let id = claimed.task.id;
    w.settle(&claimed, Outcome::RollBack).await;
    assert_eq!(w.state(id).await, State::RollingBack);
    w.settle(&w.claim_one(&node).await, retryable()).await;
    let standing = w.get(id).await.standing;
    assert_eq!((standing.state, standing.retries), (State::RollingBack, 1));
    assert!(w.claim(&node, 10).await.is_empty(), "it backs off");
    assert_eq!(w.store().next_due().await.unwrap(), Some(standing.due_at));
    w.advance_to(standing.due_at);
    w.promote().await;
    let again = w.claim_one(&node).await;
    assert_eq!(w.settle(&again, Outcome::RolledBack).await.state, State::RolledBack);
    assert_eq!(w.get(id).await.standing.finished_at, Some(w.at()));
    let story = w.story(id).await;
    let expected = ["task.rolling_back", "task.started", "task.retrying", "task.started"];
    assert_eq!(story[2..6], expected);
    assert_eq!(story[6..], ["task.rolled_back"]);
    w.sound().await;
}

pub async fn a_failed_rollback_is_a_dead_letter(w: World) {
    let node = w.node("a").await;
    let claimed = w.running(&node).await;
    w.settle(&claimed, Outcome::RollBack).await;
    w.settle(&w.claim_one(&node).await, fails()).await;
    assert_eq!(only(w.dead_letters().await).reason, Reason::Rollback);
}

pub async fn a_requested_cancel_picks_the_alternative(w: World) {
    let node = w.node("a").await;
    for outcome in [retryable(), fails(), Outcome::Release, waits(Then::End)] {
        let claimed = w.running(&node).await;
        assert_eq!(w.cancel(claimed.task.id).await, Changed::Requested);
        let written = w.step(&claimed, step("fetch", 1)).await;
        assert!(written.requests.cancel, "a write tells of the request");
        assert_eq!(w.settle(&claimed, outcome).await.state, State::Cancelled);
        assert_eq!(w.state(claimed.task.id).await, State::Cancelled);
        assert!(!w.get(claimed.task.id).await.standing.requests.any());
    }
    assert!(w.dead_letters().await.is_empty());
    w.sound().await;
}

pub async fn a_late_request_does_not_undo_done_work(w: World) {
    let node = w.node("a").await;
    for change in [TaskChange::Cancel, TaskChange::Pause, TaskChange::Rollback] {
        let claimed = w.running(&node).await;
        assert_eq!(w.change(claimed.task.id, change).await, Changed::Requested);
        assert_eq!(w.settle(&claimed, done()).await.state, State::Completed);
    }
}

pub async fn a_requested_pause_keeps_the_time_to_go_back_to(w: World) {
    let node = w.node("a").await;
    let claimed = w.running(&node).await;
    let id = claimed.task.id;
    w.change(id, TaskChange::Pause).await;
    assert_eq!(w.settle(&claimed, retryable()).await.state, State::Paused);
    let standing = w.get(id).await.standing;
    assert_eq!((standing.retries, standing.held_from), (1, Some(State::Retrying)));
    w.change(id, TaskChange::Resume).await;
    let standing = w.get(id).await.standing;
    assert_eq!((standing.state, standing.held_from), (State::Retrying, None));
    w.advance_to(standing.due_at);
    w.promote().await;
    assert_eq!(w.state(id).await, State::Queued);
}

pub async fn a_requested_rollback_goes_before_a_cancel(w: World) {
    let node = w.node("a").await;
    let claimed = w.running(&node).await;
    w.cancel(claimed.task.id).await;
    w.change(claimed.task.id, TaskChange::Rollback).await;
    assert_eq!(w.settle(&claimed, retryable()).await.state, State::RollingBack);
    assert_eq!(w.claim_one(&node).await.task.id, claimed.task.id);
}

pub async fn progress_is_stored_and_told(w: World) {
    let node = w.node("a").await;
    let claimed = w.running(&node).await;
    let progress = |done| Progress {
        done,
        total: 10,
        note: Some("half way".to_owned()),
        data: Some(json(r#"{"page":5}"#)),
    };
    for n in [3, 5] {
        let progress = Some(progress(n));
        w.write(Write { progress, ..Write::new(lease(&claimed)) }).await;
    }
    let id = claimed.task.id;
    assert_eq!(w.get(id).await.standing.progress, Some(progress(5)));
    assert_eq!(w.state(id).await, State::Running);
    assert_eq!(w.story(id).await[2..], ["task.progress", "task.progress"]);
    w.finish(&claimed).await;
    assert_eq!(w.get(id).await.standing.progress, Some(progress(5)));
}

pub async fn all_parts_of_a_write_happen_at_once(w: World) {
    let node = w.node("a").await;
    let claimed = w.running(&node).await;
    let write = Write {
        begins: true,
        steps: vec![step("fetch", 1), step("scale", 2)],
        progress: Some(Progress { done: 2, total: 2, note: None, data: None }),
        ..w.settling(&claimed, done())
    };
    let written = w.write(write).await;
    assert_eq!((written.state, written.version), (State::Completed, Version(2)));
    let id = claimed.task.id;
    let mut story = w.story(id).await.split_off(2);
    assert_eq!(story.pop(), Some("task.completed"));
    story.sort_unstable();
    assert_eq!(story, ["task.progress", "task.step_completed", "task.step_completed"]);
    assert_eq!(only(w.attempts(id).await).steps.len(), 2);
    w.sound().await;
}

pub async fn a_transition_the_table_does_not_have_is_refused(w: World) {
    let node = w.node("a").await;
    let claimed = w.running(&node).await;
    let mut settlement = settled(&claimed, done(), w.at());
    settlement.verdict.to = State::RolledBack;
    let before = w.snapshot().await;
    let write =
        Write { steps: vec![step("fetch", 1)], ..Write::settling(lease(&claimed), settlement) };
    crate::harness::refused_as(w.try_write(write).await, ErrorKind::Conflict);
    w.unchanged_since(&before).await;
    w.finish(&claimed).await;
}

pub async fn one_bad_write_does_not_harm_its_neighbours(w: World) {
    let node = w.node("a").await;
    let claimed = [w.running(&node).await, w.running(&node).await, w.running(&node).await];
    let mut writes: Vec<Write> = claimed.iter().map(|c| w.settling(c, done())).collect();
    writes[1].lease.token = writes[1].lease.token.next();
    let answers = w.record(writes).await;
    assert_eq!(answers[0].as_ref().unwrap().state, State::Completed);
    assert_eq!(answers[1].as_ref().unwrap_err().kind(), ErrorKind::LeaseLost);
    assert_eq!(answers[2].as_ref().unwrap().state, State::Completed);
    let ids = claimed.each_ref().map(|c| c.task.id);
    assert_eq!(w.states(&ids).await, [State::Completed, State::Running, State::Completed]);
    w.sound().await;
}

pub async fn writes_about_one_task_happen_in_their_order(w: World) {
    let node = w.node("a").await;
    let claimed = w.running(&node).await;
    let step = |n| Write { steps: vec![step("s", n)], ..Write::new(lease(&claimed)) };
    let writes = vec![step(1), step(2), w.settling(&claimed, done()), step(3)];
    let answers = w.record(writes).await;
    assert!(answers[..3].iter().all(|a| a.is_ok()), "{answers:?}");
    assert_eq!(answers[3].as_ref().unwrap_err().kind(), ErrorKind::LeaseLost);
    let story = w.story(claimed.task.id).await;
    assert_eq!(story[2..], ["task.step_completed", "task.step_completed", "task.completed"]);
}

pub async fn many_tasks_end_in_one_call(w: World) {
    let node = w.node("a").await;
    w.submit_all(w.many(1000)).await;
    let claimed = w.claim(&node, 1000).await;
    let writes: Vec<Write> = claimed
        .iter()
        .map(|c| Write { steps: vec![step("a", 1)], ..w.settling(c, done()) })
        .collect();
    assert!(w.record(writes.clone()).await.iter().all(|a| !a.as_ref().unwrap().repeated));
    assert!(w.record(writes).await.iter().all(|a| a.as_ref().unwrap().repeated));
    assert_eq!(w.stats().await.states.get(&State::Completed), Some(&1000));
    w.sound().await;
}

pub async fn an_empty_record_is_answered_empty(w: World) {
    let before = w.snapshot().await;
    assert!(w.record(vec![]).await.is_empty());
    w.unchanged_since(&before).await;
}
