//! `cargo xtask slow [--connections N] [--seconds S]`: what slow connections cost
//! other clients, measured against a real server process with full optimisation.
//! The measurement lives with the server's tests; this file reads how long it
//! shall be and passes it on.

use std::path::Path;

use crate::root;
use crate::stop::Stop;

/// What the issue tracker asks for.
const CONNECTIONS: u64 = 2000;
const SECONDS: u64 = 60;
const USAGE: &str = "`cargo xtask slow` takes --connections N and --seconds S, each at least 1";

const PROGRAM: &[&str] = &[
    "test",
    "--release",
    "-p",
    "windlass-server",
    "--test",
    "strangers",
    "--",
    "--nocapture",
    "measure::",
];

pub(crate) fn run(root: &Path, args: &[String]) -> Result<(), Stop> {
    let (connections, seconds) = read(args)?;
    let mut command = root::cargo(root, PROGRAM);
    command.env("WINDLASS_TEST_SLOW", connections.to_string());
    command.env("WINDLASS_TEST_SLOW_SECONDS", seconds.to_string());
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(Stop::Failed),
        Err(error) => Err(Stop::Error(format!("cargo test: {error}"))),
    }
}

fn read(args: &[String]) -> Result<(u64, u64), Stop> {
    let usage = || Stop::Usage(USAGE.to_owned());
    let (mut connections, mut seconds) = (CONNECTIONS, SECONDS);
    for pair in args.chunks(2) {
        let [name, number] = pair else { return Err(usage()) };
        let number = number.parse().ok().filter(|n| *n > 0).ok_or_else(usage)?;
        match name.as_str() {
            "--connections" => connections = number,
            "--seconds" => seconds = number,
            _ => return Err(usage()),
        }
    }
    Ok((connections, seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read() {
        let args = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert!(matches!(read(&[]), Ok((CONNECTIONS, SECONDS))));
        assert!(matches!(read(&args("--seconds 5 --connections 7")), Ok((7, 5))));
        assert!(matches!(read(&args("--seconds 0")), Err(Stop::Usage(_))));
    }
}
