//! Instants and durations. Core never asks what time it is: every rule takes
//! `now` as an argument, and whoever owns a clock (engine, store, test) passes
//! it in. Instants are microseconds since 1970 in UTC so that no database
//! driver needs a date type.

use crate::error::{Error, Result};
use crate::store::BoxFuture;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::time::Duration;

/// An instant: microseconds since 1970-01-01T00:00:00Z. Written as RFC 3339.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    pub const ZERO: Timestamp = Timestamp(0);
    /// The first and last instants that can be written as text and read back.
    pub const MIN: Timestamp = Timestamp(-377_705_023_200_000_000);
    pub const MAX: Timestamp = Timestamp(253_402_207_200_000_000);

    /// Stops at [`Timestamp::MIN`] and [`Timestamp::MAX`].
    pub const fn from_micros(us: i64) -> Self {
        if us > Timestamp::MAX.0 {
            Timestamp::MAX
        } else if us < Timestamp::MIN.0 {
            Timestamp::MIN
        } else {
            Timestamp(us)
        }
    }

    pub const fn from_millis(ms: i64) -> Self {
        Timestamp::from_micros(ms.saturating_mul(1000))
    }

    pub const fn as_micros(self) -> i64 {
        self.0
    }

    pub const fn as_millis(self) -> i64 {
        self.0.div_euclid(1000)
    }

    /// Adds, stopping at the end of time instead of wrapping.
    #[must_use]
    pub fn plus(self, d: Duration) -> Self {
        Timestamp::from_micros(
            self.0.saturating_add(i64::try_from(d.as_micros()).unwrap_or(i64::MAX)),
        )
    }

    #[must_use]
    pub fn minus(self, d: Duration) -> Self {
        Timestamp::from_micros(
            self.0.saturating_sub(i64::try_from(d.as_micros()).unwrap_or(i64::MAX)),
        )
    }

    /// How long ago `earlier` was; zero when it lies ahead.
    pub fn since(self, earlier: Timestamp) -> Duration {
        let us = self.0.saturating_sub(earlier.0);
        Duration::from_micros(u64::try_from(us).unwrap_or(0))
    }

    /// Reads RFC 3339, with any offset.
    pub fn parse(text: &str) -> Result<Self> {
        let at: jiff::Timestamp = text.parse().map_err(|_| {
            Error::invalid("time", format!("`{text}` is not a time; write 2026-01-31T12:00:00Z"))
        })?;
        Ok(Timestamp::from_micros(at.as_microsecond()))
    }

    pub(crate) fn to_jiff(self) -> Option<jiff::Timestamp> {
        jiff::Timestamp::from_microsecond(self.0).ok()
    }

    pub(crate) fn from_jiff(at: jiff::Timestamp) -> Self {
        Timestamp::from_micros(at.as_microsecond())
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_jiff() {
            Some(at) => write!(f, "{at}"),
            None => f.write_str("never"),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        Timestamp::parse(&text).map_err(serde::de::Error::custom)
    }
}

/// Whoever tells the time and wakes sleepers: the machine, or a test that moves
/// time by hand. Leases, timeouts and delays between tries go by `uptime`, which
/// never jumps; times in the store (when a task is due) are the wall clock's, and
/// wait longer when that is set back.
pub trait Clock: fmt::Debug + Send + Sync {
    /// The wall clock, for what is written down.
    fn now(&self) -> Timestamp;

    /// Time since a fixed moment; never goes back.
    fn uptime(&self) -> Duration;

    /// Ready once `uptime` has reached `at`.
    fn sleep_until(&self, at: Duration) -> BoxFuture<'static, ()>;
}

/// Whose clock a store call goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Now {
    /// The database server's (production on PostgreSQL and MySQL); a store
    /// without a clock of its own takes the machine's.
    Store,
    /// The caller's (SQLite, memory, every test).
    At(Timestamp),
}

/// The longest duration users may give: longer ones are typing errors, and what
/// is stored must read back.
pub const DURATION_MAX: Duration = Duration::from_secs(36_500 * 86_400);

/// Refuses a duration that is too long; `field` is named in the error.
pub fn check_duration(field: &str, d: Option<Duration>) -> Result<()> {
    match d {
        Some(d) if d > DURATION_MAX => {
            Err(Error::invalid("duration", format!("{field} is longer than 36500 days")))
        }
        _ => Ok(()),
    }
}

