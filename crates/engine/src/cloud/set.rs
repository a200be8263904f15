//! What of a session is in the cloud: a set of objects that never change, and a head that names them.
//!
//! A head is put last, and names everything else with its digest. A set without its head does not exist; of several
//! the last by name is the latest, and if that one cannot be read, the one before it. What is read back is believed
//! after its digest was compared, and only if it lies where this session's things lie.

use ash_core::entry::Entry;
use ash_core::id::{AgentName, SessionId, SnapshotId, TenantId};
use ash_core::json::Json;
use ash_core::number::{AgentVersion, LogEpoch, Seq};
use ash_core::session::LogEntry;
use ash_core::snapshot::Snapshot;
use ash_core::time::Timestamp;
use ash_snapshot::objects::Put;
use ash_store::Settings;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::attached::{AttachedPart, AttachedRecord};
use super::error::CloudError;
use super::place::{Shelf, random_name};

/// The version of a set with attachments. Those before it are read too.
pub(super) const VERSION: u32 = 3;

/// The version that is written of everything else: servers that know no attachments read it.
pub(super) const UNATTACHED: u32 = 2;

/// The longest head, record, and what an agent is.
pub(super) const MAX_HEAD: u64 = 1024 * 1024;
pub(super) const MAX_RECORD: u64 = 16 * 1024 * 1024;
pub(super) const MAX_AGENT: u64 = 1024 * 1024;

/// How many bytes a log may have that is copied: all of it is recorded at once when it is brought back.
pub(crate) const MAX_LOG: u64 = 512 * 1024 * 1024;

/// How many bytes of entries a part of a log has, about: the entry that reaches it is the last.
pub(super) const SEGMENT_BYTES: usize = 8 * 1024 * 1024;

/// The longest part of a log: what was reached, and one entry of the longest.
pub(super) const MAX_SEGMENT: u64 = 28 * 1024 * 1024;

/// How often something gets another name because what has its own cannot be read.
pub(super) const MAX_NAMES: u32 = 8;

/// An object of a set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Part {
    pub(super) name: String,
    /// How long it is when it is not compressed any more.
    pub(super) bytes: u64,
    /// Of what it is then.
    pub(super) blake3: String,
    /// How long it is in the bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) stored: Option<u64>,
}

/// A part of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Segment {
    pub(super) first: Seq,
    pub(super) last: Seq,
    pub(super) part: Part,
}

/// What makes a set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Head {
    pub(super) version: u32,
    pub(super) session: SessionId,
    pub(super) tenant: TenantId,
    pub(super) epoch: LogEpoch,
    /// The how-manieth of the epoch it is, about: later ones have higher numbers. The first version had none.
    #[serde(default)]
    pub(super) number: u64,
    /// Where the log ends.
    pub(super) seq: Seq,
    /// The digest of the entry that it ends with: two histories of the same length differ in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) end: Option<String>,
    pub(super) snapshot: SnapshotId,
    /// Where it ended when that was captured.
    pub(super) snapshot_seq: Seq,
    pub(super) at: Timestamp,
    /// Which server has put it.
    pub(super) writer: String,
    pub(super) agent_name: AgentName,
    pub(super) title: Option<String>,
    pub(super) turns: u32,
    /// Where the session stood.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<String>,
    pub(super) log: Vec<Segment>,
    pub(super) record: Part,
    pub(super) agent: Part,
    /// The bytes of what is attached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) attachments: Vec<AttachedPart>,
}

/// What a session is, beside its log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Record {
    pub(super) version: u32,
    pub(crate) agent_name: AgentName,
    pub(crate) agent_version: AgentVersion,
    pub(crate) parent: Option<SessionId>,
    pub(crate) created_at: Timestamp,
    /// Without secrets.
    pub(crate) settings: Settings,
    /// Oldest first; those that are in the cloud.
    pub(crate) snapshots: Vec<Snapshot>,
    /// What is attached, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) attachments: Vec<AttachedRecord>,
}

