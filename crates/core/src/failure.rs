//! Why something was cut short: a code that never changes and a sentence for a person.

use serde::{Deserialize, Serialize};

/// What went wrong. The code is stable; `docs/errors/` has a page for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureCode {
    /// No sandbox could be started.
    SandboxStartFailed,
    /// Every place for a sandbox is taken.
    SandboxCapacity,
    /// The program that runs the agent is not on this server.
    RuntimeMissing,
    /// A script that the agent has for its start failed.
    HookFailed,
    /// The sandbox did not come up in time.
    SandboxStartTimeout,
    /// The sandbox ended by itself or by a signal.
    SandboxDied,
    /// The sandbox, or something in it, used more memory than it may.
    SandboxOutOfMemory,
    /// The workspace grew beyond its limit.
    SandboxDiskFull,
    /// The sandbox was not there any more when the server came back to it.
    SandboxLost,
    /// The sandbox would not go away, so no new one may start.
    SandboxStuck,
    /// The files of the session are in the cloud alone, and that does not answer.
    CloudUnavailable,
    /// The files of the session are said to be in the cloud, and cannot be read whole there or anywhere.
    SnapshotDamaged,
    /// There is nothing of the session's files any more, and it was not to begin without them.
    NoSavedState,
    /// The agent did not answer, or did not obey.
    AgentUnresponsive,
    /// The agent itself reported that it could not go on.
    AgentFailed,
    /// The model's provider does not take the conversation.
    ConversationRefused,
    /// The run took longer than it may.
    TurnTimeout,
    /// The session's time to live ran out.
    SessionExpired,
    /// A defect in the server.
    Internal,
}

impl FailureCode {
    /// Every code, for documentation and its test.
    pub const ALL: [Self; 19] = [
        Self::SandboxStartFailed,
        Self::SandboxCapacity,
        Self::RuntimeMissing,
        Self::HookFailed,
        Self::SandboxStartTimeout,
        Self::SandboxDied,
        Self::SandboxOutOfMemory,
        Self::SandboxDiskFull,
        Self::SandboxLost,
        Self::SandboxStuck,
        Self::CloudUnavailable,
        Self::SnapshotDamaged,
        Self::NoSavedState,
        Self::AgentUnresponsive,
        Self::AgentFailed,
        Self::ConversationRefused,
        Self::TurnTimeout,
        Self::SessionExpired,
        Self::Internal,
    ];

    /// The stable name of this code.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SandboxStartFailed => "sandbox_start_failed",
            Self::SandboxCapacity => "sandbox_capacity",
            Self::RuntimeMissing => "runtime_missing",
            Self::HookFailed => "hook_failed",
            Self::SandboxStartTimeout => "sandbox_start_timeout",
            Self::SandboxDied => "sandbox_died",
            Self::SandboxOutOfMemory => "sandbox_out_of_memory",
            Self::SandboxDiskFull => "sandbox_disk_full",
            Self::SandboxLost => "sandbox_lost",
            Self::SandboxStuck => "sandbox_stuck",
            Self::CloudUnavailable => "cloud_unavailable",
            Self::SnapshotDamaged => "snapshot_damaged",
            Self::NoSavedState => "no_saved_state",
            Self::AgentUnresponsive => "agent_unresponsive",
            Self::AgentFailed => "agent_failed",
            Self::ConversationRefused => "conversation_refused",
            Self::TurnTimeout => "turn_timeout",
            Self::SessionExpired => "session_expired",
            Self::Internal => "internal",
        }
    }
}

/// A failure as it is recorded and shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What kind.
    pub code: FailureCode,
    /// A sentence for a person; never a secret, never a prompt.
    pub message: String,
}

impl Failure {
    /// A failure with a sentence that says more than the code.
    pub fn new(code: FailureCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// The longest sentence that an agent may put into a failure.
pub(crate) const MAX_MESSAGE_BYTES: usize = 4 * 1024;

impl Failure {
    /// A failure in the words of an agent, which may be many.
    pub fn as_told(code: FailureCode, mut message: String) -> Self {
        if message.len() > MAX_MESSAGE_BYTES {
            message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES));
            message.push_str(" …");
        }
        Self { code, message }
    }
}

/// How a sandbox came to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Death {
    /// It was asked to stop, and did.
    Stopped,
    /// Its first process ended by itself.
    Exited(i32),
    /// A signal ended it.
    Killed(i32),
    /// The kernel ended it for using too much memory.
    OutOfMemory,
    /// It was ended because the workspace grew beyond its limit.
    DiskFull,
    /// It ended while it was listened to, but not as a child whose end can be read.
    Unseen,
    /// It was ended because what it sent could not be trusted any more.
    Misbehaved(String),
    /// Nobody saw it end: it was not there when it was looked for.
    Lost,
    /// It was ended because the directories that it works in were removed or replaced.
    FilesGone,
    /// It ended because its agent's record of the conversation was removed or damaged, and the log has it.
    RecordGone,
    /// The machine it ran on is gone.
    RunnerLost,
}

impl Death {
    /// The failure that this end means for a session that still needed the sandbox.
    pub fn failure(&self) -> Failure {
        match self {
            Self::Stopped => Failure::new(FailureCode::SandboxDied, "the sandbox was stopped"),
            Self::Exited(code) => Failure::new(
                FailureCode::SandboxDied,
                format!("the sandbox ended by itself with exit code {code}"),
            ),
            Self::Killed(signal) => Failure::new(
                FailureCode::SandboxDied,
                format!("the sandbox was killed by signal {signal}"),
            ),
            Self::OutOfMemory => Failure::new(
                FailureCode::SandboxOutOfMemory,
                "the sandbox was killed because it reached its memory limit",
            ),
            Self::DiskFull => Failure::new(
                FailureCode::SandboxDiskFull,
                "the sandbox was stopped because its files reached their disk limit or lie deeper than they can be counted, or the server's disk is full",
            ),
            Self::Unseen => {
                Failure::new(FailureCode::SandboxDied, "the sandbox ended; how was not seen")
            }
            Self::Misbehaved(how) => Failure::as_told(
                FailureCode::SandboxDied,
                format!("the sandbox was stopped because of what it sent: {how}"),
            ),
            Self::Lost => Failure::new(
                FailureCode::SandboxLost,
                "the sandbox was gone when it was looked for",
            ),
            Self::FilesGone => Failure::new(
                FailureCode::SandboxLost,
                "the sandbox was ended because its files were removed or replaced under it",
            ),
            Self::RecordGone => Failure::new(
                FailureCode::SandboxLost,
                "the sandbox was ended because the agent's record of the conversation was removed or damaged in it; \
                 the next start makes it anew from the log",
            ),
            Self::RunnerLost => {
                Failure::new(FailureCode::SandboxLost, "the machine that ran the sandbox is gone")
            }
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_code_is_stored_by_the_name_it_is_known_by() {
        for code in FailureCode::ALL {
            assert_eq!(serde_json::to_string(&code).unwrap(), format!("\"{}\"", code.as_str()));
        }
    }
}
