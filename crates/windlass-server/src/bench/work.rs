//! What the measured node does with its engine when it is ordered to: submit in
//! bulk, drain, let callers submit, submit at a rate. Orders come from `node.rs`;
//! nothing here knows of processes or HTTP.

use super::left::Left;
use super::orders::{BATCH, Measured, NOTHING, QUEUE, Spread, TIMED, UNSERVED};
use super::process;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};
use windlass::{Builder, Engine, Error, KindOptions, Result, StepCall, TaskError, fatal};

/// How often the count of ended tasks is looked at.
const LOOK: Duration = Duration::from_millis(1);
/// Bytes of `{"data":""}`, and of what a timed payload has besides.
const PAYLOAD_FRAME: usize = 11;
const SENT_FRAME: usize = 21;

/// A payload that is mostly filling.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Payload {
    /// Nanoseconds of the node's life at which it was submitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    sent: Option<u64>,
    data: String,
}

impl Payload {
    pub(super) fn of(bytes: u64) -> Payload {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        Payload { sent: None, data: "x".repeat(bytes.saturating_sub(PAYLOAD_FRAME)) }
    }

    fn sent_at(&self, nanos: u64) -> Payload {
        let filling = self.data.len().saturating_sub(SENT_FRAME);
        Payload { sent: Some(nanos), data: self.data[..filling].to_owned() }
    }
}

/// When timed tasks began.
#[derive(Debug, Clone)]
pub(super) struct Starts {
    born: Instant,
    seconds: Arc<Mutex<Vec<f64>>>,
}

impl Starts {
    pub(super) fn new() -> Starts {
        Starts { born: Instant::now(), seconds: Arc::default() }
    }

    fn nanos(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn began(&self, payload: &str) -> Result<Value, TaskError> {
        let now = self.nanos();
        let payload: Payload = serde_json::from_str(payload).map_err(fatal)?;
        let sent = payload.sent.ok_or_else(|| fatal("nobody wrote when it was sent"))?;
        self.seconds.lock().push(now.saturating_sub(sent) as f64 / 1e9);
        Ok(Value::Null)
    }
}

/// The kinds of the benchmark.
pub(super) fn kinds(builder: Builder, steps: u64, starts: &Starts) -> Builder {
    async fn nothing(_: StepCall) -> Result<Value, TaskError> {
        Ok(Value::Null)
    }
    let options = || KindOptions::new().queue(QUEUE);
    let names: Vec<String> = (1..=steps).map(|n| format!("bench.step-{n}")).collect();
    let builder = names.iter().fold(builder, |builder, name| builder.handler(name, nothing));
    let starts = starts.clone();
    let timed = move |call: StepCall| {
        let began = starts.began(call.payload.as_str());
        async move { began }
    };
    let builder = builder.handler(TIMED, timed).plan_with(TIMED, [TIMED], options());
    builder.plan_with(NOTHING, names, options())
}

pub(super) struct Work {
    pub(super) engine: Engine,
    pub(super) payload: Payload,
    pub(super) starts: Starts,
}

impl Work {
    /// Lets `tasks` wait in the queue that nobody serves.
    pub(super) async fn backlog(&self, tasks: u64) -> Result<Measured> {
        let queues = self.engine.reader().queues().await?;
        let waiting = queues.iter().find(|queue| queue.name.as_str() == UNSERVED);
        let waiting = waiting.map_or(0, |queue| queue.states.values().sum());
        self.bulk(tasks.saturating_sub(waiting), Some(UNSERVED)).await
    }

    pub(super) async fn submit(&self, tasks: u64) -> Result<Measured> {
        self.bulk(tasks, None).await
    }

    /// Two batches are under way: one is made while the other is written, as a
    /// program that loads many would do it.
    async fn bulk(&self, tasks: u64, queue: Option<&'static str>) -> Result<Measured> {
        let (clock, left) = (Clock::start(), Left::new(tasks));
        let mut halves = JoinSet::new();
        for _ in 0..2 {
            let (engine, payload, left) = (self.engine.clone(), self.payload.clone(), left.clone());
            halves.spawn(async move {
                loop {
                    let batch = left.take(BATCH);
                    if batch == 0 {
                        return Ok(vec![]);
                    }
                    let one = |_| {
                        let words = engine.submit_named(NOTHING, &payload);
                        match queue {
                            Some(queue) => words.queue(queue),
                            None => words,
                        }
                    };
                    engine.submit_all((0..batch).map(one)).await?;
                }
            });
        }
        all(halves).await?;
        Ok(clock.stop())
    }

    /// Lets the paused node go and waits until so many ends are in the store.
    pub(super) async fn drain(&self, tasks: u64) -> Result<Measured> {
        let before = self.engine.status().consumed;
        let clock = Clock::start();
        self.engine.resume_node().await?;
        self.ended(before + tasks).await;
        Ok(clock.stop())
    }

    async fn ended(&self, tasks: u64) {
        while self.engine.status().consumed < tasks {
            sleep(LOOK).await;
        }
    }

    pub(super) async fn callers(&self, callers: u64, tasks: u64) -> Result<Measured> {
        let (clock, left) = (Clock::start(), Left::new(tasks));
        let mut calls = JoinSet::new();
        for _ in 0..callers {
            let (engine, payload, left) = (self.engine.clone(), self.payload.clone(), left.clone());
            calls.spawn(async move {
                let mut seconds = vec![];
                while left.take(1) > 0 {
                    let began = Instant::now();
                    engine.submit_named(NOTHING, &payload).queue(UNSERVED).await?;
                    seconds.push(began.elapsed().as_secs_f64());
                }
                Ok(seconds)
            });
        }
        let seconds = all(calls).await?;
        Ok(Measured { spread: Spread::of(seconds), ..clock.stop() })
    }

    /// Submits at a rate; each call is on its own, so a slow one delays no other.
    pub(super) async fn steady(&self, rate: u64, warm: u64, counted: u64) -> Result<Measured> {
        let before = self.engine.status().consumed;
        self.starts.seconds.lock().clear();
        let clock = Clock::start();
        let mut ticks = interval(Duration::from_secs(1).div_f64(rate as f64));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut calls = JoinSet::new();
        for _ in 0..warm + counted {
            ticks.tick().await;
            let engine = self.engine.clone();
            let payload = self.payload.sent_at(self.starts.nanos());
            calls.spawn(async move {
                engine.submit_named(TIMED, &payload).await?;
                Ok(vec![])
            });
        }
        all(calls).await?;
        self.ended(before + warm + counted).await;
        let warm = usize::try_from(warm).unwrap_or(usize::MAX);
        let seconds = self.starts.seconds.lock().iter().skip(warm).copied().collect();
        Ok(Measured { spread: Spread::of(seconds), ..clock.stop() })
    }
}

/// Waits for all of them; the first that failed fails the order.
async fn all(mut calls: JoinSet<Result<Vec<f64>>>) -> Result<Vec<f64>> {
    let mut seconds = vec![];
    while let Some(call) = calls.join_next().await {
        let broke = |e| Error::invalid("bench", "a caller broke off").because(e);
        seconds.extend(call.map_err(broke)??);
    }
    Ok(seconds)
}

/// Wall and CPU time of a stretch.
struct Clock {
    wall: Instant,
    cpu: f64,
}

impl Clock {
    fn start() -> Clock {
        Clock { wall: Instant::now(), cpu: process::cpu() }
    }

    fn stop(self) -> Measured {
        let (wall, cpu) = (self.wall.elapsed().as_secs_f64(), process::cpu() - self.cpu);
        Measured { wall, cpu, spread: Spread::default() }
    }
}
