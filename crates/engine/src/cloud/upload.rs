//! Bringing a session to the cloud: its latest snapshot, its log, what it is, and last the head that names them.
//!
//! Whoever is killed on the way leaves objects that no head names. The next attempt finds what of them it can use
//! by name, and old ones go with the next sets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ash_core::id::{SessionId, SnapshotId, TenantId};
use ash_core::json::Json;
use ash_core::number::Seq;
use ash_core::session::LogEntry;
use ash_core::time::Timestamp;
use ash_snapshot::{Capture, Root, State};
use ash_store::{Agent, Place, Settings, Store, StoreError, StoredSession};
use serde_json::Value;

use super::error::CloudError;
use super::place::Shelf;
use super::set::{
    AgentRecord, Head, MAX_AGENT, Part, Record, SEGMENT_BYTES, Segment, VERSION, digest_of,
    heads_of, line, place_of, versioned,
};
use super::{Cloud, blocking};
use crate::agent::Definition;
use crate::archive::{ours, theirs};

/// How many entries are read at once.
const PAGE: u32 = 1_000;

/// How many snapshots a record names: the latest.
const MAX_SNAPSHOTS: u32 = 10_000;

/// How many sets of a session are kept, and how many there are before the others go.
const KEPT_HEADS: usize = 2;
const MAX_HEADS: usize = 6;

/// How long it may take from the first object that is put to the head that names it: half as long as others wait
/// before they remove what no head names.
const MOST_BETWEEN: Duration = Duration::from_secs(12 * 60 * 60);

/// What in the options of a session is a secret, or stands for one.
const SECRETS_OF_SESSIONS: [&str; 3] = ["sealed", "shown", "credentialId"];

/// The same, of the settings of an agent.
const SECRETS_OF_AGENTS: [&str; 2] = ["sealed", "names"];

/// Whether a set is made though there is one already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Anew {
    /// No.
    No,
    /// Yes, if other snapshots are there than it says.
    Named,
    /// Yes: the session has none of its own yet. What it says is there was put by others: it is looked for first.
    Own,
}

