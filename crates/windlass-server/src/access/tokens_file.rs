//! The file of tokens that `auth.tokens_file` names: hashes, never tokens. An
//! administrator makes the first token here, before there is a server to ask; the
//! server reads the file and reads it again when it has changed.

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use windlass::core::access::AccessToken;
use windlass::{Error, Result, Timestamp};

const HEADER: &str = "\
# Access tokens of a Windlass server. Here are only hashes; a token itself is shown
# once, when it is made: windlass token create NAME --role ROLE --tokens-file FILE

";
/// A larger file is none of ours.
const SIZE_MAX: u64 = 1024 * 1024;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tokens {
    #[serde(default)]
    token: Vec<AccessToken>,
}

fn wrong(path: &Path, what: impl std::fmt::Display) -> Error {
    let path = path.display();
    Error::invalid("tokens", format!("{path}: {what}; `windlass token create --help` tells more"))
}

/// The tokens of a file; none when there is no file.
pub fn read(path: &Path) -> Result<Vec<AccessToken>> {
    match std::fs::metadata(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(vec![]),
        Err(e) => return Err(wrong(path, e)),
        Ok(about) if about.len() > SIZE_MAX => return Err(wrong(path, "the file is too large")),
        Ok(_) => {}
    }
    let text = std::fs::read_to_string(path).map_err(|e| wrong(path, e))?;
    // A message of the parser shows lines of the file, and those hold hashes.
    let tokens: Tokens = toml::from_str(&text).map_err(|e| wrong(path, e.message()))?;
    for (i, token) in tokens.token.iter().enumerate() {
        token.validate().map_err(|e| wrong(path, e.message()))?;
        let before = &tokens.token[..i];
        if before.iter().any(|other| other.name == token.name || other.id == token.id) {
            return Err(wrong(path, format!("the token `{}` stands there twice", token.name)));
        }
    }
    Ok(tokens.token)
}

/// What changes when somebody replaces or writes the file; `None`: there is none.
pub(super) type Stamp = Option<(u64, u64, i64, i64)>;

pub(super) fn stamp(path: &Path) -> Stamp {
    let about = std::fs::metadata(path).ok()?;
    Some((about.ino(), about.len(), about.ctime(), about.ctime_nsec()))
}

/// Adds a token.
pub fn add(path: &Path, token: AccessToken, now: Timestamp) -> Result<()> {
    let _turn = take_turn(path)?;
    let mut tokens = read(path)?;
    token.may_join(&tokens, now)?;
    tokens.retain(|other| other.name != token.name);
    tokens.push(token);
    write(path, tokens)
}

/// Takes a token away.
pub fn remove(path: &Path, name: &str) -> Result<()> {
    let _turn = take_turn(path)?;
    let mut tokens = read(path)?;
    let before = tokens.len();
    tokens.retain(|token| token.name != name);
    if tokens.len() == before {
        let path = path.display();
        let message =
            format!("{path} has no token `{name:.100}`; `windlass token list` shows them");
        return Err(Error::not_found("tokens", message));
    }
    write(path, tokens)
}

/// One change at a time: of two at once the second would undo the first.
fn take_turn(path: &Path) -> Result<File> {
    let lock = beside(path, ".lock");
    let mut options = OpenOptions::new();
    let file = options.create(true).truncate(false).write(true).mode(0o600).open(&lock);
    let locked = file.and_then(|file| {
        rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
        Ok(file)
    });
    locked.map_err(|e| wrong(&lock, e))
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// The old file stays whole until the new one is. Its owner stays too: a server
/// that may not read the new one would go on with the old tokens.
fn write(path: &Path, token: Vec<AccessToken>) -> Result<()> {
    let text = toml::to_string(&Tokens { token }).map_err(|e| wrong(path, e))?;
    let new = beside(path, &format!(".{:08x}", rand::random::<u32>()));
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(HEADER.as_bytes())?;
        file.write_all(text.as_bytes())?;
        if let Ok(old) = std::fs::metadata(path) {
            file.set_permissions(old.permissions())?;
            let (owner, group) = (file.metadata()?.uid(), file.metadata()?.gid());
            if (old.uid(), old.gid()) != (owner, group) {
                std::os::unix::fs::fchown(&file, Some(old.uid()), Some(old.gid()))?;
            }
        }
        file.sync_all()?;
        std::fs::rename(&new, path)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    })();
    written.map_err(|e| {
        // What is left of it helps nobody; that it could not go is no news.
        let _ = std::fs::remove_file(&new);
        wrong(path, e)
    })
}

#[cfg(test)]
mod tests {
    use super::super::secret::make;
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use windlass::core::access::Role;

    const T: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    #[test]
    fn tokens_are_added_read_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens.toml");
        assert_eq!(read(&path).unwrap(), []);
        let (secret, one) = make("ann", Role::Admin, T, None).unwrap();
        let (_, two) =
            make("ci", Role::Submitter, T, Some(T.plus(std::time::Duration::from_secs(9))))
                .unwrap();
        add(&path, one.clone(), T).unwrap();
        add(&path, two.clone(), T).unwrap();
        assert_eq!(read(&path).unwrap(), [one.clone(), two.clone()]);
        assert!(add(&path, one.clone(), T).is_err());
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains(secret.expose()) && text.starts_with("# Access tokens"), "{text}");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        remove(&path, "ann").unwrap();
        assert_eq!(read(&path).unwrap(), [two]);
        assert_eq!(remove(&path, "ann").unwrap_err().kind(), windlass::ErrorKind::NotFound);
    }

    #[test]
    fn changes_take_turns_and_keep_the_mode() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens.toml");
        let add_one =
            |i: usize| add(&path, make(&format!("t{i}"), Role::Viewer, T, None).unwrap().1, T);
        add_one(100).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        std::thread::scope(|scope| {
            for i in 0..8 {
                scope.spawn(move || add_one(i).unwrap());
            }
        });
        assert_eq!(read(&path).unwrap().len(), 9, "none is lost");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
        assert_eq!(left.len(), 2, "the file and its lock");
    }

    #[test]
    fn a_broken_file_is_refused_without_showing_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens.toml");
        for text in ["[[token]]\nname = 5\nhash = \"CANARY\"", "hash = \"CANARY\"", "CANARY"] {
            std::fs::write(&path, text).unwrap();
            let told = read(&path).unwrap_err().to_string();
            assert!(told.contains("tokens.toml") && !told.contains("CANARY\""), "{told}");
        }
    }
}
