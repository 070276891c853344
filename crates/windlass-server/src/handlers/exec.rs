//! A step that is done by a program: one process for each try, its own process
//! group, started without a shell from a command that the configuration names.
//! This file is the life of that process from start to verdict; the parts it
//! goes through are in the files beside it.

use super::document::{document, environment};
use super::group::Group;
use super::host::ExecHost;
use super::pipes::{Heard, Pipes, serve};
use super::scrubbed::hidden_of;
use super::strays::end_strays;
use super::verdict::{too_much, verdict};
use crate::redact::{Hidden, Redactor};
use command_fds::{CommandFdExt, FdMapping};
use futures::FutureExt;
use futures::future::{Fuse, FusedFuture};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::unix::pipe;
use tokio::process::Command;
use tokio::time::timeout;
use windlass::core::store::BoxFuture;
use windlass::{StepCall, StepHandler, TaskError, fatal, retryable};

/// Where a handler writes its progress.
const PROGRESS_FD: i32 = 3;
/// How long a process may take to end after it was asked to.
const GRACE: Duration = Duration::from_secs(5);
/// For the kill and the reaping after it.
const AFTER_GRACE: Duration = Duration::from_secs(1);
/// How long pipes are read after the process has ended, should something it left
/// behind hold them.
const PIPES_LINGER: Duration = Duration::from_secs(1);
/// The same when it was ended by us, and nobody waits for its words.
const PIPES_LINGER_SHORT: Duration = Duration::from_millis(200);

/// The program of a handler, as the configuration names it.
#[derive(Debug, Clone, Default)]
pub struct ExecSpec {
    /// Program and arguments; never a shell, and nothing of a task is added.
    pub argv: Vec<String>,
    /// Longest run of one try, if it differs from the kind's.
    pub timeout: Option<Duration>,
    /// What its environment has beside `PATH` and `WINDLASS_*`.
    pub env: BTreeMap<String, String>,
}

/// Runs a program for each try of a step.
#[derive(Debug, Clone)]
pub struct ExecHandler {
    spec: Arc<ExecSpec>,
    host: Arc<ExecHost>,
    grace: Duration,
    redactor: Redactor,
}

impl ExecHandler {
    pub fn new(spec: ExecSpec, host: Arc<ExecHost>) -> ExecHandler {
        ExecHandler { spec: Arc::new(spec), host, grace: GRACE, redactor: Redactor::default() }
    }

    /// Values of these fields are kept out of the log.
    pub fn hiding(self, redactor: Redactor) -> ExecHandler {
        ExecHandler { redactor, ..self }
    }

    /// How long a process may take to end between SIGTERM and SIGKILL.
    pub fn grace(self, grace: Duration) -> ExecHandler {
        ExecHandler { grace, ..self }
    }
}

impl StepHandler for ExecHandler {
    fn run(&self, call: StepCall) -> BoxFuture<'static, Result<Value, TaskError>> {
        Box::pin(self.clone().run_once(call))
    }

    fn timeout(&self) -> Option<Duration> {
        self.spec.timeout
    }

    fn stopping(&self) -> Duration {
        self.grace + AFTER_GRACE
    }
}

/// Why the process is no longer waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Exited,
    Stopped,
    Flooded,
}

impl ExecHandler {
    async fn run_once(self, call: StepCall) -> Result<Value, TaskError> {
        let document = document(&call)?;
        let environment = environment(&call, &self.host, &self.spec.env);
        let (group, pipes) = self.start(&environment)?;
        // What the configuration gives it may be secret too.
        let hidden = hidden_of(&call, &self.redactor).and(Hidden::of(self.spec.env.values()));
        let heard = Heard::new(call.log.clone(), hidden);
        let (end, ended) = {
            let io = pin!(serve(pipes, document, &call, &heard).fuse());
            self.see_through(group, io, &call, &heard).await?
        };
        if end != End::Exited {
            end_strays(&environment).await;
        }
        match end {
            End::Stopped => {
                // Whoever cancelled hears of the cancel, not of a broken process.
                call.cx.check()?;
                Err(retryable("the process was stopped"))
            }
            _ if heard.is_flooded() => Err(too_much()),
            _ => verdict(ended, &heard.take_output(), &heard.log()),
        }
    }

    fn start(&self, env: &BTreeMap<String, OsString>) -> Result<(Group, Pipes), TaskError> {
        let Some((program, args)) = self.spec.argv.split_first() else {
            return Err(fatal("the handler names no program; set `exec` to a list of words"));
        };
        let (sender, progress) = pipe::pipe()?;
        let mut command = Command::new(program);
        command.args(args).env_clear().envs(env);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mapping = FdMapping { parent_fd: sender.into_blocking_fd()?, child_fd: PROGRESS_FD };
        command.fd_mappings(vec![mapping])?;
        let started = Group::start(&mut command, self.host.clone());
        let mut group = started.map_err(|error| not_started(program, &error))?;
        let leader = group.leader();
        let (stdin, stdout, stderr) =
            (leader.stdin.take(), leader.stdout.take(), leader.stderr.take());
        Ok((group, Pipes { stdin, stdout, stderr, progress }))
    }

    /// From the start of the process until nothing is left of it.
    async fn see_through(
        &self,
        mut group: Group,
        mut io: Pin<&mut Fuse<impl Future<Output = ()>>>,
        call: &StepCall,
        heard: &Heard,
    ) -> Result<(End, ExitStatus), TaskError> {
        let end = async {
            tokio::select! {
                biased;
                () = group.leader_ended() => End::Exited,
                () = call.stop() => End::Stopped,
                () = heard.flooded() => End::Flooded,
            }
        };
        let end = beside(io.as_mut(), end).await;
        if end == End::Stopped {
            group.ask_to_end();
            let _ = beside(io.as_mut(), timeout(self.grace, group.leader_ended())).await;
        }
        let linger = match end {
            End::Exited => PIPES_LINGER,
            End::Stopped | End::Flooded => {
                group.kill();
                PIPES_LINGER_SHORT
            }
        };
        if !io.is_terminated() {
            let _ = timeout(linger, io.as_mut()).await;
        }
        let ended = beside(io, group.end()).await?;
        Ok((end, ended))
    }
}

/// Waits for `other` while the pipes are served.
async fn beside<T>(
    mut io: Pin<&mut Fuse<impl Future<Output = ()>>>,
    other: impl Future<Output = T>,
) -> T {
    let mut other = pin!(other);
    loop {
        tokio::select! {
            biased;
            said = &mut other => return said,
            () = &mut io, if !io.is_terminated() => {}
        }
    }
}

fn not_started(program: &str, error: &io::Error) -> TaskError {
    use io::ErrorKind::{InvalidInput, NotFound, PermissionDenied};
    let hint = match error.kind() {
        NotFound => "there is no such program; install it, or correct `exec` or PATH",
        PermissionDenied => "it may not be executed; set its mode, or name its interpreter first",
        InvalidInput => "a word of `exec` or `env` holds a NUL; remove it",
        // Memory, processes, descriptors: they come back.
        _ => return retryable(format!("cannot start `{program}`: {error}")),
    };
    fatal(format!("cannot start `{program}`: {error}; {hint}"))
}
