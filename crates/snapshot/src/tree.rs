//! Directories: their entries, and how they are encoded.

use crate::codec::{Reader, put_bytes, put_number, put_signed};
use crate::content::Content;
use crate::error::Malformed;

/// The longest name, link target and path of a hard link.
pub(crate) const MAX_NAME: usize = 255;
const MAX_TARGET: usize = 4095;
pub(crate) const MAX_PATH: usize = 1024 * 1024;

/// The longest extended attributes that are kept, and how many.
pub(crate) const MAX_ATTRIBUTES: usize = 64;
pub(crate) const MAX_ATTRIBUTE: usize = 64 * 1024;

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: Vec<u8>,
    /// What it names.
    pub kind: Kind,
    /// Permission bits, set-id bits and the sticky bit.
    pub mode: u32,
    /// When its contents changed last.
    pub modified: Modified,
    /// Extended attributes, by name.
    pub attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What a name names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file with these bytes.
    File(Content),
    /// A directory with this encoding.
    Directory(Content),
    /// A symbolic link that says this.
    Symlink(Vec<u8>),
    /// Another name of the file at this path from the root.
    HardLink(Vec<u8>),
}

/// A time as the file system has it.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    serde::Serialize,
    serde::Deserialize,
)]
#[serde(deny_unknown_fields)]
pub struct Modified {
    /// Since 1970.
    pub seconds: i64,
    /// And so much.
    pub nanoseconds: u32,
}

/// Entries of a directory, sorted by name, as they are stored.
pub(crate) fn encode<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Vec<u8> {
    let mut out = Vec::new();
    entries.into_iter().for_each(|entry| put_entry(&mut out, entry));
    out
}

fn put_entry(out: &mut Vec<u8>, entry: &Entry) {
    put_bytes(out, &entry.name);
    out.push(match entry.kind {
        Kind::File(_) => 1,
        Kind::Directory(_) => 2,
        Kind::Symlink(_) => 3,
        Kind::HardLink(_) => 4,
    });
    put_number(out, u64::from(entry.mode));
    put_signed(out, entry.modified.seconds);
    put_number(out, u64::from(entry.modified.nanoseconds));
    match &entry.kind {
        Kind::File(content) | Kind::Directory(content) => content.put(out),
        Kind::Symlink(target) | Kind::HardLink(target) => put_bytes(out, target),
    }
    put_number(out, entry.attributes.len() as u64);
    for (name, value) in &entry.attributes {
        put_bytes(out, name);
        put_bytes(out, value);
    }
}

/// Reads the entries of a directory. What is returned can be made in one directory: the names are
/// names, each is there once, and nothing leads anywhere by its name. Nothing is returned of more than
/// `most` entries.
pub(crate) fn decode(bytes: &[u8], most: usize) -> Result<Option<Vec<Entry>>, Malformed> {
    let mut reader = Reader::new(bytes);
    let mut entries: Vec<Entry> = Vec::new();
    while !reader.is_empty() {
        if entries.len() == most {
            return Ok(None);
        }
        let entry = read_entry(&mut reader)?;
        if entries.last().is_some_and(|last| last.name >= entry.name) {
            return Err(Malformed("names are not in order, or twice there"));
        }
        entries.push(entry);
    }
    Ok(Some(entries))
}

fn read_entry(reader: &mut Reader<'_>) -> Result<Entry, Malformed> {
    let name = reader.bytes(MAX_NAME)?;
    if !is_name(name) {
        return Err(Malformed("a name is none"));
    }
    let kind = reader.byte()?;
    let mode = u32::try_from(reader.at_most(0o7777)?).expect("it is small");
    let seconds = reader.signed()?;
    let nanoseconds = u32::try_from(reader.at_most(999_999_999)?).expect("it is small");
    let kind = match kind {
        1 => Kind::File(Content::read(reader)?),
        2 => Kind::Directory(Content::read(reader)?),
        3 => Kind::Symlink(target(reader.bytes(MAX_TARGET)?)?),
        4 => Kind::HardLink(path(reader.bytes(MAX_PATH)?)?),
        _ => return Err(Malformed("an entry is of no kind that is known")),
    };
    let mut attributes: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for _ in 0..reader.count(MAX_ATTRIBUTES)? {
        let name = reader.bytes(MAX_NAME)?;
        let value = reader.bytes(MAX_ATTRIBUTE)?;
        if !is_attribute(name) || attributes.last().is_some_and(|(last, _)| &last[..] >= name) {
            return Err(Malformed("an attribute is none of a user's, or not in order"));
        }
        attributes.push((name.to_owned(), value.to_owned()));
    }
    let modified = Modified { seconds, nanoseconds };
    Ok(Entry { name: name.to_owned(), kind, mode, modified, attributes })
}

/// Whether something can be a name in a directory.
pub(crate) fn is_name(name: &[u8]) -> bool {
    !name.is_empty()
        && name != b"."
        && name != b".."
        && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

/// Whether an extended attribute is one of those that are kept.
pub(crate) fn is_attribute(name: &[u8]) -> bool {
    name.len() <= MAX_NAME
        && name.len() > b"user.".len()
        && name.starts_with(b"user.")
        && !name.contains(&0)
}

fn target(bytes: &[u8]) -> Result<Vec<u8>, Malformed> {
    let fine = !bytes.is_empty() && !bytes.contains(&0);
    if fine { Ok(bytes.to_owned()) } else { Err(Malformed("a link leads to nothing")) }
}

fn path(bytes: &[u8]) -> Result<Vec<u8>, Malformed> {
    let fine =
        bytes.split(|&byte| byte == b'/').all(|part| is_name(part) && part.len() <= MAX_NAME);
    if fine { Ok(bytes.to_owned()) } else { Err(Malformed("a path does not stay in its tree")) }
}
