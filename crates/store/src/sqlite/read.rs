//! The reads, on any connection.

use ash_core::entry::Entry;
use ash_core::id::{AgentName, RunId, SessionId, SnapshotId, TenantId};
use ash_core::json::Json;
use ash_core::number::{AgentVersion, Incarnation, Seq};
use ash_core::pool::Place;
use ash_core::session::{LogEntry, Session, Status};
use ash_core::time::Timestamp;
use rusqlite::{Connection, Params, Row, params};

use super::rows::{self, SessionRow, number};
use super::sql;
use crate::model::{
    PageRequest, Receipt, ReceiptKey, RunRecord, SessionFilter, SessionRecord, StoredSession,
    StoredSnapshot, Tenant, UsageFilter, UsageRecord, UsageTotals,
};
use crate::{Agent, LabelledVersion, MAX_PAGE_BYTES, Result, Spend, StoreError};

pub(super) fn tenant(db: &Connection, id: &TenantId) -> Result<Tenant> {
    one(db, sql::TENANT, [id.as_str()], rows::tenant, "tenant")
}

pub(super) fn agent(db: &Connection, tenant: &TenantId, name: &AgentName) -> Result<Agent> {
    one(db, sql::AGENT, [tenant.as_str(), name.as_str()], rows::agent, "agent")
}

pub(super) fn agent_version(
    db: &Connection,
    tenant: &TenantId,
    name: &AgentName,
    version: AgentVersion,
) -> Result<Agent> {
    let values = params![tenant.as_str(), name.as_str(), version.get()];
    one(db, sql::AGENT_VERSION, values, rows::agent, "agent version")
}

pub(super) fn agent_versions(
    db: &Connection,
    tenant: &TenantId,
    name: &AgentName,
) -> Result<Vec<LabelledVersion>> {
    let names = [tenant.as_str(), name.as_str()];
    let versions = list(db, sql::AGENT_VERSIONS, names, rows::labelled_version)?;
    // Every agent has an active one, which cannot be retired.
    if versions.is_empty() { Err(StoreError::NotFound("agent")) } else { Ok(versions) }
}

pub(super) fn labelled_version(
    db: &Connection,
    tenant: &TenantId,
    name: &AgentName,
    number: AgentVersion,
) -> Result<LabelledVersion> {
    let values = params![tenant.as_str(), name.as_str(), number.get()];
    one(db, sql::LABELLED_VERSION, values, rows::labelled_version, "agent version")
}

pub(super) fn session(db: &Connection, tenant: &TenantId, id: SessionId) -> Result<SessionRow> {
    let values = params![id.to_string(), tenant.as_str()];
    one(db, sql::SESSION, values, SessionRow::of, "session")
}

pub(super) fn sessions(
    db: &Connection,
    tenant: &TenantId,
    filter: &SessionFilter,
    page: &PageRequest,
) -> Result<Vec<StoredSession>> {
    let (from, mut until) = id_range(filter);
    if let Some(after) = page.after {
        until = until.min(after.to_string());
    }
    let values = params![
        tenant.as_str(),
        from,
        until,
        filter.agent.as_ref().map(AgentName::as_str),
        filter.status.map(Status::as_str),
        page.limit,
        page.offset,
    ];
    list(db, sql::SESSIONS, values, |row| SessionRow::of(row)?.decode())
}

pub(super) fn count_sessions(
    db: &Connection,
    tenant: &TenantId,
    filter: &SessionFilter,
) -> Result<u64> {
    let (from, until) = id_range(filter);
    let agent = filter.agent.as_ref().map(AgentName::as_str);
    let values = params![tenant.as_str(), from, until, agent, filter.status.map(Status::as_str)];
    one(db, sql::COUNT_SESSIONS, values, |row| rows::count(row, 0), "count")
}

/// The ids that a filter lets through: from the one, and before the other. No id holds what sorts
/// as late as the end does, so whatever lies between begins with the prefix.
fn id_range(filter: &SessionFilter) -> (&str, String) {
    let prefix = filter.id_prefix.as_deref().unwrap_or(sql::BEFORE_EVERY_ID);
    (prefix, format!("{prefix}{}", sql::AFTER_EVERY_ID))
}

pub(super) fn unsettled_sessions(
    db: &Connection,
    after: Option<SessionId>,
    limit: u32,
) -> Result<Vec<SessionId>> {
    sessions_after(db, sql::UNSETTLED_SESSIONS, after, limit)
}

