//! The disk that everything is kept on.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ash_engine::bridge::DiskLimits;
use ash_store::sqlite::SqliteStore;

use super::Check;
use crate::secret::random_name;

/// With less room than this, a start may not even write its database.
const LEAST_ROOM: u64 = 64 << 20;

/// With less room than this, the first workspaces fill the disk.
const GOOD_ROOM: u64 = 1 << 30;

/// With fewer files than this left, one `npm install` is too much.
const GOOD_FILES: u64 = 50_000;

/// A sync that takes longer is felt in every answer.
const GOOD_SYNC: Duration = Duration::from_millis(50);

/// What the check of `ASH_MIN_FREE_MB` is called.
const KEPT_FREE: &str = "room kept free";

/// What to do about a place that is no good.
const ELSEWHERE: &str = "choose another place with --data-dir or ASH_DATA_DIR";

pub(super) fn check(data_dir: &Path, project: u32, min_free_mb: u32) -> Vec<Check> {
    // A server makes the directory. This only looks, so it looks at where it would be made.
    let Some(place) = nearest_directory(data_dir) else {
        let found = format!("{} cannot be a directory", data_dir.display());
        return vec![Check::problem("data directory", found, ELSEWHERE)];
    };
    let probe = match Probe::make(&place) {
        Ok(probe) => probe,
        Err(error) => {
            let found = format!("{} cannot be written: {error}", place.display());
            let fix = format!("make it yours with chown, or {ELSEWHERE}");
            return vec![Check::problem("data directory", found, fix)];
        }
    };
    let there = if place == data_dir { "is writable" } else { "will be made" };
    vec![
        Check::ok("data directory", format!("{} {there}", data_dir.display())),
        file_system(&place),
        room(&place),
        kept_free(&place, min_free_mb),
        sync(&probe),
        database(&probe),
        limits(&probe, project),
    ]
}

/// What keeps the files of sandboxes within their limit. Both ways hold; one refuses, the other counts.
fn limits(probe: &Probe, project: u32) -> Check {
    let found = if rustix::process::geteuid().is_root() {
        DiskLimits::find_out(&probe.0, project)
    } else {
        DiskLimits::Counted { why: "only root can set quotas".to_owned() }
    };
    Check::ok("disk", found.told())
}

/// A database that is elsewhere than in the data directory. Its directory is not made by a server.
pub(super) fn check_database(path: &Path) -> Vec<Check> {
    let name = "database elsewhere";
    let fix = "make the directory, or choose another with --database-url or ASH_DATABASE_URL";
    let place = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    };
    if path.is_dir() {
        let found = format!("{} is a directory", path.display());
        return vec![Check::problem(name, found, fix)];
    }
    let probe = match Probe::make(place) {
        Ok(probe) => probe,
        Err(error) => {
            let found = format!("{} cannot be written: {error}", place.display());
            return vec![Check::problem(name, found, fix)];
        }
    };
    let there = if path.exists() { "is there" } else { "will be made" };
    vec![
        Check::ok(name, format!("{} {there}", path.display())),
        file_system(place),
        room(place),
        sync(&probe),
        database(&probe),
    ]
}

/// The directory itself, or the nearest one above it that exists.
fn nearest_directory(path: &Path) -> Option<PathBuf> {
    // The parent of a relative name such as `data` is the empty path, which means this directory.
    let above =
        path.ancestors().map(|dir| if dir.as_os_str().is_empty() { Path::new(".") } else { dir });
    let there = above.into_iter().find(|dir| dir.symlink_metadata().is_ok())?;
    there.is_dir().then(|| there.to_owned())
}

/// A directory for trying things out. It is removed again.
struct Probe(PathBuf);

