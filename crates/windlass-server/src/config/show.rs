//! The configuration as text: what holds now as TOML or JSON, with the origin of
//! each value if wanted, and the commented file of defaults. Secrets were taken
//! out by the types that hold them; what came from a file of its own is shown as
//! the name of that file.

use super::layers::Loaded;
use super::locate::quote;
use super::schema::{Key, NAMED, keys_of, tables};
use super::values::{HIDDEN, SecretUrl, redact};
use serde::{Serialize, Serializer};
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Whether each value is followed by where it came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origins {
    Shown,
    Hidden,
}

impl Origins {
    pub fn of(wished: bool) -> Origins {
        if wished { Origins::Shown } else { Origins::Hidden }
    }
}

/// A commented `windlass.toml` with every key and its default.
pub fn default_text() -> &'static str {
    include_str!("default.toml")
}

/// What holds, as a `windlass.toml` that says the same.
pub fn text(loaded: &Loaded, origins: Origins) -> String {
    let mut out = String::new();
    for (path, entries) in shown(loaded) {
        let header: Vec<String> = path.iter().map(|part| quote(part)).collect();
        let gap = if out.is_empty() { "" } else { "\n" };
        let _ = writeln!(out, "{gap}[{}]", header.join("."));
        for Entry { name, value, origin } in entries {
            let _ = match origins {
                Origins::Shown => writeln!(out, "{name} = {value}  # {origin}"),
                Origins::Hidden => writeln!(out, "{name} = {value}"),
            };
        }
    }
    out
}

/// The same for programs. With origins each value is
/// `{"value": .., "origin": ".."}`.
pub fn json(loaded: &Loaded, origins: Origins) -> serde_json::Value {
    let mut all = json!({});
    for (path, entries) in shown(loaded) {
        let mut table = &mut all;
        for part in path {
            table = &mut table[part];
            if table.is_null() {
                *table = json!({});
            }
        }
        for Entry { name, value, origin } in entries {
            table[name] = match origins {
                Origins::Shown => json!({ "value": value, "origin": origin }),
                Origins::Hidden => json!(value),
            };
        }
    }
    all
}

struct Entry {
    name: String,
    value: toml::Value,
    origin: String,
}

/// Every table with what is set in it, in the order of the schema.
fn shown(loaded: &Loaded) -> Vec<(Vec<String>, Vec<Entry>)> {
    // A configuration is plain data; there is nothing in it that TOML lacks.
    let all = toml::Table::try_from(&loaded.config).unwrap_or_default();
    let mut names: Vec<&str> = tables().collect();
    names.dedup();
    let mut shown = vec![];
    for name in names {
        let Some(table) = all.get(name).and_then(toml::Value::as_table) else { continue };
        if NAMED.contains(&name) {
            for (own, inner) in table {
                let path = vec![name.to_owned(), own.clone()];
                let entries = inner.as_table().map(|inner| entries(loaded, &path, inner));
                shown.push((path, entries.unwrap_or_default()));
            }
        } else {
            let path = vec![name.to_owned()];
            let entries = entries(loaded, &path, table);
            shown.push((path, entries));
        }
    }
    shown
}

fn entries(loaded: &Loaded, path: &[String], table: &toml::Table) -> Vec<Entry> {
    let entry = |key: &Key| {
        let name = key.name();
        let value = table.get(name)?.clone();
        let mut path = path.to_vec();
        path.push(name.to_owned());
        let origin = loaded.origin(&path).to_string();
        Some(match loaded.secret(&path) {
            Some(file) => {
                let value = file.display().to_string().into();
                Entry { name: format!("{name}_file"), value, origin }
            }
            None => Entry { name: name.to_owned(), value, origin },
        })
    };
    keys_of(path).filter_map(entry).collect()
}

/// Variables that say how a program behaves, and nothing else.
fn is_harmless(name: &str) -> bool {
    let names = ["LANG", "LANGUAGE", "TZ", "PATH", "HOME", "PYTHONUNBUFFERED", "PYTHONPATH"];
    names.contains(&name) || name.starts_with("LC_")
}

/// A handler's variables without what may be secret.
pub(super) fn env(env: &BTreeMap<String, String>) -> BTreeMap<&str, String> {
    env.iter()
        .map(|(name, value)| {
            // Nobody can tell a key by its name, so only what never is one is shown.
            let value = if is_harmless(name) { redact(value) } else { HIDDEN.to_owned() };
            (name.as_str(), value)
        })
        .collect()
}

pub(super) fn shown_env<S: Serializer>(
    variables: &BTreeMap<String, String>,
    s: S,
) -> Result<S::Ok, S::Error> {
    env(variables).serialize(s)
}

/// A handler's URL without its path and query, which may be keys to the door.
pub(super) fn http(url: &SecretUrl) -> String {
    let shown = url.to_string();
    let host = shown.find("://").map_or(0, |at| at + 3);
    match shown[host..].find(['/', '?']) {
        Some(end) if end + 1 < shown.len() - host => format!("{}/{HIDDEN}", &shown[..host + end]),
        _ => shown,
    }
}

pub(super) fn shown_http<S: Serializer>(url: &Option<SecretUrl>, s: S) -> Result<S::Ok, S::Error> {
    url.as_ref().map(http).serialize(s)
}

/// A handler's headers without what they say.
pub(super) fn headers(headers: &BTreeMap<String, String>) -> BTreeMap<&str, &'static str> {
    headers.keys().map(|name| (name.as_str(), HIDDEN)).collect()
}

pub(super) fn shown_headers<S: Serializer>(
    all: &BTreeMap<String, String>,
    s: S,
) -> Result<S::Ok, S::Error> {
    headers(all).serialize(s)
}
