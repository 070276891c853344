//! One Rust file prepared for the rules: its text, the same text masked, and
//! which of its lines belong to tests. Rules ask it questions by line number and
//! do their own searching in the masked text.

use std::collections::BTreeSet;

use super::mask::mask;
use super::regions::{self, Function};
use super::token::{Token, tokens};

#[derive(Debug)]
pub(super) struct RustFile {
    pub(super) path: String,
    pub(super) text: String,
    /// The text without comments and literals; see `mask.rs`.
    pub(super) code: String,
    pub(super) functions: Vec<Function>,
    /// The whole file is test code.
    pub(super) is_test: bool,
    /// Test modules this file declares that have a file of their own.
    test_modules: Vec<String>,
    /// Lines inside items that are only in test builds.
    test_lines: BTreeSet<usize>,
}

impl RustFile {
    pub(super) fn new(path: &str, text: &str) -> RustFile {
        let code = mask(text);
        let found = tokens(&code);
        let test_only = regions::test_only(&found);
        let functions = regions::functions(&found);
        RustFile {
            path: path.to_owned(),
            text: text.to_owned(),
            functions,
            is_test: test_only.whole_file || in_tests_folder(path),
            test_modules: test_only.modules,
            test_lines: test_only.lines.into_iter().flatten().collect(),
            code,
        }
    }

    pub(super) fn tokens(&self) -> Vec<Token<'_>> {
        tokens(&self.code)
    }

    /// Whether `line` is in a test item of a file that is not all tests.
    pub(super) fn in_test_item(&self, line: usize) -> bool {
        self.test_lines.contains(&line)
    }

    pub(super) fn is_test_line(&self, line: usize) -> bool {
        self.is_test || self.in_test_item(line)
    }

    /// Numbers of the lines that hold code: not blank, not only a comment.
    pub(super) fn code_lines(&self) -> impl Iterator<Item = usize> {
        self.code
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty())
            .map(|(index, _)| index + 1)
    }

    /// Where the test modules declared here may be: `x.rs` or `x/mod.rs`, beside
    /// `mod.rs`, `lib.rs` and `main.rs`, or in the folder named like this file.
    fn test_module_paths(&self) -> Vec<String> {
        let stem = self.path.trim_end_matches(".rs");
        let (folder, name) = stem.rsplit_once('/').unwrap_or((".", stem));
        let base = if matches!(name, "mod" | "lib" | "main") { folder } else { stem };
        let both =
            |module: &String| [format!("{base}/{module}.rs"), format!("{base}/{module}/mod.rs")];
        self.test_modules.iter().flat_map(both).collect()
    }
}

/// Marks files that are test modules of other files.
pub(super) fn mark_test_files(files: &mut [RustFile]) {
    let paths: BTreeSet<String> = files.iter().flat_map(RustFile::test_module_paths).collect();
    for file in files.iter_mut().filter(|file| paths.contains(&file.path)) {
        file.is_test = true;
    }
}

/// `crates/x/tests/..`, `xtask/tests/..`: beside `src`, not a module below it.
fn in_tests_folder(path: &str) -> bool {
    let folders: Vec<&str> = path.split('/').collect();
    folders.contains(&"tests") && !folders.contains(&"src")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_code_leave_out_comments_and_blanks() {
        let file =
            RustFile::new("a.rs", "//! X.\n\nfn a() {\n    // why\n    \"text\n    more\"\n}\n");
        assert_eq!(file.code_lines().collect::<Vec<_>>(), [3, 5, 6, 7]);
    }

    #[test]
    fn tests_are_known_by_item_folder_and_declaration() {
        let inline =
            RustFile::new("crates/a/src/lib.rs", "fn a() {}\n#[cfg(test)]\nmod tests {\n}");
        assert!(!inline.is_test_line(1) && inline.is_test_line(3));
        assert!(RustFile::new("crates/a/tests/b/c.rs", "").is_test_line(1));
        assert!(!RustFile::new("crates/a/src/tests/c.rs", "").is_test_line(1));

        let mut files = vec![
            RustFile::new("crates/a/src/lib.rs", "#[cfg(test)]\nmod tests;"),
            RustFile::new("crates/a/src/state.rs", "#[cfg(test)] mod table;"),
            RustFile::new("crates/a/src/tests.rs", ""),
            RustFile::new("crates/a/src/state/table.rs", ""),
            RustFile::new("crates/a/src/table.rs", ""),
        ];
        mark_test_files(&mut files);
        let marked: Vec<bool> = files.iter().map(|file| file.is_test).collect();
        assert_eq!(marked, [false, false, true, true, false]);
    }
}
