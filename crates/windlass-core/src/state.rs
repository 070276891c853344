//! The twelve states of a task and the one table of what may follow what.
//! Every store asks this table before it writes a state and refuses what it
//! does not allow; nothing else in Windlass knows the order of states.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Where a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Scheduled,
    Queued,
    Running,
    Retrying,
    Waiting,
    Paused,
    RollingBack,
    Completed,
    CompletedWithErrors,
    Failed,
    Cancelled,
    RolledBack,
}

use State::{
    Cancelled, Completed, CompletedWithErrors, Failed, Paused, Queued, Retrying, RolledBack,
    RollingBack, Running, Scheduled, Waiting,
};

impl State {
    pub const ALL: [State; 12] = [
        Scheduled,
        Queued,
        Running,
        Retrying,
        Waiting,
        Paused,
        RollingBack,
        Completed,
        CompletedWithErrors,
        Failed,
        Cancelled,
        RolledBack,
    ];

    /// What may follow this state. `Running` and `RollingBack` follow
    /// themselves when another node takes over an expired lease.
    pub const fn next(self) -> &'static [State] {
        match self {
            Scheduled => &[Queued, Paused, Cancelled, Failed],
            Queued => &[Running, Scheduled, Paused, Cancelled, Failed],
            Running => &[
                Running,
                Queued,
                Scheduled,
                Retrying,
                Waiting,
                Paused,
                RollingBack,
                Completed,
                CompletedWithErrors,
                Failed,
                Cancelled,
            ],
            Retrying => &[Queued, Paused, Cancelled, RollingBack],
            Waiting => &[Queued, Paused, Completed, CompletedWithErrors, Failed, Cancelled],
            Paused => &[Queued, Scheduled, Retrying, Waiting, RollingBack, Cancelled],
            RollingBack => &[RollingBack, Paused, RolledBack, Failed],
            Failed | Cancelled => &[Queued, RollingBack],
            Completed | CompletedWithErrors | RolledBack => &[],
        }
    }

    pub fn allows(self, to: State) -> bool {
        self.next().contains(&to)
    }

    /// Refuses a transition the table does not have.
    pub fn check(self, to: State) -> Result<()> {
        if self.allows(to) {
            return Ok(());
        }
        Err(Error::conflict("transition", format!("a {self} task cannot become {to}")))
    }

    /// An ended task never runs again unless a person asks for it.
    pub const fn is_ended(self) -> bool {
        matches!(self, Completed | CompletedWithErrors | Failed | Cancelled | RolledBack)
    }

    /// A node holds, or may take, a lease in this state.
    pub const fn is_leasable(self) -> bool {
        matches!(self, Running | RollingBack)
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Scheduled => "scheduled",
            Queued => "queued",
            Running => "running",
            Retrying => "retrying",
            Waiting => "waiting",
            Paused => "paused",
            RollingBack => "rolling_back",
            Completed => "completed",
            CompletedWithErrors => "completed_with_errors",
            Failed => "failed",
            Cancelled => "cancelled",
            RolledBack => "rolled_back",
        }
    }

    /// The small number stores keep instead of the word. Never renumber.
    pub const fn code(self) -> i64 {
        match self {
            Scheduled => 2,
            Queued => 3,
            Running => 4,
            Retrying => 5,
            Waiting => 6,
            Paused => 7,
            RollingBack => 8,
            Completed => 16,
            CompletedWithErrors => 17,
            Failed => 18,
            Cancelled => 19,
            RolledBack => 20,
        }
    }

    /// Codes from here on are ended states, so SQL can say `state >= 16`.
    pub const FIRST_ENDED_CODE: i64 = 16;

    pub fn from_code(code: i64) -> Result<State> {
        State::ALL
            .into_iter()
            .find(|s| s.code() == code)
            .ok_or_else(|| Error::corrupt("state", format!("{code} is no state's code")))
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for State {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        State::ALL.into_iter().find(|s| s.as_str() == text).ok_or_else(|| {
            let all = State::ALL.map(State::as_str).join(", ");
            Error::invalid("state", format!("`{text}` is no state; the states are {all}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ended_tasks_leave_only_by_a_person() {
        assert_eq!(Failed.next(), [Queued, RollingBack]);
        assert_eq!(Cancelled.next(), [Queued, RollingBack]);
        for dead_end in [Completed, CompletedWithErrors, RolledBack] {
            assert!(dead_end.next().is_empty());
        }
    }

    #[test]
    fn rolling_back_is_reached_as_the_contract_says() {
        let from: Vec<State> = State::ALL.into_iter().filter(|s| s.allows(RollingBack)).collect();
        assert_eq!(from, [Running, Retrying, Paused, RollingBack, Failed, Cancelled]);
    }

    #[test]
    fn only_leasable_states_reach_running_work() {
        let from: Vec<State> = State::ALL.into_iter().filter(|s| s.allows(Running)).collect();
        assert_eq!(from, [Queued, Running]);
    }

    #[test]
    fn words_and_codes_read_back() {
        for s in State::ALL {
            assert_eq!(s.as_str().parse::<State>().unwrap(), s);
            assert_eq!(State::from_code(s.code()).unwrap(), s);
            assert_eq!(s.is_ended(), s.code() >= State::FIRST_ENDED_CODE);
            assert_eq!(serde_json::to_string(&s).unwrap(), format!("\"{s}\""));
        }
        assert!("done".parse::<State>().is_err());
        assert!(State::from_code(9).is_err());
    }

    proptest! {
        /// Whatever path is walked: an ended state that is not failed or
        /// cancelled is the end, and every live state can still reach an end.
        #[test]
        fn random_walks_end_where_they_may(choices in prop::collection::vec(0usize..16, 0..64)) {
            let mut at = Queued;
            for choice in choices {
                let next = at.next();
                if next.is_empty() {
                    prop_assert!(at.is_ended());
                    prop_assert!(!matches!(at, Failed | Cancelled));
                    break;
                }
                let to = next[choice % next.len()];
                prop_assert!(at.check(to).is_ok());
                at = to;
            }
            prop_assert!(reaches_an_end(at));
        }
    }

    fn reaches_an_end(from: State) -> bool {
        let mut seen = vec![from];
        let mut i = 0;
        while i < seen.len() {
            for &to in seen[i].next() {
                if !seen.contains(&to) {
                    seen.push(to);
                }
            }
            i += 1;
        }
        seen.iter().any(|s| s.is_ended())
    }
}
