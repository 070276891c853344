//! `windlass doctor`: looks at everything that is often wrong and says so in one
//! line each, with a hint. It only looks: nothing is changed, and one bad check
//! does not keep the others from being made.

use super::client::{Answer, Call, Client};
use super::failure::{Exit, Failure};
use super::fields::{self, clean, text};
use super::global::{Format, Global};
use super::output::{Out, Tone};
use super::times;
use crate::config::{ConfigError, FileFlags, Loaded, Origin, Problem, Surroundings, load};
use rustix::process::{Resource, getrlimit};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;
use windlass_core::clock::Timestamp;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Below these a node gets into trouble.
const FILES_MIN: u64 = 1_024;
const DISK_FAIL: u64 = 100 * 1024 * 1024;
const DISK_WARN: u64 = 1024 * 1024 * 1024;
/// Mistakes of the configuration that are told one by one.
const PROBLEMS_TOLD: usize = 5;
const SKEW_MAX: Duration = Duration::from_secs(5);

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    Ok,
    Warn,
    Fail,
}

impl Health {
    fn word(self) -> &'static str {
        match self {
            Health::Ok => "ok",
            Health::Warn => "warn",
            Health::Fail => "fail",
        }
    }

    fn tone(self) -> Tone {
        match self {
            Health::Ok => Tone::Good,
            Health::Warn => Tone::Held,
            Health::Fail => Tone::Bad,
        }
    }
}

/// One line of the doctor. A check that is not ok has a hint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub health: Health,
    pub check: String,
    pub message: String,
    pub hint: String,
}

impl Finding {
    pub fn ok(check: &str, message: impl Into<String>) -> Self {
        Finding::new(Health::Ok, check, message, "")
    }

    pub fn new(
        health: Health,
        check: &str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Finding { health, check: check.to_owned(), message: message.into(), hint: hint.into() }
    }
}

pub(crate) async fn run(global: &Global) -> Result<Exit, Failure> {
    let out = Out::new(global);
    let around = Surroundings::of_process();
    let loaded = load(&FileFlags::default(), &around);
    let mut findings = configuration(&around.files(), &loaded);
    findings.extend(server(global).await);
    findings.extend(loaded.iter().filter_map(disk));
    findings.push(files(getrlimit(Resource::Nofile).current));
    show(&out, &findings)?;
    let failed = findings.iter().any(|finding| finding.health == Health::Fail);
    Ok(if failed { Exit::Failed } else { Exit::Ok })
}

/// The files that were read, and what their own reader says of them.
fn configuration(files: &[PathBuf], loaded: &Result<Loaded, ConfigError>) -> Vec<Finding> {
    const CHECK: &str = "configuration";
    let finding = |health, problem: &Problem| {
        let place = match &problem.at {
            Origin::Default => String::new(),
            place => format!("{place}: "),
        };
        Finding::new(health, CHECK, format!("{place}{}", problem.message), &problem.hint)
    };
    match loaded {
        Ok(loaded) => {
            let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
            let message = match names.as_slice() {
                [] => "no file, the defaults hold".to_owned(),
                names => format!("{} valid", names.join(" and ")),
            };
            let warnings = loaded.warnings.iter().map(|warning| finding(Health::Warn, warning));
            std::iter::once(Finding::ok(CHECK, message)).chain(warnings).collect()
        }
        Err(error) => {
            let told = error.problems.iter().take(PROBLEMS_TOLD);
            let mut findings: Vec<Finding> = told.map(|p| finding(Health::Fail, p)).collect();
            let more = error.problems.len().saturating_sub(PROBLEMS_TOLD);
            if more > 0 {
                let message = format!("and {more} more");
                let hint = "`windlass config check` tells all of them";
                findings.push(Finding::new(Health::Fail, CHECK, message, hint));
            }
            findings
        }
    }
}

async fn server(global: &Global) -> Vec<Finding> {
    let client = match Client::new(global) {
        Ok(client) => client,
        Err(f) => return vec![Finding::new(Health::Fail, "server", f.message, f.hint)],
    };
    let ready = match client.look(&Call::get(&["readyz"]).query("verbose", "")).await {
        Ok(answer) => answer,
        Err(f) => return vec![Finding::new(Health::Fail, "server", f.message, f.hint)],
    };
    let mut findings = vec![Finding::ok("server", format!("{} answers", client.server()))];
    findings.extend(readiness(ready.status));
    findings.extend(parts(&ready.body));
    findings.extend(clock(&ready, times::now()));
    findings.push(version(&client).await);
    findings
}

