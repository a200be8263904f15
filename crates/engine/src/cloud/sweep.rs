//! A look through what the bucket has of a tenant: what no session there needs any more goes.
//!
//! Several servers share a bucket and know nothing of each other's sessions. So what is needed is said by the bucket
//! alone: the latest heads of each session name its agent and its files, and the record of the last all snapshots.
//! Whatever nobody has named for a day goes: parts of logs, records, agents, snapshots. Agents are put aside and snapshots forgotten first, which
//! can be taken back for a day. Whoever puts a head looks afterwards whether all is there (`still`), and who removes
//! something looks for new heads afterwards: one of the two sees the other. Bytes are removed by the collection of the
//! repository, which needs no agreement (crates/snapshot/FORMAT.md). That only one server does it at a time saves
//! requests, and no more.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ash_core::id::{SessionId, SnapshotId, TenantId};
use ash_core::time::Timestamp;
use ash_snapshot::objects::Listed;
use ash_snapshot::{Collect, Others, Repository, SnapshotError};

use super::error::CloudError;
use super::place::Shelf;
use super::set::{AgentRecord, Head, MAX_AGENT, MAX_RECORD, Record, versioned};
use super::tidy::KEPT_HEADS;
use crate::archive::{ours, theirs};
use crate::host::Collected;

/// How often a tenant's part of the bucket is looked through, by whichever server.
pub(super) const EVERY: Duration = Duration::from_secs(24 * 60 * 60);

/// Where servers say that they look through it.
const SWEEPS: &str = "sweeps/";

/// Where agents lie, and where those lie that nobody needs, with the time when they were put there.
const AGENTS: &str = "agents/";
const ASIDE: &str = "aside/";

/// How often it is begun anew because heads went while they were read.
const ATTEMPTS: usize = 3;

/// What a look through the bucket is told.
pub(super) struct Sweep<'a> {
    pub(super) tenant: &'a TenantId,
    pub(super) now: Timestamp,
    /// What was put after this is left alone.
    pub(super) before: Timestamp,
    pub(super) go_on: &'a (dyn Fn() -> bool + Sync),
    /// Puts a snapshot again that is needed and not whole, if it is whole on this machine. Is told whose it is.
    pub(super) mend: &'a dyn Fn(SnapshotId, BTreeSet<SessionId>),
}

/// What the heads say is needed.
#[derive(Default)]
struct Named {
    /// All heads that were read.
    heads: BTreeSet<String>,
    /// Parts of their sessions: of all heads, not only of the latest.
    parts: BTreeSet<String>,
    agents: BTreeSet<String>,
    snapshots: BTreeSet<SnapshotId>,
    /// Whose they are.
    owners: BTreeSet<(SnapshotId, SessionId)>,
}

impl Named {
    fn needs(&mut self, session: SessionId, snapshot: SnapshotId) {
        self.snapshots.insert(snapshot);
        self.owners.insert((snapshot, session));
    }

    fn sessions_of(&self, snapshot: SnapshotId) -> BTreeSet<SessionId> {
        let owners = self.owners.iter().filter(|(of, _)| *of == snapshot);
        owners.map(|(_, session)| *session).collect()
    }
}

impl Shelf {
    /// Whether it is time to look through it, and this server's turn.
    pub(super) fn is_my_turn(&self, writer: &str, now: Timestamp) -> Result<bool, CloudError> {
        let every = i64::try_from(EVERY.as_millis()).unwrap_or(i64::MAX);
        let said_at = |listed: &Listed| listed.name.strip_prefix(SWEEPS)?.get(..15)?.parse().ok();
        let is_recent = |listed: &Listed| {
            said_at(listed).is_some_and(|at: i64| at > now.as_millis().saturating_sub(every))
        };
        if self.list(SWEEPS)?.iter().any(is_recent) {
            return Ok(false);
        }
        let mine = format!("{SWEEPS}{:015}-{writer}", now.as_millis());
        self.put(&mine, writer.as_bytes())?;
        let listed = self.list(SWEEPS)?;
        // Of several that came at once it is the first one's.
        let is_mine = listed.iter().find(|it| is_recent(it)).is_some_and(|it| it.name == mine);
        for listed in listed.iter().filter(|listed| !is_recent(listed)) {
            self.delete(&listed.name)?;
        }
        if !is_mine {
            self.delete(&mine)?;
        }
        Ok(is_mine)
    }

