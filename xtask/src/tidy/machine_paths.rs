//! Rule: no absolute path of somebody's machine in the project's files, where it
//! would work for one person only. Works on plain text, comments and
//! documentation included, because that is where such paths are pasted.

use super::tree::Tree;
use super::violation::Violation;

const RULE: &str = "machine-path";
/// Without their slashes, so that this file does not break its own rule.
const FOLDERS: &[&str] = &["work", "root", "home"];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, text) in &tree.texts {
        for (index, line) in text.lines().enumerate() {
            if let Some(folder) = FOLDERS.iter().find(|folder| starts_path(line, folder)) {
                let advice = format!(
                    "replace the path below the machine's `{folder}` folder by a relative one"
                );
                violations.push(Violation::new(path, index + 1, RULE, advice));
            }
        }
    }
    violations
}

/// Whether an absolute path into `folder` starts somewhere in the line; a folder
/// of that name in the middle of a relative path is fine.
fn starts_path(line: &str, folder: &str) -> bool {
    let needle = format!("/{folder}/");
    line.match_indices(&needle).any(|(at, _)| !line[..at].ends_with(inside_path))
}

fn inside_path(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '~' | '}' | '*')
}

#[cfg(test)]
mod tests {
    use super::super::violation::printed;
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        printed(&check(&Tree::of(&[(path, text)])))
    }

    #[test]
    fn absolute_paths_are_found_in_every_kind_of_file() {
        for folder in FOLDERS {
            let text = format!("first\nopen /{folder}/x, or sqlite:/{folder}/y");
            for path in ["README.md", "a.rs", "a.toml", "a.sh", ".ci/run"] {
                let lines = found(path, &text);
                assert!(
                    lines.len() == 1 && lines[0].starts_with(&format!("{path}:2: machine-path: ")),
                    "{lines:?}"
                );
            }
        }
    }

    #[test]
    fn relative_paths_are_free() {
        assert!(
            found("a.md", concat!("target/wo", "rk/x ./home/x $DIR/ro", "ot/x /homes/x, the root"))
                .is_empty()
        );
    }
}
