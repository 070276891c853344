//! Compiles the worker protocol to Rust, without `protoc`. The only input is
//! `proto/`; what comes out is included by `src/api/grpc.rs`.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = protox::compile(["proto/worker.proto"], ["proto"])?;
    tonic_prost_build::configure().compile_fds(files)?;
    Ok(())
}
