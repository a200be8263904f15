//! What is in the cloud, and what is not yet; and tasks for whoever brings it there.

use std::collections::BTreeMap;

use ash_core::id::SessionId;
use ash_core::time::Timestamp;

use super::{OutboxRow, Row, Tables};
use crate::model::{CloudHead, CloudUse, OutboxTask};
use crate::{MAX_OUTBOX_WAIT, Result, StoreError};

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

    pub(super) fn use_cloud(&mut self, bucket: &str, writer: &str) -> CloudUse {
        let before = self.cloud_use.take();
        let is_new = before.as_ref().is_none_or(|(used, _)| used != bucket);
        let writer = before.map_or_else(|| writer.to_owned(), |(_, writer)| writer);
        self.cloud_use = Some((bucket.to_owned(), writer.clone()));
        for row in self.sessions.values_mut().filter(|_| is_new) {
            row.cloud_head = None;
            row.snapshots.values_mut().for_each(|stored| stored.places.cloud = false);
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

    pub(super) fn claim_outbox(
        &mut self,
        topic: &str,
        now: Timestamp,
        leased_until: Timestamp,
        limit: usize,
    ) -> Vec<OutboxTask> {
        let is_ready = |row: &OutboxRow| row.available_at <= now;
        let is_far = |row: &OutboxRow| row.available_at > now.plus(MAX_OUTBOX_WAIT);
        let of_topic = self.outbox.values().filter(|row| row.item.topic == topic);
        let any_ready = of_topic.clone().any(is_ready);
        let mut taken: Vec<_> = of_topic
            .filter(|row| if any_ready { is_ready(row) } else { is_far(row) })
            .map(|row| (row.available_at, row.item.id))
            .collect();
        taken.sort_unstable();
        taken.truncate(limit);
        let take = |(_, id)| {
            let row = self.outbox.get_mut(&id)?;
            row.attempt += 1;
            row.available_at = leased_until;
            Some(OutboxTask { item: row.item.clone(), attempt: row.attempt })
        };
        taken.into_iter().filter_map(take).collect()
    }
}
