//! `cargo xtask fuzz [--cases N] [--seed S]`: random requests made from the
//! server's own OpenAPI document, by schemathesis, against a real server
//! process. No answer may be a server error or differ from what the document
//! says. The tool is installed into a folder of its own under the target
//! folder; a short form is part of `cargo xtask test`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::programs::apt_install;
use crate::root;
use crate::stop::Stop;

/// The tool and all it needs, as `pip freeze` says.
const REQUIREMENTS: &str = include_str!("../fuzz-requirements.txt");
/// Networks have bad moments.
const INSTALLS: usize = 3;
const BETWEEN_INSTALLS: Duration = Duration::from_secs(5);
/// What the issue tracker calls a run by hand.
const CASES: u64 = 20_000;
/// Enough to meet every address with right and wrong requests.
const SHORT: u64 = 1;
const USAGE: &str = "`cargo xtask fuzz` takes --cases N (at least 1) and --seed S";
/// Random data seldom fits together, so a refusal of data that looks right is
/// no finding. There is no sign-in yet to look at.
const NOT_CHECKED: &str = "positive_data_acceptance,ignored_auth,object_level_authorization";
/// Requests per address and round, at the most.
const EXAMPLES: u64 = 100;

pub(crate) fn run(root: &Path, args: &[String]) -> Result<(), Stop> {
    let (cases, seed) = read(args)?;
    let done = fuzz(root, cases, EXAMPLES, seed)?;
    println!("fuzz: {done} cases, no finding, first seed {seed}");
    Ok(())
}

/// The form for `cargo xtask test`: one round, and how many cases it had.
pub(crate) fn short(root: &Path) -> Result<u64, Stop> {
    fuzz(root, SHORT, 5, 1)
}

fn read(args: &[String]) -> Result<(u64, u64), Stop> {
    let usage = || Stop::Usage(USAGE.to_owned());
    let (mut cases, mut seed) = (CASES, 1);
    for pair in args.chunks(2) {
        let [name, number] = pair else { return Err(usage()) };
        let number: u64 = number.parse().map_err(|_| usage())?;
        match name.as_str() {
            "--cases" if number > 0 => cases = number,
            "--seed" => seed = number,
            _ => return Err(usage()),
        }
    }
    Ok((cases, seed))
}

fn fuzz(root: &Path, cases: u64, examples: u64, seed: u64) -> Result<u64, Stop> {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let folder = target.join("fuzz");
    let tool = tool(root, &folder)?;
    let build = root::cargo(root, &["build", "--quiet", "-p", "windlass-server"]).status();
    if !build.is_ok_and(|status| status.success()) {
        return Err(Stop::Error("the server could not be built".to_owned()));
    }
    let server = Server::start(&target.join("debug/windlass"), &folder)?;
    let (mut done, mut round) = (0, 0);
    while done < cases {
        done += one_round(&tool, &server, examples, seed + round)?;
        round += 1;
        server.check()?;
    }
    Ok(done)
}

/// The program, installed on first use.
fn tool(root: &Path, folder: &Path) -> Result<PathBuf, Stop> {
    let venv = folder.join("venv");
    let tool = venv.join("bin/schemathesis");
    // What was installed, once all of it was.
    let mark = venv.join("installed.txt");
    let is_installed = std::fs::read_to_string(&mark).is_ok_and(|text| text == REQUIREMENTS);
    if is_installed && tool.exists() {
        return Ok(tool);
    }
    println!("installing the fuzzer");
    let made = venv_made(&venv) || (apt_install(&["python3", "python3-venv"]) && venv_made(&venv));
    if !made {
        let message = "`python3 -m venv` failed; install python3 and python3-venv";
        return Err(Stop::Error(message.to_owned()));
    }
    let list = root.join("xtask/fuzz-requirements.txt");
    let installed = (0..INSTALLS).any(|done| {
        if done > 0 {
            std::thread::sleep(BETWEEN_INSTALLS);
        }
        let mut pip = Command::new(venv.join("bin/pip"));
        pip.args(["install", "--quiet", "--requirement"]).arg(&list);
        pip.status().is_ok_and(|status| status.success())
    });
    if !installed {
        let message = format!("pip could not install {} in {INSTALLS} tries", list.display());
        return Err(Stop::Error(message));
    }
    std::fs::write(&mark, REQUIREMENTS)
        .map_err(|e| Stop::Error(format!("{}: {e}", mark.display())))?;
    Ok(tool)
}

