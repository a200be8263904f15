//! What is in the cloud, read back: nothing of it is believed before its digest was compared.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ash_core::id::{AgentName, SessionId, SnapshotId, TenantId};
use ash_core::number::{LogEpoch, Seq};
use ash_core::session::{History, LogEntry};
use ash_core::time::Timestamp;
use ash_snapshot::{Damaged, Restore, SnapshotError};

use super::Cloud;
use super::attached::{self, AttachedPart};
use super::error::CloudError;
use super::new_set::{SECRETS_OF_AGENTS, SECRETS_OF_SESSIONS, without};
use super::place::{Shelf, random_name};
use super::set::{
    AgentRecord, Head, MAX_AGENT, MAX_LOG, MAX_RECORD, MAX_SEGMENT, Part, Record, digest_in,
    digest_of, entry, line_of, versioned,
};
use crate::agent::{Definition, DeployError, Library, MAX_BYTES, MAX_FILES, Source};
use crate::archive::theirs;

/// Where what is brought back lies until it is whole.
const ASIDE: &str = "import";

/// A session that is in the cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloudSession {
    /// Which one.
    pub session: SessionId,
    /// Its agent.
    pub agent_name: AgentName,
    /// What people call it.
    pub title: Option<String>,
    /// How many turns it has.
    pub turns: u32,
    /// Where it stood there, if that is known.
    pub status: Option<String>,
    /// Where its log ends there.
    pub seq: Seq,
    /// Its files.
    pub snapshot: SnapshotId,
    /// When it was brought there.
    pub at: Timestamp,
}

/// Everything of a session that is in the cloud, but for its files.
pub(crate) struct Fetched {
    pub(crate) epoch: LogEpoch,
    pub(crate) snapshot: SnapshotId,
    pub(crate) record: Record,
    pub(crate) agent: FetchedAgent,
    pub(crate) log: Vec<LogEntry>,
    pub(crate) history: History,
    /// The bytes of what is attached.
    pub(crate) attached: Vec<AttachedPart>,
    /// What is lost of its end, if there are later sets, which cannot be read.
    pub(crate) end_lost: Option<String>,
}

/// What the agent of a session is, as far as that can be read.
pub(crate) struct FetchedAgent {
    /// The object that says it.
    name: String,
    /// The digest of its directory: the name of that object has it too.
    pub(crate) digest: String,
    record: Option<AgentRecord>,
}

impl FetchedAgent {
    /// What it is.
    pub(crate) fn record(&self) -> Result<&AgentRecord, CloudError> {
        self.record.as_ref().ok_or_else(|| CloudError::Damaged(self.name.clone()))
    }
}

impl Cloud {
    /// The latest sessions of a tenant that are there, newest first, and those of which nothing can be read here.
    /// Blocks.
    pub(super) fn sessions(
        &self,
        tenant: &TenantId,
        limit: usize,
    ) -> Result<(Vec<CloudSession>, Vec<SessionId>), CloudError> {
        let shelf = self.0.remote.shelf(tenant)?;
        let mut sessions: BTreeMap<SessionId, Heads> = BTreeMap::new();
        for listed in shelf.list("sessions/")? {
            let mut parts = listed.name.split('/').skip(1);
            let session = parts.next().and_then(|id| id.parse().ok());
            if let (Some(session), Some("heads")) = (session, parts.next()) {
                let heads = sessions.entry(session).or_default();
                heads.put_at = heads.put_at.max(listed.put_at);
                heads.names.push(listed.name);
            }
        }
        self.0.remote.is_here()?;
        let mut sessions: Vec<(SessionId, Heads)> = sessions.into_iter().collect();
        sessions.sort_by_key(|(session, heads)| Reverse((heads.put_at, *session)));
        let (mut found, mut unreadable) = (Vec::new(), Vec::new());
        for (session, heads) in sessions.into_iter().take(limit) {
            let whose = (tenant, session);
            match shelf.latest_readable(&heads.names, whose) {
                Ok(Some(head)) => found.push(shown(head)),
                // It went meanwhile, or is damaged: the others are there all the same.
                Ok(None) => {
                    let is_damaged =
                        |name| matches!(shelf.head(name, whose), Err(CloudError::Damaged(_)));
                    if heads.names.iter().any(|name| is_damaged(name)) {
                        unreadable.push(session);
                    }
                }
                Err(CloudError::TooNew { .. }) => unreadable.push(session),
                Err(error) => return Err(error),
            }
        }
        Ok((found, unreadable))
    }
}

