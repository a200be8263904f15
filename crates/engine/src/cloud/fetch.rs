//! What is in the cloud, read back: nothing of it is believed before its digest was compared.

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
use super::error::CloudError;
use super::new_set::{SECRETS_OF_AGENTS, SECRETS_OF_SESSIONS, without};
use super::place::Shelf;
use super::set::{
    AgentRecord, Head, MAX_AGENT, MAX_RECORD, MAX_SEGMENT, Record, digest_of, entry, versioned,
};
use crate::agent::{Definition, DeployError, Library, MAX_BYTES, MAX_FILES, Source};
use crate::archive::theirs;

/// How many bytes a log may have that is brought back: all of it is recorded at once.
const MAX_LOG: u64 = 512 * 1024 * 1024;

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
}

impl Cloud {
    /// The latest sessions of a tenant that are there, newest first. Blocks.
    pub(super) fn sessions(
        &self,
        tenant: &TenantId,
        limit: usize,
    ) -> Result<Vec<CloudSession>, CloudError> {
        let shelf = self.0.remote.shelf(tenant)?;
        let mut latest: BTreeMap<SessionId, String> = BTreeMap::new();
        for listed in shelf.list("sessions/")? {
            let mut parts = listed.name.split('/').skip(1);
            let session = parts.next().and_then(|id| id.parse().ok());
            if let (Some(session), Some("heads")) = (session, parts.next()) {
                // Listed by name: the last one is the latest.
                latest.insert(session, listed.name.clone());
            }
        }
        let mut found = Vec::new();
        for (session, name) in latest.into_iter().rev().take(limit) {
            match shelf.head(&name, (tenant, session)) {
                Ok(Some(head)) => found.push(shown(head)),
                // It went meanwhile, or nobody here can use it: the others are there all the same.
                Ok(None) | Err(CloudError::Damaged(_) | CloudError::TooNew { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }
}

/// Everything of a session but its files, which are there. Blocks.
pub(crate) fn fetch(
    shelf: &Shelf,
    tenant: &TenantId,
    session: SessionId,
) -> Result<Fetched, CloudError> {
    let head = shelf.latest_head(tenant, session)?;
    let head = head.ok_or_else(|| CloudError::NotFound(format!("session {session}")))?;
    let record = shelf.get_part(&head.record, MAX_RECORD)?;
    let mut record: Record = versioned(&record, &head.record.name)?;
    let damaged = |what: &str| CloudError::Damaged(what.to_owned());
    let ids: BTreeSet<_> = record.snapshots.iter().map(|kept| kept.captured.id).collect();
    let are_right = ids.contains(&head.snapshot)
        && ids.len() == record.snapshots.len()
        && record.snapshots.iter().all(|kept| kept.seq <= head.seq);
    if !are_right {
        return Err(damaged(&head.record.name));
    }
    let agent = shelf.get(&head.agent.name, MAX_AGENT)?;
    let agent = agent.ok_or_else(|| CloudError::NotFound(head.agent.name.clone()))?;
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
    shelf.repository.snapshot(theirs(head.snapshot))?;
    let Head { epoch, snapshot, .. } = head;
    Ok(Fetched { epoch, snapshot, record, agent, log, history })
}

/// Brings the directory of an agent to where those of agents are, unless it is there. What it is made of lies aside
/// for a moment. Blocks.
pub(crate) fn fetch_agent(
    shelf: &Shelf,
    library: &Library,
    aside: &Path,
    agent: &AgentRecord,
) -> Result<Definition, CloudError> {
    let snapshot = shelf.repository.snapshot(theirs(agent.snapshot))?;
    let aside = Aside::new(aside, agent.snapshot).map_err(CloudError::here)?;
    let damaged = || CloudError::Damaged(format!("agent {}", agent.digest));
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

fn shown(head: Head) -> CloudSession {
    let Head { session, agent_name, title, turns, seq, snapshot, at, .. } = head;
    CloudSession { session, agent_name, title, turns, seq, snapshot, at }
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
            let entry = entry(line).map_err(|_| damaged())?;
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
    fn new(parent: &Path, of: SnapshotId) -> io::Result<Self> {
        fs::create_dir_all(parent)?;
        let place = Self(parent.join(of.to_string()));
        // One that was cut short left it.
        match fs::remove_dir_all(&place.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(place),
        }
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        let _left_behind = fs::remove_dir_all(&self.0);
    }
}
