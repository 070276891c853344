//! Starts the process that dies, watches its ledger, and kills it: this very
//! program, started again as the worker. Everything it waits for is a line in
//! the ledger or the end of the process, and it gives up after a while, so that
//! a process that hangs fails the test instead of holding it up.

use crate::checker::{KILLED, Verdict, check, check_so_far};
use crate::ledger::{self, Fact, Line, Tail};
use crate::stored::Stored;
use crate::worker::Work;
use std::fs::OpenOptions;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Nothing that is waited for takes this long.
const PATIENCE: Duration = Duration::from_secs(120);
/// The argument that makes this program the worker.
pub(crate) const WORKER: &str = "--worker";

/// One life of the process.
pub(crate) struct Process {
    child: Child,
    pub(crate) born: Instant,
    /// Its lines in the ledger begin here.
    first: usize,
}

impl Drop for Process {
    fn drop(&mut self) {
        // Only a failed test leaves one behind; one that is gone cannot be harmed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) struct Driver {
    pub(crate) work: Work,
    folder: TempDir,
    tail: Tail,
    /// How long the last start took until work was taken.
    pub(crate) startup: Duration,
}

impl Drop for Driver {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.folder.disable_cleanup(true);
            println!(
                "the ledger, the store and the log are kept in {}",
                self.folder.path().display()
            );
            let log = std::fs::read_to_string(self.log()).unwrap_or_default();
            let last: Vec<&str> = log.lines().rev().take(20).collect();
            last.iter().rev().for_each(|line| println!("  log: {line}"));
        }
    }
}

impl Driver {
    /// A driver of `chains` tasks whose steps take no time; change `work` for more.
    pub(crate) fn new(chains: u64) -> Driver {
        let folder = tempfile::tempdir().expect("a folder");
        let work = Work {
            folder: folder.path().to_owned(),
            chains,
            step_ms: vec![0],
            first_ms: None,
            fails: 0,
            killer: false,
            flaky: false,
            window: 96,
            slots: 16,
            poll: Duration::from_secs(1),
            grace: Duration::from_secs(10),
            suspects_wait: Duration::ZERO,
        };
        Driver { work, folder, tail: Tail::default(), startup: Duration::from_millis(50) }
    }

    fn log(&self) -> PathBuf {
        self.work.folder.join("log")
    }

    pub(crate) fn start(&mut self) -> Process {
        self.start_dying_at(None)
    }

    /// Starts the process; `point`: where it shall die by itself, `name:n`.
    pub(crate) fn start_dying_at(&mut self, point: Option<&str>) -> Process {
        self.tail.follow(&self.work.ledger());
        let log = OpenOptions::new().create(true).append(true).open(self.log()).expect("a log");
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.arg(WORKER).arg(serde_json::to_string(&self.work).expect("JSON"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command.env_remove("WINDLASS_CRASH_AT");
        if let Some(point) = point {
            command.env("WINDLASS_CRASH_AT", point);
        }
        let born = Instant::now();
        let child = command.spawn().expect("a process");
        Process { child, born, first: self.tail.lines.len() }
    }

    /// The lines of this life so far.
    pub(crate) fn lines_of(&self, process: &Process) -> &[Line] {
        &self.tail.lines[process.first..]
    }

    /// Waits until the ledger has what is wanted of this life; `false`: the
    /// process ended before.
    pub(crate) fn wait_for(
        &mut self,
        process: &mut Process,
        what: &str,
        enough: impl Fn(&[Line]) -> bool,
    ) -> bool {
        let since = Instant::now();
        loop {
            // Asked first: what it wrote before its end is then in the ledger.
            let ended = process.child.try_wait().expect("a process").is_some();
            self.tail.follow(&self.work.ledger());
            if enough(self.lines_of(process)) {
                return true;
            }
            if ended {
                return false;
            }
            assert!(since.elapsed() < PATIENCE, "waited in vain for {what}");
            tick();
        }
    }

    /// Waits until work is taken; `false`: the process ended before.
    pub(crate) fn wait_ready(&mut self, process: &mut Process) -> bool {
        let ready = |lines: &[Line]| lines.iter().any(|line| line.fact == Fact::Ready);
        let alive = self.wait_for(process, "the start", ready);
        if alive {
            self.startup = process.born.elapsed();
        }
        alive
    }

    /// Waits until so many steps of this life are recorded; `false`: the
    /// process ended before.
    pub(crate) fn wait_recorded(&mut self, process: &mut Process, steps: usize) -> bool {
        self.wait_ready(process)
            && self.wait_for(process, "recorded steps", |lines| recorded(lines) >= steps)
    }

    /// `kill -9`, now. The process must have been alive.
    pub(crate) fn kill(&mut self, mut process: Process) -> usize {
        process.child.kill().expect("a signal that was sent");
        let (status, lines) = self.end_of(process);
        assert_eq!(status.signal(), Some(KILLED), "the kill did not happen: {status}");
        recorded(&lines)
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self, process: &Process) {
        let kill = format!("kill -TERM {}", process.child.id());
        let sent = Command::new("sh").args(["-c", &kill]).status().expect("a shell");
        assert!(sent.success(), "the process had ended before the signal");
    }

    /// Waits for the end and writes it down; also the lines of this life.
    pub(crate) fn end_of(&mut self, mut process: Process) -> (ExitStatus, Vec<Line>) {
        let since = Instant::now();
        let status = loop {
            if let Some(status) = process.child.try_wait().expect("a process") {
                break status;
            }
            assert!(since.elapsed() < PATIENCE, "the process does not end");
            tick();
        };
        let fact = match status.signal() {
            Some(signal) => Fact::Died(signal),
            None => Fact::Exited(status.code().expect("a code or a signal")),
        };
        ledger::add(&self.work.ledger(), &Line::new(process.child.id(), fact));
        self.tail.follow(&self.work.ledger());
        (status, self.lines_of(&process).to_vec())
    }

    /// Lets the process do what is left.
    pub(crate) fn finish(&mut self) {
        let process = self.start();
        let (status, _) = self.end_of(process);
        assert!(status.success(), "the last start ended with {status}");
    }

    pub(crate) fn lines(&self) -> &[Line] {
        &self.tail.lines
    }

    /// What the store says now; no process may be alive.
    pub(crate) fn stored(&self) -> Stored {
        Stored::read(&self.work.url())
    }

    /// Everything about chains, when all is done.
    pub(crate) fn verdict(&self) -> Verdict {
        check(self.lines(), &self.stored())
    }

    /// What must hold between two lives.
    pub(crate) fn verdict_so_far(&self, stored: &Stored) -> Verdict {
        check_so_far(self.lines(), stored)
    }
}

/// Steps that were recorded, by these lines.
pub(crate) fn recorded(lines: &[Line]) -> usize {
    lines.iter().filter(|line| matches!(line.fact, Fact::Recorded(_))).count()
}

/// Steps that have begun, by these lines.
pub(crate) fn begun(lines: &[Line]) -> usize {
    lines.iter().filter(|line| matches!(line.fact, Fact::Begin(_))).count()
}

fn tick() {
    pause(Duration::from_millis(1));
}

/// A random moment is what some tests are about.
pub(crate) fn pause(time: Duration) {
    // tidy: allow-sleep because another process gives no other sign, or none is wanted
    std::thread::sleep(time);
}
