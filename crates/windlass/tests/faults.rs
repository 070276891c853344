//! A store that fails before, after and twice, by seeded odds, under hundreds of
//! tasks; and a store that is away for a while. Whatever was acknowledged is
//! done, no recorded step runs again, and no task fails because of the store.
//! Each test fails when its faults did not happen.

#![allow(clippy::expect_used, clippy::panic)] // a test fails by panicking

mod bench_of_engines;

use bench_of_engines::{Ground, eventually, job, millis, on_both_stores, secs, settle};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use windlass::core::state::State;
use windlass::core::store::AttemptEnd;
use windlass::prelude::*;
use windlass_conformance::faults::{Call, Fault, FaultyStore, Odds};

on_both_stores!(
    everything_acknowledged_is_done_seed_1,
    everything_acknowledged_is_done_seed_2,
    everything_acknowledged_is_done_seed_3,
    a_store_that_is_away_fails_no_task,
    a_store_that_hangs_for_a_while_loses_no_lease,
    a_failed_claim_is_tried_again,
    a_due_task_waits_quietly_for_a_store_that_is_away,
);

/// Each run of a step's body gets the next number, and that is its output.
#[derive(Debug, Clone, Default)]
struct Bodies {
    ran: Arc<Mutex<Ran>>,
}

/// By task and step.
type Ran = HashMap<(u32, u32), Vec<u64>>;

impl Bodies {
    fn run(&self, task: u32, step: u32) -> u64 {
        let mut ran = self.ran.lock().expect("no panic");
        let next = ran.values().map(Vec::len).sum::<usize>() as u64;
        ran.entry((task, step)).or_default().push(next);
        next
    }

    fn last(&self, task: u32, step: u32) -> Option<u64> {
        self.ran.lock().expect("no panic").get(&(task, step))?.last().copied()
    }
}

#[derive(Serialize, Deserialize)]
struct Chain {
    n: u32,
}

const STEPS: u32 = 3;

impl TaskKind for Chain {
    const NAME: &'static str = "chain";
    type Output = Vec<u64>;
    async fn run(self, cx: Cx) -> Result<Vec<u64>, TaskError> {
        let bodies = cx.state::<Bodies>()?;
        let mut outputs = vec![];
        for step in 0..STEPS {
            let body = || async { Ok::<_, TaskError>(bodies.run(self.n, step)) };
            outputs.push(cx.step(format!("s{step}"), body).await?);
        }
        Ok(outputs)
    }
}

async fn under_faults(ground: Ground, seed: u64) {
    const TASKS: u32 = 200;
    let faulty = FaultyStore::seeded(ground.store.clone(), seed, Odds::default());
    let bodies = Bodies::default();
    let builder = ground.before(faulty.clone()).register::<Chain>().state(bodies.clone());
    let engine = builder.queue("default", 16).start().await.expect("an engine");
    faulty.set_odds(Odds { before: 8, after: 8, repeat: 8 });
    let mut acknowledged = vec![];
    for n in 0..TASKS {
        if let Ok(handle) = engine.submit(Chain { n }).await {
            acknowledged.push((n, handle));
        }
    }
    assert!(acknowledged.len() > 100 && acknowledged.len() < TASKS as usize);
    for (n, handle) in &acknowledged {
        let ended = tokio::spawn({
            let handle = handle.clone();
            async move { handle.ended().await }
        });
        while !ended.is_finished() {
            ground.clock.advance(millis(50));
            // It fails as often as any other call.
            let _ = engine.renew_now().await;
            settle().await;
        }
        let task = ended.await.expect("no panic").expect("an end");
        assert_eq!(task.state(), State::Completed, "{:?}", task.standing.failure);
        assert_eq!(task.standing.retries, 0);
        let used: Vec<u64> = task.standing.result.expect("a result").to().expect("numbers");
        let attempts = ground.store.attempts(task.id).await.expect("attempts");
        let ends = attempts
            .iter()
            .filter(|a| a.ended.map(|e| e.0) == Some(AttemptEnd::Settled(State::Completed)));
        assert_eq!(ends.count(), 1, "{attempts:?}");
        let steps: Vec<_> = attempts.iter().flat_map(|a| &a.steps).map(|e| &e.record).collect();
        assert_eq!(steps.len(), STEPS as usize, "a step is recorded once: {steps:?}");
        for (step, number) in (0..STEPS).zip(used) {
            assert_eq!(bodies.last(*n, step), Some(number), "a recorded step ran again");
        }
    }
    for fault in [Fault::Before, Fault::After, Fault::Repeat] {
        assert!(faulty.count(Call::Record, fault) > 0, "no {fault:?}");
    }
    assert!(faulty.count(Call::Claim, Fault::After) > 0);
    assert_eq!(engine.status().failed, 0);
}

