//! A worker that is a process of its own: this test program, started again with one
//! case as its only work. It runs four slow steps for each task, writes what
//! it does into a ledger before it does it, and drops what it is told it lost.

use reqwest::Client;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) const STEPS: [&str; 4] = ["one", "two", "three", "four"];
const STEP_TIME: Duration = Duration::from_millis(120);
const SERVER: &str = "TEST_WORKER_SERVER";
const LEDGER: &str = "TEST_WORKER_LEDGER";

/// One line of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) process: u32,
    pub(crate) what: String,
    pub(crate) task: String,
    pub(crate) step: String,
    pub(crate) attempt: u64,
}

pub(crate) struct WorkerProcess {
    child: Child,
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // One that is gone already cannot be harmed; a stopped one must go on to die.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl WorkerProcess {
    pub(crate) fn start(server: SocketAddr, ledger: &Path) -> WorkerProcess {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "process::the_process", "--nocapture"]);
        command.env(SERVER, server.to_string()).env(LEDGER, ledger);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        WorkerProcess { child: command.spawn().expect("a process") }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("a process that lives");
    }

    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.child.wait().expect("an end");
    }
}

pub(crate) fn ledger(path: &Path) -> Vec<Line> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let line = |line: &str| {
        let mut words = line.split(' ').map(str::to_owned);
        let mut next = || words.next().expect("a word");
        let (process, what, task, step) = (next(), next(), next(), next());
        let attempt = next().parse().expect("a number");
        Line { process: process.parse().expect("a number"), what, task, step, attempt }
    };
    text.lines().map(line).collect()
}

/// The work of a worker process, when this program was started as one.
#[tokio::test]
async fn the_process() {
    let Ok(server) = std::env::var(SERVER) else { return };
    let ledger = PathBuf::from(std::env::var(LEDGER).expect("a ledger"));
    windlass_server::tls::use_ring();
    let client = Client::new();
    let desk = Arc::new(Desk {
        url: format!("http://{server}/v1/worker"),
        client,
        ledger,
        held: Mutex::default(),
    });
    loop {
        // A new identity; whatever was held under the last one is not ours.
        desk.held.lock().expect("a lock").clear();
        let Some(id) = desk.join().await else {
            pause().await;
            continue;
        };
        let beats = tokio::spawn(desk.clone().beat(id.clone()));
        while desk.work(&id).await {}
        beats.abort();
    }
}

async fn pause() {
    // tidy: allow-sleep because a worker has nothing to wait for between two calls
    tokio::time::sleep(Duration::from_millis(50)).await;
}

struct Desk {
    url: String,
    client: Client,
    ledger: PathBuf,
    held: Mutex<BTreeMap<String, u64>>,
}

impl Desk {
    async fn call(&self, verb: &str, body: Value) -> Option<(u16, Value)> {
        let answer =
            self.client.post(format!("{}/{verb}", self.url)).json(&body).send().await.ok()?;
        Some((answer.status().as_u16(), answer.json().await.ok()?))
    }

    fn wish(&self, id: Option<&str>, max: usize) -> Value {
        json!({"worker": "process", "worker_id": id, "kinds": ["far"], "queues": ["jobs"], "max": max, "wait": "1s"})
    }

    async fn join(&self) -> Option<String> {
        let mut wish = self.wish(None, 1);
        // Only an id: the queue is not asked.
        wish["queues"] = json!(["none"]);
        wish["wait"] = json!("0s");
        let (_, answer) = self.call("lease", wish).await?;
        answer["worker_id"].as_str().map(str::to_owned)
    }

    async fn beat(self: Arc<Self>, id: String) {
        loop {
            pause().await;
            self.report(&id, json!([])).await;
        }
    }

    async fn report(&self, id: &str, reports: Value) -> Option<(u16, Value)> {
        let held = self.held.lock().expect("a lock").clone();
        let held: Vec<Value> = held.iter().map(|(t, n)| json!({"task": t, "token": n})).collect();
        self.call("report", json!({"worker_id": id, "held": held, "reports": reports})).await
    }

    fn note(&self, what: &str, task: &str, step: &str, attempt: &Value) {
        let mut file =
            OpenOptions::new().create(true).append(true).open(&self.ledger).expect("a ledger");
        let line = format!("{} {what} {task} {step} {attempt}\n", std::process::id());
        file.write_all(line.as_bytes()).expect("written");
    }

    /// `false`: this identity is over.
    async fn work(&self, id: &str) -> bool {
        let Some((status, answer)) = self.call("lease", self.wish(Some(id), 1)).await else {
            return false;
        };
        if status != 200 {
            return false;
        }
        for lease in answer["leases"].as_array().expect("leases") {
            if !self.run(id, lease).await {
                return false;
            }
        }
        true
    }

    async fn run(&self, id: &str, lease: &Value) -> bool {
        let (task, token) = (
            lease["task"]["id"].as_str().expect("an id"),
            lease["token"].as_u64().expect("a token"),
        );
        let attempt = &lease["task"]["attempt"];
        self.held.lock().expect("a lock").insert(task.to_owned(), token);
        let checkpoint = &lease["checkpoint"];
        let recorded = |step: &str| {
            checkpoint["completed"].as_array().is_some_and(|c| c.iter().any(|s| s["name"] == step))
        };
        let mut version = checkpoint["version"].as_u64().unwrap_or(0);
        for step in STEPS.iter().filter(|step| !recorded(step)) {
            self.note("begin", task, step, attempt);
            // tidy: allow-sleep because this is the step's work
            tokio::time::sleep(STEP_TIME).await;
            version += 1;
            let output = json!({*step: attempt});
            let said =
                json!({"name": step, "outcome": "done", "output": output, "version": version});
            let said = self.report(id, json!([{"task": task, "token": token, "step": said}])).await;
            match said {
                Some((200, answer)) if answer["results"][0] == "ok" => {}
                Some(refused) => {
                    assert!(refused.1.to_string().contains("lease-lost"), "{refused:?}");
                    self.note("lost", task, step, attempt);
                    self.held.lock().expect("a lock").remove(task);
                    return refused.0 == 200;
                }
                None => return false,
            }
        }
        let finish = json!([{"task": task, "token": token, "finish": {"outcome": "done"}}]);
        self.report(id, finish).await;
        self.held.lock().expect("a lock").remove(task);
        true
    }
}
