//! `http` handlers with real sockets on loopback: what receivers are told, what
//! their answers mean, how tries end, and that no trick of a URL, a redirect or a
//! name server reaches what must not be reached. `rig.rs` has the receivers.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // a test fails by panicking

mod ends;
mod forgery;
mod names;
mod outcomes;
mod redirects;
mod request;
mod rig;
mod secure;
mod tricks;
