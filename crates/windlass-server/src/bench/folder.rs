//! A folder of the benchmark's own for the store, gone when the benchmark ends.
//! It is made before the first node and knows nothing of what is put into it.

use std::path::{Path, PathBuf};
use windlass::{Error, Result};

#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new() -> Result<Folder> {
        let name = format!("windlass-bench-{:016x}", rand::random::<u64>());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).map_err(|e| {
            let place = path.display();
            let message = format!("cannot make the folder {place}; set TMPDIR or pass --store");
            Error::invalid("bench", message).because(e)
        })?;
        Ok(Folder(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Nothing more can be done about a folder that will not go.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
