//! The binary `windlass`: one file that is server, command line and handlers'
//! host. It only hands over to the command line, which reads the arguments and
//! calls what they ask for.

use std::process::ExitCode;

fn main() -> ExitCode {
    windlass_server::cli::main()
}
