//! Rule: sizes only shrink. Whatever is longer than its limit must be listed in
//! the ratchet file with its exact size; growing breaks the rule, and so does
//! shrinking without lowering the number, so the list can never go stale.
//! Measuring is done in `size.rs`.

use std::collections::BTreeMap;
use std::path::Path;

use super::size::{Oversize, oversizes};
use super::tree::Tree;
use super::violation::Violation;
use crate::stop::Stop;

const RULE: &str = "size";
const FILE: &str = "xtask/tidy-ratchet.toml";
const HEADER: &str = "\
# Files and functions longer than their limit, with their size in code lines:
# \"path\" = lines, \"path::function\" = lines. Numbers only go down.
# `cargo xtask tidy --ratchet` rewrites this file.
";

type Exceptions = BTreeMap<String, usize>;

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let text = tree.texts.get(FILE).map_or("", String::as_str);
    let exceptions = match parse(text) {
        Ok(exceptions) => exceptions,
        Err(error) => return vec![Violation::new(FILE, 1, RULE, error)],
    };
    let sizes = oversizes(tree);
    let mut violations: Vec<Violation> = sizes
        .iter()
        .filter_map(|(name, size)| too_long(name, size, exceptions.get(name)))
        .collect();
    for (name, allowed) in &exceptions {
        if let Some(advice) = too_generous(name, *allowed, sizes.get(name)) {
            violations.push(Violation::new(FILE, line_of(text, name), RULE, advice));
        }
    }
    violations
}

fn too_long(name: &str, size: &Oversize, allowed: Option<&usize>) -> Option<Violation> {
    let limit = allowed.copied().unwrap_or(size.limit);
    let advice = || match allowed {
        None => {
            format!("`{name}` has {} code lines, the limit is {limit}: look for a seam", size.lines)
        }
        Some(_) => {
            format!("`{name}` grew from {limit} to {} code lines: split it instead", size.lines)
        }
    };
    (size.lines > limit).then(|| Violation::new(&size.path, size.line, RULE, advice()))
}

fn too_generous(name: &str, allowed: usize, size: Option<&Oversize>) -> Option<String> {
    match size {
        None => {
            Some(format!("`{name}` is no longer too long: remove it (cargo xtask tidy --ratchet)"))
        }
        Some(size) if size.lines < allowed => Some(format!(
            "`{name}` shrank: lower the ratchet to {} (cargo xtask tidy --ratchet)",
            size.lines
        )),
        Some(_) => None,
    }
}

/// `cargo xtask tidy --ratchet`: writes today's exceptions, unless one grew.
pub(super) fn rewrite(root: &Path, tree: &Tree) -> Result<(), Stop> {
    let old = parse(tree.texts.get(FILE).map_or("", String::as_str)).map_err(Stop::Error)?;
    match tightened(&old, &oversizes(tree)) {
        Ok(new) => {
            std::fs::write(root.join(FILE), render(&new))
                .map_err(|e| Stop::Error(format!("{FILE}: {e}")))?;
            println!("{FILE}: {} exception(s)", new.len());
            Ok(())
        }
        Err(grown) => {
            grown.iter().for_each(|line| println!("{line}"));
            println!("{FILE} is unchanged: the ratchet never raises a number");
            Err(Stop::Failed)
        }
    }
}

/// The new exceptions, or what grew since the old ones.
fn tightened(
    old: &Exceptions,
    sizes: &BTreeMap<String, Oversize>,
) -> Result<Exceptions, Vec<String>> {
    let listed = sizes.iter().filter(|(name, _)| old.contains_key(*name));
    let grown: Vec<String> = listed
        .filter_map(|(name, size)| too_long(name, size, old.get(name)))
        .map(|violation| violation.to_string())
        .collect();
    if !grown.is_empty() {
        return Err(grown);
    }
    Ok(sizes.iter().map(|(name, size)| (name.clone(), size.lines)).collect())
}

fn parse(text: &str) -> Result<Exceptions, String> {
    toml::from_str(text)
        .map_err(|error| format!("write lines like \"path\" = 650: {}", error.message()))
}

fn render(exceptions: &Exceptions) -> String {
    let lines = exceptions.iter().map(|(name, lines)| format!("{name:?} = {lines}\n"));
    format!("{HEADER}{}", lines.collect::<String>())
}

fn line_of(text: &str, name: &str) -> usize {
    text.lines().position(|line| line.contains(&format!("{name:?}"))).map_or(1, |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::super::violation::printed;
    use super::*;

    fn tree(lines: usize, ratchet: &str) -> Tree {
        Tree::of(&[("a.rs", &"use a;\n".repeat(lines)), (FILE, ratchet)])
    }

    fn found(lines: usize, ratchet: &str) -> Vec<String> {
        printed(&check(&tree(lines, ratchet)))
    }

    fn only(violations: &[String], words: &str) {
        assert!(violations.len() == 1 && violations[0].contains(words), "{violations:?}");
    }

    #[test]
    fn an_unlisted_excess_is_found() {
        only(&found(601, ""), "a.rs:1: size: `a.rs` has 601 code lines");
        assert!(found(600, "").is_empty());
    }

    #[test]
    fn a_listed_excess_must_be_exact() {
        assert!(found(650, "\"a.rs\" = 650").is_empty());
        only(&found(651, "\"a.rs\" = 650"), "grew from 650 to 651");
        only(
            &found(640, "# why\n\"a.rs\" = 650"),
            "tidy-ratchet.toml:2: size: `a.rs` shrank: lower the ratchet to 640",
        );
        only(&found(10, "\"a.rs\" = 650"), "no longer too long");
        only(&found(10, "\"gone.rs\" = 650"), "no longer too long");
    }

    #[test]
    fn long_functions_have_names() {
        let text = format!("fn f() {{\n{}}}\n", "    a();\n".repeat(80));
        let free = Tree::of(&[("a.rs", &text)]);
        only(&printed(&check(&free)), "`a.rs::f` has 82 code lines");
        assert!(check(&Tree::of(&[("a.rs", &text), (FILE, "\"a.rs::f\" = 82")])).is_empty());
    }

    #[test]
    fn a_broken_file_is_a_violation() {
        only(&found(1, "\"a.rs\" = \"many\""), "write lines like");
    }

    #[test]
    fn tightening_lowers_adds_and_removes_but_never_raises() {
        let old = |lines| parse(&format!("\"a.rs\" = {lines}")).expect("a ratchet");
        let new = |lines, old| tightened(&old, &oversizes(&tree(lines, "")));
        assert_eq!(new(640, old(650)), Ok(old(640)));
        assert_eq!(new(640, Exceptions::new()), Ok(old(640)));
        assert_eq!(new(10, old(650)), Ok(Exceptions::new()));
        only(&new(651, old(650)).expect_err("must refuse"), "grew from 650 to 651");
    }

    #[test]
    fn rewriting_writes_what_the_check_accepts() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("xtask")).expect("a folder");
        let written = || std::fs::read_to_string(folder.path().join(FILE)).expect("the file");

        assert!(rewrite(folder.path(), &tree(650, "")).is_ok());
        assert!(written().ends_with("\n\"a.rs\" = 650\n"));
        assert!(found(650, &written()).is_empty());

        assert!(rewrite(folder.path(), &tree(651, &written())).is_err());
        assert!(written().ends_with("\n\"a.rs\" = 650\n"));
    }
}
