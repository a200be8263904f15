//! Where snapshots lie, and what of a session is in the cloud.

use ash_core::id::SnapshotId;
use ash_core::number::{LogEpoch, Seq};
use serde::{Deserialize, Serialize};

/// Where the bytes of a snapshot lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// On this machine.
    pub local: bool,
    /// In the cloud.
    pub cloud: bool,
}

impl Places {
    /// Whether it lies there.
    pub(crate) fn at(&mut self, place: Place) -> &mut bool {
        match place {
            Place::Local => &mut self.local,
            Place::Cloud => &mut self.cloud,
        }
    }
}

/// Where bytes of a snapshot can lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On this machine.
    Local,
    /// In the cloud.
    Cloud,
}

/// The latest set of a session that was put into the cloud.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CloudHead {
    /// Which history of the log it has.
    pub epoch: LogEpoch,
    /// Where the log ends in it.
    pub seq: Seq,
    /// The files of it.
    pub snapshot: SnapshotId,
    /// Where the log ended when those were captured.
    pub snapshot_seq: Seq,
    /// The digest of what its owner says about it.
    pub settings: String,
    /// The digest of all that it says beside the log.
    pub record: String,
    /// Where it says that the session stood; nothing, if that was before it was noted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
}

/// A cloud that was used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsedCloud {
    /// What tells it from every other.
    pub bucket: String,
    /// Where it was found, if that was noted.
    pub url: Option<String>,
}

/// How a cloud is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloudUse {
    /// What this store's sessions are signed with there: the same for ever.
    pub writer: String,
    /// Whether another cloud was used before, or none: nothing counts as being there.
    pub is_new: bool,
}
