//! The queue: prompts that are worked on when there is room, and tried again when an accident cut them.
//!
//! ```text
//!            ┌────────────── an accident, and it may be tried again ─────────────┐
//!            ▼                                                                   │
//!   added ► pending ──► processing ┬─ the run is over ────────────────► completed│
//!            │                     ├─ a person ended the run ─────────► cancelled│
//!            │                     ├─ trying again does not help ─────► failed   │
//!            └─► cancelled         └─ anything else ────────────────────────────►┘
//! ```

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::failure::FailureCode;

/// How long after its first failure an item is tried again. Each time it takes twice as long.
pub const FIRST_RETRY: Duration = Duration::from_secs(5);

/// The longest an item waits between two attempts.
pub const LAST_RETRY: Duration = Duration::from_secs(5 * 60);

/// Where an item stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueStatus {
    /// It waits: for room, or to be tried again.
    Pending,
    /// Somebody works on it.
    Processing,
    /// It was done.
    Completed,
    /// It could not be done.
    Failed,
    /// A person withdrew it, or ended its run.
    Cancelled,
}

impl QueueStatus {
    /// Every status.
    pub const ALL: [Self; 5] =
        [Self::Pending, Self::Processing, Self::Completed, Self::Failed, Self::Cancelled];

    /// The stable name of this status.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Processing => "processing",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// What is done about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterFailure {
    /// It is tried again after this time.
    Retry(Duration),
    /// That was the last attempt.
    GiveUp,
}

/// Decides what is done about an attempt that failed after so many retries.
pub fn after_failure(retries: u32, max_retries: u32, may_help: bool) -> AfterFailure {
    if !may_help || retries >= max_retries {
        return AfterFailure::GiveUp;
    }
    // Beyond that, the longest wait is reached anyway.
    let doubled = FIRST_RETRY.saturating_mul(1 << retries.min(16));
    AfterFailure::Retry(doubled.min(LAST_RETRY))
}

/// Whether trying a prompt again may help that failed for this.
pub const fn may_be_cured(code: FailureCode) -> bool {
    match code {
        FailureCode::SandboxStartFailed
        | FailureCode::SandboxCapacity
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
        | FailureCode::TurnTimeout
        | FailureCode::Internal => true,
        FailureCode::RuntimeMissing
        | FailureCode::ConversationRefused
        | FailureCode::SnapshotDamaged
        | FailureCode::NoSavedState
        | FailureCode::SessionExpired => false,
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn each_wait_is_twice_the_one_before_up_to_the_longest() {
        let waits: Vec<_> = (0..9)
            .map(|retries| match after_failure(retries, 9, true) {
                AfterFailure::Retry(wait) => wait.as_secs(),
                AfterFailure::GiveUp => panic!("{retries}"),
            })
            .collect();
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 300, 300, 300]);
        assert_eq!(after_failure(u32::MAX - 1, u32::MAX, true), AfterFailure::Retry(LAST_RETRY));
    }

    #[test]
    fn what_does_not_help_is_not_tried() {
        assert_eq!(after_failure(0, 3, false), AfterFailure::GiveUp);
        assert_eq!(after_failure(0, 0, true), AfterFailure::GiveUp);
        assert_eq!(after_failure(3, 3, true), AfterFailure::GiveUp);
        assert_eq!(after_failure(2, 3, true), AfterFailure::Retry(Duration::from_secs(20)));
    }

    #[test]
    fn a_status_is_stored_by_the_name_it_is_known_by() {
        for status in QueueStatus::ALL {
            assert_eq!(serde_json::to_string(&status).unwrap(), format!("\"{}\"", status.as_str()));
        }
    }
}
