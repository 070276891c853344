//! Splits masked text into words and marks with their line numbers, and finds
//! the partner of a bracket. Rules that look for names or blocks work on these
//! tokens, so spacing and line breaks never matter to them.

use super::mask::is_word;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token<'a> {
    /// A word, `::`, a run of quote marks (a masked literal), or one character.
    pub(super) text: &'a str,
    /// Counts from 1.
    pub(super) line: usize,
}

impl Token<'_> {
    /// Whether this is a name or keyword, not a number or a mark.
    pub(super) fn is_name(&self) -> bool {
        self.text.starts_with(|c: char| is_word(c) && !c.is_numeric())
    }
}

/// `code` must be masked: see `mask.rs`.
pub(super) fn tokens(code: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    for (index, line) in code.lines().enumerate() {
        let mut rest = line.trim_start();
        while !rest.is_empty() {
            let (text, tail) = rest.split_at(token_length(rest));
            found.push(Token { text, line: index + 1 });
            rest = tail.trim_start();
        }
    }
    found
}

/// Bytes of the token at the start of `text`, which is not empty.
fn token_length(text: &str) -> usize {
    let run = |same: fn(char) -> bool| text.find(|c| !same(c)).unwrap_or(text.len());
    match text.chars().next() {
        Some(c) if is_word(c) => run(is_word),
        Some('"') => run(|c| c == '"'),
        Some(':') if text.starts_with("::") => 2,
        Some(c) => c.len_utf8(),
        None => 0,
    }
}

/// The index of the bracket that closes the one at `open`; the last token when
/// the text ends before.
pub(super) fn closing(tokens: &[Token<'_>], open: usize) -> usize {
    let mut depth = 0usize;
    for (index, token) in tokens.iter().enumerate().skip(open) {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return index;
        }
    }
    tokens.len().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(code: &str) -> Vec<&str> {
        tokens(code).iter().map(|token| token.text).collect()
    }

    #[test]
    fn words_marks_and_literals_are_apart() {
        assert_eq!(
            texts("a::b(\"\"\"\", 'x:1)"),
            ["a", "::", "b", "(", "\"\"\"\"", ",", "'", "x", ":", "1", ")"]
        );
        assert_eq!(tokens("a\n\n b")[1], Token { text: "b", line: 3 });
    }

    #[test]
    fn names_are_not_numbers_or_marks() {
        let found = tokens("a _b 1u8 ::");
        let names: Vec<bool> = found.iter().map(Token::is_name).collect();
        assert_eq!(names, [true, true, false, false]);
    }

    #[test]
    fn brackets_find_their_partners() {
        let found = tokens("{ a ( [ ] ) { } } b");
        assert_eq!(closing(&found, 0), 8);
        assert_eq!(closing(&found, 2), 5);
        assert_eq!(closing(&tokens("{ a"), 0), 1);
    }
}
