//! Finds two kinds of blocks in the tokens of a file: functions, and items that
//! exist only in test builds. It matches brackets and a few keywords; it does not
//! parse Rust, and what it reports is exact for code that rustfmt accepts.

use std::ops::RangeInclusive;

use super::token::{Token, closing};

/// A function with a body: its name and the lines from `fn` to the last brace.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    pub(super) lines: RangeInclusive<usize>,
}

/// What `#[cfg(test)]` takes out of an ordinary build.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct TestOnly {
    /// Lines of items in this file, attributes included.
    pub(super) lines: Vec<RangeInclusive<usize>>,
    /// Modules in files of their own: `#[cfg(test)] mod name;`.
    pub(super) modules: Vec<String>,
    /// `#![cfg(test)]`: the whole file.
    pub(super) whole_file: bool,
}

/// Words that may come before an item's keyword.
const QUALIFIERS: &[&str] = &["pub", "async", "unsafe", "extern", "default"];
const ITEMS: &[&str] = &[
    "mod",
    "fn",
    "impl",
    "struct",
    "enum",
    "trait",
    "union",
    "type",
    "use",
    "const",
    "static",
    "macro_rules",
    "let",
];

pub(super) fn functions(tokens: &[Token<'_>]) -> Vec<Function> {
    let mut found = Vec::new();
    for (index, token) in tokens.iter().enumerate().filter(|(_, token)| token.text == "fn") {
        // In a macro the name may be a variable; in a type there is none.
        let at = if tokens.get(index + 1).is_some_and(|t| t.text == "$") {
            index + 2
        } else {
            index + 1
        };
        let Some(name) = tokens.get(at).filter(|t| t.is_name()) else { continue };
        let end = item_end(tokens, at + 1, Ends::AtBlock);
        if let Some(last) = tokens.get(end).filter(|t| t.text == "}") {
            found.push(Function { name: name.text.to_owned(), lines: token.line..=last.line });
        }
    }
    found
}

pub(super) fn test_only(tokens: &[Token<'_>]) -> TestOnly {
    let mut found = TestOnly::default();
    let mut at = 0;
    while at < tokens.len() {
        let Some((inner, attribute_end)) = test_attribute(tokens, at) else {
            at += 1;
            continue;
        };
        if inner {
            found.whole_file = true;
            at = attribute_end + 1;
            continue;
        }
        let start = skip_attributes(tokens, attribute_end + 1);
        let end = end_of_any(tokens, start);
        found.modules.extend(module_elsewhere(&tokens[start.min(end)..=end]));
        found.lines.push(tokens[at].line..=tokens[end].line);
        at = end + 1;
    }
    found
}

/// Whether `#[cfg(test)]` or `#![cfg(test)]` starts at `at`: the latter first,
/// then the index of its `]`. `not(test)` is ordinary code.
fn test_attribute(tokens: &[Token<'_>], at: usize) -> Option<(bool, usize)> {
    let word = |ahead: usize| tokens.get(at + ahead).map(|t| t.text);
    let inner = word(1) == Some("!");
    let open = if inner { 2 } else { 1 };
    if word(0) != Some("#") || word(open) != Some("[") || word(open + 1) != Some("cfg") {
        return None;
    }
    let end = closing(tokens, at + open);
    let condition = &tokens[at + open..=end];
    let has = |name: &str| condition.iter().any(|t| t.text == name);
    (has("test") && !has("not") && !has("any")).then_some((inner, end))
}

fn skip_attributes(tokens: &[Token<'_>], mut at: usize) -> usize {
    let is = |index: usize, text: &str| tokens.get(index).is_some_and(|t| t.text == text);
    while is(at, "#") && is(at + 1, "[") {
        at = closing(tokens, at + 1) + 1;
    }
    at
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// An item: at its block or its semicolon.
    AtBlock,
    /// A field, variant or match arm: also at a comma.
    AtComma,
}

/// The last token of the item, field or arm that starts at `start`.
fn end_of_any(tokens: &[Token<'_>], start: usize) -> usize {
    let mut at = start;
    while let Some(token) = tokens.get(at) {
        match token.text {
            "(" => at = closing(tokens, at),
            text if QUALIFIERS.contains(&text) || text.starts_with('"') => {}
            text if ITEMS.contains(&text) => return item_end(tokens, at + 1, Ends::AtBlock),
            _ => break,
        }
        at += 1;
    }
    item_end(tokens, start, Ends::AtComma)
}

fn item_end(tokens: &[Token<'_>], start: usize, ends: Ends) -> usize {
    let mut at = start;
    while let Some(token) = tokens.get(at) {
        match token.text {
            "(" | "[" => at = closing(tokens, at),
            "{" => return closing(tokens, at),
            ";" => return at,
            "," if ends == Ends::AtComma => return at,
            ")" | "]" | "}" => return at - 1,
            _ => {}
        }
        at += 1;
    }
    tokens.len() - 1
}

/// The name in `mod name;`.
fn module_elsewhere(item: &[Token<'_>]) -> Option<String> {
    let at = item.iter().position(|t| t.text == "mod")?;
    let declared = item.get(at + 2).is_some_and(|t| t.text == ";");
    item.get(at + 1).filter(|_| declared).map(|t| t.text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::mask::mask;
    use super::super::token::tokens;
    use super::*;

    fn functions_of(text: &str) -> Vec<(String, RangeInclusive<usize>)> {
        functions(&tokens(&mask(text))).into_iter().map(|f| (f.name, f.lines)).collect()
    }

    fn test_only_of(text: &str) -> TestOnly {
        test_only(&tokens(&mask(text)))
    }

    #[test]
    fn functions_end_at_their_own_brace() {
        let text = "fn a() { '{'; \"}\"; }\nimpl X {\n  pub fn b<'a>(x: [u8; 2]) -> &'a str\n  where X: Y,\n  {\n    if c { d } // }\n  }\n}";
        assert_eq!(functions_of(text), [("a".to_owned(), 1..=1), ("b".to_owned(), 3..=7)]);
    }

    #[test]
    fn types_and_declarations_are_not_functions() {
        assert!(
            functions_of("type F = fn(u8) -> u8; trait T { fn a(&self); fn b() -> u8; }")
                .is_empty()
        );
        let in_macro = "macro_rules! m { ($name:ident) => { fn $name() {\n } } }";
        assert_eq!(functions_of(in_macro), [("name".to_owned(), 1..=2)]);
    }

    #[test]
    fn nested_functions_are_both_found() {
        let found = functions_of("fn a() {\n fn b() {\n }\n}");
        assert_eq!(found, [("a".to_owned(), 1..=4), ("b".to_owned(), 2..=3)]);
    }

    #[test]
    fn test_items_are_found_with_their_attributes() {
        let text = "fn a() {}\n#[cfg(test)]\n#[allow(x)]\npub(crate) mod tests {\n  fn b() {}\n}\nfn c() {}";
        assert_eq!(test_only_of(text).lines, [2..=6]);
        assert_eq!(
            test_only_of("#[cfg(all(test, feature = \"x\"))]\nuse a::{b};\nfn c() {}").lines,
            [1..=2]
        );
    }

    #[test]
    fn test_fields_and_statements_end_at_the_comma_or_brace() {
        assert_eq!(test_only_of("struct A {\n #[cfg(test)]\n a: B<C>,\n d: E,\n}").lines, [2..=3]);
        assert_eq!(test_only_of("enum A {\n #[cfg(test)]\n B\n}\nfn f() {}").lines, [2..=3]);
    }

    #[test]
    fn ordinary_builds_are_not_test_only() {
        for text in [
            "#[cfg(not(test))]\nfn a() {}",
            "#[cfg(feature = \"test\")] mod a {}",
            "#[cfg(any(test, unix))] mod a {}",
        ] {
            assert_eq!(test_only_of(text), TestOnly::default(), "{text}");
        }
    }

    #[test]
    fn modules_elsewhere_and_whole_files_are_reported() {
        assert_eq!(test_only_of("#[cfg(test)]\nmod tests;\nmod other;").modules, ["tests"]);
        assert!(test_only_of("//! X.\n#![cfg(test)]\nfn a() {}").whole_file);
    }

    #[test]
    fn broken_code_does_not_stop_the_search() {
        for text in [
            "#[cfg(test)]",
            "#[cfg(test",
            "fn",
            "fn a",
            "fn a(",
            "}",
            "#[cfg(test)] }",
            "#[cfg(test)] mod",
        ] {
            test_only_of(text);
            functions_of(text);
        }
    }
}
