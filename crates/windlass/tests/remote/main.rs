//! Workers in other processes, as the engine sees them: what a heartbeat gives
//! back, who may speak for whom, what is ended in a worker's place, and how polls
//! wait. The lease is a day here, so a third of it is eight hours; polls of the
//! engine come once an hour of a clock that only the test moves.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // a test fails by panicking

mod answers;
mod ends;
#[path = "../shared/mod.rs"]
mod shared;

use serde_json::{Value, json};
use shared::{Bench, HOUR, On, failure, on_both, secs};
use std::time::Duration;
use windlass::core::checkpoint::StepOutcome;
use windlass::core::lease::Token;
use windlass::core::outcome::Reason;
use windlass::core::store::{AttemptEnd, NodeInfo, Stage};
use windlass::remote::{
    Finish, Lease, LeaseRequest, Report, ReportAnswer, ReportRequest, Said, Step, Trouble, Wish,
};
use windlass::{
    Engine, ErrorKind, Json, Kind, KindOptions, NodeChange, NodeId, Progress, QueueName, State,
    TaskId,
};

const DAYS: Duration = Duration::from_secs(1000 * 3600);

on_both!(
    a_lost_answer_goes_back_after_a_third_of_the_lease,
    a_dead_worker_is_followed_by_another_where_it_stopped,
    any_engine_takes_any_call,
    nobody_speaks_for_a_node_that_is_no_worker,
    a_waiting_poll_hears_of_work_at_once_and_lives_on,
    a_poll_that_goes_away_claims_nothing,
    a_stop_answers_those_who_wait,
    a_paused_worker_gets_nothing_until_it_is_resumed,
    what_people_ask_reaches_the_worker,
    a_cancel_that_is_not_obeyed_is_done_for_it,
    an_attempt_that_takes_too_long_is_ended_for_it,
    progress_is_written_twice_a_second_and_never_lost,
    nobody_speaks_for_the_task_of_another,
    a_leaving_worker_leaves_nothing,
    a_suspect_runs_alone_and_is_poisoned_at_last,
    bad_words_are_refused_one_by_one,
    a_kind_is_served_while_its_worker_lives,
    attempts_are_counted_on_the_row,
);

fn far(options: KindOptions) -> impl FnOnce(windlass::Builder) -> windlass::Builder {
    |b| b.remote_kind("far", options).settings(|s| s.suspects_wait = secs(10))
}

async fn bench(on: On) -> Bench {
    Bench::build(on, far(KindOptions::new().task_timeout(DAYS).retries(3))).await
}

fn wish(id: Option<NodeId>) -> LeaseRequest {
    LeaseRequest {
        worker: "w".to_owned(),
        id,
        kinds: vec![Kind::new("far").unwrap()],
        queues: vec![],
        max: 10,
        wait: Duration::ZERO,
        version: None,
    }
}

async fn submit(b: &Bench) -> TaskId {
    b.engine.submit_named("far", &json!({})).await.unwrap().id()
}

async fn join(engine: &Engine) -> NodeId {
    let answer = engine.workers().lease(wish(None)).await.unwrap();
    assert_eq!(answer.leases, []);
    answer.id
}

/// One lease, or the test fails.
async fn one(engine: &Engine, id: NodeId) -> Lease {
    let mut leases = engine.workers().lease(wish(Some(id))).await.unwrap().leases;
    assert_eq!(leases.len(), 1);
    leases.remove(0)
}

async fn none(engine: &Engine, id: NodeId) {
    assert_eq!(engine.workers().lease(wish(Some(id))).await.unwrap().leases, []);
}

fn held(leases: &[&Lease]) -> Vec<(TaskId, Token)> {
    leases.iter().map(|lease| (lease.task.id, lease.token)).collect()
}

fn says(lease: &Lease, said: Said) -> Report {
    Report { task: lease.task.id, token: lease.token, said }
}

fn step(lease: &Lease, name: &str, version: u64) -> Report {
    let output = Some(Json::of(&json!({name: version})).unwrap());
    let (name, outcome) = (name.to_owned(), StepOutcome::Done);
    let duration = Duration::from_millis(5);
    says(lease, Said::Step(Step { name, outcome, output, reason: None, version, duration }))
}

