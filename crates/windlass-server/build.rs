//! Compiles the worker protocol to Rust, without `protoc`. The only input is
//! `proto/`; what comes out is included by `src/api/worker/grpc/`.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = protox::compile(["proto/worker.proto"], ["proto"])?;
    // Whoever connects brings a channel of its own.
    tonic_prost_build::configure().build_transport(false).compile_fds(files)?;
    Ok(())
}
