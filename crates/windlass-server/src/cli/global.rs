//! The flags that every command takes, before or after its name. They are read
//! here and nowhere else; the client, the output and the commands ask this
//! struct. The token never is a flag, so that it shows in no process list.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// Where the server is
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "WINDLASS_SERVER",
        default_value = "http://127.0.0.1:7450"
    )]
    pub server: String,

    /// File with the access token (or put the token itself into WINDLASS_TOKEN)
    #[arg(long, global = true, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// PEM file with a certificate to trust, beside those of the system
    #[arg(long, global = true, value_name = "FILE", env = "WINDLASS_CA_FILE")]
    pub ca_file: Option<PathBuf>,

    /// How data is written to stdout: for people, one JSON document, one per line, only ids
    #[arg(short, long, global = true, value_enum, value_name = "FORMAT", default_value = "table")]
    pub output: Format,

    /// Do not ask for confirmation
    #[arg(short, long, global = true)]
    pub yes: bool,

    /// Show what would be done and do nothing
    #[arg(long, global = true)]
    pub dry_run: bool,

    /// When to use colour; NO_COLOR is honoured
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value = "auto")]
    pub color: When,

    /// Say nothing on stderr but errors
    #[arg(short, long, global = true)]
    pub quiet: bool,

    /// Say more on stderr, such as request ids
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Table,
    Json,
    Jsonl,
    Id,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum When {
    Auto,
    Always,
    Never,
}
