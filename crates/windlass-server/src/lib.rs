//! The server and its command line as a library, so that tests and the binary
//! share one way in. `config` says what is wanted, `boot` builds it, `listen`
//! takes connections, `access` lets callers in, `api` answers, `handlers` run what
//! is not Rust, `outbound` asks others over HTTP, `bench` measures it all, `cli` is
//! what people type.

pub mod access;
pub mod api;
pub mod bench;
pub mod boot;
pub mod cli;
pub mod config;
pub mod demo;
pub mod handlers;
pub mod listen;
pub mod logs;
mod makers;
pub mod outbound;
pub mod redact;
pub mod server;
pub mod tls;
