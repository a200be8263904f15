//! The writes, each inside a transaction that somebody else begins and commits.
//!
//! The transaction holds the write lock, so what was looked up stays true until the end of it.
//! Inserts say `ON CONFLICT DO NOTHING` and are counted: that a thing exists is an answer, not an
//! error of the database.

use ash_core::id::{AgentId, CredentialId, OutboxId, SessionId, SnapshotId, TenantId};
use ash_core::number::{AgentVersion, Fence, Owner, Seq};
use ash_core::session::RunChange;
use ash_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, Params, params};

use super::draft::{CommitDraft, EventDraft, ImportDraft, SessionDraft, SnapshotDraft};
use super::rows::{self, SessionRow, number};
use super::{read, sql};
use crate::model::{
    ApiKey, Credential, Inherited, OutboxItem, OutboxTask, Receipt, Tenant, storable_usage,
};
use crate::spend::MAX_SPEND;
use crate::{MAX_OUTBOX_WAIT, Result, Spend, StoreError};

pub(super) fn create_tenant(db: &Connection, tenant: &Tenant) -> Result<()> {
    let values = params![tenant.id.as_str(), tenant.created_at.as_millis()];
    insert(db, sql::INSERT_TENANT, values, "tenant")
}

pub(super) fn create_api_key(
    db: &Connection,
    key: &ApiKey,
    receipt: Option<&Receipt>,
) -> Result<()> {
    read::tenant(db, &key.tenant)?;
    let values = params![
        key.id.to_string(),
        key.tenant.as_str(),
        key.hash.0,
        key.prefix,
        key.label,
        key.created_at.as_millis(),
    ];
    insert(db, sql::INSERT_API_KEY, values, "API key")?;
    keep_receipt(db, receipt)
}

pub(super) fn create_credential(
    db: &Connection,
    credential: &Credential,
    receipt: Option<&Receipt>,
) -> Result<()> {
    read::tenant(db, &credential.tenant)?;
    let values = params![
        credential.id.to_string(),
        credential.tenant.as_str(),
        credential.kind,
        credential.label,
        credential.sealed,
        credential.created_at.as_millis(),
        credential.last_used_at.map(Timestamp::as_millis),
    ];
    insert(db, sql::INSERT_CREDENTIAL, values, "credential")?;
    keep_receipt(db, receipt)
}

pub(super) fn touch_credential(
    db: &Connection,
    tenant: &TenantId,
    id: CredentialId,
    at: Timestamp,
) -> Result<()> {
    let values = params![tenant.as_str(), id.to_string(), at.as_millis()];
    change_one(db, sql::TOUCH_CREDENTIAL, values, "credential")
}

pub(super) fn add_spend(db: &Connection, session: SessionId, more: Spend) -> Result<()> {
    let id = session.to_string();
    read::must_exist(db, &id)?;
    let Spend { cost, tokens } = Spend::default().plus(more);
    let values = params![id, number(cost), number(tokens), number(MAX_SPEND)];
    db.prepare_cached(sql::ADD_SPEND)?.execute(values)?;
    Ok(())
}

pub(super) fn create_session(db: &Connection, draft: &SessionDraft) -> Result<Fence> {
    add_session(db, draft, Seq::ZERO)
}

pub(super) fn import_session(db: &Connection, draft: &ImportDraft) -> Result<Fence> {
    let ImportDraft { session, inherited, runs, snapshots, attachments, outbox } = draft;
    let id = session.record.id.to_string();
    if let Some(Inherited { session: of, through }) = inherited {
        let values = params![of.to_string(), session.record.tenant.as_str()];
        let end: Option<i64> = db
            .prepare_cached(sql::INHERITABLE_SEQ)?
            .query_row(values, |row| row.get(0))
            .optional()?;
        if end.ok_or(StoreError::NotFound("session"))? < number(through.get()) {
            return Err(StoreError::Conflict { session: *of, expected: *through });
        }
        for kept in snapshots {
            let values = params![of.to_string(), kept.id];
            if !db.prepare_cached(sql::SNAPSHOT)?.exists(values)? {
                return Err(StoreError::NotFound("snapshot"));
            }
        }
    }
    let through = inherited.map_or(Seq::ZERO, |inherited| inherited.through);
    let fence = add_session(db, session, through)?;
    if let Some(Inherited { session: of, through }) = inherited {
        let values = params![of.to_string(), id, number(through.get())];
        db.prepare_cached(sql::INHERIT_EVENTS)?.execute(values)?;
    }
    for change in runs {
        change_run(db, &id, change)?;
    }
    keep_snapshots(db, &id, snapshots)?;
    attachments.iter().try_for_each(|one| super::attachments::add(db, one))?;
    outbox.iter().try_for_each(|item| add_to_outbox(db, item))?;
    Ok(fence)
}

