//! What Linux says about this process: CPU time and peak memory. It reads
//! `/proc` and nothing else.

use std::fs::read_to_string;

/// Length of one tick of `/proc/self/stat`; Linux fixes it for programs.
const TICK: f64 = 0.01;

/// Seconds of CPU, user and system, of all threads so far.
pub(crate) fn cpu() -> f64 {
    let stat = read_to_string("/proc/self/stat").expect("Linux");
    // The name in parentheses may hold blanks; state is the first field after it.
    let (_, fields) = stat.rsplit_once(')').expect("a name");
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = |i: usize| fields[i].parse::<f64>().expect("ticks");
    (ticks(11) + ticks(12)) * TICK
}

/// Peak of resident memory so far, in MB.
pub(crate) fn peak_memory() -> f64 {
    let status = read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    let kib = line.trim().trim_end_matches("kB").trim().parse::<f64>().expect("a number");
    kib / 1024.0
}