/// Reads `250ms 90s 5m 2h30m 1d` and ISO-8601 `PT30S`.
pub fn parse_duration(text: &str) -> Result<Duration> {
    let bad = || {
        let hint = "write a duration such as 250ms, 90s, 5m, 2h30m, 1d or PT30S";
        Error::invalid("duration", format!("`{text}` is not a duration; {hint}"))
    };
    if text.starts_with(['P', 'p']) {
        let span: jiff::SignedDuration = text.parse().map_err(|_| bad())?;
        return Duration::try_from(span).map_err(|_| bad());
    }
    let mut rest = text;
    let mut total = Duration::ZERO;
    let mut last_unit = u64::MAX;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
        let unit_end =
            rest[digits..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |i| i + digits);
        let amount: u64 = rest[..digits].parse().map_err(|_| bad())?;
        let unit_ms = match &rest[digits..unit_end] {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(bad()),
        };
        // Units must fall, so that `5m2h` or `1s1s` is a typing error, not a sum.
        if unit_ms >= last_unit {
            return Err(bad());
        }
        last_unit = unit_ms;
        let part = amount.checked_mul(unit_ms).ok_or_else(bad)?;
        total = total.checked_add(Duration::from_millis(part)).ok_or_else(bad)?;
        rest = &rest[unit_end..];
    }
    if text.is_empty() { Err(bad()) } else { Ok(total) }
}

/// Writes a duration the way [`parse_duration`] reads it, down to milliseconds.
pub fn format_duration(d: Duration) -> String {
    let mut ms = d.as_millis();
    if ms == 0 {
        return "0s".to_owned();
    }
    let mut out = String::new();
    for (unit, size) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)]
    {
        if ms >= size {
            out.push_str(&format!("{}{unit}", ms / size));
            ms %= size;
        }
    }
    out
}

/// `#[serde(with = "duration_text")]` for durations users write.
pub mod duration_text {
    use super::{format_duration, parse_duration};
    use serde::{Deserialize, Deserializer, Serializer};
    use std::time::Duration;

    pub fn serialize<S: Serializer>(d: &Duration, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&format_duration(*d))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
        parse_duration(&String::deserialize(d)?).map_err(serde::de::Error::custom)
    }

    /// The same for a duration that may be absent.
    pub mod optional {
        use super::{Deserialize, Deserializer, Duration, Serializer};

        pub fn serialize<S: Serializer>(d: &Option<Duration>, s: S) -> Result<S::Ok, S::Error> {
            match d {
                Some(d) => super::serialize(d, s),
                None => s.serialize_none(),
            }
        }

        pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Duration>, D::Error> {
            match Option::<String>::deserialize(d)? {
                Some(text) => {
                    super::parse_duration(&text).map(Some).map_err(serde::de::Error::custom)
                }
                None => Ok(None),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_people_write() {
        let table = [
            ("250ms", 250),
            ("90s", 90_000),
            ("5m", 300_000),
            ("2h30m", 9_000_000),
            ("1d", 86_400_000),
            ("1d2h3m4s5ms", 93_784_005),
            ("PT30S", 30_000),
            ("PT1H", 3_600_000),
        ];
        for (text, ms) in table {
            assert_eq!(parse_duration(text).unwrap(), Duration::from_millis(ms), "{text}");
        }
        for bad in
            ["", "5", "s", "5 m", "-5s", "5m2h", "1s1s", "1.5s", "99999999999999999999d", "-PT5S"]
        {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_instant_reads_back() {
        let far = Timestamp::ZERO.plus(Duration::MAX);
        for t in [Timestamp::MIN, Timestamp::MAX, far, Timestamp::from_micros(i64::MIN)] {
            assert_eq!(Timestamp::parse(&t.to_string()).unwrap(), t);
        }
        assert_eq!(Timestamp::from_millis(i64::MAX), Timestamp::MAX);
        assert!(check_duration("x", Some(Duration::MAX)).is_err());
        assert_eq!(parse_duration(&format_duration(DURATION_MAX)).unwrap(), DURATION_MAX);
    }

    #[test]
    fn times_are_rfc3339() {
        let t = Timestamp::parse("2026-01-31T12:00:00.000123+02:00").unwrap();
        assert_eq!(t.to_string(), "2026-01-31T10:00:00.000123Z");
        assert_eq!(serde_json::to_string(&t).unwrap(), "\"2026-01-31T10:00:00.000123Z\"");
        assert!(Timestamp::parse("yesterday").is_err());
    }

    proptest! {
        #[test]
        fn written_durations_read_back(ms in 0u64..10_000_000_000) {
            let d = Duration::from_millis(ms);
            prop_assert_eq!(parse_duration(&format_duration(d)).unwrap(), d);
        }
    }
}
