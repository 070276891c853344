//! Programs that tests start and that are not Rust. On a Debian machine what is
//! missing is installed; elsewhere the message says what to install. A test never
//! skips because of a missing program: it fails.

use crate::stop::Stop;
use std::process::{Command, Stdio};

/// A program and the Debian package that has it.
const NEEDED: [(&str, &str); 3] =
    [("python3", "python3"), ("node", "nodejs"), ("openssl", "openssl")];

/// Sees to it that all of them are there.
pub(crate) fn install_missing() -> Result<(), Stop> {
    let missing: Vec<_> = NEEDED.iter().filter(|(program, _)| !is_there(program)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
    println!("installing {}", packages.join(", "));
    if apt_install(&packages) && missing.iter().all(|(program, _)| is_there(program)) {
        return Ok(());
    }
    let names: Vec<&str> = missing.iter().map(|(program, _)| *program).collect();
    Err(Stop::Error(format!("the tests need {}; install them first", names.join(", "))))
}

fn is_there(program: &str) -> bool {
    let mut command = Command::new(program);
    let word = if program == "openssl" { "version" } else { "--version" };
    command.arg(word).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

pub(crate) fn apt_install(packages: &[&str]) -> bool {
    let apt = |words: &[&str]| {
        let done = Command::new("apt-get").args(words).stdout(Stdio::null()).status();
        done.is_ok_and(|status| status.success())
    };
    apt(&["update", "-qq"]) && apt(&[&["install", "-y", "-qq"], packages].concat())
}