pub(super) fn abandoned_sessions(
    db: &Connection,
    after: Option<SessionId>,
    limit: u32,
) -> Result<Vec<SessionId>> {
    sessions_after(db, sql::ABANDONED_SESSIONS, after, limit)
}

fn sessions_after(
    db: &Connection,
    statement: &str,
    after: Option<SessionId>,
    limit: u32,
) -> Result<Vec<SessionId>> {
    let after = after.map(|id| id.to_string());
    let values = params![after.as_deref().unwrap_or(sql::BEFORE_EVERY_ID), limit];
    list(db, statement, values, rows::session_id)
}

pub(super) fn sandboxed_sessions(
    db: &Connection,
    after: Option<SessionId>,
    limit: u32,
) -> Result<Vec<(SessionId, Incarnation)>> {
    let after = after.map(|id| id.to_string());
    let values = params![after.as_deref().unwrap_or(sql::BEFORE_EVERY_ID), limit];
    list(db, sql::SANDBOXED_SESSIONS, values, |row| {
        Ok((rows::session_id(row)?, Incarnation::new(row.get(1)?)))
    })
}

pub(super) fn housed_sessions(db: &Connection) -> Result<Vec<Session>> {
    let machines = list(db, sql::HOUSED_SESSIONS, [], |row| Ok(row.get::<_, String>(0)?))?;
    // Whoever drives one that is damaged says so. It must not keep all others from starting.
    let read = machines.iter().filter_map(|machine| rows::decode(machine, "session").ok());
    Ok(read.filter(|session| Place::of(session).is_some()).collect())
}

