//! What goes: snapshots that are not kept, and sessions whose time is over.

use ash_core::id::{SessionId, SnapshotId, TenantId};
use ash_core::number::{Fence, Seq};
use ash_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::rows::{self, number};
use super::{read, sql, write};
use crate::model::{OutboxItem, Resting};
use crate::{PURGED_AT_ONCE, Result, StoreError};

pub(super) fn prune_snapshots(
    db: &Connection,
    session: SessionId,
    keep: u32,
    needed: &[SnapshotId],
) -> Result<Vec<SnapshotId>> {
    let id = session.to_string();
    read::must_exist(db, &id)?;
    let mut gone = read::list(db, sql::OLDER_SNAPSHOTS, params![id, keep], rows::snapshot_id)?;
    gone.retain(|id| !needed.contains(id));
    for &snapshot in &gone {
        write::forget_snapshot(db, session, snapshot)?;
    }
    Ok(gone)
}

pub(super) fn unneeded_snapshots(
    db: &Connection,
    tenant: &TenantId,
    ids: &[SnapshotId],
) -> Result<Vec<SnapshotId>> {
    let mut needed = db.prepare_cached(sql::IS_SNAPSHOT_NEEDED)?;
    let mut unneeded = Vec::new();
    for id in ids {
        if !needed.exists(params![id.to_string(), tenant.as_str()])? {
            unneeded.push(*id);
        }
    }
    Ok(unneeded)
}

pub(super) fn resting_sessions(
    db: &Connection,
    after: Option<SessionId>,
    limit: u32,
) -> Result<Resting> {
    let after = after.map_or_else(|| sql::BEFORE_EVERY_ID.to_owned(), |id| id.to_string());
    let rows = read::list(db, sql::RESTING_SESSIONS, params![after, limit], |row| {
        // One that cannot be read must not hide the others.
        Ok((rows::session_id(row)?, rows::machine_and_deadline(row).ok()))
    })?;
    let is_full = rows.len() == limit as usize;
    let next = rows.last().map(|(id, _)| *id).filter(|_| is_full);
    Ok(Resting { sessions: rows.into_iter().filter_map(|(_, session)| session).collect(), next })
}

pub(super) fn redate(
    db: &Connection,
    id: SessionId,
    expected: Seq,
    (recorded, due_at): (Option<Timestamp>, Option<Timestamp>),
) -> Result<()> {
    let name = id.to_string();
    let [recorded, due_at] = [recorded, due_at].map(|at| at.map(Timestamp::as_millis));
    let values = params![name, number(expected.get()), recorded, due_at];
    if db.prepare_cached(sql::REDATE_SESSION)?.execute(values)? == 0 {
        read::must_exist(db, &name)?;
        return Err(StoreError::Conflict { session: id, expected });
    }
    Ok(())
}

pub(super) fn purge(
    db: &Connection,
    session: SessionId,
    fence: Fence,
    outbox: &[OutboxItem],
) -> Result<()> {
    let id = session.to_string();
    let found: Option<(i64, i64, bool, String)> = db
        .prepare_cached(sql::TO_PURGE)?
        .query_row([&id], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
        .optional()?;
    let (held, last_seq, has_ended, agent) = found.ok_or(StoreError::NotFound("session"))?;
    if held != number(fence.get()) {
        return Err(StoreError::Fenced { session, held: fence });
    }
    if !has_ended {
        let expected = Seq::new(u64::try_from(last_seq).unwrap_or_default());
        return Err(StoreError::Conflict { session, expected });
    }
    let for_good = [
        sql::attachment::PURGE,
        sql::PURGE_SNAPSHOTS,
        sql::PURGE_RUNS,
        sql::PURGE_SPEND,
        sql::PURGE_SETTINGS,
    ];
    for statement in for_good {
        db.prepare_cached(statement)?.execute([&id])?;
    }
    outbox.iter().try_for_each(|item| write::add_to_outbox(db, item))?;
    if last_seq > i64::from(PURGED_AT_ONCE) {
        db.prepare_cached(sql::HIDE_PURGED)?.execute([&id])?;
        return Ok(());
    }
    db.prepare_cached(sql::PURGE_EVENTS)?.execute([&id])?;
    purge_row(db, &id, &agent)
}

pub(super) fn purge_logs(db: &Connection) -> Result<bool> {
    let found: Option<(String, String)> = db
        .prepare_cached(sql::PURGED)?
        .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((id, agent)) = found else { return Ok(false) };
    db.prepare_cached(sql::PURGE_SOME_EVENTS)?.execute(params![id, PURGED_AT_ONCE])?;
    if !db.prepare_cached(sql::HAS_EVENTS)?.exists([&id])? {
        purge_row(db, &id, &agent)?;
    }
    Ok(true)
}

/// Removes a session to which nothing refers any more, and its agent, if that was deleted and has no other.
fn purge_row(db: &Connection, id: &str, agent: &str) -> Result<()> {
    db.prepare_cached(sql::PURGE_SESSION)?.execute([id])?;
    if db.prepare_cached(sql::IS_AGENT_OVER)?.exists([agent])? {
        for statement in [sql::PURGE_VERSIONS, sql::PURGE_AGENT] {
            db.prepare_cached(statement)?.execute([agent])?;
        }
    }
    Ok(())
}
