//! Lays the sources over each other, the later one winning key by key: defaults,
//! the user's file, `./windlass.toml`, `--config`, environment, flags. Makes the
//! typed [`Config`] of the result and remembers where each value came from.

use super::check::Finding;
use super::file::{Layer, Set, read_text, read_value};
use super::flags::FileFlags;
use super::locate::{ConfigError, Origin, Problem, Source};
use super::schema::{Found, NAMED, look};
use super::{Config, Findings};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::DeValue;

/// The name of the file in the working directory.
const FILE: &str = "windlass.toml";

/// What a process finds around itself; tests make their own.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// Where relative paths begin; empty: the working directory.
    pub dir: PathBuf,
    pub variables: BTreeMap<String, String>,
}

impl Surroundings {
    pub fn of_process() -> Self {
        let text = |s: std::ffi::OsString| s.to_string_lossy().into_owned();
        let variables = std::env::vars_os().map(|(k, v)| (text(k), text(v))).collect();
        Surroundings { dir: PathBuf::new(), variables }
    }

    /// The files that are read without being named, where they exist.
    pub fn files(&self) -> Vec<PathBuf> {
        let user = self.user_file().map(|path| self.dir.join(path));
        let all = user.into_iter().chain([self.dir.join(FILE)]);
        all.filter(|path| path.exists()).collect()
    }

    fn user_file(&self) -> Option<PathBuf> {
        let set = |name| self.variables.get(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let folder = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")))?;
        Some(folder.join("windlass").join(FILE))
    }
}

/// A configuration and where it came from.
#[derive(Debug)]
pub struct Loaded {
    pub config: Config,
    /// Worth a look, but no reason not to start.
    pub warnings: Vec<Problem>,
    origins: BTreeMap<Vec<String>, Given>,
}

#[derive(Debug)]
struct Given {
    origin: Origin,
    secret: Option<PathBuf>,
}

impl Loaded {
    /// Where the value of a key came from.
    pub fn origin<S: AsRef<str>>(&self, path: &[S]) -> Origin {
        self.given(path).map_or(Origin::Default, |given| given.origin.clone())
    }

    /// The file that holds the value, when the `_file` form was used.
    pub(super) fn secret<S: AsRef<str>>(&self, path: &[S]) -> Option<&Path> {
        self.given(path)?.secret.as_deref()
    }

    fn given<S: AsRef<str>>(&self, path: &[S]) -> Option<&Given> {
        let path: Vec<String> = path.iter().map(|part| part.as_ref().to_owned()).collect();
        self.origins.get(&path)
    }

    /// The place of a key, or of the nearest table around it that was written.
    fn problem(&self, finding: Finding) -> Problem {
        let Finding { key, message, hint } = finding;
        let around = (1..=key.len()).rev().find_map(|n| self.origins.get(&key[..n]));
        let at = around.map_or(Origin::Default, |given| given.origin.clone());
        Problem { at, message, hint }
    }
}

/// Reads everything there is and checks it. All mistakes are told at once.
pub fn load(flags: &FileFlags, around: &Surroundings) -> Result<Loaded, ConfigError> {
    let mut merged = Merged::default();
    if let Some(path) = around.user_file() {
        merged.file(&path.display().to_string(), &around.dir.join(&path), Wanted::IfThere, around);
    }
    merged.file(FILE, &around.dir.join(FILE), Wanted::IfThere, around);
    if let Some(path) = &flags.config {
        merged.file(&path.display().to_string(), &around.dir.join(path), Wanted::Surely, around);
    }
    merged.variables(around);
    for (flag, key, value) in flags.values() {
        let value = Spanned::new(0..0, DeValue::String(value.into()));
        merged.add(read_value(Source::Flag(flag), &key.map(String::from), value, &around.dir));
    }
    merged.finish(flags)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    IfThere,
    Surely,
}

#[derive(Debug, Default)]
struct Merged {
    set: BTreeMap<Vec<String>, Set>,
    named: BTreeMap<Vec<String>, Origin>,
    problems: Vec<Problem>,
}

impl Merged {
    fn add(&mut self, layer: Layer) {
        self.problems.extend(layer.problems);
        self.set.extend(layer.set.into_iter().map(|set| (set.path.clone(), set)));
        self.named.extend(layer.named);
    }

    fn file(&mut self, name: &str, path: &Path, wanted: Wanted, around: &Surroundings) {
        match std::fs::read_to_string(path) {
            Ok(text) => self.add(read_text(name, &text, &around.dir)),
            Err(e) if wanted == Wanted::IfThere && absent(&e) => {}
            Err(error) => self.problems.push(Problem {
                at: Origin::File { name: name.to_owned(), line: 1, column: 1 },
                message: format!("cannot read this file: {error}"),
                hint: "the path is relative to the working directory of the process".to_owned(),
            }),
        }
    }

