//! A node as a child process of this one, with a folder of its own that is
//! removed at the end: what `crash_demo.rs` kills. It finds a port, starts this
//! same program, and waits until the node answers. However the demo ends,
//! dropping these ends the process and removes the folder.

use super::client::{Call, Client};
use super::failure::{Exit, Failure};
use super::fields::clean;
use super::global::Global;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long a node may take until it answers.
const START: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(50);
/// Somebody may take the port between our look and the node's.
const TRIES: u32 = 3;

/// A folder for temporary files that nobody else can read.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn make() -> Result<Folder, Failure> {
        let name = format!("windlass-demo-{:032x}", rand::random::<u128>());
        let path = std::env::temp_dir().join(name);
        DirBuilder::new().mode(0o700).create(&path).map_err(|e| {
            let message = format!("cannot make the folder {}: {e}", path.display());
            Failure::new(Exit::Failed, message, "set TMPDIR to a folder that can be written")
        })?;
        Ok(Folder(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    fn log(&self) -> PathBuf {
        self.0.join("node.log")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A node that answers.
#[derive(Debug)]
pub(super) struct Node {
    process: Child,
    pub(super) client: Client,
    pub(super) at: SocketAddr,
}

impl Node {
    /// Starts `windlass dev` on the folder and waits until it is ready.
    pub(super) async fn start(global: &Global, folder: &Folder) -> Result<Node, Failure> {
        for tries in 1.. {
            let at = free_port().map_err(|e| cannot_start(&e.to_string()))?;
            let server = Global { server: format!("http://{at}"), ..global.clone() };
            let process = spawn(folder, at).map_err(|e| cannot_start(&e.to_string()))?;
            let mut node = Node { process, client: Client::new(&server)?, at };
            if node.becomes_ready().await? {
                return Ok(node);
            }
            let said = fs::read_to_string(folder.log()).unwrap_or_default();
            if tries >= TRIES || !said.contains("cannot listen") {
                return Err(cannot_start(&last_line(&said)));
            }
        }
        Err(cannot_start("it was tried often enough"))
    }

    /// `false` when the process ended instead.
    async fn becomes_ready(&mut self) -> Result<bool, Failure> {
        let begun = Instant::now();
        while begun.elapsed() < START {
            if self.has_ended() {
                return Ok(false);
            }
            let answer = self.client.look(&Call::get(&["readyz"])).await;
            if answer.is_ok_and(|answer| answer.status == 200) {
                return Ok(!self.has_ended());
            }
            sleep(LOOK).await;
        }
        Err(cannot_start(&format!("it was not ready after {} seconds", START.as_secs())))
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.process.try_wait(), Ok(None))
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Ends it with SIGKILL: it gets no chance to do anything more.
    pub(super) fn kill(mut self) -> Result<(), Failure> {
        let killed = self.process.kill().and_then(|()| self.process.wait());
        killed.map(|_| ()).map_err(|e| {
            let message = format!("the node could not be killed: {e}");
            Failure::new(Exit::Failed, message, "run it again")
        })
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Both do nothing to a process that was waited for already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn free_port() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

/// Nothing of the person's own configuration may change what the demo shows.
fn spawn(folder: &Folder, at: SocketAddr) -> io::Result<Child> {
    let log = File::options().create(true).append(true).open(folder.log())?;
    let program = std::env::current_exe()?;
    let mut command = Command::new(program);
    command.args(["dev", "--data", "data", "--listen", &at.to_string()]);
    command.current_dir(folder.path()).env_clear().env("WINDLASS_LOG", "info");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()
}

fn last_line(text: &str) -> String {
    let mut lines = text.lines().map(str::trim);
    let told = lines.rfind(|line| !line.is_empty() && !line.starts_with("hint:"));
    told.map_or_else(|| "it said nothing".to_owned(), clean)
}

fn cannot_start(why: &str) -> Failure {
    let hint = "`windlass doctor` looks for what is wrong with this machine";
    Failure::new(Exit::Failed, format!("the demo's node does not start: {why}"), hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_gone_with_its_owner() {
        let folder = Folder::make().unwrap();
        let path = folder.path().to_owned();
        fs::write(path.join("x"), "y").unwrap();
        assert!(path.is_dir());
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn what_a_node_said_last() {
        assert_eq!(last_line("a\nerror: no disk\nhint: buy one\n\n"), "error: no disk");
        assert_eq!(last_line(""), "it said nothing");
    }
}
