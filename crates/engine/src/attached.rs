//! What is attached to a session goes along with it: to a fork, and to wherever it is brought.
//!
//! Bytes are there before anybody is told of them. Those that nobody is told of in the end are removed, at the latest
//! when a server starts. What is told of and has no bytes is lost, and whoever asks for it is told that.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ash_core::id::{AttachmentId, SessionId, TenantId};
use ash_core::number::Seq;
use ash_core::time::Timestamp;
use ash_store::Attachment;

use crate::cloud::{AttachedPart, AttachedRecord, CloudError, Shelf, blocking};
use crate::engine::Engine;
use crate::error::EngineError;

/// Attachments of a session that has come from elsewhere.
pub(crate) struct Brought<'a> {
    pub(crate) tenant: &'a TenantId,
    /// What it is called here, and there.
    pub(crate) id: SessionId,
    pub(crate) from: SessionId,
    /// Where their bytes are.
    pub(crate) shelf: &'a Arc<Shelf>,
    pub(crate) attached: Vec<AttachedPart>,
    /// When its files were captured.
    pub(crate) captured_at: Option<Timestamp>,
}

impl Engine {
    /// What is attached to a session has changed.
    pub fn attached(&self, session: SessionId) {
        if let Some(cloud) = self.cloud() {
            cloud.want(session);
        }
    }

    /// The attachments that a fork begins with: those that were there at that point. Each has an id of its own there.
    pub(crate) async fn fork_attachments(
        &self,
        tenant: &TenantId,
        parent: SessionId,
        id: SessionId,
        (through, captured_at): (Seq, Timestamp),
    ) -> Result<Vec<Attachment>, EngineError> {
        let mut attachments = self.shared.store.attachments(tenant, parent).await?;
        attachments.retain(|one| match one.message_seq() {
            Some(message) => message <= through,
            None => one.created_at <= captured_at,
        });
        let (from, to) = (self.shared.host.attachments(parent), self.shared.host.attachments(id));
        let mut copies = Vec::new();
        for one in &mut attachments {
            let new = self.shared.ids.make(self.shared.now(), AttachmentId::from_parts);
            copies.push((one.id, new));
            one.placed = one.placed && one.created_at <= captured_at;
            (one.id, one.session) = (new, id);
        }
        if let (Some(from), Some(to), false) = (from, to, copies.is_empty()) {
            blocking(move || link_all(&from, &to, &copies).map_err(CloudError::here)).await?;
        }
        Ok(attachments)
    }

    /// Brings the attachments of a session here. They keep their ids if it keeps its own.
    pub(crate) async fn bring_attachments(
        &self,
        brought: Brought<'_>,
        records: Vec<AttachedRecord>,
    ) -> Result<Vec<Attachment>, EngineError> {
        let Brought { tenant, id, from, shelf, attached, captured_at } = brought;
        let (shelf, attached) = (Arc::clone(shelf), Arc::new(attached));
        let directory = self.shared.host.attachments(id);
        let mut attachments = Vec::new();
        for record in records {
            let new = match id == from {
                true => record.id,
                false => self.shared.ids.make(self.shared.now(), AttachmentId::from_parts),
            };
            attachments.push(Attachment {
                id: new,
                tenant: tenant.clone(),
                session: id,
                message: record.message.clone(),
                filename: record.filename.clone(),
                media_type: record.media_type.clone(),
                size: record.size,
                path: record.path.clone(),
                // A copy that was made since is in no snapshot.
                placed: captured_at.is_some_and(|captured_at| record.created_at <= captured_at),
                created_at: record.created_at,
            });
            let Some(directory) = directory.clone() else { continue };
            let (shelf, attached) = (Arc::clone(&shelf), Arc::clone(&attached));
            let bring = move || match shelf.get_attached(&attached, &record)? {
                Some(bytes) => put(&directory, new, &bytes).map_err(CloudError::here),
                None => Ok(()),
            };
            if let Err(error) = blocking(bring).await {
                self.drop_attachments(id).await;
                return Err(error.into());
            }
        }
        Ok(attachments)
    }

    /// Removes the bytes of attachments of a session that has not come to be.
    pub(crate) async fn drop_attachments(&self, id: SessionId) {
        let Some(directory) = self.shared.host.attachments(id) else { return };
        // What is left of them goes when a server starts.
        let _left_behind = tokio::task::spawn_blocking(move || fs::remove_dir_all(directory)).await;
    }
}

/// Gives files a second name. They are never changed.
fn link_all(from: &Path, to: &PathBuf, copies: &[(AttachmentId, AttachmentId)]) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(to)?;
    for (old, new) in copies {
        match fs::hard_link(from.join(old.to_string()), to.join(new.to_string())) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    sync(to)
}

fn put(directory: &Path, id: AttachmentId, bytes: &[u8]) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let path = directory.join(id.to_string());
    let file = fs::File::options().write(true).create(true).truncate(true).mode(0o600).open(path);
    let mut file = file?;
    file.write_all(bytes)?;
    file.sync_all()?;
    sync(directory)
}

/// The directory may be new, and so may the one above.
fn sync(directory: &Path) -> io::Result<()> {
    fs::File::open(directory)?.sync_all()?;
    directory.parent().map_or(Ok(()), |above| fs::File::open(above)?.sync_all())
}
