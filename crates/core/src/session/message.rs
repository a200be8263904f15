//! What goes in at the two doors: requests, which may be refused, and facts, which may not.

use std::time::Duration;

use super::{AwayOutcome, PauseReason};
use crate::failure::{Death, Failure};
use crate::id::{QuestionId, RunId, SnapshotId};
use crate::json::Json;
use crate::number::{Incarnation, Seq, SpoolPosition};
use crate::permission::{AnsweredHow, Permission};
use crate::resume::{Found, IfLost};
use crate::run::{Completion, Phase, Usage};
use crate::snapshot::{PersistOutcome, PutBackOutcome, Snapshot};
use crate::time::Timestamp;

/// What a caller wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Have the agent work on something.
    Prompt(Prompt),
    /// End a run early: the named one, or else the current one, or else the next in the queue.
    Interrupt {
        /// Which run.
        run: Option<RunId>,
    },
    /// Answer a question of the agent.
    Decide {
        /// Which one.
        question: QuestionId,
        /// What a person says.
        decision: Permission,
    },
    /// Put the session to rest, sandbox and all.
    Pause {
        /// What becomes of a run that goes on.
        if_running: IfRunning,
    },
    /// Bring the session back.
    Resume(Resuming),
    /// Destroy the sandbox; the session can be resumed.
    Stop,
    /// Give the sandbox's place up, unless a run goes on in it.
    Evict {
        /// What a session that was active is paused for.
        reason: PauseReason,
    },
    /// Go on from an earlier turn.
    Rewind {
        /// What the conversation and the files shall be.
        to: Box<Snapshot>,
    },
    /// Make use of the sandbox beside the agent. Keeps an idle session awake.
    Use,
    /// Take note that files were written from outside.
    Touch,
    /// Have captured at once what is to be captured in a moment, or was never captured at all.
    Capture,
    /// Have what is there captured once more: the last snapshot was found to be lost.
    CaptureAgain {
        /// Which one that was.
        lost: SnapshotId,
    },
    /// Have the files removed that a snapshot has too, before it is time to.
    PutAway,
    /// End the session for ever.
    End,
}

/// How a session is to be brought back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resuming {
    /// What becomes of it if what it needs is lost.
    pub if_lost: IfLost,
    /// Since when somebody waits for it: its files may have been fetched first.
    pub asked_at: Option<Timestamp>,
}

impl From<IfLost> for Resuming {
    fn from(if_lost: IfLost) -> Self {
        Self { if_lost, asked_at: None }
    }
}

/// A prompt as it is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// The run it becomes. Made by the server, never by a caller.
    pub run: RunId,
    /// What the person wrote.
    pub content: Json,
    /// What to do when a run goes on.
    pub if_busy: IfBusy,
    /// Which sessions it may bring back.
    pub wake: Wake,
    /// How long the run may take, if not as long as the policy says.
    pub timeout: Option<Duration>,
    /// Since when somebody waits for the session to come back, if it has to.
    pub asked_at: Option<Timestamp>,
}

/// What a prompt does when a run goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfBusy {
    /// Wait for its turn.
    Queue,
    /// Be refused.
    Reject,
}

/// Which sessions a prompt may bring back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Those that the system paused.
    SystemPaused,
    /// Also those that a person paused or stopped, and broken ones.
    Any,
}

/// What a pause does to a run that goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfRunning {
    /// Freeze it where it is.
    Freeze,
    /// Cancel it, then pause.
    Interrupt,
    /// Refuse the pause.
    Reject,
}

