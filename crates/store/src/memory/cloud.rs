//! What is in the cloud, and what is not yet.

use std::collections::BTreeMap;

use ash_core::id::SessionId;
use ash_core::number::Seq;

use super::{Row, Tables};

impl Row {
    fn cloud_seq(&self) -> Option<Seq> {
        let there = self.snapshots.values().filter(|stored| stored.places.cloud);
        there.map(|stored| stored.snapshot.seq).max()
    }

    fn lag(&self) -> usize {
        self.snapshots.values().filter(|stored| !stored.places.cloud).count()
    }
}

impl Tables {
    pub(super) fn cloud_seqs(&self, sessions: &[SessionId]) -> BTreeMap<SessionId, Seq> {
        let known = sessions.iter().filter_map(|id| Some((*id, self.sessions.get(id)?)));
        known.filter_map(|(id, row)| Some((id, row.cloud_seq()?))).collect()
    }

    pub(super) fn lagging_sessions(
        &self,
        after: Option<SessionId>,
        limit: usize,
    ) -> Vec<SessionId> {
        let lagging = self.sessions.iter().filter(|(_, row)| row.lag() > 0).map(|(id, _)| *id);
        let mut lagging: Vec<SessionId> =
            lagging.filter(|id| after.is_none_or(|after| *id > after)).collect();
        lagging.sort_unstable();
        lagging.truncate(limit);
        lagging
    }

    pub(super) fn cloud_lag(&self) -> u64 {
        self.sessions.values().map(|row| row.lag() as u64).sum()
    }
}
