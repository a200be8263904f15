//! Commands: a shell, bounded in time and in what it prints.
//!
//! A command is over when its shell is. What it started in the background goes on, and does not
//! hold the answer back although it holds the pipe: what is in the pipe by then is taken, what is
//! printed later is read to nowhere. Closing the pipe instead would kill a server at its next line
//! of log, which is nobody's wish.

mod env;
mod excerpt;

use std::path::{Path, PathBuf};
use std::time::Duration;

use ash_protocol::{ExecEnd, ExecRequest, ExecResult};
use rustix::io::Errno;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;

pub use self::env::Env;
use self::excerpt::Excerpt;
use crate::process::{CommandSpec, End, Processes, Running, Stream};

/// How long a command that took too long may still tidy up.
const GRACE: Duration = Duration::from_secs(2);
/// How long, after that, its end is waited for. What cannot even be killed waits for a disk.
const KILL_WAIT: Duration = Duration::from_secs(5);
/// How much a pipe can hold: what a command printed last is at most that far behind its end.
const MAX_PIPE_BYTES: usize = 1024 * 1024;
/// How much of a stream is kept at most, whatever is asked: escaped as JSON it still fits a frame.
const MAX_OUTPUT_BYTES: usize = 1024 * 1024;
/// What is said when the kernel's killer came by. The signal alone does not tell, and a shell may even
/// have hidden it. It counts by sandbox, so it may have been something that runs beside the command.
const OUT_OF_MEMORY: &str =
    "[a process was killed while this command ran, because the sandbox ran out of memory]";
/// How much is read at once.
const CHUNK_BYTES: usize = 16 * 1024;

/// Runs a command. May be dropped at any point, which kills everything it started.
pub async fn run(
    processes: &Processes,
    request: &ExecRequest,
    shell_env: &Env,
    workspace: &Path,
) -> ExecResult {
    let ooms = ash_sandbox::oom_kills_here();
    let spawned = directory(workspace, request.cwd.as_deref()).and_then(|cwd| {
        let spec = CommandSpec {
            program: shell().to_owned(),
            args: vec!["-c".to_owned(), request.command.clone()],
            cwd,
            env: shell_env.variables().clone(),
            stdin: Stream::Null,
            stdout: Stream::Pipe,
            stderr: Stream::Pipe,
        };
        processes.spawn(spec).map_err(|error| error.to_string())
    });
    let mut result = match spawned {
        Ok(running) => attend(running, request).await,
        Err(why) => result(ExecEnd::NotStarted(why), Excerpt::new(0), Excerpt::new(0)),
    };
    let grew = ooms.zip(ash_sandbox::oom_kills_here()).is_some_and(|(before, now)| now > before);
    if grew {
        add_line(&mut result.stderr, OUT_OF_MEMORY);
    }
    result
}

/// Adds a line of ours to what a command complained of.
fn add_line(stderr: &mut String, line: &str) {
    if !stderr.is_empty() && !stderr.ends_with('\n') {
        stderr.push('\n');
    }
    stderr.push_str(line);
    stderr.push('\n');
}

fn shell() -> &'static str {
    if Path::new("/bin/bash").exists() { "/bin/bash" } else { "/bin/sh" }
}

/// Where the command runs. It can go elsewhere by itself, so this is no wall, but an answer to a
/// wrong request.
fn directory(workspace: &Path, cwd: Option<&Path>) -> Result<PathBuf, String> {
    let Some(cwd) = cwd else { return Ok(workspace.to_owned()) };
    let real =
        |path: &Path| path.canonicalize().map_err(|error| format!("{}: {error}", path.display()));
    let directory = real(&workspace.join(cwd))?;
    if !directory.starts_with(real(workspace)?) {
        return Err(format!("{} is outside the workspace", cwd.display()));
    }
    Ok(directory)
}

async fn attend(mut running: Running, request: &ExecRequest) -> ExecResult {
    let kept = request.max_output_bytes.min(MAX_OUTPUT_BYTES);
    let mut stdout = Output::new(running.stdout.take(), kept);
    let mut stderr = Output::new(running.stderr.take(), kept);
    let timeout = tokio::time::sleep(Duration::from_millis(request.timeout_ms));
    tokio::pin!(timeout);
    let end = loop {
        // Each branch can be cancelled: a read either took bytes or did not.
        tokio::select! {
            end = running.wait() => break end,
            () = stdout.read() => {}
            () = stderr.read() => {}
            () = &mut timeout => {
                kill(&mut running, &mut stdout, &mut stderr).await;
                stdout.take_rest();
                stderr.take_rest();
                return result(ExecEnd::TimedOut, stdout.excerpt, stderr.excerpt);
            }
        }
    };
    stdout.take_rest();
    stderr.take_rest();
    let end = match end {
        End::Exited(code) => ExecEnd::Exited(code),
        End::Killed(signal) => ExecEnd::Killed(signal),
        End::NotStarted(why) => ExecEnd::NotStarted(why),
        // Nobody saw the end. What is left is being killed, and that is the best word for it.
        End::KeeperLost => ExecEnd::Killed(rustix::process::Signal::KILL.as_raw()),
    };
    result(end, stdout.excerpt, stderr.excerpt)
}

/// Ends the whole tree, and hears its last words: who tidies up may print, and must not block.
async fn kill(running: &mut Running, stdout: &mut Output, stderr: &mut Output) {
    running.terminate(GRACE);
    let too_long = tokio::time::sleep(GRACE + KILL_WAIT);
    tokio::pin!(too_long);
    loop {
        tokio::select! {
            () = running.gone() => return,
            () = stdout.read() => {}
            () = stderr.read() => {}
            () = &mut too_long => return,
        }
    }
}

fn result(end: ExecEnd, stdout: Excerpt, stderr: Excerpt) -> ExecResult {
    let omitted_bytes = stdout.omitted() + stderr.omitted();
    ExecResult { end, stdout: stdout.into_text(), stderr: stderr.into_text(), omitted_bytes }
}

/// One of a command's outputs, and what is kept of it.
struct Output {
    pipe: Option<pipe::Receiver>,
    excerpt: Excerpt,
    chunk: Vec<u8>,
}

impl Output {
    fn new(pipe: Option<pipe::Receiver>, max_bytes: usize) -> Self {
        Self { pipe, excerpt: Excerpt::new(max_bytes), chunk: vec![0; CHUNK_BYTES] }
    }

    /// Reads a little more. Waits for ever once there is no more, so that it can stand in a select.
    async fn read(&mut self) {
        let Some(pipe) = &mut self.pipe else { return std::future::pending().await };
        match pipe.read(&mut self.chunk).await {
            Ok(0) | Err(_) => self.pipe = None,
            Ok(read) => self.excerpt.push(&self.chunk[..read]),
        }
    }

    /// Takes what is there without waiting, and no more than a pipe holds: something in the
    /// background may print faster than we read.
    fn take_rest(&mut self) {
        let mut taken = 0;
        while let Some(pipe) = &self.pipe
            && taken < MAX_PIPE_BYTES
        {
            // Past the runtime, which may not have heard yet that there is something to read.
            match rustix::io::read(pipe, self.chunk.as_mut_slice()) {
                Ok(read) if read > 0 => {
                    taken += read;
                    self.excerpt.push(&self.chunk[..read]);
                }
                Err(Errno::INTR) => {}
                Ok(_) | Err(_) => self.pipe = None,
            }
        }
    }
}
