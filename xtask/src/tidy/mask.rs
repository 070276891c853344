//! Makes Rust text safe to search: comments become spaces and literals become
//! quote marks, so that a brace in a string or a word in a comment is never
//! taken for code. Every line keeps its number and its place. This is a lexer of
//! only what can hide text; it does not know Rust's grammar.

/// `text` with comments blanked and the characters of literals overwritten.
pub(super) fn mask(text: &str) -> String {
    let mut masker =
        Masker { chars: text.chars().collect(), at: 0, out: String::with_capacity(text.len()) };
    while masker.at < masker.chars.len() {
        masker.step();
    }
    masker.out
}

struct Masker {
    chars: Vec<char>,
    at: usize,
    out: String,
}

impl Masker {
    fn step(&mut self) {
        match (self.peek(0), self.peek(1)) {
            ('/', '/') => self.line_comment(),
            ('/', '*') => self.block_comment(),
            ('"', _) => self.quoted('"'),
            ('\'', _) => self.char_or_lifetime(),
            (c, _) if is_word(c) => self.word(),
            _ => self.keep(),
        }
    }

    /// The character `ahead` of the current one; NUL after the end.
    fn peek(&self, ahead: usize) -> char {
        self.chars.get(self.at + ahead).copied().unwrap_or('\0')
    }

    fn ended(&self) -> bool {
        self.at >= self.chars.len()
    }

    fn keep(&mut self) {
        self.out.push(self.peek(0));
        self.at += 1;
    }

    /// Passes over one character of a comment.
    fn blank(&mut self) {
        self.out.push(if self.peek(0) == '\n' { '\n' } else { ' ' });
        self.at += 1;
    }

    /// Passes over one character of a literal. Lines of a long string stay
    /// non-blank, because they are code when lines are counted.
    fn cover(&mut self) {
        let c = self.peek(0);
        self.out.push(if c.is_whitespace() { c } else { '"' });
        self.at += 1;
    }

    fn line_comment(&mut self) {
        while !self.ended() && self.peek(0) != '\n' {
            self.blank();
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0;
        while !self.ended() {
            let edge = match (self.peek(0), self.peek(1)) {
                ('/', '*') => 1,
                ('*', '/') => -1,
                _ => 0,
            };
            self.blank();
            if edge != 0 {
                self.blank();
                depth += edge;
            }
            if depth == 0 {
                return;
            }
        }
    }

    /// A string or character literal with escapes, from its opening `quote`.
    fn quoted(&mut self, quote: char) {
        self.cover();
        while !self.ended() {
            let c = self.peek(0);
            self.cover();
            if c == '\\' && !self.ended() {
                self.cover();
            } else if c == quote {
                return;
            }
        }
    }

    /// `'x'` and `'\n'` are literals, `'x` is a lifetime.
    fn char_or_lifetime(&mut self) {
        if self.peek(1) == '\\' || self.peek(2) == '\'' {
            self.quoted('\'');
        } else {
            self.keep();
        }
    }

    /// A word, and the raw string it may introduce (`r"`, `br#"`, but not `r#fn`).
    fn word(&mut self) {
        let start = self.at;
        while is_word(self.peek(0)) {
            self.keep();
        }
        let word: String = self.chars[start..self.at].iter().collect();
        if matches!(word.as_str(), "r" | "br" | "cr") {
            let hashes = self.chars[self.at..].iter().take_while(|c| **c == '#').count();
            if self.peek(hashes) == '"' {
                self.raw_string(hashes);
            }
        }
    }

    fn raw_string(&mut self, hashes: usize) {
        (0..=hashes).for_each(|_| self.cover());
        while !self.ended() {
            let closes = self.peek(0) == '"' && (1..=hashes).all(|i| self.peek(i) == '#');
            self.cover();
            if closes {
                (0..hashes).for_each(|_| self.cover());
                return;
            }
        }
    }
}

pub(super) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_text_is_masked() {
        let table = [
            ("a // b {\nc", "a       \nc"),
            ("a /* b /* c */ d */ e", "a                   e"),
            (r#"f("{ \" //") + 1"#, r#"f("" "" """) + 1"#),
            (r##"r#"a"b"# x"##, r##"r""""""" x"##),
            ("r\"\\\" x", "r\"\"\" x"),
            ("b'{' '\\'' '\\u{7f}' x", "b\"\"\" \"\"\"\" \"\"\"\"\"\"\"\" x"),
            ("'é' x", "\"\"\" x"),
        ];
        for (text, masked) in table {
            assert_eq!(mask(text), masked, "{text}");
        }
    }

    #[test]
    fn code_stays() {
        for text in [
            "fn f<'a>(x: &'a str) -> &'a str { x }",
            "r#fn + r#type",
            "'label: loop { break 'label; }",
            "x / y",
        ] {
            assert_eq!(mask(text), text);
        }
    }

    #[test]
    fn lines_keep_their_numbers() {
        let text = "/* a\n b */\nlet s = \"x\n y\n\";\nr#\"\n{\n\"#;\n// end";
        assert_eq!(mask(text).lines().count(), text.lines().count());
        assert_eq!(mask(text).lines().nth(3), Some(" \""));
    }

    #[test]
    fn unfinished_text_ends() {
        for text in ["\"abc", "/* abc", "r#\"abc", "'\\", "\"\\"] {
            assert_eq!(mask(text).chars().count(), text.chars().count(), "{text}");
        }
    }
}
