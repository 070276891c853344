//! The real binary as a process of its own, for tests that need what only a
//! process has: it can be killed, it has a memory of its own to look at, its
//! counters begin at zero. Folder and address outlive the process, so that it
//! can be started again. What is asked of it is the tests' business.

#![allow(dead_code)] // each test program uses a part of it

use reqwest::{Method, StatusCode};
use serde_json::Value;
use std::fs::{self, OpenOptions};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Nothing that is waited for takes this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
const SIGKILL: i32 = 9;
/// Ports below those that the system gives to clients: while the server is
/// down, a client that connects to its port must not get that very port.
const PORTS: std::ops::Range<u16> = 20_000..30_000;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Where a server lives: its folder and its address.
pub(crate) struct Home {
    folder: TempDir,
    pub(crate) at: SocketAddr,
    pub(crate) client: reqwest::Client,
}

impl Drop for Home {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.folder.disable_cleanup(true);
            let log = fs::read_to_string(self.log()).unwrap_or_default();
            let last: Vec<&str> = log.lines().rev().take(20).collect();
            println!("store and log are kept in {}", self.folder.path().display());
            last.iter().rev().for_each(|line| println!("  log: {line}"));
        }
    }
}

impl Home {
    /// A folder with this `windlass.toml`, and a free port.
    pub(crate) fn new(config: &str) -> Home {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("windlass.toml"), config).expect("a file");
        windlass_server::tls::use_ring();
        let client = reqwest::Client::builder().timeout(PATIENCE).build().expect("a client");
        Home { folder, at: free_address(), client }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// Starts `windlass dev`, which has the demo kinds; it is not ready yet.
    pub(crate) fn start(&self) -> Process {
        let log = OpenOptions::new().create(true).append(true).open(self.log()).expect("a log");
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("WINDLASS") {
                command.env_remove(name);
            }
        }
        command.current_dir(self.folder.path()).env("XDG_CONFIG_HOME", self.folder.path());
        command.env("RUST_LOG", "warn").args(["dev", "--data", "data", "--listen"]);
        command.arg(self.at.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let born = Instant::now();
        Process { child: command.spawn().expect("a process"), born }
    }

    /// Starts it and waits until it is ready.
    pub(crate) async fn ready(&self) -> Process {
        let mut process = self.start();
        self.wait_ready(&mut process).await;
        process
    }

    /// How long it took from the start of the process to the first good answer
    /// of `/readyz`.
    pub(crate) async fn wait_ready(&self, process: &mut Process) -> Duration {
        loop {
            let answer = self.client.get(self.url("/readyz")).send().await;
            if answer.is_ok_and(|a| a.status() == StatusCode::OK) {
                return process.born.elapsed();
            }
            let ended = process.child.try_wait().expect("a process");
            assert_eq!(ended, None, "the server ended by itself");
            assert!(process.born.elapsed() < PATIENCE, "the server is never ready");
            pause(Duration::from_millis(2)).await;
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.at)
    }

    /// Status and body, which is `null` when it is not JSON.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> (u16, Value) {
        let mut request = self.client.request(method, self.url(path));
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = request.send().await.expect("an answer");
        let status = answer.status().as_u16();
        (status, serde_json::from_str(&answer.text().await.expect("text")).unwrap_or(Value::Null))
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let (status, body) = self.ask(Method::GET, path, None).await;
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    /// Every task there is, page by page.
    pub(crate) async fn tasks(&self) -> Vec<Value> {
        let (mut tasks, mut cursor) = (vec![], String::new());
        loop {
            let mut page = self.get(&format!("/v1/tasks?limit=500{cursor}")).await;
            let items = page["items"].as_array_mut().expect("items");
            tasks.append(items);
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return tasks,
            }
        }
    }
}

/// One life of the server.
pub(crate) struct Process {
    child: Child,
    born: Instant,
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that is gone already cannot be harmed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    /// `kill -9`, now. The process must have been alive.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("a signal that was sent");
        let status = self.child.wait().expect("an end");
        assert_eq!(status.signal(), Some(SIGKILL), "the kill did not happen: {status}");
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("a process that lives");
    }

    pub(crate) fn check_alive(&mut self) {
        let ended = self.child.try_wait().expect("a process");
        assert_eq!(ended, None, "the server ended by itself");
    }

    /// A line of `/proc/PID/status`, in bytes.
    pub(crate) fn memory(&self, line: &str) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = fs::read_to_string(path).expect("a process that lives");
        let found = status.lines().find_map(|l| l.strip_prefix(line)?.strip_prefix(':'));
        let kib = found.and_then(|l| l.trim().strip_suffix(" kB")).expect("a size");
        kib.trim().parse::<u64>().expect("a number") * 1024
    }

    /// Lets `VmHWM` begin again from now.
    pub(crate) fn forget_peak(&self) {
        fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5").expect("our own process");
    }
}

fn free_address() -> SocketAddr {
    // Test programs that run at once begin at different places, and so do the
    // cases of one: a port is free until its server has it.
    let case = NEXT.fetch_add(1, SeqCst);
    let first = (std::process::id() * 16 + case) as u16 % (PORTS.end - PORTS.start);
    let ports = (PORTS.start + first..PORTS.end).chain(PORTS);
    let addresses = ports.map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let free = |at: &SocketAddr| TcpListener::bind(at).is_ok();
    addresses.into_iter().find(free).expect("a free port")
}

/// Another process announces nothing.
pub(crate) async fn pause(time: Duration) {
    // tidy: allow-sleep because the other process gives no other sign
    tokio::time::sleep(time).await;
}
