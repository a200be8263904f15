//! What a driver has while a session is its own.

use ash_core::number::Fence;
use ash_core::session::{Sandbox, Session};
use ash_store::{Claimed, SessionRecord, Settings};

use crate::registry::ReceiptFor;

/// A session that is ours.
pub(super) struct Owned {
    pub(super) record: SessionRecord,
    pub(super) session: Session,
    pub(super) fence: Fence,
}

impl Owned {
    /// What the next driver goes on from, if that is worth remembering: a sandbox that stands still is asked to move
    /// again, and whoever does so waits for every commit. Every write of a session names the fence of its claim, so
    /// what is left stays true until the next driver writes; or another owner takes over, and then its first write is
    /// refused as that of a driver that had stayed would be.
    pub(super) fn left(&self) -> Option<Claimed> {
        (self.session.sandbox() != Sandbox::None).then(|| Claimed {
            record: self.record.clone(),
            session: self.session.clone(),
            fence: self.fence,
        })
    }
}

impl From<Claimed> for Owned {
    fn from(claimed: Claimed) -> Self {
        Self { record: claimed.record, session: claimed.session, fence: claimed.fence }
    }
}

/// What a commit carries beside the decision.
#[derive(Default)]
pub(super) struct Extras {
    pub(super) settings: Option<Settings>,
    pub(super) receipt: Option<ReceiptFor>,
}

impl Extras {
    pub(super) fn is_empty(&self) -> bool {
        self.settings.is_none() && self.receipt.is_none()
    }
}
