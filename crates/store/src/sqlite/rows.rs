//! Rows, read back as the domain's values. What does not parse is damaged, and says what it is.

use std::str::FromStr;

use ash_core::entry::Entry;
use ash_core::failure::{Failure, FailureCode};
use ash_core::id::{SessionId, SnapshotId};
use ash_core::json::Json;
use ash_core::number::{AgentVersion, Fence, Seq, Turn};
use ash_core::run::{Phase, RunStatus, Usage};
use ash_core::session::{LogEntry, Session};
use ash_core::time::Timestamp;
use rusqlite::Row;
use serde::de::DeserializeOwned;

use super::fault::damaged;
use crate::model::{
    Agent, ApiKey, Census, Claimed, Credential, KeyHash, OutboxItem, OutboxTask, Places, Receipt,
    ReceiptKey, RunRecord, SessionRecord, StoredSession, StoredSnapshot, Tenant, UsageRecord,
    UsageTotals,
};
use crate::{LabelledVersion, Result, Spend};

/// A number as a column holds it. What is larger than any that is ever stored stays larger.
pub(super) fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(super) fn tenant(row: &Row<'_>) -> Result<Tenant> {
    Ok(Tenant { id: parsed(row, 0, "tenant")?, created_at: time(row, 1)? })
}

pub(super) fn api_key(row: &Row<'_>) -> Result<ApiKey> {
    Ok(ApiKey {
        id: parsed(row, 0, "API key")?,
        tenant: parsed(row, 1, "API key")?,
        hash: KeyHash(row.get(2)?),
        prefix: row.get(3)?,
        label: row.get(4)?,
        created_at: time(row, 5)?,
    })
}

pub(super) fn credential(row: &Row<'_>) -> Result<Credential> {
    Ok(Credential {
        id: parsed(row, 0, "credential")?,
        tenant: parsed(row, 1, "credential")?,
        kind: row.get(2)?,
        label: row.get(3)?,
        sealed: row.get(4)?,
        created_at: time(row, 5)?,
        last_used_at: maybe_time(row, 6)?,
    })
}

pub(super) fn agent(row: &Row<'_>) -> Result<Agent> {
    let (deployed_at, configured_at) = (time(row, 7)?, maybe_time(row, 8)?);
    Ok(Agent {
        id: parsed(row, 0, "agent")?,
        tenant: parsed(row, 1, "agent")?,
        name: parsed(row, 2, "agent")?,
        version: AgentVersion::new(row.get(3)?),
        definition: json(row, 4, "agent")?,
        settings: json(row, 5, "agent")?,
        created_at: time(row, 6)?,
        updated_at: configured_at.map_or(deployed_at, |at| at.max(deployed_at)),
    })
}

/// An agent, and after its columns what people know the version by.
pub(super) fn labelled_version(row: &Row<'_>) -> Result<LabelledVersion> {
    let label: String = row.get(10)?;
    Ok(LabelledVersion {
        agent: agent(row)?,
        number: AgentVersion::new(row.get(9)?),
        label: decode(&label, "agent version")?,
        is_active: row.get(11)?,
        created_at: time(row, 12)?,
        changed_at: time(row, 7)?,
    })
}

pub(super) fn session_id(row: &Row<'_>) -> Result<SessionId> {
    parsed(row, 0, "session")
}

pub(super) fn snapshot_id(row: &Row<'_>) -> Result<SnapshotId> {
    parsed(row, 0, "snapshot")
}

/// Where a session stands, and when it is to be looked at, from the columns after its id.
pub(super) fn machine_and_deadline(row: &Row<'_>) -> Result<(Session, Option<Timestamp>)> {
    let machine: String = row.get(1)?;
    Ok((decode(&machine, "session")?, maybe_time(row, 2)?))
}

/// A session's row before its JSON is read: the thread that writes leaves that to the caller.
pub(super) struct SessionRow {
    id: String,
    tenant: String,
    agent: String,
    agent_name: String,
    agent_version: u32,
    parent: Option<String>,
    created_at: i64,
    settings: String,
    machine: String,
}

impl SessionRow {
    pub(super) fn of(row: &Row<'_>) -> Result<Self> {
        Ok(Self {
            id: row.get(0)?,
            tenant: row.get(1)?,
            agent: row.get(2)?,
            agent_name: row.get(3)?,
            agent_version: row.get(4)?,
            parent: row.get(5)?,
            created_at: row.get(6)?,
            settings: row.get(7)?,
            machine: row.get(8)?,
        })
    }

    /// How long it is, but for what is always short.
    pub(super) fn bytes(&self) -> usize {
        self.settings.len() + self.machine.len()
    }

    pub(super) fn decode(self) -> Result<StoredSession> {
        let record = SessionRecord {
            id: parse(&self.id, "session")?,
            tenant: parse(&self.tenant, "session")?,
            agent: parse(&self.agent, "session")?,
            agent_name: parse(&self.agent_name, "session")?,
            agent_version: AgentVersion::new(self.agent_version),
            parent: self.parent.as_deref().map(|id| parse(id, "session")).transpose()?,
            created_at: Timestamp::from_millis(self.created_at),
            settings: decode(&self.settings, "settings")?,
        };
        Ok(StoredSession { record, session: decode(&self.machine, "session")? })
    }

    pub(super) fn decode_claimed(self, fence: Fence) -> Result<Claimed> {
        let StoredSession { record, session } = self.decode()?;
        Ok(Claimed { record, session, fence })
    }
}

pub(super) fn log_entry(row: &Row<'_>) -> Result<LogEntry> {
    let body: String = row.get(2)?;
    let entry: Entry = decode(&body, "entry")?;
    Ok(LogEntry { seq: Seq::new(count(row, 0)?), at: time(row, 1)?, entry })
}

