//! How much may go on at once for one session.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use ash_core::id::SessionId;

/// What goes on beside the conversations: so much for each session. Cheap to clone.
#[derive(Clone)]
pub(crate) struct AtOnce {
    most: usize,
    taken: Arc<Mutex<BTreeMap<SessionId, usize>>>,
}

/// One of them, until it is dropped.
pub(crate) struct Place {
    of: AtOnce,
    session: SessionId,
}

impl AtOnce {
    /// So many places for each session.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, taken: Arc::default() }
    }

    /// Whether anything goes on for a session.
    pub(crate) fn goes_on_in(&self, session: SessionId) -> bool {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&session)
    }

    /// Takes a place; nothing, if all are taken.
    pub(crate) fn begin(&self, session: SessionId) -> Option<Place> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let count = taken.entry(session).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(Place { of: self.clone(), session })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.of.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = taken.get_mut(&self.session) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.session);
            }
        }
    }
}
