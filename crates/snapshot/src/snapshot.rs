//! What a capture leaves behind: the record of a snapshot.

use std::fmt;
use std::io;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::content::Content;
use crate::error::{Malformed, Result, SnapshotError};
use crate::id::Id;
use crate::objects::Put;
use crate::repository::Repository;
use crate::scan::Skipped;
use crate::text;
use crate::tree::{Modified, is_attribute};

/// The longest record.
pub(crate) const MAX_RECORD: u64 = 64 * 1024;

/// The longest name of a source.
pub const MAX_SOURCE: u64 = 4096;

/// How many bytes the paths may have that a record names as excluded.
pub const MAX_EXCLUDED: u64 = 32 * 1024;

/// How many unstable files a record names.
pub(crate) const MAX_UNSTABLE: usize = 64;

/// Where forgotten ones are kept for a while.
const FORGOTTEN: &str = "forgotten/";

/// The version that is written and read.
const VERSION: u32 = 1;

/// Names a snapshot. Later ones sort after earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SnapshotId(Uuid);

impl SnapshotId {
    /// A new one.
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }

    pub(crate) fn to_bytes(self) -> [u8; 16] {
        self.0.into_bytes()
    }

    pub(crate) fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }
}

impl Default for SnapshotId {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.hyphenated(), f)
    }
}

impl FromStr for SnapshotId {
    type Err = Malformed;

    fn from_str(text: &str) -> std::result::Result<Self, Malformed> {
        match Uuid::try_parse(text) {
            Ok(uuid) if uuid.hyphenated().to_string() == text => Ok(Self(uuid)),
            Ok(_) | Err(_) => Err(Malformed("it is no id of a snapshot")),
        }
    }
}

/// A snapshot: some trees as they were.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Snapshot {
    /// The version of the format.
    pub version: u32,
    /// Its name.
    pub id: SnapshotId,
    /// When it was captured, in milliseconds since 1970.
    pub created_at: i64,
    /// Whose it is: what its snapshots have in common, and those of others do not, such as a path or a session.
    pub source: Option<String>,
    /// The one that it was captured after.
    pub parent: Option<SnapshotId>,
    /// What somebody calls it.
    pub label: Option<String>,
    /// The trees.
    pub roots: Vec<Tree>,
    /// Bytes that were in no snapshot before.
    pub new_bytes: u64,
    /// What was added to the store for it.
    pub stored_bytes: u64,
    /// What was left out.
    pub skipped: Skipped,
    /// Files that changed each time they were read; some of them, if there are many.
    pub unstable: Vec<String>,
    /// What could not be read; some of it, if that is much.
    pub unreadable: Vec<String>,
    /// What had extended attributes that are not kept; some of it, if that is much.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stripped: Vec<String>,
    /// How many files were read after the freeze budget was spent, each with a check that it did not
    /// change meanwhile.
    pub unfrozen: u64,
    /// Whether the freeze budget was spent before every name was looked at: what was renamed while they were may
    /// be there under both names, or under none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unfrozen_scan: bool,
}

/// A tree of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Tree {
    /// What it is called.
    pub name: String,
    /// Paths that were left out, as [`Tree::excluded`] reads them.
    #[serde(rename = "excluded")]
    pub(crate) escaped: Vec<String>,
    /// Its root directory.
    pub tree: Content,
    /// The permission bits of the root directory.
    pub mode: u32,
    /// When something was made or removed in it last.
    pub modified: Modified,
    /// How many files there are.
    pub files: u64,
    /// How many directories, without the root.
    pub directories: u64,
    /// How many symbolic and hard links.
    pub links: u64,
    /// How many bytes the files have.
    pub bytes: u64,
    /// Extended attributes of the root directory, by name.
    #[serde(default, with = "hexadecimal", skip_serializing_if = "Vec::is_empty")]
    pub attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

/// How many bytes the attributes of a root directory may have, as a record has room for them.
pub(crate) const MAX_ROOT_ATTRIBUTES: usize = 4096;

