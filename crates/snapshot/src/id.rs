//! The names of chunks and packs: BLAKE3 of what they hold.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::Malformed;

/// What a chunk is. It is part of what its id is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChunkKind {
    /// Bytes of a file.
    Data,
    /// Names of further chunks.
    List,
    /// Entries of a directory.
    Tree,
}

impl ChunkKind {
    pub(crate) fn as_byte(self) -> u8 {
        match self {
            Self::Data => b'd',
            Self::List => b'l',
            Self::Tree => b't',
        }
    }

    pub(crate) fn from_byte(byte: u8) -> Result<Self, Malformed> {
        match byte {
            b'd' => Ok(Self::Data),
            b'l' => Ok(Self::List),
            b't' => Ok(Self::Tree),
            _ => Err(Malformed("a chunk is of no kind that is known")),
        }
    }

    /// What the hash of such a chunk is keyed with. A byte before the chunk would do as well, and make
    /// hashing a quarter slower: the first kilobyte could not be hashed with those that follow.
    fn key(self) -> &'static [u8; 32] {
        match self {
            Self::Data => b"ash-snapshot 1: a chunk of data.",
            Self::List => b"ash-snapshot 1: a chunk of list.",
            Self::Tree => b"ash-snapshot 1: a chunk of tree.",
        }
    }
}

/// A BLAKE3 hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub(crate) [u8; 32]);

impl Id {
    pub(crate) const ZERO: Self = Self([0; 32]);

    /// The id of a chunk.
    pub fn of_chunk(kind: ChunkKind, bytes: &[u8]) -> Self {
        Self(*blake3::keyed_hash(kind.key(), bytes).as_bytes())
    }

    /// The plain hash of bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Id {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let is_ours =
            text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let hash = is_ours.then(|| blake3::Hash::from_hex(text).ok()).flatten();
        Ok(Self(*hash.ok_or(Malformed("a hash is not 64 hexadecimal digits"))?.as_bytes()))
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
