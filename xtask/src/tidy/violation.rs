//! One broken rule: where it is and what to do about it. Prints in the form
//! `path:line: rule: advice`, which editors turn into links.

use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Violation {
    path: String,
    line: usize,
    rule: &'static str,
    advice: String,
}

impl Violation {
    /// `line` counts from 1; a violation of a whole file is on line 1.
    pub(super) fn new(
        path: &str,
        line: usize,
        rule: &'static str,
        advice: impl Into<String>,
    ) -> Violation {
        Violation { path: path.to_owned(), line, rule, advice: advice.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule, self.advice)
    }
}

/// The printed forms, for short assertions in the tests of the rules.
#[cfg(test)]
pub(super) fn printed(violations: &[Violation]) -> Vec<String> {
    violations.iter().map(ToString::to_string).collect()
}
