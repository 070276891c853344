//! The binary `windlass`: one file that is server, command line and handlers'
//! host.
fn main() {}
