//! Waiting for the cloud: for as long as somebody said, and no longer; and why it was in vain.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ash_core::id::{SessionId, TenantId};
use ash_core::time::Timestamp;
use ash_store::{CloudHead, StoredSession};

use super::health::Trouble;
use super::upload::{has_all, is_all_there};
use super::{Cloud, CloudError};
use crate::shared::Shared;

/// Of how many sessions it is remembered why they are not there: the latest.
const MAX_FAILURES: usize = 1_024;

/// How long somebody waits for a cloud that is known not to answer: it may have come back just now.
const WHILE_DOWN: Duration = Duration::from_millis(500);

/// Why a session is not in the cloud as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloudFailure {
    /// Why, for a person.
    pub message: String,
    /// When that was found.
    pub at: Timestamp,
    /// Whether waiting may help.
    is_transient: bool,
    /// Which of all failures this was.
    number: u64,
}

/// Sessions that could not be brought up, until they can.
#[derive(Default)]
pub(crate) struct Failures(Mutex<(u64, BTreeMap<SessionId, CloudFailure>)>);

impl Failures {
    pub(super) fn note(&self, session: SessionId, error: Option<&CloudError>, at: Timestamp) {
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, of) = &mut *failures;
        let Some(error) = error else {
            of.remove(&session);
            return;
        };
        *count += 1;
        let (message, is_transient) = (error.to_string(), error.is_transient());
        of.insert(session, CloudFailure { message, at, is_transient, number: *count });
        if of.len() > MAX_FAILURES {
            let oldest = of.iter().min_by_key(|(_, failure)| failure.number).map(|(id, _)| *id);
            oldest.and_then(|oldest| of.remove(&oldest));
        }
    }

    fn of(&self, session: SessionId) -> Option<CloudFailure> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1.get(&session).cloned()
    }

    fn count(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Cloud {
    /// Why a session is not in the cloud as it is, if that is known: it was tried, or the cloud does not answer. `put`
    /// is what of it is there.
    pub fn failure(&self, stored: &StoredSession, put: Option<&CloudHead>) -> Option<CloudFailure> {
        let own = self.0.failures.of(stored.record.id);
        own.or_else(|| {
            let Trouble { message, at } = self.trouble().filter(|_| !has_all(put, stored))?;
            Some(CloudFailure { message, at, is_transient: true, number: 0 })
        })
    }

    /// Waits until what a session has worked on is in the cloud, unless that takes long, or waiting does not help.
    pub(crate) async fn wait_for(&self, shared: &Shared, tenant: &TenantId, session: SessionId) {
        let there_or_down = async {
            tokio::select! {
                biased;
                () = self.until_there(shared, tenant, session) => {}
                () = self.until_down() => {}
            }
        };
        let _there_or_late = tokio::time::timeout(self.0.wait, there_or_down).await;
    }

    /// Waits until the cloud has been down for a moment.
    async fn until_down(&self) {
        let mut news = self.0.news.watch();
        loop {
            while !self.is_down() {
                news.changed().await;
            }
            tokio::time::sleep(WHILE_DOWN).await;
            if self.is_down() {
                return;
            }
        }
    }

    /// The same for sessions whose sandboxes were given up, all of them together, and `at_most` so long. Nobody
    /// waits for a cloud that is known not to answer.
    pub(crate) async fn wait_for_all(
        &self,
        shared: &Shared,
        sessions: &[SessionId],
        at_most: Duration,
    ) {
        if self.is_down() {
            return;
        }
        let are_there = async {
            for session in sessions {
                if let Ok(record) = shared.store.session_record(*session).await {
                    self.until_there(shared, &record.tenant, *session).await;
                }
            }
        };
        let _there_or_late = tokio::time::timeout(self.0.wait.min(at_most), are_there).await;
    }

    async fn until_there(&self, shared: &Shared, tenant: &TenantId, session: SessionId) {
        let earlier = self.0.failures.count();
        let mut news = self.0.news.watch();
        let mut is_wanted = false;
        loop {
            let Ok(stored) = shared.store.session(tenant, session).await else { return };
            let standing = &stored.session;
            let persistence = standing.persistence();
            if persistence.failed().is_some() {
                return;
            }
            if standing.is_at_rest() && persistence.is_settled() {
                match is_all_there(shared.store.as_ref(), &stored).await {
                    Ok(false) => {}
                    Ok(true) | Err(_) => return,
                }
                let failed = self.0.failures.of(session);
                if failed.is_some_and(|it| !it.is_transient && it.number > earlier) {
                    return;
                }
                if !std::mem::replace(&mut is_wanted, true) {
                    self.want(session);
                }
            }
            news.changed().await;
        }
    }
}
