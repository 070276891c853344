//! Lists the paths a file mentions (`std::fs::read`, `tokio`), with grouped
//! imports written out: `use std::{fmt, fs::File}` mentions `std::fs::File`.
//! It says what is mentioned; which paths are forbidden is a rule's business.

use super::token::Token;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mention<'a> {
    pub(super) segments: Vec<&'a str>,
    pub(super) line: usize,
    /// Whether it stands in a `use`.
    pub(super) import: bool,
}

pub(super) fn mentions<'a>(tokens: &[Token<'a>]) -> Vec<Mention<'a>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        // `use<'a>` in a return type is not an import.
        if tokens[at].text == "use" && tokens.get(at + 1).is_some_and(|t| t.text != "<") {
            at = import(tokens, at + 1, &[], &mut found);
        } else if tokens[at].is_name() {
            let (segments, next) = path(tokens, at);
            found.push(Mention { segments, line: tokens[at].line, import: false });
            at = next;
        } else {
            at += 1;
        }
    }
    found
}

/// Reads `a::b::c` from `at`; returns the index after it.
fn path<'a>(tokens: &[Token<'a>], mut at: usize) -> (Vec<&'a str>, usize) {
    let mut segments = Vec::new();
    while let Some(token) = tokens.get(at).filter(|t| t.is_name()) {
        segments.push(token.text);
        at += 1;
        let goes_on = tokens.get(at).is_some_and(|t| t.text == "::");
        if !goes_on || !tokens.get(at + 1).is_some_and(Token::is_name) {
            break;
        }
        at += 1;
    }
    (segments, at)
}

/// Reads one branch of an import, with `prefix` before it; returns the index of
/// the token that ends it (`,`, `}` or `;`) or the end.
fn import<'a>(
    tokens: &[Token<'a>],
    mut at: usize,
    prefix: &[&'a str],
    found: &mut Vec<Mention<'a>>,
) -> usize {
    let mut whole = prefix.to_vec();
    let start = at;
    while let Some(token) = tokens.get(at) {
        match token.text {
            "{" => return group(tokens, at + 1, &whole, found),
            "," | "}" | ";" => break,
            "as" => at += 1,
            "::" | "*" | "self" => {}
            name => whole.push(name),
        }
        at += 1;
    }
    let line = tokens.get(start).map_or(0, |t| t.line);
    found.push(Mention { segments: whole, line, import: true });
    at
}

/// Reads the branches between braces; returns the index after the closing one.
fn group<'a>(
    tokens: &[Token<'a>],
    mut at: usize,
    prefix: &[&'a str],
    found: &mut Vec<Mention<'a>>,
) -> usize {
    while let Some(token) = tokens.get(at) {
        match token.text {
            "}" => return at + 1,
            "," => at += 1,
            ";" => return at,
            _ => at = import(tokens, at, prefix, found),
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::super::token::tokens;
    use super::*;

    fn joined(code: &str) -> Vec<String> {
        mentions(&tokens(code)).iter().map(|m| m.segments.join("::")).collect()
    }

    #[test]
    fn grouped_imports_are_written_out() {
        let code = "use std::{fmt, fs::{self, File as F}, io::*};\nuse ::a::b as c;\nx";
        let expected = ["std::fmt", "std::fs", "std::fs::File", "std::io", "a::b", "x"];
        assert_eq!(joined(code), expected);
        assert_eq!(mentions(&tokens("use a::{\n b,\n c};"))[1].line, 3);
    }

    #[test]
    fn paths_in_expressions_are_whole() {
        assert_eq!(
            joined("std::fs::read(x.y::<Z>()) + a :: b"),
            ["std::fs::read", "x", "y", "Z", "a::b"]
        );
        assert_eq!(joined("impl T + use<'a>"), ["impl", "T", "use", "a"]);
    }

    #[test]
    fn broken_imports_end() {
        for code in ["use", "use a::{b", "use a::{b;", "use {{{", "use a as", "use ,"] {
            mentions(&tokens(code));
        }
    }
}
