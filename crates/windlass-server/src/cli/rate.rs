//! How fast something is sent: `5/s`, `300/m`, `1000/h`. It only reads the text
//! and answers with the time between two sends.

use super::failure::Failure;
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rate {
    between: Duration,
}

impl Rate {
    pub(crate) fn read(text: &str) -> Result<Rate, Failure> {
        let wrong = || {
            Failure::usage(format!("`{text}` is not a rate"), "write a rate such as 5/s or 300/m")
        };
        let (count, unit) = text.split_once('/').ok_or_else(wrong)?;
        let unit = match unit {
            "s" => Duration::from_secs(1),
            "m" => Duration::from_secs(60),
            "h" => Duration::from_secs(3_600),
            _ => return Err(wrong()),
        };
        match count.parse::<u32>() {
            Ok(count) if count > 0 => Ok(Rate { between: unit / count }),
            _ => Err(wrong()),
        }
    }

    /// A ticker whose first tick is at once.
    pub(crate) fn ticker(self) -> tokio::time::Interval {
        let mut ticker = tokio::time::interval(self.between.max(Duration::from_nanos(1)));
        // A slow server must not be paid back with a burst.
        ticker.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        ticker
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_people_write() {
        for (text, ms) in [("5/s", 200), ("300/m", 200), ("1000/h", 3_600)] {
            assert_eq!(Rate::read(text).unwrap().between, Duration::from_millis(ms));
        }
        for bad in ["", "5", "0/s", "/s", "5/d", "-1/s", "x/s"] {
            assert!(Rate::read(bad).is_err(), "{bad}");
        }
    }
}
