//! Where a value or a mistake is: file, line and column, a variable of the
//! environment, or a flag. A [`Problem`] is a mistake with its place and what to
//! do about it. Nothing here knows which keys exist.

use std::fmt;
use std::io;

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nobody set it.
    Default,
    /// Line and column count from 1, columns in characters.
    File {
        name: String,
        line: usize,
        column: usize,
    },
    /// A variable of the environment.
    Variable(String),
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File { name, line, column } => write!(f, "{name}:{line}:{column}"),
            Origin::Variable(name) => f.write_str(name),
            Origin::Flag(name) => f.write_str(name),
        }
    }
}

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub at: Origin,
    pub message: String,
    /// What to do next.
    pub hint: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.at != Origin::Default {
            write!(f, "{}: ", self.at)?;
        }
        write!(
            f,
            "{}
hint: {}",
            self.message, self.hint
        )
    }
}

/// Why there is no configuration: every mistake that was found.
#[derive(Debug)]
pub struct ConfigError {
    pub problems: Vec<Problem>,
    /// What was asked for could not be written.
    output: Option<io::Error>,
}

impl ConfigError {
    pub(super) fn of(problems: Vec<Problem>) -> Self {
        ConfigError { problems, output: None }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(error) = &self.output {
            write!(f, "cannot write: {error}\nhint: look where the output goes")?;
        }
        for (i, problem) in self.problems.iter().enumerate() {
            write!(f, "{}{problem}", if i == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

impl From<io::Error> for ConfigError {
    fn from(error: io::Error) -> Self {
        ConfigError { problems: vec![], output: Some(error) }
    }
}

/// Whatever holds settings, with the means to say where in it something is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Source<'a> {
    File { name: &'a str, text: &'a str },
    Variable(&'a str),
    Flag(&'static str),
}

impl Source<'_> {
    /// The place of the byte at `offset`.
    pub(super) fn at(self, offset: usize) -> Origin {
        match self {
            Source::File { name, text } => {
                let (line, column) = line_and_column(text, offset);
                Origin::File { name: name.to_owned(), line, column }
            }
            Source::Variable(name) => Origin::Variable(name.to_owned()),
            Source::Flag(name) => Origin::Flag(name),
        }
    }

    /// What was meant by what is written, with `key` where the mistake is.
    pub(super) fn spell(self, table: &[String], key: &str) -> String {
        match self {
            Source::Variable(name) => {
                let mut path: Vec<String> = name.split("__").map(str::to_owned).collect();
                if let Some(part) = path.get_mut(table.len()) {
                    let prefix = if table.is_empty() { "WINDLASS_" } else { "" };
                    *part = format!("{prefix}{}", key.to_uppercase());
                }
                path.join("__")
            }
            Source::File { .. } | Source::Flag(_) => key.to_owned(),
        }
    }
}

fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let start = before.rfind('\n').map_or(0, |at| at + 1);
    (line, before[start..].chars().count() + 1)
}

/// A key as people write it: `kinds."file.ingest".queue`.
pub(super) fn dotted<S: AsRef<str>>(path: &[S]) -> String {
    let quoted: Vec<String> = path.iter().map(|part| quote(part.as_ref())).collect();
    quoted.join(".")
}

/// A part of a key, in quotes where TOML wants them.
pub(super) fn quote(part: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !part.is_empty() && part.chars().all(bare) { part.to_owned() } else { format!("{part:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_count_characters_from_one() {
        let text = "a = 1\nä = \"ö\" # x\r\n[b]\n";
        let of = |what: &str| line_and_column(text, text.find(what).unwrap());
        assert_eq!(of("a"), (1, 1));
        assert_eq!(of("ä"), (2, 1));
        assert_eq!(of("# x"), (2, 9));
        assert_eq!(of("b]"), (3, 2));
        assert_eq!(line_and_column(text, text.len()), (4, 1));
        assert_eq!(line_and_column("", 7), (1, 1));
    }

    #[test]
    fn keys_are_spelled_as_in_their_source() {
        assert_eq!(dotted(&["kinds", "file.ingest", "queue"]), "kinds.\"file.ingest\".queue");
        let table = ["store".to_owned()];
        let variable = Source::Variable("WINDLASS_STORE__URLL");
        assert_eq!(variable.spell(&table, "url"), "WINDLASS_STORE__URL");
        assert_eq!(
            Source::Variable("WINDLASS_STOR__URL").spell(&[], "store"),
            "WINDLASS_STORE__URL"
        );
        assert_eq!(Source::Flag("--x").spell(&table, "url"), "url");
    }
}