    fn variables(&mut self, around: &Surroundings) {
        let mut all = Layer::default();
        for (name, text) in &around.variables {
            let Some(rest) = name.strip_prefix("WINDLASS_").filter(|rest| rest.contains("__"))
            else {
                continue;
            };
            let path = self.path_of(rest);
            let value = written(&path, text);
            let layer = read_value(Source::Variable(name), &path, value, &around.dir);
            all.problems.extend(layer.problems);
            all.named.extend(layer.named);
            for set in layer.set {
                if all.set.iter().any(|other| other.path == set.path) {
                    all.problems.push(Problem {
                        at: set.origin,
                        message: "another variable sets the same key".to_owned(),
                        hint: "remove one of them".to_owned(),
                    });
                } else {
                    all.set.push(set);
                }
            }
        }
        self.add(all);
    }

    /// `KINDS__FILE_INGEST__QUEUE` is a key of the kind `file.ingest` when the
    /// files have one; variables cannot have such names themselves.
    fn path_of(&self, rest: &str) -> Vec<String> {
        let mut path: Vec<String> = rest.split("__").map(str::to_lowercase).collect();
        if path.len() > 2 && NAMED.contains(&path[0].as_str()) {
            let as_variable = |name: &str| {
                let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
                name.to_lowercase().chars().map(plain).collect::<String>()
            };
            let mut same =
                self.named.keys().filter(|p| p[0] == path[0] && as_variable(&p[1]) == path[1]);
            if let (Some(only), None) = (same.next(), same.next()) {
                path[1] = only[1].clone();
            }
        }
        path
    }

    fn finish(self, flags: &FileFlags) -> Result<Loaded, ConfigError> {
        if !self.problems.is_empty() {
            return Err(ConfigError::of(self.problems));
        }
        let mut table = toml::Table::new();
        let mut origins = BTreeMap::new();
        for (path, origin) in self.named {
            put(&mut table, &path, toml::Table::new().into());
            origins.insert(path, Given { origin, secret: None });
        }
        for (path, Set { value, origin, secret, .. }) in self.set {
            put(&mut table, &path, value);
            origins.insert(path, Given { origin, secret });
        }
        let mut config = typed(table, &origins)?;
        hide(&mut config, &origins);
        if let Some(role) = flags.role {
            config.role = role;
            let origin = Origin::Flag("--role");
            origins.insert(vec!["role".to_owned()], Given { origin, secret: None });
        }
        let Findings { errors, warnings } = config.check();
        let mut loaded = Loaded { config, warnings: vec![], origins };
        if !errors.is_empty() {
            let problems = errors.into_iter().map(|finding| loaded.problem(finding));
            return Err(ConfigError::of(problems.collect()));
        }
        loaded.warnings = warnings.into_iter().map(|finding| loaded.problem(finding)).collect();
        Ok(loaded)
    }
}

fn absent(error: &io::Error) -> bool {
    // A file where a folder was expected holds no configuration either.
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// A variable's text is TOML where it can be, but never where text is wanted:
/// a node may be called 42.
fn written<'a>(path: &[String], text: &'a str) -> Spanned<DeValue<'a>> {
    let wants_text = path.split_last().is_some_and(|(key, table)| match look(table, key) {
        Found::Value(known) => known.shape.is_text(),
        Found::FileOf(_) => true,
        _ => false,
    });
    match DeValue::parse(text) {
        Ok(value) if !wants_text || value.get_ref().is_str() => value,
        _ => Spanned::new(0..0, DeValue::String(text.into())),
    }
}

fn put(table: &mut toml::Table, path: &[String], value: toml::Value) {
    match path {
        [] => {}
        [key] => {
            table.insert(key.clone(), value);
        }
        [key, rest @ ..] => {
            let inner = table
                .entry(key.clone())
                .or_insert_with(|| toml::Table::new().into())
                .as_table_mut();
            if let Some(inner) = inner {
                put(inner, rest, value);
            }
        }
    }
}

/// The schema has looked at every value; should it and the types ever disagree,
/// the place is still told.
fn typed(
    table: toml::Table,
    origins: &BTreeMap<Vec<String>, Given>,
) -> Result<Config, ConfigError> {
    serde_path_to_error::deserialize(table).map_err(|error| {
        let path = error.path().iter().map(|part| part.to_string()).collect::<Vec<_>>();
        let at = (1..=path.len()).rev().find_map(|n| origins.get(&path[..n]));
        ConfigError::of(vec![Problem {
            at: at.map_or(Origin::Default, |given| given.origin.clone()),
            message: format!("`{}` does not fit", error.path()),
            hint: "compare it with `windlass config print-default`".to_owned(),
        }])
    })
}

/// Nothing of a value that came from a file of its own is ever shown.
fn hide(config: &mut Config, origins: &BTreeMap<Vec<String>, Given>) {
    let urls = [
        ("store", &mut config.store.url),
        ("transport", &mut config.transport.url),
        ("redis", &mut config.redis.url),
    ];
    for (table, url) in urls {
        let given = origins.get(&vec![table.to_owned(), "url".to_owned()]);
        if given.is_some_and(|given| given.secret.is_some()) {
            url.hide();
        }
    }
    for (name, handler) in &mut config.handlers {
        let path = vec!["handlers".to_owned(), name.clone(), "http".to_owned()];
        if let Some(url) = &mut handler.http
            && origins.get(&path).is_some_and(|given| given.secret.is_some())
        {
            url.hide();
        }
    }
}
