//! The child's side: a node as `windlass serve` starts it, with counters and a
//! listener and without logs, that obeys orders until nobody gives any more.
//! What an order does is `work.rs`'s business.

use super::orders::{Answer, Begin, Order, QUEUE, Usage};
use super::process;
use super::work::{Payload, Starts, Work, kinds};
use crate::config::{Config, Listen, QueueConfig, SecretUrl};
use crate::server::Server;
use serde::de::DeserializeOwned;
use std::io::Write;
use tokio::task::spawn_blocking;
use windlass::{Error, Result};

/// Slots of the one queue that is served.
const SLOTS: usize = 1000;

/// Obeys until stdin ends: then nobody measures any more.
pub async fn main() -> Result<()> {
    let Some(begin) = next::<Begin>().await? else { return Ok(()) };
    let started = start(&begin).await;
    let (server, work) = match started {
        Ok(started) => started,
        Err(error) => return say(&Answer::Failed { message: error.to_string() }),
    };
    let store = work.engine.store_name().to_owned();
    say(&Answer::Ready { at: server.at, store })?;
    while let Some(order) = next::<Order>().await? {
        let answer = obey(&work, order).await;
        say(&answer.unwrap_or_else(|error| Answer::Failed { message: error.to_string() }))?;
    }
    drop(work);
    server.stop(std::future::pending()).await?;
    Ok(())
}

async fn start(begin: &Begin) -> Result<(Server, Work)> {
    let mut config = Config::default();
    config.store.url = SecretUrl::new(&begin.store);
    config.server.listen = Listen(([127, 0, 0, 1], 0).into());
    config.node.name = "bench".to_owned();
    let queue = QueueConfig { concurrency: SLOTS, ..QueueConfig::default() };
    config.queues.insert(QUEUE.to_owned(), queue);
    let starts = Starts::new();
    let server = Server::start(&config, |b| kinds(b, begin.steps, &starts)).await?;
    let payload = Payload::of(begin.payload);
    let work = Work { engine: server.engine.clone(), payload, starts };
    Ok((server, work))
}

async fn obey(work: &Work, order: Order) -> Result<Answer> {
    let measured = match order {
        Order::Backlog { tasks } => work.backlog(tasks).await?,
        Order::Pause => {
            work.engine.pause_node().await?;
            Default::default()
        }
        Order::Submit { tasks } => work.submit(tasks).await?,
        Order::Drain { tasks } => work.drain(tasks).await?,
        Order::Callers { callers, tasks } => work.callers(callers, tasks).await?,
        Order::Steady { rate, warm, counted } => work.steady(rate, warm, counted).await?,
        Order::Usage => return usage(),
    };
    Ok(Answer::Done(measured))
}

fn usage() -> Result<Answer> {
    let (memory, memory_peak) = (process::memory()?, process::memory_peak()?);
    Ok(Answer::Usage(Usage { cpu: process::cpu(), memory, memory_peak }))
}

async fn next<T: DeserializeOwned>() -> Result<Option<T>> {
    let unread = || Error::invalid("bench", "an order cannot be read");
    let read = spawn_blocking(|| std::io::stdin().lines().next().transpose()).await;
    let line = read.map_err(|e| unread().because(e))?.map_err(|e| unread().because(e))?;
    let Some(line) = line else { return Ok(None) };
    let wrong = |e| Error::invalid("bench", "this is no order; start `windlass bench`").because(e);
    serde_json::from_str(&line).map(Some).map_err(wrong)
}

fn say(answer: &Answer) -> Result<()> {
    let unsaid = |e: std::io::Error| Error::invalid("bench", "nobody hears").because(e);
    let text = serde_json::to_string(answer).map_err(|e| unsaid(e.into()))?;
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{text}").and_then(|()| stdout.flush()).map_err(unsaid)
}
