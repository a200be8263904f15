//! The snapshots of sessions.

use ash_core::id::{SessionId, SnapshotId};
use ash_core::number::Seq;
use ash_core::snapshot::Snapshot;

use super::{Row, Tables};
use crate::model::{Places, StoredSnapshot};
use crate::{Result, StoreError};

impl Row {
    fn place_of(&self, id: SnapshotId) -> Option<(Seq, SnapshotId)> {
        self.snapshots.keys().find(|(_, known)| *known == id).copied()
    }

    pub(super) fn check_snapshots(&self, added: &[Snapshot]) -> Result<()> {
        let mut known: Vec<SnapshotId> = self.snapshots.keys().map(|(_, id)| *id).collect();
        for Snapshot { captured, .. } in added {
            if known.contains(&captured.id) {
                return Err(StoreError::Exists("snapshot"));
            }
            known.push(captured.id);
        }
        Ok(())
    }

    pub(super) fn keep_snapshots(&mut self, added: &[Snapshot]) {
        for snapshot in added {
            let places = Places { local: true, cloud: false };
            let stored = StoredSnapshot { snapshot: snapshot.clone(), places };
            self.snapshots.insert((snapshot.seq, snapshot.captured.id), stored);
        }
    }

    pub(super) fn newest_snapshots(&self, limit: u32) -> Vec<StoredSnapshot> {
        self.snapshots.values().rev().take(limit as usize).cloned().collect()
    }
}

impl Tables {
    pub(super) fn change_snapshot<T>(
        &mut self,
        session: SessionId,
        id: SnapshotId,
        change: impl FnOnce(&mut StoredSnapshot) -> T,
    ) -> Result<T> {
        let row = self.sessions.get_mut(&session).ok_or(StoreError::NotFound("snapshot"))?;
        let place = row.place_of(id).ok_or(StoreError::NotFound("snapshot"))?;
        let stored = row.snapshots.get_mut(&place).expect("it was just found");
        Ok(change(stored))
    }

    pub(super) fn forget_snapshot(&mut self, session: SessionId, id: SnapshotId) -> Result<()> {
        let row = self.sessions.get_mut(&session).ok_or(StoreError::NotFound("snapshot"))?;
        let place = row.place_of(id).ok_or(StoreError::NotFound("snapshot"))?;
        row.snapshots.remove(&place);
        Ok(())
    }
}
