//! The entries of a session's log: everything a client can be shown and a recovery can need.
//!
//! An entry is stored as its [`kind`](Entry::kind), the run it belongs to, and its fields as JSON.
//! Fields may be added; a kind, once written, keeps its meaning for ever.

use serde::{Deserialize, Serialize};

use crate::failure::{Failure, FailureCode};
use crate::id::{QuestionId, RunId, SessionId, SnapshotId};
use crate::json::Json;
use crate::number::{Incarnation, Seq, Turn};
use crate::permission::{AnsweredHow, Permission};
use crate::resume::Receipt;
use crate::run::{Outcome, Phase, Usage};
use crate::session::PauseReason;

/// One line of a session's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// The session exists; a sandbox has been asked for.
    SessionCreated,
    /// The first sandbox is up.
    SessionActive {
        /// Which one.
        incarnation: Incarnation,
    },
    /// The session came to rest.
    SessionPaused {
        /// Why.
        reason: PauseReason,
    },
    /// The session is being brought back; a new sandbox is on its way.
    SessionWaking,
    /// The session came back.
    SessionResumed {
        /// How.
        path: ResumePath,
        /// The sandbox it goes on with.
        incarnation: Incarnation,
        /// What it came back to. Entries of the first version have none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        receipt: Option<Receipt>,
    },
    /// The agent does not know any more what this log says, or the log has lost its end where it came from.
    ContextLost {
        /// How many turns the log holds.
        turns_in_log: u32,
        /// Why.
        reason: String,
    },
    /// A person stopped the session; its sandbox is destroyed.
    SessionStopped,
    /// The session cannot go on without being resumed.
    SessionFailed {
        /// What went wrong.
        failure: Failure,
    },
    /// The session is over.
    SessionEnded {
        /// Why.
        by: EndedBy,
    },
    /// The session began here, with the history of another one up to this entry.
    SessionForked {
        /// The other one.
        parent: SessionId,
        /// The turn that it goes on from.
        turn: Turn,
        /// What its files are.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        snapshot: Option<SnapshotId>,
    },
    /// The session was brought here from elsewhere, with its history up to this entry.
    SessionImported {
        /// What it was called there.
        from: SessionId,
        /// The turn that it goes on from.
        turn: Turn,
        /// What its files are.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        snapshot: Option<SnapshotId>,
    },
    /// The conversation goes on from an earlier turn.
    Rewound {
        /// The turn it was at.
        from: Turn,
        /// The turn that the next one continues.
        to: Turn,
        /// What the files are. Entries of the first version say nothing of them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        snapshot: Option<SnapshotId>,
        /// The last entry of that turn which is part of the conversation, if not all of it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        through: Option<Seq>,
    },
    /// A prompt was accepted.
    Prompt {
        /// Its run.
        run: RunId,
        /// What the person wrote, as it came.
        content: Json,
    },
    /// The agent was given a prompt.
    RunStarted {
        /// Which run.
        run: RunId,
        /// Its ordinal.
        turn: Turn,
        /// The turn it continues.
        parent_turn: Turn,
    },
    /// The run does something else now.
    Phase {
        /// Which run.
        run: RunId,
        /// What it does.
        phase: Phase,
        /// How often the model was asked so far.
        round: u32,
    },
    /// A model request was cut and is repeated: what it had produced does not count.
    RunRetry {
        /// Which run.
        run: RunId,
        /// The round that is repeated.
        round: u32,
        /// Output of this run after that entry is retracted.
        discard_after_seq: Seq,
    },
    /// A person asked for the end of the run. Recorded at once: an aborted run is never offered
    /// for recovery, even if the machine dies before the agent obeys.
    RunCancelling {
        /// Which run.
        run: RunId,
    },
    /// Text of the agent's answer.
    TextDelta {
        /// Which run.
        run: RunId,
        /// The text.
        delta: String,
    },
    /// Text of the agent's thinking.
    ThinkingDelta {
        /// Which run.
        run: RunId,
        /// The text.
        delta: String,
    },
    /// A whole message of the agent, as it came.
    Message {
        /// Which run.
        run: RunId,
        /// The message.
        body: Json,
    },
    /// Anything else the agent reported, as it came.
    Output {
        /// Which run.
        run: RunId,
        /// What the agent calls it.
        name: String,
        /// Its fields.
        body: Json,
    },
    /// Something that the agent said of its own accord, while it had no prompt: what it left running has ended, for
    /// example. It belongs to no run.
    Aside {
        /// The turn that the conversation was at.
        turn: Turn,
        /// What it said.
        said: Said,
    },
    /// The agent wants to do something that it has to ask about, and waits.
    PermissionRequest {
        /// Which run.
        run: RunId,
        /// Which question.
        id: QuestionId,
        /// What it wants to use.
        tool: String,
        /// What for.
        input: Json,
    },
    /// A person has answered. The agent does not know it yet.
    PermissionDecided {
        /// Which run.
        run: RunId,
        /// Which question.
        id: QuestionId,
        /// What the person says.
        decision: Permission,
    },
    /// A question is over.
    PermissionAnswered {
        /// Which run.
        run: RunId,
        /// Which question.
        id: QuestionId,
        /// What became of it.
        how: AnsweredHow,
        /// What went wrong, if it is lost.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<FailureCode>,
    },
    /// The agent reported more at once than the log takes.
    ReportTooLarge {
        /// Which run; none, if it had none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run: Option<RunId>,
        /// How much it was.
        bytes: u64,
    },
    /// What went wrong with a run that is over. Its end is the next entry.
    RunError {
        /// Which run.
        run: RunId,
        /// What went wrong.
        failure: Failure,
    },
    /// The run is over.
    RunEnded {
        /// Which run.
        run: RunId,
        /// How it ended.
        outcome: Outcome,
        /// What it consumed, as far as was reported.
        usage: Usage,
    },
    /// The sandbox skipped numbers: what it reported under them is lost.
    ReportsLost {
        /// How many.
        missing: u64,
    },
}

