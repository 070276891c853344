//! Idempotency keys and unique keys: who holds them, for how long, and what
//! the second comer is told. Neither ever writes anything for the second.

use crate::harness::make::{DAY, HOUR, SECOND, done, fails, requeue, retryable};
use crate::harness::{Shape, World, refused, refused_as};
use windlass_core::error::{Code, ErrorKind};
use windlass_core::outcome::Outcome;
use windlass_core::state::State;
use windlass_core::store::{Job, Submitted};
use windlass_core::task::IdempotencyKey;

pub async fn a_replay_gets_the_first_answer(w: World) {
    let first = w.submit(w.task().keyed("k", 1)).await;
    let before = w.snapshot().await;
    w.advance(HOUR);
    let again = w.try_submit(vec![w.task().keyed("k", 1)]).await.unwrap();
    assert_eq!(again, [Submitted::Replayed { id: first }]);
    w.unchanged_since(&before).await;
}

pub async fn a_replay_after_the_end_gets_the_first_answer(w: World) {
    let node = w.node("a").await;
    let first = w.submit(w.task().keyed("k", 1)).await;
    w.finish(&w.claim_one(&node).await).await;
    let before = w.snapshot().await;
    let again = w.try_submit(vec![w.task().keyed("k", 1)]).await.unwrap();
    assert_eq!(again, [Submitted::Replayed { id: first }]);
    w.unchanged_since(&before).await;
}

pub async fn a_key_with_another_body_is_refused_with_its_batch(w: World) {
    w.submit(w.task().keyed("k", 1)).await;
    let before = w.snapshot().await;
    let batch = vec![w.task(), w.task().keyed("k", 2), w.task()];
    refused(w.try_submit(batch).await, Code::KeyReused);
    w.unchanged_since(&before).await;
}

pub async fn the_whole_hash_of_a_body_counts(w: World) {
    let body = 1 | 1 << 127;
    w.submit(w.task().keyed("k", body)).await;
    refused(w.try_submit(vec![w.task().keyed("k", 1)]).await, Code::KeyReused);
    let again = w.try_submit(vec![w.task().keyed("k", body)]).await.unwrap();
    assert!(matches!(again[0], Submitted::Replayed { .. }));
}

pub async fn a_key_is_forgotten_after_its_time(w: World) {
    let hour = |body| Some(IdempotencyKey { key: "k".to_owned(), body, ttl: HOUR });
    let mut new = w.task();
    new.idempotency = hour(1);
    let first = w.submit(new).await;
    w.advance(HOUR + SECOND);
    let mut other = w.task();
    other.idempotency = hour(2);
    let id = other.id;
    let answer = w.try_submit(vec![other]).await.unwrap();
    assert_eq!(answer, [Submitted::New { id, state: State::Queued }]);
    assert_ne!(id, first);
}

pub async fn a_key_taken_again_is_held_again(w: World) {
    w.submit(w.task().keyed("k", 1)).await;
    w.advance(DAY + SECOND);
    let second = w.submit(w.task().keyed("k", 2)).await;
    w.advance(HOUR);
    w.exhaust(Job::Keys).await;
    let again = w.try_submit(vec![w.task().keyed("k", 2)]).await.unwrap();
    assert_eq!(again, [Submitted::Replayed { id: second }]);
}

pub async fn the_keys_job_forgets_only_what_is_over(w: World) {
    w.submit_all(vec![w.task().keyed("old", 1), w.task().unique_for("soon", HOUR)]).await;
    w.advance(DAY - HOUR);
    let live = w.submit(w.task().keyed("live", 1)).await;
    let held = w.submit(w.task().unique_live("held")).await;
    w.advance(2 * HOUR);
    assert_eq!(w.exhaust(Job::Keys).await, 2);
    assert_eq!(w.exhaust(Job::Keys).await, 0);
    let batch = vec![w.task().keyed("live", 1), w.task().unique_live("held")];
    let answers = w.try_submit(batch).await.unwrap();
    assert_eq!(answers, [Submitted::Replayed { id: live }, Submitted::Existing { id: held }]);
}

pub async fn a_key_twice_in_one_batch_makes_one_task(w: World) {
    let batch = vec![w.task().keyed("k", 1), w.task(), w.task().keyed("k", 1)];
    let first = batch[0].id;
    let answers = w.try_submit(batch).await.unwrap();
    assert_eq!(answers[0], Submitted::New { id: first, state: State::Queued });
    assert_eq!(answers[2], Submitted::Replayed { id: first });
    assert_eq!(w.list("").await.len(), 2);
    w.sound().await;
}

pub async fn a_key_twice_in_one_batch_with_two_bodies_is_refused(w: World) {
    let before = w.snapshot().await;
    let batch = vec![w.task().keyed("k", 1), w.task().keyed("k", 2)];
    refused(w.try_submit(batch).await, Code::KeyReused);
    w.unchanged_since(&before).await;
}

