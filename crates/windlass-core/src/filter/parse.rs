//! Reads filter text into terms. The grammar is one line: terms apart by white
//! space, each `[-]field:value[,value]...` (or `error~text`), values bare or in
//! quotes with `\" \\ \* \n \t`. A reader of refused text should never have to
//! open the manual, so every error names place, word and remedy.

use super::{
    Comparison, Filter, NumberField, Op, Pattern, TERMS_MAX, TEXT_MAX, Term, Test, TextField,
};
use crate::clock::parse_duration;
use crate::error::{Code, Error, Result};
use crate::outcome::{Class, Reason};
use crate::state::State;
use std::str::FromStr;
use std::time::Duration;

const FIELDS: [&str; 20] = [
    "state",
    "queue",
    "kind",
    "label",
    "error",
    "reason",
    "class",
    "step",
    "attempt",
    "run",
    "retries",
    "priority",
    "age",
    "since",
    "id",
    "parent",
    "rerun_of",
    "node",
    "correlation",
    "user",
];

pub(super) fn parse(text: &str) -> Result<Filter> {
    check_size(text.len())?;
    let mut reader = Reader { text, at: 0 };
    let mut terms = Vec::new();
    while reader.skip_space() {
        if terms.len() == TERMS_MAX {
            return Err(reader.wrong(reader.at, &format!("more than {TERMS_MAX} terms; use fewer")));
        }
        terms.push(reader.term()?);
    }
    let filter = Filter { terms };
    // The canonical form can be longer than what was typed, and must read back.
    check_size(filter.to_string().len())?;
    Ok(filter)
}

fn check_size(bytes: usize) -> Result<()> {
    if bytes <= TEXT_MAX {
        return Ok(());
    }
    let message = format!("{bytes} bytes, at most {TEXT_MAX} are allowed; use fewer terms");
    Err(Error::new(Code::BadFilter, "filter", message))
}

/// May stand without quotes as part of a value.
pub(super) fn is_bare(text: &str) -> bool {
    !text.contains(|c: char| is_end(c) || c.is_control() || matches!(c, '"' | '\\' | '*'))
}

/// May stand without quotes as a label's name.
pub(super) fn is_bare_label(text: &str) -> bool {
    !text.is_empty()
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/'))
}

/// Ends a value that has no quotes.
fn is_end(c: char) -> bool {
    c == ',' || c.is_whitespace()
}

/// A value as read: where it stands, and its text split at the stars.
struct Value {
    at: usize,
    parts: Vec<String>,
}

impl Value {
    /// The text, for fields without wildcards.
    fn plain(&self) -> String {
        self.parts.join("*")
    }
}