/// Names and values of attributes, each in hexadecimal digits: they are any bytes.
mod hexadecimal {
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

    pub(super) fn serialize<S: Serializer>(of: &Attributes, to: S) -> Result<S::Ok, S::Error> {
        let digits = |bytes: &[u8]| -> String {
            bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(digit).collect()
        };
        let shown: Vec<_> = of.iter().map(|(name, value)| (digits(name), digits(value))).collect();
        shown.serialize(to)
    }

    fn digit(half: u8) -> char {
        char::from_digit(u32::from(half), 16).expect("half a byte is a digit")
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Attributes, D::Error> {
        let shown = Vec::<(String, String)>::deserialize(from)?;
        let both = shown.iter().map(|(name, value)| Some((bytes(name)?, bytes(value)?)));
        let all: Option<Attributes> = both.collect();
        all.ok_or_else(|| D::Error::custom("an attribute is not in hexadecimal digits"))
    }

    fn bytes(digits: &str) -> Option<Vec<u8>> {
        let halves = digits.chars().map(|digit| digit.to_digit(16));
        let halves: Vec<u8> = halves.map(|half| u8::try_from(half?).ok()).collect::<Option<_>>()?;
        let (bytes, rest) = halves.as_chunks::<2>();
        rest.is_empty().then(|| bytes.iter().map(|[high, low]| high << 4 | low).collect())
    }
}

impl Tree {
    /// Paths from the root that were left out by who captured it.
    pub fn excluded(&self) -> impl Iterator<Item = Vec<u8>> {
        self.escaped.iter().filter_map(|path| text::unescape(path))
    }

    /// Whether its record can be believed.
    fn check(&self) -> std::result::Result<(), Malformed> {
        if self.mode > 0o7777 {
            return Err(Malformed("a mode has bits that are none"));
        }
        if self.modified.nanoseconds >= 1_000_000_000 {
            return Err(Malformed("a time has more than a second of nanoseconds"));
        }
        if self.escaped.iter().any(|path| text::unescape(path).is_none()) {
            return Err(Malformed("a path that was left out is not spelled as one"));
        }
        let mut attributes = self.attributes.iter();
        if attributes.any(|(name, value)| !is_attribute(name) || value.len() > MAX_ROOT_ATTRIBUTES)
        {
            return Err(Malformed("an attribute of a root is none of a user's"));
        }
        self.tree.check()
    }
}

/// Excluded paths as a record has them.
pub(crate) fn escaped(excluded: &[Vec<u8>]) -> Result<Vec<String>> {
    let escaped: Vec<String> = excluded.iter().map(|path| text::escape(path)).collect();
    let bytes = escaped.iter().map(|path| path.len() as u64 + 3).sum::<u64>();
    if bytes > MAX_EXCLUDED {
        let what = "bytes of paths that are left out";
        return Err(SnapshotError::TooMuch { what, most: MAX_EXCLUDED });
    }
    Ok(escaped)
}

/// The only thing that is read of a record before its version is known.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

impl Snapshot {
    pub(crate) const VERSION: u32 = VERSION;

    /// How many files there are in all trees.
    pub fn files(&self) -> u64 {
        self.roots.iter().fold(0, |sum, root| root.files.saturating_add(sum))
    }

    /// How many bytes they have.
    pub fn bytes(&self) -> u64 {
        self.roots.iter().fold(0, |sum, root| root.bytes.saturating_add(sum))
    }

    /// The tree of that name.
    pub fn root(&self, name: &str) -> Result<&Tree> {
        let found = self.roots.iter().find(|root| root.name == name);
        found.ok_or_else(|| SnapshotError::Missing(format!("the tree {name} in {}", self.id)))
    }

    /// Whether it names everything that could not be read, as it is.
    pub(crate) fn names_all_unreadable(&self) -> bool {
        self.skipped.unreadable == self.unreadable.len() as u64
            && !self.unreadable.iter().any(|name| name.contains(char::REPLACEMENT_CHARACTER))
    }

