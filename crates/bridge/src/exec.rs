//! Commands: a shell, bounded in time and in what it prints.

mod env;

use std::path::Path;

use ash_protocol::{ExecEnd, ExecRequest, ExecResult};

pub use self::env::Env;
use crate::process::Processes;

/// Runs a command. May be dropped at any point, which kills everything it started.
pub async fn run(
    _processes: &Processes,
    _request: &ExecRequest,
    _shell_env: &Env,
    _workspace: &Path,
) -> ExecResult {
    let end = ExecEnd::NotStarted("not yet".to_owned());
    ExecResult { end, stdout: String::new(), stderr: String::new(), omitted_bytes: 0 }
}
