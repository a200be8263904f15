//! What a session's log says, for a host that asks.

use std::fmt;

use ash_core::lineage::Lineage;
use ash_core::number::Seq;
use ash_core::session::LogEntry;
use ash_store::{SessionRecord, Store, StoreError};
use async_trait::async_trait;

use crate::host::{HostError, Past};

/// How many entries are read at once at the most; the store has a bound in bytes as well.
const PAGE: u32 = 1_000;

pub(super) struct LogOf<'a> {
    store: &'a dyn Store,
    record: &'a SessionRecord,
}

impl<'a> LogOf<'a> {
    pub(super) fn new(store: &'a dyn Store, record: &'a SessionRecord) -> Self {
        Self { store, record }
    }
}

impl fmt::Debug for LogOf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogOf({})", self.record.id)
    }
}

#[async_trait]
impl Past for LogOf<'_> {
    async fn lineage(&self) -> Result<Lineage, HostError> {
        let stored = self.store.session(&self.record.tenant, self.record.id).await;
        Ok(stored.map_err(|error| unread(&error))?.session.lineage().clone())
    }

    async fn entries_after(&self, after: Seq) -> Result<Vec<LogEntry>, HostError> {
        let read = self.store.events_after(self.record.id, after, PAGE).await;
        read.map_err(|error| unread(&error))
    }
}

fn unread(error: &StoreError) -> HostError {
    HostError { attempted: "read the log", detail: error.to_string() }
}
