//! Many hands at once, on both handles of the store: each task goes to one, each
//! key to one, each lease ends once, and a reader of the feed misses nothing.

use super::children::family;
use crate::harness::look::filter;
use crate::harness::make::{MINUTE, SECOND, done, fails, step, steps};
use crate::harness::world::{LEASE, ann, ids, new_node};
use crate::harness::{Shape, World};
use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use windlass_core::batch::{Action, BatchStep, Order, Target, Walk};
use windlass_core::children::{Policy, Then};
use windlass_core::clock::Now;
use windlass_core::control::{Changed, TaskChange};
use windlass_core::error::{Code, Result};
use windlass_core::event::{Event, Position};
use windlass_core::id::{BatchId, TaskId};
use windlass_core::state::State;
use windlass_core::store::{Change, Job, OutboxOp, Store, Submitted, Write, Written};
use windlass_core::task::NewTask;

/// More claims than any case needs; a store that gives without end must fail a
/// case, not hang it.
const ROUNDS: usize = 500;

/// Runs all of them at once.
async fn at_once<T, F>(jobs: impl IntoIterator<Item = F>) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let running: Vec<_> = jobs.into_iter().map(tokio::spawn).collect();
    let mut results = vec![];
    for job in running {
        results.push(job.await.expect("a job that does not panic"));
    }
    results
}

async fn write_one(store: Arc<dyn Store>, write: Write, now: Now) -> Result<Written> {
    store.record(vec![write], now).await.unwrap().remove(0)
}

async fn submit_one(store: Arc<dyn Store>, task: NewTask, now: Now) -> Submitted {
    store.submit(vec![task].into(), now).await.unwrap()[0]
}

pub async fn no_task_is_leased_twice(w: World) {
    let all: BTreeSet<TaskId> = w.submit_all(w.many(5000)).await.into_iter().collect();
    let mut claimers = vec![];
    for i in 0..8 {
        let (node, store, now) = (w.tireless("n").await, w.handle(i), w.now());
        claimers.push(async move {
            let mut mine: Vec<TaskId> = vec![];
            for _ in 0..ROUNDS {
                let claimed = store.claim(node.ready(40 + i), now).await.unwrap();
                if claimed.is_empty() {
                    break;
                }
                mine.extend(ids(&claimed));
            }
            mine
        });
    }
    let leased: Vec<TaskId> = at_once(claimers).await.concat();
    assert_eq!(leased.len(), 5000);
    assert_eq!(leased.into_iter().collect::<BTreeSet<_>>(), all);
    assert_eq!(w.told("task.started").await, 5000);
    w.sound().await;
}

pub async fn claims_by_id_go_to_one(w: World) {
    let all = w.submit_all(w.many(50)).await;
    let mut claimers = vec![];
    for i in 0..6 {
        let (node, store, now) = (w.tireless("n").await, w.handle(i), w.now());
        let all = all.clone();
        claimers.push(async move {
            let mut mine = vec![];
            for id in all {
                mine.extend(ids(&store.claim(node.ids(&[id]), now).await.unwrap()));
            }
            mine
        });
    }
    let mut leased = at_once(claimers).await.concat();
    leased.sort();
    assert_eq!(leased, all);
}

pub async fn an_expired_lease_goes_to_one_node(w: World) {
    let dead = w.node("dead").await;
    let all = w.submit_all(w.many(60)).await;
    w.claim(&dead, 60).await;
    w.advance(LEASE + SECOND);
    let mut claimers = vec![];
    for i in 0..6 {
        let (node, store, now) = (w.tireless("n").await, w.handle(i), w.now());
        claimers.push(async move {
            let mut mine = vec![];
            for _ in 0..ROUNDS {
                let claimed = store.claim(node.expired(7), now).await.unwrap();
                if claimed.is_empty() {
                    break;
                }
                mine.extend(ids(&claimed));
            }
            mine
        });
    }
    let mut taken = at_once(claimers).await.concat();
    taken.sort();
    assert_eq!(taken, all);
    assert_eq!(w.told("task.lease_lost").await, 60);
    w.sound().await;
}

pub async fn a_lease_ends_once(w: World) {
    let node = w.tireless("a").await;
    for _ in 0..20 {
        let claimed = w.running(&node).await;
        let writes = [w.settling(&claimed, done()), w.settling(&claimed, fails())];
        let jobs =
            writes.into_iter().enumerate().map(|(i, write)| write_one(w.handle(i), write, w.now()));
        let answers = at_once(jobs).await;
        let lost: Vec<_> = answers.iter().filter_map(|a| a.as_ref().err()).collect();
        assert_eq!(lost.len(), 1, "{answers:?}");
        assert_eq!(lost[0].code(), Code::LeaseLost);
        let won = answers.iter().find_map(|a| a.as_ref().ok()).unwrap().state;
        assert_eq!(w.state(claimed.task.id).await, won);
    }
    w.sound().await;
}

