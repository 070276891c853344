//! A remote worker with 64 slots, in a process of its own, as a careful program
//! would write it: one loop leases as many tasks as slots are free, another reports
//! what has ended, many at a time; each step is recorded before the next begins.
//! The parent's side, which starts it and gives it rounds, is here too.

use super::http::Connection;
use super::orders::{Measured, NOTHING, QUEUE, Spread};
use super::process;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, BufRead, Write};
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Instant;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use windlass::{Error, Result};

/// The hidden command that is the worker.
pub(crate) const COMMAND: &str = "bench-worker";
pub(super) const SLOTS: usize = 64;
/// Reports under way at once: what was leased while others are at their steps does
/// not wait for those.
const REPORTERS: usize = 4;

/// One round.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Round {
    at: SocketAddr,
    tasks: u64,
    steps: u64,
}

/// The parent's side.
#[derive(Debug)]
pub(super) struct Far {
    child: Child,
    rounds: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Far {
    pub(super) fn start() -> Result<Far> {
        let program = std::env::current_exe().map_err(|e| gone().because(e))?;
        let mut child = Command::new(program)
            .arg(COMMAND)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|e| gone().because(e))?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(rounds), Some(answers)) => {
                Ok(Far { child, rounds, answers: BufReader::new(answers).lines() })
            }
            _ => Err(gone()),
        }
    }

    /// Lets it take and end so many tasks.
    pub(super) async fn round(
        &mut self,
        at: SocketAddr,
        tasks: u64,
        steps: u64,
    ) -> Result<Measured> {
        let lost = |e: io::Error| gone().because(e);
        let mut line =
            serde_json::to_string(&Round { at, tasks, steps }).map_err(|e| lost(e.into()))?;
        line.push('\n');
        self.rounds.write_all(line.as_bytes()).await.map_err(lost)?;
        let answer = self.answers.next_line().await.map_err(lost)?.ok_or_else(gone)?;
        serde_json::from_str(&answer).map_err(|e| lost(e.into()))
    }

    pub(super) async fn stop(self) -> Result<()> {
        let Far { mut child, rounds, .. } = self;
        drop(rounds);
        child.wait().await.map_err(|e| gone().because(e)).map(drop)
    }
}

fn gone() -> Error {
    Error::invalid("bench", "the remote worker broke off; see its message above")
}

/// The worker's side: rounds on stdin, what they took on stdout.
pub async fn main() -> Result<()> {
    let broke =
        |e: io::Error| Error::invalid("bench", "the server cannot be worked for").because(e);
    loop {
        let line = tokio::task::spawn_blocking(|| io::stdin().lock().lines().next()).await;
        let Some(line) = line.map_err(|e| broke(io::Error::other(e)))? else { return Ok(()) };
        let round: Round =
            serde_json::from_str(&line.map_err(broke)?).map_err(|e| broke(e.into()))?;
        let measured = work(round).await.map_err(broke)?;
        let text = serde_json::to_string(&measured).map_err(|e| broke(e.into()))?;
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{text}").and_then(|()| stdout.flush()).map_err(broke)?;
    }
}

/// A task in hand.
#[derive(Debug)]
struct Task {
    id: String,
    token: u64,
    version: u64,
}

#[derive(Debug)]
struct Desk {
    at: SocketAddr,
    worker: String,
    steps: u64,
    state: Mutex<State>,
    leased: Notify,
    freed: Notify,
}

#[derive(Debug)]
struct State {
    free: usize,
    /// Everything in hand: each heartbeat names all of it.
    held: HashMap<String, u64>,
    ready: Vec<Task>,
    /// Still to be ended.
    left: u64,
}

async fn work(round: Round) -> io::Result<Measured> {
    let mut lease = Connection::open(round.at).await?;
    let mut reporters = vec![];
    for _ in 0..REPORTERS {
        reporters.push(Connection::open(round.at).await?);
    }
    let (worker, _) = ask(&mut lease, round.at, None, 1, "bench.none").await?;
    let state = State { free: SLOTS, held: HashMap::new(), ready: vec![], left: round.tasks };
    let desk = Arc::new(Desk {
        at: round.at,
        worker,
        steps: round.steps,
        state: Mutex::new(state),
        leased: Notify::new(),
        freed: Notify::new(),
    });
    let (began, cpu) = (Instant::now(), process::cpu());
    let mut loops = JoinSet::new();
    let taking = desk.clone();
    loops.spawn(async move { taking.take(&mut lease).await });
    for mut connection in reporters {
        let ending = desk.clone();
        loops.spawn(async move { ending.end(&mut connection).await });
    }
    // The first that ends has ended the last task, or has failed.
    if let Some(ended) = loops.join_next().await {
        ended.map_err(io::Error::other)??;
    }
    loops.shutdown().await;
    let (wall, cpu) = (began.elapsed().as_secs_f64(), process::cpu() - cpu);
    let body = format!("{{\"worker_id\":\"{}\",\"held\":[],\"leaving\":true}}", desk.worker);
    let mut last = Connection::open(round.at).await?;
    post(&mut last, desk.at, "report", &body).await?;
    Ok(Measured { wall, cpu, spread: Spread::default() })
}

