//! Typed ids. They are parsed once, at the edge; two of different kinds cannot be swapped.
//!
//! UUIDs are version 7: made by the server, unguessable (74 random bits), and ordered by time, so
//! that rows written together lie together on disk. The random bits are an argument, because this
//! crate has no source of randomness.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::time::Timestamp;

/// A text that is not an id of the expected kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a valid {kind} id")]
pub struct ParseIdError {
    kind: &'static str,
}

impl ParseIdError {
    /// What it is not the id of.
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// Whether it was to be a name that somebody has given, and not an id that was made.
    pub fn is_name(&self) -> bool {
        [TENANT, AGENT_NAME].contains(&self.kind)
    }
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// Makes a new id from the time and ten random bytes.
            pub fn from_parts(now: Timestamp, random: [u8; 10]) -> Self {
                let millis = u64::try_from(now.as_millis()).unwrap_or(0);
                Self(uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid())
            }

            /// The id that is this UUID.
            pub const fn from_uuid(uuid: Uuid) -> Self {
                Self(uuid)
            }

            /// The UUID that it is.
            pub fn as_uuid(self) -> Uuid {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0.hyphenated(), f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                // Only the hyphenated form: braces, URNs and bare hex would be second
                // spellings of the same id, in paths, logs and idempotency keys.
                match Uuid::try_parse(text) {
                    Ok(uuid) if text.len() == 36 => Ok(Self(uuid)),
                    Ok(_) | Err(_) => Err(ParseIdError { kind: $kind }),
                }
            }
        }
    };
}

uuid_id!(
    /// Names a session. Its sandbox has the same id; the incarnation tells one from the next.
    SessionId,
    "session"
);
uuid_id!(
    /// Names a run, from the moment its prompt is accepted.
    RunId,
    "run"
);
uuid_id!(
    /// Names a question that an agent asks before it does something. Made in its sandbox.
    QuestionId,
    "question"
);
uuid_id!(
    /// Names an agent; its versions are numbered.
    AgentId,
    "agent"
);
uuid_id!(
    /// Names an API key, not its secret.
    ApiKeyId,
    "API key"
);
uuid_id!(
    /// Names a stored credential, not its secret.
    CredentialId,
    "credential"
);
uuid_id!(
    /// Names a snapshot of what a session's agent works on.
    SnapshotId,
    "snapshot"
);
uuid_id!(
    /// Names a prompt that waits in the queue.
    QueueItemId,
    "queue item"
);
uuid_id!(
    /// Names a file that was attached to a session.
    AttachmentId,
    "attachment"
);
uuid_id!(
    /// Names one item of the outbox.
    OutboxId,
    "outbox"
);

/// Names a tenant. Every row belongs to one; another tenant's rows do not exist for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TenantId(String);

/// The tenant of whoever runs the server.
pub const DEFAULT_TENANT: &str = "default";

impl TenantId {
    /// The tenant that exists from the start.
    pub fn default_tenant() -> Self {
        Self(DEFAULT_TENANT.to_owned())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Names an agent to people: letters, digits, `_` and `-`, at most 255 of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AgentName(String);

impl AgentName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The longest name of a tenant or an agent.
const MAX_NAME_LEN: usize = 255;

fn is_plain_name(text: &str) -> bool {
    (1..=MAX_NAME_LEN).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

const TENANT: &str = "tenant";
const AGENT_NAME: &str = "agent name";

macro_rules! plain_name {
    ($name:ident, $kind:expr) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                Self::try_from(text.to_owned())
            }
        }

        impl TryFrom<String> for $name {
            type Error = ParseIdError;

            fn try_from(text: String) -> Result<Self, ParseIdError> {
                if is_plain_name(&text) {
                    Ok(Self(text))
                } else {
                    Err(ParseIdError { kind: $kind })
                }
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }
    };
}

plain_name!(TenantId, TENANT);
plain_name!(AgentName, AGENT_NAME);

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn ids_have_exactly_one_spelling() {
        let id = SessionId::from_parts(Timestamp::from_millis(1_700_000_000_000), [7; 10]);
        let text = id.to_string();
        assert_eq!(text.parse(), Ok(id));
        assert_eq!(text.len(), 36);

        for other in [
            format!("{{{text}}}"),
            format!("urn:uuid:{text}"),
            text.replace('-', ""),
            String::new(),
            "../../etc/passwd".to_owned(),
        ] {
            assert_eq!(
                other.parse::<SessionId>(),
                Err(ParseIdError { kind: "session" }),
                "{other}"
            );
        }
    }

    #[test]
    fn later_ids_sort_after_earlier_ones() {
        let earlier = RunId::from_parts(Timestamp::from_millis(1_000), [0xff; 10]);
        let later = RunId::from_parts(Timestamp::from_millis(1_001), [0; 10]);
        assert!(earlier < later);
    }

    #[test]
    fn names_take_no_path_and_no_surprise() {
        assert!("Code_review-2".parse::<AgentName>().is_ok());
        let long = "a".repeat(MAX_NAME_LEN + 1);
        for bad in ["", "a b", "../up", "a/b", "ä", "a\0", long.as_str()] {
            assert!(bad.parse::<AgentName>().is_err(), "{bad:?}");
        }
    }
}
