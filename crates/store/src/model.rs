//! The plain data that goes in and out of a store.

use std::collections::BTreeMap;
use std::fmt;

use ash_core::failure::Failure;
use ash_core::id::{
    AgentId, AgentName, ApiKeyId, CredentialId, OutboxId, RunId, SessionId, TenantId,
};
use ash_core::json::Json;
use ash_core::number::{AgentVersion, Fence, Owner, Seq, Turn};
use ash_core::run::{Phase, RunStatus, Usage};
use ash_core::session::{LogEntry, RunChange, Session, Status};
use ash_core::snapshot::Snapshot;
use ash_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::attachment::Attachment;
pub use crate::place::{CloudHead, CloudUse, Place, Places, UsedCloud};
use crate::version::NewLabel;
use crate::{MAX_ENTRY_BYTES, StoreError};

/// Whom rows belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Its id.
    pub id: TenantId,
    /// When it was added.
    pub created_at: Timestamp,
}

/// The hash of an API key's secret.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash(pub [u8; 32]);

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHash(..)")
    }
}

/// An API key, without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKey {
    /// Its id.
    pub id: ApiKeyId,
    /// Whose it is.
    pub tenant: TenantId,
    /// The hash of the secret; no two keys share one.
    pub hash: KeyHash,
    /// The first characters of the secret, to recognise it by.
    pub prefix: String,
    /// What its owner calls it.
    pub label: String,
    /// When it was added.
    pub created_at: Timestamp,
}

/// A secret for use outside the sandbox, sealed.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential {
    /// Its id.
    pub id: CredentialId,
    /// Whose it is.
    pub tenant: TenantId,
    /// Which service it is for.
    pub kind: String,
    /// What its owner calls it.
    pub label: String,
    /// The secret, encrypted by whoever stores it.
    pub sealed: Vec<u8>,
    /// When it was added.
    pub created_at: Timestamp,
    /// When it was last used, if it ever was.
    pub last_used_at: Option<Timestamp>,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credential({}, ..)", self.id)
    }
}

/// One version of an agent, to be added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewAgentVersion {
    /// The id it gets if the agent is new.
    pub id: AgentId,
    /// Whose it is.
    pub tenant: TenantId,
    /// Its name.
    pub name: AgentName,
    /// What the version consists of; carried, not looked into.
    pub definition: Json,
    /// When it is deployed.
    pub at: Timestamp,
    /// What the caller is told if it asks again; the store puts the version into the answer.
    pub receipt: Option<Receipt>,
    /// Replaces the agent's settings, if given.
    pub settings: Option<Json>,
    /// What people say about it, and whether new sessions get it.
    pub label: NewLabel,
}

impl NewAgentVersion {
    /// The receipt as it is kept, now that the version has a number.
    pub(crate) fn receipt_of(&self, agent: &str, version: AgentVersion) -> Option<Receipt> {
        let answer = Json::parse(format!(r#"{{"agent":"{agent}","version":{version}}}"#));
        let answer = answer.expect("an id and a number in an object are JSON");
        self.receipt.as_ref().map(|receipt| Receipt { answer, ..receipt.clone() })
    }
}

/// One version of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// Its id, the same for all its versions.
    pub id: AgentId,
    /// Whose it is.
    pub tenant: TenantId,
    /// Its name.
    pub name: AgentName,
    /// Which version this is.
    pub version: AgentVersion,
    /// What the version consists of.
    pub definition: Json,
    /// What the agent is set to, the same for all its versions; carried, not looked into.
    pub settings: Json,
    /// When the agent was first deployed.
    pub created_at: Timestamp,
    /// When this version was deployed or the settings were replaced, whichever is later.
    pub updated_at: Timestamp,
}

/// What a session's owner may say about it at any time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// What people call it.
    pub title: Option<String>,
    /// Which model it runs on, if not the agent's.
    pub model: Option<String>,
    /// Whatever its owner wants to remember.
    pub metadata: BTreeMap<String, String>,
    /// The options it was created with; carried, not looked into.
    pub config: Json,
}

/// What a session is, beside where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRecord {
    /// Its id.
    pub id: SessionId,
    /// Whose it is.
    pub tenant: TenantId,
    /// The agent it talks to.
    pub agent: AgentId,
    /// That agent's name.
    pub agent_name: AgentName,
    /// The version it was created with, for ever.
    pub agent_version: AgentVersion,
    /// The session it was forked from.
    pub parent: Option<SessionId>,
    /// When it was created.
    pub created_at: Timestamp,
    /// What its owner says about it.
    pub settings: Settings,
}

