//! Times as people read them: ages like `3m`, waits like `4.1s`, and the HTTP
//! date of the server's answers. Reading and writing of the exact forms is
//! core's; here is only what is rounded for the eye.

use std::time::{Duration, SystemTime, UNIX_EPOCH};
use windlass_core::clock::Timestamp;

/// The machine's clock, for ages only.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

/// How long ago an RFC 3339 time was, as `3m`; `-` when it is none.
pub(crate) fn age(at: &str, now: Timestamp) -> String {
    match Timestamp::parse(at) {
        Ok(at) => rough(now.since(at)),
        Err(_) => "-".to_owned(),
    }
}

/// The largest unit that fits: `45s`, `3m`, `2h`, `5d`.
pub(crate) fn rough(d: Duration) -> String {
    let seconds = d.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// A wait with one decimal while it is short: `4.1s`, `75s`, `10m`. It is
/// rounded to the second: an hour that has just begun is an hour.
pub(crate) fn wait(d: Duration) -> String {
    let rounded = Duration::from_secs(d.as_secs_f64().round() as u64);
    match rounded.as_secs() {
        0..10 => format!("{:.1}s", d.as_secs_f64()),
        10..120 => format!("{}s", rounded.as_secs()),
        _ => rough(rounded),
    }
}

/// Reads the `Date` header: `Mon, 16 Nov 2026 06:14:33 GMT`.
pub(crate) fn http_date(text: &str) -> Option<Timestamp> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut words = text.split_once(", ")?.1.split(' ');
    let (day, month) = (words.next()?, words.next()?);
    let (year, time) = (words.next()?, words.next()?);
    let month = MONTHS.iter().position(|m| *m == month)? + 1;
    Timestamp::parse(&format!("{year}-{month:02}-{day}T{time}Z")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounded_for_the_eye() {
        let s = Duration::from_secs;
        for (d, shown) in [(s(0), "0s"), (s(59), "59s"), (s(200), "3m"), (s(7300), "2h")] {
            assert_eq!(rough(d), shown);
        }
        assert_eq!(rough(s(86_400 * 5)), "5d");
        assert_eq!(wait(Duration::from_millis(4_120)), "4.1s");
        assert_eq!(wait(s(75)), "75s");
        assert_eq!(wait(s(600)), "10m");
        assert_eq!(wait(Duration::from_millis(3_599_990)), "1h");
    }

    #[test]
    fn ages_and_dates() {
        let at = Timestamp::parse("2026-11-16T06:14:33Z").unwrap();
        assert_eq!(http_date("Mon, 16 Nov 2026 06:14:33 GMT"), Some(at));
        assert_eq!(http_date("yesterday"), None);
        assert_eq!(age("2026-11-16T06:12:33Z", at), "2m");
        assert_eq!(age("2026-11-16T07:00:00Z", at), "0s");
        assert_eq!(age("", at), "-");
    }
}