/// Everything of a session but its files: as its latest head says, or if what that names is damaged, the one before it.
/// What is lost of its files a resume finds, and what becomes of an agent that cannot be read is for the caller to say.
/// Blocks.
pub(crate) fn fetch(
    shelf: &Shelf,
    tenant: &TenantId,
    session: SessionId,
) -> Result<Fetched, CloudError> {
    let names = shelf.heads(session)?;
    let latest = names.iter().filter_map(|name| line_of(name)).map(|(epoch, _)| epoch).max();
    // What is wrong with the latest that is passed over, and how many turns all of those had, as far as they say.
    let mut passed_over: Option<(CloudError, u32)> = None;
    for name in names.iter().rev() {
        let (turns, read) = match shelf.head(name, (tenant, session)) {
            Ok(Some(head)) => (head.turns, fetch_set(shelf, head)),
            Ok(None) => continue,
            Err(error) => (0, Err(error)),
        };
        match read {
            Ok(mut fetched) => {
                if let Some((error, turns)) = &passed_over {
                    let error = error as &dyn std::error::Error;
                    let seq = fetched.history.last_seq();
                    tracing::warn!(
                        error, session.id = %session,
                        "the latest set of session {session} is damaged: it is imported as it was at entry {seq}"
                    );
                    fetched.end_lost = Some(end_lost(*turns, &fetched.history));
                }
                // Nobody may take what is damaged for later than what follows.
                let epoch = latest.map_or(fetched.epoch, |latest| latest.max(fetched.epoch));
                return Ok(Fetched { epoch, ..fetched });
            }
            Err(error @ CloudError::Damaged(_)) => {
                passed_over = Some(match passed_over {
                    Some((first, most)) => (first, most.max(turns)),
                    None => (error, turns),
                });
            }
            Err(error) => return Err(error),
        }
    }
    let nothing = || CloudError::NotFound(format!("session {session}"));
    Err(passed_over.map_or_else(nothing, |(error, _)| error))
}

/// What is said of a history that had so many turns, as far as anybody can tell, and more than are left.
fn end_lost(turns: u32, left: &History) -> String {
    let (there, seq) = (left.lineage().turns(), left.last_seq());
    match turns.saturating_sub(there) {
        0 => format!(
            "what came after entry {seq} of the log could not be read in the bucket, and is missing"
        ),
        1 => format!("turn {turns} could not be read in the bucket, and is missing"),
        _ => {
            let first = there + 1;
            format!("turns {first} to {turns} could not be read in the bucket, and are missing")
        }
    }
}

/// Everything that a head names but the files. What is named and not there is damage.
fn fetch_set(shelf: &Shelf, head: Head) -> Result<Fetched, CloudError> {
    let record = shelf.get_part(&head.record, MAX_RECORD)?;
    let mut record: Record = versioned(&record, &head.record.name)?;
    let damaged = |what: &str| CloudError::Damaged(what.to_owned());
    let ids: BTreeSet<_> = record.snapshots.iter().map(|kept| kept.captured.id).collect();
    let are_right = ids.contains(&head.snapshot)
        && ids.len() == record.snapshots.len()
        && record.snapshots.iter().all(|kept| kept.seq <= head.seq)
        && attached::are_right(&record.attachments, &head);
    if !are_right {
        return Err(damaged(&head.record.name));
    }
    // Nobody puts secrets there. What somebody has put there all the same is not taken for one of ours.
    let config = without(&record.settings.config, &SECRETS_OF_SESSIONS);
    record.settings.config = config.map_err(|_| damaged(&head.record.name))?;
    let (log, history) = log_of(shelf, &head)?;
    let agent = fetched_agent(shelf, &head.agent)?;
    let Head { session, epoch, snapshot, attachments: attached, .. } = head;
    match shelf.repository.snapshot(theirs(snapshot)) {
        Ok(_) => {}
        // The conversation is whole without it, and a resume does with its files what can be done.
        Err(error @ (SnapshotError::Missing(_) | SnapshotError::Damaged { .. })) => {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(
                error, session.id = %session,
                "snapshot {snapshot}, the latest of session {session}, cannot be read in the cloud"
            );
        }
        Err(error) => return Err(error.into()),
    }
    Ok(Fetched { epoch, snapshot, record, agent, log, history, attached, end_lost: None })
}

/// What an agent is, or no more than what the name of that says, if it cannot be read.
fn fetched_agent(shelf: &Shelf, part: &Part) -> Result<FetchedAgent, CloudError> {
    let name = part.name.clone();
    match read_agent(shelf, part) {
        Ok(record) => {
            Ok(FetchedAgent { name, digest: record.digest.clone(), record: Some(record) })
        }
        Err(CloudError::Damaged(_)) => {
            let digest = digest_in(&name).unwrap_or_default().to_owned();
            Ok(FetchedAgent { name, digest, record: None })
        }
        Err(error) => Err(error),
    }
}

