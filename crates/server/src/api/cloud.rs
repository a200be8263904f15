//! What is in the cloud.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::Session;

/// A session that is in the cloud.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CloudSession {
    /// Its id there. It keeps it when it is imported, where that is free.
    pub session_id: Uuid,
    /// The agent it talks to.
    pub agent_name: String,
    /// What people call it.
    #[schema(required)]
    pub title: Option<String>,
    /// How many turns it has.
    pub turns: u32,
    /// Where it stood there, such as `ended`; null, if that is not known.
    #[serde(default)]
    #[schema(required)]
    pub status: Option<String>,
    /// The last entry of its log there.
    pub seq: u64,
    /// Its files.
    pub snapshot_id: Uuid,
    /// When it was brought there.
    #[schema(format = DateTime)]
    pub at: String,
}

/// Sessions that are in the cloud.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CloudSessions {
    /// The bucket, as the server was told.
    pub url: String,
    /// Newest first.
    pub sessions: Vec<CloudSession>,
    /// Those of which nothing can be read: they are damaged, or of a newer version.
    #[serde(default)]
    pub unreadable: Vec<Uuid>,
}

/// A session that was in the cloud and is one of this server now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ImportedSession {
    /// The session.
    pub session: Session,
    /// What could not be read there and is missing, or was replaced. Empty, if everything was whole but for files: of
    /// those a resume says what came back.
    #[serde(default)]
    pub warnings: Vec<String>,
}
