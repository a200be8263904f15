//! Agents: content that never changes, what people know it by, and settings beside it.

use ash_core::id::{AgentName, SessionId, TenantId};
use ash_core::json::Json;
use ash_core::number::AgentVersion;
use ash_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::fault::damaged;
use super::write::{change_one, insert, keep_receipt};
use super::{read, rows, sql};
use crate::model::{Agent, NewAgentVersion};
use crate::{LabelledVersion, Result, StoreError, VersionChange, VersionLabel};

pub(super) fn deploy(db: &Connection, new: &NewAgentVersion) -> Result<Agent> {
    read::tenant(db, &new.tenant)?;
    let name = params![new.tenant.as_str(), new.name.as_str()];
    let living: Option<String> =
        db.prepare_cached(sql::LIVING_AGENT)?.query_row(name, |row| row.get(0)).optional()?;
    let id = match living {
        Some(id) => id,
        None => {
            let id = new.id.to_string();
            let at = new.at.as_millis();
            let values = params![id, new.tenant.as_str(), new.name.as_str(), at];
            insert(db, sql::INSERT_AGENT, values, "agent")?;
            id
        }
    };
    let version = next_version(db, &id)?;
    let label = as_text(&new.label.label)?;
    let (at, number) = (new.at.as_millis(), version.get());
    let values = params![id, number, new.definition.get(), at, number, label, Option::<i64>::None];
    db.prepare_cached(sql::INSERT_AGENT_VERSION)?.execute(values)?;
    if !new.label.is_draft || version == AgentVersion::new(1) {
        db.prepare_cached(sql::ACTIVATE_VERSION)?.execute(params![id, number])?;
    }
    if let Some(settings) = &new.settings {
        configure(db, &new.tenant, &new.name, settings, new.at)?;
    }
    keep_receipt(db, new.receipt_of(&id, version).as_ref())?;
    read::agent_version(db, &new.tenant, &new.name, version)
}

/// The number of the next content of an agent.
fn next_version(db: &Connection, id: &str) -> Result<AgentVersion> {
    let raised = db.prepare_cached(sql::RAISE_AGENT_VERSION)?.query_row([id], |row| row.get(0))?;
    Ok(AgentVersion::new(raised))
}

fn as_text(label: &VersionLabel) -> Result<String> {
    serde_json::to_string(label).map_err(|error| damaged("agent version", error))
}

pub(super) fn configure(
    db: &Connection,
    tenant: &TenantId,
    name: &AgentName,
    settings: &Json,
    at: Timestamp,
) -> Result<Agent> {
    let values = params![tenant.as_str(), name.as_str(), settings.get(), at.as_millis()];
    change_one(db, sql::CONFIGURE_AGENT, values, "agent")?;
    read::agent(db, tenant, name)
}

pub(super) fn change(
    db: &Connection,
    tenant: &TenantId,
    name: &AgentName,
    number: AgentVersion,
    change: &VersionChange,
    at: Timestamp,
) -> Result<LabelledVersion> {
    read::agent(db, tenant, name)?;
    let found = read::labelled_version(db, tenant, name, number)?;
    let id = found.agent.id.to_string();
    let content = params![id, found.agent.version.get()];
    match change {
        VersionChange::Amend { label, definition } => {
            let label = as_text(&found.label.clone().with(label))?;
            let at = at.as_millis();
            match definition {
                Some(definition) => replace(db, &id, &found, (definition, &label, at))?,
                None => {
                    let values = params![id, found.agent.version.get(), label, at];
                    db.prepare_cached(sql::AMEND_VERSION)?.execute(values)?;
                }
            }
        }
        VersionChange::Activate => {
            db.prepare_cached(sql::ACTIVATE_VERSION)?.execute(content)?;
        }
        VersionChange::Delete if found.is_active => {
            return Err(StoreError::InUse("agent version"));
        }
        VersionChange::Delete => {
            db.prepare_cached(sql::RETIRE_VERSION)?.execute(content)?;
            return Ok(found);
        }
    }
    read::labelled_version(db, tenant, name, number)
}

/// Retires what a version consists of for something else.
fn replace(
    db: &Connection,
    id: &str,
    found: &LabelledVersion,
    (definition, label, at): (&Json, &str, i64),
) -> Result<()> {
    let new = next_version(db, id)?.get();
    db.prepare_cached(sql::RETIRE_VERSION)?.execute(params![id, found.agent.version.get()])?;
    let (created_at, number) = (found.created_at.as_millis(), found.number.get());
    let values = params![id, new, definition.get(), created_at, number, label, at];
    db.prepare_cached(sql::INSERT_AGENT_VERSION)?.execute(values)?;
    if found.is_active {
        db.prepare_cached(sql::ACTIVATE_VERSION)?.execute(params![id, new])?;
    }
    Ok(())
}

pub(super) fn delete(
    db: &Connection,
    tenant: &TenantId,
    name: &AgentName,
) -> Result<Vec<SessionId>> {
    let id: Option<String> = db
        .prepare_cached(sql::DELETE_AGENT)?
        .query_row(params![tenant.as_str(), name.as_str()], |row| row.get(0))
        .optional()?;
    let id = id.ok_or(StoreError::NotFound("agent"))?;
    read::list(db, sql::SESSIONS_GOING_ON, [id], rows::session_id)
}
