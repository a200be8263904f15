//! Scripts of the agent, run before anything of it is started.
//!
//! They belong to the sandbox, not to the connection: a server that dies leaves them running, and the next one
//! asks what came of them. So each is run once here, whoever asks, and however often.

use std::cell::RefCell;
use std::collections::BTreeMap;

use ash_protocol::{
    Config, ExecEnd, ExecRequest, ExecResult, Hook, HookFailure, HooksRequest, HooksResult,
};
use tokio::sync::Notify;

use crate::exec::{self, Env};
use crate::note;
use crate::process::Processes;

/// How much of what a script prints goes into the log.
const MAX_OUTPUT_BYTES: usize = 64 * 1024;

/// How much of its last line is told beside that.
const MAX_LINE_CHARS: usize = 300;

/// The scripts of a sandbox.
#[derive(Default)]
pub(crate) struct Hooks {
    state: RefCell<State>,
    changed: Notify,
}

#[derive(Default)]
enum State {
    /// Nobody has asked for them yet.
    #[default]
    Unasked,
    /// They are being run, or about to be.
    Asked(HooksRequest),
    /// They have ended.
    Ended(HooksResult),
}

impl Hooks {
    /// Has the scripts run, unless somebody had before, and says what came of them.
    pub(crate) async fn run(&self, request: HooksRequest) -> HooksResult {
        {
            let mut state = self.state.borrow_mut();
            if let State::Unasked = *state {
                *state = State::Asked(request);
            }
        }
        self.changed.notify_waiters();
        self.result().await
    }

    /// Waits until they have ended as they should. After one that failed nothing is started here any more.
    pub(crate) async fn passed(&self) {
        if self.result().await.failed.is_some() {
            std::future::pending::<()>().await;
        }
    }

    /// Runs what is asked for, once. Never returns.
    pub(crate) async fn attend(&self, around: impl Fn() -> Option<Around>) {
        let request = self.when(|state| match state {
            State::Asked(request) => Some(request.clone()),
            State::Unasked | State::Ended(_) => None,
        });
        let request = request.await;
        let result = match around() {
            Some(around) => around.run_all(&request).await,
            // Nobody is let ask before.
            None => HooksResult::default(),
        };
        *self.state.borrow_mut() = State::Ended(result);
        self.changed.notify_waiters();
        std::future::pending::<()>().await;
    }

    async fn result(&self) -> HooksResult {
        let ended = self.when(|state| match state {
            State::Ended(result) => Some(result.clone()),
            State::Unasked | State::Asked(_) => None,
        });
        ended.await
    }

    async fn when<T>(&self, wanted: impl Fn(&State) -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            if let Some(found) = wanted(&self.state.borrow()) {
                return found;
            }
            changed.await;
        }
    }
}

/// What scripts are run with: the same as every command beside the agent.
pub(crate) struct Around {
    pub(crate) processes: Processes,
    pub(crate) env: Env,
    pub(crate) config: Config,
}

impl Around {
    async fn run_all(&self, request: &HooksRequest) -> HooksResult {
        let mut result = HooksResult::default();
        for &hook in &request.hooks {
            match self.run_one(hook, request.timeout_ms).await {
                Ok(()) => result.done.push(hook),
                Err(failure) => {
                    result.failed = Some(failure);
                    break;
                }
            }
        }
        result
    }

    async fn run_one(&self, hook: Hook, timeout_ms: u64) -> Result<(), HookFailure> {
        let name = hook.file_name();
        note(format_args!("{name} begins"));
        let request = ExecRequest {
            // One that cannot be executed was put here by somebody who did not know that it has to be.
            command: format!("[ -x ./{name} ] || chmod u+x ./{name}; exec ./{name} 2>&1"),
            cwd: None,
            timeout_ms,
            max_output_bytes: MAX_OUTPUT_BYTES,
        };
        let env = self.env.clone().named(&self.names());
        let ExecResult { end, stdout, stderr, .. } =
            exec::run(&self.processes, &request, &env, &self.config.workspace).await;
        for line in stdout.lines().chain(stderr.lines()) {
            note(format_args!("{name}: {line}"));
        }
        match end {
            ExecEnd::Exited(0) => {
                note(format_args!("{name} is done"));
                Ok(())
            }
            end @ (ExecEnd::Exited(_)
            | ExecEnd::Killed(_)
            | ExecEnd::TimedOut
            | ExecEnd::NotStarted(_)) => {
                note(format_args!("{name} failed: {}", in_words(&end, timeout_ms)));
                Err(HookFailure { hook, end, last_line: last_line(&stdout) })
            }
        }
    }

    /// What scripts of the original look for.
    fn names(&self) -> BTreeMap<&'static str, String> {
        let workspace = self.config.workspace.display().to_string();
        let session = self.config.session.clone().unwrap_or_default();
        [
            ("ASH_AGENT_DIR", workspace.clone()),
            ("ASH_WORKSPACE_DIR", workspace),
            ("ASH_SANDBOX_ID", session.clone()),
            ("ASH_SESSION_ID", session),
        ]
        .into()
    }
}

fn in_words(end: &ExecEnd, timeout_ms: u64) -> String {
    match end {
        ExecEnd::Exited(code) => format!("it exited with {code}"),
        ExecEnd::Killed(signal) => format!("it was killed by signal {signal}"),
        ExecEnd::TimedOut => format!("it was not done after {timeout_ms} ms, and was ended"),
        ExecEnd::NotStarted(why) => format!("it could not be started: {why}"),
    }
}

fn last_line(printed: &str) -> String {
    let line = printed.lines().rev().map(str::trim).find(|line| !line.is_empty());
    line.unwrap_or_default().chars().take(MAX_LINE_CHARS).collect()
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn the_last_line_is_the_last_that_says_something_and_is_cut() {
        assert_eq!(last_line(""), "");
        assert_eq!(last_line("first\n  last \n\n \n"), "last");
        assert_eq!(last_line(&"é".repeat(1_000)).chars().count(), MAX_LINE_CHARS);
    }
}
