//! The bytes of attachments: `attachments/<session>/<id>` in the data directory, each there whole or not at all.
//!
//! What is known of them is in the store, and written after the bytes are there. So bytes that nobody knows are left
//! by whoever died in between, and are removed when a server starts.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ash_core::id::{AttachmentId, SessionId};

/// The largest attachment that can be allowed.
const LARGEST: u64 = 100 * 1024 * 1024;

/// What a body has beside the bytes of a file.
const BESIDE: u64 = 64 * 1024;

/// What is added to a name while its bytes arrive.
const UNFINISHED: &str = ".new";

/// Where attachments lie, and within which bounds. Cheap to clone; all clones are the same.
#[derive(Clone, Debug)]
pub struct Attachments(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    dir: PathBuf,
    max_size: u64,
    /// Sessions with attachments whose copy is not in their workspace yet.
    unplaced: Mutex<BTreeSet<SessionId>>,
}

impl Attachments {
    /// Those of a data directory, each of at most so many bytes.
    pub fn new(data: &Path, max_size: u32) -> Self {
        let (dir, max_size) = (data.join("attachments"), u64::from(max_size).min(LARGEST));
        Self(Arc::new(Inner { dir, max_size, unplaced: Mutex::default() }))
    }

    /// The largest attachment, in bytes.
    pub(crate) fn max_size(&self) -> u64 {
        self.0.max_size
    }

    /// The largest body of a request that brings one.
    pub(crate) fn max_body(&self) -> usize {
        let encoded = self.0.max_size.div_ceil(3) * 4;
        usize::try_from(encoded + BESIDE).unwrap_or(usize::MAX)
    }

    /// Keeps bytes. They are on the disk when this returns. Blocks.
    pub(crate) fn put(&self, session: SessionId, id: AttachmentId, bytes: &[u8]) -> io::Result<()> {
        let dir = self.0.dir.join(session.to_string());
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        let unfinished = dir.join(format!("{id}{UNFINISHED}"));
        let written = (|| {
            let mut file =
                File::options().write(true).create_new(true).mode(0o600).open(&unfinished)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&unfinished, dir.join(id.to_string()))?;
            // The directory may be new, and so may the one above.
            [&dir, &self.0.dir].into_iter().try_for_each(|dir| File::open(dir)?.sync_all())
        })();
        if written.is_err() {
            let _there_or_not = fs::remove_file(&unfinished);
        }
        written
    }

    /// Opens the bytes of an attachment. Blocks.
    pub(crate) fn open(&self, session: SessionId, id: AttachmentId) -> io::Result<File> {
        File::open(self.0.dir.join(session.to_string()).join(id.to_string()))
    }

    /// Removes the bytes of an attachment, if they are there. Blocks.
    pub(crate) fn remove(&self, session: SessionId, id: AttachmentId) -> io::Result<()> {
        let dir = self.0.dir.join(session.to_string());
        match fs::remove_file(dir.join(id.to_string())) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        // Only if it was the last one.
        let _others_or_gone = fs::remove_dir(dir);
        Ok(())
    }

    /// Everything that lies there. Blocks.
    pub(crate) fn list(&self) -> io::Result<Vec<(SessionId, String)>> {
        let mut found = Vec::new();
        let sessions = match fs::read_dir(&self.0.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
            sessions => sessions?,
        };
        for session in sessions {
            let session = session?;
            let Some(id) = session.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            for file in fs::read_dir(session.path())? {
                found.extend(file?.file_name().into_string().ok().map(|name| (id, name)));
            }
        }
        Ok(found)
    }

    /// Removes something that nobody knows, by its name. Blocks.
    pub(crate) fn discard(&self, session: SessionId, name: &str) -> io::Result<()> {
        let dir = self.0.dir.join(session.to_string());
        fs::remove_file(dir.join(name))?;
        let _others = fs::remove_dir(dir);
        Ok(())
    }

    /// Notes whether a session has attachments whose copies are not in its workspace.
    pub(crate) fn note_unplaced(&self, session: SessionId, has_some: bool) {
        let mut unplaced = self.0.unplaced.lock().unwrap_or_else(PoisonError::into_inner);
        if has_some {
            unplaced.insert(session);
        } else {
            unplaced.remove(&session);
        }
    }

    /// Whether a session has attachments whose copies are not in its workspace.
    pub(crate) fn has_unplaced(&self, session: SessionId) -> bool {
        self.0.unplaced.lock().unwrap_or_else(PoisonError::into_inner).contains(&session)
    }
}

