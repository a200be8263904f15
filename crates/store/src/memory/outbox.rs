//! Work that must follow for certain.

use ash_core::time::Timestamp;

use super::{OutboxRow, Tables};
use crate::MAX_OUTBOX_WAIT;
use crate::model::OutboxTask;

impl Tables {
    pub(super) fn claim_outbox(
        &mut self,
        topic: &str,
        now: Timestamp,
        leased_until: Timestamp,
        limit: u32,
    ) -> Vec<OutboxTask> {
        let is_ready = |row: &OutboxRow| row.available_at <= now;
        let is_far = |row: &OutboxRow| row.available_at > now.plus(MAX_OUTBOX_WAIT);
        let of_topic = self.outbox.values_mut().filter(|row| row.item.topic == topic);
        let mut of_topic: Vec<_> = of_topic.collect();
        let any_ready = of_topic.iter().any(|row| is_ready(row));
        of_topic.retain(|row| if any_ready { is_ready(row) } else { is_far(row) });
        of_topic.sort_unstable_by_key(|row| (row.available_at, row.item.id));
        of_topic.truncate(limit as usize);
        let take = |row: &mut OutboxRow| {
            row.attempt += 1;
            row.available_at = leased_until;
            OutboxTask { item: row.item.clone(), attempt: row.attempt }
        };
        of_topic.into_iter().map(take).collect()
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