pub async fn one_write_sent_many_times_is_written_once(w: World) {
    let node = w.tireless("a").await;
    let claimed = w.running(&node).await;
    let write = Write { steps: vec![step("a", 1)], ..w.settling(&claimed, done()) };
    let jobs = (0..10).map(|i| write_one(w.handle(i), write.clone(), w.now()));
    let answers = at_once(jobs).await;
    let first = answers.iter().filter(|a| !a.as_ref().unwrap().repeated).count();
    assert_eq!(first, 1, "{answers:?}");
    assert_eq!(w.story(claimed.task.id).await.len(), 4);
}

pub async fn a_version_is_written_once(w: World) {
    let node = w.tireless("a").await;
    let claimed = w.running(&node).await;
    let jobs = (0..20).map(|i| {
        let write = steps(&claimed, vec![step(&format!("s{i}"), 1)]);
        write_one(w.handle(i), write, w.now())
    });
    let answers = at_once(jobs).await;
    assert_eq!(answers.iter().filter(|a| a.is_ok()).count(), 1);
    for error in answers.iter().filter_map(|a| a.as_ref().err()) {
        assert_eq!(error.code(), Code::VersionConflict, "{error}");
    }
    assert_eq!(w.checkpoint(claimed.task.id).await.unwrap().entries.len(), 1);
}

pub async fn one_idempotency_key_makes_one_task(w: World) {
    let jobs = (0..20).map(|i| submit_one(w.handle(i), w.task().keyed("k", 1), w.now()));
    let answers = at_once(jobs).await;
    one_new(&answers, |s| matches!(s, Submitted::Replayed { .. }));
    assert_eq!(w.list("").await.len(), 1);
    assert_eq!(w.told("task.submitted").await, 1);
}

pub async fn one_unique_key_makes_one_task(w: World) {
    let jobs = (0..20).map(|i| submit_one(w.handle(i), w.task().unique_live("u"), w.now()));
    let answers = at_once(jobs).await;
    one_new(&answers, |s| matches!(s, Submitted::Existing { .. }));
    assert_eq!(w.list("").await.len(), 1);
}

fn one_new(answers: &[Submitted], other: impl Fn(&Submitted) -> bool) {
    let ids: BTreeSet<TaskId> = answers.iter().map(|s| s.id()).collect();
    assert_eq!(ids.len(), 1, "{answers:?}");
    let new = answers.iter().filter(|s| matches!(s, Submitted::New { .. })).count();
    assert_eq!((new, answers.iter().filter(|s| other(s)).count()), (1, answers.len() - 1));
}

pub async fn nodes_that_join_at_once_get_their_own_slots(w: World) {
    let jobs = (0..20).map(|i| {
        let (store, now) = (w.handle(i), w.now());
        async move { store.join(new_node("n"), now).await.unwrap() }
    });
    let joined = at_once(jobs).await;
    let slots: BTreeSet<u16> = joined.iter().map(|j| j.slot).collect();
    let identities: BTreeSet<_> = joined.iter().map(|j| j.node).collect();
    assert_eq!((slots.len(), identities.len()), (20, 20));
}

pub async fn a_reader_of_the_feed_misses_nothing(w: World) {
    let over = Arc::new(AtomicBool::new(false));
    let reader = tokio::spawn(read_feed(Arc::clone(w.second()), Arc::clone(&over)));
    let mut writers = vec![];
    for i in 0..6 {
        let (node, store, now) = (w.tireless("n").await, w.handle(i), w.now());
        let batches: Vec<Vec<NewTask>> = (0..20).map(|_| w.many(5)).collect();
        writers.push(async move {
            for batch in batches {
                store.submit(batch.into(), now).await.unwrap();
                let claimed = store.claim(node.ready(5), now).await.unwrap();
                let writes = claimed.iter().map(|c| steps(c, vec![step("a", 1)])).collect();
                store.record(writes, now).await.unwrap();
                tokio::task::yield_now().await;
            }
        });
    }
    at_once(writers).await;
    over.store(true, Ordering::SeqCst);
    let seen = reader.await.unwrap();
    let all = w.feed().await;
    assert!(seen.windows(2).all(|pair| pair[0].position < pair[1].position));
    assert_eq!(seen.len(), all.len());
    assert_eq!(seen, all);
    w.sound().await;
}

/// Reads on until the writers are done and nothing is left.
async fn read_feed(store: Arc<dyn Store>, over: Arc<AtomicBool>) -> Vec<Event> {
    let mut seen: Vec<Event> = vec![];
    loop {
        let ending = over.load(Ordering::SeqCst);
        let after = seen.last().map_or(Position::START, |e| e.position);
        let page = store.events(after, 50).await.unwrap();
        if page.is_empty() && ending {
            return seen;
        }
        seen.extend(page);
        tokio::task::yield_now().await;
    }
}

