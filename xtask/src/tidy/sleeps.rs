//! Rule: tests do not sleep. They move a clock or wait for a condition, because
//! a sleep is either too short on a busy machine or too long on every other. A
//! process test that truly needs one says why on the line; the conformance suite
//! never may, since every backend pays for it.

use super::rust_file::RustFile;
use super::tree::Tree;
use super::violation::Violation;

const RULE: &str = "no-sleep";
const SUITE: &str = "crates/windlass-conformance/";
const ESCAPE: &str = "// tidy: allow-sleep because ";

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let files = tree.rust.iter().filter(|file| file.path.starts_with("crates/"));
    files.flat_map(check_file).collect()
}

fn check_file(file: &RustFile) -> Vec<Violation> {
    let in_suite = file.path.starts_with(SUITE);
    let advice = if in_suite {
        "move the clock instead; the suite has no exceptions".to_owned()
    } else {
        format!("move the clock or wait for a condition, or add `{ESCAPE}<reason>`")
    };
    let lines = sleeping_lines(file).into_iter();
    lines
        .filter(|line| in_suite || (file.is_test_line(*line) && !excused(file, *line)))
        .map(|line| Violation::new(&file.path, line, RULE, advice.clone()))
        .collect()
}

/// Lines that call something named `sleep`; defining one is not a call.
fn sleeping_lines(file: &RustFile) -> Vec<usize> {
    let tokens = file.tokens();
    let calls = (0..tokens.len()).filter(|at| {
        let defined = *at > 0 && tokens[at - 1].text == "fn";
        tokens[*at].text == "sleep" && tokens.get(at + 1).is_some_and(|t| t.text == "(") && !defined
    });
    calls.map(|at| tokens[at].line).collect()
}

/// Whether the line, or the comment above it, gives a reason.
fn excused(file: &RustFile, line: usize) -> bool {
    let above = line.saturating_sub(2);
    let mut near = file.text.lines().skip(above).take(line - above);
    near.any(|text| text.split_once(ESCAPE).is_some_and(|(_, reason)| !reason.trim().is_empty()))
}

#[cfg(test)]
mod tests {
    use super::super::violation::printed;
    use super::*;

    const SLEEP: &str = "fn a() {\n    std::thread::sleep(x);\n}\n";

    fn found(path: &str, text: &str) -> usize {
        check(&Tree::of(&[(path, text)])).len()
    }

    #[test]
    fn sleeps_in_tests_are_found() {
        let lines = printed(&check(&Tree::of(&[("crates/a/tests/b.rs", SLEEP)])));
        assert!(lines[0].starts_with("crates/a/tests/b.rs:2: no-sleep: "), "{lines:?}");
        assert_eq!(
            found("crates/a/src/b.rs", &format!("#[cfg(test)]\nmod tests {{\n{SLEEP}}}")),
            1
        );
        assert_eq!(found("crates/a/tests/b.rs", "async fn a() { clock.sleep (x).await }"), 1);
        assert_eq!(found("crates/windlass-conformance/src/b.rs", SLEEP), 1);
    }

    #[test]
    fn other_code_may_sleep() {
        assert_eq!(found("crates/a/src/b.rs", SLEEP), 0);
        assert_eq!(
            found(
                "crates/a/tests/b.rs",
                "// sleep(x)\nfn sleep(x: u8) { sleep_until(x); \"sleep(1)\"; }"
            ),
            0
        );
    }

    #[test]
    fn a_reason_excuses_outside_the_suite() {
        let beside =
            "fn a() { sleep(x); } // tidy: allow-sleep because the child has no other sign\n";
        let above =
            "// tidy: allow-sleep because the child has no other sign\nfn a() { sleep(x); }\n";
        let far = "// tidy: allow-sleep because it is far\n\nfn a() { sleep(x); }\n";
        let bare = "fn a() { sleep(x); } // tidy: allow-sleep because \n";
        for (text, count) in [(beside, 0), (above, 0), (far, 1), (bare, 1)] {
            assert_eq!(found("crates/a/tests/b.rs", text), count, "{text}");
        }
        assert_eq!(found("crates/windlass-conformance/src/b.rs", beside), 1);
    }
}
