//! Why a program was not installed.

use std::io;
use std::path::{Path, PathBuf};

/// Why a program was not installed. Nothing of it is left, but for what the next installation clears away.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// Nobody publishes a program for this machine.
    #[error("{0}")]
    Unsupported(String),
    /// The registry does not answer, or not as one.
    #[error("{0}")]
    Unreachable(String),
    /// The registry does not have it.
    #[error("{0}")]
    NotFound(String),
    /// What came is not what it should be.
    #[error("{0}")]
    Refused(String),
    /// The disk is full.
    #[error("there is no room left on the disk of {}: it takes about {} MB", path.display(), NEEDED_MB)]
    DiskFull {
        /// Where it was to be written.
        path: PathBuf,
    },
    /// A file cannot be read or written.
    #[error("could not use {}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

/// What a package and its program take while both are there.
const NEEDED_MB: u32 = 600;

/// Names the file of an error.
pub(super) fn at(path: &Path) -> impl FnOnce(io::Error) -> InstallError {
    let path = path.to_owned();
    move |source| {
        let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
        if full.contains(&source.kind()) {
            return InstallError::DiskFull { path };
        }
        InstallError::File { path, source }
    }
}

#[cfg(test)]
mod test {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_full_disk_is_called_so() {
        // Whatever is written to it, the disk is full.
        let path = Path::new("/dev/full");
        let mut file = std::fs::File::options().write(true).open(path).unwrap();
        let error = file.write_all(b"x").map_err(at(path)).unwrap_err().to_string();
        assert!(error.starts_with("there is no room left on the disk of /dev/full"), "{error}");
    }
}
