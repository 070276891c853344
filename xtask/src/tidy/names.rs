//! Rule: no type, module or file named Manager, Helper, Util or Common. Such a
//! name says that something is there, not what it does, and everything ends up
//! in it. Only names declared here count: a dependency may call its types what
//! it likes.

use super::rust_file::RustFile;
use super::tree::Tree;
use super::violation::Violation;

const RULE: &str = "names";
const WORDS: &[&str] = &["manager", "helper", "util", "common"];
const DECLARERS: &[&str] = &["struct", "enum", "trait", "union", "type", "mod"];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in &tree.rust {
        let declared = declared(file).into_iter();
        let in_path = file.path.trim_end_matches(".rs").split('/').map(|part| (part, 1));
        for (name, line) in declared.chain(in_path).filter(|(name, _)| says_nothing(name)) {
            let advice = format!("`{name}` says nothing: name it after what it does");
            violations.push(Violation::new(&file.path, line, RULE, advice));
        }
    }
    violations
}

fn declared(file: &RustFile) -> Vec<(&str, usize)> {
    let tokens = file.tokens();
    let pairs =
        tokens.windows(2).filter(|pair| DECLARERS.contains(&pair[0].text) && pair[1].is_name());
    pairs.map(|pair| (pair[1].text, pair[1].line)).collect()
}

/// Whether the last word of a name, `CamelCase` or `snake_case`, is forbidden.
fn says_nothing(name: &str) -> bool {
    let start = name.rfind(|c: char| c.is_uppercase() || c == '_' || c == '-').unwrap_or(0);
    let last = name[start..].trim_start_matches(['_', '-']).to_lowercase();
    WORDS.contains(&last.trim_end_matches('s'))
}

#[cfg(test)]
mod tests {
    use super::super::violation::printed;
    use super::*;

    fn found(path: &str, code: &str) -> Vec<String> {
        printed(&check(&Tree::of(&[(path, code)])))
    }

    #[test]
    fn empty_names_are_found() {
        let table = [
            "struct TaskManager;",
            "pub(crate) enum Helper {}",
            "trait StoreHelpers {}",
            "type PathUtil = ();",
            "mod utils {}",
            "pub mod store_common;",
        ];
        for code in table {
            assert_eq!(found("crates/a/src/b.rs", code).len(), 1, "{code}");
        }
        assert_eq!(found("crates/a/tests/common/mod.rs", "").len(), 1);
        assert_eq!(found("crates/a/src/lease_manager.rs", "").len(), 1);
        assert!(
            found("crates/a/src/b.rs", "\nstruct XManager;")[0]
                .starts_with("crates/a/src/b.rs:2: names: ")
        );
    }

    #[test]
    fn other_names_and_uses_are_free() {
        let code = "use redis::ConnectionManager; struct Commoner; struct Utility; fn f(m: TaskManager) {} // mod util";
        assert!(found("crates/a/src/b.rs", code).is_empty());
    }
}
