//! Fields that not everybody may see: which they are, JSON without their values,
//! and text from which those values are taken out. Pure; who may see what is
//! said by the caller's role in `api/`, and what is logged goes through here for
//! everybody.

use serde_json::Value;
use std::borrow::Cow;
use std::str::FromStr;
use windlass::Json;

/// Stands where a value was.
pub const HIDDEN: &str = "[redacted]";
/// Shorter values are not looked for in text: they would match by chance.
const SHORTEST: usize = 4;
/// The same for values that are no fields.
const SECRET_MIN: usize = 8;
/// So many values are looked for in text.
const VALUES_MAX: usize = 500;

/// A field, by its name or by the end of its path: `password`, `card.number`,
/// `headers.*`. Lists on the way do not count; upper and lower case are the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field(Vec<String>);

impl FromStr for Field {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<String> = text.split('.').map(str::to_lowercase).collect();
        if parts.iter().any(String::is_empty) || parts.iter().all(|part| part == "*") {
            return Err(format!("`{text}` names no field; write password or card.number"));
        }
        Ok(Field(parts))
    }
}

impl Field {
    fn matches(&self, path: &[String]) -> bool {
        let Some(start) = path.len().checked_sub(self.0.len()) else { return false };
        self.0.iter().zip(&path[start..]).all(|(part, key)| part == "*" || part == key)
    }
}

/// Takes fields out.
#[derive(Debug, Clone, Default)]
pub struct Redactor {
    fields: Vec<Field>,
}

impl Redactor {
    pub fn new(fields: &[String]) -> Result<Redactor, String> {
        let fields = fields.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
        Ok(Redactor { fields })
    }

    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Hides fields where they are.
    pub fn hide(&self, value: &mut Value) {
        if !self.is_empty() {
            self.walk(value, &mut vec![], &mut |found| *found = Value::from(HIDDEN));
        }
    }

    /// The document without them; what cannot be read is hidden whole.
    pub fn hidden(&self, json: &Json) -> Json {
        if self.is_empty() {
            return json.clone();
        }
        let mut value = json.to().unwrap_or_else(|_| Value::from(HIDDEN));
        self.hide(&mut value);
        Json::of(&value).unwrap_or_default()
    }

    /// The values of a document that must not stand in any text.
    pub fn values(&self, json: &Json) -> Hidden {
        let mut values = vec![];
        if !self.is_empty() {
            let mut value: Value = json.to().unwrap_or_default();
            self.walk(&mut value, &mut vec![], &mut |found| collect(found, &mut values));
        }
        Hidden::new(values.into_iter().filter(|value| value.len() >= SHORTEST))
    }

    /// Whether a thing of this name is one of them, wherever it is.
    pub fn names(&self, name: &str) -> bool {
        let path = [name.to_lowercase()];
        self.fields.iter().any(|field| field.matches(&path))
    }

    fn walk(&self, value: &mut Value, path: &mut Vec<String>, found: &mut impl FnMut(&mut Value)) {
        match value {
            Value::Object(fields) => {
                for (key, value) in fields {
                    path.push(key.to_lowercase());
                    if self.fields.iter().any(|field| field.matches(path)) {
                        found(value);
                    } else {
                        self.walk(value, path, found);
                    }
                    path.pop();
                }
            }
            Value::Array(items) => {
                items.iter_mut().for_each(|item| self.walk(item, path, found));
            }
            _ => {}
        }
    }
}

/// Every text and number within a hidden field.
fn collect(value: &Value, values: &mut Vec<String>) {
    match value {
        Value::String(text) => values.push(text.clone()),
        Value::Number(number) => values.push(number.to_string()),
        Value::Array(items) => items.iter().for_each(|item| collect(item, values)),
        Value::Object(fields) => fields.values().for_each(|item| collect(item, values)),
        Value::Null | Value::Bool(_) => {}
    }
}

/// Values that must not stand in text.
#[derive(Clone, Default)]
pub struct Hidden {
    /// Longer ones first: a value may be part of another.
    texts: Vec<String>,
    /// There are more than are looked for.
    too_many: bool,
}

impl Hidden {
    /// Values that are secret wherever they stand. Short ones are words like
    /// `C.UTF-8` or `true`, and stay.
    pub fn of<'v>(values: impl Iterator<Item = &'v String>) -> Hidden {
        Hidden::new(values.filter(|value| value.len() >= SECRET_MIN).cloned())
    }

    fn new(values: impl Iterator<Item = String>) -> Hidden {
        let mut texts: Vec<String> = values.flat_map(|value| spellings(&value)).collect();
        texts.sort_unstable();
        texts.dedup();
        texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
        let too_many = texts.len() > VALUES_MAX;
        texts.truncate(VALUES_MAX);
        Hidden { texts, too_many }
    }

    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// These and others.
    #[must_use]
    pub fn and(mut self, others: Hidden) -> Hidden {
        self.too_many |= others.too_many;
        self.texts.extend(others.texts);
        self.texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
        self
    }

    /// The text without them. A text with more secrets than are looked for is
    /// hidden whole.
    pub fn scrub<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if self.too_many && !text.is_empty() {
            return HIDDEN.into();
        }
        let mut clean = Cow::Borrowed(text);
        for value in &self.texts {
            if clean.contains(value.as_str()) {
                clean = clean.replace(value.as_str(), HIDDEN).into();
            }
        }
        for value in &self.texts {
            if let Some(halved) = without_halves(&clean, value) {
                clean = halved.into();
            }
        }
        clean
    }
}

