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
    AgentRecord, Head, MAX_AGENT, MAX_LOG, MAX_RECORD, MAX_SEGMENT, Record, digest_of, entry,
    line_of, versioned,
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
    pub(crate) agent: AgentRecord,
    pub(crate) log: Vec<LogEntry>,
    pub(crate) history: History,
    /// The bytes of what is attached.
    pub(crate) attached: Vec<AttachedPart>,
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

/// Everything of a session but its files, which are there: as its latest head says, or if what that names is damaged,
/// the one before it. Blocks.
pub(crate) fn fetch(
    shelf: &Shelf,
    tenant: &TenantId,
    session: SessionId,
) -> Result<Fetched, CloudError> {
    let names = shelf.heads(session)?;
    let latest = names.iter().filter_map(|name| line_of(name)).map(|(epoch, _)| epoch).max();
    let mut damage = None;
    for name in names.iter().rev() {
        match fetch_set(shelf, name, (tenant, session)) {
            Ok(Some(fetched)) => {
                if let Some(error) = &damage {
                    let error = error as &dyn std::error::Error;
                    let seq = fetched.history.last_seq();
                    tracing::warn!(
                        error, session.id = %session,
                        "the latest set of session {session} is damaged: it is imported as it was at entry {seq}"
                    );
                }
                // Nobody may take what is damaged for later than what follows.
                let epoch = latest.map_or(fetched.epoch, |latest| latest.max(fetched.epoch));
                return Ok(Fetched { epoch, ..fetched });
            }
            Ok(None) => {}
            Err(error @ CloudError::Damaged(_)) => damage = Some(damage.unwrap_or(error)),
            Err(error) => return Err(error),
        }
    }
    Err(damage.unwrap_or_else(|| CloudError::NotFound(format!("session {session}"))))
}

/// Everything that a head names but the files, which are there; nothing, if there is no such head any more. What is
/// named and not there is damage.
fn fetch_set(
    shelf: &Shelf,
    name: &str,
    (tenant, session): (&TenantId, SessionId),
) -> Result<Option<Fetched>, CloudError> {
    let Some(head) = shelf.head(name, (tenant, session))? else { return Ok(None) };
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
    let agent = shelf.get(&head.agent.name, MAX_AGENT)?;
    let agent = agent.ok_or_else(|| damaged(&head.agent.name))?;
    if digest_of(&agent) != head.agent.blake3 {
        return Err(damaged(&head.agent.name));
    }
    let mut agent: AgentRecord = versioned(&agent, &head.agent.name)?;
    // Nobody puts secrets there. What somebody has put there all the same is not taken for one of ours.
    let config = without(&record.settings.config, &SECRETS_OF_SESSIONS);
    record.settings.config = config.map_err(|_| damaged(&head.record.name))?;
    let settings = without(&agent.settings, &SECRETS_OF_AGENTS);
    agent.settings = settings.map_err(|_| damaged(&head.agent.name))?;
    let (log, history) = log_of(shelf, &head)?;
    // Before anything is made of it.
    match shelf.repository.snapshot(theirs(head.snapshot)) {
        Ok(_) => {}
        Err(SnapshotError::Missing(what)) => return Err(CloudError::Damaged(what)),
        Err(error) => return Err(error.into()),
    }
    let Head { epoch, snapshot, attachments: attached, .. } = head;
    Ok(Some(Fetched { epoch, snapshot, record, agent, log, history, attached }))
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
