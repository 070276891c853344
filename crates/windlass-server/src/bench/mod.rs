//! The benchmark of `windlass bench`. A child process is the node that is
//! measured, so that its CPU and memory are told apart from those of whoever
//! loads it: this process gives it orders, loads it over HTTP and listens to its
//! events. `rows.rs` says what is measured in which order, `figures.rs` what came
//! out; how it is printed is the command line's business.

mod child;
mod far;
mod figures;
mod folder;
mod http;
mod left;
mod listeners;
mod node;
mod orders;
mod process;
mod rows;
mod work;

pub use far::main as worker;
pub use figures::{Figure, Goal, Report};
pub use node::main as node;
pub use rows::run;

/// What to measure.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub tasks: u64,
    /// Bytes of each payload.
    pub payload: u64,
    /// A new SQLite file when absent.
    pub store: Option<String>,
    /// Tasks that wait in the store all the time.
    pub backlog: u64,
    /// Steps of each drained task.
    pub steps: u64,
    /// Tasks a second while the time to the start is measured.
    pub rate: u64,
}
