//! What the system says about a process: CPU time, memory, open files. It reads
//! `/proc` and asks the kernel; it knows nothing of what is measured.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use windlass::{Error, Result};

/// Files a process needs beside its connections: the store, the runtime, pipes.
const OTHER_FILES: u64 = 100;

/// Seconds of CPU of this process so far: user and system, all threads.
pub(super) fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Resident memory now, in MB.
pub(super) fn memory() -> Result<f64> {
    status("VmRSS:")
}

/// The most it ever was, in MB.
pub(super) fn memory_peak() -> Result<f64> {
    status("VmHWM:")
}

fn status(field: &str) -> Result<f64> {
    let unreadable = || Error::invalid("bench", format!("/proc/self/status has no {field}"));
    let text = std::fs::read_to_string("/proc/self/status").map_err(|e| unreadable().because(e))?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)).ok_or_else(unreadable)?;
    let kib = line.trim().trim_end_matches("kB").trim().parse::<f64>();
    Ok(kib.map_err(|e| unreadable().because(e))? / 1024.0)
}

/// How many of `wanted` connections this process may have open. The limit is
/// raised as far as it may be; children inherit it.
pub(super) fn room_for(wanted: u64) -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let needed = wanted + OTHER_FILES;
    let mut limit = current.unwrap_or(u64::MAX);
    if limit < needed {
        let raised = maximum.map_or(needed, |most| most.min(needed));
        if setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum }).is_ok() {
            limit = raised;
        }
    }
    wanted.min(limit.saturating_sub(OTHER_FILES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_can_be_looked_at() {
        let (now, peak) = (memory().unwrap(), memory_peak().unwrap());
        assert!(0.0 < now && now <= peak, "{now} {peak}");
        assert!(cpu() > 0.0);
        assert_eq!(room_for(10), 10);
        assert!(room_for(1 << 40) < 1 << 40);
    }
}
