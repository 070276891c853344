//! The right to touch a running task. A lease belongs to one incarnation of
//! one node and carries a fencing token that grows with each claim of the task;
//! every write about a running task names both, and a store refuses what is not
//! the newest. Here are the words, and the rule about tasks that kill their
//! nodes; time and rows are the store's.

use crate::clock::duration_text;
use crate::error::{Error, Result};
use crate::id::{NodeId, TaskId};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Grows with each claim of a task. Zero: never claimed.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Token(pub u64);

impl Token {
    #[must_use]
    pub fn next(self) -> Token {
        Token(self.0 + 1)
    }
}

/// What a writer shows to prove that it may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeaseKey {
    pub task: TaskId,
    pub node: NodeId,
    pub token: Token,
}

impl LeaseKey {
    /// Refuses a key that is not the lease `held` in the store.
    pub fn check(&self, held: &LeaseKey) -> Result<()> {
        if self == held {
            return Ok(());
        }
        let (mine, theirs) = (self.token.0, held.token.0);
        Err(Error::lease_lost("record", format!("token {mine} is stale, the newest is {theirs}")))
    }
}

/// Numbers a node's claim calls, so that a renewal can say which of them were
/// answered and a lost answer can be told from one still on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ClaimNo(pub u64);

/// What people asked of a running task; it is told with the next renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Requests {
    pub cancel: bool,
    pub pause: bool,
    pub rollback: bool,
}

impl Requests {
    pub const NONE: Requests = Requests { cancel: false, pause: false, rollback: false };

    pub fn any(self) -> bool {
        self != Requests::NONE
    }

    /// As a small number for a store's column.
    pub fn bits(self) -> i64 {
        i64::from(self.cancel) | i64::from(self.pause) << 1 | i64::from(self.rollback) << 2
    }

    pub fn from_bits(bits: i64) -> Self {
        Requests { cancel: bits & 1 != 0, pause: bits & 2 != 0, rollback: bits & 4 != 0 }
    }
}

/// When the death of nodes is held against a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoisonRule {
    /// Crashes after which a task is poisoned; 0 turns the rule off.
    pub limit: u32,
}

impl Default for PoisonRule {
    fn default() -> Self {
        PoisonRule { limit: 3 }
    }
}

/// What becomes of a task whose node died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterCrash {
    /// It may run again, with other tasks beside it.
    Again { crashes: u32 },
    /// It may run again, but alone on its node.
    Alone { crashes: u32 },
    /// It killed its node while alone: it is the culprit.
    Poisoned { crashes: u32 },
}

impl PoisonRule {
    /// `crashes`: counted so far. `in_step`: the node died while the task was
    /// inside a step. `alone`: it had the node for itself. Only a crash while
    /// alone can poison, so a bad deploy never poisons healthy tasks.
    pub fn after_crash(self, crashes: u32, in_step: bool, alone: bool) -> AfterCrash {
        let crashes = if in_step { crashes + 1 } else { crashes };
        if self.limit == 0 || crashes == 0 {
            return AfterCrash::Again { crashes };
        }
        if in_step && alone && crashes >= self.limit {
            return AfterCrash::Poisoned { crashes };
        }
        if self.runs_alone(crashes) {
            AfterCrash::Alone { crashes }
        } else {
            AfterCrash::Again { crashes }
        }
    }

    /// A task that may be the culprit gets a node for itself: one crash before
    /// the limit, so that the crash that poisons is one it had alone.
    pub fn runs_alone(self, crashes: u32) -> bool {
        self.limit > 0 && crashes > 0 && crashes + 1 >= self.limit
    }
}

/// How long a lease lasts and what follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseTimes {
    #[serde(with = "duration_text")]
    pub lease: Duration,
}

impl Default for LeaseTimes {
    fn default() -> Self {
        LeaseTimes { lease: Duration::from_secs(30) }
    }
}

impl LeaseTimes {
    /// A node heartbeats this often.
    pub fn heartbeat(self) -> Duration {
        self.lease / 3
    }

    /// Without a renewal for this long a node stops claiming.
    pub fn stop_claiming(self) -> Duration {
        self.lease * 2 / 3
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use AfterCrash::{Again, Alone, Poisoned};

    #[test]
    fn two_crashes_then_alone_then_poisoned() {
        let rule = PoisonRule::default();
        assert_eq!(rule.after_crash(0, true, false), Again { crashes: 1 });
        assert_eq!(rule.after_crash(1, true, false), Alone { crashes: 2 });
        assert_eq!(rule.after_crash(2, true, true), Poisoned { crashes: 3 });
    }

    #[test]
    fn a_crash_in_company_never_poisons() {
        let rule = PoisonRule::default();
        for crashes in 0..50 {
            assert!(!matches!(rule.after_crash(crashes, true, false), Poisoned { .. }));
        }
    }

    #[test]
    fn a_node_that_dies_between_steps_counts_nothing() {
        let rule = PoisonRule::default();
        assert_eq!(rule.after_crash(2, false, true), Alone { crashes: 2 });
        assert_eq!(rule.after_crash(0, false, false), Again { crashes: 0 });
    }

    #[test]
    fn zero_turns_the_rule_off() {
        assert_eq!(PoisonRule { limit: 0 }.after_crash(99, true, true), Again { crashes: 100 });
    }

    #[test]
    fn a_limit_of_one_still_needs_a_crash_alone() {
        let rule = PoisonRule { limit: 1 };
        assert_eq!(rule.after_crash(0, true, false), Alone { crashes: 1 });
        assert_eq!(rule.after_crash(1, true, true), Poisoned { crashes: 2 });
    }

    #[test]
    fn stale_keys_are_refused() {
        let held =
            LeaseKey { task: TaskId::from_key(1), node: NodeId::from_key(2), token: Token(3) };
        assert!(held.check(&held).is_ok());
        for stale in [
            LeaseKey { token: Token(2), ..held },
            LeaseKey { token: Token(4), ..held },
            LeaseKey { node: NodeId::from_key(9), ..held },
        ] {
            assert_eq!(stale.check(&held).unwrap_err().kind(), crate::error::ErrorKind::LeaseLost);
        }
    }

    #[test]
    fn requests_fit_a_column() {
        for bits in 0..8 {
            assert_eq!(Requests::from_bits(bits).bits(), bits);
        }
    }
}
