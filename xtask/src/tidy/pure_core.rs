//! Rule: `windlass-core` decides, it does not act. No files, network, threads,
//! wall clock, random source or async runtime in its non-test code; time and
//! chance come in as arguments, which is what makes every decision repeatable
//! in a test.

use super::paths::{Mention, mentions};
use super::tree::Tree;
use super::violation::Violation;

const RULE: &str = "pure-core";
const FOLDER: &str = "crates/windlass-core/src/";

/// Forbidden wherever these segments follow each other.
const ANYWHERE: &[&[&str]] = &[
    &["std", "fs"],
    &["std", "net"],
    &["std", "io"],
    &["std", "env"],
    &["std", "os"],
    &["std", "process"],
    &["std", "thread"],
    &["SystemTime"],
    &["Instant", "now"],
    &["Timestamp", "now"],
    &["Zoned", "now"],
    &["Utc", "now"],
    &["Local", "now"],
];

/// Crates forbidden as the start of a path; a variable may have the same name.
const CRATES: &[&str] = &["tokio", "async_std", "smol", "rand", "fastrand", "getrandom"];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in tree.rust.iter().filter(|file| file.path.starts_with(FOLDER)) {
        for mention in mentions(&file.tokens()) {
            if forbidden(&mention) && !file.is_test_line(mention.line) {
                let path = mention.segments.join("::");
                let advice = format!(
                    "`{path}` does not belong in core: take time, chance or data as an argument"
                );
                violations.push(Violation::new(&file.path, mention.line, RULE, advice));
            }
        }
    }
    violations
}

fn forbidden(mention: &Mention<'_>) -> bool {
    let segments = &mention.segments;
    let in_path = |needle: &&[&str]| segments.windows(needle.len()).any(|window| window == *needle);
    let names_crate = segments.len() > 1 || mention.import;
    ANYWHERE.iter().any(in_path)
        || (names_crate && segments.first().is_some_and(|first| CRATES.contains(first)))
}

#[cfg(test)]
mod tests {
    use super::super::violation::printed;
    use super::*;

    fn found(code: &str) -> Vec<String> {
        printed(&check(&Tree::of(&[("crates/windlass-core/src/a.rs", code)])))
    }

    #[test]
    fn each_forbidden_path_is_found() {
        let table = [
            "use std::fs;",
            "use std::{fmt, net::TcpStream};",
            "fn f() { std::io::stdin(); }",
            "fn f() { std::env::var(x); }",
            "fn f() { std::process::exit(1); }",
            "use std::thread;",
            "use std::os::fd::AsFd;",
            "use std::time::SystemTime;",
            "fn f() { Instant::now(); }",
            "fn f() { jiff::Timestamp::now(); }",
            "fn f() { Zoned::\n now(); }",
            "async fn f() { tokio::spawn(x); }",
            "use tokio;",
            "use rand::Rng;",
        ];
        for code in table {
            assert_eq!(found(code).len(), 1, "{code}");
        }
    }

    #[test]
    fn the_place_and_the_path_are_named() {
        let line = &found("fn f() {\n    std::fs::read(x);\n}")[0];
        assert!(
            line.starts_with("crates/windlass-core/src/a.rs:2: pure-core: `std::fs::read`"),
            "{line}"
        );
    }

    #[test]
    fn tests_comments_strings_and_other_names_are_free() {
        let table = [
            "// std::fs is for others, SystemTime too\n/* tokio::spawn */",
            "const A: &str = \"std::fs\";",
            "#[cfg(test)]\nmod tests {\n    use std::fs;\n}",
            "fn f(rand: u64, now: Timestamp) -> u64 { rand }",
            "use std::time::{Duration, Instant};",
        ];
        for code in table {
            assert!(found(code).is_empty(), "{code}");
        }
        assert!(check(&Tree::of(&[("crates/windlass/src/a.rs", "use std::fs;")])).is_empty());
    }
}
