//! When to try again. A policy answers one question: how long until the n-th
//! retry, or not at all. The default is exponential with a cap and jitter; the
//! same shape serves both layers, the quick retries of one step on its node and
//! the durable retries of a task through the store. Jitter is an argument: core
//! has no random source.

use crate::clock::{check_duration, duration_text};
use crate::error::{Error, Result};
use crate::outcome::TaskError;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// A number in `0.0..1.0` from the caller's random source.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Jitter(f64);

impl Jitter {
    /// No shift at all.
    pub const NONE: Jitter = Jitter(0.5);

    pub fn new(unit: f64) -> Self {
        Jitter(if unit.is_finite() { unit.clamp(0.0, 1.0) } else { 0.5 })
    }

    /// Spreads `d` evenly over `d - share*d ..= d + share*d`.
    fn spread(self, d: Duration, share: f64) -> Duration {
        // A share beyond 1 was refused; a duration that overflows ends at the longest.
        let seconds = d.as_secs_f64() * (1.0 + share * (2.0 * self.0 - 1.0));
        Duration::try_from_secs_f64(seconds).unwrap_or(d)
    }
}

/// Decides about the next retry.
pub trait RetryPolicy: fmt::Debug + Send + Sync {
    /// How long to wait before retry number `retry` (from 1), or `None` when
    /// the task has used up its retries. Must be pure: the same arguments give
    /// the same answer.
    fn delay(&self, retry: u32, error: &TaskError, jitter: Jitter) -> Option<Duration>;

    /// How many retries there are at the most, where that is a number; only for
    /// people to look at.
    fn retries(&self) -> Option<u32> {
        None
    }

    /// Asked once when a kind is registered: settings that make no sense are
    /// refused there.
    fn check(&self) -> Result<()> {
        Ok(())
    }
}

/// `first x factor^(n-1)`, capped, then jittered.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exponential {
    pub retries: u32,
    #[serde(with = "duration_text")]
    pub first: Duration,
    pub factor: f64,
    #[serde(with = "duration_text")]
    pub cap: Duration,
    /// Share of the delay by which it may be shorter or longer.
    #[serde(default)]
    pub jitter: f64,
}

impl Exponential {
    /// Durable retries of a task.
    pub const TASK: Exponential = Exponential {
        retries: 15,
        first: Duration::from_secs(5),
        factor: 2.0,
        cap: Duration::from_secs(3600),
        jitter: 0.1,
    };

    /// Quick retries of a step, on the same node and within the attempt.
    pub const STEP: Exponential = Exponential {
        retries: 3,
        first: Duration::from_secs(1),
        factor: 2.0,
        cap: Duration::from_secs(60),
        jitter: 0.0,
    };

    pub fn validate(&self) -> Result<()> {
        let refuse = |what: &str| Err(Error::invalid("retry", what.to_owned()));
        if !self.factor.is_finite() || self.factor < 1.0 {
            return refuse("retry.factor must be 1.0 or more");
        }
        if !(0.0..=1.0).contains(&self.jitter) {
            return refuse("retry.jitter must lie between 0 and 1");
        }
        check_duration("retry.cap", Some(self.cap))?;
        if self.cap < self.first {
            return refuse("retry.cap must not be shorter than retry.first");
        }
        Ok(())
    }

    /// The delay of the n-th retry before jitter.
    pub fn base(&self, retry: u32) -> Duration {
        let power = i32::try_from(retry.saturating_sub(1)).unwrap_or(i32::MAX);
        let seconds = self.first.as_secs_f64() * self.factor.powi(power);
        // An overflow to infinity is simply beyond the cap.
        match Duration::try_from_secs_f64(seconds) {
            Ok(delay) if delay < self.cap => delay,
            _ => self.cap,
        }
    }
}

impl RetryPolicy for Exponential {
    fn retries(&self) -> Option<u32> {
        Some(self.retries)
    }

    fn delay(&self, retry: u32, _error: &TaskError, jitter: Jitter) -> Option<Duration> {
        (retry <= self.retries).then(|| jitter.spread(self.base(retry), self.jitter))
    }

    fn check(&self) -> Result<()> {
        self.validate()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Class;
    use proptest::prelude::*;

    fn error() -> TaskError {
        TaskError::new(Class::Retryable, "x")
    }

    #[test]
    fn task_retries_are_those_of_the_contract() {
        let seconds: Vec<u64> = (1..=15).map(|n| Exponential::TASK.base(n).as_secs()).collect();
        assert_eq!(
            seconds,
            [5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600, 3600, 3600, 3600]
        );
        assert!(Exponential::TASK.delay(15, &error(), Jitter::NONE).is_some());
        assert!(Exponential::TASK.delay(16, &error(), Jitter::NONE).is_none());
    }

    #[test]
    fn step_retries_are_those_of_the_contract() {
        let delays: Vec<Option<u64>> = (1..=4)
            .map(|n| Exponential::STEP.delay(n, &error(), Jitter::new(0.99)).map(|d| d.as_secs()))
            .collect();
        assert_eq!(delays, [Some(1), Some(2), Some(4), None]);
    }

    #[test]
    fn zero_retries_is_legal() {
        let never = Exponential { retries: 0, ..Exponential::TASK };
        assert!(never.validate().is_ok());
        assert_eq!(never.delay(1, &error(), Jitter::NONE), None);
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in [
            Exponential { factor: 0.5, ..Exponential::TASK },
            Exponential { factor: f64::NAN, ..Exponential::TASK },
            Exponential { jitter: 1.5, ..Exponential::TASK },
            Exponential { cap: Duration::from_secs(1), ..Exponential::TASK },
            Exponential { cap: Duration::MAX, first: Duration::MAX, ..Exponential::TASK },
        ] {
            assert!(bad.validate().is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn delays_stay_in_bounds(
            first_ms in 0u64..100_000,
            factor in 1.0f64..10.0,
            more_ms in 0u64..10_000_000,
            share in 0.0f64..1.0,
            retry in 1u32..u32::MAX,
            unit in 0.0f64..1.0,
        ) {
            let policy = Exponential {
                retries: u32::MAX,
                first: Duration::from_millis(first_ms),
                factor,
                cap: Duration::from_millis(first_ms + more_ms),
                jitter: share,
            };
            prop_assert!(policy.validate().is_ok());
            let delay = policy.delay(retry, &error(), Jitter::new(unit)).unwrap();
            let base = policy.base(retry);
            prop_assert!(base <= policy.cap && base >= policy.first.min(policy.cap));
            prop_assert!(policy.base(retry.saturating_add(1)) >= base);
            let slack = Duration::from_micros(1);
            prop_assert!(delay + slack >= base.mul_f64(1.0 - share));
            prop_assert!(delay <= base.mul_f64(1.0 + share) + slack);
        }
    }
}
