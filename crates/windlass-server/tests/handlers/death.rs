//! Nodes that die without a word: the guard ends their processes, a guard that
//! dies comes back and knows everything, and what neither caught is ended by the
//! next start.

use crate::rig::{Folder, is_alive, until, until_gone};
use rustix::process::{Pid, Signal, getsid, kill_process};
use std::fs;
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use windlass_server::handlers::end_leftovers;

const WINDLASS: &str = env!("CARGO_BIN_EXE_windlass");
const SCRIPT: &str = "sleep 1000 & echo $! > $DIR/grandchild; echo $$ > $DIR/leader; wait";

struct Node {
    process: Child,
    folder: Folder,
    /// The handler's processes.
    pids: [i32; 2],
}

impl Node {
    /// A node in a process of its own, inside a step.
    async fn start() -> Node {
        let folder = Folder::new();
        let dir = folder.path().display().to_string();
        let config = format!("[handlers.h]\nexec = ['sh', '-c', {SCRIPT:?}]\nenv.DIR = {dir:?}\n");
        fs::write(folder.path().join("windlass.toml"), config).expect("written");
        let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let (at, store) = (free.expect("a port").to_string(), format!("sqlite://{dir}/store.db"));
        let run = |words: &[&str]| {
            let mut command = Command::new(WINDLASS);
            command.args(words).current_dir(&dir).env("XDG_CONFIG_HOME", &dir);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command
        };
        let process = run(&["serve", "--listen", &at, "--store", &store]).spawn().expect("a node");
        let server = format!("http://{at}");
        let submit = || run(&["submit", "h", "--server", &server]).status();
        until("a task is there", || submit().is_ok_and(|ended| ended.success())).await;
        let pids = [folder.pid("leader").await, folder.pid("grandchild").await];
        assert!(pids.iter().all(|pid| is_alive(*pid)), "there is something to end");
        Node { process, folder, pids }
    }

    fn kill(&mut self) {
        self.process.kill().expect("killed");
        let ended = self.process.wait().expect("ended");
        assert_eq!(ended.signal(), Some(9), "it died of the kill and nothing else");
    }

    /// Its guard, if there is one now.
    fn guard(&self) -> Option<i32> {
        let node = self.process.id().to_string();
        let of = |pid: i32| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
            let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim();
            (parent == node && words.ends_with("guard\0")).then_some(pid)
        };
        let entries = fs::read_dir("/proc").expect("read");
        entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok()).find_map(of)
    }
}

/// A case that failed leaves nothing behind.
impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).expect("a number"), signal).expect("signalled");
}

#[tokio::test]
async fn processes_die_with_their_node() {
    let mut node = Node::start().await;
    let guard = node.guard().expect("a guard");
    node.kill();
    until_gone(node.pids[0]).await;
    until_gone(node.pids[1]).await;
    until_gone(guard).await;
}

#[tokio::test]
async fn a_guard_minds_no_signal_that_stops_a_node() {
    let mut node = Node::start().await;
    let guard = node.guard().expect("a guard");
    // The last thing it does before it listens.
    let own = Pid::from_raw(guard);
    until("it has a session of its own", || getsid(own).ok() == own).await;
    for sent in [Signal::INT, Signal::TERM, Signal::HUP] {
        signal(guard, sent);
    }
    node.kill();
    until_gone(node.pids[0]).await;
    until_gone(node.pids[1]).await;
}

#[tokio::test]
async fn a_guard_that_dies_comes_back_and_knows_everything() {
    let mut node = Node::start().await;
    let first = node.guard().expect("a guard");
    signal(first, Signal::KILL);
    until("another guard", || node.guard().is_some_and(|pid| pid != first && is_alive(pid))).await;
    assert!(node.pids.iter().all(|pid| is_alive(*pid)), "nobody else was harmed");
    node.kill();
    until_gone(node.pids[0]).await;
    until_gone(node.pids[1]).await;
}

#[tokio::test]
async fn leftovers_are_ended_by_the_next_start() {
    let mut node = Node::start().await;
    let (owner, guard) = (node.folder.owner(), node.guard().expect("a guard"));
    assert_eq!(end_leftovers(&owner).expect("looked"), 0, "their node is alive");
    // It holds the guard back, so that there are leftovers at all.
    signal(guard, Signal::STOP);
    let status = || fs::read_to_string(format!("/proc/{guard}/status")).unwrap_or_default();
    until("it stands still", || status().contains("State:\tT")).await;
    node.kill();
    assert!(node.pids.iter().all(|pid| is_alive(*pid)), "nobody has ended them");
    assert_eq!(end_leftovers("somebody else").expect("looked"), 0);
    assert!(node.pids.iter().all(|pid| is_alive(*pid)), "of another store");
    assert_eq!(end_leftovers(&owner).expect("looked"), 1, "one group");
    assert!(node.pids.iter().all(|pid| !is_alive(*pid)), "gone when the answer comes");
    assert_eq!(end_leftovers(&owner).expect("looked"), 0);
    signal(guard, Signal::KILL);
}
