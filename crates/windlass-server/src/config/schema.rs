//! Every key that exists, in the order in which people read them: its path, what
//! may be written there, and whether this version can do it. Reading, suggesting,
//! showing and the environment all go by this one list. What a value means is in
//! `Config`; a test keeps the two equal.

use super::choices::{AuthMode, OnMismatch, Pool, UiMode, UnknownErrors, UnknownKinds};
use super::shape::Shape;
use windlass::{Exponential, SLOTS_MAX};
use windlass_core::store::CLAIM_MAX;

/// One key.
#[derive(Debug)]
pub(super) struct Key {
    /// Parts between dots; `*` is a name that users choose.
    pub(super) path: &'static str,
    pub(super) shape: Shape,
    pub(super) support: Support,
}

#[derive(Debug)]
pub(super) enum Support {
    Full,
    /// Accepted only as this TOML value, its default; empty: not at all.
    NotYet(&'static str),
}

const fn key(path: &'static str, shape: Shape) -> Key {
    Key { path, shape, support: Support::Full }
}

const fn later(path: &'static str, default: &'static str) -> Key {
    Key { path, shape: Shape::Anything, support: Support::NotYet(default) }
}

/// Tables whose users choose the names of what is in them.
pub(super) const NAMED: [&str; 3] = ["queues", "kinds", "handlers"];
/// Tables of which nothing works yet.
pub(super) const LATER_TABLES: [&str; 3] = ["limits", "sinks", "streams"];

const SLOTS: Shape = Shape::Whole(1, SLOTS_MAX as i64);

pub(super) const KEYS: &[Key] = &[
    key("server.listen", Shape::Address),
    later("server.tls_cert", "\"\""),
    later("server.tls_key", "\"\""),
    key("server.body_max", Shape::Size),
    key("server.bulk_max", Shape::Size),
    key("server.unknown_kinds", Shape::choice(UnknownKinds::WORDS)),
    key(
        "store.url",
        Shape::Url { now: &["sqlite", "memory"], soon: &["postgres", "postgresql", "mysql"] },
    ),
    key("transport.url", Shape::Url { now: &["store"], soon: &["kafka", "amqp", "amqps"] }),
    later("transport.topic", "\"windlass-tasks\""),
    later("transport.group", "\"windlass\""),
    later("transport.partitions", "8"),
    later("transport.replication", "1"),
    later("transport.retention", "\"7d\""),
    later("transport.options", "{}"),
    key("redis.url", Shape::Url { now: &[""], soon: &["redis", "rediss"] }),
    later("redis.prefix", "\"dev\""),
    later("redis.on_unavailable", "\"store\""),
    key("checkpoints.home", Shape::Choice { now: &["store"], soon: &["redis"] }),
    later("checkpoints.ttl", "\"7d\""),
    key("checkpoints.on_mismatch", Shape::choice(OnMismatch::WORDS)),
    key("defaults.retry", Shape::Retry(Exponential::TASK)),
    key("defaults.step_retry", Shape::Retry(Exponential::STEP)),
    key("defaults.step_timeout", Shape::TIMEOUT),
    key("defaults.task_timeout", Shape::TIMEOUT),
    key("defaults.deadline", Shape::Deadline),
    key("defaults.idempotency_ttl", Shape::TIMEOUT),
    key("defaults.unknown_errors", Shape::choice(UnknownErrors::WORDS)),
    key("defaults.payload_max", Shape::Size),
    key("defaults.cancel_grace", Shape::ANY_DURATION),
    key("defaults.poison_limit", Shape::Whole(0, u32::MAX as i64)),
    key("node.name", Shape::Text),
    // A heartbeat comes every third of the lease.
    key("node.lease", Shape::Duration { least_ms: 30 }),
    key("node.poll", Shape::TIMEOUT),
    key("node.claim_max", Shape::Whole(1, CLAIM_MAX as i64)),
    key("node.cpu_threads", Shape::Whole(0, 1024)),
    key("shutdown.grace", Shape::ANY_DURATION),
    key("retention.ended", Shape::ANY_DURATION),
    key("retention.dead_letters", Shape::ANY_DURATION),
    key("retention.events", Shape::ANY_DURATION),
    key("retention.audit", Shape::ANY_DURATION),
    key("queues.*.concurrency", SLOTS),
    key("queues.*.depth_max", Shape::Whole(1, i64::MAX)),
    key("kinds.*.queue", Shape::Name),
    key("kinds.*.steps", Shape::Names),
    key("kinds.*.pool", Shape::choice(Pool::WORDS)),
    key("kinds.*.priority", Shape::Whole(-10, 10)),
    key("kinds.*.concurrency", SLOTS),
    later("kinds.*.cluster_concurrency", ""),
    later("kinds.*.limit", ""),
    key("kinds.*.retry", Shape::Retry(Exponential::TASK)),
    key("kinds.*.step_retry", Shape::Retry(Exponential::STEP)),
    key("kinds.*.step_timeout", Shape::TIMEOUT),
    key("kinds.*.task_timeout", Shape::TIMEOUT),
    key("kinds.*.deadline", Shape::Deadline),
    key("kinds.*.unknown_errors", Shape::choice(UnknownErrors::WORDS)),
    key("handlers.*.exec", Shape::Argv),
    key("handlers.*.timeout", Shape::TIMEOUT),
    key("handlers.*.env", Shape::Env),
    later("handlers.*.undo", "\"\""),
    key("handlers.*.http", Shape::HttpUrl),
    key("handlers.*.allow_private", Shape::Flag),
    key("handlers.*.secret", Shape::SigningSecret),
    key("handlers.*.headers", Shape::Headers),
    later("inputs.max_size", "\"1GiB\""),
    later("inputs.allow_private", "false"),
    later("inputs.roots", "[]"),
    key("auth.mode", Shape::choice(AuthMode::WORDS)),
    key("auth.tokens_file", Shape::Text),
    key("auth.rate", Shape::Rate),
    key("redact.fields", Shape::Fields),
    key("ui.mode", Shape::choice(UiMode::WORDS)),
];

/// What a key of a table is.
#[derive(Debug)]
pub(super) enum Found {
    Value(&'static Key),
    /// `NAME_file` for the key `NAME`.
    FileOf(&'static Key),
    Table,
    /// A name that the user chose.
    Name,
    /// A table of which nothing works yet.
    Later,
    Unknown,
}

/// What `key` is within the table `table`.
pub(super) fn look(table: &[String], key: &str) -> Found {
    let within = |name: &str| {
        let path: Vec<&str> = table.iter().map(String::as_str).chain([name]).collect();
        KEYS.iter().find(|k| k.matches(&path))
    };
    if let Some(key) = within(key) {
        return Found::Value(key);
    }
    if let [named] = table
        && NAMED.contains(&named.as_str())
    {
        return Found::Name;
    }
    if table.is_empty() && LATER_TABLES.contains(&key) {
        return Found::Later;
    }
    if table.is_empty() && tables().any(|known| known == key) {
        return Found::Table;
    }
    match key.strip_suffix("_file").and_then(within) {
        Some(key) if key.shape.is_text() => Found::FileOf(key),
        _ => Found::Unknown,
    }
}

impl Key {
    fn matches(&self, path: &[&str]) -> bool {
        let mut parts = self.path.split('.');
        let same = path.iter().all(|part| parts.next().is_some_and(|p| p == *part || p == "*"));
        same && parts.next().is_none()
    }

    /// The part after the last dot.
    pub(super) fn name(&self) -> &'static str {
        self.path.rsplit('.').next().unwrap_or(self.path)
    }

    /// The table it belongs to, with `*` for a name.
    pub(super) fn table(&self) -> &'static str {
        self.path.rsplit_once('.').map_or("", |(table, _)| table)
    }
}

/// The tables at the top, in order, each as often as it has keys.
pub(super) fn tables() -> impl Iterator<Item = &'static str> {
    KEYS.iter().filter_map(|key| key.path.split('.').next())
}

