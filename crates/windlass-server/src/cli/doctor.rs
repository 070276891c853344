//! `windlass doctor`: looks at everything that is often wrong and says so in one
//! line each, with a hint. It only looks: nothing is changed, and one bad check
//! does not keep the others from being made.

use super::client::{Answer, Call, Client};
use super::failure::{Exit, Failure};
use super::fields::{self, clean, text};
use super::global::{Format, Global};
use super::output::{Out, Tone};
use super::times;
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
    let mut findings = configuration();
    findings.extend(server(global).await);
    findings.push(disk());
    findings.push(files(getrlimit(Resource::Nofile).current));
    show(&out, &findings)?;
    let failed = findings.iter().any(|finding| finding.health == Health::Fail);
    Ok(if failed { Exit::Failed } else { Exit::Ok })
}

/// What the configuration files say is looked at by their own reader.
fn configuration() -> Vec<Finding> {
    Vec::new()
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
    findings.push(version(&client, &ready.body).await);
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

/// The parts of `/readyz?verbose`: `{"status","parts":{NAME:{"status",...}}}`, or
/// text with a line per part.
fn parts(body: &Value) -> Vec<Finding> {
    if let Some(text) = body.as_str() {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        return lines.map(|line| part("ready", line, "")).collect();
    }
    let parts = ["parts", "checks"].iter().map(|key| fields::at(body, key));
    match parts.into_iter().find(|parts| !parts.is_null()) {
        Some(Value::Object(parts)) => parts
            .iter()
            .map(|(name, value)| match value.as_str() {
                Some(status) => part(name, status, ""),
                None => part(name, text(value, "status"), said(value)),
            })
            .collect(),
        Some(Value::Array(parts)) => {
            parts.iter().map(|p| part(text(p, "name"), text(p, "status"), said(p))).collect()
        }
        _ => vec![part("ready", text(body, "status"), "")],
    }
}

fn said(part: &Value) -> &str {
    let keys = ["detail", "message", "reason", "error"];
    keys.iter().map(|key| text(part, key)).find(|said| !said.is_empty()).unwrap_or("")
}

fn part(name: &str, status: &str, said: &str) -> Finding {
    let words = status.to_ascii_lowercase();
    let has = |list: &[&str]| list.iter().any(|word| words.contains(word));
    let health = match () {
        () if has(&["degraded", "warn"]) => Health::Warn,
        () if has(&["fail", "error", "unavailable", "not ready", "down"]) => Health::Fail,
        () => Health::Ok,
    };
    let message = clean(format!("{status} {said}").trim());
    let hint = if health == Health::Ok { "" } else { "the server's log says more" };
    Finding::new(health, &clean(name), message, hint)
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

/// The server tells its version in `/readyz?verbose`, or its nodes do.
async fn version(client: &Client, ready: &Value) -> Finding {
    let mut theirs = text(ready, "version").to_owned();
    if theirs.is_empty() {
        let nodes = client.body(Call::get(&["v1", "nodes"])).await.unwrap_or_default();
        theirs = fields::items(&nodes)
            .first()
            .map(|n| text(n, "version").to_owned())
            .unwrap_or_default();
    }
    compare_versions(&theirs)
}

fn compare_versions(theirs: &str) -> Finding {
    if theirs == VERSION {
        return Finding::ok("version", format!("{VERSION}, the server's too"));
    }
    let theirs = if theirs.is_empty() { "unknown" } else { theirs };
    let message = format!("this is {VERSION}, the server's is {}", clean(theirs));
    Finding::new(Health::Warn, "version", message, "use the same version on both sides")
}

fn disk() -> Finding {
    let place = store_place();
    let folder = match place.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    match rustix::fs::statvfs(folder) {
        Ok(disk) => {
            let free = disk.f_bavail.saturating_mul(disk.f_frsize);
            disk_finding(&place.display().to_string(), free)
        }
        Err(e) => {
            let message = format!("cannot look at {}: {e}", folder.display());
            Finding::new(Health::Warn, "disk", message, "see whether the folder is there")
        }
    }
}

/// Where the SQLite file of a server on this machine would be.
fn store_place() -> PathBuf {
    let url = std::env::var("WINDLASS_STORE__URL").unwrap_or_default();
    if let Some(path) = url.strip_prefix("sqlite://") {
        return PathBuf::from(path.split('?').next().unwrap_or(path));
    }
    let dev = Path::new(".windlass");
    if dev.is_dir() { dev.join("windlass.db") } else { PathBuf::from("windlass.db") }
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
    fn parts_in_every_shape() {
        let object = json!({"status": "degraded", "parts": {"redis": {"status": "degraded", "detail": "away"}, "store": "ok"}});
        let list = json!({"checks": [{"name": "redis", "status": "degraded", "message": "away"}, {"name": "store", "status": "ok"}]});
        for body in [object, list] {
            let found = parts(&body);
            assert_eq!(found.len(), 2);
            let redis = found.iter().find(|f| f.check == "redis").unwrap();
            assert_eq!((redis.health, redis.message.as_str()), (Health::Warn, "degraded away"));
            assert!(!redis.hint.is_empty());
            assert!(found.iter().any(|f| f.check == "store" && f.health == Health::Ok));
        }
        assert_eq!(parts(&json!("store ok\nredis failed"))[1].health, Health::Fail);
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
