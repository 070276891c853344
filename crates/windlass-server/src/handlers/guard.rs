//! A small process beside each node that ends the node's handler processes when
//! the node dies, however it dies. It reads lines, `+GROUP` and `-GROUP`, from a
//! pipe that only the node holds; at its end it kills the groups still listed, and
//! what carries the mark of the node (`=MARK`) and was not listed yet.
//! [`main`] is that process, [`Guard`] the node's end of the pipe. It knows
//! nothing of tasks.

use super::host::NODE;
use super::processes::{facts, marked_groups, variable};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group, setsid};
use std::collections::{BTreeSet, HashMap};
use std::io::{self, BufRead, PipeWriter, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};

/// A guard that ended sooner than this is not started again at once.
const SETTLED: Duration = Duration::from_secs(1);
/// What even the smallest pipe takes while nobody reads.
const PIPE_HOLDS: usize = 4096;
/// How often a dead node's processes are looked for.
const SWEEPS: u32 = 4;
const BETWEEN_SWEEPS: Duration = Duration::from_millis(100);

/// The guard process: returns when its node is gone and everything is ended.
pub fn main() -> io::Result<()> {
    // Who stops the node by signals to a terminal or a service does not mean the
    // guard: it goes last, and by itself.
    let driver = runtime::Builder::new_current_thread().enable_io().build()?;
    let _entered = driver.enter();
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let _heard = kinds.into_iter().map(signal).collect::<io::Result<Vec<_>>>()?;
    // It fails for a process that leads a group, which then is its own already.
    let _ = setsid();
    // It must not keep a file system from being unmounted.
    let _ = std::env::set_current_dir("/");
    let listed = listen(io::stdin().lock());
    for (group, started) in listed.groups {
        if is_still(group, started) {
            // Whoever is gone needs no signal.
            let _ = Pid::from_raw(group).map(|group| kill_process_group(group, Signal::KILL));
        }
    }
    listed.node.map_or(Ok(()), |node| sweep(&node))
}

/// Ends what the node had started and not listed when it died. A process may be
/// about to become one, so there is more than one look.
fn sweep(node: &str) -> io::Result<()> {
    for _ in 0..SWEEPS {
        for (_, group) in marked_groups(|e| variable(e, NODE).as_deref() == Some(node))? {
            let _ = kill_process_group(group, Signal::KILL);
        }
        thread::sleep(BETWEEN_SWEEPS);
    }
    Ok(())
}

/// What the node has said when the pipe ended.
#[derive(Debug, Default)]
struct Listed {
    /// Each with the start of its leader.
    groups: HashMap<i32, Option<u64>>,
    node: Option<String>,
}

fn listen(lines: impl BufRead) -> Listed {
    let Listed { mut groups, mut node } = Listed::default();
    for line in lines.lines().map_while(Result::ok) {
        let Some((sign, group)) = line.split_at_checked(1) else { continue };
        if sign == "=" {
            node = Some(group.to_owned());
        }
        // 0 and 1 are not groups of handlers, whatever the line says.
        let Some(group) = group.parse().ok().filter(|group| *group > 1) else { continue };
        match sign {
            "+" => drop(groups.insert(group, facts(group).map(|f| f.started))),
            "-" => drop(groups.remove(&group)),
            _ => {}
        }
    }
    Listed { groups, node }
}

/// A number is not given to a new process while its group has members. So either
/// the leader is the one that was listed, or it is gone and the group is its own.
fn is_still(group: i32, started: Option<u64>) -> bool {
    match (facts(group), started) {
        (Some(now), Some(then)) => now.started == then,
        _ => true,
    }
}

/// The node's end of the pipe. Dropping it ends the guard, and with it every
/// group that is still listed.
#[derive(Debug)]
pub(crate) struct Guard {
    desk: Arc<Mutex<Desk>>,
}

#[derive(Debug)]
struct Desk {
    argv: Vec<String>,
    node: Option<String>,
    pipe: Option<PipeWriter>,
    groups: BTreeSet<i32>,
    closed: bool,
}

