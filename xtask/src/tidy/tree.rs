//! The project's text files, read once for all rules. Files come from git, so
//! that ignored scratch files do not count but new files do before they are
//! committed; without git (an unpacked archive) a plain walk stands in. The only
//! file of `tidy`, besides the ratchet's rewrite, that touches the disk.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use super::rust_file::{self, RustFile};

/// Endings of the files the rules look at; everything in `.ci/` as well.
const ENDINGS: &[&str] = &[".md", ".rs", ".toml", ".sh"];
/// Folders the plain walk leaves out; git leaves them out by `.gitignore`.
const SKIPPED: &[&str] = &["target", "node_modules"];
/// Hidden folders that hold project files.
const HIDDEN: &[&str] = &[".ci", ".cargo", ".github"];

#[derive(Debug, Default)]
pub(super) struct Tree {
    /// Path from the root, with `/`, to text. Rust files are here too.
    pub(super) texts: BTreeMap<String, String>,
    /// The Rust files, in order of their paths.
    pub(super) rust: Vec<RustFile>,
}

impl Tree {
    pub(super) fn read(root: &Path) -> io::Result<Tree> {
        let mut paths = listed_by_git(root);
        if paths.is_empty() {
            walk(root, "", &mut paths)?;
        }
        let mut texts = BTreeMap::new();
        for path in paths.into_iter().filter(|path| wanted(path)) {
            let full = root.join(&path);
            // Git still lists files deleted since the last commit.
            if full.is_file() {
                texts.insert(path, String::from_utf8_lossy(&std::fs::read(full)?).into_owned());
            }
        }
        Ok(Tree::new(texts))
    }

    fn new(texts: BTreeMap<String, String>) -> Tree {
        let rust = texts.iter().filter(|(path, _)| path.ends_with(".rs"));
        let mut rust: Vec<RustFile> = rust.map(|(path, text)| RustFile::new(path, text)).collect();
        rust_file::mark_test_files(&mut rust);
        Tree { texts, rust }
    }

    /// A tree in memory, for the tests of the rules.
    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Tree {
        Tree::new(
            files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect(),
        )
    }

    /// Paths and texts of the manifests of all crates, `xtask` included.
    pub(super) fn manifests(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts
            .iter()
            .filter(|(path, _)| is_manifest(path))
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }
}

fn is_manifest(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    matches!(parts[..], ["crates", _, "Cargo.toml"] | ["xtask", "Cargo.toml"])
}

fn wanted(path: &str) -> bool {
    path.starts_with(".ci/") || ENDINGS.iter().any(|ending| path.ends_with(ending))
}

/// Tracked and new files that are not ignored; empty when git cannot say.
fn listed_by_git(root: &Path) -> Vec<String> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let output = git.current_dir(root).stdin(Stdio::null()).stderr(Stdio::null()).output();
    let Ok(output) = output else { return Vec::new() };
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    listed.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect()
}

fn walk(root: &Path, folder: &str, found: &mut Vec<String>) -> io::Result<()> {
    for entry in std::fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        let kind = entry.file_type()?;
        let left_out =
            SKIPPED.contains(&&*name) || (name.starts_with('.') && !HIDDEN.contains(&&*name));
        if kind.is_dir() && !left_out {
            walk(root, &path, found)?;
        } else if kind.is_file() {
            found.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_without_git_is_walked() {
        let folder = tempfile::tempdir().expect("a folder");
        for path in ["src/a.rs", "target/b.rs", ".git/c.md", ".ci/run", "d.png"] {
            let full = folder.path().join(path);
            std::fs::create_dir_all(full.parent().expect("a parent")).expect("folders");
            std::fs::write(full, "//! x").expect("a file");
        }
        let tree = Tree::read(folder.path()).expect("a tree");
        assert_eq!(tree.texts.keys().collect::<Vec<_>>(), [".ci/run", "src/a.rs"]);
        assert_eq!(tree.rust.len(), 1);
    }

    #[test]
    fn manifests_are_those_of_crates() {
        let tree =
            Tree::of(&[("Cargo.toml", ""), ("crates/a/Cargo.toml", ""), ("xtask/Cargo.toml", "")]);
        let paths: Vec<&str> = tree.manifests().map(|(path, _)| path).collect();
        assert_eq!(paths, ["crates/a/Cargo.toml", "xtask/Cargo.toml"]);
    }
}
