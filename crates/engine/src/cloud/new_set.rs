//! Making a set: the log, what the session and its agent are, and last the head that names them.
//!
//! The files are there already: whoever makes a set has copied the snapshots that it names.

use std::collections::BTreeMap;
use std::sync::Arc;

use ash_core::id::TenantId;
use ash_core::json::Json;
use ash_core::number::Seq;
use ash_core::session::LogEntry;
use ash_core::snapshot::Snapshot;
use ash_core::time::Timestamp;
use ash_snapshot::{Capture, Root, State};
use ash_store::{Agent, Settings, Store, StoredSession};
use serde_json::Value;

use super::blocking;
use super::error::CloudError;
use super::place::Shelf;
use super::set::{
    AgentRecord, Head, MAX_AGENT, Part, Record, SEGMENT_BYTES, Segment, VERSION, digest_of, line,
    place_of, versioned,
};
use crate::agent::{Definition, Library};
use crate::archive::ours;

/// How many entries are read at once.
const PAGE: u32 = 1_000;

/// What in the options of a session is a secret, or stands for one.
pub(super) const SECRETS_OF_SESSIONS: [&str; 3] = ["sealed", "shown", "credentialId"];

/// The same, of the settings of an agent.
pub(super) const SECRETS_OF_AGENTS: [&str; 2] = ["sealed", "names"];

/// A set that is made, of a session as it was read.
pub(crate) struct NewSet<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) library: &'a Library,
    /// Where it is put.
    pub(crate) shelf: &'a Arc<Shelf>,
    /// Whose it is there.
    pub(crate) tenant: &'a TenantId,
    /// Who puts it.
    pub(crate) writer: &'a str,
    pub(crate) stored: &'a StoredSession,
    /// Its files.
    pub(crate) last: &'a Snapshot,
    /// Everything that was captured of it and is there, oldest first.
    pub(crate) snapshots: Vec<Snapshot>,
    pub(crate) at: Timestamp,
}

impl NewSet<'_> {
    /// Puts everything that is not there since an earlier set, and the head.
    pub(crate) async fn put(self, earlier: Option<&Head>) -> Result<Head, CloudError> {
        let session = self.stored.session.id();
        let record = &self.stored.record;
        let agent =
            self.store.agent_version(&record.tenant, &record.agent_name, record.agent_version);
        let agent = agent.await?;
        let log = self.put_log(earlier).await?;
        let agent = {
            let (shelf, library) = (Arc::clone(self.shelf), self.library.clone());
            blocking(move || put_agent(&shelf, &library, &agent)).await?
        };
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
            snapshots: self.snapshots,
        };
        let (epoch, seq) = (self.stored.session.log_epoch(), self.stored.session.last_seq());
        let stem = format!("{}records/{:010}-{:020}", place_of(session), epoch.get(), seq.get());
        let described = serde_json::to_vec(&described).map_err(CloudError::here)?;
        let mut head = Head {
            version: VERSION,
            session,
            tenant: self.tenant.clone(),
            epoch,
            seq,
            snapshot: self.last.captured.id,
            snapshot_seq: self.last.seq,
            at: self.at,
            writer: self.writer.to_owned(),
            agent_name: record.agent_name.clone(),
            title: record.settings.title.clone(),
            turns: self.stored.session.lineage().turns(),
            log,
            record: Part { name: String::new(), bytes: 0, blake3: String::new() },
            agent,
        };
        let shelf = Arc::clone(self.shelf);
        blocking(move || {
            head.record = shelf.put_part(&stem, &described)?;
            shelf.put(&head.name(), &head.encode())?;
            Ok(head)
        })
        .await
    }

    /// Adds what the log has more than the last set. Parts that are no longer than what comes after them are put
    /// again with it, so that there are few.
    async fn put_log(&self, earlier: Option<&Head>) -> Result<Vec<Segment>, CloudError> {
        let Self { store, shelf, stored, .. } = self;
        let session = stored.session.id();
        let (epoch, end) = (stored.session.log_epoch(), stored.session.last_seq());
        let mut segments = match earlier {
            Some(earlier) if earlier.epoch > epoch => return Err(CloudError::Elsewhere),
            Some(earlier) if earlier.epoch == epoch => {
                if earlier.writer != self.writer || earlier.seq > end {
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
}

/// Puts what an agent is, unless it is there. Blocks.
fn put_agent(shelf: &Shelf, library: &Library, agent: &Agent) -> Result<Part, CloudError> {
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
        return Ok(part(&there));
    }
    let directory = library.directory(&definition);
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
    let described = AgentRecord { version: VERSION, digest: digest.clone(), snapshot, settings };
    let described = serde_json::to_vec(&described).map_err(CloudError::here)?;
    shelf.put(&name, &described)?;
    // Whoever came first is named.
    let there = shelf.get(&name, MAX_AGENT)?;
    Ok(part(&there.ok_or_else(|| CloudError::NotFound(name.clone()))?))
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

/// An object without some of its fields.
pub(super) fn without(json: &Json, names: &[&str]) -> Result<Json, CloudError> {
    let mut fields: BTreeMap<String, Value> =
        serde_json::from_str(json.get()).map_err(CloudError::here)?;
    fields.retain(|name, _| !names.contains(&name.as_str()));
    Json::of(&fields).map_err(CloudError::here)
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
