//! Lists and objects with a limit, for submissions: one that is longer is refused
//! where it gets too long, before the rest of it is read. An entry in memory takes
//! many times the room of its text, so a limit on the body alone is not enough.

use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::marker::PhantomData;

/// A list of at most `MAX` entries.
#[derive(Debug)]
pub(super) struct Few<T, const MAX: usize>(pub(super) Vec<T>);

/// An object of at most `MAX` texts, in their order.
#[derive(Debug)]
pub(super) struct FewTexts<const MAX: usize>(pub(super) Vec<(String, String)>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for Few<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_seq(List::<T, MAX>(PhantomData)).map(Few)
    }
}

impl<'de, const MAX: usize> Deserialize<'de> for FewTexts<MAX> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_map(Texts::<MAX>).map(FewTexts)
    }
}

struct List<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for List<T, MAX> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
        let mut entries = vec![];
        while let Some(entry) = list.next_element()? {
            add::<_, A::Error, MAX>(&mut entries, entry)?;
        }
        Ok(entries)
    }
}

struct Texts<const MAX: usize>;

impl<'de, const MAX: usize> Visitor<'de> for Texts<MAX> {
    type Value = Vec<(String, String)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = vec![];
        while let Some(entry) = map.next_entry()? {
            add::<_, A::Error, MAX>(&mut entries, entry)?;
        }
        Ok(entries)
    }
}

fn add<T, E: Error, const MAX: usize>(entries: &mut Vec<T>, entry: T) -> Result<(), E> {
    if entries.len() == MAX {
        return Err(E::custom(format!("there are more than {MAX}, which is the most")));
    }
    entries.push(entry);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_refused_before_its_end() {
        let two: Few<u8, 2> = serde_json::from_str("[1, 2]").unwrap();
        assert_eq!(two.0, [1, 2]);
        // What follows is no JSON at all, and nobody gets that far.
        let error = serde_json::from_str::<Few<u8, 2>>("[1, 2, 3, ?").unwrap_err();
        assert!(error.to_string().starts_with("there are more than 2"), "{error}");
        let text = r#"{"b": "1", "a": "2"}"#;
        let texts: FewTexts<2> = serde_json::from_str(text).unwrap();
        assert_eq!(texts.0[0].0, "b");
        let error = serde_json::from_str::<FewTexts<1>>(text).unwrap_err();
        assert!(error.to_string().starts_with("there are more than 1"), "{error}");
    }
}
