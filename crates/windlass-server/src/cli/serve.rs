//! `windlass serve`: a production node. Reads the configuration, starts the
//! server, and turns how it ended into an exit code; what a node does is in
//! `server.rs`.

use super::failure::{Exit, Failure};
use super::global::Global;
use super::output::Out;
use crate::config::{ConfigError, FileFlags, Loaded, Surroundings, load};
use crate::logs;
use crate::server::{Ended, Server, Signals};
use clap::Args;
use windlass::{Code, Error};

const EXAMPLES: &str = "\
Examples:
  windlass serve --config windlass.toml
  windlass serve --listen 127.0.0.1:7450 --store sqlite://windlass.db";

#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct ServeArgs {
    #[command(flatten)]
    pub flags: FileFlags,
}

pub async fn run(args: ServeArgs, global: &Global) -> Result<Exit, Failure> {
    let loaded = load(&args.flags, &Surroundings::of_process()).map_err(misconfigured)?;
    begin_logs(global);
    let signals = Signals::hear().map_err(failed)?;
    let server = start(&loaded, |builder| builder).await?;
    ended(server.run(signals).await)
}

pub(super) async fn start(
    loaded: &Loaded,
    more: impl FnOnce(windlass::Builder) -> windlass::Builder,
) -> Result<Server, Failure> {
    let started = Server::start(&loaded.config, more).await;
    started.map_err(|error| {
        let Failure { code, message, hint } = failed(error);
        let scrub = |text: &str| loaded.config.store.url.scrub(text);
        Failure::new(code, scrub(&message), scrub(&hint))
    })
}

pub(super) fn ended(ended: windlass::Result<Ended>) -> Result<Exit, Failure> {
    match ended {
        Ok(Ended::InGoodOrder) => Ok(Exit::Ok),
        Ok(Ended::AtOnce) => Ok(Exit::Interrupted),
        Err(error) => Err(failed(error)),
    }
}

/// A node writes logs; how much is said by a variable or by `-q` and `-v`.
pub(super) fn begin_logs(global: &Global) {
    let usual = match (global.quiet, global.verbose) {
        (true, _) => "error",
        (false, 0) => "info",
        (false, 1) => "debug",
        (false, _) => "trace",
    };
    if let Err(wrong) = logs::begin(usual) {
        Out::new(global).say(&format!("warning: {wrong}"));
    }
}

/// Every problem of a configuration ends with its own hint already.
pub(super) fn misconfigured(error: ConfigError) -> Failure {
    let text = error.to_string();
    let (message, hint) = text.rsplit_once("hint: ").unwrap_or((&text, "correct the file"));
    Failure::usage(message.trim_end(), hint)
}

/// The part of a message after the last semicolon says what to do.
pub(super) fn failed(error: Error) -> Failure {
    let mut text = error.message().to_owned();
    if let Some(cause) = std::error::Error::source(&error) {
        text.push_str(&format!(" ({cause})"));
    }
    let exit = match error.code() {
        Code::InvalidFields | Code::Unsupported => Exit::Usage,
        Code::StateConflict => Exit::Conflict,
        Code::NotFound => Exit::NotFound,
        _ => Exit::Failed,
    };
    match text.rsplit_once("; ") {
        Some((message, hint)) => Failure::new(exit, message, hint),
        None => Failure::new(exit, text, "`windlass doctor` looks for what is wrong"),
    }
}
