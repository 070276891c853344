//! Reads fields out of the server's JSON leniently. A newer or older server may
//! leave a field out, and a list must still be shown; so everything here answers
//! with something printable instead of failing. It knows no command.

use serde_json::Value;

/// The value at `path`, in which dots go down into objects.
pub(crate) fn at<'a>(value: &'a Value, path: &str) -> &'a Value {
    path.split('.').try_fold(value, |v, key| v.get(key)).unwrap_or(&Value::Null)
}

/// A text field; empty when there is none.
pub(crate) fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    at(value, path).as_str().unwrap_or("")
}

pub(crate) fn number(value: &Value, path: &str) -> Option<u64> {
    at(value, path).as_u64()
}

/// A list as the API writes it, or a bare array.
pub(crate) fn items(answer: &Value) -> &[Value] {
    let list = answer.get("items").unwrap_or(answer);
    list.as_array().map_or(&[], Vec::as_slice)
}

/// Any value as one line for people: text without quotes, `-` for nothing.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => clean(text),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Array(list) if list.iter().all(|v| !v.is_array() && !v.is_object()) => {
            if list.is_empty() {
                return "-".to_owned();
            }
            list.iter().map(plain).collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}

/// Text of tasks in one line without control characters: an error message must
/// not be able to move the cursor or colour the terminal of whoever reads it.
pub(crate) fn clean(text: &str) -> String {
    harmless(text).trim().to_owned()
}

/// The same for a line whose beginning matters.
pub(crate) fn harmless(line: &str) -> String {
    line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Shortens to `width` characters, with a sign that something is missing.
pub(crate) fn shorten(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(width.saturating_sub(1)).collect();
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn missing_fields_are_not_errors() {
        let task = json!({"failure": {"message": "a\u{1b}[31mb\nc"}, "n": 3});
        assert_eq!(clean(text(&task, "failure.message")), "a [31mb c");
        assert_eq!(text(&task, "failure.step.name"), "");
        assert_eq!(number(&task, "n"), Some(3));
        assert_eq!(plain(at(&task, "nothing")), "-");
        assert!(items(&task).is_empty());
    }

    #[test]
    fn values_are_shown_in_one_line() {
        let table = [
            (json!(["a", 1, true]), "a, 1, yes"),
            (json!([]), "-"),
            (json!({"a": 1}), r#"{"a":1}"#),
            (json!(""), "-"),
            (json!([[1]]), "[[1]]"),
        ];
        for (value, shown) in table {
            assert_eq!(plain(&value), shown);
        }
        assert_eq!(shorten("äöüß", 3), "äö…");
        assert_eq!(shorten("äöü", 3), "äöü");
    }
}
