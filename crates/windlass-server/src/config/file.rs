//! Reads one source, a file, a variable or a flag, into settings with their
//! origins, and every mistake in it with its place. Comes before `layers.rs`,
//! which lays the sources over each other; knows keys only through the schema.

use super::locate::{Origin, Problem, Source, dotted};
use super::schema::{self, Found, Key, Support, look};
use super::shape::{Shape, plain};
use super::suggest::nearest;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use windlass_core::task::QueueName;

/// One key that was set.
#[derive(Debug)]
pub(super) struct Set {
    pub(super) path: Vec<String>,
    pub(super) value: toml::Value,
    pub(super) origin: Origin,
    /// The file named by the `_file` form.
    pub(super) secret: Option<PathBuf>,
}

/// What a source says.
#[derive(Debug, Default)]
pub(super) struct Layer {
    pub(super) set: Vec<Set>,
    /// Named tables that are there, even empty ones.
    pub(super) named: Vec<(Vec<String>, Origin)>,
    pub(super) problems: Vec<Problem>,
}

/// Reads a file's text. `dir` is where paths begin.
pub(super) fn read_text(name: &str, text: &str, dir: &Path) -> Layer {
    let source = Source::File { name, text };
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut reading = Reading { source, dir, layer: Layer::default(), mistakes: vec![] };
    for error in errors {
        let at = error.span().map_or(0, |span| span.start);
        let hint = "this is not TOML; look for a missing quote, bracket or `=`";
        reading.mistake(at, error.message().to_owned(), hint.to_owned());
    }
    // What a broken file means is a guess; complaints about guesses mislead.
    if reading.mistakes.is_empty() {
        reading.table(&[], table.get_ref());
    }
    reading.finish()
}

/// Reads a single value given elsewhere than in a file.
pub(super) fn read_value(
    source: Source<'_>,
    path: &[String],
    value: Spanned<DeValue<'_>>,
    dir: &Path,
) -> Layer {
    let mut reading = Reading { source, dir, layer: Layer::default(), mistakes: vec![] };
    if let Some((key, tables)) = path.split_last() {
        reading.through(tables, key, value);
    }
    reading.finish()
}

struct Reading<'a> {
    source: Source<'a>,
    dir: &'a Path,
    layer: Layer,
    /// With their offsets, to be sorted.
    mistakes: Vec<(usize, Problem)>,
}

