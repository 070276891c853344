//! Workers over gRPC: the same server on the same port, spoken to by a client that
//! was made from the same file. What a lease is and what a report may do is tested
//! over HTTP; here is what differs: messages, statuses, and the session.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // a test fails by panicking

#[allow(dead_code, unreachable_pub)] // this program uses a part of it
#[path = "../api/place.rs"]
mod place;
#[allow(dead_code)] // this program uses a part of it
#[path = "../workers/worker.rs"]
mod worker;

mod access;
mod client;
mod limits;
mod session;
mod unary;