struct Reader<'a> {
    text: &'a str,
    /// In bytes.
    at: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn eat(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += if found { wanted.len_utf8() } else { 0 };
        found
    }

    fn take_until(&mut self, ends: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let taken = &rest[..rest.find(ends).unwrap_or(rest.len())];
        self.at += taken.len();
        taken
    }

    /// Whether anything is left.
    fn skip_space(&mut self) -> bool {
        self.take_until(|c| !c.is_whitespace());
        !self.rest().is_empty()
    }

    /// An error about the word at `at`, in bytes.
    fn wrong(&self, at: usize, advice: &str) -> Error {
        let place = self.text[..at].chars().count() + 1;
        let word: String =
            self.text[at..].chars().take_while(|c| !c.is_whitespace()).take(60).collect();
        let message = if word.is_empty() {
            format!("at character {place}, the end: {advice}")
        } else {
            format!("at character {place}, `{word}`: {advice}")
        };
        Error::new(Code::BadFilter, "filter", message)
    }

    fn term(&mut self) -> Result<Term> {
        let start = self.at;
        let negated = self.eat('-');
        let at = self.at;
        let field =
            self.take_until(|c| c.is_whitespace() || matches!(c, ':' | '~' | '.' | '"' | ','));
        let label = if field == "label" && self.eat('.') { Some(self.label_name()?) } else { None };
        let separated = matches!(self.peek(), Some(':' | '~' | '.'));
        if separated && !FIELDS.contains(&field) {
            return Err(self.wrong(at, &no_field(field)));
        }
        if field == "error" && self.eat('~') {
            let texts = self.values()?.iter().map(Value::plain).collect();
            return Ok(Term { negated, test: Test::ErrorHas(texts) });
        }
        if !self.eat(':') {
            return Err(self.wrong(start, &no_term(field)));
        }
        Ok(Term { negated, test: self.test(field, label, at)? })
    }

    fn label_name(&mut self) -> Result<String> {
        let at = self.at;
        let name = match self.eat('"') {
            true => self.quoted(at)?.join("*"),
            false => {
                self.take_until(|c| c.is_whitespace() || matches!(c, ':' | '~' | '"')).to_owned()
            }
        };
        if name.is_empty() {
            return Err(self.wrong(at, "a label's name is missing; write label.NAME:value"));
        }
        Ok(name)
    }

    fn test(&mut self, field: &str, label: Option<String>, at: usize) -> Result<Test> {
        let values = self.values()?;
        let text = |field| Test::Text(field, patterns(&values));
        let number = |field| Ok(Test::Number(field, self.each(&values, number_of)?));
        Ok(match field {
            "state" => Test::State(self.each(&values, state_of)?),
            "queue" => text(TextField::Queue),
            "kind" => text(TextField::Kind),
            "label" => match label {
                Some(name) => text(TextField::Label(name)),
                None => return Err(self.wrong(at, "which label? write label.NAME:value")),
            },
            "error" => text(TextField::Error),
            "reason" => {
                self.words(TextField::Reason, &values, Reason::ALL.iter().map(|r| r.as_str()))?
            }
            "class" => {
                self.words(TextField::Class, &values, Class::ALL.iter().map(|c| c.as_str()))?
            }
            "step" => text(TextField::Step),
            "correlation" => text(TextField::Correlation),
            "user" => text(TextField::User),
            "attempt" => number(NumberField::Attempt)?,
            "run" => number(NumberField::Run)?,
            "priority" => number(NumberField::Priority)?,
            "retries" => number(NumberField::Retries)?,
            "age" => Test::Age(self.each(&values, age_of)?),
            "since" => self.since(&values)?,
            "id" => Test::Id(self.each(&values, id_of)?),
            "parent" => Test::Parent(self.each(&values, id_of)?),
            "rerun_of" => Test::RerunOf(self.each(&values, id_of)?),
            "node" => Test::Node(self.each(&values, id_of)?),
            _ => return Err(self.wrong(at, &no_field(field))),
        })
    }

    /// Reads every value; an error points at the value.
    fn each<T>(
        &self,
        values: &[Value],
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Vec<T>> {
        let read_one = |v: &Value| read(&v.plain()).map_err(|advice| self.wrong(v.at, &advice));
        values.iter().map(read_one).collect()
    }

    /// Text from a closed list: a word that can never match is a mistake.
    fn words<'w>(
        &self,
        field: TextField,
        values: &[Value],
        known: impl Iterator<Item = &'w str> + Clone,
    ) -> Result<Test> {
        let patterns = patterns(values);
        for (value, pattern) in values.iter().zip(&patterns) {
            if let Some(word) = pattern.exact().filter(|word| !known.clone().any(|k| k == *word)) {
                return Err(self.wrong(value.at, &no_word(&format!("{field}"), word, known)));
            }
        }
        Ok(Test::Text(field, patterns))
    }

    fn since(&self, values: &[Value]) -> Result<Test> {
        let durations = self.each(values, duration_of)?;
        match (durations.as_slice(), values) {
            ([one], _) => Ok(Test::Since(*one)),
            (_, [_, second, ..]) => {
                Err(self.wrong(second.at, "since takes one duration, such as since:2h"))
            }
            _ => Err(self.wrong(self.at, "since needs a duration, such as since:2h")),
        }
    }

    fn values(&mut self) -> Result<Vec<Value>> {
        let mut values = vec![self.value()?];
        while self.eat(',') {
            values.push(self.value()?);
        }
        Ok(values)
    }

    fn value(&mut self) -> Result<Value> {
        let at = self.at;
        if self.eat('"') {
            let parts = self.quoted(at)?;
            return match self.peek() {
                Some(c) if !is_end(c) => {
                    Err(self.wrong(at, "after the closing quote comes a space or a comma"))
                }
                _ => Ok(Value { at, parts }),
            };
        }
        let bare = self.take_until(|c| is_end(c) || c == '"');
        if self.peek() == Some('"') {
            return Err(self.wrong(at, "put quotes around the whole value"));
        }
        if bare.is_empty() {
            return Err(self.wrong(at, "a value is missing; for an empty one write \"\""));
        }
        Ok(Value { at, parts: bare.split('*').map(str::to_owned).collect() })
    }

    /// The rest of a quoted value, split at its stars. `start` is its quote.
    fn quoted(&mut self, start: usize) -> Result<Vec<String>> {
        let mut parts = Vec::new();
        let mut part = String::new();
        let mut chars = self.rest().char_indices();
        while let Some((i, c)) = chars.next() {
            match c {
                '"' => {
                    self.at += i + 1;
                    parts.push(part);
                    return Ok(parts);
                }
                '*' => parts.push(std::mem::take(&mut part)),
                '\\' => match chars.next() {
                    Some((_, c @ ('"' | '\\' | '*'))) => part.push(c),
                    Some((_, 'n')) => part.push('\n'),
                    Some((_, 't')) => part.push('\t'),
                    _ => {
                        return Err(
                            self.wrong(self.at + i, "after a backslash comes one of \" \\ * n t")
                        );
                    }
                },
                c => part.push(c),
            }
        }
        Err(self.wrong(start, "the closing quote is missing"))
    }
}

