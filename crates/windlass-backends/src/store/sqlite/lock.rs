//! Who owns a database file. One process may: it holds a lock on a file beside
//! the database for as long as the store is open. The operating system frees
//! the lock when the process dies, however it dies, so nothing is ever left to
//! clean up. SQLite's own locking stays ordinary, so that readers and
//! `submit_in` connections of the owner work.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use windlass_core::{Error, Result};

/// Held while the store is open.
#[derive(Debug)]
pub(super) struct Ownership {
    _file: File,
}

impl Ownership {
    pub(super) fn take(database: &Path) -> Result<Ownership> {
        let path = beside(database);
        if let Some(folder) = path.parent().filter(|f| !f.as_os_str().is_empty() && !f.is_dir()) {
            let message = format!("the folder {} does not exist; create it", folder.display());
            return Err(Error::invalid("open", message));
        }
        let fail = |cause: std::io::Error| {
            Error::unavailable("open", format!("cannot open {}", path.display())).because(cause)
        };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(fail)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(owned(database, &mut file)),
            Err(TryLockError::Error(cause)) => return Err(fail(cause)),
        }
        // For the error message of whoever comes second; the lock is the truth.
        file.set_len(0).map_err(fail)?;
        file.seek(SeekFrom::Start(0)).map_err(fail)?;
        write!(file, "{}", std::process::id()).map_err(fail)?;
        Ok(Ownership { _file: file })
    }
}

/// Beside the real file, so that no other name of it leads to another lock.
fn beside(database: &Path) -> PathBuf {
    let real = database.canonicalize().or_else(|_| {
        let folder = database.parent().filter(|f| !f.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new(".")).canonicalize()?;
        Ok::<_, std::io::Error>(folder.join(database.file_name().unwrap_or_default()))
    });
    let mut name = real.unwrap_or_else(|_| database.to_owned()).into_os_string();
    name.push(".lock");
    PathBuf::from(name)
}

fn owned(database: &Path, file: &mut File) -> Error {
    let mut pid = String::new();
    let who = match file.read_to_string(&mut pid) {
        Ok(_) if !pid.trim().is_empty() => format!("process {}", pid.trim()),
        _ => "another process".to_owned(),
    };
    let message = format!(
        "{} is open in {who}; a SQLite store has one owner: stop it, use its API, \
         or choose PostgreSQL for several nodes",
        database.display()
    );
    Error::conflict("open", message)
}