    /// Removes what nobody has needed for long. Blocks.
    pub(super) fn sweep(&self, sweep: &Sweep<'_>) -> Result<Collected, CloudError> {
        let mut collected = Collected::default();
        // What is there before what names it: what comes meanwhile is not looked at.
        let snapshots = self.repository.put_times()?;
        let agents = self.list(AGENTS)?;
        for _ in 0..ATTEMPTS {
            let listed = self.list("sessions/")?;
            let Some(named) = self.named(sweep, &listed, &BTreeSet::new())? else { continue };
            self.put_back(&named)?;
            let (mut lost, mut recorded) = (BTreeSet::new(), Vec::new());
            for id in named.snapshots.iter().filter(|_| (sweep.go_on)()) {
                match self.recall(*id)? {
                    true => recorded.push(theirs(*id)),
                    false => drop(lost.insert(*id)),
                }
            }
            let mut recorded = recorded.into_iter().take_while(|_| (sweep.go_on)());
            lost.extend(self.repository.lacking(&mut recorded)?.into_iter().map(ours));
            for id in lost.into_iter().filter(|_| (sweep.go_on)()) {
                (sweep.mend)(id, named.sessions_of(id));
            }
            let is_old = |listed: &&Listed| listed.put_at <= sweep.before.as_millis();
            for part in listed.iter().filter(is_old).filter(|_| (sweep.go_on)()) {
                if !is_head(&part.name) && !named.parts.contains(&part.name) {
                    self.delete(&part.name)?;
                }
            }
            let mut needed = named.snapshots.clone();
            for agent in agents.iter().filter(|_| (sweep.go_on)()) {
                if named.agents.contains(&agent.name) || !is_old(&agent) {
                    needed.extend(self.directory_of(&agent.name)?);
                } else {
                    self.put_aside(&agent.name, sweep.now)?;
                }
            }
            let old = snapshots.iter().filter(|(_, put_at)| **put_at <= sweep.before.as_millis());
            for id in old.map(|(id, _)| *id).filter(|id| !needed.contains(&ours(*id))) {
                if (sweep.go_on)() && self.forget(id)? {
                    collected.forgotten += 1;
                }
            }
            self.look_again(sweep, &named)?;
            break;
        }
        self.clear_aside(sweep.now)?;
        if (sweep.go_on)() && self.repository.awaits_collection()? {
            let collect = Collect { others: Others::MayCapture, progress: &|_| (sweep.go_on)() };
            match self.repository.collect(&collect) {
                Ok((done, _)) => collected.removed_bytes = done.removed_bytes,
                Err(SnapshotError::Cancelled) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(collected)
    }

    /// What is needed; nothing, if that changed while it was read. What cannot be read could need anything: then
    /// nothing is removed.
    fn named(
        &self,
        sweep: &Sweep<'_>,
        listed: &[Listed],
        but: &BTreeSet<String>,
    ) -> Result<Option<Named>, CloudError> {
        let mut by_session: BTreeMap<SessionId, Vec<&str>> = BTreeMap::new();
        for name in listed.iter().map(|listed| listed.name.as_str()).filter(|name| is_head(name)) {
            let session = name.split('/').nth(1).and_then(|id| id.parse().ok());
            let session = session.ok_or_else(|| CloudError::Damaged(name.to_owned()))?;
            if !but.contains(name) {
                by_session.entry(session).or_default().push(name);
            }
        }
        let mut named = Named::default();
        for (session, names) in by_session {
            if !(sweep.go_on)() {
                return Ok(None);
            }
            let mut latest: Option<Head> = None;
            let kept = names.len().saturating_sub(KEPT_HEADS);
            for (index, name) in names.into_iter().enumerate() {
                let Some(head) = self.head(name, (sweep.tenant, session))? else { return Ok(None) };
                named.heads.insert(name.to_owned());
                named.parts.extend(head.log.iter().map(|segment| segment.part.name.clone()));
                named.parts.insert(head.record.name.clone());
                named.parts.extend(head.attachments.iter().map(|there| there.part.name.clone()));
                if index >= kept {
                    // Of the one before the latest what an import needs, should that be damaged.
                    named.needs(session, head.snapshot);
                    named.agents.insert(head.agent.name.clone());
                }
                latest = Some(head);
            }
            let Some(head) = latest else { continue };
            let Some(record) = self.find_part(&head.record, MAX_RECORD)? else { return Ok(None) };
            let record: Record = versioned(&record, &head.record.name)?;
            record.snapshots.iter().for_each(|kept| named.needs(session, kept.captured.id));
        }
        Ok(Some(named))
    }

    /// Looks for heads that came while something was removed, and puts back what they need.
    fn look_again(&self, sweep: &Sweep<'_>, seen: &Named) -> Result<(), CloudError> {
        for _ in 0..ATTEMPTS {
            let listed = self.list("sessions/")?;
            if let Some(named) = self.named(sweep, &listed, &seen.heads)? {
                return self.put_back(&named);
            }
        }
        // The next look does it.
        Ok(())
    }

    /// Puts back what was taken away though it is needed.
    fn put_back(&self, named: &Named) -> Result<(), CloudError> {
        let mut needed = named.snapshots.clone();
        for aside in self.list(ASIDE)? {
            let Some(name) = name_of(&aside.name) else { continue };
            if named.agents.contains(&name)
                && self.get(&name, MAX_AGENT)?.is_none()
                && let Some(agent) = self.get(&aside.name, MAX_AGENT)?
            {
                self.put(&name, &agent)?;
            }
        }
        for agent in &named.agents {
            needed.extend(self.directory_of(agent)?);
        }
        for id in self.repository.recallable()? {
            if needed.contains(&ours(id)) && !self.repository.recall(id)? {
                tracing::error!("snapshot {id} in the cloud is needed, and was collected");
            }
        }
        Ok(())
    }

    /// The snapshot that has the directory of an agent.
    fn directory_of(&self, agent: &str) -> Result<Option<SnapshotId>, CloudError> {
        let Some(described) = self.get(agent, MAX_AGENT)? else { return Ok(None) };
        let described: AgentRecord = versioned(&described, agent)?;
        Ok(Some(described.snapshot))
    }

    fn put_aside(&self, agent: &str, now: Timestamp) -> Result<(), CloudError> {
        let Some(described) = self.get(agent, MAX_AGENT)? else { return Ok(()) };
        let name = agent.strip_prefix(AGENTS).unwrap_or(agent);
        self.put(&format!("{ASIDE}{name}.{:015}", now.as_millis()), &described)?;
        self.delete(agent)
    }

    /// Removes what was put aside a day ago: as long as snapshots that were forgotten can be recalled.
    fn clear_aside(&self, now: Timestamp) -> Result<(), CloudError> {
        let day = i64::try_from(Repository::GRACE.as_millis()).unwrap_or(i64::MAX);
        let before = now.as_millis().saturating_sub(day);
        for old in self.list(ASIDE)?.iter().filter(|aside| aside.put_at <= before) {
            self.delete(&old.name)?;
        }
        Ok(())
    }

    /// Forgets a snapshot, if it is one of ours: others may keep theirs here too.
    fn forget(&self, id: ash_snapshot::SnapshotId) -> Result<bool, CloudError> {
        let snapshot = match self.repository.snapshot(id) {
            Ok(snapshot) => snapshot,
            // By somebody else, or nobody can tell whose it is.
            Err(SnapshotError::Missing(_) | SnapshotError::Damaged { .. }) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let source = snapshot.source.as_deref();
        let is_ours = |of: &str| of.parse::<SessionId>().is_ok() || of.starts_with("agent ");
        if !source.is_some_and(is_ours) {
            return Ok(false);
        }
        match self.repository.forget(id) {
            Ok(()) => Ok(true),
            Err(SnapshotError::Missing(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

fn is_head(name: &str) -> bool {
    name.split('/').nth(2) == Some("heads")
}

/// What an agent was called that was put aside.
fn name_of(aside: &str) -> Option<String> {
    let (name, _when) = aside.strip_prefix(ASIDE)?.rsplit_once('.')?;
    Some(format!("{AGENTS}{name}"))
}