pub async fn a_unique_task_exists_once_while_it_lives(w: World) {
    let node = w.tireless("a").await;
    let first = w.submit(w.task().unique_live("u").after(SECOND)).await;
    let existing = [Submitted::Existing { id: first }];
    let second = async || w.try_submit(vec![w.task().unique_live("u")]).await.unwrap();
    let before = w.snapshot().await;
    assert_eq!(second().await, existing, "scheduled");
    w.unchanged_since(&before).await;
    w.advance(2 * SECOND);
    w.promote().await;
    assert_eq!(second().await, existing, "queued");
    let claimed = w.claim_one(&node).await;
    assert_eq!(second().await, existing, "running");
    w.settle(&claimed, retryable()).await;
    w.advance(DAY);
    assert_eq!(second().await, existing, "retrying");
    assert_eq!(w.list("").await.len(), 1);
}

pub async fn a_unique_key_is_free_after_any_end(w: World) {
    let node = w.node("a").await;
    for (i, outcome) in [done(), fails(), Outcome::Cancelled].into_iter().enumerate() {
        let id = w.submit(w.task().unique_live("u")).await;
        assert_eq!(w.list("").await.len(), i + 1, "a new task each time");
        w.settle(&w.claim_id(&node, id).await, outcome).await;
    }
    w.submit(w.task().unique_live("u").plan(&[])).await;
    let queued = w.submit(w.task().unique_live("u")).await;
    assert_eq!(w.state(queued).await, State::Queued);
    w.cancel(queued).await;
    let last = w.task().unique_live("u");
    let id = last.id;
    let answer = w.try_submit(vec![last]).await.unwrap();
    assert_eq!(answer, [Submitted::New { id, state: State::Queued }]);
}

pub async fn a_unique_time_holds_beyond_the_end(w: World) {
    let node = w.node("a").await;
    let first = w.submit(w.task().unique_for("u", HOUR)).await;
    w.finish(&w.claim_one(&node).await).await;
    w.advance(HOUR - SECOND);
    let answer = w.try_submit(vec![w.task().unique_for("u", HOUR)]).await.unwrap();
    assert_eq!(answer, [Submitted::Existing { id: first }]);
    w.advance(2 * SECOND);
    let answer = w.try_submit(vec![w.task().unique_for("u", HOUR)]).await.unwrap();
    assert!(matches!(answer[0], Submitted::New { .. }), "{answer:?}");
}

pub async fn a_unique_key_twice_in_one_batch_makes_one_task(w: World) {
    let batch = vec![w.task().unique_live("u"), w.task().unique_live("u")];
    let first = batch[0].id;
    let answers = w.try_submit(batch).await.unwrap();
    assert_eq!(answers[1], Submitted::Existing { id: first });
    assert_eq!(w.list_ids("").await, [first]);
}

pub async fn the_two_sorts_of_keys_do_not_meet(w: World) {
    w.submit(w.task().keyed("same", 1)).await;
    let answer = w.try_submit(vec![w.task().unique_live("same")]).await.unwrap();
    assert!(matches!(answer[0], Submitted::New { .. }), "{answer:?}");
}

pub async fn keys_differ_by_every_letter(w: World) {
    for key in ["K", "k", "k ", "ḱ", "k%", "k_"] {
        let answers =
            w.try_submit(vec![w.task().unique_live(key), w.task().keyed(key, 1)]).await.unwrap();
        assert!(answers.iter().all(|a| matches!(a, Submitted::New { .. })), "{key}: {answers:?}");
    }
}

pub async fn a_requeue_takes_the_unique_key_again(w: World) {
    let node = w.node("a").await;
    let first = w.submit(w.task().unique_live("u")).await;
    w.settle(&w.claim_one(&node).await, fails()).await;
    w.change(first, requeue()).await;
    let answer = w.try_submit(vec![w.task().unique_live("u")]).await.unwrap();
    assert_eq!(answer, [Submitted::Existing { id: first }]);
    w.finish(&w.claim_one(&node).await).await;
    let answer = w.try_submit(vec![w.task().unique_live("u")]).await.unwrap();
    assert!(matches!(answer[0], Submitted::New { .. }), "{answer:?}");
}

pub async fn a_requeue_is_refused_while_another_holds_the_key(w: World) {
    let node = w.node("a").await;
    let first = w.submit(w.task().unique_live("u")).await;
    w.settle(&w.claim_one(&node).await, fails()).await;
    w.submit(w.task().unique_live("u")).await;
    let before = w.snapshot().await;
    refused_as(w.try_change(first, requeue()).await, ErrorKind::Conflict);
    w.unchanged_since(&before).await;
}
