//! `cargo xtask deny`: licences, advisories, duplicate crates and sources of
//! dependencies. The rules are in `deny.toml`; this only finds the tool that
//! reads them and says how to get it when it is missing.

use std::path::Path;
use std::process::Stdio;

use crate::root;
use crate::stop::{self, Stop};

pub(crate) fn run(root: &Path, args: &[String]) -> Result<(), Stop> {
    stop::no_arguments("deny", args)?;
    if !installed(root) {
        println!("cargo-deny is not installed; get it with: cargo install --locked cargo-deny");
        return Err(Stop::Failed);
    }
    let status = root::cargo(root, &["deny", "check"]).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(Stop::Failed),
        Err(error) => Err(Stop::Error(format!("cargo deny: {error}"))),
    }
}

fn installed(root: &Path) -> bool {
    let mut command = root::cargo(root, &["deny", "--version"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
