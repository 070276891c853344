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
/// So many values of one document are looked for in text.
const VALUES_MAX: usize = 100;

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
        if self.is_empty() {
            return Hidden(values);
        }
        let mut value: Value = json.to().unwrap_or_default();
        self.walk(&mut value, &mut vec![], &mut |found| collect(found, &mut values));
        // Longer ones first: a value may be part of another.
        values.sort_by_key(|text: &String| std::cmp::Reverse(text.len()));
        values.truncate(VALUES_MAX);
        Hidden(values)
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
pub struct Hidden(Vec<String>);

impl Hidden {
    /// Values that are secret wherever they stand. Short ones are words like
    /// `C.UTF-8` or `true`, and stay.
    pub fn of<'v>(values: impl Iterator<Item = &'v String>) -> Hidden {
        let values = values.filter(|value| value.len() >= SECRET_MIN).cloned();
        Hidden(values.collect()).and(Hidden::default())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// These and others.
    #[must_use]
    pub fn and(mut self, others: Hidden) -> Hidden {
        self.0.extend(others.0);
        self.0.sort_by_key(|text| std::cmp::Reverse(text.len()));
        self
    }

    /// The text without them.
    pub fn scrub<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut clean = Cow::Borrowed(text);
        for value in self.0.iter().filter(|value| value.len() >= SHORTEST) {
            if clean.contains(value.as_str()) {
                clean = clean.replace(value.as_str(), HIDDEN).into();
            }
        }
        clean
    }
}

impl std::fmt::Debug for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} values", self.0.len())
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
    fn a_document_that_cannot_be_read_is_hidden_whole() {
        let broken = Json::trusted("{\"password\": ");
        assert_eq!(redactor(&["password"]).hidden(&broken).as_str(), "\"[redacted]\"");
        assert_eq!(redactor(&[]).hidden(&broken), broken);
    }
}
