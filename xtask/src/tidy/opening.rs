//! Rule: every Rust file opens with a module comment of at least two lines or
//! two sentences, which say what the file owns and what it must not know. One
//! line is a title, and a title only repeats the file's name.

use super::rust_file::RustFile;
use super::tree::Tree;
use super::violation::Violation;

const RULE: &str = "opening";

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let advice =
        "open with a `//!` comment of two to five sentences: what it owns, what it must not know";
    let short = tree.rust.iter().filter(|file| !opens_well(file));
    short.map(|file| Violation::new(&file.path, 1, RULE, advice)).collect()
}

fn opens_well(file: &RustFile) -> bool {
    let comment = file.text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim);
    let lines: Vec<&str> = comment.filter(|line| !line.is_empty()).collect();
    let text = lines.join(" ");
    let sentences = text.split_terminator(". ").filter(|sentence| !sentence.is_empty()).count();
    lines.len() >= 2 || sentences >= 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(text: &str) -> bool {
        !check(&Tree::of(&[("crates/a/tests/b.rs", text)])).is_empty()
    }

    #[test]
    fn missing_late_or_short_openings_are_found() {
        for text in [
            "",
            "fn a() {}",
            "//! Title.\n",
            "//! Title.\n//!\n",
            "use a;\n//! One.\n//! Two.\n",
            "// One.\n// Two.\n",
        ] {
            assert!(broken(text), "{text}");
        }
    }

    #[test]
    fn two_lines_or_two_sentences_are_enough() {
        for text in [
            "//! One and\n//! two.\n\nuse a;",
            "//! One. Two.\nuse a;",
            "//! One.\n//!\n//! Two.\n",
        ] {
            assert!(!broken(text), "{text}");
        }
    }
}
