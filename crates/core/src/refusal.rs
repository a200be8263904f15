//! Why a request was turned down. A refusal has changed nothing.

use crate::permission::AnsweredHow;
use crate::session::Status;

/// Why a session turned a request down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The session is over; only a new one helps.
    #[error("session has ended")]
    Ended,
    /// The request needs another state than this one.
    #[error("session is {0}")]
    NotActive(Status),
    /// A run goes on and the caller did not want to wait for it, or to end it.
    #[error("a run is in progress")]
    RunInProgress,
    /// As many prompts wait as may wait.
    #[error("too many prompts are waiting")]
    QueueFull,
    /// There is no such run to interrupt.
    #[error("no such run is in progress or waiting")]
    NoSuchRun,
    /// It is on its way back to an earlier turn, and is neither here nor there.
    #[error("the session is being rewound")]
    BeingRewound,
    /// The turn is not part of the session's history.
    #[error("no such turn")]
    NoSuchTurn,
    /// No such question was asked, as far as is remembered.
    #[error("no such question")]
    NoSuchQuestion,
    /// Somebody has answered the question already.
    #[error("the question has been answered already")]
    QuestionDecided,
    /// The question is over.
    #[error("the question is not open any more: {}", .0.as_str())]
    QuestionClosed(AnsweredHow),
}

impl Refusal {
    /// Every code, for documentation and its test.
    pub const CODES: [&'static str; 10] = [
        Self::Ended.code(),
        Self::NotActive(Status::Paused).code(),
        Self::RunInProgress.code(),
        Self::QueueFull.code(),
        Self::NoSuchRun.code(),
        Self::NoSuchTurn.code(),
        Self::BeingRewound.code(),
        Self::NoSuchQuestion.code(),
        Self::QuestionDecided.code(),
        Self::QuestionClosed(AnsweredHow::Lost).code(),
    ];

    /// The stable name of this refusal; `docs/errors/` has a page for each.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Ended => "session_ended",
            Self::NotActive(_) => "session_not_active",
            Self::RunInProgress => "run_in_progress",
            Self::QueueFull => "queue_full",
            Self::NoSuchRun => "no_such_run",
            Self::NoSuchTurn => "no_such_turn",
            Self::BeingRewound => "rewind_in_progress",
            Self::NoSuchQuestion => "no_such_permission",
            Self::QuestionDecided => "permission_decided",
            Self::QuestionClosed(_) => "permission_closed",
        }
    }
}
