//! The HTTP API over real connections, on an engine in memory or in a file.
//! Each file holds the promises of one resource; `place.rs` is the server they
//! talk to.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // a test fails by panicking

mod access;
mod batches;
mod control;
mod dead;
mod events;
mod health;
mod limits;
mod lists;
mod place;
mod redaction;
mod rights;
mod safety;
mod submit;
