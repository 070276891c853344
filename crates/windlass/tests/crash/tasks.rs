//! The kinds of task that the dying process runs. Each step says in the ledger
//! when it begins and when it has done its work, and each chain computes a value
//! through all its steps, so that a step whose result was lost or exchanged
//! shows in the task's output.

use crate::ledger::{Fact, Ledger, Spot};
use crate::worker::Work;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Semaphore;
use windlass::prelude::*;

/// The steps of a chain.
pub(crate) const STEPS: [&str; 3] = ["fetch", "convert", "store"];

/// What a step makes of the value of the one before.
fn worked(value: u64, step: &str) -> u64 {
    step.bytes().fold(value, |v, byte| v.wrapping_mul(31).wrapping_add(u64::from(byte)))
}

/// What the chain of this number gives in the end.
pub(crate) fn value_of(number: u64) -> u64 {
    STEPS.iter().fold(number, |value, step| worked(value, step))
}

/// What tasks share.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) ledger: Ledger,
    /// Each task that ends lets another one be submitted.
    pub(crate) room: Arc<Semaphore>,
    /// One for each step that a chain has begun here.
    pub(crate) begun: Semaphore,
    pub(crate) work: Work,
}

fn spot(cx: &Cx, step: &str) -> Spot {
    Spot { task: cx.id(), step: step.to_owned(), attempt: cx.attempt() }
}

/// Three steps in a row.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Chain {
    pub(crate) number: u64,
}

impl TaskKind for Chain {
    const NAME: &'static str = "chain";
    type Output = u64;

    async fn run(self, cx: Cx) -> Result<u64, TaskError> {
        let bench = cx.state::<Bench>()?;
        let mut value = self.number;
        for step in STEPS {
            let ran = AtomicBool::new(false);
            let takes = bench.work.step_takes(self.number, cx.attempt(), step);
            let (here, before) = (spot(&cx, step), value);
            value = cx
                .step(step, || async {
                    ran.store(true, Ordering::Relaxed);
                    bench.ledger.write(Fact::Begin(here.clone())).await;
                    bench.begun.add_permits(1);
                    if !takes.is_zero() {
                        // tidy: allow-sleep because this is the work of the step
                        tokio::time::sleep(takes).await;
                    }
                    bench.ledger.write(Fact::End(here.clone())).await;
                    Ok::<_, TaskError>(worked(before, step))
                })
                .await?;
            if ran.into_inner() {
                bench.ledger.write(Fact::Recorded(here)).await;
                if step == STEPS[0] && bench.work.fails(self.number) {
                    return Err(retryable("fails once, right after its first step"));
                }
            }
        }
        bench.room.add_permits(1);
        Ok(value)
    }
}

/// Kills its process, each time.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Killer {}

impl TaskKind for Killer {
    const NAME: &'static str = "killer";
    type Output = ();

    async fn run(self, cx: Cx) -> Result<(), TaskError> {
        let bench = cx.state::<Bench>()?;
        cx.step("kill", || async {
            bench.ledger.write(Fact::Begin(spot(&cx, "kill"))).await;
            // Others shall be there when it dies, until it has to run alone.
            if cx.attempt() < 3 {
                bench.begun.acquire().await?.forget();
            }
            if true {
                std::process::abort();
            }
            Ok::<_, TaskError>(())
        })
        .await
    }
}

/// Fails once, then succeeds.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Flaky {}

impl TaskKind for Flaky {
    const NAME: &'static str = "flaky";
    type Output = ();

    async fn run(self, cx: Cx) -> Result<(), TaskError> {
        let bench = cx.state::<Bench>()?;
        bench.ledger.write(Fact::Begin(spot(&cx, "all"))).await;
        if cx.attempt() == 1 {
            bench.ledger.write(Fact::Failed(spot(&cx, "all"))).await;
            return Err(retryable("the first time it fails"));
        }
        Ok(())
    }
}
