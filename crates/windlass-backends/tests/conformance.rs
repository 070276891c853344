//! The one suite, expanded for every store of this crate. The number of cases
//! per store is compared by `cargo xtask test`: a store cannot leave one out.

use std::sync::Arc;
use windlass_backends::store::memory::MemoryStore;
use windlass_backends::store::sqlite::{SqliteOptions, SqliteStore};
use windlass_conformance::harness::{Backend, Bed};
use windlass_core::Result;
use windlass_core::store::{BoxFuture, Store};

struct Memory;

impl Backend for Memory {
    fn fresh(&self) -> BoxFuture<'_, Result<Bed>> {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let bed = Bed { second: store.clone(), store, keep: Box::new(()) };
        Box::pin(std::future::ready(Ok(bed)))
    }

    fn reopen(&self, _bed: Bed) -> BoxFuture<'_, Result<Option<Bed>>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

struct Sqlite;

impl Sqlite {
    fn open(dir: Box<tempfile::TempDir>) -> Result<Bed> {
        let path = dir.path().join("suite.db");
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(SqliteOptions::at(path))?);
        Ok(Bed { second: store.clone(), store, keep: dir })
    }
}

impl Backend for Sqlite {
    fn fresh(&self) -> BoxFuture<'_, Result<Bed>> {
        let dir = tempfile::tempdir().expect("a folder");
        Box::pin(std::future::ready(Sqlite::open(Box::new(dir))))
    }

    fn reopen(&self, bed: Bed) -> BoxFuture<'_, Result<Option<Bed>>> {
        let dir = bed.keep.downcast::<tempfile::TempDir>().expect("the folder of a bed");
        drop((bed.store, bed.second));
        let dir: Box<tempfile::TempDir> = dir;
        Box::pin(std::future::ready(Sqlite::open(dir).map(Some)))
    }
}

windlass_conformance::store_suite!(memory, Memory);
windlass_conformance::store_suite!(sqlite, Sqlite);
