//! What is remembered of trees, as a file: so that a process that starts anew knows it too.
//!
//! It is a help and no more: one that is damaged, of another version or of other directories counts
//! as none. It ends with its digest, and is written aside and renamed.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::{Known, KnownDirectory, KnownKind, KnownRoot, KnownTree, Stamp, State};
use crate::codec::{Reader, put_bytes, put_number, put_signed};
use crate::content::Content;
use crate::error::Malformed;
use crate::id::Id;
use crate::snapshot::SnapshotId;
use crate::tree::{MAX_ATTRIBUTE, MAX_ATTRIBUTES, MAX_NAME, Modified, is_attribute, is_name};

/// How it begins: with its version.
const BEGIN: &[u8; 8] = b"ASHSTAT1";

/// The longest one that is read: some millions of files.
const MAX_STATE: u64 = 2 * 1024 * 1024 * 1024;

/// Bounds of what is in it.
const MAX_ROOTS: usize = 1024;
const MAX_PATH: usize = 1024 * 1024;

impl State {
    /// What was saved there. Whatever else is there, or nothing, is no state.
    pub fn load(path: &Path) -> Self {
        let read = || -> io::Result<Vec<u8>> {
            let file = fs::File::open(path)?;
            let size = file.metadata()?.len();
            if size > MAX_STATE {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
            file.take(MAX_STATE).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        read().ok().and_then(|bytes| Self::decode(&bytes).ok()).unwrap_or_default()
    }

    /// Saves it there. The directory must be there.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let mut aside = path.as_os_str().to_owned();
        aside.push(format!(".{}", uuid::Uuid::now_v7()));
        let aside = PathBuf::from(aside);
        // It is not synced: what a power cut leaves of it has another digest.
        let write = || -> io::Result<()> {
            // It tells what is in the directory: only its owner reads it.
            let mut file =
                fs::File::options().write(true).create_new(true).mode(0o600).open(&aside)?;
            file.write_all(&self.encode())
        };
        let saved = write().and_then(|()| fs::rename(&aside, path));
        if saved.is_err() {
            // The error that is returned says more.
            let _second_failure = fs::remove_file(&aside);
        }
        saved
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = BEGIN.to_vec();
        match self.snapshot {
            Some(id) => {
                out.push(1);
                out.extend_from_slice(&id.to_bytes());
            }
            None => out.push(0),
        }
        put_number(&mut out, self.roots.len() as u64);
        for (name, root) in &self.roots {
            put_bytes(&mut out, name.as_bytes());
            put_bytes(&mut out, root.path.as_os_str().as_encoded_bytes());
            put_number(&mut out, root.tree.directories.len() as u64);
            for directory in &root.tree.directories {
                directory.tree.put(&mut out);
                put_number(&mut out, directory.entries.len() as u64);
                directory.entries.iter().for_each(|entry| put_entry(&mut out, entry));
            }
        }
        let digest = Id::of(&out);
        out.extend_from_slice(&digest.0);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let (body, digest) = bytes
            .split_last_chunk::<32>()
            .filter(|(body, digest)| Id::of(body).0 == **digest)
            .ok_or(Malformed("it is not what its digest is made of"))?;
        let _compared = digest;
        decode_body(body)
    }
}

/// Reads a state without its digest.
pub(crate) fn decode_body(body: &[u8]) -> Result<State, Malformed> {
    use std::os::unix::ffi::OsStrExt as _;
    let mut reader = Reader::new(body);
    if reader.array()? != *BEGIN {
        return Err(Malformed("it does not begin as a state begins"));
    }
    let snapshot = match reader.byte()? {
        0 => None,
        1 => Some(SnapshotId::from_bytes(reader.array()?)),
        _ => return Err(Malformed("a flag is neither set nor not")),
    };
    let mut state = State { snapshot, ..State::default() };
    for _ in 0..reader.count(MAX_ROOTS)? {
        let name = std::str::from_utf8(reader.bytes(MAX_PATH)?);
        let name = name.map_err(|_| Malformed("a name is no text"))?.to_owned();
        let path = Path::new(std::ffi::OsStr::from_bytes(reader.bytes(MAX_PATH)?)).to_owned();
        let count = reader.count(usize::MAX)?;
        let mut directories = Vec::new();
        for number in 0..count {
            directories.push(read_directory(&mut reader, number, count)?);
        }
        let tree = KnownTree { directories };
        if state.roots.insert(name, KnownRoot { path, tree }).is_some() {
            return Err(Malformed("a root is twice there"));
        }
    }
    if reader.is_empty() { Ok(state) } else { Err(Malformed("it goes on after its end")) }
}

fn put_time(out: &mut Vec<u8>, time: Modified) {
    put_signed(out, time.seconds);
    put_number(out, u64::from(time.nanoseconds));
}

fn put_entry(out: &mut Vec<u8>, entry: &Known) {
    let Known { name, stamp, settled, kind, attributes } = entry;
    put_bytes(out, name);
    put_number(out, u64::from(stamp.device.0));
    put_number(out, u64::from(stamp.device.1));
    put_number(out, stamp.inode);
    put_number(out, stamp.size);
    put_number(out, u64::from(stamp.mode));
    put_number(out, u64::from(stamp.links));
    put_time(out, stamp.modified);
    put_time(out, stamp.changed);
    out.push(u8::from(*settled));
    match kind {
        KnownKind::File(content) => {
            out.push(1);
            content.put(out);
        }
        KnownKind::Directory(number) => {
            out.push(2);
            put_number(out, *number as u64);
        }
        KnownKind::Symlink(target) => {
            out.push(3);
            put_bytes(out, target);
        }
        KnownKind::HardLink(target) => {
            out.push(4);
            put_bytes(out, target);
        }
    }
    put_number(out, attributes.len() as u64);
    for (name, value) in attributes {
        put_bytes(out, name);
        put_bytes(out, value);
    }
}

/// Reads a directory, the so-manieth of so many.
fn read_directory(
    reader: &mut Reader<'_>,
    number: usize,
    count: usize,
) -> Result<KnownDirectory, Malformed> {
    let tree = Content::read(reader)?;
    let mut entries: Vec<Known> = Vec::new();
    for _ in 0..reader.count(usize::MAX)? {
        let entry = read_entry(reader)?;
        if entries.last().is_some_and(|last| last.name >= entry.name) {
            return Err(Malformed("names are not in order, or twice there"));
        }
        if let KnownKind::Directory(below) = entry.kind
            && (below <= number || below >= count)
        {
            return Err(Malformed("a directory is not below the one that it is in"));
        }
        entries.push(entry);
    }
    Ok(KnownDirectory { entries, tree })
}

fn small(reader: &mut Reader<'_>) -> Result<u32, Malformed> {
    Ok(u32::try_from(reader.at_most(u64::from(u32::MAX))?).expect("it is at most that"))
}

fn time(reader: &mut Reader<'_>) -> Result<Modified, Malformed> {
    Ok(Modified { seconds: reader.signed()?, nanoseconds: small(reader)? })
}

fn read_entry(reader: &mut Reader<'_>) -> Result<Known, Malformed> {
    let name = reader.bytes(MAX_NAME)?;
    if !is_name(name) {
        return Err(Malformed("a name is none"));
    }
    let stamp = Stamp {
        device: (small(reader)?, small(reader)?),
        inode: reader.number()?,
        size: reader.number()?,
        mode: small(reader)?,
        links: small(reader)?,
        modified: time(reader)?,
        changed: time(reader)?,
    };
    let settled = match reader.byte()? {
        0 => false,
        1 => true,
        _ => return Err(Malformed("a flag is neither set nor not")),
    };
    let kind = match reader.byte()? {
        1 => KnownKind::File(Content::read(reader)?),
        2 => KnownKind::Directory(reader.count(usize::MAX)?),
        3 => KnownKind::Symlink(reader.bytes(MAX_PATH)?.into()),
        4 => KnownKind::HardLink(reader.bytes(MAX_PATH)?.into()),
        _ => return Err(Malformed("an entry is of no kind that is known")),
    };
    let mut attributes = Vec::new();
    for _ in 0..reader.count(MAX_ATTRIBUTES)? {
        let (name, value) = (reader.bytes(MAX_NAME)?, reader.bytes(MAX_ATTRIBUTE)?);
        if !is_attribute(name) {
            return Err(Malformed("an attribute is none of a user's"));
        }
        attributes.push((name.to_owned(), value.to_owned()));
    }
    Ok(Known { name: name.into(), stamp, settled, kind, attributes })
}