/// What has already happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// A sandbox is up and its bridge answers.
    SandboxStarted {
        /// Which one.
        incarnation: Incarnation,
        /// What its host found.
        found: Found,
    },
    /// A sandbox could not be started.
    SandboxStartFailed {
        /// Which one.
        incarnation: Incarnation,
        /// Why.
        failure: Failure,
    },
    /// Nothing of a sandbox runs any more. Comes after everything it reported.
    SandboxGone {
        /// Which one.
        incarnation: Incarnation,
        /// How it ended.
        death: Death,
    },
    /// A sandbox does not answer an owner that came back to it. It may be alive.
    SandboxUnreachable {
        /// Which one.
        incarnation: Incarnation,
    },
    /// A sandbox is frozen.
    SandboxFrozen {
        /// Which one.
        incarnation: Incarnation,
        /// For which pause.
        asked: Seq,
    },
    /// A sandbox is thawed and its bridge answers.
    SandboxThawed {
        /// Which one.
        incarnation: Incarnation,
        /// For which resume.
        asked: Seq,
    },
    /// A sandbox reported something: what gathered since the last commit, in order.
    Reported {
        /// Which one.
        incarnation: Incarnation,
        /// What it reported.
        reports: Vec<NumberedReport>,
    },
    /// A capture is over.
    Persisted {
        /// Which one.
        number: u64,
        /// What came of it.
        outcome: PersistOutcome,
    },
    /// Files were put back, or were not.
    PutBack {
        /// For which rewind.
        number: u64,
        /// What came of it.
        outcome: PutBackOutcome,
    },
    /// What came of removing its files.
    PutAway {
        /// Which time.
        number: u64,
        /// What came of it.
        outcome: AwayOutcome,
    },
    /// Something beside the agent uses the sandbox, a command for example: it is not idle.
    InUse,
    /// It is later now. Whatever is overdue is led out of its state.
    TimePassed,
    /// The task that drives the session panicked.
    DriverPanicked {
        /// Where the log ended then. If it has grown since, somebody has dealt with it.
        last_seq: Seq,
    },
}

/// A report with its number in the sandbox's spool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberedReport {
    /// At or below the last one in the log it is a repetition.
    pub position: SpoolPosition,
    /// The report.
    pub report: Report,
}

/// What a sandbox reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The run that it is about. A report about any other than the current one is dropped. None: the agent says it
    /// of its own accord.
    pub run: Option<RunId>,
    /// What happened.
    pub body: ReportBody,
}

/// What happened in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportBody {
    /// The agent has the prompt.
    Begun,
    /// The agent does something else now.
    Phase {
        /// What it does.
        phase: Phase,
        /// How often the model was asked so far.
        round: u32,
    },
    /// The model request of this round was cut and is repeated.
    Retry {
        /// The round.
        round: u32,
    },
    /// Text of the answer.
    TextDelta(String),
    /// Text of the thinking.
    ThinkingDelta(String),
    /// A whole message.
    Message(Json),
    /// Anything else.
    Output {
        /// What the agent calls it.
        name: String,
        /// Its fields.
        body: Json,
    },
    /// The agent asks before it does something, and waits.
    Question {
        /// Which question.
        id: QuestionId,
        /// What it wants to use.
        tool: String,
        /// What for.
        input: Json,
    },
    /// It waits no longer.
    Answered {
        /// For which question.
        id: QuestionId,
        /// What became of it.
        how: AnsweredHow,
    },
    /// Something that this server does not know. It takes its number and says nothing.
    Skipped,
    /// The agent is done with the run.
    Ended {
        /// How.
        how: AgentEnding,
        /// What the run consumed.
        usage: Usage,
    },
}

impl ReportBody {
    /// How many bytes what varies in the report will take in the log, as JSON.
    pub fn size(&self) -> usize {
        match self {
            // What an agent says of its failure is cut when it is recorded.
            Self::Begun
            | Self::Phase { .. }
            | Self::Retry { .. }
            | Self::Answered { .. }
            | Self::Skipped
            | Self::Ended { .. } => 0,
            Self::TextDelta(text) | Self::ThinkingDelta(text) => size_as_json(text),
            Self::Message(body) => body.get().len(),
            Self::Output { name, body } => size_as_json(name) + body.get().len(),
            Self::Question { tool, input, .. } => size_as_json(tool) + input.get().len(),
        }
    }
}

/// Newlines and quotes take two bytes, other control characters six.
fn size_as_json(text: &str) -> usize {
    let size = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0x00..=0x1f => 6,
        _ => 1,
    };
    text.bytes().map(size).sum()
}

/// How an agent says that it is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentEnding {
    /// It finished.
    Completed(Completion),
    /// It obeyed an interrupt.
    Interrupted,
    /// It could not go on.
    Failed {
        /// Why, for a person.
        message: String,
    },
    /// The model's provider does not take the conversation.
    Refused {
        /// Why, for a person.
        message: String,
    },
}
