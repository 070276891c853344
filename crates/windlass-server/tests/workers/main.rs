//! Workers in other processes: the protocol over real connections, answers that
//! are lost on their way, processes that are killed or stopped, and what waiting
//! costs. `worker.rs` is a worker as a program would write it.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // a test fails by panicking

#[allow(dead_code, unreachable_pub)] // this program uses a part of it
#[path = "../api/place.rs"]
mod place;

mod protocol;
mod worker;
