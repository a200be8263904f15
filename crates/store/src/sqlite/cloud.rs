//! What is in the cloud, and what is not yet.

use std::collections::BTreeMap;

use ash_core::id::{SessionId, SnapshotId};
use ash_core::number::Seq;
use rusqlite::{Connection, params};

use super::read::list;
use super::rows::session_id;
use super::{sql, write};
use crate::Result;
use crate::model::Place;

pub(super) fn found_snapshot(
    db: &Connection,
    session: SessionId,
    id: SnapshotId,
    place: Place,
) -> Result<()> {
    let statement = match place {
        Place::Local => sql::FOUND_LOCALLY,
        Place::Cloud => sql::FOUND_IN_CLOUD,
    };
    write::change_one(db, statement, params![session.to_string(), id.to_string()], "snapshot")
}

pub(super) fn cloud_seqs(
    db: &Connection,
    sessions: &[SessionId],
) -> Result<BTreeMap<SessionId, Seq>> {
    let mut newest = db.prepare_cached(sql::CLOUD_SEQ)?;
    let mut found = BTreeMap::new();
    for session in sessions {
        let seq: Option<i64> = newest.query_row([session.to_string()], |row| row.get(0))?;
        if let Some(seq) = seq.and_then(|seq| u64::try_from(seq).ok()) {
            found.insert(*session, Seq::new(seq));
        }
    }
    Ok(found)
}

pub(super) fn lagging_sessions(
    db: &Connection,
    after: Option<SessionId>,
    limit: u32,
) -> Result<Vec<SessionId>> {
    let after = after.map_or_else(|| sql::BEFORE_EVERY_ID.to_owned(), |id| id.to_string());
    list(db, sql::LAGGING_SESSIONS, params![after, limit], session_id)
}

pub(super) fn cloud_lag(db: &Connection) -> Result<u64> {
    let lag: i64 = db.prepare_cached(sql::CLOUD_LAG)?.query_row([], |row| row.get(0))?;
    Ok(u64::try_from(lag).unwrap_or(0))
}