/// A session to be added.
#[derive(Clone, Debug)]
pub struct NewSession {
    /// What it is.
    pub record: SessionRecord,
    /// Where it stands.
    pub session: Session,
    /// When its next deadline is.
    pub due_at: Option<Timestamp>,
    /// Its first entries.
    pub entries: Vec<LogEntry>,
    /// Who works on it.
    pub owner: Owner,
    /// What the caller is told if it asks again.
    pub receipt: Option<Receipt>,
}

/// A session to be added that begins with a history.
#[derive(Clone, Debug)]
pub struct ImportedSession {
    /// The session. Its entries come after what is inherited, or from the first one on if nothing is.
    pub new: NewSession,
    /// What its log begins with, if that is here already.
    pub inherited: Option<Inherited>,
    /// Everything that is known of its runs, of inherited ones too.
    pub runs: Vec<RunChange>,
    /// Its snapshots, and where they lie.
    pub snapshots: Vec<StoredSnapshot>,
    /// What is attached to it. Their bytes are there already.
    pub attachments: Vec<Attachment>,
    /// Work that must follow for certain.
    pub outbox: Vec<OutboxItem>,
}

/// The log of another session of the same tenant, up to an entry. What its runs consumed until then is not counted
/// a second time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inherited {
    /// Whose log.
    pub session: SessionId,
    /// The last entry of it.
    pub through: Seq,
}

/// A session as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSession {
    /// What it is.
    pub record: SessionRecord,
    /// Where it stands.
    pub session: Session,
}

/// Some sessions for which nothing runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resting {
    /// Each with its recorded deadline.
    pub sessions: Vec<(Session, Option<Timestamp>)>,
    /// Where to go on; nothing, if there are no more.
    pub next: Option<SessionId>,
}

/// A snapshot as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSnapshot {
    /// What it is.
    pub snapshot: Snapshot,
    /// Where its bytes lie.
    pub places: Places,
}

/// A session and the right to write it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// What it is.
    pub record: SessionRecord,
    /// Where it stands.
    pub session: Session,
    /// To be named by every write.
    pub fence: Fence,
}

/// A decision, to be recorded in one piece.
#[derive(Clone, Debug)]
pub struct Commit {
    /// The fence of the claim under which it was decided.
    pub fence: Fence,
    /// The last entry of the log it was decided on.
    pub expected_seq: Seq,
    /// Where the session stands now.
    pub session: Session,
    /// When its next deadline is.
    pub due_at: Option<Timestamp>,
    /// What is added to its log: the entries right after `expected_seq`.
    pub entries: Vec<LogEntry>,
    /// What became of its runs.
    pub runs: Vec<RunChange>,
    /// Snapshots that there are now, on this machine.
    pub snapshots: Vec<Snapshot>,
    /// What its owner says about it, if that changes.
    pub settings: Option<Settings>,
    /// Work that must follow for certain.
    pub outbox: Vec<OutboxItem>,
    /// What the caller is told if it asks again.
    pub receipt: Option<Receipt>,
}

impl Commit {
    /// Whether the entries continue the log; the same for every backend.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        check_numbers(&self.session, self.expected_seq, &self.entries)
    }
}

impl NewSession {
    /// Whether the entries begin the log of this session; the same for every backend.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        self.check_after(Seq::ZERO)
    }

    fn check_after(&self, expected: Seq) -> Result<(), StoreError> {
        if self.record.id != self.session.id() {
            return Err(StoreError::Conflict { session: self.record.id, expected });
        }
        check_numbers(&self.session, expected, &self.entries)
    }
}

impl ImportedSession {
    /// Whether the entries follow what is inherited; the same for every backend.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let NewSession { record, .. } = &self.new;
        let is_its = |one: &Attachment| one.session == record.id && one.tenant == record.tenant;
        if !self.attachments.iter().all(is_its) {
            return Err(StoreError::NotFound("session"));
        }
        self.new.check_after(self.inherited_seq())
    }

    /// The last entry that was written elsewhere and is here already.
    pub(crate) fn inherited_seq(&self) -> Seq {
        self.inherited.map_or(Seq::ZERO, |inherited| inherited.through)
    }
}

fn check_numbers(session: &Session, expected: Seq, entries: &[LogEntry]) -> Result<(), StoreError> {
    let numbered = entries.iter().enumerate().all(|(index, e)| e.seq == expected.plus(index + 1));
    if numbered && session.last_seq() == expected.plus(entries.len()) {
        return Ok(());
    }
    Err(StoreError::Conflict { session: session.id(), expected })
}

/// An entry as it is stored, if it is not too large.
pub(crate) fn entry_json(entry: &LogEntry) -> Result<String, StoreError> {
    let json = serde_json::to_string(&entry.entry)
        .map_err(|source| StoreError::Damaged { what: "entry", source: source.into() })?;
    if json.len() > MAX_ENTRY_BYTES {
        return Err(StoreError::TooLarge { bytes: json.len() });
    }
    Ok(json)
}

