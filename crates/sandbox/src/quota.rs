//! Project quotas: the file system itself counts what the files of a project take, and refuses more.
//!
//! A project is a number that every inode has. What is made in a directory that hands its project on has
//! the same one. Inside a user namespace nobody can change it.

use std::ffi::CString;
use std::fmt::Debug;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use rustix::fs::{fstat, major, minor};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use crate::sys::{self, FileAttributes, INHERITS_PROJECT, Place, Quota};

/// The kernel counts limits in blocks of this size, whatever the file system's are.
const BLOCK: u64 = 1024;

/// Which fields of a quota are meant: those of the bytes, and those of the files.
const BYTES_MEANT: u32 = 1;
const FILES_MEANT: u32 = 4;

/// Of which project a file is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Project {
    /// Its number; 0 is nobody's.
    pub id: u32,
    /// Whether what is made in it is of the same project. Only directories do that.
    pub is_inherited: bool,
}

/// What the files of a project may take. None is as much as there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaLimits {
    /// On the disk. Rounded down to what the kernel counts in.
    pub bytes: Option<u64>,
    /// How many files, directories and links there may be.
    pub files: Option<u64>,
}

/// What the files of a project take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaUsage {
    /// On the disk, also of files without a name.
    pub bytes: u64,
    /// How many there are.
    pub files: u64,
}