fn done(lease: &Lease, output: Option<Value>) -> Report {
    let output = output.map(|value| Json::of(&value).unwrap());
    says(lease, Said::Finish(Finish::Done { output }))
}

async fn report(
    engine: &Engine,
    id: NodeId,
    holds: &[&Lease],
    reports: Vec<Report>,
) -> ReportAnswer {
    let request = ReportRequest { held: held(holds), reports, leaving: false };
    engine.workers().report(id, request).await.unwrap()
}

fn words(answer: &ReportAnswer) -> Vec<&'static str> {
    let word = |r: &windlass::Result<()>| r.as_ref().map_or_else(|e| e.code().as_str(), |()| "ok");
    answer.results.iter().map(word).collect()
}

/// Hours pass; the engine itself stays alive.
async fn pass(b: &Bench, hours: u32) {
    for _ in 0..hours {
        b.advance(HOUR);
        b.engine.renew_now().await.unwrap();
    }
}

async fn node(b: &Bench, id: NodeId) -> Option<NodeInfo> {
    b.store.nodes().await.unwrap().into_iter().find(|node| node.id == id)
}

async fn a_lost_answer_goes_back_after_a_third_of_the_lease(on: On) {
    let b = bench(on).await;
    let worker = join(&b.engine).await;
    let kept = submit(&b).await;
    let kept_lease = one(&b.engine, worker).await;
    let lost = submit(&b).await;
    // The answer of this one never arrives.
    one(&b.engine, worker).await;
    pass(&b, 7).await;
    report(&b.engine, worker, &[&kept_lease], vec![]).await;
    assert_eq!(b.state(lost).await, State::Running, "it may still be on its way");
    pass(&b, 2).await;
    report(&b.engine, worker, &[&kept_lease], vec![]).await;
    assert_eq!(b.state(lost).await, State::Queued);
    assert_eq!(b.attempts(lost).await[0].ended.map(|(end, _)| end), Some(AttemptEnd::GivenBack));
    assert_eq!(b.state(kept).await, State::Running);
    let again = one(&b.engine, worker).await;
    assert_eq!((again.task.id, again.token, again.task.standing.retries), (lost, Token(2), 0));
}

async fn a_dead_worker_is_followed_by_another_where_it_stopped(on: On) {
    let b = bench(on).await;
    let dead = join(&b.engine).await;
    let id = submit(&b).await;
    let lease = one(&b.engine, dead).await;
    report(&b.engine, dead, &[&lease], vec![step(&lease, "first", 1)]).await;
    pass(&b, 25).await;
    let next = join_or_lease(&b.engine).await;
    assert_eq!(next.1.len(), 1);
    let (worker, taken) = (next.0, &next.1[0]);
    let checkpoint = taken.checkpoint.as_ref().expect("a checkpoint");
    assert_eq!((taken.task.id, taken.token, checkpoint.version.0), (id, Token(2), 1));
    let late = ReportRequest { reports: vec![step(&lease, "second", 2)], ..Default::default() };
    let late = b.engine.workers().report(dead, late).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::LeaseLost);
    let late = b.engine.workers().lease(wish(Some(dead))).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::LeaseLost);
    let reports = vec![step(taken, "second", 2), done(taken, None)];
    assert_eq!(words(&report(&b.engine, worker, &[taken], reports).await), ["ok", "ok"]);
    let task = b.task(id).await;
    let result: Value = task.standing.result.unwrap().to().unwrap();
    assert_eq!(result, json!({"first": 1, "second": 2}));
}

async fn join_or_lease(engine: &Engine) -> (NodeId, Vec<Lease>) {
    let answer = engine.workers().lease(wish(None)).await.unwrap();
    (answer.id, answer.leases)
}

