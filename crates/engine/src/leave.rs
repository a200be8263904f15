//! The right to remove the files of a session: until somebody wants them.
//!
//! Whoever removes them does so in one short step, under a lock that whoever wants them takes too. So they are
//! either gone before a sandbox is started, which then brings them back, or they stay.

use std::sync::{Arc, Mutex, PoisonError};

use ash_core::id::SessionId;

use crate::at_once::AtOnce;

/// The right to remove the files of a session. Cheap to clone; all clones are the same right.
#[derive(Clone)]
pub struct Leave(Arc<Inner>);

struct Inner {
    session: SessionId,
    /// Who works with the files from outside.
    requests: AtOnce,
    is_revoked: Mutex<bool>,
}

impl Leave {
    pub(crate) fn new(session: SessionId, requests: AtOnce) -> Self {
        Self(Arc::new(Inner { session, requests, is_revoked: Mutex::default() }))
    }

    /// Somebody wants the files. When this returns they are gone, or nobody removes them any more.
    pub(crate) fn revoke(&self) {
        *self.0.is_revoked.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }

    /// Whether somebody wants the files.
    pub fn is_revoked(&self) -> bool {
        *self.0.is_revoked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what removes the files, which must be short, unless somebody wants them or works with them.
    pub fn take<T>(&self, remove: impl FnOnce() -> T) -> Option<T> {
        let is_revoked = self.0.is_revoked.lock().unwrap_or_else(PoisonError::into_inner);
        if *is_revoked {
            return None;
        }
        let all = self.0.requests.begin_alone(self.0.session)?;
        let done = remove();
        drop(all);
        Some(done)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn session() -> SessionId {
        "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap()
    }

    #[test]
    fn whoever_wants_or_has_the_files_keeps_them() {
        let requests = AtOnce::new(2);
        let leave = Leave::new(session(), requests.clone());
        let reads = requests.begin(session()).unwrap();
        assert_eq!(leave.take(|| ()), None, "somebody works with them");
        drop(reads);
        let meanwhile = leave.take(|| requests.begin(session()).is_some());
        assert_eq!(meanwhile, Some(false), "nobody begins while they are removed");
        assert!(requests.begin(session()).is_some());
        assert!(!leave.is_revoked());
        leave.clone().revoke();
        assert!(leave.is_revoked());
        assert_eq!(leave.take(|| ()), None);
    }
}
