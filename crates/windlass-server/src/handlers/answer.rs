//! What an answer of an `http` handler means for its step: status, headers and
//! body, turned into what the engine understands. Pure; the request is over when
//! this is asked, and what kept it from an answer is not judged here.

use super::output::{obey, parse};
use super::tail::{MESSAGE_MAX, clean, start_of};
use reqwest::StatusCode;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use serde_json::Value;
use std::time::{Duration, SystemTime};
use windlass::{TaskError, bad_output, fatal, retryable, skip};

/// Says what became of the step, when it was not done.
const OUTCOME: &str = "windlass-outcome";
/// Longest detail, in characters.
pub(crate) const DETAIL_MAX: usize = 4000;
/// A receiver that wishes for more is asked after this long all the same.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// What a status of success means. `body` is whole.
pub(crate) fn done(headers: &HeaderMap, body: &[u8]) -> Result<Value, TaskError> {
    match headers.get(OUTCOME).map(|value| value.as_bytes()) {
        None => {}
        Some(b"skip") => return Err(skip(reason(body))),
        Some(other) => {
            let other = start_of(&clean(other), 40);
            return Err(bad_output(format!(
                "the header {OUTCOME} is `{other}`; only skip is known"
            )));
        }
    }
    let value = parse(body).map_err(|e| {
        bad_output(format!("the body is not one JSON value: {e}; send JSON, or nothing"))
    })?;
    obey(value)
}

/// What any other status means. `body` is its beginning.
pub(crate) fn failed(
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
    now: SystemTime,
) -> TaskError {
    let text = clean(body);
    let said = first_line(&text).map_or_else(String::new, |line| format!(": {line}"));
    let message = format!("the receiver answered {status}{said}");
    let error = match status.as_u16() {
        408 | 425 | 429 | 500..=599 => match retry_after(headers, now) {
            Some(wish) => retryable(message).after(wish.min(RETRY_AFTER_MAX)),
            None => retryable(message),
        },
        _ => fatal(message),
    };
    let text = text.trim();
    if text.is_empty() { error } else { error.detail(start_of(text, DETAIL_MAX)) }
}

/// Seconds, or a date of HTTP. What is neither is no wish.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than a number holds are a very long time.
        return Some(text.parse().map_or(Duration::MAX, Duration::from_secs));
    }
    let at = httpdate::parse_http_date(text).ok()?;
    Some(at.duration_since(now).unwrap_or_default())
}

fn first_line(text: &str) -> Option<String> {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(start_of(line, MESSAGE_MAX))
}

/// Why a step was skipped: the key `reason` of an object, or the first line.
fn reason(body: &[u8]) -> String {
    let told: Option<Value> = serde_json::from_slice(body).ok();
    let told = match &told {
        Some(Value::Object(fields)) => fields.get("reason").and_then(Value::as_str),
        Some(Value::String(text)) => Some(text.as_str()),
        Some(_) => None,
        None => std::str::from_utf8(body).ok(),
    };
    let line = told.and_then(|text| first_line(&clean(text.as_bytes())));
    line.unwrap_or_else(|| "skipped".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::HeaderValue;
    use serde_json::json;
    use std::time::UNIX_EPOCH;

    fn with(name: &'static str, value: &str) -> HeaderMap {
        let value = HeaderValue::from_str(value).expect("a value");
        HeaderMap::from_iter([(name.parse().expect("a name"), value)])
    }

    fn said(headers: &HeaderMap, body: &str) -> String {
        format!("{:?}", done(headers, body.as_bytes()).expect_err("no value"))
    }

    #[test]
    fn a_body_is_nothing_or_one_value() {
        let none = HeaderMap::new();
        let good = |text: &str| done(&none, text.as_bytes()).expect("a value");
        assert_eq!((good(""), good(" \n"), good("3")), (Value::Null, Value::Null, json!(3)));
        assert_eq!(good("{\"a\":1}\n"), json!({"a": 1}));
        assert!(said(&none, "<html>").starts_with("the body is not one JSON value"));
        assert_eq!(said(&none, r#"{"snooze":"90s"}"#), "again in 90s");
        assert!(said(&none, r#"{"children":[]}"#).starts_with("children are not supported"));
    }

    #[test]
    fn a_header_skips() {
        for (body, reason) in [
            ("", "skipped"),
            ("no faces in it\nmore", "no faces in it"),
            ("{\"reason\":\"no faces\"}", "no faces"),
            ("\"no faces\"", "no faces"),
            ("{\"a\":1}", "skipped"),
            ("[1]", "skipped"),
        ] {
            let told = said(&with(OUTCOME, "skip"), body);
            assert_eq!(told, format!("skipped: {reason}"), "{body}");
        }
        let told = said(&with(OUTCOME, "skipped"), "");
        assert!(told.contains("`skipped`; only skip is known") && told.ends_with("(output)"));
    }

    #[test]
    fn statuses_have_meanings() {
        let none = HeaderMap::new();
        for code in 300..=599u16 {
            let status = StatusCode::from_u16(code).expect("a status");
            let told = format!("{:?}", failed(status, &none, b"\nso it is\nmore", UNIX_EPOCH));
            let is_retried = matches!(code, 408 | 425 | 429 | 500..);
            assert!(told.contains(&format!("{code}")) && told.contains("so it is"), "{told}");
            assert_eq!(told.ends_with("(retryable)"), is_retried, "{told}");
            assert_eq!(told.ends_with("(fatal)"), !is_retried, "{told}");
        }
    }

    #[test]
    fn wishes_to_wait_are_seconds_or_dates() {
        let now = UNIX_EPOCH + Duration::from_secs(784_111_777);
        for (text, seconds) in [
            ("120", Some(120)),
            (" 0 ", Some(0)),
            ("99999999999999999999999999", Some(u64::MAX)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
            ("Sunday, 06-Nov-94 08:50:37 GMT", Some(60)),
            ("Sun Nov  6 08:50:37 1994", Some(60)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("-5", None),
            ("+5", None),
            ("1.5", None),
            ("soon", None),
            ("", None),
        ] {
            let wish = retry_after(&with("retry-after", text), now);
            assert_eq!(wish.map(|wish| wish.as_secs()), seconds, "{text}");
        }
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
    }
}
