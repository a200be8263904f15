//! Attachments on the wire.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// A file to be attached to a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewAttachment {
    /// What it is called. Directories before its name are left out.
    #[schema(min_length = 1, max_length = 4096)]
    pub filename: String,
    /// What it is; nothing: `application/octet-stream`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 255)]
    pub mime_type: Option<String>,
    /// Its bytes, in base64.
    #[schema(min_length = 1)]
    pub content: String,
    /// The message that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 64, pattern = "^[0-9A-Za-z-]+$")]
    pub message_id: Option<String>,
}

/// A file that is attached to a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Attachment {
    /// Its id.
    pub id: Uuid,
    /// Whose it is.
    pub tenant_id: String,
    /// The message that it belongs to, or `unlinked`.
    pub message_id: String,
    /// Its session.
    pub session_id: Uuid,
    /// What it is called.
    pub filename: String,
    /// What it is, as whoever sent it says.
    pub mime_type: String,
    /// How many bytes it has.
    pub size: u64,
    /// Where the agent finds it.
    pub path: String,
    /// When it was attached.
    #[schema(format = DateTime)]
    pub created_at: String,
}

/// A file that is attached to a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AttachmentBody {
    /// The attachment.
    pub attachment: Attachment,
}

/// The files that are attached to a session, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Attachments {
    /// The attachments.
    pub attachments: Vec<Attachment>,
}
