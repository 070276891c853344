//! Rule: crates depend on each other only along the arrows of the architecture:
//! core <- backends <- windlass <- server, and core <- conformance, which the
//! others use only in tests. The table below is the one list of crates; a new
//! crate needs a decision record and a row here.

use toml::{Table, Value};

use super::tree::Tree;
use super::violation::Violation;

const RULE: &str = "arrows";

struct Row {
    name: &'static str,
    /// Crates it may be built on.
    uses: &'static [&'static str],
    /// Crates its tests may use besides.
    tests_use: &'static [&'static str],
}

const SUITE: &[&str] = &["windlass-conformance"];
const ROWS: &[Row] = &[
    Row { name: "windlass-core", uses: &[], tests_use: &[] },
    Row { name: "windlass-conformance", uses: &["windlass-core"], tests_use: &[] },
    Row { name: "windlass-backends", uses: &["windlass-core"], tests_use: SUITE },
    Row { name: "windlass", uses: &["windlass-core", "windlass-backends"], tests_use: SUITE },
    Row {
        name: "windlass-server",
        uses: &["windlass-core", "windlass-backends", "windlass"],
        tests_use: SUITE,
    },
];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    // Tools may use anything; nothing is built on them.
    let crates = tree.manifests().filter(|(path, _)| !path.starts_with("xtask/"));
    crates.flat_map(|(path, text)| check_manifest(path, text)).collect()
}

fn check_manifest(path: &str, text: &str) -> Vec<Violation> {
    let manifest: Table = match text.parse() {
        Ok(manifest) => manifest,
        Err(error) => {
            return vec![Violation::new(path, 1, RULE, format!("make it valid TOML: {error}"))];
        }
    };
    let name =
        manifest.get("package").and_then(|package| package.get("name")).and_then(Value::as_str);
    let Some(row) = ROWS.iter().find(|row| Some(row.name) == name) else {
        let advice = "a new crate needs a decision record and a row in xtask/src/tidy/arrows.rs";
        return vec![Violation::new(path, line_of(text, "name"), RULE, advice)];
    };
    let mut violations = Vec::new();
    for dependency in dependencies(&manifest) {
        if let Some(advice) = broken_arrow(row, &dependency) {
            violations.push(Violation::new(path, line_of(text, &dependency.key), RULE, advice));
        }
    }
    violations
}

fn broken_arrow(row: &Row, dependency: &Dependency) -> Option<String> {
    let Dependency { package, for_tests, .. } = dependency;
    let known = |list: &[&str]| list.contains(&package.as_str());
    let is_ours = ROWS.iter().any(|row| row.name == package) || package == "xtask";
    if !is_ours || known(row.uses) || (*for_tests && known(row.tests_use)) {
        return None;
    }
    if known(row.tests_use) {
        return Some(format!("`{package}` may only be a dev-dependency of `{}`", row.name));
    }
    Some(format!("`{}` must not depend on `{package}`: move the code along the arrows", row.name))
}

struct Dependency {
    /// The name in the manifest, which may rename the package.
    key: String,
    package: String,
    for_tests: bool,
}

/// All dependencies, those of single targets included.
fn dependencies(manifest: &Table) -> Vec<Dependency> {
    let targets = manifest.get("target").and_then(Value::as_table);
    let targets = targets.into_iter().flat_map(Table::values).filter_map(Value::as_table);
    let mut found = Vec::new();
    for table in std::iter::once(manifest).chain(targets) {
        for (section, for_tests) in
            [("dependencies", false), ("build-dependencies", false), ("dev-dependencies", true)]
        {
            let entries = table.get(section).and_then(Value::as_table);
            for (key, value) in entries.into_iter().flatten() {
                let package = value.get("package").and_then(Value::as_str).unwrap_or(key);
                found.push(Dependency { key: key.clone(), package: package.to_owned(), for_tests });
            }
        }
    }
    found
}

fn line_of(text: &str, key: &str) -> usize {
    let starts =
        |line: &str| line.strip_prefix(key).is_some_and(|rest| rest.starts_with([' ', '.', '=']));
    text.lines().position(starts).map_or(1, |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::super::violation::printed;
    use super::*;

    fn found(name: &str, rest: &str) -> Vec<String> {
        let text = format!("[package]\nname = \"{name}\"\n{rest}");
        printed(&check(&Tree::of(&[("crates/x/Cargo.toml", &text)])))
    }

    #[test]
    fn arrows_forward_are_free() {
        let table = [
            (
                "windlass-core",
                "[dependencies]\nserde.workspace = true\n[dev-dependencies]\nproptest = \"1\"",
            ),
            (
                "windlass-conformance",
                "[dependencies]\nwindlass-core.workspace = true\ntokio = \"1\"",
            ),
            (
                "windlass-backends",
                "[dependencies]\nwindlass-core = {}\n[dev-dependencies]\nwindlass-conformance = {}",
            ),
            ("windlass", "[dependencies]\nwindlass-core = {}\nwindlass-backends = {}"),
            (
                "windlass-server",
                "[dependencies]\nwindlass = {}\n[dev-dependencies]\nwindlass-conformance = {}",
            ),
        ];
        for (name, rest) in table {
            assert_eq!(found(name, rest), Vec::<String>::new(), "{name}");
        }
    }

    #[test]
    fn arrows_backward_are_found() {
        let table = [
            ("windlass-core", "[dependencies]\nwindlass-backends = {}"),
            ("windlass-core", "[dev-dependencies]\nwindlass-conformance = {}"),
            ("windlass-core", "[build-dependencies]\nwindlass.workspace = true"),
            (
                "windlass-backends",
                "[dependencies]\nengine = { package = \"windlass\", optional = true }",
            ),
            ("windlass-backends", "[target.'cfg(unix)'.dependencies]\nwindlass-server = {}"),
            ("windlass-conformance", "[dev-dependencies]\nwindlass-backends = {}"),
            ("windlass", "[dependencies]\nwindlass-server = {}"),
            ("windlass-server", "[dependencies]\nxtask = {}"),
        ];
        for (name, rest) in table {
            assert_eq!(found(name, rest).len(), 1, "{name}: {rest}");
        }
    }

    #[test]
    fn the_suite_is_only_for_tests() {
        let lines = found(
            "windlass",
            "[dependencies]\nserde = \"1\"\nwindlass-conformance.workspace = true",
        );
        assert_eq!(lines.len(), 1);
        assert!(lines[0].starts_with("crates/x/Cargo.toml:5: arrows: "), "{lines:?}");
        assert!(lines[0].contains("only be a dev-dependency"), "{lines:?}");
    }

    #[test]
    fn unknown_crates_and_broken_manifests_are_found() {
        assert!(found("windlass-extras", "")[0].contains("decision record"));
        assert!(found("windlass", "[dependencies")[0].contains("valid TOML"));
        assert!(
            check(&Tree::of(&[("xtask/Cargo.toml", "[dependencies]\nwindlass = {}")])).is_empty()
        );
    }
}
