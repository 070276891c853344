//! A handler process and everything it started, as one process group. Signals go
//! to the group only while its leader is not reaped: until then the number
//! cannot be anybody else's. Whoever drops a group kills it. What the processes
//! say or do is not known here.

use super::host::ExecHost;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process_group, test_kill_process_group, waitid,
};
use std::io;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::time::{Instant, sleep};

/// How long killed members may take to be gone. A system whose first process
/// reaps nobody keeps them in its books for ever.
const GONE_WITHIN: Duration = Duration::from_millis(500);
const LOOK_EVERY: Duration = Duration::from_millis(2);

#[derive(Debug)]
pub(crate) struct Group {
    leader: Child,
    id: Pid,
    host: Arc<ExecHost>,
    exits: Signals,
    /// Everything was killed, and the number is no longer ours.
    is_over: bool,
}

impl Group {
    /// Starts the process as the leader of its own group.
    pub(crate) fn start(command: &mut Command, host: Arc<ExecHost>) -> io::Result<Group> {
        // Before the process: its exit must not be missed.
        let exits = signal(SignalKind::child())?;
        let leader = command.process_group(0).kill_on_drop(true).spawn()?;
        let id = leader.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let id = id.ok_or_else(|| io::Error::other("a process without a number"))?;
        host.guard.add(id);
        Ok(Group { leader, id, host, exits, is_over: false })
    }

    pub(crate) fn leader(&mut self) -> &mut Child {
        &mut self.leader
    }

    /// Ready when the leader has ended. It is left unreaped, so that the group
    /// can still be signalled safely.
    pub(crate) async fn leader_ended(&mut self) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        while let Ok(None) = waitid(WaitId::Pid(self.id), options) {
            if self.exits.recv().await.is_none() {
                return;
            }
        }
    }

    pub(crate) fn ask_to_end(&self) {
        self.signal(Signal::TERM);
    }

    pub(crate) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Kills whatever is left, waits until it is gone, and says how the leader
    /// ended.
    pub(crate) async fn end(mut self) -> io::Result<ExitStatus> {
        self.kill();
        self.leader_ended().await;
        self.forget();
        let ended = self.leader.wait().await?;
        self.others_gone().await;
        Ok(ended)
    }

    fn signal(&self, signal: Signal) {
        if !self.is_over {
            // A group that is gone needs none.
            let _ = kill_process_group(self.id, signal);
        }
    }

    fn forget(&mut self) {
        self.is_over = true;
        self.host.guard.remove(self.id);
    }

    /// Members die a moment after they were killed. This only asks, so a number
    /// that was given again does no harm.
    async fn others_gone(&self) {
        let until = Instant::now() + GONE_WITHIN;
        while test_kill_process_group(self.id).is_ok() && Instant::now() < until {
            sleep(LOOK_EVERY).await;
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.is_over {
            self.kill();
            self.forget();
        }
    }
}
