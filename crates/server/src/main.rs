//! The `ash` executable.

use std::process::ExitCode;

fn main() -> ExitCode {
    ash_server::cli::run()
}
