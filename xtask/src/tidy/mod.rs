//! `cargo xtask tidy`: the house rules as checks. This file holds the list of
//! rules and the command; each rule is one function in its own file that takes
//! the `Tree` read by `tree.rs` and returns violations. Rules never read the
//! disk, so each is tested on a few lines of text. The real tree is checked by
//! the last test below, hence also by `cargo xtask test`.

mod architecture;
mod arrows;
mod machine_paths;
mod mask;
mod names;
mod opening;
mod paths;
mod pure_core;
mod ratchet;
mod regions;
mod rust_file;
mod size;
mod sleeps;
mod token;
mod tree;
mod violation;

use std::path::Path;

use crate::stop::Stop;
use tree::Tree;
use violation::Violation;

type Rule = fn(&Tree) -> Vec<Violation>;

const RULES: &[Rule] = &[
    arrows::check,
    pure_core::check,
    opening::check,
    ratchet::check,
    sleeps::check,
    architecture::check,
    machine_paths::check,
    names::check,
];

pub(crate) fn run(root: &Path, args: &[String]) -> Result<(), Stop> {
    match args {
        [] => report(&check(&read(root)?)),
        [flag] if flag == "--ratchet" => ratchet::rewrite(root, &read(root)?),
        [flag] => {
            Err(Stop::Usage(format!("`cargo xtask tidy` knows only --ratchet, but got `{flag}`")))
        }
        _ => Err(Stop::Usage("`cargo xtask tidy` takes at most one flag, --ratchet".to_owned())),
    }
}

fn read(root: &Path) -> Result<Tree, Stop> {
    Tree::read(root).map_err(|error| Stop::Error(format!("reading the tree: {error}")))
}

fn check(tree: &Tree) -> Vec<Violation> {
    let mut all: Vec<Violation> = RULES.iter().flat_map(|rule| rule(tree)).collect();
    all.sort();
    all
}

fn report(violations: &[Violation]) -> Result<(), Stop> {
    for violation in violations {
        println!("{violation}");
    }
    if violations.is_empty() {
        println!("tidy");
        return Ok(());
    }
    println!("{} violation(s)", violations.len());
    Err(Stop::Failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn violations_fail_the_command() {
        assert!(report(&[]).is_ok());
        assert!(report(&[Violation::new("a.rs", 1, "opening", "write one")]).is_err());
    }

    #[test]
    fn the_workspace_is_tidy() {
        let tree = read(&crate::root::find().expect("a workspace")).expect("a readable tree");
        assert!(tree.rust.len() > 10, "the walk found too little: {} files", tree.rust.len());
        let violations: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
        assert!(violations.is_empty(), "\n{}", violations.join("\n"));
    }
}
