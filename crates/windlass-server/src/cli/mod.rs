//! The command line: the tree of commands, and which function answers which. It
//! is a client of the HTTP API like any other; only `serve`, `dev`, `bench` and
//! `worker-test` start an engine. Each noun has its own file; every command ends with an
//! [`Exit`] or with a [`Failure`] that carries a hint.

mod about;
mod audit;
mod batch;
pub mod bench;
mod bulk;
mod child;
mod client;
pub mod config;
mod confirm;
mod crash_demo;
mod dead;
pub mod dev;
pub mod doctor;
mod edit;
mod event;
mod failure;
mod fields;
mod follow;
mod global;
mod ids;
mod listing;
mod node;
mod output;
mod pages;
mod queue;
mod select;
pub mod serve;
mod single;
mod sse;
mod stage;
mod submit;
mod task;
mod task_page;
mod times;
mod token;
mod trust;
mod words;
pub mod worker_test;

pub use failure::{Exit, Failure};
pub use global::{Format, Global, When};

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use std::process::ExitCode;
use tokio::runtime::{Builder, Runtime};

const EXAMPLES: &str = "\
Examples:
  windlass dev                                    a server to try things on
  windlass submit hello name=Ann --wait           run a task and print its result
  windlass task list state:failed since:1h        what went wrong
  windlass dead requeue 'error~\"reset\"' --rate 5/s

Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 not allowed, 5 state conflict,
6 server unreachable, 7 partly done, 8 wait timed out, 10 the awaited task failed,
11 it was cancelled, 130 interrupted";

/// Background tasks that are not lost
#[derive(Debug, Parser)]
#[command(name = "windlass", version, arg_required_else_help = true, after_help = EXAMPLES)]
#[command(subcommand_value_name = "COMMAND", subcommand_help_heading = "Commands")]
#[command(disable_help_subcommand = false, max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a server to try things on, with no configuration
    Dev(dev::DevArgs),
    /// Start a production node
    Serve(serve::ServeArgs),
    /// Submit a task, or many from a file
    Submit(Box<submit::SubmitArgs>),
    /// Look at tasks and act on them
    #[command(subcommand)]
    Task(task::TaskCommand),
    /// Failed tasks that wait for a person
    #[command(subcommand)]
    Dead(dead::DeadCommand),
    /// Verbs that a filter began, as jobs of the server
    #[command(subcommand)]
    Batch(batch::BatchCommand),
    /// Lanes of tasks
    #[command(subcommand)]
    Queue(queue::QueueCommand),
    /// Running processes
    #[command(subcommand)]
    Node(node::NodeCommand),
    /// What happens, as it happens
    #[command(subcommand)]
    Event(event::EventCommand),
    /// Look at the configuration
    Config(config::ConfigArgs),
    /// Look for what is wrong with this installation
    Doctor,
    /// Who changed what
    #[command(subcommand)]
    Audit(audit::AuditCommand),
    /// Who may use the server
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Print a completion script for a shell
    Completion(about::CompletionArgs),
    /// Print the version
    Version,
    /// Measure this machine
    Bench(bench::BenchArgs),
    /// Check a worker in another language against the protocol
    WorkerTest(worker_test::WorkerTestArgs),
    /// Ends the processes of handlers when their node is gone; started by `serve`
    #[command(hide = true)]
    Guard,
    /// The node that `bench` measures; started by `bench`
    #[command(hide = true)]
    BenchNode,
    /// The remote worker of `bench`; started by `bench`
    #[command(hide = true)]
    BenchWorker,
}

/// Reads the arguments of the process, does what they say, and ends.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse_from(words::hide_negations(std::env::args_os())) {
        Ok(cli) => cli,
        Err(error) => return misread(&error).into(),
    };
    if let Command::Guard = cli.command {
        return guard();
    }
    let out = output::Out::new(&cli.global);
    let outcome = match runtime(&cli.command) {
        Ok(runtime) => {
            let outcome = runtime.block_on(dispatch(cli));
            // A thread that still waits for stdin must not keep the process.
            runtime.shutdown_background();
            outcome
        }
        Err(e) => {
            let hint = "see the limits on processes and open files";
            Err(Failure::new(Exit::Failed, format!("cannot start: {e}"), hint))
        }
    };
    match outcome {
        Ok(exit) => exit.into(),
        Err(failure) => {
            out.fail(&failure);
            failure.code.into()
        }
    }
}