/// What an agent is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct AgentRecord {
    pub(super) version: u32,
    /// The digest of its directory.
    pub(crate) digest: String,
    /// Its directory.
    pub(crate) snapshot: SnapshotId,
    /// What it is set to, without secrets.
    pub(crate) settings: Json,
}

/// An entry of a log, as a line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    seq: Seq,
    at: Timestamp,
    entry: Entry,
}

/// Where the objects of a session lie.
pub(super) fn place_of(session: SessionId) -> String {
    format!("sessions/{session}/")
}

/// Where the heads of a session lie.
pub(super) fn heads_of(session: SessionId) -> String {
    format!("sessions/{session}/heads/")
}

/// An entry as a line of a log.
pub(crate) fn line(entry: &LogEntry) -> Result<String, serde_json::Error> {
    let LogEntry { seq, at, entry } = entry.clone();
    let mut line = serde_json::to_string(&Line { seq, at, entry })?;
    line.push('\n');
    Ok(line)
}

/// A line of a log as an entry.
pub(crate) fn entry(line: &str) -> Result<LogEntry, serde_json::Error> {
    let Line { seq, at, entry } = serde_json::from_str(line)?;
    Ok(LogEntry { seq, at, entry })
}

impl Head {
    pub(super) fn name(&self) -> String {
        let Self { session, epoch, number, snapshot, .. } = self;
        format!("{}{:010}-{number:020}-{snapshot}.json", heads_of(*session), epoch.get())
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        sealed(serde_json::to_vec(self).expect("texts and numbers become JSON"))
    }

    /// Reads a head, which must be that of this session of this tenant.
    pub(super) fn decode(
        bytes: &[u8],
        name: &str,
        (tenant, session): (&TenantId, SessionId),
    ) -> Result<Self, CloudError> {
        let damaged = || CloudError::Damaged(name.to_owned());
        let mut head: Self = versioned(unsealed(bytes).ok_or_else(damaged)?, name)?;
        if head.version == 1 {
            head.number = head.seq.get();
        }
        let place = place_of(session);
        let is_ours = |part: &Part, below: &str| part.name.starts_with(below);
        let follow = |parts: &[Segment]| {
            parts.iter().try_fold(Seq::ZERO, |end, next| {
                (next.first == end.next() && next.last >= next.first).then_some(next.last)
            })
        };
        let is_right = head.session == session
            && head.tenant == *tenant
            && head.name() == name
            && follow(&head.log) == Some(head.seq)
            && head.log.iter().all(|segment| is_ours(&segment.part, &format!("{place}log/")))
            && is_ours(&head.record, &format!("{place}records/"))
            && is_ours(&head.agent, "agents/");
        is_right.then_some(head).ok_or_else(damaged)
    }
}

/// The digest of an agent's directory, by the name of what says what the agent is.
pub(super) fn digest_in(name: &str) -> Option<&str> {
    name.strip_prefix("agents/")?.split(['-', '.']).next()
}

/// The epoch that an object of a session is of, by its name.
pub(super) fn epoch_of(name: &str) -> Option<LogEpoch> {
    let (epoch, _) = name.rsplit('/').next()?.split_once('-')?;
    epoch.parse().ok().map(LogEpoch::new)
}

/// Something and its digest.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let digest = digest_of(&bytes);
    bytes.push(b'\n');
    bytes.extend_from_slice(digest.as_bytes());
    bytes.push(b'\n');
    bytes
}

fn unsealed(bytes: &[u8]) -> Option<&[u8]> {
    let bytes = bytes.strip_suffix(b"\n")?;
    let line = bytes.iter().rposition(|&byte| byte == b'\n')?;
    let (content, digest) = bytes.split_at(line);
    (digest[1..] == *digest_of(content).as_bytes()).then_some(content)
}

