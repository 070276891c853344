//! How a suite runs: a [`Backend`] makes fresh stores, a [`World`] is one of
//! them with a clock that only the case moves, and a [`Case`] is one promise.
//! The list of store cases is in `store/mod.rs`; this file runs what is listed
//! and knows no promise itself. A case is skipped only by what the store
//! declares about itself, and a skipped case still counts as run.

pub mod look;
pub mod make;
pub mod world;

pub use look::{Snapshot, refused, refused_as};
pub use make::Shape;
pub use world::{Node, World};

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use windlass_core::error::Result;
use windlass_core::store::{BoxFuture, Capabilities, Store};

/// Longer than any case takes on a busy machine; shorter than patience.
const CASE_TIMEOUT: Duration = Duration::from_secs(60);

/// One isolated store under test.
pub struct Bed {
    pub store: Arc<dyn Store>,
    /// Another handle on the same data; may be the same one.
    pub second: Arc<dyn Store>,
    /// What must live as long as the store, e.g. a temporary directory.
    pub keep: Box<dyn Any + Send + Sync>,
}

impl fmt::Debug for Bed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bed").field("store", &self.store).finish_non_exhaustive()
    }
}

/// Makes stores to test.
pub trait Backend: Send + Sync {
    /// A migrated, empty store that nobody else uses.
    fn fresh(&self) -> BoxFuture<'_, Result<Bed>>;

    /// Closes everything and opens the same data again; `None` when the store
    /// does not outlive its process.
    fn reopen(&self, bed: Bed) -> BoxFuture<'_, Result<Option<Bed>>>;
}

/// What a store must be capable of for a case to make sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    Nothing,
    Durable,
}

impl Needs {
    pub fn met_by(self, capabilities: Capabilities) -> bool {
        match self {
            Needs::Nothing => true,
            Needs::Durable => capabilities.durable,
        }
    }
}

/// One promise of the contract.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub module: &'static str,
    pub name: &'static str,
    pub run: fn(World) -> BoxFuture<'static, ()>,
    pub needs: Needs,
}

/// How a case ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ran {
    Passed,
    /// The store does not declare what the case needs.
    Skipped,
    Failed(String),
}

impl Case {
    /// Runs the case on a fresh store; panics when the promise is broken.
    pub fn run_on(&self, backend: Arc<dyn Backend>) -> Ran {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        let ran = runtime.block_on(async {
            let world = World::open(backend).await.expect("a fresh store");
            if !self.needs.met_by(world.store().capabilities()) {
                return Ok(Ran::Skipped);
            }
            tokio::time::timeout(CASE_TIMEOUT, (self.run)(world)).await.map(|()| Ran::Passed)
        });
        ran.unwrap_or_else(|_| {
            // What hangs would also hang an ordinary end of the runtime.
            runtime.shutdown_background();
            panic!("the case did not end within {CASE_TIMEOUT:?}");
        })
    }

    /// Runs the case and tells a broken promise as a value, for tests that
    /// expect some.
    pub fn try_on(&self, backend: Arc<dyn Backend>) -> Ran {
        catch_unwind(AssertUnwindSafe(|| self.run_on(backend)))
            .unwrap_or_else(|panic| Ran::Failed(panic_text(panic.as_ref())))
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned()
}

/// The body of every generated `#[test]`.
#[allow(clippy::print_stdout)] // says why a green test did nothing
pub fn run_test(backend: Arc<dyn Backend>, case: Case) {
    if case.run_on(backend) == Ran::Skipped {
        println!("skipped by capability: {}::{} needs {:?}", case.module, case.name, case.needs);
    }
}
