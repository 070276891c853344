//! What a handler may give, wherever it runs: nothing or one JSON value, in which
//! some keys of an object ask for something and are taken out. Pure; how the
//! bytes came is not known here.

use serde_json::{Map, Value};
use windlass::core::clock::parse_duration;
use windlass::{TaskError, bad_output, snooze};

/// The value; of nothing it is null.
pub(crate) fn parse(output: &[u8]) -> serde_json::Result<Value> {
    if output.trim_ascii().is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(output)
}

/// Takes out the keys that ask for something.
pub(crate) fn obey(output: Value) -> Result<Value, TaskError> {
    let Value::Object(mut fields) = output else { return Ok(output) };
    if fields.contains_key("children") {
        return Err(bad_output("children are not supported by this version yet"));
    }
    match take_snooze(&mut fields)? {
        Some(later) => Err(later),
        None => Ok(Value::Object(fields)),
    }
}

fn take_snooze(fields: &mut Map<String, Value>) -> Result<Option<TaskError>, TaskError> {
    let Some(wish) = fields.remove("snooze") else { return Ok(None) };
    let delay = wish.as_str().and_then(|text| parse_duration(text).ok());
    let delay = delay
        .ok_or_else(|| bad_output(format!("snooze is {wish:.40}; use a duration like \"5m\"")))?;
    if !fields.is_empty() {
        tracing::warn!("the step snoozes and runs again; the rest of its output is dropped");
    }
    Ok(Some(snooze(delay)))
}