impl Reading<'_> {
    fn finish(mut self) -> Layer {
        self.mistakes.sort_by_key(|(at, _)| *at);
        self.layer.problems = self.mistakes.into_iter().map(|(_, problem)| problem).collect();
        self.layer
    }

    fn mistake(&mut self, at: usize, message: String, hint: impl Into<String>) {
        self.mistakes.push((at, Problem { at: self.source.at(at), message, hint: hint.into() }));
    }

    fn table(&mut self, path: &[String], table: &DeTable<'_>) {
        for (key, value) in table {
            self.entry(path, key.get_ref(), key.span().start, value);
        }
    }

    /// Passes the tables that lead to `key`, as if they were written.
    fn through(&mut self, tables: &[String], key: &str, value: Spanned<DeValue<'_>>) {
        for (i, table) in tables.iter().enumerate() {
            match look(&tables[..i], table) {
                Found::Table | Found::Name => {}
                Found::Value(known) => {
                    let spelled = self.source.spell(&tables[..i], known.name());
                    let whole = spelled.split("__").take(i + 1).collect::<Vec<_>>().join("__");
                    let message = format!("`{}` is one value", dotted(&tables[..=i]));
                    return self.mistake(0, message, format!("set it whole, with {whole}"));
                }
                Found::Later => return self.later(0, &dotted(&tables[..=i])),
                Found::FileOf(_) | Found::Unknown => return self.unknown(&tables[..i], table, 0),
            }
        }
        if let [named, name] = tables
            && schema::NAMED.contains(&named.as_str())
        {
            self.name(named, name, 0);
        }
        self.entry(tables, key, 0, &value);
    }

    fn entry(&mut self, table: &[String], key: &str, at: usize, value: &Spanned<DeValue<'_>>) {
        let mut path = table.to_vec();
        path.push(key.to_owned());
        match look(table, key) {
            Found::Value(known) => self.value(known, path, at, value),
            Found::FileOf(known) => self.value_in_file(known, path, at, value),
            Found::Table | Found::Name => {
                if let [named] = table {
                    self.name(named, key, at);
                }
                match value.get_ref().as_table() {
                    Some(inner) => self.table(&path, inner),
                    None => {
                        let message = format!("`{}` is a table", dotted(&path));
                        self.mistake(at, message, format!("write [{}]", dotted(&path)));
                    }
                }
            }
            Found::Later => match value.get_ref().as_table() {
                Some(inner) if inner.is_empty() => {}
                _ => self.later(at, &dotted(&path)),
            },
            Found::Unknown => self.unknown(table, key, at),
        }
    }

    /// A name that the user chose for a queue, kind or handler.
    fn name(&mut self, named: &str, name: &str, at: usize) {
        if QueueName::new(name).is_err() {
            let hint = "use 1 to 200 letters, digits and . _ - : /".to_owned();
            self.mistake(at, format!("`{name}` cannot be a name in [{named}]"), hint);
        }
        let path = vec![named.to_owned(), name.to_owned()];
        self.layer.named.push((path, self.source.at(at)));
    }

    fn later(&mut self, at: usize, what: &str) {
        let message = format!("`{what}` is not supported by this version yet");
        self.mistake(at, message, "leave it out".to_owned());
    }

    fn value(&mut self, known: &Key, path: Vec<String>, at: usize, value: &Spanned<DeValue<'_>>) {
        if let Support::NotYet(default) = known.support {
            let found = plain(value.get_ref());
            let default = DeValue::parse(default).ok().map(|value| plain(value.get_ref()));
            if default.as_ref() != Some(&found) && found.as_str() != Some("") {
                self.later(at, &dotted(&path));
            }
            return;
        }
        let Some(value) = self.with_files(known, &path, value) else { return };
        match known.shape.check(&value) {
            Ok(value) => self.set(path, value, at, None),
            Err(wrong) => {
                let message = format!("`{}`: {}", dotted(&path), wrong.message);
                self.mistake(wrong.at, message, wrong.hint);
            }
        }
    }

    /// Headers with what their `NAME_file` forms name; any other value as it is.
    fn with_files<'v>(
        &mut self,
        known: &Key,
        path: &[String],
        value: &Spanned<DeValue<'v>>,
    ) -> Option<Spanned<DeValue<'v>>> {
        let (Shape::Headers, DeValue::Table(table)) = (known.shape, value.get_ref()) else {
            return Some(value.clone());
        };
        let mut read = DeTable::new();
        for (name, item) in table {
            let (bare, item) = match name.get_ref().strip_suffix("_file") {
                Some(bare) => {
                    let written = format!("{}.{}", dotted(path), name.get_ref());
                    let content = self.content(&written, item)?;
                    let text = DeValue::String(content.into());
                    (bare.to_owned().into(), Spanned::new(item.span(), text))
                }
                None => (name.get_ref().clone(), item.clone()),
            };
            if read.insert(Spanned::new(name.span(), bare), item).is_some() {
                let message = format!("`{}`: `{}` stands twice", dotted(path), name.get_ref());
                self.mistake(name.span().start, message, "remove one of them");
                return None;
            }
        }
        Some(Spanned::new(value.span(), DeValue::Table(read)))
    }

    /// What the file that is named holds, without the end of its line.
    fn content(&mut self, written: &str, value: &Spanned<DeValue<'_>>) -> Option<String> {
        let at = value.span().start;
        let Some(file) = value.get_ref().as_str().filter(|file| !file.is_empty()) else {
            self.mistake(at, format!("`{written}`: must name a file"), "write its path");
            return None;
        };
        match std::fs::read_to_string(self.dir.join(file)) {
            Ok(content) => {
                let content = content.strip_suffix('\n').unwrap_or(&content);
                Some(content.strip_suffix('\r').unwrap_or(content).to_owned())
            }
            Err(error) => {
                let hint = "the path is relative to the working directory of the process";
                self.mistake(at, format!("`{written}`: cannot read {file}: {error}"), hint);
                None
            }
        }
    }

    /// The value is the content of the file that is named.
    fn value_in_file(
        &mut self,
        known: &Key,
        mut path: Vec<String>,
        at: usize,
        value: &Spanned<DeValue<'_>>,
    ) {
        let written = dotted(&path);
        path.pop();
        path.push(known.name().to_owned());
        let Some(content) = self.content(&written, value) else { return };
        let file = value.get_ref().as_str().unwrap_or_default();
        let spanned = Spanned::new(value.span(), DeValue::String(content.into()));
        match known.shape.check(&spanned) {
            Ok(value) => self.set(path, value, at, Some(PathBuf::from(file))),
            // What the file holds may be a secret, so it is not told.
            Err(_) => {
                let message = format!("`{written}`: {file} does not hold {}", known.shape.noun());
                self.mistake(value.span().start, message, "look into the file");
            }
        }
    }

    fn set(&mut self, path: Vec<String>, value: toml::Value, at: usize, secret: Option<PathBuf>) {
        if self.layer.set.iter().any(|set| set.path == path) {
            let name = dotted(&path);
            let message = format!("both `{name}` and `{name}_file` are set");
            return self.mistake(at, message, "remove one of them".to_owned());
        }
        self.layer.set.push(Set { path, value, origin: self.source.at(at), secret });
    }

    fn unknown(&mut self, table: &[String], key: &str, at: usize) {
        let place = match table {
            [] => String::new(),
            _ => format!(" in [{}]", dotted(table)),
        };
        let known = schema::names_in(table);
        let near = nearest(key, known.iter().copied());
        let hint = match (near, schema::home_of(key)) {
            (Some(near), _) => format!("did you mean `{}`?", self.source.spell(table, near)),
            (None, Some("defaults")) if table.first().is_some_and(|t| t == "kinds") => {
                format!("`{key}` is set for all kinds at once, in [defaults]")
            }
            (None, Some(home)) => format!("`{key}` belongs into [{}]", home.replace('*', "NAME")),
            (None, None) => {
                let mut known = known;
                known.dedup();
                format!("known are {}", known.join(", "))
            }
        };
        self.mistake(at, format!("unknown key `{key}`{place}"), hint);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Vec<String> {
        let layer = read_text("w.toml", text, Path::new(""));
        layer.problems.iter().map(|problem| problem.to_string().replace('\n', " ")).collect()
    }

    #[test]
    fn wrong_keys_are_told_with_place_and_hint() {
        let table = [
            (
                "[server]\nlisen = \"x\"",
                "w.toml:2:1: unknown key `lisen` in [server] hint: did you mean `listen`?",
            ),
            ("[sever]", "w.toml:1:2: unknown key `sever` hint: did you mean `server`?"),
            ("listen = 1", "w.toml:1:1: unknown key `listen` hint: `listen` belongs into [server]"),
            (
                "[kinds.\"a.b\"]\n\n  qeue = \"x\"",
                "w.toml:3:3: unknown key `qeue` in [kinds.\"a.b\"] hint: did you mean `queue`?",
            ),
            (
                "[kinds.a]\npayload_max = 1",
                "w.toml:2:1: unknown key `payload_max` in [kinds.a] hint: `payload_max` is set for all kinds at once, in [defaults]",
            ),
            (
                "[defaults]\nretry = { retries = 1, frist = \"1s\" }",
                "w.toml:2:24: `defaults.retry`: unknown key `frist` hint: did you mean `first`?",
            ),
        ];
        for (text, expected) in table {
            assert_eq!(told(text), [expected], "{text}");
        }
    }

    #[test]
    fn wrong_values_are_told_with_place_and_hint() {
        let table = [
            (
                "[defaults.retry]\nfirst = \"2h\"",
                "w.toml:1:1: `defaults.retry`: retry.cap must not be shorter than retry.first hint: change one of them",
            ),
            (
                "[node]\nlease = \"5 minutes\"",
                "w.toml:2:9: `node.lease`: `5 minutes` is not a duration hint: write a duration such as 250ms, 90s, 5m, 2h30m, 1d or PT30S",
            ),
            (
                "[node]\nlease = \"a; b\"",
                "w.toml:2:9: `node.lease`: `a; b` is not a duration hint: write a duration such as 250ms, 90s, 5m, 2h30m, 1d or PT30S",
            ),
            (
                "[node]\nlease = \"1ms\"",
                "w.toml:2:9: `node.lease`: `1ms` is too short hint: the least is 30ms",
            ),
            (
                "[node]\nlease = 30",
                "w.toml:2:9: `node.lease`: must be a string, not an integer hint: write \"30s\" or \"5m\"",
            ),
            (
                "[node]\nclaim_max = 0",
                "w.toml:2:13: `node.claim_max`: 0 is out of range hint: write a whole number from 1 to 1000",
            ),
            (
                "[defaults]\nstep_timeout = \"0s\"",
                "w.toml:2:16: `defaults.step_timeout`: `0s` is too short hint: the least is 1ms",
            ),
            (
                "[ui]\nmode = \"readonly\"",
                "w.toml:2:8: `ui.mode`: `readonly` is none of `full`, `read-only`, `off` hint: did you mean `read-only`?",
            ),
            (
                "[handlers.a]\nexec = \"run it\"",
                "w.toml:2:8: `handlers.a.exec`: must be an array of strings hint: argv as an array, never a shell string: [\"python3\", \"scan.py\"]",
            ),
            (
                "[kinds.a]\nsteps = [\"x\", \"x\"]",
                "w.toml:2:15: `kinds.a.steps`: `x` stands twice hint: remove one",
            ),
            ("queues = 3", "w.toml:1:1: `queues` is a table hint: write [queues]"),
            (
                "[queues.\"a b\"]",
                "w.toml:1:9: `a b` cannot be a name in [queues] hint: use 1 to 200 letters, digits and . _ - : /",
            ),
            (
                "[store]\nurl = \"sqlite:x.db\"",
                "w.toml:2:7: `store.url`: is not a complete `sqlite:` URL hint: use sqlite://windlass.db or memory:",
            ),
        ];
        for (text, expected) in table {
            assert_eq!(told(text), [expected], "{text}");
        }
    }

    #[test]
    fn wrong_values_of_http_handlers_are_told_without_being_quoted() {
        let table = [
            (
                "[handlers.a]\nhttp = \"ftp://x/secret\"",
                "w.toml:2:8: `handlers.a.http`: `ftp:` is not known here hint: use https:// or http://",
            ),
            (
                "[handlers.a]\nhttp = \"https://me:secret@x/\"",
                "w.toml:2:8: `handlers.a.http`: holds a user or a password hint: send them in a header instead",
            ),
            (
                "[handlers.a]\nhttp = [\"https://x\"]",
                "w.toml:2:8: `handlers.a.http`: must be a string, not an array hint: write \"https://HOST/PATH\"",
            ),
            (
                "[handlers.a]\nallow_private = \"yes\"",
                "w.toml:2:17: `handlers.a.allow_private`: must be true or false, not a string hint: write it without quotes",
            ),
            (
                "[handlers.a]\nsecret = \"hunter2\"",
                "w.toml:2:10: `handlers.a.secret`: does not begin with `whsec_` hint: write whsec_ and the base64 of 24 to 64 random bytes, made by: echo whsec_$(openssl rand -base64 32)",
            ),
            (
                "[handlers.a]\nheaders = { Host = \"x\" }",
                "w.toml:2:20: `handlers.a.headers`: `Host` is set by Windlass hint: remove it",
            ),
            (
                "[handlers.a]\nheaders = { X-Key_file = \"no-such-file\" }",
                "w.toml:2:26: `handlers.a.headers.X-Key_file`: cannot read no-such-file: No such file or directory (os error 2) hint: the path is relative to the working directory of the process",
            ),
            (
                "[handlers.a]\nheaders = \"X-Key: 1\"",
                "w.toml:2:11: `handlers.a.headers`: must be a table of strings hint: write { Authorization_file = \"token.txt\" }",
            ),
        ];
        for (text, expected) in table {
            assert_eq!(told(text), [expected], "{text}");
        }
    }

    #[test]
    fn urls_are_known_or_refused() {
        for (table, url) in [
            ("redis", "host"),
            ("redis", "http://x"),
            ("store", ""),
            ("store", "x.db"),
            ("store", "memory:x"),
            ("store", "sqlite://"),
            ("transport", ""),
            ("transport", "store:x"),
        ] {
            assert_eq!(told(&format!("[{table}]\nurl = {url:?}")).len(), 1, "{table} {url}");
        }
    }

    #[test]
    fn every_mistake_of_a_file_is_told_in_its_order() {
        let lines = told("[ui]\nmod = \"x\"\n[node]\nlease = 1\n[auth]\nmode = \"of\"");
        let places: Vec<&str> = lines.iter().map(|line| &line[..11]).collect();
        assert_eq!(places, ["w.toml:2:1:", "w.toml:4:9:", "w.toml:6:8:"]);
    }

    #[test]
    fn broken_toml_is_told_with_its_place() {
        let lines = told("[server]\nlisten = \"x\n");
        assert!(lines[0].starts_with("w.toml:2:"), "{lines:?}");
        let lines = told("[node]\npoll = \"1s\"\npoll = \"2s\"");
        assert!(lines[0].starts_with("w.toml:3:1: duplicate key"), "{lines:?}");
    }

    #[test]
    fn what_comes_later_is_refused_and_its_default_is_not() {
        for text in [
            "[server]\ntls_cert = \"a.pem\"",
            "[server]\ntls_key = \"a.pem\"",
            "[limits.x]\nrate = \"1/s\"",
            "[sinks.x]\nurl = \"http://x\"",
            "[streams.x]\ntopic = \"x\"",
            "[kinds.a]\nlimit = { name = \"x\" }",
            "[kinds.a]\ncluster_concurrency = 1",
            "[handlers.a]\nundo = \"b\"",
            "[inputs]\nroots = [\"x\"]",
            "[transport]\nurl = \"kafka://x\"",
            "[transport]\nurl = \"amqp://x\"",
            "[transport]\npartitions = 9",
            "[redis]\nurl = \"redis://x\"",
            "[checkpoints]\nhome = \"redis\"",
            "[store]\nurl = \"postgres://u:pw@x\"",
            "[store]\nurl = \"postgresql://u:pw@x\"",
            "[store]\nurl = \"mysql://u:pw@x\"",
        ] {
            let lines = told(text);
            assert!(
                lines.len() == 1 && lines[0].contains("not supported by this version yet"),
                "{lines:?}"
            );
            assert!(lines[0].starts_with("w.toml:") && !lines[0].contains("pw"), "{lines:?}");
        }
        let defaults = "limits = {}\n[server]\ntls_cert = \"\"\ntls_key = \"\"\n[sinks]\n
            [transport]\nurl = \"store:\"\npartitions = 8\noptions = {}\n[redis]\nurl = \"\"\n
            [handlers.a]\nallow_private = false\n[auth]\ntokens_file = \"tokens.toml\"";
        assert_eq!(told(defaults), Vec::<String>::new());
    }
}
