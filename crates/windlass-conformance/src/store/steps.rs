//! Checkpoints: steps are appended under rising versions, read back whole, cut
//! on resume, undone by a rollback, and cleared when the task has completed.
//! The history of attempts keeps them all.

use crate::harness::make::{
    done, failed_try, fails, json, lease, logged, retryable, skipped, step, step_giving, steps,
    undone,
};
use crate::harness::world::only;
use crate::harness::{Shape, World, refused};
use std::time::Duration;
use windlass_core::checkpoint::{LOG_MAX, StepOutcome, Version, tail};
use windlass_core::error::Code;
use windlass_core::outcome::{Class, Outcome};
use windlass_core::store::Write;

pub async fn steps_are_read_back_in_order(w: World) {
    let node = w.node("a").await;
    let claimed = w.running(&node).await;
    let id = claimed.task.id;
    w.step(&claimed, step_giving("fetch", 1, r#"{"path":"/a","size":1}"#)).await;
    let two = vec![step_giving("count", 2, "[1,2]"), step_giving("scale", 5, r#"{"size":2}"#)];
    let written = w.write(steps(&claimed, two)).await;
    assert_eq!(written.version, Version(5));
    let checkpoint = w.checkpoint(id).await.unwrap();
    assert_eq!(checkpoint.version, Version(5));
    assert_eq!(w.get(id).await.standing.version, Version(5));
    assert_eq!(w.finished(id).await, ["fetch", "count", "scale"]);
    let context = serde_json::Value::Object(checkpoint.context().unwrap());
    assert_eq!(context, serde_json::json!({"path": "/a", "size": 2}));
    let entry = &checkpoint.entries[1];
    assert_eq!(entry.record, step_giving("count", 2, "[1,2]"));
    assert_eq!((entry.run, entry.attempt, entry.node, entry.at), (1, 1, node.id, w.at()));
    assert!(entry.live);
    assert_eq!(w.story(id).await[2..], ["task.step_completed"; 3]);
}

pub async fn a_log_is_kept_with_its_try_and_out_of_the_checkpoint(w: World) {
    let node = w.node("a").await;
    let claimed = w.running(&node).await;
    let id = claimed.task.id;
    let tries = vec![logged("fetch", 1, "no route\nto host"), step("fetch", 2)];
    w.write(steps(&claimed, tries)).await;
    let told = only(w.attempts(id).await).steps;
    assert_eq!(told[0].record, logged("fetch", 1, "no route\nto host"));
    assert_eq!(told[1].record.log, None);
    let unread = failed_try("fetch", 1);
    assert_eq!(w.checkpoint(id).await.unwrap().entries[0].record, unread);
    w.settle(&claimed, Outcome::Release).await;
    let again = w.claim_one(&node).await;
    assert_eq!(again.checkpoint.as_ref().unwrap().entries[0].record, unread);
    w.finish(&again).await;
    let told = w.attempts(id).await.remove(0).steps;
    assert_eq!(told[0].record.log.as_deref(), Some("no route\nto host"), "it outlives the end");
}

pub async fn of_a_long_log_the_end_is_kept(w: World) {
    let node = w.node("a").await;
    let claimed = w.running(&node).await;
    // An odd length, so that the cut falls into a character.
    let long = format!("{}end", "é".repeat(LOG_MAX));
    let write = steps(&claimed, vec![logged("fetch", 1, &long)]);
    w.write(write.clone()).await;
    let log = only(w.attempts(claimed.task.id).await).steps.remove(0).record.log.unwrap();
    assert_eq!((log.as_str(), log.len()), (tail(&long, LOG_MAX), LOG_MAX - 1));
    assert!(w.write(write).await.repeated, "the whole log sent again is known");
}

pub async fn nothing_recorded_is_no_checkpoint(w: World) {
    let node = w.node("a").await;
    let claimed = w.running(&node).await;
    assert_eq!(w.checkpoint(claimed.task.id).await, None);
    w.write(Write { begins: true, ..Write::new(lease(&claimed)) }).await;
    assert_eq!(w.checkpoint(claimed.task.id).await, None);
    assert_eq!(w.checkpoint(w.id()).await, None);
    assert!(w.attempts(w.id()).await.is_empty());
}

pub async fn a_version_that_is_not_newer_writes_nothing(w: World) {
    let node = w.node("a").await;
    let claimed = w.running(&node).await;
    w.write(steps(&claimed, vec![step("fetch", 3)])).await;
    let before = w.snapshot().await;
    for stale in [step("other", 3), step("other", 2), step("other", 0)] {
        refused(w.try_write(steps(&claimed, vec![stale])).await, Code::VersionConflict);
    }
    let settling = Write { steps: vec![step("other", 3)], ..w.settling(&claimed, done()) };
    refused(w.try_write(settling).await, Code::VersionConflict);
    w.unchanged_since(&before).await;
    w.finish(&claimed).await;
}

pub async fn versions_rise_within_one_write(w: World) {
    let node = w.node("a").await;
    let claimed = w.running(&node).await;
    let before = w.snapshot().await;
    let child = w.task().under(claimed.task.id, "1:a:0");
    let write = Write {
        steps: vec![step("a", 2), step("b", 2)],
        children: vec![child],
        ..Write::new(lease(&claimed))
    };
    assert!(w.try_write(write).await.is_err());
    w.unchanged_since(&before).await;
}

pub async fn a_later_attempt_continues_the_versions(w: World) {
    let node = w.node("a").await;
    let first = w.running(&node).await;
    let write = Write { steps: vec![step("a", 1)], ..w.settling(&first, Outcome::Release) };
    w.write(write).await;
    let second = w.claim_one(&node).await;
    assert_eq!(second.task.standing.version, Version(1));
    refused(w.try_write(steps(&second, vec![step("b", 1)])).await, Code::VersionConflict);
    w.step(&second, step("b", 2)).await;
    let checkpoint = w.checkpoint(first.task.id).await.unwrap();
    let attempts: Vec<u32> = checkpoint.entries.iter().map(|e| e.attempt).collect();
    assert_eq!(attempts, [1, 2]);
    let by_attempt: Vec<usize> =
        w.attempts(first.task.id).await.iter().map(|a| a.steps.len()).collect();
    assert_eq!(by_attempt, [1, 1]);
}

pub async fn completing_clears_the_checkpoint_and_keeps_the_history(w: World) {
    let node = w.node("a").await;
    let claimed = w.running(&node).await;
    let records = vec![failed_try("fetch", 1), step("fetch", 2), skipped("scale", 3)];
    w.write(steps(&claimed, records)).await;
    w.finish(&claimed).await;
    assert_eq!(w.checkpoint(claimed.task.id).await, None);
    let attempt = only(w.attempts(claimed.task.id).await);
    let history: Vec<_> = attempt
        .steps
        .iter()
        .map(|s| (s.record.name.as_str(), s.record.outcome, s.record.duration))
        .collect();
    let ms = Duration::from_millis;
    let expected = [
        ("fetch", StepOutcome::Failed, ms(10)),
        ("fetch", StepOutcome::Done, ms(20)),
        ("scale", StepOutcome::Skipped, ms(30)),
    ];
    assert_eq!(history, expected);
    assert!(attempt.steps.iter().all(|s| !s.live));
}

pub async fn failing_keeps_the_checkpoint(w: World) {
    let node = w.node("a").await;
    for outcome in [fails(), retryable(), Outcome::Cancelled] {
        let claimed = w.running(&node).await;
        let write = Write { steps: vec![step("fetch", 1)], ..w.settling(&claimed, outcome) };
        w.write(write).await;
        let checkpoint = w.checkpoint(claimed.task.id).await.unwrap();
        assert_eq!(checkpoint.finished().count(), 1);
        assert_eq!(checkpoint.entries[0].record.output, Some(json(r#"{"fetch":1}"#)));
    }
}

pub async fn failed_tries_are_in_the_checkpoint(w: World) {
    let node = w.node("a").await;
    let claimed = w.running(&node).await;
    let id = claimed.task.id;
    w.step(&claimed, failed_try("fetch", 1)).await;
    w.step(&claimed, failed_try("fetch", 2)).await;
    w.step(&claimed, step("fetch", 3)).await;
    let checkpoint = w.checkpoint(id).await.unwrap();
    let failures: Vec<_> = checkpoint.failures().map(|e| &e.record).collect();
    assert_eq!(failures, [&failed_try("fetch", 1), &failed_try("fetch", 2)]);
    assert_eq!(failures[0].class, Some(Class::Retryable));
    assert_eq!(w.finished(id).await, ["fetch"]);
    let story = w.story(id).await;
    assert_eq!(story[2..], ["task.step_failed", "task.step_failed", "task.step_completed"]);
}

pub async fn a_skipped_step_is_finished(w: World) {
    let node = w.node("a").await;
    let claimed = w.running(&node).await;
    w.step(&claimed, skipped("fetch", 1)).await;
    let checkpoint = w.checkpoint(claimed.task.id).await.unwrap();
    let entry = checkpoint.finished().next().unwrap();
    assert_eq!(entry.record, skipped("fetch", 1));
    assert_eq!(w.story(claimed.task.id).await[2..], ["task.step_skipped"]);
}

pub async fn a_cut_keeps_the_first_steps_and_is_told(w: World) {
    let node = w.node("a").await;
    let claimed = w.running(&node).await;
    let id = claimed.task.id;
    let three = vec![step("a", 1), failed_try("b", 2), step("b", 3), step("c", 4)];
    w.write(steps(&claimed, three)).await;
    let keep_steps = Some((1, "step 2 was `b`".to_owned()));
    w.write(Write { keep_steps, ..Write::new(lease(&claimed)) }).await;
    assert_eq!(w.finished(id).await, ["a"]);
    let event = w.events_of(id).await.pop().unwrap();
    assert_eq!(event.name.as_str(), "checkpoint.discarded");
    let data: serde_json::Value = event.data.to_json().to().unwrap();
    assert_eq!(data, serde_json::json!({"kept": 1, "why": "step 2 was `b`"}));
    let live: Vec<bool> = only(w.attempts(id).await).steps.iter().map(|s| s.live).collect();
    assert_eq!(live.len(), 4, "the history keeps what was dropped");
    assert!(live[0] && !live[2] && !live[3]);
    w.step(&claimed, step("x", 5)).await;
    assert_eq!(w.finished(id).await, ["a", "x"]);
}

pub async fn a_cut_to_nothing_starts_afresh(w: World) {
    let node = w.node("a").await;
    let claimed = w.running(&node).await;
    let id = claimed.task.id;
    w.write(steps(&claimed, vec![step("a", 1), step("b", 2)])).await;
    let keep_steps = Some((0, "discard".to_owned()));
    let write = Write { keep_steps, steps: vec![step("a", 3)], ..Write::new(lease(&claimed)) };
    w.write(write).await;
    assert_eq!(w.finished(id).await, ["a"]);
    assert_eq!(w.checkpoint(id).await.unwrap().entries[0].record.version, Version(3));
    let story = w.story(id).await;
    assert_eq!(story[4..], ["checkpoint.discarded", "task.step_completed"]);
}

pub async fn an_undone_step_leaves_the_checkpoint(w: World) {
    let node = w.node("a").await;
    let claimed = w.running(&node).await;
    let id = claimed.task.id;
    let write = Write {
        steps: vec![step("a", 1), step("b", 2), step("c", 3)],
        ..w.settling(&claimed, Outcome::RollBack)
    };
    w.write(write).await;
    let back = w.claim_one(&node).await;
    assert_eq!(back.checkpoint.as_ref().unwrap().finished().count(), 3);
    w.step(&back, undone("c", 4)).await;
    assert_eq!(w.finished(id).await, ["a", "b"]);
    w.step(&back, undone("b", 5)).await;
    assert_eq!(w.finished(id).await, ["a"]);
    w.settle(&back, Outcome::Release).await;
    let again = w.claim_one(&node).await;
    let left: Vec<_> =
        again.checkpoint.as_ref().unwrap().finished().map(|e| e.record.name.as_str()).collect();
    assert_eq!(left, ["a"]);
    // A step without a compensation is left behind when the rollback ends.
    w.settle(&again, Outcome::RolledBack).await;
    assert_eq!(w.checkpoint(id).await, None);
    let outcomes: Vec<StepOutcome> =
        w.attempts(id).await.iter().flat_map(|a| &a.steps).map(|s| s.record.outcome).collect();
    assert_eq!(outcomes.iter().filter(|o| **o == StepOutcome::Undone).count(), 2);
    w.sound().await;
}