fn add_session(db: &Connection, draft: &SessionDraft, inherited: Seq) -> Result<Fence> {
    let SessionDraft { record, machine, .. } = draft;
    let id = record.id.to_string();
    if !is_deployed(db, &record.tenant, record.agent, record.agent_version)? {
        return Err(StoreError::NotFound("agent"));
    }
    let latest: i64 = db.prepare_cached(sql::LATEST_OWNER)?.query_row([], |row| row.get(0))?;
    if number(draft.owner.get()) < latest {
        return Err(StoreError::Superseded(record.id));
    }
    let fence = Fence::new(1);
    let values = params![
        id,
        record.tenant.as_str(),
        record.agent.to_string(),
        record.agent_version.get(),
        record.agent_name.as_str(),
        record.parent.map(|parent| parent.to_string()),
        record.created_at.as_millis(),
        number(draft.owner.get()),
        number(fence.get()),
        machine.last_seq,
        machine.status,
        machine.sandbox,
        machine.at_rest,
        machine.incarnation,
        machine.due_at,
        machine.json,
        number(inherited.get()),
    ];
    insert(db, sql::INSERT_SESSION, values, "session")?;
    keep_receipt(db, draft.receipt.as_ref())?;
    db.prepare_cached(sql::PUT_SETTINGS)?.execute(params![id, draft.settings])?;
    append(db, &id, &draft.events)?;
    Ok(fence)
}

pub(super) fn next_owner(db: &Connection) -> Result<Owner> {
    let last =
        db.prepare_cached(sql::NEXT_OWNER)?.query_and_then([], |row| rows::count(row, 0))?.next();
    let last = last.ok_or_else(|| super::fault::damaged("owner", "its row is missing"))??;
    Ok(Owner::new(last))
}

/// The session's row is handed back as it is: reading its JSON is the caller's work.
pub(super) fn claim_session(
    db: &Connection,
    session: SessionId,
    owner: Owner,
) -> Result<(Fence, SessionRow)> {
    let id = session.to_string();
    let raised = db
        .prepare_cached(sql::RAISE_FENCE)?
        .query_and_then(params![id, number(owner.get())], |row| rows::count(row, 0))?
        .next();
    let Some(fence) = raised else {
        read::must_exist(db, &id)?;
        return Err(StoreError::Superseded(session));
    };
    let fence = Fence::new(fence?);
    let mut select = db.prepare_cached(sql::CLAIMED_SESSION)?;
    let mut found = select.query_and_then([id], SessionRow::of)?;
    let row = found
        .next()
        .ok_or_else(|| super::fault::damaged("session", "its settings are missing"))??;
    Ok((fence, row))
}

pub(super) fn commit(db: &Connection, draft: &CommitDraft) -> Result<()> {
    let CommitDraft { machine, .. } = draft;
    let id = draft.session.to_string();
    let values = params![
        id,
        number(draft.fence.get()),
        number(draft.expected.get()),
        machine.last_seq,
        machine.status,
        machine.sandbox,
        machine.at_rest,
        machine.incarnation,
        machine.due_at,
        machine.json,
    ];
    if db.prepare_cached(sql::ADVANCE_SESSION)?.execute(values)? == 0
        && db.prepare_cached(sql::COMMIT_SESSION)?.execute(values)? == 0
    {
        return Err(why_not_committed(db, draft)?);
    }
    keep_receipt(db, draft.receipt.as_ref())?;
    for item in &draft.outbox {
        add_to_outbox(db, item)?;
    }
    for change in &draft.runs {
        change_run(db, &id, change)?;
    }
    keep_snapshots(db, &id, &draft.snapshots)?;
    append(db, &id, &draft.events)?;
    if let Some(settings) = &draft.settings {
        db.prepare_cached(sql::PUT_SETTINGS)?.execute(params![id, settings])?;
    }
    Ok(())
}

fn keep_snapshots(db: &Connection, session: &str, snapshots: &[SnapshotDraft]) -> Result<()> {
    for SnapshotDraft { id, seq, places, body } in snapshots {
        let values = params![session, id, seq, places.local, places.cloud, body];
        insert(db, sql::INSERT_SNAPSHOT, values, "snapshot")?;
    }
    Ok(())
}

fn why_not_committed(db: &Connection, draft: &CommitDraft) -> Result<StoreError> {
    let session = draft.session;
    let fence: Option<i64> = db
        .prepare_cached(sql::FENCE)?
        .query_row([session.to_string()], |row| row.get(0))
        .optional()?;
    Ok(match fence {
        None => StoreError::NotFound("session"),
        Some(fence) if fence != number(draft.fence.get()) => {
            StoreError::Fenced { session, held: draft.fence }
        }
        Some(_) => StoreError::Conflict { session, expected: draft.expected },
    })
}

fn append(db: &Connection, session: &str, events: &[EventDraft]) -> Result<()> {
    let mut insert = db.prepare_cached(sql::INSERT_EVENT)?;
    for event in events {
        let EventDraft { seq, at, kind, run, role, body } = event;
        insert.execute(params![session, seq, at, kind, run, role, body])?;
    }
    Ok(())
}

