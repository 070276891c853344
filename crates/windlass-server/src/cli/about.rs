//! `windlass version` and `windlass completion`: what the binary says about
//! itself, without a server.

use super::failure::{Exit, Failure};
use super::global::{Format, Global};
use super::output::Out;
use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;
use serde_json::json;

const EXAMPLES: &str = "\
Examples:
  windlass completion bash > ~/.local/share/bash-completion/completions/windlass
  windlass completion zsh > ~/.zfunc/_windlass
  windlass completion fish > ~/.config/fish/completions/windlass.fish";

#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionArgs {
    /// For which shell
    shell: Shell,
}

pub(crate) fn version(global: &Global) -> Result<Exit, Failure> {
    let (out, version) = (Out::new(global), env!("CARGO_PKG_VERSION"));
    match out.format {
        Format::Table => out.line(&format!("windlass {version}"))?,
        Format::Id => out.line(version)?,
        Format::Json | Format::Jsonl => {
            let target = format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS);
            out.json(&json!({"name": "windlass", "version": version, "target": target}))?;
        }
    }
    Ok(Exit::Ok)
}

pub(crate) fn completion(args: &CompletionArgs, global: &Global) -> Result<Exit, Failure> {
    // Into memory first: the generator panics when nobody reads its output.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut offered(), "windlass", &mut script);
    Out::new(global).bytes(&script)?;
    Ok(Exit::Ok)
}

/// The commands without the hidden ones, which some generators do not leave out.
fn offered() -> Command {
    let whole = super::Cli::command();
    let shown = whole.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let shown: Vec<Command> = shown.collect();
    Command::new("windlass").args(whole.get_arguments().cloned()).subcommands(shown)
}
