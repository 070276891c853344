//! What the engine measures, through the `metrics` facade: without a recorder
//! it costs next to nothing, and this crate has no exporter. Handles are made
//! when they are first used and kept, so a recorder must be installed before
//! the engine starts. Gauges of what is in the store are not here: whoever
//! exports asks the store and [`crate::Engine::status`].

pub mod names;
mod pair;
mod store;

pub(crate) use pair::Pair;
pub(crate) use store::Metered;

use metrics::{Counter, counter, gauge};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use windlass_core::task::{Kind, NewTask, QueueName};

/// Most pairs of kind and queue with labels of their own: names come from
/// submitters, and a label for each would fill the memory of whoever scrapes.
const PAIRS_MAX: usize = 500;
/// Kind and queue of all other pairs.
const OTHER: &str = "other";

/// What is done with checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Checkpointing {
    Save,
    Resume,
    Discard,
}

impl Checkpointing {
    fn as_str(self) -> &'static str {
        match self {
            Checkpointing::Save => "save",
            Checkpointing::Resume => "resume",
            Checkpointing::Discard => "discard",
        }
    }
}

/// How it went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Went {
    Ok,
    Refused,
}

impl Went {
    fn as_str(self) -> &'static str {
        match self {
            Went::Ok => "ok",
            Went::Refused => "refused",
        }
    }
}

pub(crate) struct Meters {
    pairs: RwLock<Pairs>,
    other: Arc<Pair>,
    stale_writes: Counter,
    checkpoints: [[OnceLock<Counter>; 2]; 3],
}

#[derive(Default)]
struct Pairs {
    by_kind: HashMap<Kind, HashMap<QueueName, Arc<Pair>>>,
    known: usize,
}

impl Pairs {
    fn get(&self, kind: &Kind, queue: &QueueName) -> Option<&Arc<Pair>> {
        self.by_kind.get(kind)?.get(queue)
    }

    fn add(&mut self, kind: &Kind, queue: &QueueName) -> Arc<Pair> {
        self.known += 1;
        let pair = Arc::new(Pair::new(kind.as_str(), queue.as_str()));
        let queues = self.by_kind.entry(kind.clone()).or_default();
        queues.insert(queue.clone(), pair.clone());
        pair
    }
}

impl fmt::Debug for Meters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meters").field("pairs", &self.pairs.read().known).finish_non_exhaustive()
    }
}

impl Meters {
    /// The registered kinds have their places, whatever others submit. What they
    /// count is there from the beginning: a rate needs the zero before the one.
    pub(crate) fn new<'a>(served: impl Iterator<Item = (&'a Kind, &'a QueueName)>) -> Self {
        names::describe();
        gauge!(names::BUILD_INFO, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
        let mut pairs = Pairs::default();
        served.for_each(|(kind, queue)| pairs.add(kind, queue).begin());
        Meters {
            pairs: RwLock::new(pairs),
            other: Arc::new(Pair::new(OTHER, OTHER)),
            stale_writes: counter!(names::STALE_WRITES_REFUSED),
            checkpoints: [const { [const { OnceLock::new() }; 2] }; 3],
        }
    }

    pub(crate) fn pair(&self, kind: &Kind, queue: &QueueName) -> Arc<Pair> {
        if let Some(pair) = self.pairs.read().get(kind, queue) {
            return pair.clone();
        }
        let mut pairs = self.pairs.write();
        match pairs.get(kind, queue) {
            Some(pair) => pair.clone(),
            None if pairs.known >= PAIRS_MAX => self.other.clone(),
            None => pairs.add(kind, queue),
        }
    }

    /// The pair of each task; most batches are of one kind.
    pub(crate) fn pairs(&self, tasks: &[NewTask]) -> Vec<Arc<Pair>> {
        let mut pairs: Vec<Arc<Pair>> = Vec::with_capacity(tasks.len());
        for (i, task) in tasks.iter().enumerate() {
            let before = i.checked_sub(1).map(|i| &tasks[i]);
            let same = before.filter(|b| b.kind == task.kind && b.queue == task.queue);
            let pair = match (same, pairs.last()) {
                (Some(_), Some(last)) => last.clone(),
                _ => self.pair(&task.kind, &task.queue),
            };
            pairs.push(pair);
        }
        pairs
    }

    pub(crate) fn refused_stale(&self) {
        self.stale_writes.increment(1);
    }

    pub(crate) fn checkpoint(&self, what: Checkpointing, went: Went, times: usize) {
        if times == 0 {
            return;
        }
        let made = || {
            let labels = [("operation", what.as_str()), ("outcome", went.as_str())];
            counter!(names::CHECKPOINT_OPERATIONS, &labels)
        };
        let cell = &self.checkpoints[what as usize][went as usize];
        cell.get_or_init(made).increment(times as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(prefix: &str, i: usize) -> QueueName {
        QueueName::trusted(format!("{prefix}{i}"))
    }

    #[test]
    fn pairs_beyond_the_limit_share_one_and_registered_kinds_stay() {
        let (kind, queue) = (Kind::trusted("served"), QueueName::default());
        let meters = Meters::new([(&kind, &queue)].into_iter());
        for i in 0..2 * PAIRS_MAX {
            meters.pair(&Kind::trusted("spam"), &name("q", i));
        }
        let last = meters.pair(&Kind::trusted("spam"), &name("q", 2 * PAIRS_MAX));
        assert!(Arc::ptr_eq(&last, &meters.other));
        assert!(!Arc::ptr_eq(&meters.pair(&kind, &queue), &meters.other));
        assert_eq!(meters.pairs.read().known, PAIRS_MAX);
        let first = meters.pair(&Kind::trusted("spam"), &name("q", 0));
        assert!(!Arc::ptr_eq(&first, &meters.other));
    }
}
