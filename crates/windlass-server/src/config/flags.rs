//! The flags that say something about the configuration, shared by `serve`,
//! `config` and every command that reads it. They are the last layer; which key
//! each one sets stands here and nowhere else.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// What a node does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Role {
    /// Serve the API and run tasks.
    #[default]
    All,
    /// Serve the API only.
    Api,
    /// Run tasks only.
    Worker,
}

impl Role {
    pub const fn as_str(self) -> &'static str {
        match self {
            Role::All => "all",
            Role::Api => "api",
            Role::Worker => "worker",
        }
    }
}

/// Flags over the configuration.
#[derive(Debug, Clone, Default, Args)]
pub struct FileFlags {
    /// Read this file after the user's and ./windlass.toml
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Address and port of the API
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// Where tasks are kept: sqlite://FILE or memory:
    #[arg(long, value_name = "URL")]
    pub store: Option<String>,
    /// What tells nodes of work: store:
    #[arg(long, value_name = "URL", hide = true)]
    pub transport: Option<String>,
    /// Redis, which helps a cluster
    #[arg(long, value_name = "URL", hide = true)]
    pub redis: Option<String>,
    /// What this node does
    #[arg(long, value_enum)]
    pub role: Option<Role>,
    /// Shown in lists of nodes
    #[arg(long, value_name = "NAME")]
    pub node_name: Option<String>,
}

impl FileFlags {
    /// Flag, key, value of those that were given.
    pub(super) fn values(&self) -> Vec<(&'static str, [&'static str; 2], &str)> {
        let all = [
            ("--listen", ["server", "listen"], &self.listen),
            ("--store", ["store", "url"], &self.store),
            ("--transport", ["transport", "url"], &self.transport),
            ("--redis", ["redis", "url"], &self.redis),
            ("--node-name", ["node", "name"], &self.node_name),
        ];
        all.into_iter()
            .filter_map(|(flag, key, value)| Some((flag, key, value.as_deref()?)))
            .collect()
    }
}