async fn everything_acknowledged_is_done_seed_1(ground: Ground) {
    under_faults(ground, 1).await;
}

async fn everything_acknowledged_is_done_seed_2(ground: Ground) {
    under_faults(ground, 2).await;
}

async fn everything_acknowledged_is_done_seed_3(ground: Ground) {
    under_faults(ground, 3).await;
}

async fn a_store_that_is_away_fails_no_task(ground: Ground) {
    let faulty = FaultyStore::new(ground.store.clone());
    let engine = ground.before(faulty.clone()).start().await.expect("an engine");
    let handle = engine.submit(job("held").steps(2).waiting_in(0, 1)).await.expect("written");
    ground.floor.until(|log| log.steps.len() == 1).await;
    faulty.script_for(Call::Record, [Fault::Before; 12]);
    ground.floor.open_all();
    ground.pass_until(&[&engine], || faulty.count(Call::Record, Fault::Before) == 12).await;
    ground.pass(secs(2), &[&engine]).await;
    handle.result().await.expect("a name");
    let task = ground.task(&handle).await;
    assert_eq!((task.standing.retries, task.standing.attempt), (0, 1));
    assert_eq!(ground.store.stats().await.expect("stats").dead_letters, 0);
    assert_eq!(ground.floor.log().tries("held", 0), 1);
}

async fn a_store_that_hangs_for_a_while_loses_no_lease(ground: Ground) {
    let faulty = FaultyStore::new(ground.store.clone());
    let engine = ground.before(faulty.clone()).start().await.expect("an engine");
    let jobs = (0..4).map(|i| engine.submit(job(format!("{i}")).steps(2).waiting_in(0, 1)));
    let handles = engine.submit_all(jobs).await.expect("written");
    ground.floor.until(|log| log.steps.len() == 4).await;
    let node = engine.status().node;
    faulty.hold();
    ground.floor.open_all();
    faulty.until_held(1).await;
    ground.pass(secs(15), &[]).await;
    faulty.release();
    for handle in handles {
        handle.result().await.expect("a name");
        assert_eq!(ground.task(&handle).await.standing.attempt, 1);
    }
    let status = engine.status();
    assert_eq!((status.node, status.leases_lost, status.stale_writes_refused), (node, 0, 0));
}

async fn a_failed_claim_is_tried_again(ground: Ground) {
    let faulty = FaultyStore::new(ground.store.clone());
    let engine = ground.before(faulty.clone()).start().await.expect("an engine");
    engine.submit(job("warm")).await.expect("written").result().await.expect("a name");
    settle().await;
    faulty.script_for(Call::Claim, [Fault::Before; 3]);
    let handle = engine.submit(job("held")).await.expect("written");
    ground.pass_until(&[&engine], || faulty.count(Call::Claim, Fault::Before) == 3).await;
    ground.pass(secs(2), &[&engine]).await;
    handle.result().await.expect("a name");
    assert_eq!(ground.task(&handle).await.standing.attempt, 1);
}

async fn a_due_task_waits_quietly_for_a_store_that_is_away(ground: Ground) {
    let faulty = FaultyStore::new(ground.store.clone());
    let engine = ground.before(faulty.clone()).start().await.expect("an engine");
    let handle = engine.submit(job("later")).delay(secs(5)).await.expect("written");
    ground.pass(secs(4), &[&engine]).await;
    faulty.script_for(Call::Upkeep, [Fault::Before; 1000]);
    ground.clock.advance(secs(1));
    eventually("promoting fails", || faulty.count(Call::Upkeep, Fault::Before) > 0).await;
    // From the next poll on, only the store knows the time that has come.
    ground.pass(secs(2), &[&engine]).await;
    for _ in 0..20 {
        settle().await;
    }
    let tried = faulty.count(Call::Upkeep, Fault::Before);
    assert!(tried < 50, "the timer asks again without end: {tried}");
    while faulty.count(Call::Upkeep, Fault::Before) < 1000 {
        ground.pass(secs(10), &[&engine]).await;
    }
    ground.pass(secs(2), &[&engine]).await;
    handle.result().await.expect("a name");
}
