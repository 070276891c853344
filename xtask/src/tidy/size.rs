//! Measures files and functions against the sizes at which to look for a seam.
//! Only lines with code count, so a comment never makes anything too long, and
//! tests beside the code do not make its file too long. What to do about a
//! measure, and which exceptions are known, is in `ratchet.rs`.

use std::collections::BTreeMap;

use super::rust_file::RustFile;
use super::tree::Tree;

/// Code lines of a file, without its inline test modules.
pub(super) const FILE_LIMIT: usize = 600;
/// Code lines of a function, from `fn` to its closing brace.
pub(super) const FUNCTION_LIMIT: usize = 70;

/// Something longer than its limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Oversize {
    pub(super) path: String,
    /// Where it starts.
    pub(super) line: usize,
    pub(super) lines: usize,
    pub(super) limit: usize,
}

/// Everything over its limit by name: `path` for a file, `path::function` for a
/// function. The longest stands for functions of one name in one file.
pub(super) fn oversizes(tree: &Tree) -> BTreeMap<String, Oversize> {
    let mut found = BTreeMap::new();
    for file in &tree.rust {
        let lines = file.code_lines().filter(|line| !file.in_test_item(*line)).count();
        keep(&mut found, file.path.clone(), measure(file, 1, lines, FILE_LIMIT));
        for function in &file.functions {
            let lines = file.code_lines().filter(|line| function.lines.contains(line)).count();
            let name = format!("{}::{}", file.path, function.name);
            keep(&mut found, name, measure(file, *function.lines.start(), lines, FUNCTION_LIMIT));
        }
    }
    found
}

fn measure(file: &RustFile, line: usize, lines: usize, limit: usize) -> Oversize {
    Oversize { path: file.path.clone(), line, lines, limit }
}

fn keep(found: &mut BTreeMap<String, Oversize>, name: String, new: Oversize) {
    let longest = found.get(&name).is_none_or(|old| old.lines < new.lines);
    if new.lines > new.limit && longest {
        found.insert(name, new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(name: &str, lines: usize) -> String {
        format!("fn {name}() {{\n{}}}\n", "    a();\n".repeat(lines - 2))
    }

    fn measured(text: &str) -> Vec<(String, usize)> {
        oversizes(&Tree::of(&[("a.rs", text)]))
            .into_iter()
            .map(|(name, o)| (name, o.lines))
            .collect()
    }

    #[test]
    fn functions_are_measured_at_the_limit() {
        assert!(measured(&function("f", 70)).is_empty());
        assert_eq!(measured(&function("f", 71)), [("a.rs::f".to_owned(), 71)]);
        let commented = format!("fn f() {{\n{}}}", "    // why\n\n".repeat(90));
        assert!(measured(&commented).is_empty());
    }

    #[test]
    fn the_longest_of_one_name_counts() {
        let text = format!("{}{}{}", function("f", 72), function("f", 80), function("f", 75));
        assert_eq!(measured(&text), [("a.rs::f".to_owned(), 80)]);
    }

    #[test]
    fn files_are_measured_at_the_limit() {
        assert!(measured(&"use a;\n".repeat(600)).is_empty());
        assert_eq!(measured(&"use a;\n".repeat(601)), [("a.rs".to_owned(), 601)]);
    }

    #[test]
    fn inline_tests_do_not_count_for_the_file() {
        let text = format!(
            "{}#[cfg(test)]\nmod tests {{\n{}}}\n",
            "use a;\n".repeat(600),
            "use b;\n".repeat(99)
        );
        assert!(measured(&text).is_empty());
    }
}