fn readiness(status: u16) -> Option<Finding> {
    let message = format!("the server answers {status} to /readyz");
    let hint = match status {
        200..300 => return None,
        404 => "see whether --server is a Windlass server",
        _ => "the lines below say which part is missing; the server's log says why",
    };
    Some(Finding::new(Health::Fail, "ready", message, hint))
}

/// The parts of `/readyz?verbose`: `{"ready","parts":[{"name","state","detail"}]}`.
fn parts(body: &Value) -> Vec<Finding> {
    fields::items(fields::at(body, "parts")).iter().map(part).collect()
}

fn part(part: &Value) -> Finding {
    let (name, said) = (clean(text(part, "name")), clean(text(part, "detail")));
    let (health, state) = match text(part, "state") {
        "ok" => return Finding::ok(&name, said),
        "degraded" => (Health::Warn, "degraded"),
        _ => (Health::Fail, "failed"),
    };
    let hint = match (name.as_str(), health) {
        ("node", Health::Warn) => "`windlass node resume NODE` ends a pause or a drain",
        _ => "the server's log says more",
    };
    Finding::new(health, &name, format!("{state}: {said}"), hint)
}

fn clock(answer: &Answer, now: Timestamp) -> Option<Finding> {
    let theirs = times::http_date(answer.header("date")?)?;
    // The header has whole seconds, and the answer took some time.
    let skew = theirs.since(now).max(now.since(theirs));
    if skew <= SKEW_MAX {
        return Some(Finding::ok("clock", "agrees with the server's"));
    }
    let message = format!("differs from the server's by {}", times::rough(skew));
    Some(Finding::new(Health::Warn, "clock", message, "set both clocks by NTP"))
}

/// The nodes tell the server's version.
async fn version(client: &Client) -> Finding {
    let nodes = client.body(Call::get(&["v1", "nodes"])).await.unwrap_or_default();
    compare_versions(fields::items(&nodes).first().map_or("", |node| text(node, "version")))
}

fn compare_versions(theirs: &str) -> Finding {
    if theirs == VERSION {
        return Finding::ok("version", format!("{VERSION}, the server's too"));
    }
    let theirs = if theirs.is_empty() { "unknown" } else { theirs };
    let message = format!("this is {VERSION}, the server's is {}", clean(theirs));
    Finding::new(Health::Warn, "version", message, "use the same version on both sides")
}

/// Room for the file of a server on this machine; other stores have their own.
fn disk(loaded: &Loaded) -> Option<Finding> {
    let url = &loaded.config.store.url;
    let path = url.expose().strip_prefix("sqlite://")?;
    let mut place = PathBuf::from(path.split('?').next().unwrap_or(path));
    let mut shown = url.to_string();
    let dev = Path::new(".windlass");
    if loaded.origin(&["store", "url"]) == Origin::Default && dev.is_dir() {
        place = dev.join("windlass.db");
        shown = place.display().to_string();
    }
    let folder = match place.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    Some(match rustix::fs::statvfs(folder) {
        Ok(disk) => disk_finding(&shown, disk.f_bavail.saturating_mul(disk.f_frsize)),
        Err(e) => {
            let message = format!("cannot look at the folder of {shown}: {e}");
            Finding::new(Health::Warn, "disk", message, "see whether the folder is there")
        }
    })
}

fn disk_finding(place: &str, free: u64) -> Finding {
    let message = format!("{} MiB free for {place}", free / (1024 * 1024));
    let hint = "make room: a store that cannot write runs no tasks";
    match free {
        _ if free < DISK_FAIL => Finding::new(Health::Fail, "disk", message, hint),
        _ if free < DISK_WARN => Finding::new(Health::Warn, "disk", message, hint),
        _ => Finding::ok("disk", message),
    }
}

