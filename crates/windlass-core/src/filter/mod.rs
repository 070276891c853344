//! The filter language: `state:failed queue:media age:>1h -label.tenant:acme`,
//! the same in CLI, API and dashboard. Here are its words as plain data and how
//! they are written; `parse.rs` reads them, `eval.rs` says what they mean for a
//! task. Stores look at the data to narrow what they load and must then ask
//! [`Filter::matches`]; nothing here knows SQL or reads a clock.

mod eval;
mod parse;
#[cfg(test)]
mod tests;

use crate::clock::format_duration;
use crate::error::{Error, Result};
use crate::id::{NodeId, TaskId};
use crate::state::State;
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter, Write as _};
use std::str::FromStr;
use std::time::Duration;

/// Longest filter text, in bytes.
pub const TEXT_MAX: usize = 4096;
/// Most terms in one filter.
pub const TERMS_MAX: usize = 64;

/// A parsed filter. All terms must hold; one without terms matches everything.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Filter {
    terms: Vec<Term>,
}

impl Filter {
    /// Reads a filter. The error (`bad-filter`) names the place, the word and
    /// what to write instead; places are counted in characters from 1.
    pub fn parse(text: &str) -> Result<Filter> {
        parse::parse(text)
    }

    pub fn terms(&self) -> &[Term] {
        &self.terms
    }
}

impl FromStr for Filter {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Filter::parse(text)
    }
}

impl TryFrom<String> for Filter {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        Filter::parse(&text)
    }
}

impl From<Filter> for String {
    fn from(filter: Filter) -> String {
        filter.to_string()
    }
}

/// One condition.
#[derive(Debug, Clone, PartialEq)]
pub struct Term {
    /// Written with a leading `-`: holds when the test does not.
    pub negated: bool,
    pub test: Test,
}

/// What a term asks. Every list means any of its members and has at least one.
#[derive(Debug, Clone, PartialEq)]
pub enum Test {
    State(Vec<State>),
    Id(Vec<TaskId>),
    Parent(Vec<TaskId>),
    RerunOf(Vec<TaskId>),
    /// The node of the latest attempt.
    Node(Vec<NodeId>),
    Text(TextField, Vec<Pattern>),
    /// `error~`: the latest error's message has this in it, in whatever case.
    ErrorHas(Vec<String>),
    Number(NumberField, Vec<Comparison<i64>>),
    /// Time since the task was made.
    Age(Vec<Comparison<Duration>>),
    /// Made within this time.
    Since(Duration),
}

/// Fields compared as text, with wildcards. A field a task does not have
/// matches nothing, not even `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TextField {
    Queue,
    Kind,
    Label(String),
    /// The latest error's message.
    Error,
    /// Why it failed for good.
    Reason,
    /// What sort of error the latest one was.
    Class,
    /// The step of the latest error.
    Step,
    Correlation,
    User,
}

/// Fields compared as whole numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NumberField {
    Attempt,
    Run,
    Priority,
    /// Retries burnt in this run.
    Retries,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Greater,
    AtLeast,
    Less,
    AtMost,
    Equal,
}

/// `>= 3`: the task's value stands on the left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Comparison<T> {
    pub op: Op,
    pub value: T,
}

/// Text in which `*` stands for any characters, or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    /// What stands between the stars: never empty, and inner parts are not
    /// empty either, so that equal patterns are equal data.
    parts: Vec<String>,
}

impl Pattern {
    /// `parts` is what was split at the stars.
    pub(crate) fn of_parts(parts: Vec<String>) -> Self {
        let last = parts.len().saturating_sub(1);
        let keep =
            |(i, part): (usize, String)| (i == 0 || i == last || !part.is_empty()).then_some(part);
        let mut parts: Vec<String> = parts.into_iter().enumerate().filter_map(keep).collect();
        if parts.is_empty() {
            parts.push(String::new());
        }
        Pattern { parts }
    }

    /// The one text it matches, if it has no star.
    pub fn exact(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [only] => Some(only),
            _ => None,
        }
    }

    /// What every match begins with.
    pub fn prefix(&self) -> &str {
        self.parts.first().map_or("", String::as_str)
    }
}

impl Display for Filter {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        join(f, ' ', &self.terms, |f, term| {
            f.write_str(if term.negated { "-" } else { "" })?;
            term.test.fmt(f)
        })
    }
}

impl Display for Test {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Test::State(states) => listed(f, "state:", states),
            Test::Id(ids) => listed(f, "id:", ids),
            Test::Parent(ids) => listed(f, "parent:", ids),
            Test::RerunOf(ids) => listed(f, "rerun_of:", ids),
            Test::Node(ids) => listed(f, "node:", ids),
            Test::Text(field, patterns) => listed(f, &format!("{field}:"), patterns),
            Test::ErrorHas(texts) => {
                f.write_str("error~")?;
                join(f, ',', texts, |f, text| quoted(f, &[text]))
            }
            Test::Number(field, all) => listed(f, &format!("{field}:"), all),
            Test::Age(all) => {
                f.write_str("age:")?;
                join(f, ',', all, |f, c| write!(f, "{}{}", c.op, format_duration(c.value)))
            }
            Test::Since(d) => write!(f, "since:{}", format_duration(*d)),
        }
    }
}

impl Display for TextField {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TextField::Queue => "queue",
            TextField::Kind => "kind",
            TextField::Label(name) => {
                f.write_str("label.")?;
                return if parse::is_bare_label(name) {
                    f.write_str(name)
                } else {
                    quoted(f, &[name])
                };
            }
            TextField::Error => "error",
            TextField::Reason => "reason",
            TextField::Class => "class",
            TextField::Step => "step",
            TextField::Correlation => "correlation",
            TextField::User => "user",
        })
    }
}

impl Display for NumberField {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NumberField::Attempt => "attempt",
            NumberField::Run => "run",
            NumberField::Priority => "priority",
            NumberField::Retries => "retries",
        })
    }
}

impl Display for Op {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Op::Greater => ">",
            Op::AtLeast => ">=",
            Op::Less => "<",
            Op::AtMost => "<=",
            Op::Equal => "",
        })
    }
}

impl<T: Display> Display for Comparison<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.op, self.value)
    }
}

impl Display for Pattern {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let is_empty = self.exact() == Some("");
        if !is_empty && self.parts.iter().all(|part| parse::is_bare(part)) {
            return f.write_str(&self.parts.join("*"));
        }
        let parts: Vec<&str> = self.parts.iter().map(String::as_str).collect();
        quoted(f, &parts)
    }
}

/// Writes `parts` in quotes with stars between them; stars inside a part are
/// escaped, so that they stay stars.
fn quoted(f: &mut Formatter<'_>, parts: &[&str]) -> fmt::Result {
    f.write_char('"')?;
    for (i, part) in parts.iter().enumerate() {
        if i > 0 {
            f.write_char('*')?;
        }
        for c in part.chars() {
            match c {
                '"' | '\\' | '*' => write!(f, "\\{c}")?,
                '\n' => f.write_str("\\n")?,
                '\t' => f.write_str("\\t")?,
                c => f.write_char(c)?,
            }
        }
    }
    f.write_char('"')
}

fn listed<T: Display>(f: &mut Formatter<'_>, field: &str, items: &[T]) -> fmt::Result {
    f.write_str(field)?;
    join(f, ',', items, |f, item| item.fmt(f))
}

fn join<T>(
    f: &mut Formatter<'_>,
    separator: char,
    items: &[T],
    write: impl Fn(&mut Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            f.write_char(separator)?;
        }
        write(f, item)?;
    }
    Ok(())
}
