//! Reads a payload from the command line: `k=v` words, or a JSON document given
//! as text, file or stdin. The rule for `k=v` is short enough to remember: what
//! is a JSON number, truth value, list or object is taken as such, the rest is
//! text, and `k:=` takes any JSON.

use crate::cli::failure::{Exit, Failure};
use serde_json::{Map, Value};
use std::io::Read;

/// An object from `k=v` and `k:=json` words.
pub(crate) fn from_fields(words: &[String]) -> Result<Value, Failure> {
    let mut payload = Map::new();
    for word in words {
        let (key, value) = field(word)?;
        if payload.insert(key.to_owned(), value).is_some() {
            let message = format!("the field `{key}` was given twice");
            return Err(Failure::usage(message, "give each field once; a list is k=[1,2]"));
        }
    }
    Ok(Value::Object(payload))
}

fn field(word: &str) -> Result<(&str, Value), Failure> {
    let wrong = || {
        let message = format!("`{word}` is not a field of a payload");
        Failure::usage(message, "write KEY=VALUE, or KEY:=JSON, or give the payload with --data")
    };
    let (key, text) = word.split_once('=').ok_or_else(wrong)?;
    let (key, value) = match key.strip_suffix(':') {
        Some(key) => (key, json(text, &format!("the value of `{key}`"))?),
        None => (key, guess(text)),
    };
    if key.is_empty() { Err(wrong()) } else { Ok((key, value)) }
}

fn guess(text: &str) -> Value {
    let as_text = || Value::String(text.to_owned());
    if text.trim() != text {
        return as_text();
    }
    match serde_json::from_str(text) {
        Ok(value @ (Value::Bool(_) | Value::Array(_) | Value::Object(_))) => value,
        // A number with more digits than a number can hold is an identifier.
        Ok(Value::Number(n)) if !n.is_f64() || text.contains(['.', 'e', 'E']) => Value::Number(n),
        _ => as_text(),
    }
}

/// A payload from `--data`: JSON, `@file`, or `-` for stdin.
pub(crate) async fn from_data(data: &str) -> Result<Value, Failure> {
    let text = match data.strip_prefix('@') {
        _ if data == "-" => read_stdin().await?,
        Some(path) => std::fs::read_to_string(path).map_err(|e| {
            Failure::usage(format!("cannot read {path}: {e}"), "--data @FILE names a JSON file")
        })?,
        None => data.to_owned(),
    };
    json(&text, "--data")
}

async fn read_stdin() -> Result<String, Failure> {
    // On a thread of its own, so that an interrupt is still heard.
    let read = tokio::task::spawn_blocking(|| {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    });
    let text = read.await.unwrap_or_else(|e| Err(std::io::Error::other(e)));
    text.map_err(|e| {
        Failure::new(Exit::Failed, format!("cannot read stdin: {e}"), "pipe one JSON document in")
    })
}

fn json(text: &str, what: &str) -> Result<Value, Failure> {
    serde_json::from_str(text).map_err(|e| {
        let hint = "check it with a JSON tool; a shell takes quotes away, so put it in '...'";
        Failure::usage(format!("{what} is not valid JSON: {e}"), hint)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_what_they_look_like() {
        let table = [
            ("k=3", json!(3)),
            ("k=-2.5", json!(-2.5)),
            ("k=1e3", json!(1000.0)),
            ("k=true", json!(true)),
            ("k=[1,\"a\"]", json!([1, "a"])),
            ("k={\"a\":{}}", json!({"a": {}})),
            ("k=null", json!("null")),
            ("k=\"x\"", json!("\"x\"")),
            ("k=00123", json!("00123")),
            ("k=+3", json!("+3")),
            ("k= 3", json!(" 3")),
            ("k=123456789012345678901234567890", json!("123456789012345678901234567890")),
            ("k=18446744073709551615", json!(u64::MAX)),
            ("k=", json!("")),
            ("k=a=b", json!("a=b")),
            ("k=http://x/?a=b", json!("http://x/?a=b")),
            ("k=[not a list", json!("[not a list")),
            ("k:=null", json!(null)),
            ("k:=\"3\"", json!("3")),
            ("k:=[1]", json!([1])),
        ];
        for (word, value) in table {
            assert_eq!(field(word).unwrap(), ("k", value), "{word}");
        }
    }

    #[test]
    fn mistakes_are_usage_errors() {
        for words in [&["k"][..], &["=v"], &[":=1"], &["k:=x"], &["k:="], &["k=1", "k=2"]] {
            let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
            let failure = from_fields(&words).unwrap_err();
            assert_eq!(failure.code, Exit::Usage, "{words:?}");
            assert!(!failure.hint.is_empty());
        }
    }

    #[tokio::test]
    async fn data_from_text_and_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.json");
        std::fs::write(&path, "{\"a\": 1}").unwrap();
        let from_file = from_data(&format!("@{}", path.display())).await.unwrap();
        assert_eq!(from_file, from_data("{\"a\":1}").await.unwrap());
        assert!(from_data("{a:1}").await.unwrap_err().message.contains("--data"));
        assert_eq!(from_data("@nowhere.json").await.unwrap_err().code, Exit::Usage);
    }
}
