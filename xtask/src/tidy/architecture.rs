//! Rule: the map shows the whole country. Every crate must be named in
//! ARCHITECTURE.md; what the map says about it is for people to judge.

use super::tree::Tree;
use super::violation::Violation;

const RULE: &str = "architecture";
const MAP: &str = "ARCHITECTURE.md";

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let Some(map) = tree.texts.get(MAP) else {
        return vec![Violation::new(MAP, 1, RULE, "write the map of the crates")];
    };
    let folders = tree.manifests().filter_map(|(path, _)| path.rsplit('/').nth(1));
    let missing = folders.filter(|name| !names(map, name));
    missing
        .map(|name| Violation::new(MAP, 1, RULE, format!("say what crate `{name}` is for")))
        .collect()
}

/// Whether `name` stands in `map` by itself: `windlass` is not in `windlass-core`.
fn names(map: &str, name: &str) -> bool {
    let mut words = map.split(|c: char| !c.is_alphanumeric() && c != '-' && c != '_');
    words.any(|word| word == name)
}

#[cfg(test)]
mod tests {
    use super::super::violation::printed;
    use super::*;

    fn found(map: &str) -> Vec<String> {
        printed(&check(&Tree::of(&[
            (MAP, map),
            ("crates/windlass/Cargo.toml", ""),
            ("crates/windlass-core/Cargo.toml", ""),
            ("xtask/Cargo.toml", ""),
        ])))
    }

    #[test]
    fn a_missing_crate_or_map_is_found() {
        let lines = found("`windlass-core`, `xtask`");
        assert_eq!(lines, ["ARCHITECTURE.md:1: architecture: say what crate `windlass` is for"]);
        assert_eq!(check(&Tree::of(&[("crates/a/Cargo.toml", "")])).len(), 1);
    }

    #[test]
    fn a_full_map_passes() {
        assert!(found("crates/windlass/ on crates/windlass-core/, and xtask.").is_empty());
    }
}
