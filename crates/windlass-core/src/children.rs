//! Parents and children: the totals a parent shows, and the policy that says
//! what a parent becomes when its children have ended. Totals are counted from
//! child rows by the store, never from events; this file only judges them.

use crate::error::{Error, Result};
use crate::state::State;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// When a parent counts as successful.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Policy {
    /// Every child must complete.
    All,
    /// Failures are shown, and do not fail the parent.
    #[default]
    AllowErrors,
    /// The first failure ends the parent; the other children are cancelled.
    FailFast,
    /// So many must complete.
    AtLeast(u32),
}

impl FromStr for Policy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let at_least = || text.strip_prefix("at_least(")?.strip_suffix(')')?.parse().ok();
        match text {
            "all" => Ok(Policy::All),
            "allow_errors" => Ok(Policy::AllowErrors),
            "fail_fast" => Ok(Policy::FailFast),
            _ => at_least().map(Policy::AtLeast).ok_or_else(|| {
                let words = "all, allow_errors, fail_fast or at_least(n)";
                Error::invalid("submit", format!("children_policy `{text}`: use {words}"))
            }),
        }
    }
}

impl TryFrom<String> for Policy {
    type Error = Error;
    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Policy> for String {
    fn from(policy: Policy) -> String {
        match policy {
            Policy::All => "all".to_owned(),
            Policy::AllowErrors => "allow_errors".to_owned(),
            Policy::FailFast => "fail_fast".to_owned(),
            Policy::AtLeast(n) => format!("at_least({n})"),
        }
    }
}

/// What a parent does when its children have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Hash)]
#[serde(rename_all = "snake_case")]
pub enum Then {
    /// It has nothing more to do: the policy gives its end.
    End,
    /// It goes on from its checkpoint with the children's results.
    Resume,
}

/// How many children there are, and how they ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Totals {
    pub total: u64,
    pub completed: u64,
    pub failed: u64,
    pub cancelled: u64,
}

impl Totals {
    /// Counts `count` children in `state`. A child that was rolled back did not
    /// succeed and did not fail by itself: it counts as cancelled.
    pub fn add(&mut self, state: State, count: u64) {
        self.total += count;
        match state {
            State::Completed | State::CompletedWithErrors => self.completed += count,
            State::Failed => self.failed += count,
            State::Cancelled | State::RolledBack => self.cancelled += count,
            _ => {}
        }
    }

    pub fn unfinished(&self) -> u64 {
        self.total.saturating_sub(self.completed + self.failed + self.cancelled)
    }
}

/// What becomes of a waiting parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// Some children still run, and the policy can wait.
    Wait,
    Resume,
    Completed,
    CompletedWithErrors,
    /// The children left are cancelled.
    Failed,
}

/// Judges a waiting parent by its children.
pub fn resolve(policy: Policy, then: Then, totals: &Totals) -> Resolution {
    let lost = totals.failed + totals.cancelled;
    let fails_now = policy == Policy::FailFast && lost > 0;
    if totals.unfinished() > 0 && !fails_now {
        return Resolution::Wait;
    }
    let success = match policy {
        Policy::All => lost == 0,
        Policy::FailFast => !fails_now,
        Policy::AllowErrors => true,
        Policy::AtLeast(n) => totals.completed >= u64::from(n),
    };
    match (success, then) {
        (false, _) => Resolution::Failed,
        (true, Then::Resume) => Resolution::Resume,
        (true, Then::End) if lost == 0 => Resolution::Completed,
        (true, Then::End) => Resolution::CompletedWithErrors,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn totals(completed: u64, failed: u64, cancelled: u64, open: u64) -> Totals {
        Totals { total: completed + failed + cancelled + open, completed, failed, cancelled }
    }

    #[test]
    fn policies_judge_as_the_contract_says() {
        use Resolution::{Completed, CompletedWithErrors, Failed, Resume, Wait};
        let table = [
            (Policy::All, Then::End, totals(3, 0, 0, 0), Completed),
            (Policy::All, Then::End, totals(2, 1, 0, 0), Failed),
            (Policy::All, Then::End, totals(2, 1, 0, 1), Wait),
            (Policy::AllowErrors, Then::End, totals(0, 3, 0, 0), CompletedWithErrors),
            (Policy::AllowErrors, Then::End, totals(2, 0, 1, 0), CompletedWithErrors),
            (Policy::AllowErrors, Then::Resume, totals(0, 3, 0, 0), Resume),
            (Policy::AllowErrors, Then::End, totals(0, 0, 0, 0), Completed),
            (Policy::FailFast, Then::Resume, totals(0, 1, 0, 9), Failed),
            (Policy::FailFast, Then::Resume, totals(1, 0, 0, 9), Wait),
            (Policy::FailFast, Then::Resume, totals(1, 0, 0, 0), Resume),
            (Policy::AtLeast(2), Then::End, totals(2, 1, 0, 0), CompletedWithErrors),
            (Policy::AtLeast(2), Then::End, totals(1, 1, 0, 0), Failed),
            (Policy::AtLeast(2), Then::End, totals(2, 0, 0, 1), Wait),
        ];
        for (policy, then, totals, expected) in table {
            assert_eq!(resolve(policy, then, &totals), expected, "{policy:?} {then:?} {totals:?}");
        }
    }

    #[test]
    fn policies_read_back() {
        for text in ["all", "allow_errors", "fail_fast", "at_least(7)"] {
            assert_eq!(String::from(text.parse::<Policy>().unwrap()), text);
        }
        for bad in ["", "some", "at_least()", "at_least(-1)", "at_least(1"] {
            assert!(bad.parse::<Policy>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn every_child_counts_once(states in prop::collection::vec(0usize..12, 0..100)) {
            let mut sum = Totals::default();
            for &s in &states {
                sum.add(State::ALL[s], 1);
            }
            let open = states.iter().filter(|&&s| !State::ALL[s].is_ended()).count() as u64;
            prop_assert_eq!(sum.total, states.len() as u64);
            prop_assert_eq!(sum.unfinished(), open);
        }
    }
}
