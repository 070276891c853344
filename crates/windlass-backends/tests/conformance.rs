//! The one suite, expanded for every store of this crate. The number of cases
//! per store is compared by `cargo xtask test`: a store cannot leave one out.
#![allow(clippy::expect_used, clippy::panic)] // a test tells by panicking

mod shared;

use shared::{Memory, Sqlite};

windlass_conformance::store_suite!(memory, Memory::default());
windlass_conformance::store_suite!(sqlite, Sqlite::default());