fn read_agent(shelf: &Shelf, part: &Part) -> Result<AgentRecord, CloudError> {
    let damaged = || CloudError::Damaged(part.name.clone());
    let agent = shelf.get(&part.name, MAX_AGENT)?.ok_or_else(damaged)?;
    if digest_of(&agent) != part.blake3 {
        return Err(damaged());
    }
    let mut agent: AgentRecord = versioned(&agent, &part.name)?;
    // Nobody puts secrets there, as in the record of a session.
    agent.settings = without(&agent.settings, &SECRETS_OF_AGENTS).map_err(|_| damaged())?;
    Ok(agent)
}

/// Brings the directory of an agent to where those of agents are, unless it is there. What it is made of lies aside
/// for a moment. Blocks.
pub(crate) fn fetch_agent(
    shelf: &Shelf,
    library: &Library,
    aside: &Path,
    agent: &AgentRecord,
) -> Result<Definition, CloudError> {
    let damaged = || CloudError::Damaged(format!("agent {}", agent.digest));
    let snapshot = match shelf.repository.snapshot(theirs(agent.snapshot)) {
        Err(SnapshotError::Missing(_)) => return Err(damaged()),
        snapshot => snapshot?,
    };
    let aside = Aside::new(aside).map_err(CloudError::here)?;
    let restored = shelf.repository.restore(&Restore {
        tree: snapshot.root("agent")?,
        path: b"",
        damaged: Damaged::Refuse,
        target: &aside.0,
        owner: None,
        max_entries: 4 * MAX_FILES,
        max_bytes: MAX_BYTES,
        threads: 1,
        progress: &|_| true,
    });
    match restored {
        // No agent is as large.
        Err(SnapshotError::TooMuch { .. }) => return Err(damaged()),
        // The set that names it is there.
        Err(SnapshotError::Missing(_)) => return Err(damaged()),
        restored => drop(restored?),
    }
    let captured = library.capture_path(&aside.0).map_err(|error| match error {
        DeployError::Unavailable(error) => CloudError::here(error),
        // It was an agent when it was brought there.
        DeployError::NoInstructions
        | DeployError::NotADirectory { .. }
        | DeployError::Unreadable { .. }
        | DeployError::BadPath { .. }
        | DeployError::SpecialFile { .. }
        | DeployError::BadLink { .. }
        | DeployError::TooManyFiles { .. }
        | DeployError::TooLarge { .. }
        | DeployError::Manifest { .. } => damaged(),
    })?;
    if captured.digest != agent.digest {
        return Err(damaged());
    }
    Ok(Definition { source: Source::Files, ..captured })
}

/// The heads of a session, oldest first, and when the latest was put.
#[derive(Default)]
struct Heads {
    names: Vec<String>,
    put_at: i64,
}

fn shown(head: Head) -> CloudSession {
    let Head { session, agent_name, title, turns, status, seq, snapshot, at, .. } = head;
    CloudSession { session, agent_name, title, turns, status, seq, snapshot, at }
}

/// The log of a set, and what it says.
fn log_of(shelf: &Shelf, head: &Head) -> Result<(Vec<LogEntry>, History), CloudError> {
    if head.log.iter().map(|segment| segment.part.bytes).fold(0, u64::saturating_add) > MAX_LOG {
        return Err(CloudError::Damaged(format!(
            "the log of {}, which is too long,",
            head.session
        )));
    }
    let (mut log, mut history) = (Vec::new(), History::default());
    for segment in &head.log {
        let damaged = || CloudError::Damaged(segment.part.name.clone());
        let lines = shelf.get_part(&segment.part, MAX_SEGMENT)?;
        let lines = String::from_utf8(lines).map_err(|_| damaged())?;
        for line in lines.lines() {
            // Its digest is right: whoever wrote it knew more than is known here.
            let newer = |_| {
                let what = format!("an entry of {}", segment.part.name);
                CloudError::TooNew { what, version: head.version.saturating_add(1) }
            };
            let entry = entry(line).map_err(newer)?;
            history.read(&entry).map_err(|_| damaged())?;
            log.push(entry);
        }
        if history.last_seq() != segment.last {
            return Err(damaged());
        }
    }
    Ok((log, history))
}

/// A directory that is gone when this is.
struct Aside(PathBuf);

impl Aside {
    /// One that nobody else has: several are made at once of the same agent.
    fn new(parent: &Path) -> io::Result<Self> {
        fs::create_dir_all(parent)?;
        Ok(Self(parent.join(random_name()?)))
    }
}

/// Where an import from the cloud may put things.
pub(super) fn aside(data: &Path) -> PathBuf {
    data.join(ASIDE)
}

/// Removes what an import left that was cut short.
pub(super) fn clear_aside(data: &Path) -> io::Result<()> {
    match fs::remove_dir_all(aside(data)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        let _left_behind = fs::remove_dir_all(&self.0);
    }
}