impl Guard {
    /// `argv` is a program that calls [`main`], `node` the mark of this node's
    /// processes.
    pub(crate) fn start(argv: Vec<String>, node: Option<String>) -> io::Result<Guard> {
        let desk = Desk { argv, node, pipe: None, groups: BTreeSet::new(), closed: false };
        let desk = Arc::new(Mutex::new(desk));
        let child = desk.lock().start()?;
        let kept = desk.clone();
        thread::Builder::new()
            .name("windlass-guard".to_owned())
            .spawn(move || keep(&kept, child))?;
        Ok(Guard { desk })
    }

    /// Must be told before the process has done anything.
    pub(crate) fn add(&self, group: Pid) {
        let mut desk = self.desk.lock();
        desk.groups.insert(group.as_raw_pid());
        desk.tell('+', group.as_raw_pid());
    }

    /// Must be told before the leader is reaped: later the number may be
    /// another's.
    pub(crate) fn remove(&self, group: Pid) {
        let mut desk = self.desk.lock();
        desk.groups.remove(&group.as_raw_pid());
        desk.tell('-', group.as_raw_pid());
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut desk = self.desk.lock();
        desk.closed = true;
        desk.pipe = None;
    }
}

impl Desk {
    fn start(&mut self) -> io::Result<Child> {
        let Some((program, args)) = self.argv.split_first() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the guard has no program"));
        };
        let (listens, mut pipe) = io::pipe()?;
        let node = self.node.iter().map(|node| format!("={node}\n"));
        let groups = self.groups.iter().map(|group| format!("+{group}\n"));
        let listed: String = node.chain(groups).collect();
        let (at_once, rest) = listed.as_bytes().split_at(listed.len().min(PIPE_HOLDS));
        // Before there is a guard: one that runs knows what it has to end.
        pipe.write_all(at_once)?;
        let mut command = Command::new(program);
        command.args(args).env_clear();
        command.stdin(listens).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn()?;
        // One that died already is started again.
        let _ = pipe.write_all(rest);
        self.pipe = Some(pipe);
        Ok(child)
    }

    /// A guard that is gone is told everything when it comes back.
    fn tell(&mut self, sign: char, group: i32) {
        if let Some(pipe) = &mut self.pipe {
            // One write: a node that dies here leaves no half of a number.
            let _ = pipe.write_all(format!("{sign}{group}\n").as_bytes());
        }
    }
}

/// Starts the guard again whenever it ends, until the node closes.
fn keep(desk: &Mutex<Desk>, mut child: Child) {
    loop {
        let began = Instant::now();
        let ended = child.wait();
        if desk.lock().closed {
            return;
        }
        tracing::warn!(?ended, "the guard of handler processes ended; it is started again");
        if began.elapsed() < SETTLED {
            thread::sleep(SETTLED);
        }
        child = loop {
            let mut open = desk.lock();
            if open.closed {
                return;
            }
            match open.start() {
                Ok(child) => break child,
                Err(error) => tracing::error!(%error, "handler processes have no guard"),
            }
            drop(open);
            thread::sleep(SETTLED);
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_list_groups() {
        let me = i32::try_from(std::process::id()).expect("a pid");
        let lines = format!(
            "=12:34\n+{me}\n+7000001\nnonsense\n\n+\n-x\n+1\n+0\n+-5\n+7000002\n-7000002\n"
        );
        let listed = listen(lines.as_bytes());
        assert_eq!(listed.node.as_deref(), Some("12:34"));
        let mut groups: Vec<_> = listed.groups.keys().copied().collect();
        groups.sort_unstable();
        let mut expected = vec![me, 7_000_001];
        expected.sort_unstable();
        assert_eq!(groups, expected);
        assert_eq!(listed.groups[&7_000_001], None, "nobody has this number");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_number_that_was_given_again_is_not_ended() {
        let me = i32::try_from(std::process::id()).expect("a pid");
        let started = facts(me).map(|f| f.started);
        assert!(is_still(me, started), "the same process");
        assert!(!is_still(me, Some(1)), "another one under its number");
        assert!(is_still(7_000_001, Some(1)), "its leader is gone, the group may not be");
    }
}