impl Probe {
    fn make(place: &Path) -> io::Result<Self> {
        let path = place.join(format!(".ash-doctor-{}", random_name()));
        fs::create_dir(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // What cannot be removed is empty, and its name says whose it was.
        let _removed = fs::remove_dir_all(&self.0);
    }
}

fn file_system(place: &Path) -> Check {
    match rustix::fs::statfs(place) {
        Ok(found) => judge_file_system(found.f_type.cast_unsigned()),
        Err(error) => {
            let found = format!("{} does not say what it is: {error}", place.display());
            Check::warning("file system", found, ELSEWHERE)
        }
    }
}

/// What a kind of file system, by its magic number, means for a database.
pub(super) fn judge_file_system(magic: u64) -> Check {
    let remote = match magic & 0xffff_ffff {
        0x6969 => Some("NFS"),
        0x517b | 0xfe53_4d42 | 0xff53_4d42 => Some("SMB"),
        0x00c3_6400 => Some("Ceph"),
        0x5346_414f => Some("AFS"),
        0x0102_1997 => Some("9P"),
        _ => None,
    };
    if let Some(name) = remote {
        let found = format!("it is {name}, where locks and syncs of SQLite cannot be relied on");
        return Check::problem("file system", found, format!("use a local disk: {ELSEWHERE}"));
    }
    match magic & 0xffff_ffff {
        0x0102_1994 | 0x8584_58f6 => Check::warning(
            "file system",
            "it is in memory: everything is gone with a reboot",
            format!("use a disk: {ELSEWHERE}"),
        ),
        0x794c_7630 => Check::warning(
            "file system",
            "it is the layer of a container: everything is gone with the container",
            "mount a volume there",
        ),
        0x6573_5546 => Check::warning(
            "file system",
            "it is in user space (FUSE), which may promise syncs that it does not do",
            format!("use a local disk: {ELSEWHERE}"),
        ),
        _ => Check::ok("file system", "it is local"),
    }
}

fn room(place: &Path) -> Check {
    match rustix::fs::statvfs(place) {
        Ok(found) => {
            let files = (found.f_files > 0).then_some(found.f_favail);
            judge_room(found.f_bavail.saturating_mul(found.f_frsize), files)
        }
        Err(error) => {
            let found = format!("{} does not say how much it has: {error}", place.display());
            Check::warning("room", found, ELSEWHERE)
        }
    }
}

/// What is left, in bytes and, where they are counted, in files.
pub(super) fn judge_room(bytes: u64, files: Option<u64>) -> Check {
    let found = format!("{} MB are free", bytes >> 20);
    let fix = format!("make room, or {ELSEWHERE}");
    if bytes < LEAST_ROOM {
        return Check::problem("room", found, fix);
    }
    if bytes < GOOD_ROOM {
        return Check::warning("room", found, fix);
    }
    match files {
        Some(files) if files < GOOD_FILES => {
            Check::warning("room", format!("{found}, but only {files} more files"), fix)
        }
        Some(_) | None => Check::ok("room", found),
    }
}

fn kept_free(place: &Path, min_free_mb: u32) -> Check {
    match rustix::fs::statvfs(place) {
        Ok(found) => {
            let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
            judge_kept_free(bytes(found.f_bavail), bytes(found.f_blocks), min_free_mb)
        }
        Err(error) => {
            let found = format!("{} does not say how much it has: {error}", place.display());
            Check::warning(KEPT_FREE, found, ELSEWHERE)
        }
    }
}

/// What `ASH_MIN_FREE_MB` means with so many bytes free, of so many.
pub(super) fn judge_kept_free(free: u64, all: u64, min_free_mb: u32) -> Check {
    let (free_mb, all_mb) = (free >> 20, all >> 20);
    if min_free_mb == 0 {
        let found =
            format!("ASH_MIN_FREE_MB is 0: {free_mb} MB are free, and nobody keeps them so");
        return Check::ok(KEPT_FREE, found);
    }
    let least = u64::from(min_free_mb);
    let found = format!("{free_mb} of {all_mb} MB are free, and {least} are to stay so");
    if all_mb < least {
        let fix =
            "set ASH_MIN_FREE_MB to less than the disk has; new sessions are refused until then";
        return Check::warning(KEPT_FREE, found, fix);
    }
    if free_mb < least {
        let fix = format!(
            "make room, or lower ASH_MIN_FREE_MB: files that snapshots have too are removed early, \
             and if that is not enough, new sessions are refused; or {ELSEWHERE}"
        );
        return Check::warning(KEPT_FREE, found, fix);
    }
    Check::ok(KEPT_FREE, format!("{found} (ASH_MIN_FREE_MB)"))
}

fn sync(probe: &Probe) -> Check {
    let timed = || {
        let mut file = File::create(probe.0.join("sync"))?;
        file.write_all(&[7; 4096])?;
        let start = Instant::now();
        file.sync_all()?;
        io::Result::Ok(start.elapsed())
    };
    match timed() {
        Ok(took) => judge_sync(took),
        Err(error) => {
            Check::problem("sync", format!("a file could not be synced: {error}"), ELSEWHERE)
        }
    }
}

pub(super) fn judge_sync(took: Duration) -> Check {
    let found = format!("a sync takes {:.1} ms", took.as_secs_f64() * 1000.0);
    if took <= GOOD_SYNC {
        return Check::ok("sync", found);
    }
    let found = format!("{found}, and every answer waits for one");
    Check::warning("sync", found, format!("use a faster disk: {ELSEWHERE}"))
}

/// Whether SQLite can make, lock and sync a database, seen twice at once as a server does.
fn database(probe: &Probe) -> Check {
    let path = probe.0.join("ash.db");
    let opened = SqliteStore::open(&path).and_then(|first| {
        let second = SqliteStore::open(&path)?;
        drop((first, second));
        Ok(())
    });
    match opened {
        Ok(()) => Check::ok("database", "SQLite can lock and sync there"),
        Err(error) => {
            let chain = anyhow::Error::from(error);
            Check::problem("database", format!("SQLite cannot work there: {chain:#}"), ELSEWHERE)
        }
    }
}
