//! Files that were attached to sessions: what is known of them. Their bytes lie elsewhere.

use ash_core::id::{AttachmentId, SessionId, TenantId};
use ash_core::number::Seq;
use ash_core::time::Timestamp;
use async_trait::async_trait;

use crate::Result;
use crate::model::{Receipt, ReceiptKey};

/// A file that was attached to a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Its id.
    pub id: AttachmentId,
    /// Whose it is.
    pub tenant: TenantId,
    /// To which session.
    pub session: SessionId,
    /// To which message, if that was said: its place in the log, behind an `@` if it was named by its cursor.
    pub message: Option<String>,
    /// What it is called.
    pub filename: String,
    /// What it is, as whoever sent it says.
    pub media_type: String,
    /// How many bytes it has.
    pub size: u64,
    /// Where the agent finds its copy: beneath the workspace. No two of a session have the same.
    pub path: String,
    /// Whether the copy was written.
    pub placed: bool,
    /// When it was attached.
    pub created_at: Timestamp,
}

impl Attachment {
    /// The place of its message in the log. Earlier releases have kept what they were told, which says no place.
    pub fn message_seq(&self) -> Option<Seq> {
        let message = self.message.as_deref()?;
        message.strip_prefix('@').unwrap_or(message).parse().ok().map(Seq::new)
    }
}

/// The part of a store that remembers attachments.
#[async_trait]
pub trait AttachmentStore: Send + Sync + 'static {
    /// Adds an attachment to a session of its tenant. Another one with its path is `Exists("attachment")`.
    async fn create_attachment(
        &self,
        attachment: &Attachment,
        receipt: Option<&Receipt>,
    ) -> Result<()>;
    /// A tenant's attachment.
    async fn attachment(&self, tenant: &TenantId, id: AttachmentId) -> Result<Attachment>;
    /// The attachments of a tenant's session, oldest first.
    async fn attachments(&self, tenant: &TenantId, session: SessionId) -> Result<Vec<Attachment>>;
    /// Those of a session, whatever its tenant, whose copy was not written.
    async fn unplaced_attachments(&self, session: SessionId) -> Result<Vec<Attachment>>;
    /// Every session that has one.
    async fn sessions_with_unplaced(&self) -> Result<Vec<SessionId>>;
    /// Notes that the copy of an attachment was written.
    async fn place_attachment(&self, id: AttachmentId) -> Result<()>;
    /// Removes a tenant's attachment, and the receipt that it was added with, if that is named.
    async fn delete_attachment(
        &self,
        tenant: &TenantId,
        id: AttachmentId,
        receipt: Option<&ReceiptKey>,
    ) -> Result<()>;
}
