//! What is in a bundle, read strictly: whoever made it is not trusted.
//!
//! Names and sizes are bounded before anything is held; what a bundle unpacks to is bounded however
//! small it is; only directories, ordinary files and links that stay inside are taken. A hard link to a file of the
//! bundle is a copy of that: so tar writes a file that it comes by twice, as it does where it follows links.

use std::io::{self, Read};

use flate2::read::MultiGzDecoder;
use tar::{Archive, Entry, EntryType, PaxExtensions};

use super::path::{FilePath, MAX_PATH_BYTES};
use super::{FileError, MAX_FILES, MAX_UNPACKED_BYTES};

/// The longest extension header: a name, and a few words more.
const MAX_EXTENSION_BYTES: u64 = 64 * 1024;

/// How a bundle begins.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// How much a bundle may unpack to with everything that is not content.
const MAX_STREAM_BYTES: u64 = MAX_UNPACKED_BYTES + 4096 * MAX_FILES as u64;

/// What an entry of a bundle is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    Directory,
    File {
        size: u64,
        can_run: bool,
    },
    Link {
        target: Vec<u8>,
    },
    /// What an earlier file of the bundle is.
    Copy {
        of: FilePath,
        can_run: bool,
    },
}

/// Goes through a bundle. Every entry that is visited is one that is taken.
pub(super) fn each(
    bundle: &[u8],
    mut visit: impl FnMut(FilePath, Item, &mut dyn Read) -> Result<(), FileError>,
) -> Result<(), FileError> {
    if !bundle.starts_with(&GZIP) {
        return Err(bad("it is not compressed by gzip".to_owned()));
    }
    let mut archive = Archive::new(MultiGzDecoder::new(bundle).take(MAX_STREAM_BYTES));
    let (mut count, mut bytes) = (0, 0_u64);
    let mut said = Said::default();
    for entry in archive.entries().map_err(unreadable)?.raw(true) {
        let mut entry = entry.map_err(unreadable)?;
        count += 1;
        if count > 2 * MAX_FILES {
            return Err(bad(format!("it has more than {MAX_FILES} entries")));
        }
        if said.take(&mut entry)? {
            continue;
        }
        let said = std::mem::take(&mut said);
        let name = said.path.unwrap_or_else(|| entry.path_bytes().into_owned());
        let Some((path, item)) = understood(&entry, &name, said.target)? else { continue };
        if let Item::File { size, .. } = item {
            bytes = bytes.saturating_add(size);
            if bytes > MAX_UNPACKED_BYTES {
                return Err(bad("its files have more than 1 GB".to_owned()));
            }
        }
        visit(path, item, &mut entry)?;
    }
    // The end holds the sum over all of it.
    let mut rest = archive.into_inner();
    io::copy(&mut rest, &mut io::sink()).map_err(unreadable)?;
    if rest.limit() == 0 {
        return Err(bad("it unpacks to more than 1 GB".to_owned()));
    }
    Ok(())
}

/// Whether a link can be followed by anybody without leaving the tree: where it leads is relative, and
/// goes up only at its beginning, and not beyond the root. A link that goes up later could go up from
/// where another one leads.
pub(super) fn stays_inside(path: &FilePath, target: &[u8]) -> bool {
    if target.is_empty()
        || target[0] == b'/'
        || target.contains(&0)
        || target.len() > MAX_PATH_BYTES
    {
        return false;
    }
    let mut depth = path.names().count() - 1;
    let mut is_at_the_beginning = true;
    for name in target.split(|&byte| byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." if !is_at_the_beginning || depth == 0 => return false,
            b".." => depth -= 1,
            _ => is_at_the_beginning = false,
        }
    }
    true
}

/// What the extension headers say of the entry behind them.
#[derive(Default)]
struct Said {
    path: Option<Vec<u8>>,
    target: Option<Vec<u8>>,
}