/// The longest name of a file, in bytes.
const MAX_NAME_BYTES: usize = 255;

/// The name of a file, whatever it is said to be called: without directories and without anything that cannot be seen.
/// Nothing, if it is too long.
pub(crate) fn safe_name(text: &str) -> Option<String> {
    let name = text.rsplit(['/', '\\']).next().unwrap_or_default();
    let name: String = name.chars().filter(|c| !is_unseen(*c)).collect();
    let name = match name.trim() {
        "" | "." | ".." => "unnamed",
        name => name,
    };
    (name.len() <= MAX_NAME_BYTES).then(|| name.to_owned())
}

/// Whether a character cannot be seen: it controls something, turns the direction of text, or has no width.
fn is_unseen(c: char) -> bool {
    let is_format = matches!(
        c,
        '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'
            | '\u{200e}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{e0000}'..='\u{e007f}'
    );
    c.is_control() || is_format
}

/// The same name with a number, for when it is taken.
pub(crate) fn numbered(name: &str, number: u32) -> String {
    if number <= 1 {
        return name.to_owned();
    }
    let (stem, ending) = match name.rfind('.') {
        Some(at) if at > 0 => name.split_at(at),
        Some(_) | None => (name, ""),
    };
    let ending = format!("-{number}{ending}");
    let room = MAX_NAME_BYTES.saturating_sub(ending.len());
    format!("{}{ending}", &stem[..stem.floor_char_boundary(room)])
}

#[cfg(test)]
mod test {
    use ash_core::time::Timestamp;

    use super::*;

    #[test]
    fn a_name_leads_nowhere() {
        for (said, name) in [
            ("a.txt", "a.txt"),
            ("../../etc/passwd", "passwd"),
            ("C:\\Users\\me\\x.doc", "x.doc"),
            ("/", "unnamed"),
            ("..", "unnamed"),
            ("a/.", "unnamed"),
            (" \u{0}\n", "unnamed"),
            ("a\u{0}b\r\nc\u{1b}[31m.txt", "abc[31m.txt"),
            ("Zürich.png", "Zürich.png"),
            ("a\u{202e}b\u{200b}\u{2066}\u{feff}\u{ad}.txt", "ab.txt"),
            ("👨\u{200d}👩.png", "👨\u{200d}👩.png"),
            (".env", ".env"),
        ] {
            assert_eq!(safe_name(said).as_deref(), Some(name), "{said:?}");
        }
        assert_eq!(safe_name(&"n".repeat(255)).map(|name| name.len()), Some(255));
        assert_eq!(safe_name(&"n".repeat(256)), None);
    }

    #[test]
    fn a_name_that_is_taken_gets_a_number() {
        assert_eq!(numbered("a.tar.gz", 1), "a.tar.gz");
        assert_eq!(numbered("a.tar.gz", 2), "a.tar-2.gz");
        assert_eq!(numbered("a", 12), "a-12");
        assert_eq!(numbered(".env", 3), ".env-3");
        let long = format!("{}.txt", "ü".repeat(125));
        assert!(numbered(&long, 2).len() <= 255 && numbered(&long, 2).ends_with("-2.txt"));
    }

    #[test]
    fn bytes_are_there_whole_until_they_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let kept = Attachments::new(dir.path(), 10);
        let session = SessionId::from_parts(Timestamp::from_millis(1), [1; 10]);
        let id = AttachmentId::from_parts(Timestamp::from_millis(2), [2; 10]);
        assert_eq!(kept.list().unwrap(), []);
        kept.put(session, id, b"bytes").unwrap();
        assert_eq!(io::read_to_string(kept.open(session, id).unwrap()).unwrap(), "bytes");
        assert!(kept.put(session, id, b"more").is_ok(), "who tries again has it again");
        assert_eq!(kept.list().unwrap(), [(session, id.to_string())]);
        kept.remove(session, id).unwrap();
        kept.remove(session, id).unwrap();
        assert_eq!(kept.open(session, id).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(fs::read_dir(dir.path().join("attachments")).unwrap().count(), 0);
        assert_eq!(kept.max_body(), 16 + 65_536);
    }
}
