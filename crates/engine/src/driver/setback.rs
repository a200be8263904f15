//! How the work of a driver ends when it does not go as decided.

use ash_store::StoreError;

use crate::error::EngineError;

/// Why a driver lets go of its session.
pub(super) enum Exit {
    /// The engine is going.
    Closing,
    /// Another owner has claimed it: then this engine is no longer the one that should run.
    Superseded,
    /// It is not there, or cannot be read.
    Unusable(EngineError),
}

/// How an attempt to commit ended, when it did not succeed.
pub(super) enum Setback {
    /// The outcome is open, until the session is claimed again.
    InDoubt(StoreError),
    /// It did not happen and will not.
    Impossible(StoreError),
    /// The session is no longer ours.
    Exit(Exit),
}

/// What is left to do after a caller was answered.
pub(super) enum After {
    GoOn,
    Settle,
    Exit(Exit),
}

/// A caller that does not get what it wanted.
pub(super) enum Unanswered {
    Told(EngineError),
    /// It is not known whether it happened.
    InDoubt(StoreError),
    Exit(Exit),
}
