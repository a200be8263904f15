//! `bash`: a command in a shell, with all it starts bounded in time and in what it prints.

use std::path::Path;

use ash_protocol::{ExecEnd, ExecRequest, ExecResult};

use super::Outcome;
use super::fault::Fault;
use super::input::Input;
use crate::exec::{self, Env};
use crate::process::Processes;

/// How long a command may take unless asked otherwise.
const DEFAULT_TIMEOUT_MS: u64 = 120_000;
/// How long a command may be given.
const MAX_TIMEOUT_MS: u64 = 600_000;
/// How much of each stream is shown.
const MAX_OUTPUT_BYTES: usize = 30_000;

/// What is to be run.
pub(super) struct Command {
    command: String,
    timeout_ms: u64,
}

impl Command {
    pub(super) fn parse(mut input: Input) -> Result<Self, Fault> {
        let command = input.text("command")?;
        if command.trim().is_empty() {
            return Err(Fault::new("the field \"command\" is empty: give a command for the shell"));
        }
        let timeout_ms = input.optional_number("timeoutMs")?.unwrap_or(DEFAULT_TIMEOUT_MS);
        Ok(Self { command, timeout_ms: timeout_ms.clamp(1, MAX_TIMEOUT_MS) })
    }
}

pub(super) async fn run(
    processes: &Processes,
    env: &Env,
    workspace: &Path,
    command: Command,
) -> Outcome {
    let request = ExecRequest {
        command: command.command,
        cwd: None,
        timeout_ms: command.timeout_ms,
        max_output_bytes: MAX_OUTPUT_BYTES,
    };
    let result = exec::run(processes, &request, env, workspace).await;
    let is_error = result.end != ExecEnd::Exited(0);
    Outcome { is_error, ..Outcome::text(describe(&result, command.timeout_ms)) }
}

fn describe(result: &ExecResult, timeout_ms: u64) -> String {
    let mut parts = Vec::new();
    if !result.stdout.is_empty() {
        parts.push(result.stdout.trim_end_matches('\n').to_owned());
    }
    if !result.stderr.is_empty() {
        parts.push(format!("[stderr]\n{}", result.stderr.trim_end_matches('\n')));
    }
    if result.omitted_bytes > 0 {
        parts.push(format!(
            "[{} bytes of output were left out: write it to a file, or filter it]",
            result.omitted_bytes
        ));
    }
    match &result.end {
        ExecEnd::Exited(0) if parts.is_empty() => parts.push("(no output)".to_owned()),
        ExecEnd::Exited(0) => {}
        ExecEnd::Exited(code) => parts.push(format!("[exit code {code}]")),
        ExecEnd::Killed(signal) => parts.push(format!("[killed by signal {signal}]")),
        ExecEnd::TimedOut => parts.push(format!(
            "[timed out after {timeout_ms} ms: the command and all it had started were killed; set timeoutMs (at most {MAX_TIMEOUT_MS}), or run it in the background with its output in a file]"
        )),
        ExecEnd::NotStarted(why) => parts.push(format!("[not started: {why}]")),
    }
    parts.join("\n")
}
