//! Files that only their owner may read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::sealer::random;

/// What these files may be at most; a larger one is none of ours.
const MAX_BYTES: u64 = 4096;

/// Why a secret's file is of no use.
#[derive(Debug, thiserror::Error)]
pub enum SecretFileError {
    /// Others may have read it.
    #[error(
        "{} can be read by others (its mode is {mode:04o}): make it yours alone with \
         `chmod 600 {}`, and consider whether it is still a secret",
        path.display(),
        path.display()
    )]
    Exposed {
        /// Which file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It does not hold what it should.
    #[error("{} is damaged: put it back from a backup, or remove it and lose what it sealed", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
    },
    /// It cannot be read or written.
    #[error("could not use {}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

/// Who made a file that is there now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Created {
    ByUs,
    BySomebodyElse,
}

/// What a file holds, and who may see it.
pub(super) struct Found {
    pub(super) text: String,
    /// Its mode, if others than its owner may do anything with it.
    pub(super) exposed: Option<u32>,
}

/// Reads a small file; nothing if there is none.
pub(super) fn read(path: &Path) -> Result<Option<Found>, SecretFileError> {
    let failed = |source| SecretFileError::Io { path: path.to_owned(), source };
    let damaged = || SecretFileError::Damaged { path: path.to_owned() };
    // Without blocking: a pipe in its place must not hold up the start.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() || metadata.len() > MAX_BYTES {
        return Err(damaged());
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut bytes).map_err(failed)?;
    let text = String::from_utf8(bytes).map_err(|_| damaged())?;
    let mode = metadata.mode() & 0o7777;
    Ok(Some(Found { text, exposed: (mode & 0o077 != 0).then_some(mode) }))
}

/// Reads a file that nobody but its owner may read; nothing if there is none.
pub(super) fn read_private(path: &Path) -> Result<Option<String>, SecretFileError> {
    let Some(found) = read(path)? else { return Ok(None) };
    match found.exposed {
        Some(mode) => Err(SecretFileError::Exposed { path: path.to_owned(), mode }),
        None => Ok(Some(found.text)),
    }
}

/// Makes a file that only its owner may read, whole and durable, unless there is one.
pub(super) fn create_private(path: &Path, bytes: &[u8]) -> Result<Created, SecretFileError> {
    // Under another name first, because a crash in between would leave half a secret for ever. A link
    // does not replace what is there, as a rename would.
    write_then(path, bytes, |temporary| match fs::hard_link(temporary, path) {
        Ok(()) => Ok(Created::ByUs),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Created::BySomebodyElse),
        Err(error) => Err(error),
    })
}

/// Puts a file that only its owner may read in the place of whatever is there, whole and durable.
pub(super) fn replace_private(path: &Path, bytes: &[u8]) -> Result<(), SecretFileError> {
    write_then(path, bytes, |temporary| fs::rename(temporary, path))
}

fn write_then<T>(
    path: &Path,
    bytes: &[u8],
    put: impl FnOnce(&Path) -> io::Result<T>,
) -> Result<T, SecretFileError> {
    let write = || {
        let dir = path.parent().expect("a secret's file lies in the data directory");
        let name = path.file_name().expect("a secret's file has a name").to_string_lossy();
        let temporary = dir.join(format!(".{name}.{}", random_name()));
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        let written = file.write_all(bytes).and_then(|()| file.sync_all());
        let put = written.and_then(|()| put(&temporary));
        // After a rename there is nothing to remove.
        let _removed = fs::remove_file(&temporary);
        let put = put?;
        File::open(dir)?.sync_all()?;
        Ok(put)
    };
    write().map_err(|source| SecretFileError::Io { path: path.to_owned(), source })
}

/// A name that nobody else has.
pub(crate) fn random_name() -> String {
    URL_SAFE_NO_PAD.encode(random::<9>())
}
