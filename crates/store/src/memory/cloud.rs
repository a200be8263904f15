//! What is in the cloud, and what is not yet.

use std::collections::BTreeMap;

use ash_core::id::SessionId;

use super::{Row, Tables};
use crate::model::{CloudHead, CloudUse, UsedCloud};
use crate::{Result, StoreError};

impl Row {
    fn lag(&self) -> usize {
        self.snapshots.values().filter(|stored| !stored.places.cloud).count()
    }
}

impl Tables {
    pub(super) fn cloud_heads(&self, sessions: &[SessionId]) -> BTreeMap<SessionId, CloudHead> {
        let known = sessions.iter().filter_map(|id| Some((*id, self.sessions.get(id)?)));
        known.filter_map(|(id, row)| Some((id, row.cloud_head.clone()?))).collect()
    }

    pub(super) fn put_cloud_head(&mut self, session: SessionId, head: &CloudHead) -> Result<()> {
        let row = self.sessions.get_mut(&session).ok_or(StoreError::NotFound("session"))?;
        row.cloud_head = Some(head.clone());
        Ok(())
    }

    pub(super) fn used_cloud(&self) -> Option<UsedCloud> {
        let (used, _) = self.cloud_use.as_ref()?;
        Some(used.clone())
    }

    pub(super) fn use_cloud(&mut self, bucket: &str, url: &str, writer: &str) -> CloudUse {
        let before = self.cloud_use.take();
        let is_new = before.as_ref().is_none_or(|(used, _)| used.bucket != bucket);
        let writer = before.map_or_else(|| writer.to_owned(), |(_, writer)| writer);
        let used = UsedCloud { bucket: bucket.to_owned(), url: Some(url.to_owned()) };
        self.cloud_use = Some((used, writer.clone()));
        for row in self.sessions.values_mut().filter(|_| is_new) {
            // That files were brought there is told by the head, which goes: what is nowhere whole is still said to be
            // there.
            if row.cloud_head.take().is_some() {
                let away = row.snapshots.values_mut().filter(|stored| !stored.places.local);
                away.for_each(|stored| stored.places.cloud = true);
            }
            // What is in the other one alone is not taken for lost.
            let here = row.snapshots.values_mut().filter(|stored| stored.places.local);
            here.for_each(|stored| stored.places.cloud = false);
        }
        CloudUse { writer, is_new }
    }

    pub(super) fn lagging_sessions(
        &self,
        after: Option<SessionId>,
        limit: usize,
    ) -> Vec<SessionId> {
        let lags =
            |row: &Row| row.lag() > 0 || (row.cloud_head.is_none() && !row.snapshots.is_empty());
        let lagging = self.sessions.iter().filter(|(_, row)| lags(row)).map(|(id, _)| *id);
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