/// How a value may be written in a log: as it is, within JSON, within JSON of plain
/// ASCII, and line by line.
fn spellings(value: &str) -> Vec<String> {
    let mut all = vec![value.to_owned()];
    let quoted = serde_json::to_string(value).unwrap_or_default();
    let quoted = quoted.trim_matches('"').to_owned();
    if quoted != value {
        all.push(quoted.clone());
    }
    if !value.is_ascii() {
        let ascii = quoted.chars().flat_map(|c| match c.is_ascii() {
            true => vec![c.to_string()],
            false => c.encode_utf16(&mut [0; 2]).iter().map(|u| format!("\\u{u:04x}")).collect(),
        });
        all.push(ascii.collect());
    }
    if value.contains('\n') {
        let lines = value.lines().map(str::trim).filter(|line| line.len() >= SECRET_MIN);
        all.extend(lines.map(str::to_owned));
    }
    all
}

/// Where a text was cut, half of a value may be left at its end or its beginning.
fn without_halves(text: &str, value: &str) -> Option<String> {
    let least = SHORTEST.max(value.len().div_ceil(2));
    let cuts = || (least..value.len()).rev().filter(|at| value.is_char_boundary(*at));
    let end = cuts().find(|at| text.ends_with(&value[..*at]));
    let begin = cuts().map(|at| value.len() - at).filter(|at| value.is_char_boundary(*at));
    let begin = begin.clone().find(|at| text.starts_with(&value[*at..]));
    if end.is_none() && begin.is_none() {
        return None;
    }
    let from = begin.map_or(0, |at| value.len() - at);
    let to = (text.len() - end.unwrap_or(0)).max(from);
    let (before, after) =
        (if from > 0 { HIDDEN } else { "" }, if end.is_some() { HIDDEN } else { "" });
    Some(format!("{before}{}{after}", &text[from..to]))
}

impl std::fmt::Debug for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} values", self.texts.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn redactor(fields: &[&str]) -> Redactor {
        let fields: Vec<String> = fields.iter().map(|f| (*f).to_owned()).collect();
        Redactor::new(&fields).unwrap()
    }

    fn hidden(fields: &[&str], mut value: Value) -> Value {
        redactor(fields).hide(&mut value);
        value
    }

    #[test]
    fn fields_are_found_by_name_and_by_the_end_of_their_path() {
        let value = || {
            json!({"Password": "s3cret", "card": {"number": 4111, "name": "Ann"},
            "list": [{"password": ["a", "b"]}], "number": 7})
        };
        assert_eq!(
            hidden(&["password"], value()),
            json!({"Password": HIDDEN, "card": {"number": 4111, "name": "Ann"},
                "list": [{"password": HIDDEN}], "number": 7})
        );
        assert_eq!(
            hidden(&["card.number"], json!({"a": {"card": [{"number": 1}]}, "number": 7})),
            json!({"a": {"card": [{"number": HIDDEN}]}, "number": 7})
        );
        assert_eq!(
            hidden(&["headers.*"], json!({"headers": {"a": 1, "b": {"c": 2}}, "x": 1})),
            json!({"headers": {"a": HIDDEN, "b": HIDDEN}, "x": 1})
        );
        assert_eq!(hidden(&[], value()), value());
    }

    #[test]
    fn what_names_no_field_is_refused() {
        for bad in ["", "a..b", ".a", "*", "*.*"] {
            assert!(bad.parse::<Field>().unwrap_err().contains("names no field"), "{bad}");
        }
    }

    #[test]
    fn values_are_taken_out_of_text() {
        let json =
            Json::of(&json!({"password": "hunter2", "pin": 12, "token": {"a": "hunter2-more"}}));
        let values = redactor(&["password", "token", "pin"]).values(&json.unwrap());
        let text = "login hunter2-more failed for hunter2 at 12:00";
        assert_eq!(values.scrub(text), "login [redacted] failed for [redacted] at 12:00");
        assert!(matches!(values.scrub("nothing here"), Cow::Borrowed(_)));
        assert!(!format!("{values:?}").contains("hunter2"));
    }

    #[test]
    fn values_are_found_however_they_are_written() {
        let odd = "pä\"ss\\word-1";
        let key = "-----BEGIN KEY-----\nMIIEvQIBADANBg\n-----END KEY-----";
        let json = Json::of(&json!({"password": odd, "key": key})).unwrap();
        let values = redactor(&["password", "key"]).values(&json);
        for text in [
            format!("login with {odd} failed"),
            json.as_str().to_owned(),
            r#"{"password": "p\u00e4\"ss\\word-1"}"#.to_owned(),
            "line MIIEvQIBADANBg of a key".to_owned(),
        ] {
            let clean = values.scrub(&text);
            assert!(clean.contains(HIDDEN), "{clean}");
            assert!(!clean.contains("word-1") && !clean.contains("MIIE"), "{clean}");
        }
    }

    #[test]
    fn halves_at_a_cut_and_too_many_are_hidden() {
        let json = Json::of(&json!({"password": "hunter2-canary"})).unwrap();
        let values = redactor(&["password"]).values(&json);
        assert_eq!(values.scrub("with hunter2-can"), "with [redacted]");
        assert_eq!(values.scrub("r2-canary failed"), "[redacted] failed");
        assert_eq!(values.scrub("a hunt"), "a hunt");
        let many: Vec<String> = (0..1000).map(|i| format!("secret-number-{i}")).collect();
        let json = Json::of(&json!({ "password": many })).unwrap();
        let values = redactor(&["password"]).values(&json);
        assert_eq!(values.scrub("nothing of it"), HIDDEN);
    }

    #[test]
    fn a_document_that_cannot_be_read_is_hidden_whole() {
        let broken = Json::trusted("{\"password\": ");
        assert_eq!(redactor(&["password"]).hidden(&broken).as_str(), "\"[redacted]\"");
        assert_eq!(redactor(&[]).hidden(&broken), broken);
    }
}
