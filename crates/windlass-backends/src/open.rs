//! From a URL to a store: the only list of backends. A URL whose backend was
//! not built in gets an error that names the feature; a URL nobody knows gets
//! the list of those that exist.

use std::sync::Arc;
use windlass_core::store::Store;
use windlass_core::{Code, Error, Result};

/// Opens and migrates the store that `url` names.
///
/// `memory:` keeps everything in this process. `sqlite://path/to/file.db` is a
/// file next to which a `.lock` file marks the one process that owns it;
/// `?synchronous=normal` asks for the faster profile that may lose the last
/// commits when the machine (not the process) dies, `?cache_mb=256` for a
/// larger page cache.
pub async fn open_store(url: &str) -> Result<Arc<dyn Store>> {
    let store: Arc<dyn Store> = match url.split_once(':').map(|(scheme, _)| scheme) {
        Some("memory") => Arc::new(crate::store::memory::MemoryStore::new()),
        Some("sqlite") => open_sqlite(url)?,
        Some(scheme @ ("postgres" | "mysql")) => {
            let message = format!("`{scheme}:` is not in this build; use sqlite:// or memory:");
            return Err(Error::new(Code::Unsupported, "open", message));
        }
        _ => {
            let message = format!("`{url}` names no store; use sqlite://windlass.db or memory:");
            return Err(Error::invalid("open", message));
        }
    };
    store.migrate().await?;
    Ok(store)
}

#[cfg(feature = "sqlite")]
fn open_sqlite(url: &str) -> Result<Arc<dyn Store>> {
    let options = crate::store::sqlite::SqliteOptions::parse(url)?;
    Ok(Arc::new(crate::store::sqlite::SqliteStore::open(options)?))
}

#[cfg(not(feature = "sqlite"))]
fn open_sqlite(_url: &str) -> Result<Arc<dyn Store>> {
    let message = "`sqlite:` is not in this build; build with the feature `sqlite`";
    Err(Error::new(Code::Unsupported, "open", message))
}