/// `None`: there is no limit.
fn files(limit: Option<u64>) -> Finding {
    match limit {
        Some(limit) if limit < FILES_MIN => {
            let hint = format!("raise it with `ulimit -n {FILES_MIN}` or more");
            Finding::new(Health::Warn, "open files", format!("the limit is {limit}"), hint)
        }
        Some(limit) => Finding::ok("open files", format!("the limit is {limit}")),
        None => Finding::ok("open files", "no limit"),
    }
}

fn show(out: &Out, findings: &[Finding]) -> Result<(), Failure> {
    let documents = findings.iter().map(|f| {
        json!({"status": f.health.word(), "check": f.check, "message": f.message, "hint": f.hint})
    });
    match out.format {
        Format::Json => return out.json(&Value::Array(documents.collect())),
        Format::Jsonl => return documents.into_iter().try_for_each(|document| out.json(&document)),
        Format::Table | Format::Id => {}
    }
    for finding in findings {
        let word = out.paint(&format!("{:<4}", finding.health.word()), finding.health.tone());
        out.line(&format!("{word}  {}: {}", finding.check, finding.message))?;
        if !finding.hint.is_empty() {
            out.line(&format!("      hint: {}", finding.hint))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_server() {
        let body = json!({"ready": false, "parts": [
            {"name": "store", "state": "failed", "detail": "it does not answer"},
            {"name": "node", "state": "degraded", "detail": "draining"},
            {"name": "api", "state": "ok", "detail": "here"},
        ]});
        let found = parts(&body);
        let health: Vec<Health> = found.iter().map(|f| f.health).collect();
        assert_eq!(health, [Health::Fail, Health::Warn, Health::Ok]);
        assert_eq!(found[0].message, "failed: it does not answer");
        assert!(found.iter().all(|f| f.health == Health::Ok || !f.hint.is_empty()));
        assert!(parts(&json!("not JSON")).is_empty());
    }

    fn around(dir: &Path) -> Surroundings {
        Surroundings { dir: dir.to_owned(), ..Surroundings::default() }
    }

    #[test]
    fn files_and_their_mistakes() {
        let folder = tempfile::tempdir().unwrap();
        let around = around(folder.path());
        let look = || configuration(&around.files(), &load(&FileFlags::default(), &around));
        assert_eq!(look(), [Finding::ok("configuration", "no file, the defaults hold")]);
        let file = folder.path().join("windlass.toml");
        std::fs::write(&file, "[store]\nurl = \"memory:\"\n").unwrap();
        let found = look();
        assert_eq!(found[0].health, Health::Ok, "{found:?}");
        assert!(found[0].message.ends_with("windlass.toml valid"), "{found:?}");
        let wrong: String = (0..PROBLEMS_TOLD + 2).map(|n| format!("[node{n}]\n")).collect();
        std::fs::write(&file, wrong).unwrap();
        let found = look();
        assert_eq!(found.len(), PROBLEMS_TOLD + 1);
        assert!(found.iter().all(|f| f.health == Health::Fail && !f.hint.is_empty()), "{found:?}");
        assert!(found[0].message.starts_with("windlass.toml:1:"), "{found:?}");
        assert_eq!(found[PROBLEMS_TOLD].message, "and 2 more");
    }

    #[test]
    fn only_files_need_room() {
        let folder = tempfile::tempdir().unwrap();
        let disk_of = |url: &str| {
            let flags = FileFlags { store: Some(url.to_owned()), ..FileFlags::default() };
            disk(&load(&flags, &around(folder.path())).unwrap())
        };
        assert!(disk_of("memory:").is_none());
        let here = format!("sqlite://{}/x.db", folder.path().display());
        assert_ne!(disk_of(&here).unwrap().message, disk_of("sqlite://no/x.db").unwrap().message);
        assert_eq!(disk_of("sqlite://no/such/x.db").unwrap().health, Health::Warn);
    }

    #[test]
    fn limits() {
        assert_eq!(disk_finding("x", 1).health, Health::Fail);
        assert_eq!(disk_finding("x", DISK_FAIL).health, Health::Warn);
        assert_eq!(disk_finding("x", DISK_WARN).health, Health::Ok);
        assert_eq!(files(Some(100)).health, Health::Warn);
        assert_eq!(files(None).health, Health::Ok);
        assert_eq!(compare_versions(VERSION).health, Health::Ok);
        assert_eq!(compare_versions("0.0.1").health, Health::Warn);
    }
}
