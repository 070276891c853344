//! Processes of handlers that outlived their node: found by the mark in their
//! environment and ended before the store's tasks are taken over, so that an old
//! try never works beside the new one. The guard makes them rare. A node that
//! is alive keeps its processes, whoever starts beside it.

use super::host::{NODE, OWNER};
use super::processes::{is_alive, marked_groups, variable};
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long to wait for what was killed to be gone.
const GONE_WITHIN: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Ends what earlier nodes on this store left behind, waits until it is gone,
/// and says how many process groups that were. Other systems than Linux do not
/// say whose a process is: nothing is done there.
pub fn end_leftovers(owner: &str) -> io::Result<usize> {
    let until = Instant::now() + GONE_WITHIN;
    let mut ended = BTreeSet::new();
    loop {
        let left = leftovers(owner)?;
        for (pid, group) in &left {
            if ended.insert(group.as_raw_pid()) {
                tracing::warn!(
                    pid,
                    group = group.as_raw_pid(),
                    "a process of a dead node is ended"
                );
            }
            // It may have gone by itself meanwhile.
            let _ = kill_process_group(*group, Signal::KILL);
        }
        if left.is_empty() {
            return Ok(ended.len());
        }
        if Instant::now() >= until {
            tracing::error!(processes = left.len(), "processes of a dead node do not end");
            return Ok(ended.len());
        }
        sleep(LOOK_EVERY);
    }
}

fn leftovers(owner: &str) -> io::Result<Vec<(i32, Pid)>> {
    marked_groups(|environ| {
        let node_lives = || variable(environ, NODE).is_some_and(|node| is_alive(&node));
        variable(environ, OWNER).as_deref() == Some(owner) && !node_lives()
    })
}

/// A name for everybody who uses this store: the same after a restart, whatever
/// folder it is started from. It shows nothing of the address, which may hold a
/// password.
pub fn owner_of(store_url: &str) -> String {
    let name = match store_url.split_once("://") {
        Some(("sqlite", path)) => format!("sqlite:{}", canonical(without_options(path)).display()),
        Some((scheme, rest)) => {
            let place = without_options(rest);
            format!("{scheme}:{}", place.rsplit_once('@').map_or(place, |(_, place)| place))
        }
        None => store_url.to_owned(),
    };
    blake3::hash(name.as_bytes()).to_hex()[..32].to_owned()
}

fn without_options(address: &str) -> &str {
    address.split(['?', '#']).next().unwrap_or(address)
}

/// The file itself may not be there yet.
fn canonical(path: &str) -> PathBuf {
    let path = Path::new(path);
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (path.canonicalize(), parent.canonicalize(), path.file_name()) {
        (Ok(whole), ..) => whole,
        (_, Ok(folder), Some(file)) => folder.join(file),
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_store_has_one_name() {
        let dir = tempfile::tempdir().expect("a folder");
        let url = |path: PathBuf| owner_of(&format!("sqlite://{}", path.display()));
        let before = url(dir.path().join("a.db"));
        std::fs::write(dir.path().join("a.db"), "").expect("written");
        std::fs::create_dir(dir.path().join("sub")).expect("made");
        assert_eq!(before, url(dir.path().join("a.db")), "before the file is there and after");
        assert_eq!(before, url(dir.path().join("sub/../a.db")));
        assert_ne!(before, url(dir.path().join("b.db")));
        assert_eq!(before.len(), 32);
    }

    #[test]
    fn passwords_do_not_matter() {
        let plain = owner_of("postgres://db:5432/app");
        assert_eq!(plain, owner_of("postgres://me:p%40ss@db:5432/app?sslmode=require"));
        assert_ne!(plain, owner_of("postgres://db:5432/other"));
        assert_ne!(plain, owner_of("mysql://db:5432/app"));
        assert_ne!(owner_of("memory:"), owner_of(""));
    }
}
