//! Runs: the execution of one prompt, from accepted to exactly one outcome.
//!
//! ```text
//!                 ┌──────────────────────────────► cancelled    a person withdrew it
//!   accepted ► queued ► running ┬─ agent is done ► completed
//!                 │             ├─ interrupt ────► cancelled    a person stopped it
//!                 │             ├─ cut by a death► interrupted  may be offered for recovery
//!                 └─ no sandbox ┴─ it could not ─► failed       also: took too long
//! ```
//!
//! *Cancelled* is a person's wish and is never offered for recovery; *interrupted* is an accident.
//! A run whose sandbox dies after a person asked for the interrupt is cancelled.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::failure::{Failure, FailureCode};
use crate::id::RunId;
use crate::number::{Seq, Turn};
use crate::time::Timestamp;

/// What a run is doing; recovery speaks to the agent differently in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The model is answering.
    StreamingLlm,
    /// Tools are running.
    ExecutingTools,
    /// A coder works on a part of the task in a loop of its own.
    DelegatingCoder,
}

impl Phase {
    /// The stable name of this phase.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::StreamingLlm => "streaming_llm",
            Self::ExecutingTools => "executing_tools",
            Self::DelegatingCoder => "delegating_coder",
        }
    }
}

/// Where a run stands, as anybody outside sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// Accepted; waits for its turn.
    Queued,
    /// The agent works on it.
    Running,
    /// The agent finished.
    Completed,
    /// A person ended it.
    Cancelled,
    /// A failure cut it.
    Interrupted,
    /// It could not be done.
    Failed,
}

impl RunStatus {
    /// Every status.
    pub const ALL: [Self; 6] = [
        Self::Queued,
        Self::Running,
        Self::Completed,
        Self::Cancelled,
        Self::Interrupted,
        Self::Failed,
    ];

    /// The stable name of this status.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
            Self::Failed => "failed",
        }
    }

    /// Whether nothing more can happen to the run.
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Queued | Self::Running => false,
            Self::Completed | Self::Cancelled | Self::Interrupted | Self::Failed => true,
        }
    }
}

/// Why an agent that finished did so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Completion {
    /// It had nothing more to say.
    EndTurn,
    /// It reached the largest number of rounds it may take.
    MaxTurns,
    /// It reached the session's budget.
    Budget,
    /// The account it runs on has no quota left.
    Quota,
}

/// How a run ended. There is exactly one for each accepted prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The agent finished.
    Completed(Completion),
    /// A person ended it.
    Cancelled,
    /// A failure cut it.
    Interrupted(Failure),
    /// It could not be done.
    Failed(Failure),
}

impl Outcome {
    /// The status that a run with this outcome has.
    pub const fn status(&self) -> RunStatus {
        match self {
            Self::Completed(_) => RunStatus::Completed,
            Self::Cancelled => RunStatus::Cancelled,
            Self::Interrupted(_) => RunStatus::Interrupted,
            Self::Failed(_) => RunStatus::Failed,
        }
    }

    /// What went wrong, if something did.
    pub const fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Completed(_) | Self::Cancelled => None,
            Self::Interrupted(failure) | Self::Failed(failure) => Some(failure),
        }
    }

    /// What a client's stream says at the end of the run.
    pub const fn stop_reason(&self) -> &'static str {
        match self {
            Self::Completed(Completion::EndTurn) => "end_turn",
            Self::Completed(Completion::MaxTurns) => "max_turns",
            Self::Completed(Completion::Budget) => "budget",
            Self::Completed(Completion::Quota) => "quota",
            Self::Cancelled => "interrupted",
            Self::Interrupted(failure) | Self::Failed(failure) => match failure.code {
                FailureCode::TurnTimeout => "timeout",
                FailureCode::SandboxStartFailed
                | FailureCode::SandboxCapacity
                | FailureCode::RuntimeMissing
                | FailureCode::HookFailed
                | FailureCode::SandboxStartTimeout
                | FailureCode::SandboxDied
                | FailureCode::SandboxOutOfMemory
                | FailureCode::SandboxDiskFull
                | FailureCode::SandboxLost
                | FailureCode::SandboxStuck
                | FailureCode::CloudUnavailable
                | FailureCode::AgentUnresponsive
                | FailureCode::AgentFailed
                | FailureCode::ConversationRefused
                | FailureCode::SessionExpired
                | FailureCode::SnapshotDamaged
                | FailureCode::NoSavedState
                | FailureCode::Internal => "error",
            },
        }
    }
}

/// What a run consumed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens sent to the model.
    pub input_tokens: u64,
    /// Tokens the model wrote.
    pub output_tokens: u64,
    /// Tokens written to the prompt cache.
    pub cache_creation_tokens: u64,
    /// Tokens read from the prompt cache.
    pub cache_read_tokens: u64,
    /// Tools called.
    pub tool_calls: u64,
    /// Cost in millionths of a US dollar.
    pub cost_micro_usd: u64,
}

/// A prompt that waits for its turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuedRun {
    /// Which run.
    pub id: RunId,
    /// How long it may take once it runs.
    pub timeout: Duration,
}

/// The run that the agent works on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CurrentRun {
    /// Which run.
    pub id: RunId,
    /// Its ordinal in the log.
    pub turn: Turn,
    /// When it has taken too long. Stands still while the session is paused.
    pub deadline: Timestamp,
    /// Whether the agent is known to have begun.
    pub delivery: Delivery,
    /// What the agent does, as far as it said.
    pub phase: Option<Phase>,
    /// How often the model was asked in this run.
    pub round: u32,
    /// The last log entry before the current round: what a retry of the round discards back to.
    pub round_start: Seq,
    /// Set once somebody wants the run to end early.
    pub ending: Option<Ending>,
}

/// Whether a prompt has reached the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// Handed over; the agent has not begun yet.
    Sent {
        /// How often it was handed over. The receiver ignores a prompt it already has.
        attempt: u32,
        /// When to hand it over again.
        deadline: Timestamp,
    },
    /// The agent reported something about it.
    Begun,
}

/// A run on its way to an early end: the agent was told and has until the deadline to obey.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// Who wants it to end.
    pub why: EndingWhy,
    /// Whether a person wants the session paused as soon as the run is over.
    pub then_pause: bool,
    /// When the sandbox is killed instead.
    pub deadline: Timestamp,
}

/// Who wants a run to end early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndingWhy {
    /// A person.
    Cancel,
    /// The deadline of the run.
    Timeout,
}

impl EndingWhy {
    /// The outcome of a run that was told to end and did, or that died first.
    pub fn outcome(self) -> Outcome {
        match self {
            Self::Cancel => Outcome::Cancelled,
            Self::Timeout => Outcome::Failed(Failure::new(
                FailureCode::TurnTimeout,
                "the run took longer than it may",
            )),
        }
    }
}
