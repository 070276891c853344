//! `windlass bench`: the flags of the self-contained benchmark. What is measured
//! and how is written elsewhere.

use super::failure::{Exit, Failure};
use super::global::Global;
use clap::Args;

const EXAMPLES: &str = "\
Examples:
  windlass bench
  windlass bench --tasks 1m --payload 500 --store memory:
  windlass bench --tasks 20k --steps 5 -o json";

#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct BenchArgs {
    /// How many tasks: 500, 100k, 2m
    #[arg(long, value_name = "N", default_value = "100k", value_parser = count)]
    pub tasks: u64,

    /// Bytes of each payload
    #[arg(long, value_name = "BYTES", default_value = "200", value_parser = count)]
    pub payload: u64,

    /// The store to measure, a new SQLite file by default
    #[arg(long, value_name = "URL")]
    pub store: Option<String>,

    /// Tasks that wait in the store before the clock starts
    #[arg(long, value_name = "N", value_parser = count)]
    pub backlog: Option<u64>,

    /// Steps of each task
    #[arg(long, value_name = "N", value_parser = count)]
    pub steps: Option<u64>,

    /// Submit at this rate (tasks per second) instead of as fast as possible
    #[arg(long, value_name = "R", value_parser = count)]
    pub rate: Option<u64>,
}

/// Reads `500`, `100k`, `2m`.
fn count(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not a number; write 500, 100k or 2m");
    let lower = text.to_ascii_lowercase();
    let (digits, factor) = match lower.strip_suffix('k') {
        Some(digits) => (digits, 1_000),
        None => lower.strip_suffix('m').map_or((lower.as_str(), 1), |digits| (digits, 1_000_000)),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(factor).ok_or_else(wrong)
}

pub async fn run(_args: BenchArgs, _global: &Global) -> Result<Exit, Failure> {
    Err(Failure::new(Exit::Failed, "`windlass bench` is not built yet", "use a later version"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_people_write() {
        for (text, n) in [("500", 500), ("100k", 100_000), ("2M", 2_000_000)] {
            assert_eq!(count(text), Ok(n));
        }
        for bad in ["", "k", "1.5k", "-1", "10g", "99999999999999999m"] {
            assert!(count(bad).is_err(), "{bad}");
        }
    }
}
