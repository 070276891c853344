//! The binary as people meet it: real processes on free ports and in folders of
//! their own. `rig.rs` starts and ends them; each other file is one side of the
//! binary. What is hard to get from a real server is met in `cli_client.rs`.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // a test fails by panicking

mod about;
mod act;
mod canaries;
mod crash;
mod dead;
mod examples;
mod places;
mod refuse;
mod rig;
mod secrets;
mod stop;
mod submit;
mod tokens;
mod worker_test;
