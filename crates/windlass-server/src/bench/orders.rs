//! What the benchmark says to the node it measures, one JSON line each on the
//! child's stdin, and what the child answers on its stdout. Both sides are this
//! program, so the shapes may change at any time.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// The queue whose tasks the node runs.
pub(super) const QUEUE: &str = "bench";
/// A queue that no node serves: what is submitted there stays.
pub(super) const UNSERVED: &str = "bench.unserved";
/// The kind that does nothing, in as many steps as were asked for.
pub(super) const NOTHING: &str = "bench.nothing";
/// The kind that tells when it began.
pub(super) const TIMED: &str = "bench.timed";

/// Tasks handed over in one call of a bulk submit.
pub(super) const BATCH: u64 = 1000;

/// The first line: what to be.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Begin {
    /// Here and not among the arguments, which everybody on the machine can read.
    pub(super) store: String,
    pub(super) payload: u64,
    pub(super) steps: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub(super) enum Order {
    /// Let so many tasks wait in the unserved queue; those that do count.
    Backlog { tasks: u64 },
    /// Take nothing from now on.
    Pause,
    /// Submit in batches, two of them under way.
    Submit { tasks: u64 },
    /// Go on, until so many tasks have ended.
    Drain { tasks: u64 },
    /// So many callers submit one task after the other.
    Callers { callers: u64, tasks: u64 },
    /// Submit at a rate; the first `warm` tasks are not counted.
    Steady { rate: u64, warm: u64, counted: u64 },
    /// How the process is doing.
    Usage,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub(super) enum Answer {
    Ready { at: SocketAddr, store: String },
    Done(Measured),
    Usage(Usage),
    Failed { message: String },
}

/// What an order took, in seconds.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct Measured {
    pub(super) wall: f64,
    pub(super) cpu: f64,
    pub(super) spread: Spread,
}

/// Seconds of single calls, where there were any.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct Spread {
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
}

impl Spread {
    pub(super) fn of(mut seconds: Vec<f64>) -> Spread {
        seconds.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let place = (seconds.len().saturating_sub(1) as f64 * share).round() as usize;
            seconds.get(place).copied().unwrap_or(0.0)
        };
        Spread { p50: at(0.5), p99: at(0.99), max: at(1.0) }
    }
}

/// Seconds of CPU so far, and MB of memory.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Usage {
    pub(super) cpu: f64,
    pub(super) memory: f64,
    pub(super) memory_peak: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads() {
        let spread = Spread::of((1..=101).rev().map(f64::from).collect());
        assert_eq!((spread.p50, spread.p99, spread.max), (51.0, 100.0, 101.0));
        assert_eq!(Spread::of(vec![]).max, 0.0);
    }
}
