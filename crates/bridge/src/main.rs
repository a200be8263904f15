//! `ash-bridge`, the program inside the sandbox.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Before anything else: a keeper is this program, and wants nothing of what the bridge sets up.
    if std::env::args_os().nth(1).is_some_and(|argument| argument == "keep") {
        return ash_bridge::process::keep();
    }
    ExitCode::SUCCESS
}
