//! The bytes of a file or an encoded directory, named by their chunks.

use serde::{Deserialize, Serialize};

use crate::codec::{Reader, put_number};
use crate::error::Malformed;
use crate::id::Id;

/// The largest chunk.
pub(crate) const MAX_CHUNK: usize = 4 * 1024 * 1024;

/// How deep lists of lists go at the most: enough for more than there is.
const MAX_DEPTH: u8 = 8;

/// How many items a list has at the most.
pub(crate) const MAX_ITEMS: usize = 1024;

/// Names bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Content {
    /// How many they are.
    pub size: u64,
    /// How many levels of lists are above the chunks that hold them.
    pub depth: u8,
    /// The chunk, or the list.
    pub id: Id,
}

impl Content {
    /// No bytes.
    pub const EMPTY: Self = Self { size: 0, depth: 0, id: Id::ZERO };

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        put_number(out, self.size);
        out.push(self.depth);
        out.extend_from_slice(&self.id.0);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (size, depth, id) = (reader.number()?, reader.byte()?, Id(reader.array()?));
        let content = Self { size, depth, id };
        content.check()?;
        Ok(content)
    }

    pub(crate) fn check(&self) -> Result<(), Malformed> {
        if self.depth > MAX_DEPTH {
            return Err(Malformed("lists of chunks go too deep"));
        }
        if self.depth == 0 && self.size > MAX_CHUNK as u64 {
            return Err(Malformed("a chunk is too large"));
        }
        if self.size == 0 && *self != Self::EMPTY {
            return Err(Malformed("nothing has chunks"));
        }
        Ok(())
    }
}

/// Part of a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// So many zero bytes.
    Zeros(u64),
    /// Bytes in chunks.
    Bytes(Content),
}

impl Item {
    pub(crate) fn size(&self) -> u64 {
        match self {
            Self::Zeros(size) => *size,
            Self::Bytes(content) => content.size,
        }
    }
}

/// A list of parts, as it is stored.
pub(crate) fn encode_list(items: &[Item]) -> Vec<u8> {
    let mut out = Vec::with_capacity(items.len() * 36);
    for item in items {
        put_number(&mut out, item.size());
        match item {
            Item::Zeros(_) => out.push(0),
            Item::Bytes(content) => {
                out.extend_from_slice(&[1, content.depth]);
                out.extend_from_slice(&content.id.0);
            }
        }
    }
    out
}

/// Reads the list that a content of some depth names.
pub(crate) fn decode_list(bytes: &[u8], whole: Content) -> Result<Vec<Item>, Malformed> {
    let mut reader = Reader::new(bytes);
    let mut items = Vec::new();
    let mut left = whole.size;
    while !reader.is_empty() {
        let size = reader.number()?;
        left = left.checked_sub(size).ok_or(Malformed("a list is longer than its contents"))?;
        if size == 0 || items.len() == MAX_ITEMS {
            return Err(Malformed("a list has too many items, or an empty one"));
        }
        items.push(match reader.byte()? {
            0 => Item::Zeros(size),
            1 => {
                let (depth, id) = (reader.byte()?, Id(reader.array()?));
                let content = Content { size, depth, id };
                content.check()?;
                if depth >= whole.depth {
                    return Err(Malformed("a list does not lead down"));
                }
                Item::Bytes(content)
            }
            _ => return Err(Malformed("an item of a list is of no kind that is known")),
        });
    }
    if left > 0 { Err(Malformed("a list is shorter than its contents")) } else { Ok(items) }
}
