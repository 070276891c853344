//! JSON text that is carried, not looked into. A payload is parsed once to
//! prove that it is JSON and then travels as shared text: one allocation from
//! submit to handler, however many hands it passes through.

use crate::error::{Error, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use std::fmt;
use std::sync::Arc;

/// Valid JSON text, cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Json(Arc<str>);

impl Json {
    /// Checks that `text` is one JSON value.
    pub fn parse(text: &str) -> Result<Self> {
        serde_json::from_str::<&RawValue>(text)
            .map(|raw| Json(raw.get().into()))
            .map_err(|e| Error::invalid("json", format!("not valid JSON: {e}")))
    }

    /// For text that this project wrote itself: a stored column, a literal.
    pub fn trusted(text: impl Into<Arc<str>>) -> Self {
        Json(text.into())
    }

    /// Serialises a value.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self> {
        serde_json::to_string(value)
            .map(|text| Json(text.into()))
            .map_err(|e| Error::invalid("json", "the value cannot be written as JSON").because(e))
    }

    /// Reads a value out of it.
    pub fn to<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_str(&self.0)
            .map_err(|e| Error::invalid("json", format!("unexpected JSON: {e}")))
    }

    /// Refuses what would not read back as a `T`. Only a `null` can hide that:
    /// JSON has no NaN and no infinity, and they are written so.
    pub fn reads_back_as<T: DeserializeOwned>(self) -> Result<Self> {
        if self.0.contains("null") {
            self.to::<T>().map_err(|e| {
                Error::invalid("json", format!("the value does not read back: {}", e.message()))
            })?;
        }
        Ok(self)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn is_null(&self) -> bool {
        self.0.trim() == "null"
    }
}

impl Default for Json {
    /// An absent payload is `{}`.
    fn default() -> Self {
        Json("{}".into())
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(s)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Ok(Json(Box::<RawValue>::deserialize(d)?.get().into()))
    }
}
