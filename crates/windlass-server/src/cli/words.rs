//! Reads the words after a command that name tasks: ids, endings of ids, or a
//! filter. A shell has taken the quotes off and clap sees every leading `-` as a
//! flag, so both are mended here. Whether a task exists is asked in `ids.rs`.

use super::failure::Failure;
use std::ffi::OsString;
use windlass_core::filter::Filter;
use windlass_core::id::{DeadId, TaskId};

/// Fewest characters of an ending.
const ENDING_MIN: usize = 6;
const ENDING_MAX: usize = 13;

/// One task, as named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Name {
    /// A whole id, `tsk_...` or `dl_...`.
    Id(String),
    Ending(String),
}

/// What a verb is to act on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    Names(Vec<Name>),
    Filter(String),
}

impl Target {
    pub(crate) fn read(words: &[String]) -> Result<Target, Failure> {
        let names: Option<Vec<Name>> = words.iter().map(|word| Name::read(word)).collect();
        if let Some(names) = names {
            return Ok(Target::Names(names));
        }
        if words.iter().any(|word| word.contains([':', '~'])) {
            return Ok(Target::Filter(filter(words)));
        }
        let word = words.iter().find(|word| Name::read(word).is_none());
        Err(not_a_name(word.map_or("", String::as_str)))
    }
}

impl Name {
    pub(crate) fn read(word: &str) -> Option<Name> {
        if let Ok(id) = word.parse::<TaskId>() {
            return Some(Name::Id(id.to_string()));
        }
        if let Ok(id) = word.parse::<DeadId>() {
            return Some(Name::Id(id.to_string()));
        }
        if let Ok(id) = format!("{}{word}", TaskId::PREFIX).parse::<TaskId>() {
            return Some(Name::Id(id.to_string()));
        }
        let word = word.to_ascii_lowercase();
        let digits = word.bytes().all(|b| b.is_ascii_alphanumeric() && b != b'u');
        let fits = (ENDING_MIN..=ENDING_MAX).contains(&word.len());
        (digits && fits).then_some(Name::Ending(word))
    }

    /// Like [`Name::read`], for commands that take no filter.
    pub(crate) fn need(word: &str) -> Result<Name, Failure> {
        Name::read(word).ok_or_else(|| not_a_name(word))
    }
}

fn not_a_name(word: &str) -> Failure {
    let hint = "an id looks like tsk_0123456789abc, its last 6 or more characters are enough; \
                a filter looks like state:failed";
    Failure::usage(format!("`{word}` is neither a task's id nor a filter"), hint)
}

/// Joins words to one filter. `error~"reset by peer"` comes from the shell as one
/// word without its quotes; they are put back where the word makes no sense
/// without them.
pub(crate) fn filter(words: &[String]) -> String {
    let mended: Vec<String> = words.iter().map(|word| requote(word.trim())).collect();
    mended.join(" ")
}

fn requote(word: &str) -> String {
    if !word.contains(char::is_whitespace) || Filter::parse(word).is_ok() {
        return word.to_owned();
    }
    let Some(end) = word.find([':', '~']) else { return word.to_owned() };
    let (field, value) = word.split_at(end + 1);
    let value = value.replace('\\', "\\\\").replace('"', "\\\"");
    let quoted = format!("{field}\"{value}\"");
    if Filter::parse(&quoted).is_ok() { quoted } else { word.to_owned() }
}

/// Lets negated terms (`-queue:low`) through clap: a leading space hides them,
/// and [`filter`] takes it away again.
pub(crate) fn hide_negations(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let hide = |word: OsString| match word.to_str() {
        Some(text) if is_negation(text) => format!(" {text}").into(),
        _ => word,
    };
    arguments.map(hide).collect()
}

fn is_negation(word: &str) -> bool {
    let Some(term) = word.strip_prefix('-') else { return false };
    let field: String = term.chars().take_while(|c| c.is_alphabetic() || *c == '_').collect();
    let after = term[field.len()..].chars().next();
    // No flag is two letters behind one dash, so nothing else is caught.
    field.chars().count() > 1 && matches!(after, Some(':' | '~' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &[&str]) -> Vec<String> {
        text.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn ids_endings_and_filters() {
        let id = "tsk_0123456789abc";
        let whole = Name::Id(id.to_owned());
        assert_eq!(Name::read(id), Some(whole.clone()));
        assert_eq!(Name::read("0123456789ABC"), Some(whole));
        assert_eq!(Name::read("dl_0123456789abc"), Some(Name::Id("dl_0123456789abc".to_owned())));
        assert_eq!(Name::read("789ABC"), Some(Name::Ending("789abc".to_owned())));
        for bad in ["89abc", "tsk_789abc", "state:failed", "", "abc-def", "uuuuuu"] {
            assert_eq!(Name::read(bad), None, "{bad}");
        }
        assert!(
            matches!(Target::read(&words(&[id, "789abc"])), Ok(Target::Names(n)) if n.len() == 2)
        );
        let filter = Target::read(&words(&["state:failed", " -queue:low"])).unwrap();
        assert_eq!(filter, Target::Filter("state:failed -queue:low".to_owned()));
        assert_eq!(Target::read(&words(&["x y"])).unwrap_err().code, super::super::Exit::Usage);
    }

    #[test]
    fn quotes_that_the_shell_took_come_back() {
        let table = [
            ("error~reset by peer", "error~\"reset by peer\""),
            ("state:failed queue:media", "state:failed queue:media"),
            ("error~\"reset by peer\"", "error~\"reset by peer\""),
            ("error~say \"x y\"", "error~\"say \\\"x y\\\"\""),
            ("nonsense and more", "nonsense and more"),
        ];
        for (given, meant) in table {
            assert_eq!(filter(&words(&[given])), meant);
        }
    }

    #[test]
    fn negations_are_no_flags() {
        for word in ["-queue:low", "-error~x", "-label.tenant:acme", "-rerun_of:x"] {
            assert!(is_negation(word), "{word}");
        }
        for word in ["-q", "-o", "--label", "-n5", "-ojson", "-", "-y:", "k=v"] {
            assert!(!is_negation(word), "{word}");
        }
    }
}
