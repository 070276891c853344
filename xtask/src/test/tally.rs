//! Reads the output of Rust's test harness: totals from its result lines, and
//! the conformance cases of each store from the names of single tests. It only
//! counts; whether the counts are acceptable is decided by `parity.rs` and
//! `mod.rs`.

use std::collections::BTreeMap;

/// Stores whose conformance cases are counted. A case's full name is
/// `store::area::case`; tests of one store alone live under other prefixes
/// (`sqlite_only::`) and are ordinary tests.
const STORES: &[&str] = &["memory", "sqlite", "postgres", "mysql"];

/// How often each case (without its store's prefix) was reported.
pub(super) type Cases = BTreeMap<String, usize>;

#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) passed: usize,
    pub(super) failed: usize,
    pub(super) ignored: usize,
    /// Conformance cases by store; only stores that appeared.
    pub(super) cases: BTreeMap<&'static str, Cases>,
}

impl Tally {
    pub(super) fn read_line(&mut self, line: &str) {
        let line = line.trim_end();
        if let Some(result) = line.strip_prefix("test result: ") {
            self.add_totals(result);
        } else if let Some(name) = line.strip_prefix("test ").and_then(test_name) {
            self.add_case(name);
        }
    }

    /// `ok. 3 passed; 0 failed; 1 ignored; 0 measured; ...`
    fn add_totals(&mut self, result: &str) {
        let counts = result.split_once(". ").map_or("", |(_, counts)| counts);
        for part in counts.split(';') {
            let Some((number, word)) = part.trim().split_once(' ') else { continue };
            let Ok(number) = number.parse::<usize>() else { continue };
            match word {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
    }

    fn add_case(&mut self, name: &str) {
        let Some((prefix, case)) = name.split_once("::") else { return };
        let Some(store) = STORES.iter().find(|store| **store == prefix) else { return };
        *self.cases.entry(store).or_default().entry(case.to_owned()).or_default() += 1;
    }
}

/// The name in `memory::claim::case ... ok`, if this is such a line.
fn test_name(line: &str) -> Option<&str> {
    let (name, result) = line.split_once(" ... ")?;
    let known = result == "ok" || result == "FAILED" || result.starts_with("ignored");
    known.then(|| name.trim_end_matches(" - should panic"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(lines: &[&str]) -> Tally {
        let mut tally = Tally::default();
        lines.iter().for_each(|line| tally.read_line(line));
        tally
    }

    #[test]
    fn totals_are_summed_over_test_programs() {
        let t = tally(&[
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s",
            "test result: FAILED. 4 passed; 2 failed; 5 ignored; 0 measured; 7 filtered out; finished in 1s\r\n",
            "note: test result: ok. 100 passed",
        ]);
        assert_eq!((t.passed, t.failed, t.ignored), (7, 2, 6));
    }

    #[test]
    fn cases_are_counted_by_store() {
        let t = tally(&[
            "test memory::claim::oldest_first ... ok",
            "test memory::claim::refuses ... FAILED",
            "test memory::claim::slow ... ignored, needs a server",
            "test sqlite::claim::oldest_first - should panic ... ok",
        ]);
        assert_eq!(t.cases["memory"].len(), 3);
        assert!(t.cases["sqlite"].contains_key("claim::oldest_first"));
    }

    #[test]
    fn other_lines_are_not_cases() {
        let t = tally(&[
            "test sqlite_only::claim::index_is_used ... ok",
            "test store::memory::tests::x ... ok",
            "test memory::claim::x has been running for over 60 seconds",
            "test memory ... ok",
            "running 3 tests",
        ]);
        assert!(t.cases.is_empty());
    }
}