/// The keys within a table.
pub(super) fn keys_of(table: &[String]) -> impl Iterator<Item = &'static Key> {
    let wanted = match table {
        [named, _] => format!("{named}.*"),
        _ => table.join("."),
    };
    KEYS.iter().filter(move |key| key.table() == wanted)
}

/// What may stand within a table, for suggestions.
pub(super) fn names_in(table: &[String]) -> Vec<&'static str> {
    if table.is_empty() {
        return tables().chain(LATER_TABLES).collect();
    }
    keys_of(table).map(Key::name).collect()
}

/// Where a key that stands in the wrong table belongs.
pub(super) fn home_of(name: &str) -> Option<&'static str> {
    KEYS.iter().find(|key| key.name() == name).map(Key::table)
}

#[cfg(test)]
mod tests {
    use super::super::{Config, FileFlags, Loaded, Surroundings, default_text, load};
    use super::*;
    use std::collections::BTreeSet;

    /// The file of defaults with its examples in force.
    fn everything() -> String {
        let example = |line: &'static str| match line.strip_prefix('#') {
            Some(rest) if !rest.starts_with(' ') => rest,
            _ => line,
        };
        default_text().lines().map(example).collect::<Vec<_>>().join("\n")
    }

    fn loaded(text: &str) -> Loaded {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("windlass.toml"), text).unwrap();
        let around = Surroundings { dir: dir.path().to_owned(), ..Surroundings::default() };
        load(&FileFlags::default(), &around).unwrap()
    }

    fn paths(table: &toml::Table) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for (name, value) in table {
            for (key, value) in value.as_table().into_iter().flatten() {
                match value.as_table() {
                    Some(inner) if NAMED.contains(&name.as_str()) => {
                        found.extend(inner.keys().map(|key| format!("{name}.*.{key}")));
                    }
                    _ => drop(found.insert(format!("{name}.{key}"))),
                }
            }
        }
        found
    }

    #[test]
    fn schema_types_and_file_of_defaults_know_the_same_keys() {
        let supported = KEYS.iter().filter(|key| matches!(key.support, Support::Full));
        let supported: BTreeSet<String> = supported.map(|key| key.path.to_owned()).collect();
        let written: toml::Table = everything().parse().unwrap();
        assert_eq!(paths(&written), supported);
        let typed = toml::Table::try_from(loaded(&everything()).config).unwrap();
        assert_eq!(paths(&typed), supported);
    }

    #[test]
    fn the_file_of_defaults_says_the_defaults_and_its_examples_hold() {
        let plain = loaded(default_text());
        assert_eq!((plain.config, plain.warnings), (Config::default(), vec![]));
        let config = loaded(&everything()).config;
        assert_eq!(config.kinds["file.ingest"].retry.map(|r| r.retries), Some(5));
    }

    #[test]
    fn the_reference_describes_every_key() {
        let reference = include_str!("../../../../docs/reference/configuration.md");
        for key in KEYS {
            let row = format!("| `{}` |", key.name());
            assert!(reference.contains(&row), "{} is not described", key.path);
        }
    }

    #[test]
    fn defaults_that_are_accepted_are_toml() {
        for key in KEYS {
            if let Support::NotYet(default) = key.support {
                assert!(default.is_empty() || toml::de::DeValue::parse(default).is_ok(), "{key:?}");
            }
        }
    }
}
