//! The suites every backend must pass, the reference model, and the wrappers
//! that make a store fail on purpose. `store/` holds the promises, one case
//! each; `harness.rs` runs them on a fresh store with a clock that only the
//! case moves. `model` and `history` compare random lives with plain data.

// This crate is tests: a broken promise is told by a panic.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod faults;
pub mod harness;
pub mod history;
pub mod model;
pub mod store;
