//! Where the code of test tasks says what it does, and waits to be let go. The
//! test reads the log, waits until it says something, and sees how many ran at
//! once, by kind and by queue. Nothing here knows an engine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::watch;
use windlass::core::task::Task;

/// Everything that was seen, in order.
#[derive(Debug, Default, Clone)]
pub(crate) struct Log {
    pub(crate) began: Vec<String>,
    /// Step bodies that ran.
    pub(crate) steps: Vec<(String, u32)>,
    /// Code that is gone, finished or not.
    pub(crate) gone: Vec<String>,
    pub(crate) finished: Vec<String>,
    /// How many run now, and the most there ever were, by `queue:..`, `kind:..`
    /// and `all`.
    pub(crate) running: BTreeMap<String, usize>,
    pub(crate) most: BTreeMap<String, usize>,
    let_go: BTreeSet<String>,
    all_let_go: bool,
}

impl Log {
    pub(crate) fn running(&self, what: &str) -> usize {
        self.running.get(what).copied().unwrap_or(0)
    }

    pub(crate) fn most(&self, what: &str) -> usize {
        self.most.get(what).copied().unwrap_or(0)
    }

    pub(crate) fn has_begun(&self, name: &str) -> bool {
        self.began.iter().any(|n| n == name)
    }

    pub(crate) fn times_begun(&self, name: &str) -> usize {
        self.began.iter().filter(|n| *n == name).count()
    }

    /// How often the body of this step ran.
    pub(crate) fn tries(&self, name: &str, step: u32) -> usize {
        self.steps.iter().filter(|(n, s)| n == name && *s == step).count()
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Floor {
    log: Arc<watch::Sender<Log>>,
}

impl Default for Floor {
    fn default() -> Self {
        Floor { log: Arc::new(watch::Sender::new(Log::default())) }
    }
}

impl Floor {
    pub(crate) fn log(&self) -> Log {
        self.log.borrow().clone()
    }

    /// Waits until the log says so.
    pub(crate) async fn until(&self, so: impl FnMut(&Log) -> bool) -> Log {
        let mut log = self.log.subscribe();
        log.wait_for(so).await.expect("the floor stays").clone()
    }

    pub(crate) async fn until_begun(&self, name: &str) {
        self.until(|log| log.has_begun(name)).await;
    }

    pub(crate) async fn until_running(&self, what: &str, n: usize) {
        self.until(|log| log.running(what) == n).await;
    }

    /// This task need not wait any more.
    pub(crate) fn open(&self, name: &str) {
        self.log.send_modify(|log| {
            log.let_go.insert(name.to_owned());
        });
    }

    /// Nobody need wait any more.
    pub(crate) fn open_all(&self) {
        self.log.send_modify(|log| log.all_let_go = true);
    }

    // For the code of tasks.

    pub(crate) async fn let_go(&self, name: &str) {
        self.until(|log| log.all_let_go || log.let_go.contains(name)).await;
    }

    pub(crate) fn stepped(&self, name: &str, step: u32) {
        self.log.send_modify(|log| log.steps.push((name.to_owned(), step)));
    }

    pub(crate) fn enter(&self, name: &str, task: &Task) -> Place {
        let counted =
            [format!("queue:{}", task.queue), format!("kind:{}", task.kind), "all".to_owned()];
        self.log.send_modify(|log| {
            log.began.push(name.to_owned());
            for what in &counted {
                let now = log.running.entry(what.clone()).or_default();
                *now += 1;
                let most = log.most.entry(what.clone()).or_default();
                *most = (*most).max(*now);
            }
        });
        Place { floor: self.clone(), name: name.to_owned(), counted }
    }
}

/// One running code; leaves the floor when it is dropped.
pub(crate) struct Place {
    floor: Floor,
    name: String,
    counted: [String; 3],
}

impl Place {
    pub(crate) fn finish(&self) {
        self.floor.log.send_modify(|log| log.finished.push(self.name.clone()));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.floor.log.send_modify(|log| {
            log.gone.push(self.name.clone());
            for what in &self.counted {
                if let Some(n) = log.running.get_mut(what) {
                    *n -= 1;
                }
            }
        });
    }
}
