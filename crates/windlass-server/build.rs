//! Compiles the worker protocol to Rust, without `protoc`. The only input is
//! `proto/`; what comes out is included by `src/api/worker/grpc/`.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = protox::compile(["proto/worker.proto"], ["proto"])?;
    // Whoever connects brings a channel of its own.
    let build = tonic_prost_build::configure().build_transport(false);
    // Messages are counted before they are read.
    build.codec_path("crate::api::worker::grpc::CountingCodec").compile_fds(files)?;
    Ok(())
}