/// The largest figure of a run's usage that is counted. The figures come from a sandbox, and one
/// absurd number must not make the sum of a tenant's runs overflow: with this bound it takes
/// eight million of them.
const MAX_USAGE_FIGURE: u64 = 1 << 40;

/// A run's usage as history keeps it; the same for every backend.
pub(crate) fn storable_usage(reported: Usage) -> Usage {
    Usage {
        input_tokens: reported.input_tokens.min(MAX_USAGE_FIGURE),
        output_tokens: reported.output_tokens.min(MAX_USAGE_FIGURE),
        cache_creation_tokens: reported.cache_creation_tokens.min(MAX_USAGE_FIGURE),
        cache_read_tokens: reported.cache_read_tokens.min(MAX_USAGE_FIGURE),
        tool_calls: reported.tool_calls.min(MAX_USAGE_FIGURE),
        cost_micro_usd: reported.cost_micro_usd.min(MAX_USAGE_FIGURE),
    }
}

/// Which sessions a list shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionFilter {
    /// Only those of this agent.
    pub agent: Option<AgentName>,
    /// Only those that stand so.
    pub status: Option<Status>,
    /// Only those whose id begins so. Ids are made of lower-case hexadecimal digits and hyphens:
    /// nothing begins with anything else.
    pub id_prefix: Option<String>,
}

/// What goes on at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Sessions that are active.
    pub active_sessions: u64,
    /// Sandboxes that are on their way.
    pub starting: u64,
    /// Sandboxes that are up and running.
    pub live: u64,
    /// Sandboxes that are frozen.
    pub frozen: u64,
    /// Runs that are worked on in a live sandbox.
    pub running: u64,
}

/// Which part of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRequest {
    /// Only what comes after this one in the list.
    pub after: Option<SessionId>,
    /// How many to leave out.
    pub offset: u32,
    /// How many at the most.
    pub limit: u32,
}

/// One run, as history keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRecord {
    /// Which run.
    pub id: RunId,
    /// Of which session.
    pub session: SessionId,
    /// Where it stands.
    pub status: RunStatus,
    /// The log entry that holds its prompt.
    pub prompt_seq: Seq,
    /// Its ordinal, once it has started.
    pub turn: Option<Turn>,
    /// The turn it continues, once it has started.
    pub parent_turn: Option<Turn>,
    /// What it does or last did.
    pub phase: Option<Phase>,
    /// How often the model was asked.
    pub round: u32,
    /// Why its stream ended, once it has.
    pub stop_reason: Option<String>,
    /// What went wrong, if something did.
    pub failure: Option<Failure>,
    /// What it consumed.
    pub usage: Usage,
    /// When its prompt was accepted.
    pub accepted_at: Timestamp,
    /// When the agent was given its prompt.
    pub started_at: Option<Timestamp>,
    /// When it was over.
    pub ended_at: Option<Timestamp>,
}

/// Whose usage, and of when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageFilter {
    /// Only of this session.
    pub session: Option<SessionId>,
    /// Only of this agent's sessions.
    pub agent: Option<AgentName>,
    /// Only of runs that ended at this time or later.
    pub from: Option<Timestamp>,
    /// Only of runs that ended before this time.
    pub until: Option<Timestamp>,
}

/// A run that is over, and whose it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageRecord {
    /// The run.
    pub run: RunRecord,
    /// The agent of its session.
    pub agent_name: AgentName,
}

/// What a number of runs consumed together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageTotals {
    /// How many runs.
    pub runs: u64,
    /// How long agents worked on them.
    pub compute_millis: u64,
    /// What they consumed.
    pub usage: Usage,
}

/// What makes two requests the same request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReceiptKey {
    /// Whose request.
    pub tenant: TenantId,
    /// To what it was sent.
    pub route: String,
    /// The key that the caller chose.
    pub key: String,
}

/// Proof that a request was carried out, written in the same commit as its effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Which request.
    pub key: ReceiptKey,
    /// A digest of its body: the same key with another body is a mistake.
    pub body_digest: [u8; 32],
    /// What the caller was told.
    pub answer: Json,
    /// When.
    pub at: Timestamp,
}

/// Work that must follow a commit for certain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxItem {
    /// Its id.
    pub id: OutboxId,
    /// Who does it.
    pub topic: String,
    /// What to do; carried, not looked into.
    pub payload: Json,
    /// Not before this time.
    pub ready_at: Timestamp,
}

/// A piece of work, taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxTask {
    /// What to do.
    pub item: OutboxItem,
    /// Which taking this is; to be named when it is done or put back.
    pub attempt: u32,
}
