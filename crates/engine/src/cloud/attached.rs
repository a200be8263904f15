//! What is attached to a session, in a set of it: what is known of each with the record, and its bytes as a part that the
//! head names. They never change, so a part is put once and named by every later head.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

use ash_core::id::{AttachmentId, SessionId};
use ash_core::number::LogEpoch;
use ash_core::time::Timestamp;
use ash_store::Attachment;
use serde::{Deserialize, Serialize};

use super::error::CloudError;
use super::place::Shelf;
use super::set::{Head, Part, place_of};

/// How many are in a set: the latest. A head has to name each.
const MAX_ATTACHMENTS: usize = 1_000;

/// The largest.
const MAX_BYTES: u64 = 100 * 1024 * 1024;

/// What is known of something that is attached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct AttachedRecord {
    pub(crate) id: AttachmentId,
    pub(crate) message: Option<String>,
    pub(crate) filename: String,
    pub(crate) media_type: String,
    pub(crate) size: u64,
    pub(crate) path: String,
    pub(crate) created_at: Timestamp,
}

/// Its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct AttachedPart {
    pub(super) id: AttachmentId,
    pub(super) part: Part,
}

/// What is known of the attachments of a session, oldest first.
pub(crate) fn recorded(attachments: Vec<Attachment>) -> Vec<AttachedRecord> {
    let excess = attachments.len().saturating_sub(MAX_ATTACHMENTS);
    let record = |one: Attachment| AttachedRecord {
        id: one.id,
        message: one.message,
        filename: one.filename,
        media_type: one.media_type,
        size: one.size,
        path: one.path,
        created_at: one.created_at,
    };
    attachments.into_iter().skip(excess).map(record).collect()
}

impl AttachedRecord {
    /// Whether it is what somebody could have attached: it was written elsewhere.
    fn is_right(&self) -> bool {
        let is_plain = |text: &str, most: usize| {
            (1..=most).contains(&text.len()) && !text.chars().any(char::is_control)
        };
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-@".contains(&byte);
        is_plain(&self.filename, 255)
            && !self.filename.contains('/')
            && is_plain(&self.media_type, 255)
            && self.media_type.is_ascii()
            && is_plain(&self.path, 4_096)
            && self.path.starts_with("attachments/")
            && self.size <= MAX_BYTES
            && self.message.as_ref().is_none_or(|id| id.len() <= 64 && id.bytes().all(is_name))
    }
}

/// Whether what a set says of attachments can be.
pub(super) fn are_right(records: &[AttachedRecord], head: &Head) -> bool {
    let below = format!("{}attachments/", place_of(head.session));
    records.len() <= MAX_ATTACHMENTS
        && records.iter().all(AttachedRecord::is_right)
        && head.attachments.iter().all(|attached| attached.part.name.starts_with(&below))
}

impl Shelf {
    /// Puts the bytes of attachments that lie in a directory, but those that an earlier head of the epoch names. Those
    /// that are not there are lost, and are not named. Blocks.
    pub(super) fn put_attached(
        &self,
        (session, epoch): (SessionId, LogEpoch),
        records: &[AttachedRecord],
        directory: &Path,
        earlier: Option<&Head>,
    ) -> Result<Vec<AttachedPart>, CloudError> {
        // What a head has named and is gone is put again.
        let listed = self.list(&format!("{}attachments/", place_of(session)))?;
        let listed: BTreeSet<String> = listed.into_iter().map(|listed| listed.name).collect();
        let there: BTreeMap<AttachmentId, &Part> = earlier
            .filter(|head| head.epoch == epoch)
            .into_iter()
            .flat_map(|head| head.attachments.iter().map(|there| (there.id, &there.part)))
            .filter(|(_, part)| listed.contains(&part.name))
            .collect();
        let mut parts = Vec::new();
        for AttachedRecord { id, .. } in records {
            let part = match there.get(id) {
                Some(part) => (*part).clone(),
                None => match fs::read(directory.join(id.to_string())) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    bytes => {
                        let stem = format!("{}attachments/{:010}", place_of(session), epoch.get());
                        self.put_part(&stem, &bytes.map_err(CloudError::here)?)?
                    }
                },
            };
            parts.push(AttachedPart { id: *id, part });
        }
        Ok(parts)
    }

    /// The bytes of something that is attached; nothing, if they are lost.
    pub(crate) fn get_attached(
        &self,
        parts: &[AttachedPart],
        record: &AttachedRecord,
    ) -> Result<Option<Vec<u8>>, CloudError> {
        let Some(there) = parts.iter().find(|there| there.id == record.id) else { return Ok(None) };
        match self.find_part(&there.part, MAX_BYTES) {
            Ok(bytes) => Ok(bytes.filter(|bytes| bytes.len() as u64 == record.size)),
            Err(CloudError::Damaged(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