pub(super) fn digest_of(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

/// Reads something after a look at its version.
pub(super) fn versioned<T: DeserializeOwned>(bytes: &[u8], name: &str) -> Result<T, CloudError> {
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    let damaged = |_| CloudError::Damaged(name.to_owned());
    let Versioned { version } = serde_json::from_slice(bytes).map_err(damaged)?;
    if version == 0 || version > VERSION {
        return Err(CloudError::TooNew { what: name.to_owned(), version });
    }
    serde_json::from_slice(bytes).map_err(damaged)
}

/// The epoch and the number of a head, which are in its name whether or not it can be read.
pub(super) fn line_of(name: &str) -> Option<(LogEpoch, u64)> {
    let number = name.rsplit('/').next()?.split('-').nth(1)?;
    Some((epoch_of(name)?, number.parse().ok()?))
}

/// What there is of a session.
pub(super) struct Standing {
    /// The latest head that can be read.
    pub(super) head: Option<Head>,
    /// The epoch and the number of the latest head, readable or not.
    pub(super) latest: Option<(LogEpoch, u64)>,
}

impl Shelf {
    /// Puts something compressed, under a name that ends with the beginning of its digest. What has that name already
    /// stays, and this gets another: it may be damaged, or about to be removed, for no head names it.
    pub(super) fn put_part(&self, stem: &str, bytes: &[u8]) -> Result<Part, CloudError> {
        let blake3 = digest_of(bytes);
        let squeezed = zstd::bulk::compress(bytes, 0).map_err(CloudError::here)?;
        let mut name = format!("{stem}-{}.zst", &blake3[..16]);
        while self.put(&name, &squeezed)? == Put::Existed {
            let other = random_name().map_err(CloudError::here)?;
            name = format!("{stem}-{}-{other}.zst", &blake3[..16]);
        }
        let (bytes, stored) = (bytes.len() as u64, Some(squeezed.len() as u64));
        Ok(Part { name, bytes, blake3, stored })
    }

    /// What a part is, if it is what it was. A head has named it: if it is not there, the set is damaged.
    pub(super) fn get_part(&self, part: &Part, most: u64) -> Result<Vec<u8>, CloudError> {
        self.find_part(part, most)?.ok_or_else(|| CloudError::Damaged(part.name.clone()))
    }

    /// The same; nothing, if it is not there.
    pub(super) fn find_part(&self, part: &Part, most: u64) -> Result<Option<Vec<u8>>, CloudError> {
        let damaged = || CloudError::Damaged(part.name.clone());
        if part.bytes > most {
            return Err(damaged());
        }
        let Some(squeezed) = self.get(&part.name, most)? else { return Ok(None) };
        let size = usize::try_from(part.bytes).map_err(|_| damaged())?;
        let bytes = zstd::bulk::decompress(&squeezed, size).map_err(|_| damaged())?;
        let is_right = bytes.len() == size && digest_of(&bytes) == part.blake3;
        is_right.then_some(bytes).map(Some).ok_or_else(damaged)
    }

    /// The names of a session's heads, oldest first.
    pub(super) fn heads(&self, session: SessionId) -> Result<Vec<String>, CloudError> {
        let listed = self.list(&heads_of(session))?;
        Ok(listed.into_iter().map(|listed| listed.name).collect())
    }

    /// A head; nothing, if there is none of that name any more.
    pub(super) fn head(
        &self,
        name: &str,
        whose: (&TenantId, SessionId),
    ) -> Result<Option<Head>, CloudError> {
        let bytes = self.get(name, MAX_HEAD)?;
        bytes.map(|bytes| Head::decode(&bytes, name, whose)).transpose()
    }

    /// The latest of these heads that can be read, which are in order.
    pub(super) fn latest_readable(
        &self,
        names: &[String],
        whose: (&TenantId, SessionId),
    ) -> Result<Option<Head>, CloudError> {
        for name in names.iter().rev() {
            match self.head(name, whose) {
                Ok(Some(head)) => return Ok(Some(head)),
                Ok(None) | Err(CloudError::Damaged(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// What there is of a session.
    pub(super) fn standing(
        &self,
        tenant: &TenantId,
        session: SessionId,
    ) -> Result<Standing, CloudError> {
        let names = self.heads(session)?;
        let latest = names.iter().filter_map(|name| line_of(name)).max();
        let head = self.latest_readable(&names, (tenant, session))?;
        Ok(Standing { head, latest })
    }
}
