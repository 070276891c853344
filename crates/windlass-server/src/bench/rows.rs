//! What is measured, in which order, and what each figure is called. Every part
//! has a node of its own on the same store, so that no part sees another one's
//! memory; rounds of what is compared alternate, and medians count. Whoever
//! submits without draining does so into a queue that nobody serves.

use super::child::Node;
use super::far::{Far, SLOTS};
use super::figures::{Figure, Goal, Report, median};
use super::folder::Folder;
use super::http::Load;
use super::listeners::Listeners;
use super::orders::{Begin, Measured, Order};
use super::work::Payload;
use super::{Wanted, process};
use crate::config::redact;
use serde_json::json;
use windlass::{Error, Result};

/// Rounds of submitting in bulk and draining.
const DRAINS: usize = 3;
/// Rounds of single submits, each with all its sides.
const ROUNDS: usize = 9;
/// Tasks of one round of single submits, at the least and at the most.
const ROUND_TASKS: (u64, u64) = (128, 10_000);
/// How long the time to the start is measured, in seconds.
const STEADY: u64 = 5;
const LISTENERS: u64 = 1000;
const LISTENERS_MB: f64 = 50.0;
const HTTP_RATIO: f64 = 0.5;
const REMOTE_RATIO: f64 = 0.25;
/// Rounds of draining by the node itself and by a remote worker.
const REMOTE_ROUNDS: usize = 5;
/// Tasks of one such round, at the least and at the most.
const REMOTE_TASKS: (u64, u64) = (128, 20_000);

/// Measures everything; `say` hears how it goes.
pub async fn run(wanted: &Wanted, say: &dyn Fn(&str)) -> Result<Report> {
    let folder = match wanted.store {
        Some(_) => None,
        None => Some(Folder::new()?),
    };
    let store = match (&wanted.store, &folder) {
        (Some(url), _) => url.clone(),
        (None, Some(folder)) => format!("sqlite://{}", folder.path().join("bench.db").display()),
        (None, None) => String::new(),
    };
    let begin = Begin { store, payload: wanted.payload, steps: wanted.steps };
    let payload = Payload::of(wanted.payload);
    // Before the first child, which inherits it.
    let listeners = process::room_for(LISTENERS);
    let mut bench =
        Bench { wanted, begin, payload, say, figures: vec![], store: String::new(), listeners };
    bench.bulk().await?;
    bench.remote().await?;
    bench.single().await?;
    bench.steady().await?;
    bench.events().await?;
    let facts = bench.facts();
    Ok(Report { figures: bench.figures, facts })
}

struct Bench<'a> {
    wanted: &'a Wanted,
    begin: Begin,
    payload: Payload,
    say: &'a dyn Fn(&str),
    figures: Vec<Figure>,
    /// The name of the store.
    store: String,
    listeners: u64,
}

fn broken(error: std::io::Error) -> Error {
    Error::invalid("bench", "the measured server cannot be talked to").because(error)
}

fn rate(tasks: u64, rounds: &[Measured]) -> f64 {
    tasks as f64 / median(rounds.iter().map(|round| round.wall))
}

/// How fast `these` were beside `those`, round by round.
fn ratio(those: &[Measured], these: &[Measured]) -> f64 {
    median(those.iter().zip(these).map(|(that, this)| that.wall / this.wall))
}

/// Microseconds of CPU for each of `tasks`.
fn micros(tasks: u64, seconds: impl IntoIterator<Item = f64>) -> f64 {
    median(seconds) * 1e6 / tasks as f64
}

/// Milliseconds.
fn middle(rounds: &[Measured], pick: fn(&Measured) -> f64) -> f64 {
    median(rounds.iter().map(pick)) * 1e3
}

