//! `exec` handlers with real processes: what they are told, what their end
//! means, and that nothing of them outlives its try or its node. One folder and
//! one engine for each case; `rig.rs` builds them.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // a test fails by panicking

mod death;
mod ends;
mod outcomes;
mod rig;
mod talk;