async fn any_engine_takes_any_call(on: On) {
    let b = bench(on).await;
    let other = b.beside().await;
    let worker = join(&b.engine).await;
    let id = submit(&b).await;
    let lease = one(&other, worker).await;
    report(&b.engine, worker, &[&lease], vec![step(&lease, "a", 1)]).await;
    report(&other, worker, &[&lease], vec![step(&lease, "b", 2)]).await;
    b.engine.cancel(id).await.unwrap();
    let answer = report(&other, worker, &[&lease], vec![]).await;
    assert_eq!(answer.requests.len(), 1);
    let answer = report(&b.engine, worker, &[], vec![done(&lease, None)]).await;
    assert_eq!(words(&answer), ["ok"]);
    let task = b.task(id).await;
    assert_eq!(task.state(), State::Completed, "done work stays done");
    assert_eq!(task.standing.result.unwrap().to::<Value>().unwrap(), json!({"a": 1, "b": 2}));
    // Another one ends through the engine that did not give it.
    let second = submit(&b).await;
    let lease = one(&b.engine, worker).await;
    let fails =
        Said::Finish(Finish::Fail(Trouble { message: "no".to_owned(), ..Trouble::default() }));
    report(&other, worker, &[], vec![says(&lease, fails)]).await;
    assert_eq!(b.state(second).await, State::Failed);
    // What was counted here and there adds up.
    b.advance(secs(1));
    for engine in [&b.engine, &other] {
        report(engine, worker, &[], vec![]).await;
    }
    let row = node(&b, worker).await.unwrap();
    assert_eq!((row.consumed, row.failed, row.active), (2, 1, 0));
}

async fn nobody_speaks_for_a_node_that_is_no_worker(on: On) {
    let b = bench(on).await;
    let own = b.engine.status().node;
    for id in [own, NodeId::from_key(77)] {
        let lease = b.engine.workers().lease(wish(Some(id))).await.unwrap_err();
        let said = b.engine.workers().report(id, ReportRequest::default()).await.unwrap_err();
        assert_eq!((lease.kind(), said.kind()), (ErrorKind::LeaseLost, ErrorKind::LeaseLost));
    }
}

/// A poll that waits, on a task of its own.
fn poll(engine: &Engine, id: NodeId) -> tokio::task::JoinHandle<windlass::Result<Vec<Lease>>> {
    let workers = engine.workers();
    tokio::spawn(async move {
        let request = LeaseRequest { wait: secs(60), max: 1, ..wish(Some(id)) };
        workers.lease(request).await.map(|answer| answer.leases)
    })
}

/// Whatever can run has run.
async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

async fn a_waiting_poll_hears_of_work_at_once_and_lives_on(on: On) {
    let b = bench(on).await;
    let (first, second) = (join(&b.engine).await, join(&b.engine).await);
    let (one, two) = (poll(&b.engine, first), poll(&b.engine, second));
    b.quiet().await;
    settle().await;
    let id = submit(&b).await;
    let (taken, other) = tokio::select! {
        taken = one => (taken, second),
        taken = two => (taken, first),
    };
    let taken = taken.unwrap().unwrap();
    assert_eq!(taken[0].task.id, id);
    // A worker that holds nothing is kept alive by asking; one that holds
    // something must say so itself.
    for _ in 0..30 {
        pass(&b, 1).await;
        let asked = b.engine.workers().lease(wish(Some(other))).await;
        assert!(asked.is_ok() || node(&b, other).await.unwrap().active > 0, "{asked:?}");
    }
    assert!(node(&b, other).await.unwrap().lease_until > b.engine.now());
    let holder = if other == first { second } else { first };
    assert!(node(&b, holder).await.is_none_or(|row| row.lease_until <= b.engine.now()));
}

async fn a_poll_that_goes_away_claims_nothing(on: On) {
    let b = bench(on).await;
    let (first, second) = (join(&b.engine).await, join(&b.engine).await);
    let gone = poll(&b.engine, first);
    b.quiet().await;
    settle().await;
    let waits = poll(&b.engine, second);
    b.quiet().await;
    settle().await;
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    let id = submit(&b).await;
    let taken = waits.await.unwrap().unwrap();
    assert_eq!(taken[0].task.id, id);
    assert_eq!(taken[0].task.standing.node, Some(second));
    assert_eq!(b.attempts(id).await.len(), 1, "nobody else had it");
}

async fn a_stop_answers_those_who_wait(on: On) {
    let b = bench(on).await;
    let worker = join(&b.engine).await;
    let waits = poll(&b.engine, worker);
    b.quiet().await;
    settle().await;
    b.engine.shutdown(Duration::ZERO).await.unwrap();
    assert_eq!(waits.await.unwrap().unwrap(), []);
    let refused = b.engine.workers().lease(wish(Some(worker))).await.unwrap_err();
    assert_eq!(refused.code(), windlass::Code::Draining);
}