fn patterns(values: &[Value]) -> Vec<Pattern> {
    values.iter().map(|v| Pattern::of_parts(v.parts.clone())).collect()
}

fn state_of(text: &str) -> Result<State, String> {
    text.parse().map_err(|_| no_word("state", text, State::ALL.iter().map(|s| s.as_str())))
}

fn id_of<T: FromStr<Err = Error>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|e: Error| e.message().to_owned())
}

fn split_op(text: &str) -> (Option<Op>, &str) {
    // The two-character ones first.
    let ops = [
        (">=", Op::AtLeast),
        ("<=", Op::AtMost),
        (">", Op::Greater),
        ("<", Op::Less),
        ("=", Op::Equal),
    ];
    let found = ops.iter().find_map(|(sign, op)| Some((Some(*op), text.strip_prefix(sign)?)));
    found.unwrap_or((None, text))
}

fn number_of(text: &str) -> Result<Comparison<i64>, String> {
    let (op, number) = split_op(text);
    let advice = "not a number; write one such as 3, >=3 or <10";
    let value = number.parse().map_err(|_| advice.to_owned())?;
    Ok(Comparison { op: op.unwrap_or(Op::Equal), value })
}

fn age_of(text: &str) -> Result<Comparison<Duration>, String> {
    match split_op(text) {
        (Some(op), duration) if op != Op::Equal => {
            Ok(Comparison { op, value: duration_of(duration)? })
        }
        _ => Err("say whether older or younger, such as age:>1h or age:<=30m".to_owned()),
    }
}

/// Whole milliseconds, as durations are written.
fn duration_of(text: &str) -> Result<Duration, String> {
    let duration = parse_duration(text).map_err(|e| e.message().to_owned())?;
    let ms = u64::try_from(duration.as_millis()).map_err(|_| "too long".to_owned())?;
    Ok(Duration::from_millis(ms))
}

fn no_term(word: &str) -> String {
    let example = match word {
        word if State::from_str(word).is_ok() => format!("state:{word}"),
        word if word.starts_with("tsk_") => format!("id:{word}"),
        word if FIELDS.contains(&word) => format!("{word}:..."),
        _ => return "not a condition; write field:value, such as state:failed".to_owned(),
    };
    format!("not a condition; did you mean `{example}`?")
}

fn no_field(word: &str) -> String {
    let fields = FIELDS.map(|f| if f == "label" { "label.NAME" } else { f }).join(", ");
    format!("no such field; {}the fields are {fields}", did_you_mean(word, FIELDS.into_iter()))
}

fn no_word<'w>(field: &str, word: &str, known: impl Iterator<Item = &'w str> + Clone) -> String {
    let all = known.clone().collect::<Vec<_>>().join(", ");
    format!("no such {field}; {}use one of {all}", did_you_mean(word, known))
}

fn did_you_mean<'w>(word: &str, known: impl Iterator<Item = &'w str>) -> String {
    let close = |k: &'w str| {
        let extends = word.len() >= 3 && (k.starts_with(word) || word.starts_with(k));
        let distance = if extends { 1 } else { typos(word, k) };
        (distance <= 2 && distance < k.len()).then_some((distance, k))
    };
    match known.filter_map(close).min() {
        Some((_, k)) => format!("did you mean `{k}`? "),
        None => String::new(),
    }
}

/// How many letters to insert, remove or replace (Levenshtein). More than a
/// field's length apart is not looked at: words may be as long as the filter.
fn typos(a: &str, b: &str) -> usize {
    if a.len().abs_diff(b.len()) > 2 {
        return usize::MAX;
    }
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