fn change_run(db: &Connection, session: &str, change: &RunChange) -> Result<()> {
    match change {
        RunChange::Accepted { run, prompt_seq, at } => {
            let seq = number(prompt_seq.get());
            let values = params![session, run.to_string(), seq, at.as_millis()];
            insert(db, sql::ACCEPT_RUN, values, "run")
        }
        RunChange::Started { run, turn, parent_turn, at } => {
            let (turn, parent) = (turn.get(), parent_turn.get());
            let values = params![session, run.to_string(), turn, parent, at.as_millis()];
            change_one(db, sql::START_RUN, values, "run")
        }
        RunChange::Progressed { run, phase, round } => {
            let values = params![session, run.to_string(), phase.as_str(), round];
            change_one(db, sql::PROGRESS_RUN, values, "run")
        }
        RunChange::Ended { run, outcome, usage, at } => {
            let failure = outcome.failure();
            let usage = storable_usage(*usage);
            let values = params![
                session,
                run.to_string(),
                outcome.status().as_str(),
                outcome.stop_reason(),
                failure.map(|failure| failure.code.as_str()),
                failure.map(|failure| &failure.message),
                number(usage.input_tokens),
                number(usage.output_tokens),
                number(usage.cache_creation_tokens),
                number(usage.cache_read_tokens),
                number(usage.tool_calls),
                number(usage.cost_micro_usd),
                at.as_millis(),
            ];
            change_one(db, sql::END_RUN, values, "run")
        }
    }
}

pub(super) fn keep_receipt(db: &Connection, receipt: Option<&Receipt>) -> Result<()> {
    let Some(Receipt { key, body_digest, answer, at }) = receipt else { return Ok(()) };
    let (tenant, answer, at) = (key.tenant.as_str(), answer.get(), at.as_millis());
    let values = params![tenant, key.route, key.key, body_digest, answer, at];
    insert(db, sql::INSERT_RECEIPT, values, "receipt")
}

pub(super) fn purge_receipts(db: &Connection, before: Timestamp) -> Result<u64> {
    let purged = db.prepare_cached(sql::PURGE_RECEIPTS)?.execute([before.as_millis()])?;
    Ok(purged as u64)
}

pub(super) fn forget_snapshot(db: &Connection, session: SessionId, id: SnapshotId) -> Result<()> {
    change_one(db, sql::FORGET_SNAPSHOT, params![session.to_string(), id.to_string()], "snapshot")
}

pub(super) fn add_to_outbox(db: &Connection, item: &OutboxItem) -> Result<()> {
    let (payload, ready_at) = (item.payload.get(), item.ready_at.as_millis());
    let values = params![item.id.to_string(), item.topic, payload, ready_at];
    insert(db, sql::INSERT_OUTBOX, values, "outbox task")
}

pub(super) fn claim_outbox(
    db: &Connection,
    topic: &str,
    now: Timestamp,
    leased_until: Timestamp,
    limit: u32,
) -> Result<Vec<OutboxTask>> {
    let ready = params![topic, now.as_millis(), limit];
    let mut tasks = read::list(db, sql::READY_OUTBOX, ready, rows::outbox_task)?;
    if tasks.is_empty() {
        let far = params![topic, now.plus(MAX_OUTBOX_WAIT).as_millis(), limit];
        tasks = read::list(db, sql::FAR_OUTBOX, far, rows::outbox_task)?;
    }
    let mut lease = db.prepare_cached(sql::LEASE_OUTBOX)?;
    for task in &mut tasks {
        task.attempt += 1;
        lease.execute(params![task.item.id.to_string(), leased_until.as_millis()])?;
    }
    Ok(tasks)
}

pub(super) fn release_outbox(db: &Connection, topic: &str, now: Timestamp) -> Result<u64> {
    let released =
        db.prepare_cached(sql::RELEASE_OUTBOX)?.execute(params![topic, now.as_millis()])?;
    Ok(released as u64)
}

pub(super) fn finish_outbox(db: &Connection, id: OutboxId, attempt: u32) -> Result<()> {
    change_one(db, sql::FINISH_OUTBOX, params![id.to_string(), attempt], "outbox task")
}

pub(super) fn retry_outbox(
    db: &Connection,
    id: OutboxId,
    attempt: u32,
    ready_at: Timestamp,
) -> Result<()> {
    let values = params![id.to_string(), attempt, ready_at.as_millis()];
    change_one(db, sql::RETRY_OUTBOX, values, "outbox task")
}

/// Changes or deletes the one row that the statement names; `what` it is if there is none.
pub(super) fn change_one(
    db: &Connection,
    statement: &str,
    values: impl Params,
    what: &'static str,
) -> Result<()> {
    match db.prepare_cached(statement)?.execute(values)? {
        0 => Err(StoreError::NotFound(what)),
        _ => Ok(()),
    }
}

pub(super) fn insert(
    db: &Connection,
    statement: &str,
    values: impl Params,
    what: &'static str,
) -> Result<()> {
    match db.prepare_cached(statement)?.execute(values)? {
        0 => Err(StoreError::Exists(what)),
        _ => Ok(()),
    }
}

fn is_deployed(
    db: &Connection,
    tenant: &TenantId,
    agent: AgentId,
    version: AgentVersion,
) -> Result<bool> {
    let values = params![agent.to_string(), version.get(), tenant.as_str()];
    Ok(db.prepare_cached(sql::IS_DEPLOYED)?.exists(values)?)
}
