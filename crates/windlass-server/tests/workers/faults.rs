//! Faults between a server and its workers: an answer that is lost after the
//! commit, a process that is killed in a step, one that is stopped for three
//! leases. Each case first shows that its fault happened.

use crate::place::Place;
use crate::process::{Line, STEPS, WorkerProcess, ledger};
use crate::proxy::Proxy;
use crate::worker::{Worker, place, place_on};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

const LEASE: Duration = Duration::from_secs(1);

/// Waits until something is there.
async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{what} did not happen");
        // tidy: allow-sleep because other processes announce nothing
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_runs_again_within_two_leases() {
    // One that heartbeats, and one that only asks for work.
    for beats in [true, false] {
        let real = place(LEASE).await;
        let proxy = Proxy::before(real.at).await;
        let through =
            Place { at: proxy.at, client: reqwest::Client::new(), engine: real.engine.clone() };
        let mut worker = Worker::new(&through);
        assert_eq!(worker.lease(json!({})).await.len(), 0);
        let mut ids = vec![];
        for _ in 0..3 {
            ids.push(real.submit(json!({"kind": "far"})).await);
        }
        proxy.drop_leases();
        let body = json!({"worker": "w", "worker_id": worker.id, "kinds": ["far"], "queues": ["jobs"], "max": 10});
        let lost = through.client.post(through.url("/v1/worker/lease")).json(&body).send().await;
        assert!(lost.is_err(), "the answer was dropped: {lost:?}");
        assert_eq!(proxy.dropped(), 1);
        for id in &ids {
            let task = real.get(&format!("/v1/tasks/{id}")).await.json.clone();
            assert_eq!(
                (&task["state"], &task["attempt"]),
                (&json!("running"), &json!(1)),
                "committed"
            );
        }
        let began = Instant::now();
        let mut again = vec![];
        while again.len() < ids.len() {
            assert!(began.elapsed() < 2 * LEASE, "not within two leases, beats: {beats}");
            if beats {
                worker.report(json!([])).await;
            }
            let got = worker.ask(json!({"wait": "100ms"})).await;
            if got.status == 409 {
                assert!(!beats, "it said that it lives");
                worker.id = None;
                continue;
            }
            worker.id = got.json["worker_id"].as_str().map(str::to_owned);
            again.extend(got.json["leases"].as_array().expect("leases").clone());
            worker.held = again
                .iter()
                .map(|l| json!({"task": l["task"]["id"], "token": l["token"]}))
                .collect();
        }
        let reports: Vec<Value> =
            again.iter().map(|l| crate::worker::Leased::of(l).done(json!(1))).collect();
        let (results, _) = worker.report(json!(reports)).await;
        assert_eq!(results, ["ok", "ok", "ok"]);
        for id in &ids {
            let task = real.get(&format!("/v1/tasks/{id}")).await.json.clone();
            assert_eq!((&task["state"], &task["attempt"]), (&json!("completed"), &json!(2)));
            assert_eq!(task["retries_left"], 2, "nothing was burnt");
            let attempts = real.get(&format!("/v1/tasks/{id}/attempts")).await;
            let first = if beats { "given_back" } else { "lost" };
            assert_eq!(attempts.items()[0]["outcome"], first);
        }
    }
}

/// Every task has completed with all its steps, and no step that is in the store
/// was begun again after it was recorded.
async fn compare(place: &Place, ids: &[String], path: &Path) {
    let lines = ledger(path);
    for id in ids {
        let task = place.get(&format!("/v1/tasks/{id}")).await.json.clone();
        assert_eq!(task["state"], "completed", "{task}");
        for step in STEPS {
            assert!(task["result"][step].is_u64(), "{step} is lost: {task}");
        }
        let attempts = place.get(&format!("/v1/tasks/{id}/attempts")).await;
        let mut recorded = 0;
        for attempt in attempts.items() {
            for step in attempt["steps"].as_array().expect("steps") {
                recorded += 1;
                let by = attempt["attempt"].as_u64().expect("a number");
                let later = |l: &&Line| l.task == *id && l.step == step["name"].as_str().unwrap();
                let again: Vec<_> = lines
                    .iter()
                    .filter(later)
                    .filter(|l| l.what == "begin" && l.attempt > by)
                    .collect();
                assert_eq!(again, Vec::<&Line>::new(), "{step} was recorded by attempt {by}");
            }
        }
        assert_eq!(recorded, STEPS.len(), "each step is recorded once: {attempts:?}");
    }
}

/// A worker that has recorded a step of a task and is inside the next.
async fn inside(path: &Path, process: u32) -> Line {
    until("a second step", async || {
        ledger(path)
            .into_iter()
            .find(|l| l.process == process && l.step == "two" && l.what == "begin")
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_killed_in_a_step_is_followed_by_another() {
    let folder = tempfile::tempdir().unwrap();
    let (place, path) = (place_on(folder.path(), LEASE).await, folder.path().join("ledger"));
    let mut ids = vec![];
    for _ in 0..3 {
        ids.push(place.submit(json!({"kind": "far"})).await);
    }
    let mut first = WorkerProcess::start(place.at, &path);
    let at = inside(&path, first.id()).await;
    first.kill();
    let task = place.get(&format!("/v1/tasks/{}", at.task)).await.json.clone();
    assert_eq!(
        (&task["state"], &task["version"]),
        (&json!("running"), &json!(1)),
        "killed in its second step"
    );
    let second = WorkerProcess::start(place.at, &path);
    for id in &ids {
        place.until(id, "completed").await;
    }
    compare(&place, &ids, &path).await;
    let lines = ledger(&path);
    let resumed = lines.iter().find(|l| l.process == second.id() && l.task == at.task);
    assert_eq!(resumed.map(|l| l.step.as_str()), Some("two"), "where it was");
    let attempts = place.get(&format!("/v1/tasks/{}/attempts", at.task)).await;
    assert_eq!(attempts.items()[0]["outcome"], "lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_stopped_for_three_leases_hears_that_it_is_late() {
    let folder = tempfile::tempdir().unwrap();
    let (place, path) = (place_on(folder.path(), LEASE).await, folder.path().join("ledger"));
    let ids = vec![place.submit(json!({"kind": "far"})).await];
    let first = WorkerProcess::start(place.at, &path);
    let at = inside(&path, first.id()).await;
    first.signal(Signal::STOP);
    let began = Instant::now();
    let mut second = WorkerProcess::start(place.at, &path);
    place.until(&at.task, "completed").await;
    let rest = (3 * LEASE).saturating_sub(began.elapsed());
    // tidy: allow-sleep because the fault is that nothing happens for three leases
    tokio::time::sleep(rest).await;
    first.signal(Signal::CONT);
    let lost = until("a refusal", async || {
        ledger(&path).into_iter().find(|l| l.process == first.id() && l.what == "lost")
    })
    .await;
    assert_eq!((&lost.task, lost.step.as_str()), (&at.task, "two"));
    compare(&place, &ids, &path).await;
    // It takes part again, as somebody else.
    second.kill();
    let later = place.submit(json!({"kind": "far"})).await;
    place.until(&later, "completed").await;
    assert!(ledger(&path).iter().any(|l| l.process == first.id() && l.task == later));
}
