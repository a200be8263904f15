//! How much may go on at once for one session.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
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
    places: usize,
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
        Some(Place { of: self.clone(), session, places: 1 })
    }

    /// Takes all places at once; nothing, if any is taken.
    pub(crate) fn begin_alone(&self, session: SessionId) -> Option<Place> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        match taken.entry(session) {
            Entry::Occupied(_) => None,
            Entry::Vacant(none) => {
                none.insert(self.most);
                Some(Place { of: self.clone(), session, places: self.most })
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.of.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = taken.get_mut(&self.session) {
            *count -= self.places;
            if *count == 0 {
                taken.remove(&self.session);
            }
        }
    }
}
