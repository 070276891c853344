//! What the system says about processes. On Linux it is read from `/proc`; where
//! that is missing nothing is known, and callers go on without. This file ends
//! nothing.

use rustix::process::{Pid, getpgrp};
use std::fs;
use std::path::Path;

/// Some facts about one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Facts {
    /// It has ended and waits to be reaped.
    pub(crate) is_over: bool,
    pub(crate) group: i32,
    /// In ticks since the boot: two processes with the same id differ here.
    pub(crate) started: u64,
}

/// `None`: there is no such process, or it cannot be seen.
pub(crate) fn facts(pid: i32) -> Option<Facts> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    read_stat(&stat)
}

/// The name of the program comes second and may hold anything, a `)` too, so
/// fields are counted from the last one.
fn read_stat(stat: &str) -> Option<Facts> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let is_over = matches!(fields.next()?, "Z" | "X");
    let group = fields.nth(1)?.parse().ok()?;
    let started = fields.nth(16)?.parse().ok()?;
    Some(Facts { is_over, group, started })
}

/// The name of a running process for good: its number is used again, this is not.
pub(crate) fn name_of(pid: i32) -> Option<String> {
    facts(pid).map(|facts| format!("{pid}:{}", facts.started))
}

/// Whether the process with this name still runs; what follows the name after
/// another colon is not looked at.
pub(crate) fn is_alive(name: &str) -> bool {
    let mut parts = name.split(':');
    let pid = parts.next().and_then(|pid| pid.parse().ok());
    let started = parts.next().and_then(|started| started.parse().ok());
    pid.and_then(facts).is_some_and(|now| !now.is_over && Some(now.started) == started)
}

/// A variable of a process's environment, as it was when the program began.
pub(crate) fn variable(environ: &[u8], name: &str) -> Option<String> {
    let of = |entry: &[u8]| {
        let value = entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        Some(String::from_utf8_lossy(value).into_owned())
    };
    environ.split(|byte| *byte == 0).find_map(of)
}

/// All processes that can be seen, with their environments. One that ended, or
/// belongs to somebody else, has none.
pub(crate) fn environments() -> std::io::Result<Vec<(i32, Vec<u8>)>> {
    if !Path::new("/proc/self/environ").exists() {
        return Ok(vec![]);
    }
    let pids = fs::read_dir("/proc")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    Ok(pids.filter_map(|pid| Some((pid, fs::read(format!("/proc/{pid}/environ")).ok()?))).collect())
}

/// Processes with such an environment and their groups; never this one's own. A
/// server that a handler started carries marks itself.
pub(crate) fn marked_groups(is_wanted: impl Fn(&[u8]) -> bool) -> std::io::Result<Vec<(i32, Pid)>> {
    let (me, mine) = (std::process::id(), getpgrp());
    let others = environments()?.into_iter().filter(|(pid, _)| u32::try_from(*pid) != Ok(me));
    let wanted = others.filter(|(_, environ)| is_wanted(environ));
    // Read last: a moment ago the number still was the marked process's.
    let group = |pid: i32| Pid::from_raw(facts(pid)?.group).filter(|group| *group != mine);
    Ok(wanted.filter_map(|(pid, _)| Some((pid, group(pid)?))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_is_no_field() {
        let stat = "42 (a) b (c) S 1 77 5 0 -1 4 1 2 3 4 5 6 7 8 20 0 1 0 9001 1 2";
        assert_eq!(read_stat(stat), Some(Facts { is_over: false, group: 77, started: 9001 }));
        assert!(read_stat(&stat.replace(" S ", " Z ")).is_some_and(|facts| facts.is_over));
        assert_eq!(read_stat("42 (a"), None);
    }

    #[test]
    fn a_variable_is_found_by_its_whole_name() {
        let environ = b"XA=1\0A=2=3\0AB=4\0";
        assert_eq!(variable(environ, "A").as_deref(), Some("2=3"));
        assert_eq!(variable(environ, "B"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_is_alive_under_its_name_only() {
        let pid = i32::try_from(std::process::id()).expect("a pid");
        let name = name_of(pid).expect("seen");
        assert!(is_alive(&name) && is_alive(&format!("{name}:7")));
        assert!(!is_alive(&format!("{pid}:1")) && !is_alive("") && !is_alive("x:y"));
    }
}