pub(super) fn due_sessions(
    db: &Connection,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<(SessionId, Timestamp)>> {
    list(db, sql::DUE_SESSIONS, params![now.as_millis(), limit], |row| {
        Ok((rows::session_id(row)?, Timestamp::from_millis(row.get(1)?)))
    })
}

pub(super) fn expected_incarnation(db: &Connection, id: SessionId) -> Result<Option<Incarnation>> {
    let incarnation = |row: &Row<'_>| Ok(Incarnation::new(row.get(0)?));
    maybe(db, sql::EXPECTED_INCARNATION, [id.to_string()], incarnation)
}

/// Entries of a log by one of the two statements that select them.
pub(super) fn log_after(
    db: &Connection,
    statement: &str,
    session: SessionId,
    after: Seq,
    limit: u32,
) -> Result<Vec<LogEntry>> {
    let id = session.to_string();
    let mut prepared = db.prepare_cached(statement)?;
    let mut rows = prepared.query(params![id, number(after.get()), limit])?;
    let mut entries = Vec::new();
    let mut bytes = 0;
    while let Some(row) = rows.next()? {
        bytes += row.get_ref(2)?.as_bytes().map_or(0, <[u8]>::len);
        entries.push(rows::log_entry(row)?);
        if bytes >= MAX_PAGE_BYTES {
            break;
        }
    }
    if entries.is_empty() {
        must_exist(db, &id)?;
    }
    Ok(entries)
}

pub(super) fn run(db: &Connection, session: SessionId, run: RunId) -> Result<RunRecord> {
    let id = session.to_string();
    match maybe(db, sql::RUN, params![id, run.to_string()], rows::run)? {
        Some(run) => Ok(run),
        None => Err(must_exist(db, &id).err().unwrap_or(StoreError::NotFound("run"))),
    }
}

pub(super) fn runs(db: &Connection, session: SessionId, limit: u32) -> Result<Vec<RunRecord>> {
    let id = session.to_string();
    let runs = list(db, sql::RUNS, params![id, limit], rows::run)?;
    if runs.is_empty() {
        must_exist(db, &id)?;
    }
    Ok(runs)
}

pub(super) fn snapshots(
    db: &Connection,
    session: SessionId,
    limit: u32,
) -> Result<Vec<StoredSnapshot>> {
    let id = session.to_string();
    let snapshots = list(db, sql::SNAPSHOTS, params![id, limit], rows::snapshot)?;
    if snapshots.is_empty() {
        must_exist(db, &id)?;
    }
    Ok(snapshots)
}

pub(super) fn snapshot(
    db: &Connection,
    session: SessionId,
    id: SnapshotId,
) -> Result<StoredSnapshot> {
    let values = params![session.to_string(), id.to_string()];
    one(db, sql::SNAPSHOT, values, rows::snapshot, "snapshot")
}

pub(super) fn prompt(db: &Connection, session: SessionId, run: RunId) -> Result<Json> {
    let id = session.to_string();
    let found = maybe(db, sql::PROMPT, params![id, run.to_string()], rows::log_entry)?;
    match found.map(|found| found.entry) {
        Some(Entry::Prompt { content, .. }) => Ok(content),
        Some(_) => Err(super::fault::damaged("entry", "its kind is not the kind of its column")),
        None => Err(must_exist(db, &id).err().unwrap_or(StoreError::NotFound("run"))),
    }
}

/// Whatever was missed before was missed because there is no such session, or in one that there is. A session that
/// was purged meanwhile is not found either.
pub(super) fn must_exist(db: &Connection, session: &str) -> Result<()> {
    one(db, sql::FENCE, [session], |_| Ok(()), "session")
}

pub(super) fn usage(
    db: &Connection,
    tenant: &TenantId,
    filter: &UsageFilter,
) -> Result<UsageTotals> {
    let values = params![
        tenant.as_str(),
        filter.session.map(|id| id.to_string()),
        filter.agent.as_ref().map(AgentName::as_str),
        filter.from.map(Timestamp::as_millis),
        filter.until.map(Timestamp::as_millis),
    ];
    one(db, sql::USAGE, values, rows::totals, "usage")
}

pub(super) fn spend(db: &Connection, session: SessionId) -> Result<Spend> {
    let id = session.to_string();
    match maybe(db, sql::SPEND, [&id], rows::spend)? {
        Some(spend) => Ok(spend),
        None => must_exist(db, &id).map(|()| Spend::default()),
    }
}

pub(super) fn usage_records(
    db: &Connection,
    tenant: &TenantId,
    filter: &UsageFilter,
    limit: u32,
) -> Result<Vec<UsageRecord>> {
    let values = params![
        tenant.as_str(),
        filter.session.map(|id| id.to_string()),
        filter.agent.as_ref().map(AgentName::as_str),
        filter.from.map(Timestamp::as_millis),
        filter.until.map(Timestamp::as_millis),
        limit,
    ];
    list(db, sql::USAGE_RECORDS, values, rows::usage_record)
}

pub(super) fn session_record(db: &Connection, id: SessionId) -> Result<SessionRecord> {
    let row = one(db, sql::CLAIMED_SESSION, [id.to_string()], SessionRow::of, "session")?;
    Ok(row.decode()?.record)
}

pub(super) fn receipt(db: &Connection, key: &ReceiptKey) -> Result<Option<Receipt>> {
    let values = params![key.tenant.as_str(), key.route, key.key];
    maybe(db, sql::RECEIPT, values, |row| rows::receipt(row, key.clone()))
}

/// What is wrong with the database, a line each.
pub(super) fn integrity(db: &Connection) -> Result<Vec<String>> {
    let mut faults = list(db, sql::INTEGRITY, [], |row| Ok(row.get::<_, String>(0)?))?;
    faults.retain(|line| line != "ok");
    let dangling = |row: &Row<'_>| {
        let (table, parent): (String, String) = (row.get(0)?, row.get(2)?);
        Ok(format!("a row of {table} refers to a row of {parent} that is not there"))
    };
    faults.extend(list(db, sql::DANGLING_REFERENCES, [], dangling)?);
    let broken = |row: &Row<'_>| {
        let (id, last): (String, i64) = (row.get(0)?, row.get(1)?);
        let (entries, end): (i64, i64) = (row.get(2)?, row.get(3)?);
        Ok(format!(
            "session {id} should have a log of {last} entries; there are {entries}, up to {end}"
        ))
    };
    faults.extend(list(db, sql::BROKEN_LOGS, [], broken)?);
    Ok(faults)
}

/// All rows of a statement.
pub(super) fn list<T>(
    db: &Connection,
    statement: &str,
    values: impl Params,
    read: impl FnMut(&Row<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    db.prepare_cached(statement)?.query_and_then(values, read)?.collect()
}

/// The first row of a statement, or `NotFound`.
pub(super) fn one<T>(
    db: &Connection,
    statement: &str,
    values: impl Params,
    read: impl FnMut(&Row<'_>) -> Result<T>,
    what: &'static str,
) -> Result<T> {
    maybe(db, statement, values, read)?.ok_or(StoreError::NotFound(what))
}

fn maybe<T>(
    db: &Connection,
    statement: &str,
    values: impl Params,
    read: impl FnMut(&Row<'_>) -> Result<T>,
) -> Result<Option<T>> {
    db.prepare_cached(statement)?.query_and_then(values, read)?.next().transpose()
}