fn venv_made(venv: &Path) -> bool {
    let made = Command::new("python3").arg("-m").arg("venv").arg(venv).status();
    made.is_ok_and(|status| status.success())
}

/// Runs the tool once and counts its cases.
fn one_round(tool: &Path, server: &Server, examples: u64, seed: u64) -> Result<u64, Stop> {
    let output = Command::new(tool)
        .args(["run", &format!("http://{}/v1/openapi.json", server.at), "--checks", "all"])
        .args(["--exclude-checks", NOT_CHECKED, "--warnings", "off", "--no-color"])
        .args(["--max-examples", &examples.to_string(), "--seed", &seed.to_string()])
        .args(["--request-timeout", "20", "--suppress-health-check", "all"])
        .current_dir(&server.folder)
        .output()
        .map_err(|e| Stop::Error(format!("{}: {e}", tool.display())))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        println!("{text}\n{}", String::from_utf8_lossy(&output.stderr));
        return Err(Stop::Error(format!("the fuzzer found something with seed {seed}")));
    }
    let count = cases_in(&text).filter(|n| *n > 0);
    count.ok_or_else(|| {
        Stop::Error(format!("the fuzzer did not say how many cases it ran:\n{text}"))
    })
}

/// `  1819 generated, …` below `Test cases:`.
fn cases_in(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.contains(" generated"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// A server process with its data, for the time of a run.
struct Server {
    child: Child,
    at: SocketAddr,
    folder: PathBuf,
}

impl Server {
    fn start(binary: &Path, folder: &Path) -> Result<Server, Stop> {
        let failed = |what: &str, e: &std::io::Error| Stop::Error(format!("{what}: {e}"));
        let folder = folder.join(format!("run-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|e| failed("a folder", &e))?;
        let log = std::fs::File::create(folder.join("log")).map_err(|e| failed("a log", &e))?;
        let free = TcpListener::bind("127.0.0.1:0").map_err(|e| failed("a port", &e))?;
        let at = free.local_addr().map_err(|e| failed("a port", &e))?;
        drop(free);
        let child = Command::new(binary)
            .args(["dev", "--data", "data", "--listen", &at.to_string()])
            // Random kinds are taken, so that more than the first check is met.
            .env("WINDLASS_SERVER__UNKNOWN_KINDS", "park")
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|e| failed("the server", &e))?;
        let server = Server { child, at, folder };
        let began = Instant::now();
        while server.check().is_err() {
            if began.elapsed() > Duration::from_secs(20) {
                return Err(Stop::Error(format!("no server at {at}:\n{}", server.log())));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// It is ready, and no handler panicked.
    fn check(&self) -> Result<(), Stop> {
        let ask = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(self.at)?;
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            stream.write_all(
                b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
            )?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            Ok(text)
        };
        match ask() {
            Ok(text) if text.starts_with("HTTP/1.1 200") && !self.log().contains("panicked") => {
                Ok(())
            }
            Ok(text) => Err(Stop::Error(format!("the server is not well: {text}\n{}", self.log()))),
            Err(e) => Err(Stop::Error(format!("the server does not answer: {e}\n{}", self.log()))),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_read() {
        assert_eq!(
            cases_in("Test cases:\n  1819 generated, 4 found 5 unique failures\n"),
            Some(1819)
        );
        assert_eq!(cases_in("nothing"), None);
    }
}
