//! `cargo xtask bench store|engine [options]`: builds and runs a benchmark with full
//! optimisation. The benchmark itself lives with the crate it measures; this
//! file only finds it and passes the words on.

use std::path::Path;

use crate::root;
use crate::stop::Stop;

/// Name, and the crate it lives in.
const BENCHES: &[(&str, &str)] = &[("store", "windlass-backends"), ("engine", "windlass")];

pub(crate) fn run(root: &Path, args: &[String]) -> Result<(), Stop> {
    let known: Vec<&str> = BENCHES.iter().map(|(name, _)| *name).collect();
    let usage = || Stop::Usage(format!("`cargo xtask bench` takes one of: {}", known.join(", ")));
    let (name, rest) = args.split_first().ok_or_else(usage)?;
    let (bench, package) = BENCHES.iter().find(|(known, _)| known == name).ok_or_else(usage)?;
    let mut cargo = root::cargo(root, &["bench", "--quiet", "-p", package, "--bench", bench, "--"]);
    match cargo.args(rest).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(Stop::Failed),
        Err(error) => Err(Stop::Error(format!("cargo bench: {error}"))),
    }
}
