//! `windlass serve`: the flags of a production node. What a node does is wired
//! elsewhere; here its settings are only read.

use super::failure::{Exit, Failure};
use super::global::Global;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  windlass serve --config windlass.toml
  windlass serve --listen 127.0.0.1:7450 --store sqlite://windlass.db";

#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct ServeArgs {
    /// Configuration file, read after the user's and ./windlass.toml
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Address of API and dashboard
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,

    /// Where tasks are kept: sqlite://FILE, memory:
    #[arg(long, value_name = "URL")]
    pub store: Option<String>,

    /// Answer requests, run tasks, or both
    #[arg(long, value_enum, default_value = "all")]
    pub role: Role,

    /// The node's name, the host's by default
    #[arg(long, value_name = "NAME")]
    pub node_name: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Role {
    All,
    Api,
    Worker,
}

pub async fn run(_args: ServeArgs, _global: &Global) -> Result<Exit, Failure> {
    Err(Failure::new(Exit::Failed, "`windlass serve` is not built yet", "use a later version"))
}
