//! What a session's log says and which snapshots it has, for a host that asks.

use std::collections::BTreeSet;
use std::fmt;

use ash_core::id::SnapshotId;
use ash_core::lineage::Lineage;
use ash_core::number::{Seq, Turn};
use ash_core::session::{LogEntry, Session};
use ash_store::{Place, Places, SessionRecord, Store, StoreError, StoredSnapshot};
use async_trait::async_trait;

use crate::cloud::is_not_whole_there;
use crate::host::{HostError, Past};

/// How many entries are read at once at the most; the store has a bound in bytes as well.
const PAGE: u32 = 1_000;

/// How many snapshots are tried at the most before files are given up.
const MOST_TRIED: usize = 100;

pub(crate) struct LogOf<'a> {
    store: &'a dyn Store,
    record: &'a SessionRecord,
}

impl<'a> LogOf<'a> {
    pub(crate) fn new(store: &'a dyn Store, record: &'a SessionRecord) -> Self {
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

    async fn snapshots(&self) -> Result<Vec<StoredSnapshot>, HostError> {
        let stored = self.store.session(&self.record.tenant, self.record.id).await;
        let stored = stored.map_err(|error| unread(&error))?;
        let rows = self.store.snapshots(self.record.id, PAGE).await;
        let mut rows = rows.map_err(|error| unread(&error))?;
        if rows.iter().any(is_nowhere) {
            let heads = self.store.cloud_heads(&[self.record.id]).await;
            let heads = heads.map_err(|error| unread(&error))?;
            // Files of it were brought there. What was found damaged may be whole again; if it is not, nobody begins
            // without being told to.
            let was_there = heads.contains_key(&self.record.id);
            for row in rows.iter_mut().filter(|row| is_nowhere(row)) {
                row.places.cloud = was_there;
            }
        }
        Ok(in_order(&stored.session, rows))
    }

    async fn lost(&self, snapshot: SnapshotId, place: Place) {
        let noted = async {
            let (store, session) = (self.store, self.record.id);
            match place {
                Place::Local => store.lost_snapshot(session, snapshot, place).await,
                Place::Cloud => is_not_whole_there(store, session, snapshot).await,
            }
        };
        if let Err(error) = noted.await {
            let error = &error as &dyn std::error::Error;
            tracing::debug!(error, session.id = %self.record.id, "a place was not noted");
        }
    }
}

fn is_nowhere(row: &StoredSnapshot) -> bool {
    row.places == Places { local: false, cloud: false }
}

/// Those of a session's snapshots that its files may be brought back from, the best first.
fn in_order(session: &Session, rows: Vec<StoredSnapshot>) -> Vec<StoredSnapshot> {
    let persistence = session.persistence();
    let Some(last) = persistence.last() else { return Vec::new() };
    let is_of_branch = |kept: &StoredSnapshot| {
        let turn = kept.snapshot.turn;
        let is_of_branch = turn == Turn::ZERO || session.lineage().contains(turn);
        kept.snapshot.seq <= last.seq && is_of_branch
    };
    let best = [Some(last), persistence.proven()].into_iter().flatten();
    let mut order: Vec<StoredSnapshot> = Vec::new();
    for snapshot in best {
        let id = snapshot.captured.id;
        let row = rows.iter().find(|row| row.snapshot.captured.id == id).cloned();
        // Of one without a row nothing is known but that it was captured here.
        let places = Places { local: true, cloud: false };
        order.push(row.unwrap_or(StoredSnapshot { snapshot: snapshot.clone(), places }));
    }
    order.extend(rows.into_iter().filter(is_of_branch));
    let mut known = BTreeSet::new();
    order.retain(|kept| known.insert(kept.snapshot.captured.id));
    order.truncate(MOST_TRIED);
    order
}

fn unread(error: &StoreError) -> HostError {
    HostError::new("read the log", error)
}
