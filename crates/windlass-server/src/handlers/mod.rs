//! Handlers that are not Rust. [`ExecHandler`] runs one process for each try of a
//! step, [`ExecHost`] is what all of them share on a node, `guard` and `leftovers`
//! see to it that no process outlives its node. [`HttpHandler`] sends one request
//! for each try. The engine comes before this; nothing here knows configuration
//! files or the API.

mod answer;
mod document;
mod exec;
mod group;
pub mod guard;
mod host;
mod http;
mod leftovers;
mod output;
mod pipes;
mod processes;
mod request;
mod scrubbed;
mod strays;
mod tail;
mod verdict;

pub use exec::{ExecHandler, ExecSpec};
pub use host::ExecHost;
pub use http::HttpHandler;
pub use leftovers::{end_leftovers, owner_of};
pub use request::{HttpSpec, own_header};
pub use scrubbed::Scrubbed;
