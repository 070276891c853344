//! What really happened in a history, counted by name, so that a test can fail
//! when something it means to prove did not happen; and the names that a fair
//! number of histories must have between them.

use std::collections::BTreeMap;
use std::fmt;

/// What twenty histories of a thousand operations must have seen between them.
pub const EXPECTED: &[&str] = &[
    "attempt.givenback",
    "attempt.lost",
    "change.cancel.requested",
    "change.discard.done",
    "change.drain.done",
    "change.edit.done",
    "change.pause.requested",
    "change.requeue.done",
    "change.rerun.done",
    "change.resume.done",
    "change.rollback.done",
    "change.rollback.requested",
    "claim.alone",
    "claim.answer_lost",
    "claim.expired",
    "claim.ids",
    "claim.ready",
    "claim.ready.lease-lost",
    "claim.with_requests",
    "event.checkpoint.discarded",
    "event.task.completed_with_errors",
    "event.task.rolled_back",
    "failed.children",
    "failed.exhausted",
    "failed.expired",
    "failed.poisoned",
    "failed.rollback",
    "node.left",
    "outbox.done",
    "outbox.taken",
    "record.children",
    "record.invalid-fields",
    "record.lease-lost",
    "record.repeated",
    "record.state-conflict",
    "record.version-conflict",
    "renew.given_back",
    "renew.lease-lost",
    "renew.lost",
    "renew.requests",
    "submit.existing",
    "submit.existing.child",
    "submit.idempotency-key-reused",
    "submit.into_draining",
    "submit.invalid-fields",
    "submit.new.child",
    "submit.not-found",
    "submit.replayed",
    "submit.state-conflict",
];

/// And these as well, behind faults.
pub const EXPECTED_FAULTS: &[&str] = &[
    "fault.after",
    "fault.before",
    "fault.claim.lost",
    "fault.join.lost",
    "fault.repeat",
    "fault.upkeep",
];

/// What really happened, so that a test can fail when something did not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    counts: BTreeMap<String, u64>,
}

impl Report {
    /// How often it happened. The words are `what.outcome`: outcomes are error
    /// codes, or how it went; `event.`, `state.`, `failed.` and `attempt.` are
    /// read from the tasks at the end.
    pub fn count(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }

    pub fn names(&self) -> impl Iterator<Item = (&str, u64)> {
        self.counts.iter().map(|(name, n)| (name.as_str(), *n))
    }

    /// Adds another history's counts.
    pub fn merge(&mut self, other: &Report) {
        for (name, n) in other.names() {
            self.add(name, n);
        }
    }

    /// The names among `wanted` that never happened.
    pub fn missing<'a>(&self, wanted: &[&'a str]) -> Vec<&'a str> {
        wanted.iter().copied().filter(|name| self.count(name) == 0).collect()
    }

    pub(super) fn add(&mut self, name: &str, n: u64) {
        match self.counts.get_mut(name) {
            Some(count) => *count += n,
            None => drop(self.counts.insert(name.to_owned(), n)),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.counts.iter().try_for_each(|(name, n)| writeln!(f, "{n:>8} {name}"))
    }
}