impl Said {
    /// Takes an extension header; false, if the entry is none.
    fn take(&mut self, entry: &mut Entry<'_, impl Read>) -> Result<bool, FileError> {
        let kind = entry.header().entry_type();
        if kind.is_gnu_longname() {
            self.path = Some(text(entry)?);
        } else if kind.is_gnu_longlink() {
            self.target = Some(text(entry)?);
        } else if kind.is_pax_global_extensions() {
            // What holds for all entries, such as a comment of git's.
            content(entry)?;
        } else if kind.is_pax_local_extensions() {
            self.extend(&content(entry)?)?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn extend(&mut self, extensions: &[u8]) -> Result<(), FileError> {
        for extension in PaxExtensions::new(extensions) {
            let extension = extension.map_err(unreadable)?;
            match extension.key_bytes() {
                b"path" => self.path = Some(extension.value_bytes().to_vec()),
                b"linkpath" => self.target = Some(extension.value_bytes().to_vec()),
                // Where it ends must not be said twice.
                b"size" => return Err(bad("it has a file of more than 8 GB".to_owned())),
                key if key.starts_with(b"GNU.sparse") => {
                    return Err(bad("it has a sparse file".to_owned()));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// An entry that is taken; nothing, if it is the root itself.
fn understood(
    entry: &Entry<'_, impl Read>,
    name: &[u8],
    target: Option<Vec<u8>>,
) -> Result<Option<(FilePath, Item)>, FileError> {
    let shown: String = String::from_utf8_lossy(name).chars().take(200).collect();
    let wrong = |why: &str| bad(format!("{shown:?} {why}"));
    let misplaced = |_| wrong("is not a path beneath the workspace");
    let header = entry.header();
    let kind = header.entry_type();
    if kind == EntryType::Directory {
        let path = FilePath::directory(name).map_err(misplaced)?;
        return Ok((!path.is_root()).then_some((path, Item::Directory)));
    }
    let path = FilePath::file(name).map_err(misplaced)?;
    let can_run = header.mode().map_err(unreadable)? & 0o100 != 0;
    let named = || header.link_name_bytes().map(std::borrow::Cow::into_owned);
    let target = || target.or_else(named).unwrap_or_default();
    let item = if kind == EntryType::Regular {
        Item::File { size: header.entry_size().map_err(unreadable)?, can_run }
    } else if kind == EntryType::Symlink {
        let target = target();
        if !stays_inside(&path, &target) {
            return Err(wrong("is a link that leads out of the workspace"));
        }
        Item::Link { target }
    } else if kind == EntryType::Link {
        let out = |_| wrong("is a hard link that leads out of the workspace");
        Item::Copy { of: FilePath::file(&target()).map_err(out)?, can_run }
    } else {
        return Err(wrong("is neither a file, a directory nor a link"));
    };
    Ok(Some((path, item)))
}

fn text(entry: &mut Entry<'_, impl Read>) -> Result<Vec<u8>, FileError> {
    let mut text = content(entry)?;
    if text.last() == Some(&0) {
        text.pop();
    }
    Ok(text)
}

fn content(entry: &mut Entry<'_, impl Read>) -> Result<Vec<u8>, FileError> {
    if entry.size() > MAX_EXTENSION_BYTES {
        return Err(bad("it has a header of more than 64 KB".to_owned()));
    }
    let mut content = Vec::new();
    entry.read_to_end(&mut content).map_err(unreadable)?;
    Ok(content)
}

pub(super) fn bad(why: String) -> FileError {
    FileError::BadBundle(why)
}

/// All that is read is in memory: what cannot be read is wrong.
fn unreadable(error: io::Error) -> FileError {
    let why: String = error.to_string().chars().take(200).collect();
    bad(format!("it is no tar.gz, or damaged ({why})"))
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_link_stays_inside_or_is_not_taken() {
        let inside = |path: &str, target: &str| {
            stays_inside(&FilePath::file(path.as_bytes()).unwrap(), target.as_bytes())
        };
        for (path, target) in
            [("l", "a"), ("l", "./a/b"), ("d/l", "../a"), ("d/e/l", "../../x"), ("d/l", "..")]
        {
            assert!(inside(path, target), "{path} -> {target}");
        }
        for (path, target) in [
            ("l", ""),
            ("l", "/etc/passwd"),
            ("l", ".."),
            ("l", "../x"),
            ("d/l", "../../x"),
            ("d/l", "../e/../x"),
            ("l", "a/../b"),
            ("l", "a\0"),
        ] {
            assert!(!inside(path, target), "{path} -> {target}");
        }
    }
}
