//! The guards of a store, each of which a test may switch off to prove that the
//! suite or the model notices. In ordinary builds all of them are on and
//! nothing can change that: breaking one needs the feature `sabotage`.

use windlass_core::standing::Guard;
use windlass_core::state::State;

/// Which guards hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guards {
    pub(crate) token: bool,
    pub(crate) version: bool,
    pub(crate) unique: bool,
    pub(crate) transition: bool,
    pub(crate) events: bool,
}

impl Default for Guards {
    fn default() -> Self {
        Guards { token: true, version: true, unique: true, transition: true, events: true }
    }
}

/// One guard, for breaking it.
#[cfg(feature = "sabotage")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// Writes with a stale token are taken.
    Token,
    /// Checkpoint writes with an old version are taken.
    Version,
    /// Unique keys are not looked up.
    Unique,
    /// Any state may follow any other.
    Transition,
    /// Events are written with the next transaction instead of their own.
    Events,
}

#[cfg(feature = "sabotage")]
impl Broken {
    pub const ALL: [Broken; 5] =
        [Broken::Token, Broken::Version, Broken::Unique, Broken::Transition, Broken::Events];
}

impl Guards {
    /// All guards but one.
    #[cfg(feature = "sabotage")]
    pub fn without(broken: Broken) -> Self {
        let mut guards = Guards::default();
        match broken {
            Broken::Token => guards.token = false,
            Broken::Version => guards.version = false,
            Broken::Unique => guards.unique = false,
            Broken::Transition => guards.transition = false,
            Broken::Events => guards.events = false,
        }
        guards
    }

    pub(crate) fn transition(self) -> Guard {
        if self.transition { State::check } else { |_, _| Ok(()) }
    }
}
