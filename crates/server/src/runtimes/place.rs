//! Where programs are installed, one at a time.
//!
//! ```text
//!   data/runtimes/lock       held by whoever installs or removes
//!                 staging/   what is not whole yet; whoever holds the lock clears it away
//!                 claude/    what is shown to sandboxes: only renamed into it, and out of it
//! ```

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use ash_engine::runtimes::{self, Installed, PROGRAM, RECORD, Record, Version, versions_in};
use rustix::fs::FlockOperation;

use super::error::{InstallError, at};

/// Held by whoever installs.
pub(super) struct Workshop {
    _lock: File,
    staging: PathBuf,
    versions: PathBuf,
}

impl Workshop {
    /// Waits until nobody else is at work, and clears away what an earlier one left. Blocks.
    pub(super) fn open(data: &Path) -> Result<Self, InstallError> {
        runtimes::make_directories(data).map_err(at(data))?;
        let versions = versions_in(data);
        let top = versions.parent().expect("it is below the data directory").to_owned();
        let path = top.join("lock");
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let lock = options.open(&path).map_err(at(&path))?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive)
            .map_err(|errno| at(&path)(errno.into()))?;
        let staging = top.join("staging");
        match fs::remove_dir_all(&staging) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(at(&staging)(error)),
        }
        fs::DirBuilder::new().mode(0o700).create(&staging).map_err(at(&staging))?;
        Ok(Self { _lock: lock, staging, versions })
    }

    /// A place for something that is not whole yet.
    pub(super) fn desk(&self, name: &str) -> PathBuf {
        self.staging.join(name)
    }

    /// The version, if it is installed and is what it was.
    pub(super) fn intact(&self, data: &Path, version: &Version) -> Option<Installed> {
        let installed = runtimes::installed_in(data).ok()?;
        let installed = installed.into_iter().find(|of| of.version == *version)?;
        let (bytes, blake3) = runtimes::digest_of(&installed.path).ok()?;
        let mode = fs::metadata(&installed.path).ok()?.permissions().mode();
        let is_intact = bytes == installed.record.bytes && blake3 == installed.record.blake3;
        (is_intact && mode & 0o555 == 0o555).then_some(installed)
    }

    /// Installs a program that lies on the desk. It appears whole, and is on the disk.
    pub(super) fn place(
        &self,
        program: &Path,
        version: Version,
        record: Record,
    ) -> Result<Installed, InstallError> {
        let whole = self.desk("whole");
        fs::DirBuilder::new().mode(0o755).create(&whole).map_err(at(&whole))?;
        let (inside, note) = (whole.join(PROGRAM), whole.join(RECORD));
        fs::rename(program, &inside).map_err(at(&inside))?;
        let mut text = serde_json::to_vec_pretty(&record).expect("it is plain text");
        text.push(b'\n');
        fs::write(&note, text).map_err(at(&note))?;
        for (path, mode) in [(&inside, 0o755), (&note, 0o644), (&whole, 0o755)] {
            // The umask of whoever installs has no say in who may run it.
            let permissions = fs::Permissions::from_mode(mode);
            fs::set_permissions(path, permissions).map_err(at(path))?;
            File::open(path).and_then(|file| file.sync_all()).map_err(at(path))?;
        }
        let target = self.versions.join(version.as_str());
        // One that is there is not what it should be: nobody would install it again otherwise.
        self.take_out(&target)?;
        fs::rename(&whole, &target).map_err(at(&target))?;
        sync(&self.versions)?;
        Ok(Installed { version, path: target.join(PROGRAM), record })
    }

    /// Removes a version. Says whether it was there. Whoever runs it keeps it until its end.
    pub(super) fn remove(&self, version: &Version) -> Result<bool, InstallError> {
        let was_there = self.take_out(&self.versions.join(version.as_str()))?;
        sync(&self.versions)?;
        Ok(was_there)
    }

    fn take_out(&self, target: &Path) -> Result<bool, InstallError> {
        let out = self.desk("out");
        match fs::rename(target, &out) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(at(target)(error)),
        }
        fs::remove_dir_all(&out).map_err(at(&out))?;
        Ok(true)
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        // What cannot be removed now is by whoever comes next.
        let _left = fs::remove_dir_all(&self.staging);
    }
}

fn sync(directory: &Path) -> Result<(), InstallError> {
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(at(directory))
}
