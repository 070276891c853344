//! `windlass dev`: the flags of a server for trying things out. It needs no
//! configuration; what it starts is wired elsewhere.

use super::failure::{Exit, Failure};
use super::global::Global;
use clap::Args;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  windlass dev
  windlass dev --data demo --listen 127.0.0.1:8000
  windlass dev --crash-demo";

#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct DevArgs {
    /// Folder of the SQLite file
    #[arg(long, value_name = "DIR", default_value = ".windlass")]
    pub data: PathBuf,

    /// Address of API and dashboard
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7450")]
    pub listen: String,

    /// Kill the node in the middle of a task and show the task resume
    #[arg(long)]
    pub crash_demo: bool,
}

pub async fn run(_args: DevArgs, _global: &Global) -> Result<Exit, Failure> {
    Err(Failure::new(Exit::Failed, "`windlass dev` is not built yet", "use a later version"))
}