async fn a_paused_worker_gets_nothing_until_it_is_resumed(on: On) {
    let b = bench(on).await;
    let worker = join(&b.engine).await;
    for (hold, word) in [(NodeChange::Pause, "paused"), (NodeChange::Drain, "draining")] {
        b.engine.change_node(worker, hold).await.unwrap();
        let id = submit(&b).await;
        none(&b.engine, worker).await;
        let waits = poll(&b.engine, worker);
        b.quiet().await;
        settle().await;
        assert_eq!(b.state(id).await, State::Queued, "{word}");
        b.engine.change_node(worker, NodeChange::Resume).await.unwrap();
        assert_eq!(waits.await.unwrap().unwrap()[0].task.id, id, "{word}");
    }
    // Another engine hears of it by the worker's heartbeat.
    let other = b.beside().await;
    report(&other, worker, &[], vec![]).await;
    b.engine.change_node(worker, NodeChange::Pause).await.unwrap();
    submit(&b).await;
    report(&other, worker, &[], vec![]).await;
    none(&other, worker).await;
}

async fn what_people_ask_reaches_the_worker(on: On) {
    let b = bench(on).await;
    let worker = join(&b.engine).await;
    let (cancelled, paused) = (submit(&b).await, submit(&b).await);
    let leases = b.engine.workers().lease(wish(Some(worker))).await.unwrap().leases;
    let all: Vec<&Lease> = leases.iter().collect();
    b.engine.cancel(cancelled).await.unwrap();
    b.engine.pause(paused).await.unwrap();
    let answer = report(&b.engine, worker, &all, vec![]).await;
    let asked: Vec<_> = answer.requests.iter().map(|a| (a.task, a.what)).collect();
    assert_eq!(asked, [(cancelled, Wish::Cancel), (paused, Wish::Pause)]);
    let release = |lease: &Lease| says(lease, Said::Finish(Finish::Release));
    let answer = report(&b.engine, worker, &all, leases.iter().map(release).collect()).await;
    assert_eq!(words(&answer), ["ok", "ok"]);
    assert_eq!(b.state(cancelled).await, State::Cancelled);
    assert_eq!(b.state(paused).await, State::Paused);
    let answer = report(&b.engine, worker, &all, vec![]).await;
    assert!(answer.requests.iter().all(|a| a.what == Wish::Lost), "{answer:?}");
    assert_eq!(answer.requests.len(), 2, "it still says that it holds them");
}

async fn a_cancel_that_is_not_obeyed_is_done_for_it(on: On) {
    let b = bench(on).await;
    let worker = join(&b.engine).await;
    let id = submit(&b).await;
    let lease = one(&b.engine, worker).await;
    b.engine.cancel(id).await.unwrap();
    report(&b.engine, worker, &[&lease], vec![]).await;
    b.advance(secs(9));
    report(&b.engine, worker, &[&lease], vec![]).await;
    assert_eq!(b.state(id).await, State::Running, "the grace period lasts");
    b.advance(secs(2));
    let answer = report(&b.engine, worker, &[&lease], vec![]).await;
    assert_eq!(answer.requests.iter().map(|a| a.what).collect::<Vec<_>>(), [Wish::Cancel]);
    assert_eq!(b.state(id).await, State::Cancelled);
    let answer = report(&b.engine, worker, &[], vec![done(&lease, Some(json!(1)))]).await;
    assert_eq!(words(&answer), ["lease-lost"]);
}

async fn an_attempt_that_takes_too_long_is_ended_for_it(on: On) {
    let b = Bench::build(on, far(KindOptions::new().task_timeout(secs(60)))).await;
    let other = b.beside().await;
    for engine in [&b.engine, &other] {
        let worker = join(&b.engine).await;
        let id = submit(&b).await;
        let lease = one(&b.engine, worker).await;
        assert_eq!(lease.task_timeout, secs(60));
        b.advance(secs(59));
        report(&b.engine, worker, &[&lease], vec![]).await;
        assert_eq!(b.state(id).await, State::Running);
        b.advance(secs(2));
        // The other engine has its own rules: its timeout is the usual one.
        let late = if std::ptr::eq(engine, &other) { secs(1800) } else { Duration::ZERO };
        b.advance(late);
        let answer = report(engine, worker, &[&lease], vec![step(&lease, "x", 1)]).await;
        assert_eq!(answer.requests.iter().map(|a| a.what).collect::<Vec<_>>(), [Wish::Cancel]);
        let task = b.task(id).await;
        assert_eq!((task.state(), failure(&task).reason), (State::Failed, Some(Reason::Timeout)));
        let answer = report(engine, worker, &[], vec![done(&lease, None)]).await;
        assert_eq!(words(&answer), ["lease-lost"]);
    }
}

