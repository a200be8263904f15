//! Whether the cloud answers, as far as is known, and since when it does not.

use std::sync::PoisonError;

use ash_core::time::Timestamp;

use super::{Cloud, CloudError};

/// Whether the cloud answers, as far as is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Health {
    Unknown,
    Up,
    Down(Trouble),
}

/// What is wrong with it, for everybody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    pub(super) message: String,
    /// When that was found.
    pub(super) at: Timestamp,
}

impl Cloud {
    /// Takes note of how a call went: what changes is said once.
    pub(super) fn heard(&self, failure: Option<&CloudError>, at: Timestamp) {
        let now = match failure {
            None => Health::Up,
            Some(error @ (CloudError::Unavailable(_) | CloudError::Unfit(_))) => {
                Health::Down(Trouble { message: error.to_string(), at })
            }
            Some(
                CloudError::Refuses(_)
                | CloudError::NotOurs(_)
                | CloudError::NotFound(_)
                | CloudError::Damaged(_)
                | CloudError::TooNew { .. }
                | CloudError::TooLarge(_)
                | CloudError::Elsewhere
                | CloudError::Here(_)
                | CloudError::Store(_),
            ) => return,
        };
        let before = {
            let mut health = self.0.health.lock().unwrap_or_else(PoisonError::into_inner);
            let now = match (&*health, now) {
                // What is wrong may be another thing by now; since when is the same.
                (Health::Down(first), Health::Down(still)) => {
                    Health::Down(Trouble { at: first.at, ..still })
                }
                (Health::Unknown | Health::Up | Health::Down(_), now) => now,
            };
            std::mem::replace(&mut *health, now)
        };
        let url = self.url();
        match (before, failure) {
            (Health::Unknown | Health::Up, Some(error)) => {
                let error = error as &dyn std::error::Error;
                tracing::warn!(
                    error,
                    "the cloud at {url} cannot be used: it is tried again and again"
                );
            }
            (Health::Down(_), None) => tracing::info!("the cloud at {url} can be used again"),
            (Health::Unknown, None) => tracing::info!("snapshots are copied to {url}"),
            (Health::Up, None) | (Health::Down(_), Some(_)) => return,
        }
        // Whoever waits for it need not, or may again.
        self.tell();
    }

    pub(super) fn is_down(&self) -> bool {
        self.trouble().is_some()
    }

    /// What is wrong with the cloud, if it does not answer.
    pub(super) fn trouble(&self) -> Option<Trouble> {
        match &*self.0.health.lock().unwrap_or_else(PoisonError::into_inner) {
            Health::Down(trouble) => Some(trouble.clone()),
            Health::Unknown | Health::Up => None,
        }
    }
}
