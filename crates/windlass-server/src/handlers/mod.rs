//! Handlers that are programs of their own. [`ExecHandler`] runs one process for
//! each try of a step, [`ExecHost`] is what all of them share on a node, `guard`
//! and `leftovers` see to it that no process outlives its node. The engine
//! comes before this; nothing here knows configuration files or HTTP.

mod document;
mod exec;
mod group;
pub mod guard;
mod host;
mod leftovers;
mod pipes;
mod processes;
mod quota;
mod strays;
mod tail;
mod verdict;

pub use exec::{ExecHandler, ExecSpec};
pub use host::ExecHost;
pub use leftovers::{end_leftovers, owner_of};