async fn progress_is_written_twice_a_second_and_never_lost(on: On) {
    let b = bench(on).await;
    let worker = join(&b.engine).await;
    let id = submit(&b).await;
    let lease = one(&b.engine, worker).await;
    let at = |done| {
        let progress = Progress { done, total: 9, note: None, data: None };
        says(&lease, Said::Progress(progress))
    };
    let seen = async || b.task(id).await.standing.progress.map(|p| p.done);
    let answer = report(&b.engine, worker, &[&lease], vec![at(1), at(2), at(3)]).await;
    assert_eq!((words(&answer), seen().await), (vec!["ok", "ok", "ok"], Some(1)));
    report(&b.engine, worker, &[&lease], vec![]).await;
    assert_eq!(seen().await, Some(1), "too early");
    b.advance(Duration::from_millis(600));
    report(&b.engine, worker, &[&lease], vec![]).await;
    assert_eq!(seen().await, Some(3), "with the heartbeat");
    report(&b.engine, worker, &[&lease], vec![at(4), done(&lease, Some(json!(1)))]).await;
    assert_eq!((seen().await, b.state(id).await), (Some(4), State::Completed));
}

async fn nobody_speaks_for_the_task_of_another(on: On) {
    let b = bench(on).await;
    let (owner, other) = (join(&b.engine).await, join(&b.engine).await);
    let id = submit(&b).await;
    let lease = one(&b.engine, owner).await;
    submit(&b).await;
    let own = one(&b.engine, other).await;
    let at = |done| {
        let progress = Progress { done, total: 9, note: None, data: None };
        says(&lease, Said::Progress(progress))
    };
    report(&b.engine, owner, &[&lease], vec![at(1), at(2)]).await;
    report(&b.engine, other, &[&own], vec![]).await;
    // Renewed just now: with an end, this report is no heartbeat.
    let said = vec![at(7), done(&lease, Some(json!("foreign"))), done(&own, Some(json!(1)))];
    let answer = report(&b.engine, other, &[&own, &lease], said).await;
    assert_eq!(words(&answer), ["lease-lost", "lease-lost", "ok"]);
    report(&b.engine, other, &[&lease], vec![]).await;
    // What waits to be written about it is still known.
    b.advance(secs(1));
    report(&b.engine, owner, &[&lease], vec![]).await;
    assert_eq!(b.task(id).await.standing.progress.map(|p| p.done), Some(2));
    let answer = report(&b.engine, owner, &[&lease], vec![done(&lease, Some(json!(1)))]).await;
    assert_eq!(words(&answer), ["ok"]);
}

async fn a_leaving_worker_leaves_nothing(on: On) {
    let b = bench(on).await;
    let worker = join(&b.engine).await;
    let (ended, dropped) = (submit(&b).await, submit(&b).await);
    let leases = b.engine.workers().lease(wish(Some(worker))).await.unwrap().leases;
    let reports = vec![done(&leases[0], Some(json!(1)))];
    let request = ReportRequest { held: vec![], reports, leaving: true };
    let answer = b.engine.workers().report(worker, request).await.unwrap();
    assert_eq!(words(&answer), ["ok"]);
    assert_eq!(b.state(ended).await, State::Completed);
    assert_eq!(b.state(dropped).await, State::Queued, "at once, not after a lease");
    assert_eq!(node(&b, worker).await, None);
    let gone = b.engine.workers().lease(wish(Some(worker))).await.unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::LeaseLost);
}

/// Its worker dies inside it.
async fn dies(b: &Bench, worker: NodeId) -> Lease {
    let lease = one(&b.engine, worker).await;
    pass(b, 25).await;
    lease
}

