//! What the end of a handler process means for its step: exit code, output and
//! the end of its log, turned into what the engine understands. Pure; the
//! process is gone when this is asked.

use super::output::{obey, parse};
use super::pipes::OUTPUT_MAX;
use super::tail::{MESSAGE_MAX, end_of};
use serde_json::Value;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use windlass::{TaskError, bad_output, fatal, retryable, skip, unknown};

/// Input is wrong and stays so (`EX_DATAERR`).
const FATAL: i32 = 65;
/// Try again (`EX_TEMPFAIL`).
const RETRYABLE: i32 = 75;
/// Not needed, as test suites say it.
const SKIP: i32 = 77;
/// Longest detail, in characters; the whole log is kept with the step.
const DETAIL_MAX: usize = 4000;

/// `log` is the end of what the process wrote to its standard error.
pub(crate) fn verdict(ended: ExitStatus, output: &[u8], log: &str) -> Result<Value, TaskError> {
    let said = last_line(log);
    let because = |what: String| match &said {
        Some(line) => format!("{what}: {line}"),
        None => what,
    };
    let error = match (ended.code(), ended.signal()) {
        (Some(0), _) => return obey(read(output)?),
        (Some(SKIP), _) => return Err(skip(said.as_deref().unwrap_or("skipped"))),
        (Some(FATAL), _) => fatal(said.as_deref().unwrap_or("exit code 65")),
        (Some(RETRYABLE), _) => retryable(said.as_deref().unwrap_or("exit code 75")),
        (Some(code), _) => unknown(because(format!("exit code {code}"))),
        (None, Some(signal)) => unknown(because(format!("killed by signal {signal}"))),
        (None, None) => unknown(because(format!("ended as {ended}"))),
    };
    let log = log.trim_end();
    Err(if log.is_empty() { error } else { error.detail(end_of(log, DETAIL_MAX)) })
}

/// More was written than is taken.
pub(crate) fn too_much() -> TaskError {
    bad_output(format!("stdout has more than {OUTPUT_MAX} bytes; put large results elsewhere"))
}

fn read(output: &[u8]) -> Result<Value, TaskError> {
    parse(output)
        .map_err(|e| bad_output(format!("stdout is not one JSON value: {e}; log to stderr")))
}

/// The last line with something on it, by its end when it is long.
fn last_line(log: &str) -> Option<String> {
    let line = log.lines().map(str::trim).rfind(|line| !line.is_empty())?;
    Some(end_of(line, MESSAGE_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn exit(code: i32) -> ExitStatus {
        ExitStatus::from_raw(code << 8)
    }

    fn said(ended: ExitStatus, output: &str, log: &str) -> String {
        format!("{:?}", verdict(ended, output.as_bytes(), log).expect_err("no value"))
    }

    #[test]
    fn output_is_nothing_or_one_value() {
        let good = |text: &str| verdict(exit(0), text.as_bytes(), "").expect("a value");
        assert_eq!((good(""), good(" \n")), (Value::Null, Value::Null));
        assert_eq!(good("{\"a\":1}\n"), json!({"a": 1}));
        assert_eq!((good("3"), good("[1]"), good("null")), (json!(3), json!([1]), Value::Null));
        let bad = said(exit(0), "{\"a\":1}\n{\"b\":2}", "");
        assert!(bad.contains("line 2 column 1") && bad.ends_with("(output)"), "{bad}");
        assert!(said(exit(0), "scanning", "").contains("line 1 column 1"));
    }

    #[test]
    fn wishes_are_taken_out() {
        assert_eq!(said(exit(0), r#"{"snooze":"90s","a":1}"#, ""), "again in 90s");
        assert!(said(exit(0), r#"{"snooze":5}"#, "").contains("snooze is 5"));
        assert!(said(exit(0), r#"{"children":[]}"#, "").starts_with("children are not supported"));
    }

    #[test]
    fn codes_have_meanings() {
        let log = "first\nthe last word\n\n";
        assert_eq!(said(exit(77), "", log), "skipped: the last word");
        assert_eq!(said(exit(77), "", ""), "skipped: skipped");
        assert_eq!(said(exit(65), "ignored", log), "the last word (fatal)");
        assert_eq!(said(exit(75), "", ""), "exit code 75 (retryable)");
        assert_eq!(said(exit(3), "", log), "exit code 3: the last word (unknown)");
        assert_eq!(said(ExitStatus::from_raw(9), "", ""), "killed by signal 9 (unknown)");
    }

    #[test]
    fn a_long_line_is_told_by_its_end() {
        let line = last_line(&format!("{}end", "ä".repeat(2000))).expect("a line");
        assert_eq!((line.chars().count(), line.ends_with("äend")), (MESSAGE_MAX + 1, true));
    }
}
