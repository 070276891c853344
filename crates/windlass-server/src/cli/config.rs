//! `windlass config show|check|print-default`. Reads the configuration as every
//! other command does, and writes what `config/` says about it. The flags' wiring
//! is the caller's; where files are is the configuration's.

use super::failure::{Exit, Failure};
use super::global::{Format, Global};
use super::output::Out;
use super::serve::misconfigured;
use crate::config::{
    ConfigError, FileFlags, Origins, Surroundings, default_text, json, load, text,
};
use clap::{Args, Subcommand};
use std::io::Write;

#[derive(Debug, Clone, Args)]
pub struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
    #[command(flatten)]
    flags: FileFlags,
}

pub(super) fn command(args: &ConfigArgs, global: &Global) -> Result<Exit, Failure> {
    let out = Out::new(global);
    if let (ConfigCommand::Show { origin }, Format::Json | Format::Jsonl) =
        (&args.command, global.output)
    {
        let loaded = load(&args.flags, &Surroundings::of_process()).map_err(misconfigured)?;
        out.json(&json(&loaded, Origins::of(*origin)))?;
        return Ok(Exit::Ok);
    }
    let mut text = vec![];
    let code = run(&args.command, &args.flags, &mut text).map_err(misconfigured)?;
    out.bytes(&text)?;
    Ok(if code == 0 { Exit::Ok } else { Exit::Failed })
}

/// What `windlass config` can do.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum ConfigCommand {
    /// Print the configuration that holds, as TOML
    Show {
        /// Say where each value came from
        #[arg(long)]
        origin: bool,
    },
    /// Look for mistakes
    Check,
    /// Print a commented file with every key and its default
    PrintDefault,
}

/// Runs the command in this process's surroundings; the answer is the exit code.
pub fn run(
    command: &ConfigCommand,
    flags: &FileFlags,
    out: &mut dyn Write,
) -> Result<i32, ConfigError> {
    run_in(command, flags, &Surroundings::of_process(), out)
}

pub fn run_in(
    command: &ConfigCommand,
    flags: &FileFlags,
    around: &Surroundings,
    out: &mut dyn Write,
) -> Result<i32, ConfigError> {
    match command {
        ConfigCommand::Show { origin } => {
            write!(out, "{}", text(&load(flags, around)?, Origins::of(*origin)))?;
            Ok(0)
        }
        ConfigCommand::Check => check(flags, around, out),
        ConfigCommand::PrintDefault => {
            write!(out, "{}", default_text())?;
            Ok(0)
        }
    }
}

/// Mistakes are what was asked for, so they are the output.
fn check(
    flags: &FileFlags,
    around: &Surroundings,
    out: &mut dyn Write,
) -> Result<i32, ConfigError> {
    match load(flags, around) {
        Ok(loaded) => {
            for warning in &loaded.warnings {
                writeln!(out, "warning: {warning}")?;
            }
            writeln!(out, "ok")?;
            Ok(0)
        }
        Err(error) => {
            writeln!(out, "{error}")?;
            Ok(1)
        }
    }
}
