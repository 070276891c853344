//! Processes that left the group of their try by making a session of their own.
//! They are found by the marks in their environment, and only when a try was
//! ended by us: then another may follow at once and must not work beside them.
//! What a program leaves behind after it ended by itself is its own affair.

use super::host::OWNER;
use super::processes::{environments, variable};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Together they name one claim of one task: steps of it do not run side by side.
const MARKS: [&str; 3] = [OWNER, "WINDLASS_TASK_ID", "WINDLASS_FENCING_TOKEN"];
/// How long to wait for what was killed to be gone.
const GONE_WITHIN: Duration = Duration::from_millis(200);
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Ends what is left of the try that had this environment.
pub(crate) async fn end_strays(environment: &BTreeMap<String, OsString>) {
    let mark = |name| Some((name, environment.get(name)?.to_str()?.to_owned()));
    let Some(marks) = MARKS.into_iter().map(mark).collect::<Option<Vec<_>>>() else { return };
    // Reading about all processes takes a while where there are many.
    let looked = tokio::task::spawn_blocking(move || end_marked(&marks)).await;
    match looked {
        Ok(0) => {}
        Ok(ended) => tracing::warn!(ended, "processes outside of their group were ended"),
        Err(error) => tracing::error!(%error, "could not look for processes that were left"),
    }
}

fn end_marked(marks: &[(&str, String)]) -> usize {
    let until = Instant::now() + GONE_WITHIN;
    let mut ended = 0;
    loop {
        let left = marked(marks);
        ended = ended.max(left.len());
        if left.is_empty() || Instant::now() >= until {
            return ended;
        }
        for pid in left {
            // It may have gone by itself meanwhile.
            let _ = kill_process(pid, Signal::KILL);
        }
        sleep(LOOK_EVERY);
    }
}

fn marked(marks: &[(&str, String)]) -> Vec<Pid> {
    let is_ours = |environ: &[u8]| {
        marks.iter().all(|(name, value)| variable(environ, name).as_ref() == Some(value))
    };
    let all = environments().unwrap_or_default().into_iter();
    all.filter(|(_, environ)| is_ours(environ)).filter_map(|(pid, _)| Pid::from_raw(pid)).collect()
}
