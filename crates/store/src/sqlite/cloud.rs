//! What is in the cloud, and what is not yet.

use std::collections::BTreeMap;

use ash_core::id::{SessionId, SnapshotId};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::fault::damaged;
use super::read::list;
use super::rows::session_id;
use super::{sql, write};
use crate::Result;
use crate::model::{CloudHead, CloudUse, Place, UsedCloud};

pub(super) fn lost_snapshot(
    db: &Connection,
    session: SessionId,
    id: SnapshotId,
    place: Place,
) -> Result<()> {
    let statement = match place {
        Place::Local => sql::LOST_LOCALLY,
        Place::Cloud => sql::LOST_IN_CLOUD,
    };
    write::change_one(db, statement, params![session.to_string(), id.to_string()], "snapshot")
}

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

pub(super) fn cloud_heads(
    db: &Connection,
    sessions: &[SessionId],
) -> Result<BTreeMap<SessionId, CloudHead>> {
    let mut select = db.prepare_cached(sql::CLOUD_HEAD)?;
    let mut found = BTreeMap::new();
    for session in sessions {
        let head: Option<String> =
            select.query_row([session.to_string()], |row| row.get(0)).optional()?;
        if let Some(head) = head {
            let head = serde_json::from_str(&head).map_err(|error| damaged("head", error))?;
            found.insert(*session, head);
        }
    }
    Ok(found)
}

pub(super) fn put_cloud_head(db: &Connection, session: SessionId, head: &str) -> Result<()> {
    write::change_one(db, sql::PUT_CLOUD_HEAD, params![session.to_string(), head], "session")
}

/// The bucket, what this store's sessions are signed with there, and where it was found.
type Use = (String, String, Option<String>);

fn used(db: &Connection) -> Result<Option<Use>> {
    let mut select = db.prepare_cached(sql::CLOUD_USE)?;
    let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    Ok(select.query_row([], row).optional()?)
}

pub(super) fn used_cloud(db: &Connection) -> Result<Option<UsedCloud>> {
    Ok(used(db)?.map(|(bucket, _, url)| UsedCloud { bucket, url }))
}

pub(super) fn use_cloud(
    db: &Connection,
    bucket: &str,
    url: &str,
    writer: &str,
) -> Result<CloudUse> {
    let before = used(db)?;
    let is_new = before.as_ref().is_none_or(|(used, ..)| used != bucket);
    let is_there = before.as_ref().is_some_and(|(.., known)| known.as_deref() == Some(url));
    let writer = before.map_or_else(|| writer.to_owned(), |(_, writer, _)| writer);
    if is_new {
        // That files were brought there is told by the heads, which go: what is nowhere whole is still said to be there.
        let changes = [sql::KEEP_CLOUD_PLACES, sql::FORGET_CLOUD_HEADS, sql::FORGET_CLOUD_PLACES];
        for change in changes {
            db.prepare_cached(change)?.execute([])?;
        }
    }
    if is_new || !is_there {
        db.prepare_cached(sql::FORGET_CLOUD_USE)?.execute([])?;
        db.prepare_cached(sql::PUT_CLOUD_USE)?.execute(params![bucket, writer, url])?;
    }
    Ok(CloudUse { writer, is_new })
}

pub(super) fn lagging_sessions(
    db: &Connection,
    after: Option<SessionId>,
    limit: u32,
) -> Result<Vec<SessionId>> {
    let after = after.map_or_else(|| sql::BEFORE_EVERY_ID.to_owned(), |id| id.to_string());
    let mut found = list(db, sql::LAGGING_SESSIONS, params![after, limit], session_id)?;
    found.extend(list(db, sql::SESSIONS_WITHOUT_HEAD, params![after, limit], session_id)?);
    found.sort_unstable();
    found.dedup();
    found.truncate(limit as usize);
    Ok(found)
}

pub(super) fn cloud_lag(db: &Connection) -> Result<u64> {
    let lag: i64 = db.prepare_cached(sql::CLOUD_LAG)?.query_row([], |row| row.get(0))?;
    Ok(u64::try_from(lag).unwrap_or(0))
}
