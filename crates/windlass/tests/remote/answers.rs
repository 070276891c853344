//! What one answer of leases holds: as much as was asked for, within bounds, and
//! what is in hand although something fails later. Each fault is seen to happen.

use super::{bench, join, join_or_lease, none, one, pass, report, submit, wish};
use crate::shared::{HOUR, On, on_both};
use serde_json::json;
use std::collections::BTreeSet;
use windlass::remote::LeaseRequest;
use windlass::{ErrorKind, State};
use windlass_conformance::faults::{Call, Fault, FaultyStore};

on_both!(
    large_tasks_come_in_several_answers,
    small_tasks_come_in_one_answer,
    what_was_claimed_before_a_claim_failed_is_given,
    a_suspect_whose_begin_is_not_written_is_left_out,
);

async fn large_tasks_come_in_several_answers(on: On) {
    let b = bench(on).await;
    let worker = join(&b.engine).await;
    for _ in 0..100 {
        b.engine.submit_named("far", &json!("x".repeat(512 << 10))).await.unwrap();
    }
    let mut all = BTreeSet::new();
    let mut answers = 0;
    while all.len() < 100 {
        let request = LeaseRequest { max: 1000, ..wish(Some(worker)) };
        let leases = b.engine.workers().lease(request).await.unwrap().leases;
        assert!(!leases.is_empty() && leases.len() <= 50, "{} in one answer", leases.len());
        all.extend(leases.iter().map(|lease| lease.task.id));
        answers += 1;
    }
    assert!(answers >= 2, "all in one answer");
}

async fn small_tasks_come_in_one_answer(on: On) {
    let b = bench(on).await;
    let worker = join(&b.engine).await;
    for _ in 0..120 {
        submit(&b).await;
    }
    let request = LeaseRequest { max: 110, ..wish(Some(worker)) };
    let leases = b.engine.workers().lease(request.clone()).await.unwrap().leases;
    assert_eq!(leases.len(), 110);
    assert_eq!(b.engine.workers().lease(request).await.unwrap().leases.len(), 10);
}

async fn what_was_claimed_before_a_claim_failed_is_given(on: On) {
    let b = bench(on).await;
    let dead = join(&b.engine).await;
    let id = submit(&b).await;
    one(&b.engine, dead).await;
    pass(&b, 25).await;
    let store = FaultyStore::new(b.store.clone());
    let other = b.beside_on(store.clone()).await;
    // What the dead left, then what is ready.
    store.script_for(Call::Claim, [Fault::Pass, Fault::Before]);
    let (_, leases) = join_or_lease(&other).await;
    assert_eq!(store.count(Call::Claim, Fault::Before), 1, "the second claim failed");
    assert_eq!(leases.iter().map(|lease| lease.task.id).collect::<Vec<_>>(), [id]);
    // With nothing in hand the failure is told.
    store.script_for(Call::Claim, [Fault::Pass, Fault::Before]);
    let refused = other.workers().lease(wish(None)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
}

async fn a_suspect_whose_begin_is_not_written_is_left_out(on: On) {
    let b = bench(on).await;
    let id = submit(&b).await;
    for _ in 0..2 {
        let (_, leases) = join_or_lease(&b.engine).await;
        assert_eq!(leases.len(), 1);
        pass(&b, 25).await;
    }
    let store = FaultyStore::new(b.store.clone());
    let other = b.beside_on(store.clone()).await;
    // It is put off until the worker is old enough.
    let worker = join(&other).await;
    b.advance(HOUR);
    b.until_queued(id).await;
    store.script_for(Call::Record, [Fault::Before]);
    none(&other, worker).await;
    assert_eq!(store.count(Call::Record, Fault::Before), 1, "its begin was not written");
    pass(&b, 9).await;
    report(&other, worker, &[], vec![]).await;
    assert_eq!(b.state(id).await, State::Queued, "it went back");
    let lease = one(&other, worker).await;
    assert_eq!((lease.task.id, lease.alone), (id, true));
}
