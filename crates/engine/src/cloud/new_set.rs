//! Making a set: the log, what the session and its agent are, and last the head that names them.
//!
//! The files are there already: whoever makes a set has copied the snapshots that it names.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ash_core::id::TenantId;
use ash_core::json::Json;
use ash_core::snapshot::Snapshot;
use ash_core::time::Timestamp;
use ash_snapshot::objects::Put;
use ash_snapshot::{Capture, Root, State};
use ash_store::{Agent, Settings, Store, StoredSession};
use serde_json::Value;

use super::attached::AttachedRecord;
use super::error::CloudError;
use super::place::Shelf;
use super::set::{
    AgentRecord, Head, MAX_AGENT, MAX_HEAD, MAX_NAMES, MAX_RECORD, Part, Record, UNATTACHED,
    VERSION, digest_of, place_of, versioned,
};
use super::{blocking, log};
use crate::agent::{Definition, Library};
use crate::archive::ours;

/// How long it may take from the first object that is put to the head that names it: half as long as others wait
/// before they remove what no head names.
const MOST_BETWEEN: Duration = Duration::from_secs(12 * 60 * 60);

/// What in the options of a session is a secret, or stands for one.
pub(super) const SECRETS_OF_SESSIONS: [&str; 4] =
    ["sealed", "shown", "credentialId", "credentialIds"];

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
    /// The how-manieth of its epoch it is there.
    pub(crate) number: u64,
    pub(crate) stored: &'a StoredSession,
    /// What it is, and which snapshots there are of it, as [`described`] says it.
    pub(crate) described: Vec<u8>,
    /// What is attached to it, as that says it too, and where their bytes lie.
    pub(crate) attachments: Vec<AttachedRecord>,
    pub(crate) attached_in: Option<PathBuf>,
    /// Its files.
    pub(crate) last: &'a Snapshot,
    pub(crate) at: Timestamp,
}

/// The version of something that has attachments, or has none.
fn version_of<T>(attachments: &[T]) -> u32 {
    if attachments.is_empty() { UNATTACHED } else { VERSION }
}

/// A set that is there.
pub(crate) struct NewHead {
    pub(super) head: Head,
    /// What its agent is, as the head names it.
    pub(super) agent: Vec<u8>,
}

/// What a session is, beside its log and without secrets, with snapshots of it, oldest first.
pub(crate) fn described(
    stored: &StoredSession,
    snapshots: Vec<Snapshot>,
    attachments: Vec<AttachedRecord>,
) -> Result<Vec<u8>, CloudError> {
    let record = &stored.record;
    let described = Record {
        version: version_of(&attachments),
        agent_name: record.agent_name.clone(),
        agent_version: record.agent_version,
        parent: record.parent,
        created_at: record.created_at,
        settings: Settings {
            config: without(&record.settings.config, &SECRETS_OF_SESSIONS)?,
            ..record.settings.clone()
        },
        snapshots,
        attachments,
    };
    let described = serde_json::to_vec(&described).map_err(CloudError::here)?;
    if described.len() as u64 > MAX_RECORD {
        return Err(CloudError::TooLarge(format!("the record of session {}", record.id)));
    }
    Ok(described)
}

impl NewSet<'_> {
    /// Puts everything that is not there since an earlier set of this epoch, and the head.
    pub(crate) async fn put(self, earlier: Option<&Head>) -> Result<NewHead, CloudError> {
        // What is put from now on and no head names yet is left alone for a day.
        let begun = Instant::now();
        let Self { store, library, shelf, tenant, writer, number, stored, .. } = self;
        let Self { described, attachments, attached_in, last, at, .. } = self;
        let session = stored.session.id();
        let record = &stored.record;
        let agent = store.agent_version(&record.tenant, &record.agent_name, record.agent_version);
        let agent = agent.await?;
        let log = log::bring_up(store, shelf, stored, earlier).await?;
        let (agent, described_agent) = {
            let (shelf, library) = (Arc::clone(shelf), library.clone());
            blocking(move || put_agent(&shelf, &library, &agent)).await?
        };
        let (epoch, seq) = (stored.session.log_epoch(), stored.session.last_seq());
        let stem = format!("{}records/{:010}-{:020}", place_of(session), epoch.get(), seq.get());
        let attached = match attached_in {
            Some(directory) if !attachments.is_empty() => {
                let (shelf, earlier) = (Arc::clone(shelf), earlier.cloned());
                let put = move || {
                    shelf.put_attached((session, epoch), &attachments, &directory, earlier.as_ref())
                };
                blocking(put).await?
            }
            Some(_) | None => Vec::new(),
        };
        let mut head = Head {
            version: version_of(&attached),
            session,
            tenant: tenant.clone(),
            epoch,
            number,
            seq,
            end: log.end,
            snapshot: last.captured.id,
            snapshot_seq: last.seq,
            at,
            writer: writer.to_owned(),
            agent_name: record.agent_name.clone(),
            title: record.settings.title.clone(),
            turns: stored.session.lineage().turns(),
            status: Some(stored.session.status().as_str().to_owned()),
            log: log.segments,
            record: Part { name: String::new(), bytes: 0, blake3: String::new(), stored: None },
            agent,
            attachments: attached,
        };
        let shelf = Arc::clone(shelf);
        blocking(move || {
            head.record = shelf.put_part(&stem, &described)?;
            if begun.elapsed() > MOST_BETWEEN {
                return Err(CloudError::Unavailable("it took too long".to_owned()));
            }
            put_head(&shelf, &mut head)?;
            Ok(NewHead { head, agent: described_agent })
        })
        .await
    }
}

