//! Folders, servers and commands for the cases. A server is a child process that
//! is ended with its owner, whatever becomes of the case; a command is run to its
//! end and gives what it wrote. Nothing of this process's environment gets in.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Nothing here takes longer unless it never ends.
const PATIENCE: Duration = Duration::from_secs(60);
/// Somebody may take a port between our look and the server's.
const TRIES: usize = 5;

/// Waits until something is there.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "{what} did not happen");
        // tidy: allow-sleep because other processes are polled for what they did
        thread::sleep(Duration::from_millis(20));
    }
}

/// A folder in which commands are run.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.file(name), text).unwrap();
    }

    /// The binary in this folder, without configuration but what is in it.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command.env_clear().env("HOME", self.path()).env("TMPDIR", self.path());
        // Handlers are found by it.
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.current_dir(self.path()).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        self.command(arguments).output().unwrap().into()
    }
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// A document on stdout.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    pub(crate) fn lines(&self) -> Vec<&str> {
        self.stdout.lines().collect()
    }

    /// Ended well.
    pub(crate) fn ok(self) -> Ran {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }

    /// Ended so, with a hint as its last words.
    pub(crate) fn fails(self, code: i32) -> Ran {
        assert_eq!(self.code, code, "{self:?}");
        let last = self.stderr.trim_end().lines().last().unwrap_or_default();
        assert!(last.starts_with("hint: "), "no hint at the end: {self:?}");
        self
    }

    /// Wrote this to stderr.
    pub(crate) fn said(self, words: &str) -> Ran {
        assert!(self.stderr.contains(words), "not said `{words}`: {self:?}");
        self
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        Ran {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// A process that is killed with its owner.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// Its exit code, once it has ended by itself.
    pub(crate) fn ended(&mut self) -> i32 {
        let status = until("the end of a process", || self.0.try_wait().unwrap());
        status.code().unwrap_or(-1)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server that is ready.
pub(crate) struct Server {
    pub(crate) process: Process,
    pub(crate) url: String,
    pub(crate) folder: Folder,
}

impl Server {
    /// `windlass dev` in a new folder.
    pub(crate) fn dev() -> Server {
        Server::start(Folder::new(), &["dev"], &[])
    }

    /// `windlass serve` in a folder that has its configuration.
    pub(crate) fn serve(folder: Folder) -> Server {
        Server::start(folder, &["serve"], &[])
    }

    /// The same with more arguments and variables.
    pub(crate) fn serve_with(
        folder: Folder,
        arguments: &[&str],
        variables: &[(String, String)],
    ) -> Server {
        Server::start(folder, &[&["serve"], arguments].concat(), variables)
    }

    fn start(folder: Folder, arguments: &[&str], variables: &[(String, String)]) -> Server {
        for _ in 0..TRIES {
            let at = free_port();
            let log = File::options().create(true).append(true).open(folder.file("log")).unwrap();
            let mut command = folder.command(arguments);
            command.envs(variables.iter().map(|(name, value)| (name, value)));
            command.args(["--listen", &at]).stdout(Stdio::null()).stderr(log);
            let mut process = Process(command.spawn().unwrap());
            let ready = until("a server", || match process.0.try_wait().unwrap() {
                Some(_) => Some(false),
                None => (get(&at, "/readyz")?.starts_with("HTTP/1.1 200")).then_some(true),
            });
            if ready {
                return Server { process, url: format!("http://{at}"), folder };
            }
            let log = fs::read_to_string(folder.file("log")).unwrap();
            assert!(log.contains("cannot listen"), "the server does not start: {log}");
        }
        panic!("no free port in {TRIES} tries")
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.file("log")).unwrap()
    }

    /// The folder, after the process was killed.
    pub(crate) fn kill(self) -> Folder {
        let Server { process, folder, .. } = self;
        drop(process);
        folder
    }

    /// A command that talks to this server.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.folder.command(arguments);
        command.env("WINDLASS_SERVER", &self.url);
        command
    }

    /// Runs one.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        self.command(arguments).output().unwrap().into()
    }

    /// Runs one with text on its stdin.
    pub(crate) fn run_with(&self, arguments: &[&str], stdin: &str) -> Ran {
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
        child.wait_with_output().unwrap().into()
    }

    /// Submits and gives the id.
    pub(crate) fn submit(&self, arguments: &[&str]) -> String {
        let arguments = [&["submit", "-o", "id"], arguments].concat();
        self.run(&arguments).ok().stdout.trim_end().to_owned()
    }

    pub(crate) fn task(&self, id: &str) -> Value {
        self.run(&["task", "show", id, "-o", "json"]).ok().json()
    }

    /// Waits until a task is in a state.
    pub(crate) fn until_state(&self, id: &str, state: &str) {
        until(&format!("{id} {state}"), || (self.task(id)["state"] == state).then_some(()));
    }
}

pub(crate) fn free_port() -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().to_string()
}

/// The head and body of an answer, if there is one.
pub(crate) fn get(at: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(at).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {at}\r\nconnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}