pub async fn a_claim_and_a_cancel_agree(w: World) {
    let all = w.submit_all(w.many(200)).await;
    let (node, store, now) = (w.tireless("n").await, w.handle(0), w.now());
    let claimer = tokio::spawn(async move {
        let mut mine = vec![];
        for _ in 0..100 {
            mine.extend(ids(&store.claim(node.ready(4), now).await.unwrap()));
        }
        mine
    });
    let (store, targets) = (w.handle(1), all.clone());
    let canceller = tokio::spawn(async move {
        let mut answers = vec![];
        for id in targets.into_iter().rev() {
            let change = Change::Tasks { ids: vec![id], change: TaskChange::Cancel };
            let answer = store.change(change, ann(), now).await.unwrap().remove(0).unwrap();
            answers.push((id, answer));
        }
        answers
    });
    let claimed: BTreeSet<TaskId> = claimer.await.unwrap().into_iter().collect();
    for (id, answer) in canceller.await.unwrap() {
        let task = w.get(id).await;
        let (state, asked) = match answer {
            Changed::Done => (State::Cancelled, false),
            _ => (State::Running, true),
        };
        assert_eq!((task.state(), task.standing.requests.cancel), (state, asked));
        assert_eq!(claimed.contains(&id), asked, "{answer:?}");
    }
    w.sound().await;
}

pub async fn the_last_children_cannot_both_miss(w: World) {
    let node = w.tireless("a").await;
    for _ in 0..10 {
        let (parent, children) = family(&w, &node, Policy::All, Then::Resume, 4).await;
        let claimed = w.ask(node.ids(&children)).await;
        let writes: Vec<Write> = claimed.iter().map(|c| w.settling(c, done())).collect();
        let jobs = writes.into_iter().enumerate().map(|(i, write)| {
            let (store, now) = (w.handle(i), w.now());
            async move {
                write_one(Arc::clone(&store), write, now).await.unwrap();
                store.upkeep(Job::Children, 10, now).await.unwrap();
            }
        });
        at_once(jobs).await;
        w.judge_children().await;
        assert_eq!(w.state(parent).await, State::Queued);
        w.claim_id(&node, parent).await;
    }
    w.sound().await;
}

pub async fn jobs_may_run_everywhere_at_once(w: World) {
    let all = w.submit_all((0..100).map(|_| w.task().after(SECOND)).collect()).await;
    w.advance(MINUTE);
    let jobs = (0..6).map(|i| {
        let (store, now) = (w.handle(i), w.now());
        async move {
            let mut done = 0;
            for _ in 0..ROUNDS {
                let upkept = store.upkeep(Job::Promote, 7, now).await.unwrap();
                done += upkept.done;
                if !upkept.more && upkept.done == 0 {
                    break;
                }
            }
            done
        }
    });
    let promoted: usize = at_once(jobs).await.into_iter().sum();
    w.promote().await;
    assert_eq!(promoted, 100);
    assert_eq!(w.list("state:queued").await.len(), all.len());
    w.sound().await;
}

pub async fn an_outbox_row_is_with_one_node_at_a_time(w: World) {
    let node = w.tireless("a").await;
    w.outbox_rule(true, false).await;
    for _ in 0..30 {
        w.failed(&node).await;
    }
    let mut takers = vec![];
    for i in 0..6 {
        let (node, store, now) = (w.tireless("n").await, w.handle(i), w.now());
        takers.push(async move {
            let take = OutboxOp::Take { node: node.id, hold: MINUTE, max: 5 };
            store.outbox(take, now).await.unwrap()
        });
    }
    let rows = at_once(takers).await;
    let mut lanes: BTreeSet<u8> = BTreeSet::new();
    for taken in &rows {
        let own: BTreeSet<u8> = taken.iter().map(|r| r.lane).collect();
        assert!(lanes.is_disjoint(&own), "a lane has one holder: {rows:?}");
        lanes.extend(own);
    }
    let seqs: Vec<i64> = rows.iter().flatten().map(|r| r.seq).collect();
    assert_eq!(seqs.iter().collect::<BTreeSet<_>>().len(), seqs.len());
}

pub async fn a_step_of_a_batch_is_taken_once(w: World) {
    let ids = w.submit_all(w.many(20)).await;
    w.operate(Change::Tasks { ids: ids.clone(), change: TaskChange::Cancel }).await;
    let order = Order::new(BatchId::from_key(1), Action::Requeue, filter("state:cancelled"));
    w.operate(Change::Batch(Box::new(order))).await;
    let step = BatchStep {
        batch: BatchId::from_key(1),
        version: 0,
        verdicts: vec![],
        targets: ids.iter().map(|&task| Target { task, again: None }).collect(),
        skipped: 0,
        walk: Walk::To(ids[0]),
    };
    let jobs = (0..10).map(|i| {
        let (store, step, now) = (w.handle(i), Box::new(step.clone()), w.now());
        async move { store.change(Change::Step(step), ann(), now).await }
    });
    let answers = at_once(jobs).await;
    assert_eq!(answers.iter().filter(|a| a.is_ok()).count(), 1, "{answers:?}");
    assert_eq!(w.told("task.requeued").await, 20);
    let batch = w.store().batch(BatchId::from_key(1)).await.unwrap().unwrap();
    assert_eq!((batch.counts.changed, batch.counts.matched), (20, 20));
}
