//! The two processes of a test: a server in this one, with a store in memory and a
//! short lease, and the worker as a child in a process group of its own, so that
//! signals reach it through whatever wraps it. Dropping ends the child.

use super::super::failure::{Exit, Failure};
use super::super::serve::failed;
use crate::config::{Config, SecretUrl, UiMode, UnknownKinds};
use crate::server::Server;
use rustix::process::{Pid, Signal, kill_process_group};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// Short, so that losing one is quick; long enough for a slow machine.
pub(super) const LEASE: Duration = Duration::from_secs(2);
/// Nothing is ended in the worker's place while a check waits for it.
const CANCEL_GRACE: Duration = Duration::from_secs(120);

/// The server of a test.
pub(super) struct Place(Server);

impl Place {
    pub(super) async fn start() -> Result<Place, Failure> {
        let mut config = Config::default();
        config.server.listen.0 = ([127, 0, 0, 1], 0).into();
        config.server.unknown_kinds = UnknownKinds::Park;
        config.store.url = SecretUrl::new("memory:");
        config.node.lease = LEASE;
        config.node.name = "worker-test".to_owned();
        config.defaults.cancel_grace = CANCEL_GRACE;
        config.shutdown.grace = Duration::ZERO;
        config.ui.mode = UiMode::Off;
        let more = |builder: windlass::Builder| {
            builder.settings(|settings| settings.suspects_wait = Duration::ZERO)
        };
        Server::start(&config, more).await.map(Place).map_err(failed)
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.0.at)
    }

    pub(super) async fn stop(self) -> Result<(), Failure> {
        self.0.stop(std::future::pending()).await.map(drop).map_err(failed)
    }
}

/// The worker under test.
#[derive(Debug)]
pub(super) struct Program {
    argv: Vec<String>,
    server: String,
    child: Child,
}

impl Program {
    pub(super) fn start(argv: Vec<String>, server: String) -> Result<Program, Failure> {
        let child = spawn(&argv, &server)?;
        Ok(Program { argv, server, child })
    }

    /// Starts it again after it has ended.
    pub(super) fn again(&mut self) -> Result<(), Failure> {
        self.child = spawn(&self.argv, &self.server)?;
        Ok(())
    }

    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    pub(super) fn signal(&self, signal: Signal) -> Result<(), String> {
        kill_process_group(Pid::from_child(&self.child), signal)
            .map_err(|e| format!("the signal could not be sent: {e}"))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // One that is gone already cannot be harmed.
        let _ = self.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}

/// What it says goes to stderr, where talk belongs.
fn spawn(argv: &[String], server: &str) -> Result<Child, Failure> {
    let start = || -> io::Result<Child> {
        let (program, arguments) = argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        command.args(arguments).env("WINDLASS_SERVER", server).env_remove("WINDLASS_TOKEN");
        let stderr = io::stderr().as_fd().try_clone_to_owned()?;
        command.stdin(Stdio::null()).stdout(stderr).process_group(0).spawn()
    };
    start().map_err(|e| {
        let message = format!("the worker `{}` cannot be started: {e}", argv.join(" "));
        Failure::new(Exit::Failed, message, "is the program there? no shell is asked")
    })
}

/// Words as a shell would see them, with quotes and `\`, and nothing else of it.
pub(super) fn split(line: &str) -> Result<Vec<String>, Failure> {
    let (mut words, mut word, mut quote) = (vec![], None::<String>, None);
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match (letter, quote) {
            ('\\', None | Some('"')) => {
                word.get_or_insert_default().extend(letters.next());
            }
            (_, Some(open)) if letter == open => quote = None,
            ('\'' | '"', None) => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (' ' | '\t' | '\n', None) => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    if quote.is_some() {
        let hint = "close it, or give the words after --";
        return Err(Failure::usage("a quote in the command is not closed", hint));
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_without_a_shell() {
        for (line, words) in [
            ("python3 worker.py", vec!["python3", "worker.py"]),
            (" a  'b c' \"d 'e'\" f\\ g ", vec!["a", "b c", "d 'e'", "f g"]),
            ("a '' $HOME *", vec!["a", "", "$HOME", "*"]),
            (r#"a"b"'c' "\"""#, vec!["abc", "\""]),
            ("", vec![]),
        ] {
            assert_eq!(split(line).unwrap(), words, "{line}");
        }
        assert_eq!(split("a 'b").unwrap_err().code, Exit::Usage);
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let failure =
            Program::start(vec!["no-such-program".to_owned()], String::new()).unwrap_err();
        assert!(failure.message.contains("no-such-program"), "{failure:?}");
    }
}
