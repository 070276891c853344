//! The stores of this crate as the suites want them: fresh, isolated, and
//! opened again where the data outlives the handle. Used by every test program
//! here; each uses a part of it.
#![allow(dead_code)] // each test program uses a part

use std::path::Path;
use std::sync::Arc;
use windlass_backends::store::guards::Guards;
use windlass_backends::store::memory::MemoryStore;
use windlass_backends::store::sqlite::{SqliteOptions, SqliteStore, Synchronous};
use windlass_conformance::harness::{Backend, Bed};
use windlass_core::Result;
use windlass_core::store::{BoxFuture, Store};

/// Memory stores; with some guards broken if told so.
#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) guards: Guards,
}

impl Backend for Memory {
    fn fresh(&self) -> BoxFuture<'_, Result<Bed>> {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::sabotaged(self.guards));
        let bed = Bed { second: store.clone(), store, keep: Box::new(()) };
        Box::pin(std::future::ready(Ok(bed)))
    }

    fn reopen(&self, _bed: Bed) -> BoxFuture<'_, Result<Option<Bed>>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

/// SQLite stores in folders of their own.
#[derive(Default)]
pub(crate) struct Sqlite {
    pub(crate) guards: Guards,
    pub(crate) synchronous: Synchronous,
}

impl Sqlite {
    pub(crate) fn options(&self, dir: &Path) -> SqliteOptions {
        let mut options = SqliteOptions::at(dir.join("suite.db"));
        options.synchronous = self.synchronous;
        options.sabotaged(self.guards)
    }

    fn open(&self, dir: Box<tempfile::TempDir>) -> Result<Bed> {
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(self.options(dir.path()))?);
        Ok(Bed { second: store.clone(), store, keep: dir })
    }
}

impl Backend for Sqlite {
    fn fresh(&self) -> BoxFuture<'_, Result<Bed>> {
        let dir = tempfile::tempdir().expect("a folder");
        Box::pin(std::future::ready(self.open(Box::new(dir))))
    }

    fn reopen(&self, bed: Bed) -> BoxFuture<'_, Result<Option<Bed>>> {
        let dir = bed.keep.downcast::<tempfile::TempDir>().expect("the folder of a bed");
        drop((bed.store, bed.second));
        Box::pin(std::future::ready(self.open(dir).map(Some)))
    }
}