pub(super) fn run(row: &Row<'_>) -> Result<RunRecord> {
    let status: String = row.get(2)?;
    let status = RunStatus::ALL.into_iter().find(|known| known.as_str() == status);
    let phase: Option<String> = row.get(6)?;
    let turn = |column| Ok::<_, rusqlite::Error>(row.get::<_, Option<u32>>(column)?.map(Turn::new));
    Ok(RunRecord {
        session: parsed(row, 0, "run")?,
        id: parsed(row, 1, "run")?,
        status: status.ok_or_else(|| damaged("run", "unknown status"))?,
        prompt_seq: Seq::new(count(row, 3)?),
        turn: turn(4)?,
        parent_turn: turn(5)?,
        phase: phase.as_deref().map(phase_of).transpose()?,
        round: row.get(7)?,
        stop_reason: row.get(8)?,
        failure: failure(row.get(9)?, row.get(10)?)?,
        usage: usage(row, 11)?,
        accepted_at: time(row, 17)?,
        started_at: maybe_time(row, 18)?,
        ended_at: maybe_time(row, 19)?,
    })
}

fn phase_of(name: &str) -> Result<Phase> {
    [Phase::StreamingLlm, Phase::ExecutingTools, Phase::DelegatingCoder]
        .into_iter()
        .find(|known| known.as_str() == name)
        .ok_or_else(|| damaged("run", "unknown phase"))
}

fn failure(code: Option<String>, message: Option<String>) -> Result<Option<Failure>> {
    let Some(code) = code else { return Ok(None) };
    let code = FailureCode::ALL.into_iter().find(|known| known.as_str() == code);
    let code = code.ok_or_else(|| damaged("run", "unknown failure code"))?;
    Ok(Some(Failure { code, message: message.unwrap_or_default() }))
}

pub(super) fn census(row: &Row<'_>) -> Result<Census> {
    Ok(Census {
        active_sessions: count(row, 0)?,
        starting: count(row, 1)?,
        live: count(row, 2)?,
        frozen: count(row, 3)?,
        running: count(row, 4)?,
    })
}

pub(super) fn totals(row: &Row<'_>) -> Result<UsageTotals> {
    Ok(UsageTotals { runs: count(row, 0)?, usage: usage(row, 1)?, compute_millis: count(row, 7)? })
}

pub(super) fn spend(row: &Row<'_>) -> Result<Spend> {
    Ok(Spend { cost: count(row, 0)?, tokens: count(row, 1)? })
}

/// A run, and after its columns the name of its agent.
pub(super) fn usage_record(row: &Row<'_>) -> Result<UsageRecord> {
    Ok(UsageRecord { run: run(row)?, agent_name: parsed(row, 20, "session")? })
}

/// Six columns from `first` on.
fn usage(row: &Row<'_>, first: usize) -> Result<Usage> {
    Ok(Usage {
        input_tokens: count(row, first)?,
        output_tokens: count(row, first + 1)?,
        cache_creation_tokens: count(row, first + 2)?,
        cache_read_tokens: count(row, first + 3)?,
        tool_calls: count(row, first + 4)?,
        cost_micro_usd: count(row, first + 5)?,
    })
}

pub(super) fn receipt(row: &Row<'_>, key: ReceiptKey) -> Result<Receipt> {
    let answer = json(row, 1, "receipt")?;
    Ok(Receipt { key, body_digest: row.get(0)?, answer, at: time(row, 2)? })
}

pub(super) fn snapshot(row: &Row<'_>) -> Result<StoredSnapshot> {
    let body = row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?;
    let snapshot = decode(body, "snapshot")?;
    Ok(StoredSnapshot { snapshot, places: Places { local: row.get(1)?, cloud: row.get(2)? } })
}

/// A task as it is before it is taken.
pub(super) fn outbox_task(row: &Row<'_>) -> Result<OutboxTask> {
    let item = OutboxItem {
        id: parsed(row, 0, "outbox task")?,
        topic: row.get(1)?,
        payload: json(row, 2, "outbox task")?,
        ready_at: time(row, 3)?,
    };
    Ok(OutboxTask { item, attempt: row.get(4)? })
}

pub(super) fn count(row: &Row<'_>, column: usize) -> Result<u64> {
    let stored: i64 = row.get(column)?;
    u64::try_from(stored).map_err(|error| damaged("count", error))
}

pub(super) fn time(row: &Row<'_>, column: usize) -> Result<Timestamp> {
    Ok(Timestamp::from_millis(row.get(column)?))
}

pub(super) fn maybe_time(row: &Row<'_>, column: usize) -> Result<Option<Timestamp>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(Timestamp::from_millis))
}

/// What a version of an agent consists of, alone in its row.
pub(super) fn definition(row: &Row<'_>) -> Result<Json> {
    json(row, 0, "agent")
}

fn json(row: &Row<'_>, column: usize, what: &'static str) -> Result<Json> {
    Json::parse(row.get(column)?).map_err(|error| damaged(what, error))
}

pub(super) fn parsed<T>(row: &Row<'_>, column: usize, what: &'static str) -> Result<T>
where
    T: FromStr<Err: std::error::Error + Send + Sync + 'static>,
{
    parse(row.get_ref(column)?.as_str().map_err(rusqlite::Error::from)?, what)
}

pub(super) fn parse<T>(text: &str, what: &'static str) -> Result<T>
where
    T: FromStr<Err: std::error::Error + Send + Sync + 'static>,
{
    text.parse().map_err(|error| damaged(what, error))
}

pub(super) fn decode<T: DeserializeOwned>(text: &str, what: &'static str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| damaged(what, error))
}
