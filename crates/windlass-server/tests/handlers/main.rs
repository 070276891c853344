//! `exec` handlers with real processes: what they are told, what their end
//! means, and that nothing of them outlives its try or its node. One folder and
//! one engine for each case. `rig.rs` builds them; the last two functions here
//! are other programs that cases start from this same file.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // a test fails by panicking

mod death;
mod ends;
mod outcomes;
mod rig;
mod talk;

/// The guard, as the binary's hidden subcommand would be.
#[test]
#[ignore = "a program of other cases"]
fn guard_entry() {
    if std::env::var_os("PATH").is_none() {
        windlass_server::handlers::guard::main().expect("a guard");
    }
}

/// A node, to be killed.
#[test]
#[ignore = "a program of other cases"]
fn node_entry() {
    death::node();
}
