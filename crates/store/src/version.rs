//! Versions of agents as people know them: a number, a name, notes.
//!
//! What a session was made with never changes: [`Agent::version`] names content, for ever. What people call version 2 can
//! come to mean other content, when its instructions are changed. So each content has the number that people know it by;
//! of those with the same number all but the latest are retired. A version that is deleted is retired too.

use ash_core::json::Json;
use ash_core::number::AgentVersion;
use ash_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::Agent;

/// What people say about a version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionLabel {
    /// What they call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What is new in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
    /// The files that it knows things from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub knowledge: Option<Vec<String>>,
}

impl VersionLabel {
    /// This with what is said anew.
    #[must_use]
    pub(crate) fn with(self, new: &Self) -> Self {
        let new = new.clone();
        Self {
            name: new.name.or(self.name),
            notes: new.notes.or(self.notes),
            knowledge: new.knowledge.or(self.knowledge),
        }
    }
}

/// How a version that is added is called, and whether new sessions get it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewLabel {
    /// What people say about it.
    pub label: VersionLabel,
    /// New sessions go on with the version they get now. The first version of an agent is active in any case.
    pub is_draft: bool,
}

/// A version of an agent, as people know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelledVersion {
    /// What it consists of now.
    pub agent: Agent,
    /// What people know it by: the [`Agent::version`] that it began with.
    pub number: AgentVersion,
    /// What they say about it.
    pub label: VersionLabel,
    /// Whether new sessions get it.
    pub is_active: bool,
    /// When it was added.
    pub created_at: Timestamp,
    /// When it was added, or last changed.
    pub changed_at: Timestamp,
}

/// What becomes of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VersionChange {
    /// Something else is said about it, and what it consists of may be replaced. Sessions keep what they were made with.
    Amend {
        /// What is said anew; the rest stays.
        label: VersionLabel,
        /// What it consists of from now on.
        definition: Option<Json>,
    },
    /// New sessions get it.
    Activate,
    /// It is not there any more. Sessions keep what they were made with. The active one stays:
    /// [`StoreError::InUse`](crate::StoreError::InUse).
    Delete,
}
