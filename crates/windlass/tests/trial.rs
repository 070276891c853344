//! `windlass::testing`, as tests of kinds use it: one task run to its end, the
//! node dying after chosen steps, and the clock that only the test moves.

#![allow(clippy::expect_used, clippy::panic)] // a test fails by panicking

mod shared;

use shared::{Count, MS, give, secs};
use std::future::Future;
use std::sync::{Arc, Mutex};
use windlass::core::clock::{Clock, Timestamp};
use windlass::core::state::State;
use windlass::prelude::*;
use windlass::testing::{TestClock, run_one, trial};

const STEPS: [&str; 5] = ["one", "two", "three", "four", "five"];

/// How many times each of the five steps was done.
#[derive(Clone, Default)]
struct Done(Arc<[Count; 5]>);

impl Done {
    fn counts(&self) -> Vec<usize> {
        self.0.iter().map(Count::get).collect()
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Five {}

impl TaskKind for Five {
    const NAME: &'static str = "five";
    type Output = Vec<String>;

    async fn run(self, cx: Cx) -> Result<Vec<String>, TaskError> {
        let done = cx.state::<Done>()?;
        let mut said = vec![];
        for (i, name) in STEPS.into_iter().enumerate() {
            said.push(cx.step(name, || give(format!("{name}-{}", done.0[i].up()))).await?);
        }
        Ok(said)
    }
}

fn all_first() -> Vec<String> {
    STEPS.iter().map(|name| format!("{name}-1")).collect()
}

#[tokio::test]
async fn one_task_runs_to_its_end() {
    let done = Done::default();
    let state = done.clone();
    let ran = trial(Five {}).with(move |b| b.state(state.clone())).run().await.expect("a run");
    assert_eq!(ran.output.as_ref().expect("a value"), &all_first());
    assert_eq!((ran.steps(), ran.crashes, ran.attempts.len()), (STEPS.to_vec(), 0, 1));
    assert_eq!(ran.task.state(), State::Completed);
    assert_eq!(done.counts(), [1; 5]);
}

#[tokio::test]
async fn after_a_crash_no_step_is_done_twice() {
    for step in STEPS {
        let done = Done::default();
        let state = done.clone();
        let five = trial(Five {}).with(move |b| b.state(state.clone())).crash_after_step(step);
        let ran = five.run().await.expect("a run");
        assert_eq!(ran.output.as_ref().expect("a value"), &all_first(), "after {step}");
        assert_eq!((ran.crashes, ran.attempts.len()), (1, 2), "after {step}");
        assert_eq!((done.counts(), ran.steps()), (vec![1; 5], STEPS.to_vec()), "after {step}");
        assert_eq!(ran.task.standing.retries, 0, "a crash burns no retry");
    }
}

#[tokio::test]
async fn a_node_can_die_after_every_step() {
    let done = Done::default();
    let state = done.clone();
    let five = trial(Five {}).with(move |b| b.state(state.clone()));
    let five = STEPS.into_iter().fold(five, |five, step| five.crash_after_step(step));
    let ran = five.run().await.expect("a run");
    assert_eq!(ran.output.as_ref().expect("a value"), &all_first());
    assert_eq!((ran.crashes, ran.attempts.len()), (5, 6));
    assert_eq!(done.counts(), [1; 5]);
}

#[tokio::test]
async fn two_crashes() {
    let done = Done::default();
    let state = done.clone();
    let five = trial(Five {}).with(move |b| b.state(state.clone()));
    let ran = five.crash_after_step("two").crash_after_step("four").run().await.expect("a run");
    assert_eq!((ran.crashes, ran.attempts.len(), done.counts()), (2, 3, vec![1; 5]));
    let by_attempt: Vec<usize> = ran.attempts.iter().map(|a| a.steps.len()).collect();
    assert_eq!(by_attempt, [2, 2, 1]);
}

/// Fails on its first tries, by the payload's numbers.
#[derive(Debug, Serialize, Deserialize)]
struct Shaky {
    step_failures: usize,
    task_failures: u32,
}

impl TaskKind for Shaky {
    const NAME: &'static str = "shaky";
    type Output = u32;

    async fn run(self, cx: Cx) -> Result<u32, TaskError> {
        let tries = Count::default();
        cx.step("shaky", || async {
            if tries.up() <= self.step_failures { Err(retryable("shaky")) } else { Ok(()) }
        })
        .await?;
        if cx.attempt() <= self.task_failures {
            return Err(retryable("the whole"));
        }
        Ok(cx.attempt())
    }
}

#[tokio::test]
async fn retries_of_a_trial_do_not_wait() {
    let ran = run_one(Shaky { step_failures: 2, task_failures: 3 }).await.expect("a run");
    assert_eq!(ran.output.expect("a value"), 4);
    let (tries, attempts) = (ran.attempts[0].steps.len(), ran.attempts.len());
    assert_eq!((tries, attempts, ran.task.standing.retries), (3, 4, 3));
}

#[tokio::test]
async fn a_trial_keeps_to_the_number_of_retries() {
    let ran = run_one(Shaky { step_failures: 0, task_failures: 99 }).await.expect("a run");
    assert_eq!((ran.task.state(), ran.attempts.len()), (State::Failed, 16));
    let error = ran.output.expect_err("no value");
    assert!(error.message().contains("exhausted"), "{error}");
}

#[tokio::test]
async fn a_node_does_not_die_after_a_failed_try() {
    let shaky = trial(Shaky { step_failures: 2, task_failures: 0 }).crash_after_step("shaky");
    let ran = shaky.run().await.expect("a run");
    assert_eq!((ran.crashes, ran.tries("shaky"), ran.attempts.len()), (1, 3, 2));
    assert_eq!(ran.attempts[0].steps.len(), 3, "all tries before the death");
}

/// Sleepers that note their name when they wake.
async fn sleepers(clock: &TestClock, until: &[u64]) -> Arc<Mutex<Vec<u64>>> {
    let woken = Arc::new(Mutex::new(vec![]));
    for &seconds in until {
        let (sleep, woken) = (clock.sleep_until(secs(seconds)), woken.clone());
        tokio::spawn(async move {
            sleep.await;
            woken.lock().expect("no panic in here").push(seconds);
        });
    }
    tokio::task::yield_now().await;
    woken
}

async fn seen(woken: &Arc<Mutex<Vec<u64>>>) -> Vec<u64> {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    woken.lock().expect("no panic in here").clone()
}

#[tokio::test]
async fn the_clock_wakes_those_whose_time_has_come_in_order() {
    let clock = TestClock::new();
    assert_eq!(clock.uptime(), secs(1));
    let woken = sleepers(&clock, &[9, 3, 5, 4]).await;
    clock.advance(secs(2) - MS);
    assert!(seen(&woken).await.is_empty());
    clock.advance(MS);
    assert_eq!(seen(&woken).await, [3], "exactly at its time");
    clock.advance(secs(4));
    assert_eq!(seen(&woken).await, [3, 4, 5], "the earlier first");
    clock.advance(secs(100));
    assert_eq!(seen(&woken).await, [3, 4, 5, 9]);
}

#[tokio::test]
async fn the_clock_moves_only_when_told() {
    let start = Timestamp::from_millis(5_000_000);
    let clock = TestClock::at(start);
    let now = clock.now();
    clock.clone().advance(secs(7));
    assert_eq!(clock.now().since(now), secs(7), "a clone is the same clock");
    assert_eq!(clock.uptime(), secs(8));
    let past: std::pin::Pin<Box<dyn Future<Output = ()> + Send>> = clock.sleep_until(secs(8));
    past.await; // a time that has come needs no move
}