/// The quotas of file systems. The second implementation is that of the tests: few machines have any.
pub trait Quotas: Debug + Send + Sync {
    /// Of which project something open is.
    fn project(&self, file: BorrowedFd<'_>) -> io::Result<Project>;

    /// Gives something open to a project.
    fn set_project(&self, file: BorrowedFd<'_>, project: Project) -> io::Result<()>;

    /// What a project takes of the file system that `place` lies on.
    fn usage(&self, place: BorrowedFd<'_>, id: u32) -> io::Result<QuotaUsage>;

    /// Bounds what a project may take of the file system that `place` lies on.
    fn set_limits(&self, place: BorrowedFd<'_>, id: u32, limits: QuotaLimits) -> io::Result<()>;

    /// Writes as many zeros as somebody for whom limits hold: for the server they do not.
    fn write_bounded(&self, file: &File, bytes: usize) -> io::Result<()>;
}

/// Those of the kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelQuotas;

impl Quotas for KernelQuotas {
    fn project(&self, file: BorrowedFd<'_>) -> io::Result<Project> {
        let FileAttributes { project, flags, .. } = sys::attributes(file)?;
        Ok(Project { id: project, is_inherited: flags & INHERITS_PROJECT != 0 })
    }

    fn set_project(&self, file: BorrowedFd<'_>, project: Project) -> io::Result<()> {
        let found = sys::attributes(file)?;
        let handed_on = if project.is_inherited { INHERITS_PROJECT } else { 0 };
        let flags = found.flags & !INHERITS_PROJECT | handed_on;
        sys::set_attributes(file, &FileAttributes { flags, project: project.id, ..found })
    }

    fn usage(&self, place: BorrowedFd<'_>, id: u32) -> io::Result<QuotaUsage> {
        match ask_about(place, |place| sys::quota(place, id)) {
            Ok(quota) => Ok(QuotaUsage { bytes: quota.dqb_curspace, files: quota.dqb_curinodes }),
            // XFS knows only who ever had anything.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(QuotaUsage::default()),
            Err(error) => Err(error),
        }
    }

    fn set_limits(&self, place: BorrowedFd<'_>, id: u32, limits: QuotaLimits) -> io::Result<()> {
        let quota = quota_of(limits);
        ask_about(place, |place| sys::set_quota(place, id, quota))
    }

    fn write_bounded(&self, file: &File, bytes: usize) -> io::Result<()> {
        // Privileges are a thread's own: this one ends with what it has given up.
        let write = || {
            let mut sets = capabilities(None)?;
            sets.effective.remove(CapabilitySet::SYS_RESOURCE);
            set_capabilities(None, sets)?;
            let mut file = file;
            file.write_all(&vec![0; bytes])?;
            file.sync_all()
        };
        std::thread::scope(|threads| {
            let writer = threads.spawn(write);
            writer.join().unwrap_or_else(|_| Err(io::Error::other("the writer panicked")))
        })
    }
}

/// The limits as the kernel is told. 0 is none there, so that nothing at all is the least there is.
fn quota_of(limits: QuotaLimits) -> Quota {
    let told = |limit: Option<u64>, unit: u64| limit.map_or(0, |limit| (limit / unit).max(1));
    Quota {
        dqb_bhardlimit: told(limits.bytes, BLOCK),
        dqb_bsoftlimit: 0,
        dqb_curspace: 0,
        dqb_ihardlimit: told(limits.files, 1),
        dqb_isoftlimit: 0,
        dqb_curinodes: 0,
        dqb_btime: 0,
        dqb_itime: 0,
        dqb_valid: BYTES_MEANT | FILES_MEANT,
    }
}

/// Asks about the file system of something open; on an older kernel, by its device.
fn ask_about<T>(place: BorrowedFd<'_>, call: impl Fn(Place<'_>) -> io::Result<T>) -> io::Result<T> {
    match call(Place::Open(place)) {
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {
            call(Place::Device(&device_of(place)?))
        }
        told => told,
    }
}

/// The device that something open lies on, by what is mounted.
fn device_of(place: BorrowedFd<'_>) -> io::Result<CString> {
    let device = fstat(place)?.st_dev;
    let mounts = fs::read("/proc/self/mountinfo")?;
    let found = source_of(&mounts, (major(device), minor(device)));
    let unknown = || io::Error::new(io::ErrorKind::NotFound, "its device is not known");
    let path = found.ok_or_else(unknown)?.into_os_string().into_vec();
    CString::new(path).map_err(io::Error::other)
}

/// The source of what is mounted from a device, in the kernel's list of mounts.
fn source_of(mounts: &[u8], (major, minor): (u32, u32)) -> Option<PathBuf> {
    let device = format!("{major}:{minor}");
    mounts.split(|&byte| byte == b'\n').find_map(|line| {
        let mut fields = line.split(|&byte| byte == b' ');
        if fields.nth(2)? != device.as_bytes() {
            return None;
        }
        // Some fields are optional, up to a dash; then come the kind and the source.
        fields.find(|field| *field == b"-")?;
        let source = fields.nth(1)?;
        source.starts_with(b"/").then(|| std::ffi::OsString::from_vec(source.to_vec()).into())
    })
}

#[cfg(test)]
mod test {
    use std::mem::offset_of;
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn structures_lie_as_the_headers_of_the_kernel_say() {
        // `struct fsxattr` and its calls in linux/fs.h.
        assert_eq!(size_of::<FileAttributes>(), 28);
        assert_eq!(offset_of!(FileAttributes, flags), 0);
        assert_eq!(offset_of!(FileAttributes, extent_size), 4);
        assert_eq!(offset_of!(FileAttributes, extents), 8);
        assert_eq!(offset_of!(FileAttributes, project), 12);
        assert_eq!(offset_of!(FileAttributes, cow_extent_size), 16);
        assert_eq!(offset_of!(FileAttributes, reserved), 20);
        assert_eq!((sys::GET_ATTRIBUTES, sys::SET_ATTRIBUTES), (0x801c_581f, 0x401c_5820));
        // `struct if_dqblk` in linux/quota.h.
        assert_eq!(size_of::<Quota>(), 72);
        assert_eq!(offset_of!(Quota, dqb_bhardlimit), 0);
        assert_eq!(offset_of!(Quota, dqb_curspace), 16);
        assert_eq!(offset_of!(Quota, dqb_ihardlimit), 24);
        assert_eq!(offset_of!(Quota, dqb_curinodes), 40);
        assert_eq!(offset_of!(Quota, dqb_valid), 64);
    }

    #[test]
    fn a_limit_is_told_in_blocks_and_none_is_no_limit_but_nothing_is() {
        let told = |bytes, files| {
            let quota = quota_of(QuotaLimits { bytes, files });
            assert_eq!(quota.dqb_valid, 5, "limits are meant, and nothing that is counted");
            (quota.dqb_bhardlimit, quota.dqb_ihardlimit)
        };
        assert_eq!(told(Some(5 << 20), Some(100)), (5 << 10, 100));
        assert_eq!(told(None, None), (0, 0));
        assert_eq!(told(Some(0), Some(0)), (1, 1), "0 would be no limit");
    }

    #[test]
    fn the_device_of_a_file_system_is_found_among_the_mounts() {
        let mounts = b"22 1 254:0 / / rw - ext4 /dev/root rw\n\
            23 22 0:5 / /proc rw,nosuid shared:7 master:2 - proc proc rw\n\
            24 22 8:17 /data /srv rw shared:1 - xfs /dev/sdb1 rw,prjquota\n";
        assert_eq!(source_of(mounts, (8, 17)), Some("/dev/sdb1".into()));
        assert_eq!(source_of(mounts, (254, 0)), Some("/dev/root".into()));
        assert_eq!(source_of(mounts, (0, 5)), None, "it has no device");
        assert_eq!(source_of(mounts, (8, 1)), None);
        assert_eq!(source_of(b"nonsense\n24 22 8:1 / /\n", (8, 1)), None);
    }

    #[test]
    fn the_kernel_answers_or_says_why_not() {
        let dir = tempfile::tempdir().unwrap();
        let opened = File::open(dir.path()).unwrap();
        let found = match KernelQuotas.project(opened.as_fd()) {
            Ok(found) => found,
            Err(error) => {
                let errno = error.raw_os_error();
                assert!([Some(libc::ENOTTY), Some(libc::EOPNOTSUPP)].contains(&errno), "{error}");
                return;
            }
        };
        assert_eq!(found, Project::default());
        // The same again changes nothing, and needs no quotas; another one does.
        KernelQuotas.set_project(opened.as_fd(), found).unwrap();
        let other = Project { id: 200_000, is_inherited: true };
        match KernelQuotas.set_project(opened.as_fd(), other) {
            Ok(()) => assert_eq!(KernelQuotas.project(opened.as_fd()).unwrap(), other),
            // What is handed on may have changed by then: nobody's files are nobody's.
            Err(_) => assert_eq!(KernelQuotas.project(opened.as_fd()).unwrap().id, found.id),
        }
    }

    #[test]
    fn whoever_writes_for_a_try_gives_up_nothing_for_others() {
        let before = capabilities(None).unwrap();
        let file = tempfile::tempfile().unwrap();
        KernelQuotas.write_bounded(&file, 70_000).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 70_000);
        assert_eq!(capabilities(None).unwrap().effective, before.effective);
    }
}