impl Cloud {
    /// Brings a session to the cloud as it stands now, unless its latest snapshot is there.
    pub(super) async fn bring_up(
        &self,
        store: &dyn Store,
        session: SessionId,
        now: Timestamp,
        anew: Anew,
    ) -> Result<(), CloudError> {
        let Some(stored) = known(store, session).await? else { return Ok(()) };
        let Some(last) = stored.session.persistence().last() else { return Ok(()) };
        let id = last.captured.id;
        let row = match store.snapshot(session, id).await {
            Ok(row) => row,
            // It is not kept any more.
            Err(StoreError::NotFound(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        if row.places.cloud && anew == Anew::No {
            return Ok(());
        }
        let record = &stored.record;
        let agent = store.agent_version(&record.tenant, &record.agent_name, record.agent_version);
        let agent = agent.await?;
        let tenant = &record.tenant;
        if !row.places.cloud {
            self.bring_up_snapshot(tenant, id).await?;
        }
        if anew == Anew::Own {
            self.look_for(store, tenant, session).await?;
        }
        // What is put from now on and no head names yet is left alone for a day.
        let begun = Instant::now();
        let (shelf, earlier) = {
            let (this, tenant) = (self.clone(), tenant.clone());
            blocking(move || {
                let shelf = this.0.remote.shelf(&tenant)?;
                let earlier = shelf.latest_head(&tenant, session)?;
                Ok((shelf, earlier))
            })
            .await?
        };
        let log = self.bring_up_log(store, &shelf, &stored, earlier.as_ref()).await?;
        let agent = {
            let (this, shelf) = (self.clone(), Arc::clone(&shelf));
            blocking(move || this.bring_up_agent(&shelf, &agent)).await?
        };
        let (agent, described_agent) = agent;
        let snapshots = store.snapshots(session, MAX_SNAPSHOTS).await?;
        let there = snapshots.into_iter().rev();
        let there = there.filter(|row| row.places.cloud || row.snapshot.captured.id == id);
        let described = Record {
            version: VERSION,
            agent_name: record.agent_name.clone(),
            agent_version: record.agent_version,
            parent: record.parent,
            created_at: record.created_at,
            settings: Settings {
                config: without(&record.settings.config, &SECRETS_OF_SESSIONS)?,
                ..record.settings.clone()
            },
            snapshots: there.map(|row| row.snapshot).collect(),
        };
        let (epoch, seq) = (stored.session.log_epoch(), stored.session.last_seq());
        let stem = format!("{}records/{:010}-{:020}", place_of(session), epoch.get(), seq.get());
        let described = serde_json::to_vec(&described).map_err(CloudError::here)?;
        let mut head = Head {
            version: VERSION,
            session,
            tenant: tenant.clone(),
            epoch,
            seq,
            snapshot: id,
            edition: 0,
            snapshot_seq: last.seq,
            at: now,
            writer: self.0.writer.clone(),
            agent_name: record.agent_name.clone(),
            title: record.settings.title.clone(),
            turns: stored.session.lineage().turns(),
            log,
            record: Part { name: String::new(), bytes: 0, blake3: String::new() },
            agent,
        };
        let this = self.clone();
        blocking(move || {
            if head.follows(earlier.as_ref(), &described) {
                head.record = shelf.put_part(&stem, &described)?;
                if begun.elapsed() > MOST_BETWEEN {
                    return Err(CloudError::Unavailable("it took too long".to_owned()));
                }
                shelf.put(&head.name(), &head.encode())?;
            }
            this.still_there(&shelf, &head, &described_agent)?;
            tidy_up(&shelf, &head)
        })
        .await?;
        match store.found_snapshot(session, id, Place::Cloud).await {
            // It was forgotten meanwhile.
            Ok(()) | Err(StoreError::NotFound(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Brings an older snapshot of a session to the cloud, unless it is there; and a head that names it.
    pub(super) async fn bring_up_older(
        &self,
        store: &dyn Store,
        session: SessionId,
        id: SnapshotId,
        now: Timestamp,
    ) -> Result<(), CloudError> {
        let Some(stored) = known(store, session).await? else { return Ok(()) };
        let is_last = stored.session.persistence().last().is_some_and(|it| it.captured.id == id);
        match store.snapshot(session, id).await {
            Ok(row) if row.places.cloud && is_last => return Ok(()),
            // Whoever has brought it up may have been killed before it was named.
            Ok(row) if row.places.cloud => {}
            Ok(_) => {
                self.bring_up_snapshot(&stored.record.tenant, id).await?;
                match store.found_snapshot(session, id, Place::Cloud).await {
                    Ok(()) => {}
                    Err(StoreError::NotFound(_)) => return Ok(()),
                    Err(error) => return Err(error.into()),
                }
            }
            Err(StoreError::NotFound(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        self.bring_up(store, session, now, Anew::Named).await?;
        let (this, tenant) = (self.clone(), stored.record.tenant.clone());
        let recall = move || {
            let _is_there = this.0.remote.shelf(&tenant)?.repository.recall(theirs(id))?;
            Ok(())
        };
        blocking(recall).await
    }

    pub(super) async fn bring_up_snapshot(
        &self,
        tenant: &TenantId,
        id: SnapshotId,
    ) -> Result<(), CloudError> {
        let (this, tenant) = (self.clone(), tenant.clone());
        blocking(move || this.0.archive.bring_up(&tenant, id)).await
    }

    /// Adds what the log has more than the last set. Parts that are no longer than what comes after them are put
    /// again with it, so that there are few.
    async fn bring_up_log(
        &self,
        store: &dyn Store,
        shelf: &Arc<Shelf>,
        stored: &StoredSession,
        earlier: Option<&Head>,
    ) -> Result<Vec<Segment>, CloudError> {
        let session = stored.session.id();
        let (epoch, end) = (stored.session.log_epoch(), stored.session.last_seq());
        let mut segments = match earlier {
            Some(earlier) if earlier.epoch > epoch => return Err(CloudError::Elsewhere),
            Some(earlier) if earlier.epoch == epoch => {
                if earlier.writer != self.0.writer || earlier.seq > end {
                    return Err(CloudError::Elsewhere);
                }
                earlier.log.clone()
            }
            Some(_) | None => Vec::new(),
        };
        let mut after = keep_few(&mut segments, end);
        let mut open = OpenSegment::default();
        let stem = format!("{}log/{:010}", place_of(session), epoch.get());
        while after < end {
            let entries = store.events_after(session, after, PAGE).await?;
            let entries: Vec<LogEntry> =
                entries.into_iter().take_while(|entry| entry.seq <= end).collect();
            let Some(last) = entries.last() else {
                return Err(CloudError::here(format!("the log of {session} ends at {after}")));
            };
            after = last.seq;
            for entry in entries {
                open.add(&entry)?;
                if open.lines.len() >= SEGMENT_BYTES {
                    segments.push(open.put(shelf, &stem).await?);
                }
            }
        }
        if !open.lines.is_empty() {
            segments.push(open.put(shelf, &stem).await?);
        }
        Ok(segments)
    }

    /// Puts what an agent is, unless it is there. Blocks.
    fn bring_up_agent(&self, shelf: &Shelf, agent: &Agent) -> Result<(Part, Vec<u8>), CloudError> {
        let definition: Definition =
            serde_json::from_str(agent.definition.get()).map_err(CloudError::here)?;
        let digest = &definition.digest;
        let settings = without(&agent.settings, &SECRETS_OF_AGENTS)?;
        // Settings change without the files: each is an object of its own.
        let name = format!("agents/{digest}-{}.json", &digest_of(settings.get().as_bytes())[..16]);
        let part = |bytes: &[u8]| Part {
            name: name.clone(),
            bytes: bytes.len() as u64,
            blake3: digest_of(bytes),
        };
        if let Some(there) = shelf.get(&name, MAX_AGENT)? {
            let _readable: AgentRecord = versioned(&there, &name)?;
            return Ok((part(&there), there));
        }
        let directory = self.0.library.directory(&definition);
        let roots = [Root { name: "agent", path: &directory, excluded: &[] }];
        let source = format!("agent {digest}");
        let captured = shelf.repository.capture(
            &Capture {
                roots: &roots,
                source: Some(&source),
                parent: None,
                label: None,
                unless_like: None,
                freeze: None,
                threads: 1,
                progress: &|_| true,
            },
            &mut State::default(),
        )?;
        let snapshot = ours(captured.snapshot.id);
        let described =
            AgentRecord { version: VERSION, digest: digest.clone(), snapshot, settings };
        let described = serde_json::to_vec(&described).map_err(CloudError::here)?;
        shelf.put(&name, &described)?;
        // Whoever came first is named.
        let there = shelf.get(&name, MAX_AGENT)?;
        let there = there.ok_or_else(|| CloudError::NotFound(name.clone()))?;
        Ok((part(&there), there))
    }
}

/// A session, if anybody may still know of it.
async fn known(
    store: &dyn Store,
    session: SessionId,
) -> Result<Option<Arc<StoredSession>>, CloudError> {
    let found = match store.session_record(session).await {
        Ok(record) => store.session(&record.tenant, session).await,
        Err(error) => Err(error),
    };
    match found {
        Ok(stored) => Ok(Some(stored)),
        Err(StoreError::NotFound(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Drops parts that are to be put again with what follows; returns where the others end.
fn keep_few(segments: &mut Vec<Segment>, end: Seq) -> Seq {
    let end_of = |segments: &[Segment]| segments.last().map_or(Seq::ZERO, |last| last.last);
    let mut more = end.get().saturating_sub(end_of(segments).get());
    if more == 0 {
        return end_of(segments);
    }
    while let Some(last) = segments.last() {
        let entries = last.last.get() - last.first.get() + 1;
        if entries > more || last.part.bytes >= SEGMENT_BYTES as u64 {
            break;
        }
        more += entries;
        segments.pop();
    }
    end_of(segments)
}

/// A part of a log that grows.
#[derive(Default)]
struct OpenSegment {
    first: Seq,
    last: Seq,
    lines: Vec<u8>,
}

impl OpenSegment {
    fn add(&mut self, entry: &LogEntry) -> Result<(), CloudError> {
        if self.lines.is_empty() {
            self.first = entry.seq;
        }
        self.last = entry.seq;
        self.lines.extend_from_slice(line(entry).map_err(CloudError::here)?.as_bytes());
        Ok(())
    }

    async fn put(&mut self, shelf: &Arc<Shelf>, stem: &str) -> Result<Segment, CloudError> {
        let Self { first, last, lines } = std::mem::take(self);
        let stem = format!("{stem}-{:020}-{:020}", first.get(), last.get());
        let shelf = Arc::clone(shelf);
        let part = blocking(move || shelf.put_part(&stem, &lines)).await?;
        Ok(Segment { first, last, part })
    }
}

/// Removes sets that are not the latest, once there are some; and what then no set needs.
fn tidy_up(shelf: &Shelf, latest: &Head) -> Result<(), CloudError> {
    let session = latest.session;
    let names = shelf.heads(session)?;
    if names.len() <= MAX_HEADS || names.last() != Some(&latest.name()) {
        return Ok(());
    }
    let (old, kept) = names.split_at(names.len() - KEPT_HEADS);
    let mut needed = BTreeSet::new();
    for name in kept {
        let Some(head) = shelf.head(name, (&latest.tenant, session))? else { return Ok(()) };
        needed.extend(head.log.into_iter().map(|segment| segment.part.name));
        needed.insert(head.record.name);
    }
    for name in old {
        shelf.delete(name)?;
    }
    let heads = heads_of(session);
    for listed in shelf.list(&place_of(session))? {
        if !listed.name.starts_with(&heads) && !needed.contains(&listed.name) {
            shelf.delete(&listed.name)?;
        }
    }
    Ok(())
}

/// An object without some of its fields.
fn without(json: &Json, names: &[&str]) -> Result<Json, CloudError> {
    let mut fields: BTreeMap<String, Value> =
        serde_json::from_str(json.get()).map_err(CloudError::here)?;
    fields.retain(|name, _| !names.contains(&name.as_str()));
    Json::of(&fields).map_err(CloudError::here)
}

impl crate::archive::Archive {
    /// Copies a snapshot to the cloud, unless it is there. Blocks.
    pub(super) fn bring_up(&self, tenant: &TenantId, id: SnapshotId) -> Result<(), CloudError> {
        let Some(remote) = self.remote() else {
            return Err(CloudError::Unfit("there is none".to_owned()));
        };
        let here = self.repository(tenant)?;
        let shelf = remote.shelf(tenant)?;
        // What is wrong here is no fault of the cloud.
        here.snapshot(theirs(id)).map_err(CloudError::here)?;
        let copied = shelf.repository.replicate(&super::copy_of(&here, id))?;
        metrics::counter!("ash_cloud_bytes_total", "way" => "up").increment(copied.stored_bytes);
        Ok(())
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn segment(first: u64, last: u64, bytes: usize) -> Segment {
        let part = Part { name: String::new(), bytes: bytes as u64, blake3: String::new() };
        Segment { first: Seq::new(first), last: Seq::new(last), part }
    }

    #[test]
    fn a_log_has_few_parts_however_often_it_grows() {
        let mut segments = Vec::new();
        let mut put = 0;
        for end in 1..=4_096_u64 {
            let after = keep_few(&mut segments, Seq::new(end));
            put += end - after.get();
            segments.push(segment(after.get() + 1, end, 1));
            assert!(segments.len() <= 13, "{} parts at {end}", segments.len());
        }
        assert!(put <= 4_096 * 14, "{put} entries were put");
    }

    #[test]
    fn a_part_that_is_long_enough_is_not_put_again() {
        let mut segments = vec![segment(1, 10, SEGMENT_BYTES), segment(11, 12, 1)];
        assert_eq!(keep_few(&mut segments, Seq::new(100)), Seq::new(10));
        assert_eq!(segments.len(), 1);
        assert_eq!(keep_few(&mut segments, Seq::new(10)), Seq::new(10));
    }

    #[test]
    fn secrets_are_left_out() {
        let options = r#"{"systemPrompt":"be kind","sealed":"AAAA","shown":{},"credentialId":"x"}"#;
        let options = Json::parse(options.to_owned()).unwrap();
        let left = without(&options, &SECRETS_OF_SESSIONS).unwrap();
        assert_eq!(left.get(), r#"{"systemPrompt":"be kind"}"#);
    }
}
