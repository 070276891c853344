//! Retries against a service that is often down. The service is a few counters in
//! this process; the delays are short so that the lesson takes a second or two.
//! Four tasks show a step retry, a service that says when to come back, a task
//! retry with a policy of our own, and a dead letter that a person sends again.

#![allow(clippy::print_stdout)] // an example talks to a person

mod service;

use service::{Answer, Service};
use std::time::Duration;
use windlass::core::outcome::TaskError as Cause;
use windlass::prelude::*;
use windlass::{Exponential, Jitter, Query, RetryPolicy};

/// Asks the service for one page.
#[derive(Serialize, Deserialize)]
struct Fetch {
    page: String,
}

/// A policy of our own: always the same delay. It must answer alike when asked
/// alike, so it has no clock and no memory.
#[derive(Debug)]
struct Steady {
    retries: u32,
    delay: Duration,
}

impl RetryPolicy for Steady {
    fn delay(&self, retry: u32, _error: &Cause, _jitter: Jitter) -> Option<Duration> {
        (retry <= self.retries).then_some(self.delay)
    }
}

impl TaskKind for Fetch {
    const NAME: &'static str = "page.fetch";
    type Output = String;

    fn options() -> KindOptions {
        let quick = Exponential { first: Duration::from_millis(20), ..Exponential::STEP };
        KindOptions::new()
            .step_retry(Exponential { retries: 1, ..quick })
            .retry(Steady { retries: 2, delay: Duration::from_millis(100) })
    }

    async fn run(self, cx: Cx) -> Result<String, TaskError> {
        let service = cx.state::<Service>()?;
        let attempt = cx.attempt();
        cx.step("log in", || async {
            println!("  attempt {attempt}: logs in");
            Ok::<_, TaskError>(())
        })
        .await?;
        cx.step("fetch", || async {
            let answer = service.get(&self.page);
            println!("  attempt {attempt}: `{}` answers {answer:?}", self.page);
            match answer {
                Answer::Body(body) => Ok(body),
                Answer::Down => Err(retryable("the service is down")),
                Answer::Busy(wait) => Err(retryable("the service is busy").after(wait)),
                Answer::NoSuchPage => Err(fatal("there is no such page")),
            }
        })
        .await
    }
}

#[tokio::main]
async fn main() -> windlass::Result<()> {
    let builder = Windlass::in_memory().await?.register::<Fetch>();
    let engine = builder.state(Service::default()).start().await?;
    let fetch = |page: &str| engine.submit(Fetch { page: page.into() });

    println!("down once: the step is tried again within its attempt");
    println!("  result: {}", fetch("stumbles").await?.result().await?);

    println!("busy: the service's own delay is kept when it is the longer one");
    println!("  result: {}", fetch("busy").await?.result().await?);

    println!("down for longer: the task is tried again, logged in as it is");
    println!("  result: {}", fetch("sleeps").await?.result().await?);

    println!("no such page: a retry would not help, so there is none");
    let handle = fetch("missing").await?;
    println!("  error: {}", handle.result().await.unwrap_or_else(|e| e.to_string()));
    for letter in engine.dead_letters(Query { limit: 10, ..Query::default() }).await?.items {
        println!(
            "  dead letter: {} ({}), {} attempt",
            letter.message, letter.reason, letter.attempts
        );
    }
    println!("somebody has written the page meanwhile and requeues the task");
    engine.requeue(handle.id()).await?;
    println!("  result: {}", handle.result().await?);
    engine.shutdown(Duration::from_secs(5)).await
}