    fn encode(&self) -> Vec<u8> {
        let mut record = serde_json::to_vec(self).expect("texts and numbers become JSON");
        let digest = Id::of(&record).to_string();
        record.push(b'\n');
        record.extend_from_slice(digest.as_bytes());
        record
    }

    /// Names fewer unstable files, if they are too many for a record; and says whether it fits now.
    pub(crate) fn fit(&mut self) -> bool {
        while self.encode().len() as u64 > MAX_RECORD {
            let least = self.stripped.pop().or_else(|| self.unstable.pop());
            if least.or_else(|| self.unreadable.pop()).is_none() {
                return false;
            }
        }
        true
    }

    /// Reads a record, which must be that of the snapshot with this id.
    pub fn decode(bytes: &[u8], id: SnapshotId) -> std::result::Result<Self, Malformed> {
        let record = unsealed(bytes)?;
        let no_record = |_| Malformed("it is no record");
        let Versioned { version } = serde_json::from_slice(record).map_err(no_record)?;
        if version != VERSION {
            return Err(Malformed("it is of a version that is not known"));
        }
        let read: Self = serde_json::from_slice(record).map_err(no_record)?;
        if read.id != id {
            return Err(Malformed("it is another snapshot"));
        }
        if read.source.as_ref().is_some_and(|source| source.len() as u64 > MAX_SOURCE) {
            return Err(Malformed("the name of its source is too long"));
        }
        read.roots.iter().try_for_each(Tree::check)?;
        Ok(read)
    }
}

/// What was put, if it is what its digest was made of.
fn unsealed(bytes: &[u8]) -> std::result::Result<&[u8], Malformed> {
    let line = bytes.iter().rposition(|&byte| byte == b'\n');
    let (record, digest) = bytes.split_at(line.ok_or(Malformed("it has no digest"))?);
    if digest[1..] != *Id::of(record).to_string().as_bytes() {
        return Err(Malformed("it is not what its digest is made of"));
    }
    Ok(record)
}

fn name_of(id: SnapshotId) -> String {
    format!("snapshots/{id}")
}

impl Repository {
    /// Makes a snapshot be there. Everything that it names is durable already.
    pub(crate) fn put_snapshot(&self, snapshot: &Snapshot) -> Result<()> {
        let name = name_of(snapshot.id);
        match self.objects().put(&name, &snapshot.encode()) {
            Ok(Put::Created) => Ok(()),
            Ok(Put::Existed) => {
                let exists = io::Error::from(io::ErrorKind::AlreadyExists);
                Err(SnapshotError::store("put", name)(exists))
            }
            Err(error) => Err(SnapshotError::store("put", name)(error)),
        }
    }

    /// A snapshot.
    pub fn snapshot(&self, id: SnapshotId) -> Result<Snapshot> {
        let name = name_of(id);
        let record = match self.objects().get(&name, MAX_RECORD) {
            Ok(record) => record,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(SnapshotError::Missing(format!("the snapshot {id}")));
            }
            Err(error) => return Err(SnapshotError::store("read", name)(error)),
        };
        Snapshot::decode(&record, id).map_err(SnapshotError::damaged(name))
    }

