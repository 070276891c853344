//! Every store of Windlass, each behind a feature. A backend writes what the
//! rules in `windlass-core` decided; it never computes a retry, a backoff or a
//! transition. `open.rs` is the only list of backends; the same file names mean
//! the same things in each of their folders.

pub mod caller;
pub mod open;
pub mod store;

pub use caller::{CallerTx, LocalFuture};
