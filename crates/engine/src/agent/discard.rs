//! Directories of agents that nobody needs any more.
//!
//! Whoever has captured a directory relies on it before any agent is recorded with it, also on one that was there
//! before. So what was relied on lately stays, whoever needs it: its time says when that was, and is changed and looked
//! at under a lock on the library, in which a directory that goes is renamed too.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use ash_core::time::Timestamp;
use rustix::fs::{FlockOperation, Timespec, Timestamps, UTIME_NOW, flock, futimens};

use super::staging::TEMPORARY;

/// How long a digest is that directories are named by.
const DIGEST: usize = 64;

/// Says that a captured directory is relied on from now on. Nothing is said of one that is gone.
pub(super) fn rely_on(library: &Path, directory: &Path) -> io::Result<()> {
    let _nobody_discards = locked(library, FlockOperation::LockShared)?;
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    futimens(File::open(directory)?, &Timestamps { last_access: now, last_modification: now })?;
    Ok(())
}

/// Removes all captured directories but those with these digests, and those that were relied on after a time, until
/// `go_on` says otherwise. Says how many. Blocks.
pub(crate) fn discard(
    library: &Path,
    used: &BTreeSet<String>,
    before: Timestamp,
    go_on: &dyn Fn() -> bool,
) -> io::Result<u64> {
    let before = UNIX_EPOCH + Duration::from_millis(before.as_millis().try_into().unwrap_or(0));
    let mut removed = 0;
    for entry in fs::read_dir(library)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let is_digest = name.len() == DIGEST && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_digest || used.contains(&name) || !go_on() {
            continue;
        }
        let directory = library.join(&name);
        // The next start removes what is called so, if this one does not come to it.
        let aside = library.join(format!("{TEMPORARY}{name}"));
        // One that was cut short left it.
        match fs::remove_dir_all(&aside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        {
            let _nobody_relies = locked(library, FlockOperation::LockExclusive)?;
            match fs::metadata(&directory).and_then(|of| of.modified()) {
                Ok(relied_on) if relied_on < before => fs::rename(&directory, &aside)?,
                Ok(_) => continue,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            }
        }
        fs::remove_dir_all(&aside)?;
        removed += 1;
    }
    Ok(removed)
}

fn locked(library: &Path, how: FlockOperation) -> io::Result<File> {
    let library = File::open(library)?;
    flock(&library, how)?;
    Ok(library)
}