impl Bench<'_> {
    /// A node with the backlog behind it.
    async fn node(&mut self) -> Result<Node> {
        let mut node = Node::start(&self.begin).await?;
        node.store.clone_into(&mut self.store);
        if self.wanted.backlog > 0 {
            (self.say)(&format!("a backlog of {} tasks", self.wanted.backlog));
            node.order(Order::Backlog { tasks: self.wanted.backlog }).await?;
        }
        Ok(node)
    }

    fn add(&mut self, figure: Figure) {
        self.figures.push(figure);
    }

    async fn bulk(&mut self) -> Result<()> {
        let Wanted { tasks, steps, .. } = *self.wanted;
        let mut node = self.node().await?;
        let (mut submits, mut drains) = (vec![], vec![]);
        for round in 1..=DRAINS {
            (self.say)(&format!("bulk submit and drain, round {round} of {DRAINS}"));
            node.order(Order::Pause).await?;
            submits.push(node.order(Order::Submit { tasks }).await?);
            drains.push(node.order(Order::Drain { tasks }).await?);
        }
        let peak = node.usage().await?.memory_peak;
        node.stop().await?;
        let submitted = rate(tasks, &submits);
        let meaning = format!("submit {tasks} tasks in batches of 1000, two under way");
        self.add(Figure::new("bulk_submit", submitted, "tasks/s", meaning));
        let drained = rate(tasks, &drains);
        let meaning = format!("run them with an empty handler, steps each: {steps}");
        self.add(Figure::new("drain", drained, "tasks/s", meaning));
        self.add(Figure::new(
            "drain_steps",
            drained * steps as f64,
            "steps/s",
            "the same, in steps",
        ));
        let cpu = micros(tasks, drains.iter().map(|round| round.cpu));
        self.add(Figure::new("drain_cpu", cpu, "us/task", "CPU for it, user and system"));
        let meaning = "most memory the node had, submitting and draining";
        self.add(Figure::new("drain_memory", peak, "MB", meaning));
        Ok(())
    }

    /// The same tasks, by the node itself and by a worker in another process.
    async fn remote(&mut self) -> Result<()> {
        let steps = self.wanted.steps;
        let tasks = (self.wanted.tasks / 5).clamp(REMOTE_TASKS.0, REMOTE_TASKS.1);
        let (mut node, mut far) = (self.node().await?, Far::start()?);
        let (mut own, mut remote, mut served) = (vec![], vec![], vec![]);
        for round in 1..=REMOTE_ROUNDS {
            (self.say)(&format!("drain by a remote worker, round {round} of {REMOTE_ROUNDS}"));
            node.order(Order::Pause).await?;
            node.order(Order::Submit { tasks }).await?;
            own.push(node.order(Order::Drain { tasks }).await?);
            node.order(Order::Pause).await?;
            node.order(Order::Submit { tasks }).await?;
            let before = node.usage().await?.cpu;
            remote.push(far.round(node.at, tasks, steps).await?);
            served.push(node.usage().await?.cpu - before);
        }
        far.stop().await?;
        node.stop().await?;
        let meaning = format!("one remote worker process with {SLOTS} slots runs them");
        let figure = Figure::new("remote_64", rate(tasks, &remote), "tasks/s", meaning);
        let figure = figure.beside("drain", ratio(&own, &remote));
        self.add(figure.goal(Goal::Ratio(REMOTE_RATIO)));
        let meaning = "CPU of the server for one of them";
        self.add(Figure::new("remote_64_server_cpu", micros(tasks, served), "us/task", meaning));
        let cpu = micros(tasks, remote.iter().map(|round| round.cpu));
        self.add(Figure::new("remote_64_worker_cpu", cpu, "us/task", "CPU of the worker"));
        Ok(())
    }

    /// Single submits, by the library and over HTTP, on one engine.
    async fn single(&mut self) -> Result<()> {
        let tasks = (self.wanted.tasks / 10).clamp(ROUND_TASKS.0, ROUND_TASKS.1);
        let mut node = self.node().await?;
        let mut load = Load::open(node.at, 64, &self.payload).await.map_err(broken)?;
        (self.say)("single submits: warming up");
        node.order(Order::Callers { callers: 64, tasks: tasks / 4 }).await?;
        load.round(tasks / 4).await.map_err(broken)?;
        let (mut few, mut many, mut http, mut served) = (vec![], vec![], vec![], vec![]);
        for round in 1..=ROUNDS {
            (self.say)(&format!("single submits, library and HTTP, round {round} of {ROUNDS}"));
            few.push(node.order(Order::Callers { callers: 16, tasks }).await?);
            many.push(node.order(Order::Callers { callers: 64, tasks }).await?);
            let before = node.usage().await?.cpu;
            http.push(load.round(tasks).await.map_err(broken)?);
            served.push(node.usage().await?.cpu - before);
        }
        drop(load);
        node.stop().await?;
        let meaning = "16 callers of the library, one task each time";
        let names = ["single_16", "single_16_p50", "single_16_p99"];
        self.calls(names, Figure::new(names[0], rate(tasks, &few), "tasks/s", meaning), &few);
        let meaning = "64 callers of the library, one task each time";
        let names = ["single_64", "single_64_p50", "single_64_p99"];
        self.calls(names, Figure::new(names[0], rate(tasks, &many), "tasks/s", meaning), &many);
        let meaning = "64 connections, one POST /v1/tasks after the other on each";
        let figure = Figure::new("http_64", rate(tasks, &http), "tasks/s", meaning);
        let figure = figure.beside("single_64", ratio(&many, &http)).goal(Goal::Ratio(HTTP_RATIO));
        self.calls(["http_64", "http_64_p50", "http_64_p99"], figure, &http);
        let figures = [
            ("single_64_cpu", many.iter().map(|r| r.cpu).collect(), "CPU of a library submit"),
            ("http_64_server_cpu", served, "CPU of the server for a submit over HTTP"),
            ("http_64_client_cpu", http.iter().map(|r| r.cpu).collect(), "CPU of its client"),
        ];
        for (name, seconds, meaning) in figures {
            let seconds: Vec<f64> = seconds;
            self.add(Figure::new(name, micros(tasks, seconds), "us/task", meaning));
        }
        Ok(())
    }

    fn calls(&mut self, names: [&'static str; 3], figure: Figure, rounds: &[Measured]) {
        self.add(figure);
        let [_, p50, p99] = names;
        self.add(Figure::new(p50, middle(rounds, |r| r.spread.p50), "ms", "half of them within"));
        self.add(Figure::new(p99, middle(rounds, |r| r.spread.p99), "ms", "99 of 100 within"));
    }

    async fn steady(&mut self) -> Result<()> {
        let Wanted { rate, tasks, .. } = *self.wanted;
        let counted = (rate * STEADY).min(tasks);
        // The first are not counted: caches are cold, pages are new.
        let warm = (rate / 2).min(counted / 2);
        let mut node = self.node().await?;
        (self.say)(&format!("time to the start at {rate} tasks a second"));
        let spread = node.order(Order::Steady { rate, warm, counted }).await?.spread;
        node.stop().await?;
        let meaning = format!("submit to start of the handler at {rate} tasks/s, half within");
        self.add(Figure::new("start_p50", spread.p50 * 1e3, "ms", meaning));
        self.add(Figure::new("start_p99", spread.p99 * 1e3, "ms", "99 of 100 within"));
        self.add(Figure::new("start_max", spread.max * 1e3, "ms", "the longest"));
        Ok(())
    }

    async fn events(&mut self) -> Result<()> {
        let count = self.listeners;
        if count < LISTENERS {
            (self.say)(&format!(
                "open files are limited: {count} listeners instead of {LISTENERS}; see `ulimit -n`"
            ));
        }
        let mut node = self.node().await?;
        (self.say)(&format!("{count} clients that follow the events"));
        // One first, so that the memory of the path itself is not counted.
        let mut first = Listeners::open(node.at, 1).await.map_err(broken)?;
        first.tell(node.at, &self.payload).await.map_err(broken)?;
        let before = node.usage().await?.memory;
        let mut listeners = Listeners::open(node.at, count).await.map_err(broken)?;
        let idle = node.usage().await?.memory;
        let heard = listeners.tell(node.at, &self.payload).await.map_err(broken)?;
        let after = node.usage().await?.memory;
        drop((first, listeners));
        node.stop().await?;
        let grown = idle.max(after) - before;
        let meaning = format!("memory of the server for {count} streams of events, in all");
        let figure = Figure::new("events_memory", grown, "MB", meaning);
        self.add(figure.goal(Goal::Below(LISTENERS_MB)));
        let each = grown * 1024.0 / count.max(1) as f64;
        self.add(Figure::new("events_memory_each", each, "KB", "the same for one of them"));
        let meaning = "from submitting a task until all of them have heard of it";
        self.add(Figure::new("events_reach", heard * 1e3, "ms", meaning));
        Ok(())
    }

    fn facts(&self) -> serde_json::Value {
        let Wanted { tasks, payload, backlog, steps, rate, store } = self.wanted;
        let url = store.as_deref().map_or_else(|| "a new file".to_owned(), redact);
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "build": if cfg!(debug_assertions) { "debug" } else { "release" },
            "os": std::env::consts::OS,
            "arch": std::env::consts::ARCH,
            "cores": std::thread::available_parallelism().map_or(0, |n| n.get()),
            "store": self.store,
            "store_url": url,
            "tasks": tasks,
            "payload": payload,
            "backlog": backlog,
            "steps": steps,
            "rate": rate,
            "listeners": self.listeners,
            "layout": "the node is a process of its own; its clients share the machine with it",
        })
    }
}
