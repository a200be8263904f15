//! Work that must follow for certain.

use ash_core::time::Timestamp;

use super::{OutboxRow, Tables};
use crate::model::OutboxTask;

impl Tables {
    pub(super) fn claim_outbox(
        &mut self,
        topic: &str,
        now: Timestamp,
        leased_until: Timestamp,
        limit: u32,
    ) -> Vec<OutboxTask> {
        let ready = self
            .outbox
            .values_mut()
            .filter(|row| row.item.topic == topic && row.available_at <= now);
        let mut ready: Vec<_> = ready.collect();
        ready.sort_unstable_by_key(|row| (row.available_at, row.item.id));
        ready.truncate(limit as usize);
        let take = |row: &mut OutboxRow| {
            row.attempt += 1;
            row.available_at = leased_until;
            OutboxTask { item: row.item.clone(), attempt: row.attempt }
        };
        ready.into_iter().map(take).collect()
    }

    pub(super) fn release_outbox(&mut self, topic: &str, now: Timestamp) -> u64 {
        let mut released = 0;
        for row in self.outbox.values_mut().filter(|row| row.item.topic == topic) {
            if row.attempt > 0 && row.available_at > now {
                row.available_at = now;
                released += 1;
            }
        }
        released
    }
}