/// What an agent says without a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    /// A whole message, as it came.
    Message {
        /// The message.
        body: Json,
    },
    /// Anything else, as it came.
    Output {
        /// What the agent calls it.
        name: String,
        /// Its fields.
        body: Json,
    },
}

/// How a session came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResumePath {
    /// The same sandbox was thawed.
    Warm,
    /// A new sandbox was started.
    Cold,
}

impl ResumePath {
    /// The stable name of this path.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Warm => "warm",
            Self::Cold => "cold",
        }
    }
}

/// Who ended a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndedBy {
    /// A person or a program.
    Request,
    /// Its time to live.
    Ttl,
}

/// Who says a message of the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Whoever prompts.
    User,
    /// The agent.
    Assistant,
}

impl Role {
    /// The stable name of this role.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }
}

impl Entry {
    /// The stable name of this kind of entry.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::SessionCreated => "session_created",
            Self::SessionActive { .. } => "session_active",
            Self::SessionPaused { .. } => "session_paused",
            Self::SessionWaking => "session_waking",
            Self::SessionResumed { .. } => "session_resumed",
            Self::ContextLost { .. } => "context_lost",
            Self::SessionStopped => "session_stopped",
            Self::SessionFailed { .. } => "session_failed",
            Self::SessionEnded { .. } => "session_ended",
            Self::SessionForked { .. } => "session_forked",
            Self::SessionImported { .. } => "session_imported",
            Self::Rewound { .. } => "rewound",
            Self::Prompt { .. } => "prompt",
            Self::RunStarted { .. } => "run_started",
            Self::Phase { .. } => "phase",
            Self::RunRetry { .. } => "run_retry",
            Self::RunCancelling { .. } => "run_cancelling",
            Self::TextDelta { .. } => "text_delta",
            Self::ThinkingDelta { .. } => "thinking_delta",
            Self::Message { .. } => "message",
            Self::Output { .. } => "output",
            Self::Aside { .. } => "aside",
            Self::PermissionRequest { .. } => "permission_request",
            Self::PermissionDecided { .. } => "permission_decided",
            Self::PermissionAnswered { .. } => "permission_answered",
            Self::ReportTooLarge { .. } => "report_too_large",
            Self::RunError { .. } => "run_error",
            Self::RunEnded { .. } => "run_ended",
            Self::ReportsLost { .. } => "reports_lost",
        }
    }

    /// How many bytes of it are what a person or an agent said; the rest is short.
    pub fn content_bytes(&self) -> usize {
        match self {
            Self::Prompt { content: body, .. }
            | Self::Message { body, .. }
            | Self::Output { body, .. }
            | Self::Aside { said: Said::Message { body } | Said::Output { body, .. }, .. } => {
                body.get().len()
            }
            Self::TextDelta { delta, .. } | Self::ThinkingDelta { delta, .. } => delta.len(),
            Self::PermissionRequest { tool, input, .. } => tool.len() + input.get().len(),
            Self::PermissionDecided { decision, .. } => decision.size(),
            Self::SessionCreated
            | Self::SessionActive { .. }
            | Self::SessionPaused { .. }
            | Self::SessionWaking
            | Self::SessionResumed { .. }
            | Self::ContextLost { .. }
            | Self::SessionStopped
            | Self::SessionFailed { .. }
            | Self::SessionEnded { .. }
            | Self::SessionForked { .. }
            | Self::SessionImported { .. }
            | Self::Rewound { .. }
            | Self::RunStarted { .. }
            | Self::Phase { .. }
            | Self::RunRetry { .. }
            | Self::RunCancelling { .. }
            | Self::PermissionAnswered { .. }
            | Self::ReportTooLarge { .. }
            | Self::RunError { .. }
            | Self::RunEnded { .. }
            | Self::ReportsLost { .. } => 0,
        }
    }

    /// The run this entry belongs to.
    pub const fn run(&self) -> Option<RunId> {
        match self {
            Self::SessionCreated
            | Self::SessionActive { .. }
            | Self::SessionPaused { .. }
            | Self::SessionWaking
            | Self::SessionResumed { .. }
            | Self::ContextLost { .. }
            | Self::SessionStopped
            | Self::SessionFailed { .. }
            | Self::SessionEnded { .. }
            | Self::SessionForked { .. }
            | Self::SessionImported { .. }
            | Self::Rewound { .. }
            | Self::Aside { .. }
            | Self::ReportsLost { .. } => None,
            Self::ReportTooLarge { run, .. } => *run,
            Self::Prompt { run, .. }
            | Self::RunStarted { run, .. }
            | Self::Phase { run, .. }
            | Self::RunRetry { run, .. }
            | Self::RunCancelling { run }
            | Self::TextDelta { run, .. }
            | Self::ThinkingDelta { run, .. }
            | Self::Message { run, .. }
            | Self::Output { run, .. }
            | Self::PermissionRequest { run, .. }
            | Self::PermissionDecided { run, .. }
            | Self::PermissionAnswered { run, .. }
            | Self::RunError { run, .. }
            | Self::RunEnded { run, .. } => Some(*run),
        }
    }

    /// Who speaks, if this entry is a message of the conversation.
    pub const fn role(&self) -> Option<Role> {
        match self {
            Self::Prompt { .. } => Some(Role::User),
            Self::Message { .. } | Self::Aside { said: Said::Message { .. }, .. } => {
                Some(Role::Assistant)
            }
            Self::SessionCreated
            | Self::SessionActive { .. }
            | Self::SessionPaused { .. }
            | Self::SessionWaking
            | Self::SessionResumed { .. }
            | Self::ContextLost { .. }
            | Self::SessionStopped
            | Self::SessionFailed { .. }
            | Self::SessionEnded { .. }
            | Self::SessionForked { .. }
            | Self::SessionImported { .. }
            | Self::Rewound { .. }
            | Self::RunStarted { .. }
            | Self::Phase { .. }
            | Self::RunRetry { .. }
            | Self::RunCancelling { .. }
            | Self::TextDelta { .. }
            | Self::ThinkingDelta { .. }
            | Self::Output { .. }
            | Self::Aside { said: Said::Output { .. }, .. }
            | Self::PermissionRequest { .. }
            | Self::PermissionDecided { .. }
            | Self::PermissionAnswered { .. }
            | Self::ReportTooLarge { .. }
            | Self::RunError { .. }
            | Self::RunEnded { .. }
            | Self::ReportsLost { .. } => None,
        }
    }
}