/// No runtime and nobody to talk to: it waits for its node to end.
fn guard() -> ExitCode {
    match crate::handlers::guard::main() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// One thread is enough to talk to a server, and starts faster.
fn runtime(command: &Command) -> std::io::Result<Runtime> {
    let mut builder = match command {
        Command::Dev(_) | Command::Serve(_) | Command::BenchNode | Command::WorkerTest(_) => {
            Builder::new_multi_thread()
        }
        _ => Builder::new_current_thread(),
    };
    builder.enable_all().build()
}

async fn dispatch(cli: Cli) -> Result<Exit, Failure> {
    let global = &cli.global;
    match cli.command {
        // These end themselves in good order when they are interrupted.
        Command::Dev(args) => dev::run(args, global).await,
        Command::Serve(args) => serve::run(args, global).await,
        Command::Bench(args) => bench::run(args, global).await,
        Command::BenchNode => bench::node().await,
        Command::WorkerTest(args) => worker_test::run(args, global).await,
        Command::BenchWorker => bench::worker().await,
        command => tokio::select! {
            biased;
            outcome = ask(command, global) => outcome,
            _ = tokio::signal::ctrl_c() => Err(interrupted()),
        },
    }
}

/// Commands that ask a server, or nobody.
async fn ask(command: Command, global: &Global) -> Result<Exit, Failure> {
    match command {
        Command::Submit(args) => submit::run(*args, global).await,
        Command::Task(command) => task::run(command, global).await,
        Command::Dead(command) => dead::run(command, global).await,
        Command::Batch(command) => batch::run(command, global).await,
        Command::Queue(command) => queue::run(command, global).await,
        Command::Node(command) => node::run(command, global).await,
        Command::Event(command) => event::run(command, global).await,
        Command::Config(args) => config::command(&args, global),
        Command::Doctor => doctor::run(global).await,
        Command::Audit(command) => audit::run(command, global).await,
        Command::Token(command) => token::run(command, global).await,
        Command::Completion(args) => about::completion(&args, global),
        Command::Version => about::version(global),
        // Answered before.
        Command::Dev(_)
        | Command::Serve(_)
        | Command::Bench(_)
        | Command::BenchNode
        | Command::WorkerTest(_)
        | Command::BenchWorker
        | Command::Guard => Ok(Exit::Ok),
    }
}

fn interrupted() -> Failure {
    let hint = "what was sent stays done; `windlass task list` shows it";
    Failure::new(Exit::Interrupted, "interrupted", hint)
}

/// Help and version were asked for; everything else is a mistake with a hint.
fn misread(error: &clap::Error) -> Exit {
    // Whoever reads may have gone; there is nobody to tell then.
    let _ = error.print();
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return Exit::Ok;
    }
    output::say_always("hint: add --help to see what a command takes, with examples");
    Exit::Usage
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn read(line: &str) -> Result<Cli, clap::Error> {
        let words = line.split(' ').map(Into::into);
        Cli::try_parse_from(words::hide_negations(words))
    }

    #[test]
    fn the_tree_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn global_flags_stand_before_and_after() {
        for line in [
            "windlass -o json -y task list state:failed",
            "windlass task list state:failed -o json -y",
            "windlass task -y list -queue:low state:failed -o json",
        ] {
            let cli = read(line).unwrap();
            assert_eq!((cli.global.output, cli.global.yes), (Format::Json, true), "{line}");
        }
    }

    #[test]
    fn commands_of_the_contract() {
        for line in [
            "windlass dev --data d --listen 127.0.0.1:1 --crash-demo",
            "windlass serve --config f --listen a --store memory: --role worker --node-name n",
            "windlass submit k a=1 --queue q --delay 5m --priority -3 --steps a,b --label a=b --wait",
            "windlass submit --from -",
            "windlass task requeue abcdef --from-step s",
            "windlass task wait abcdef --timeout 5s",
            "windlass dead list --group error",
            "windlass dead requeue state:failed --rate 5/s --stop-above 20",
            "windlass task cancel queue:q --rate 100/m --detach",
            "windlass task edit abcdef --data {}",
            "windlass batch list -n 5",
            "windlass batch show bat_1",
            "windlass batch watch bat_1",
            "windlass batch stop bat_1",
            "windlass dead edit abcdef --data {}",
            "windlass dead export",
            "windlass queue set q --concurrency none --depth-max 5",
            "windlass node drain n -y",
            "windlass event tail queue:q --type task.*",
            "windlass audit list -n 5",
            "windlass token create ci --role submitter --expires 90d --tokens-file f",
            "windlass token list",
            "windlass token revoke ci -y",
            "windlass completion fish",
            "windlass worker-test http://127.0.0.1:1 --patience 5s",
            "windlass worker-test -- python3 worker.py -v",
            "windlass bench --tasks 100k --payload 200 --backlog 5 --steps 2 --rate 10",
        ] {
            assert!(read(line).is_ok(), "{line}: {}", read(line).unwrap_err());
        }
    }

    #[test]
    fn mistakes_are_found() {
        for line in [
            "windlass",
            "windlass task",
            "windlass task cancel",
            "windlass queue set q",
            "windlass serve --role boss",
            "windlass task list --frob",
            "windlass task list -o xml",
            "windlass rollback x",
            "windlass task requeue state:failed --stop-above 100",
            "windlass task cancel state:queued --rate fast",
            "windlass task cancel state:queued --stop-above 5",
        ] {
            assert!(read(line).is_err(), "{line}");
        }
    }
}
