//! What the command line says. The first word is the path of the store's file;
//! the options make step 3 slow enough to be killed by hand, or let the process
//! kill itself there.

use std::path::PathBuf;
use std::time::Duration;

const USAGE: &str = "usage: file_pipeline [STORE.db] [--slow-ms N] [--abort]";

pub(crate) struct Options {
    pub(crate) store: PathBuf,
    /// How long step 3 takes.
    slow: Duration,
    /// Die in step 3 like a killed process.
    abort: bool,
}

impl Options {
    pub(crate) fn from_args() -> Result<Options, String> {
        let store = std::env::temp_dir().join("windlass-file-pipeline.db");
        let mut options = Options { store, slow: Duration::from_secs(5), abort: false };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            match word.as_str() {
                "--abort" => options.abort = true,
                "--slow-ms" => {
                    let ms = words.next().and_then(|ms| ms.parse().ok()).ok_or(USAGE)?;
                    options.slow = Duration::from_millis(ms);
                }
                path if !path.starts_with('-') => options.store = path.into(),
                _ => return Err(USAGE.to_owned()),
            }
        }
        Ok(options)
    }

    pub(crate) async fn in_slow_step(&self) {
        if self.abort {
            std::process::abort();
        }
        tokio::time::sleep(self.slow).await;
    }
}
