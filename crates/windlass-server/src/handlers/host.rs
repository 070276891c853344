//! What all `exec` handlers of a node share: the guard that ends their processes
//! with the node, and the mark by which the next start knows them. It starts
//! before the engine and lives as long as any process.

use super::guard::Guard;
use super::processes::name_of;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Whose handler a process is; see [`super::end_leftovers`].
pub(crate) const OWNER: &str = "WINDLASS_OWNER";
/// The process of the node that started it, and which of its hosts.
pub(crate) const NODE: &str = "WINDLASS_NODE_PROCESS";

/// One per node, shared by its [`super::ExecHandler`]s.
#[derive(Debug)]
pub struct ExecHost {
    pub(crate) guard: Guard,
    owner: String,
    node: Option<String>,
}

impl ExecHost {
    /// Starts the guard: `guard_argv` is a program that calls
    /// [`super::guard::main`]. `owner` is the store's, by [`super::owner_of`].
    pub fn start(guard_argv: Vec<String>, owner: String) -> io::Result<Arc<ExecHost>> {
        static HOSTS: AtomicU32 = AtomicU32::new(0);
        let process = i32::try_from(std::process::id()).ok().and_then(name_of);
        // The guard of one host must not end what belongs to another.
        let node = process.map(|name| format!("{name}:{}", HOSTS.fetch_add(1, Ordering::Relaxed)));
        let guard = Guard::start(guard_argv, node.clone())?;
        Ok(Arc::new(ExecHost { guard, owner, node }))
    }

    /// What marks a process as this node's.
    pub(crate) fn marks(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let node = self.node.as_deref().map(|node| (NODE, node));
        [(OWNER, self.owner.as_str())].into_iter().chain(node)
    }
}