/// Puts a head. If somebody else has put one in its place meanwhile, it is another server's session now, or this
/// one's that was copied: then it comes after that. Blocks.
fn put_head(shelf: &Shelf, head: &mut Head) -> Result<(), CloudError> {
    for _ in 0..MAX_NAMES {
        let (name, bytes) = (head.name(), head.encode());
        if shelf.put(&name, &bytes)? == Put::Created
            || shelf.get(&name, MAX_HEAD)?.as_deref() == Some(&bytes)
        {
            return Ok(());
        }
        let there = match shelf.head(&name, (&head.tenant, head.session)) {
            Err(CloudError::Damaged(_)) => None,
            there => there?,
        };
        if there.is_some_and(|there| there.writer != head.writer) {
            return Err(CloudError::Elsewhere);
        }
        head.number += 1;
    }
    Err(CloudError::Unavailable(format!("others put heads of {}", head.session)))
}

/// Puts what an agent is, unless it is there, and says what is there then. What has its name and cannot be read, or
/// whose directory cannot, stays, and it gets another. Blocks.
fn put_agent(
    shelf: &Shelf,
    library: &Library,
    agent: &Agent,
) -> Result<(Part, Vec<u8>), CloudError> {
    let definition: Definition =
        serde_json::from_str(agent.definition.get()).map_err(CloudError::here)?;
    let digest = &definition.digest;
    let settings = without(&agent.settings, &SECRETS_OF_AGENTS)?;
    // Settings change without the files: each is an object of its own.
    let stem = format!("agents/{digest}-{}", &digest_of(settings.get().as_bytes())[..16]);
    for number in 0..MAX_NAMES {
        let name = match number {
            0 => format!("{stem}.json"),
            _ => format!("{stem}.{number}.json"),
        };
        if matches!(agent_there(shelf, &name)?, AgentThere::Nothing) {
            let described = describe_agent(shelf, library, &definition, settings.clone())?;
            shelf.put(&name, &described)?;
        }
        // Whoever came first is named.
        if let AgentThere::Is(part, described) = agent_there(shelf, &name)? {
            return Ok((part, described));
        }
    }
    Err(CloudError::Damaged(format!("everything called {stem}")))
}

/// What has the name of an agent.
enum AgentThere {
    Nothing,
    Unreadable,
    Is(Part, Vec<u8>),
}

/// Looks what has the name of an agent. Blocks.
fn agent_there(shelf: &Shelf, name: &str) -> Result<AgentThere, CloudError> {
    let read = || {
        let Some(there) = shelf.get(name, MAX_AGENT)? else { return Ok(AgentThere::Nothing) };
        let readable: AgentRecord = versioned(&there, name)?;
        if !shelf.recall(readable.snapshot)? {
            return Ok(AgentThere::Unreadable);
        }
        let (bytes, blake3) = (there.len() as u64, digest_of(&there));
        Ok(AgentThere::Is(Part { name: name.to_owned(), bytes, blake3, stored: None }, there))
    };
    match read() {
        Err(CloudError::Damaged(_)) => Ok(AgentThere::Unreadable),
        read => read,
    }
}

/// Copies the directory of an agent, and says what the agent is. Blocks.
fn describe_agent(
    shelf: &Shelf,
    library: &Library,
    definition: &Definition,
    settings: Json,
) -> Result<Vec<u8>, CloudError> {
    let digest = &definition.digest;
    let directory = library.directory(definition);
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
    let described = AgentRecord { version: UNATTACHED, digest: digest.clone(), snapshot, settings };
    serde_json::to_vec(&described).map_err(CloudError::here)
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

    #[test]
    fn secrets_are_left_out() {
        let options = r#"{"systemPrompt":"be kind","sealed":"AAAA","shown":{},"credentialId":"x",
            "credentialIds":["y"]}"#;
        let options = Json::parse(options.to_owned()).unwrap();
        let left = without(&options, &SECRETS_OF_SESSIONS).unwrap();
        assert_eq!(left.get(), r#"{"systemPrompt":"be kind"}"#);
    }
}
