//! Workers in other processes: the protocol over real connections, answers that
//! are lost on their way, processes that are killed or stopped, and what waiting
//! costs. `worker.rs` is a worker that a test drives call by call, `process.rs` one
//! that is a process of its own.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // a test fails by panicking
#![allow(clippy::print_stdout)] // where the store of a failed test is, and what was measured

#[allow(dead_code)] // this program uses a part of it
#[path = "../api/place.rs"]
mod place;
#[path = "../process/mod.rs"]
mod server;

mod faults;
mod idle;
mod outage;
mod process;
mod protocol;
mod proxy;
mod worker;