    /// Whether the record of a snapshot is there and is not what its digest was made of. What a later version has put is
    /// not torn.
    pub(crate) fn is_torn(&self, id: SnapshotId) -> Result<bool> {
        let name = name_of(id);
        match self.objects().get(&name, MAX_RECORD) {
            Ok(record) => Ok(unsealed(&record).is_err()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(SnapshotError::store("read", name)(error)),
        }
    }

    /// All snapshots, the latest first, each read when it is asked for. One that is forgotten meanwhile is left
    /// out.
    pub fn history(&self) -> Result<impl Iterator<Item = (SnapshotId, Result<Snapshot>)>> {
        let ids = self.snapshots()?.into_iter().rev();
        let read = ids.map(|id| (id, self.snapshot(id)));
        Ok(read.filter(|(_, read)| !matches!(read, Err(SnapshotError::Missing(_)))))
    }

    /// The ids of all snapshots, oldest first.
    pub fn snapshots(&self) -> Result<Vec<SnapshotId>> {
        let listed = self.objects().list("snapshots/");
        let listed = listed.map_err(SnapshotError::store("list", "snapshots/"))?;
        let ids = listed.iter().filter_map(|listed| listed.name.rsplit('/').next()?.parse().ok());
        let mut ids: Vec<SnapshotId> = ids.collect();
        ids.sort();
        Ok(ids)
    }

    /// Removes a snapshot. What only it needs is removed by collections, not before a grace period has
    /// passed: until then its record is kept among the forgotten, for captures that rely on it.
    pub fn forget(&self, id: SnapshotId) -> Result<()> {
        let name = name_of(id);
        let record = match self.objects().get(&name, MAX_RECORD) {
            Ok(record) => record,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(SnapshotError::Missing(format!("the snapshot {id}")));
            }
            // It is longer than any record: what is no record is relied on by nobody.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Vec::new(),
            // It is there and may be read later: to forget it now would say that nobody relies on it.
            Err(error) => return Err(SnapshotError::store("read", name)(error)),
        };
        // It says when that was, and is to be there for a grace period after the other is gone.
        loop {
            let now = self.time();
            let kept = format!("{FORGOTTEN}{id}.{}", now.wall);
            self.objects().put(&kept, &record).map_err(SnapshotError::store("put", kept))?;
            if self.grace().is_zero() || self.time().since(&now) < self.grace() / 8 {
                break;
            }
        }
        self.objects().delete(&name).map_err(SnapshotError::store("remove", name))?;
        self.end_distrust(id)
    }

    /// Snapshots that were forgotten not long ago.
    pub(crate) fn forgotten(&self) -> Result<Vec<Forgotten>> {
        let listed = self.objects().list(FORGOTTEN);
        let listed = listed.map_err(SnapshotError::store("list", FORGOTTEN))?;
        let ours = listed.into_iter().filter_map(|listed| {
            let (id, at) = listed.name.strip_prefix(FORGOTTEN)?.split_once('.')?;
            let (id, at) = (id.parse().ok()?, at.parse::<i64>().ok()?.max(listed.put_at));
            Some(Forgotten { id, at, name: listed.name })
        });
        Ok(ours.collect())
    }

    /// What a forgotten snapshot was.
    pub(crate) fn forgotten_snapshot(&self, id: SnapshotId, name: &str) -> Result<Snapshot> {
        let record = self.objects().get(name, MAX_RECORD);
        let record = record.map_err(SnapshotError::store("read", name))?;
        Snapshot::decode(&record, id).map_err(SnapshotError::damaged(name))
    }

    /// Takes a snapshot back that was just put.
    pub(crate) fn take_back(&self, id: SnapshotId) -> Result<()> {
        let name = name_of(id);
        self.objects().delete(&name).map_err(SnapshotError::store("remove", name))?;
        self.end_distrust(id)
    }
}

/// A snapshot that was forgotten, and when.
pub(crate) struct Forgotten {
    pub(crate) id: SnapshotId,
    pub(crate) at: i64,
    pub(crate) name: String,
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_record_names_no_more_unstable_files_than_can_be_read_back() {
        let mut snapshot = Snapshot {
            version: VERSION,
            id: SnapshotId::new(),
            created_at: 0,
            source: None,
            parent: None,
            label: None,
            roots: Vec::new(),
            new_bytes: 0,
            stored_bytes: 0,
            skipped: Skipped::default(),
            unstable: vec!["\u{1}".repeat(5000); MAX_UNSTABLE],
            unreadable: Vec::new(),
            stripped: Vec::new(),
            unfrozen: 0,
            unfrozen_scan: false,
        };
        assert!(snapshot.fit());
        assert_eq!(snapshot.unstable.len(), 2);
        assert_eq!(Snapshot::decode(&snapshot.encode(), snapshot.id), Ok(snapshot.clone()));
        snapshot.label = Some("x".repeat(70_000));
        assert!(!snapshot.fit());
    }
}