async fn a_suspect_runs_alone_and_is_poisoned_at_last(on: On) {
    let b = bench(on).await;
    let id = submit(&b).await;
    for _ in 0..2 {
        let (worker, leases) = join_or_lease(&b.engine).await;
        if leases.is_empty() {
            dies(&b, worker).await;
        } else {
            assert!(!leases[0].alone);
            pass(&b, 25).await;
        }
    }
    // A third worker is too young to be tried with it.
    let worker = join(&b.engine).await;
    assert_eq!(b.state(id).await, State::Scheduled, "it waits until somebody is old enough");
    let beside = submit(&b).await;
    let busy = one(&b.engine, worker).await;
    assert_eq!(busy.task.id, beside);
    b.advance(secs(11));
    b.until_queued(id).await;
    none(&b.engine, worker).await;
    submit(&b).await;
    none(&b.engine, worker).await;
    report(&b.engine, worker, &[], vec![done(&busy, Some(json!(1)))]).await;
    let alone = one(&b.engine, worker).await;
    assert_eq!((alone.task.id, alone.alone), (id, true));
    none(&b.engine, worker).await;
    pass(&b, 25).await;
    let (last, leases) = join_or_lease(&b.engine).await;
    let task = b.task(id).await;
    assert_eq!((task.state(), failure(&task).reason), (State::Failed, Some(Reason::Poisoned)));
    assert_eq!(leases.len(), 1, "the other one goes on");
    assert_eq!(node(&b, last).await.unwrap().stage, Stage::Serving);
}

async fn bad_words_are_refused_one_by_one(on: On) {
    let b = bench(on).await;
    let worker = join(&b.engine).await;
    submit(&b).await;
    let lease = one(&b.engine, worker).await;
    let mut reports = vec![];
    for (name, version) in [("", 1), ("a\nb", 1), ("a", 0), ("a", u64::MAX)] {
        reports.push(step(&lease, name, version));
    }
    let trouble = |class: &str| Trouble { class: class.parse().ok(), ..Trouble::default() };
    reports.push(says(&lease, Said::Finish(Finish::Fail(trouble("retryable")))));
    let retry = Finish::Retry { trouble: trouble("fatal"), delay: None };
    reports.push(says(&lease, Said::Finish(retry)));
    reports.push(step(&lease, "good", 1));
    let answer = report(&b.engine, worker, &[&lease], reports).await;
    let mut expected = vec!["invalid-fields"; 6];
    expected.push("ok");
    assert_eq!(words(&answer), expected);
    assert_eq!(b.state(lease.task.id).await, State::Running);
    let wrong: [fn(&mut LeaseRequest); 6] = [
        |w| w.worker = String::new(),
        |w| w.kinds.clear(),
        |w| w.max = 0,
        |w| w.max = 1001,
        |w| w.wait = Duration::from_secs(61),
        |w| w.queues = vec![QueueName::default(); 65],
    ];
    for spoil in wrong {
        let mut request = wish(Some(worker));
        spoil(&mut request);
        let refused = b.engine.workers().lease(request).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    }
    let many =
        ReportRequest { held: vec![(lease.task.id, lease.token); 10_001], ..Default::default() };
    let refused = b.engine.workers().report(worker, many).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
}

async fn a_kind_is_served_while_its_worker_lives(on: On) {
    let b = bench(on).await;
    assert!(!b.engine.serves("far"), "rules are no handler");
    let worker = join(&b.engine).await;
    assert!(b.engine.serves("far"));
    pass(&b, 25).await;
    assert!(!b.engine.serves("far"));
    assert!(b.engine.workers().lease(wish(Some(worker))).await.is_err());
}

async fn attempts_are_counted_on_the_row(on: On) {
    let b = bench(on).await;
    let worker = join(&b.engine).await;
    for round in 1..=3 {
        submit(&b).await;
        let lease = one(&b.engine, worker).await;
        let fails = Said::Finish(Finish::Fail(Trouble::default()));
        let said = if round == 2 { says(&lease, fails) } else { done(&lease, Some(json!(1))) };
        b.advance(secs(1));
        report(&b.engine, worker, &[], vec![said]).await;
    }
    b.advance(secs(1));
    report(&b.engine, worker, &[], vec![]).await;
    let row = node(&b, worker).await.unwrap();
    assert_eq!((row.consumed, row.failed, row.active, row.remote), (3, 1, 0, true));
    assert_eq!(b.engine.status().consumed, 0, "this node did none of it");
}