impl Desk {
    /// Leases whenever slots are free; ends only by an error.
    async fn take(&self, connection: &mut Connection) -> io::Result<()> {
        loop {
            let free = self.state.lock().free;
            if free == 0 {
                self.freed.notified().await;
                continue;
            }
            let (_, tasks) = ask(connection, self.at, Some(&self.worker), free, QUEUE).await?;
            let mut state = self.state.lock();
            state.free -= tasks.len();
            state.held.extend(tasks.iter().map(|task| (task.id.clone(), task.token)));
            state.ready.extend(tasks);
            self.leased.notify_one();
        }
    }

    /// Does the work of what was leased, which is nothing, and reports it.
    async fn end(&self, connection: &mut Connection) -> io::Result<()> {
        loop {
            let mut tasks = std::mem::take(&mut self.state.lock().ready);
            if tasks.is_empty() {
                self.leased.notified().await;
                continue;
            }
            for step in 1..=self.steps {
                self.report(connection, &mut tasks, step).await?;
            }
            let count = tasks.len();
            let mut state = self.state.lock();
            state.free += count;
            for task in &tasks {
                state.held.remove(&task.id);
            }
            state.left = state.left.saturating_sub(count as u64);
            self.freed.notify_one();
            if state.left == 0 {
                return Ok(());
            }
        }
    }

    /// One step of each task; the end goes with the last of them.
    async fn report(&self, to: &mut Connection, tasks: &mut [Task], step: u64) -> io::Result<()> {
        let mut body = format!("{{\"worker_id\":\"{}\",\"held\":[", self.worker);
        let mut held = String::new();
        for (id, token) in &self.state.lock().held {
            let _ = write!(held, "{{\"task\":\"{id}\",\"token\":{token}}},");
        }
        let mut reports = String::new();
        for task in tasks.iter_mut() {
            task.version += 1;
            let Task { id, token, version } = task;
            let who = format!("\"task\":\"{id}\",\"token\":{token}");
            // Cannot fail: it writes into memory.
            let _ = write!(
                reports,
                "{{{who},\"step\":{{\"name\":\"bench.step-{step}\",\"outcome\":\"done\",\"version\":{version}}}}},"
            );
            if step == self.steps {
                let _ = write!(
                    reports,
                    "{{{who},\"finish\":{{\"outcome\":\"done\",\"output\":{{}}}}}},"
                );
            }
        }
        body.push_str(held.trim_end_matches(','));
        body.push_str("],\"reports\":[");
        body.push_str(reports.trim_end_matches(','));
        body.push_str("]}");
        let answer = post(to, self.at, "report", &body).await?;
        let refused = answer.contains("lease-lost") || answer.contains("conflict");
        if refused {
            return Err(io::Error::other(format!("a report was refused: {answer:.200}")));
        }
        Ok(())
    }
}

/// Leases; gives the worker's id and the tasks.
async fn ask(
    connection: &mut Connection,
    at: SocketAddr,
    worker: Option<&str>,
    max: usize,
    queue: &str,
) -> io::Result<(String, Vec<Task>)> {
    #[derive(Deserialize)]
    struct Answer<'a> {
        worker_id: &'a str,
        #[serde(borrow)]
        leases: Vec<Lease<'a>>,
    }
    #[derive(Deserialize)]
    struct Lease<'a> {
        #[serde(borrow)]
        task: About<'a>,
        token: u64,
        /// A worker has to look at it, so it is read.
        #[serde(borrow)]
        payload: &'a RawValue,
    }
    #[derive(Deserialize)]
    struct About<'a> {
        id: &'a str,
    }
    let id = worker.map_or_else(|| "null".to_owned(), |id| format!("\"{id}\""));
    let body = format!(
        "{{\"worker\":\"bench\",\"worker_id\":{id},\"kinds\":[\"{NOTHING}\"],\"queues\":[\"{queue}\"],\"max\":{max},\"wait\":\"{}\"}}",
        if worker.is_some() { "10s" } else { "0s" }
    );
    let text = post(connection, at, "lease", &body).await?;
    let answer: Answer<'_> = serde_json::from_str(text)?;
    let task = |lease: Lease<'_>| {
        let payload: serde_json::Value = serde_json::from_str(lease.payload.get())?;
        drop(payload);
        Ok(Task { id: lease.task.id.to_owned(), token: lease.token, version: 0 })
    };
    let tasks = answer.leases.into_iter().map(task).collect::<io::Result<_>>()?;
    Ok((answer.worker_id.to_owned(), tasks))
}

async fn post<'c>(
    connection: &'c mut Connection,
    at: SocketAddr,
    verb: &str,
    body: &str,
) -> io::Result<&'c str> {
    let length = body.len();
    let request = format!(
        "POST /v1/worker/{verb} HTTP/1.1\r\nhost: {at}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    let answer = connection.send(request.as_bytes(), 200).await?;
    std::str::from_utf8(answer).map_err(io::Error::other)
}
