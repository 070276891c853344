//! Where the workspace is, and how cargo is called in it. Every command starts
//! cargo through here, so that none of them depends on the folder it was called
//! from or waits for keyboard input.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::stop::Stop;

/// The folder that holds the workspace's `Cargo.toml`.
pub(crate) fn find() -> Result<PathBuf, Stop> {
    // Cargo sets the variable for `cargo run` and `cargo test`; a binary started
    // by hand looks upwards from where it is.
    let start = match std::env::var_os("CARGO_MANIFEST_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => std::env::current_dir().map_err(|e| Stop::Error(format!("current folder: {e}")))?,
    };
    let found = start.ancestors().find(|folder| folder.join("xtask/Cargo.toml").is_file());
    found
        .map(Path::to_path_buf)
        .ok_or_else(|| Stop::Error("run this inside the Windlass workspace".to_owned()))
}

/// A cargo call in the workspace root, without standard input.
pub(crate) fn cargo(root: &Path, args: &[&str]) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(program);
    command.args(args).current_dir(root).stdin(Stdio::null());
    command
}
