//! An engine in memory with one shell script as its only handler, a folder that
//! the script shares with the test, and questions about processes.

use parking_lot::Mutex;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use windlass::core::outcome::Failure;
use windlass::prelude::*;
use windlass::{State, Task, TaskId};
use windlass_server::handlers::{ExecHandler, ExecHost, ExecSpec, owner_of};

/// Retries that wait for nothing.
pub(crate) const AT_ONCE: Exponential = Exponential {
    retries: 15,
    first: Duration::ZERO,
    factor: 1.0,
    cap: Duration::ZERO,
    jitter: 0.0,
};
/// Nothing that is waited for takes this long.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// The guard is the binary itself.
fn guard() -> Vec<String> {
    [env!("CARGO_BIN_EXE_windlass"), "guard"].map(str::to_owned).to_vec()
}

pub(crate) struct Rig {
    pub(crate) engine: Engine,
    pub(crate) folder: Folder,
}

/// What all cases log, from before the first of them says anything.
static LOG: LazyLock<Log> = LazyLock::new(|| {
    let log = Log::default();
    let writer = log.clone();
    let format = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone());
    format.init();
    log
});

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The log lines that name this task.
pub(crate) fn logged(task: TaskId) -> String {
    let (log, id) = (String::from_utf8_lossy(&LOG.0.lock()).into_owned(), task.to_string());
    log.lines().filter(|line| line.contains(&id)).map(|line| format!("{line}\n")).collect()
}

/// Where script and test meet.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Folder {
        LazyLock::force(&LOG);
        Folder(tempfile::tempdir().expect("a folder"))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).unwrap_or_default()
    }

    /// Waits until the script has written a whole line there.
    pub(crate) async fn line(&self, name: &str) -> String {
        until(&format!("`{name}` is written"), || self.read(name).ends_with('\n')).await;
        self.read(name).trim_end().to_owned()
    }

    /// The process whose number the script wrote there.
    pub(crate) async fn pid(&self, name: &str) -> i32 {
        self.line(name).await.parse().expect("a number")
    }

    /// A script that finds this folder in `$DIR`.
    pub(crate) fn spec(&self, script: &str) -> ExecSpec {
        let file = self.file("script.sh");
        fs::write(&file, script).expect("written");
        let words = ["sh", file.to_str().expect("a path in UTF-8")];
        let env = [("DIR".to_owned(), self.path().display().to_string())];
        ExecSpec { argv: words.map(str::to_owned).to_vec(), timeout: None, env: env.into() }
    }

    pub(crate) fn owner(&self) -> String {
        owner_of(&format!("sqlite://{}", self.file("store.db").display()))
    }

    pub(crate) fn host(&self) -> Arc<ExecHost> {
        ExecHost::start(guard(), self.owner()).expect("a guard")
    }
}

/// One step of the kind `job`, without retries.
pub(crate) fn once() -> KindOptions {
    KindOptions::new().step_retries(0).retries(0)
}

impl Rig {
    /// One step, this script, no retries.
    pub(crate) async fn sh(script: &str) -> Rig {
        Rig::with(script, once(), |handler| handler).await
    }

    pub(crate) async fn with(
        script: &str,
        options: KindOptions,
        change: impl FnOnce(ExecHandler) -> ExecHandler,
    ) -> Rig {
        let folder = Folder::new();
        let spec = folder.spec(script);
        Rig::of(folder, spec, options, change).await
    }

    pub(crate) async fn of(
        folder: Folder,
        spec: ExecSpec,
        options: KindOptions,
        change: impl FnOnce(ExecHandler) -> ExecHandler,
    ) -> Rig {
        let handler = change(ExecHandler::new(spec, folder.host()));
        let builder = Windlass::in_memory().await.expect("a store");
        let builder = builder.handler("h", handler).plan_with("job", ["h"], options);
        Rig { engine: builder.start().await.expect("an engine"), folder }
    }

    pub(crate) async fn submit(&self, payload: Value) -> Handle<Value> {
        self.engine.submit_named("job", &payload).await.expect("submitted")
    }

    /// Submits and waits for the end.
    pub(crate) async fn run(&self, payload: Value) -> Task {
        let handle = self.submit(payload).await;
        tokio::time::timeout(LIMIT, handle.ended()).await.expect("in time").expect("an end")
    }

    /// The output of a task that must complete.
    pub(crate) async fn output(&self, payload: Value) -> Value {
        let task = self.run(payload).await;
        assert_eq!(task.state(), State::Completed, "{:?}", task.standing.failure);
        let output = task.standing.result.as_ref().expect("a result");
        output.to().expect("JSON")
    }
}

/// Reason, class and message of a failed task.
pub(crate) fn why(task: &Task) -> (&'static str, &'static str, &str) {
    let Failure { reason, error } = task.standing.failure.as_ref().expect("a failure");
    (reason.map_or("", |r| r.as_str()), error.class.as_str(), &error.message)
}

/// Whether a process still does something; one that only waits to be reaped does
/// not.
pub(crate) fn is_alive(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && !line.contains('Z'))
}

pub(crate) async fn until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < LIMIT, "in time: {what}");
        let look = Duration::from_millis(5);
        tokio::time::sleep(look).await; // tidy: allow-sleep because nobody tells when a process changes
    }
}

pub(crate) async fn until_gone(pid: i32) {
    until(&format!("{pid} is gone"), || !is_alive(pid)).await;
}
