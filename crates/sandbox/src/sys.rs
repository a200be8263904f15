//! System calls that no crate of ours wraps. Everything `unsafe` of the product stands here.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use rustix::mount::MountAttrFlags;
use rustix::thread::UnshareFlags;

/// Which process comes out of [`fork_beside`].
pub(crate) enum Forked {
    /// The new one.
    Child,
    /// The one that called, which is told of the new one.
    Caller {
        /// As the caller's own namespace of processes numbers it.
        pid: u32,
        /// A handle that stays its, also when the number is used again.
        pidfd: OwnedFd,
    },
}

/// Forks a *sibling*: its parent is the caller's parent. The caller can then end, and nothing
/// stands between the two.
#[expect(unsafe_code, reason = "no crate wraps clone with a parent that is not the caller")]
pub(crate) fn fork_beside() -> io::Result<Forked> {
    let mut pidfd: RawFd = -1;
    let flags = libc::CLONE_PARENT | libc::CLONE_PIDFD | libc::SIGCHLD;
    // On aarch64 the fourth and the fifth argument are exchanged; both are unused.
    // SAFETY: without CLONE_VM this is a fork. The caller has one thread (the launcher starts none),
    // so no lock is held by a thread that the child lacks. The pointer is valid for one number.
    let pid = unsafe {
        libc::syscall(libc::SYS_clone, i64::from(flags), 0_u64, &raw mut pidfd, 0_u64, 0_u64)
    };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        pid => {
            let pid = u32::try_from(pid).map_err(io::Error::other)?;
            // SAFETY: the kernel just made it, for us alone.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            Ok(Forked::Caller { pid, pidfd })
        }
    }
}

/// Leaves the given namespaces for new ones.
#[expect(unsafe_code, reason = "rustix marks it so, because of descriptors shared by threads")]
pub(crate) fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: the caller has one thread, and the table of descriptors is not among the flags.
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}

/// What [`restrict_mount`] reaches.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The mount alone.
    One,
    /// The mount and those upon it.
    Below,
}

/// Adds attributes to a mount; what it has already stays.
#[expect(unsafe_code, reason = "no crate wraps mount_setattr")]
pub(crate) fn restrict_mount(
    mount: BorrowedFd<'_>,
    attributes: MountAttrFlags,
    reach: Reach,
) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: u64::from(attributes.bits()),
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    let recursive = if reach == Reach::Below { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is an empty string with its end, and the structure is as long as said.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | recursive,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Closes every descriptor from `first` on, now.
#[expect(unsafe_code, reason = "no crate wraps close_range")]
pub(crate) fn close_from(first: u32) -> io::Result<()> {
    // SAFETY: called before anything in this program owns a descriptor from `first` on.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0_u32) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Closes every descriptor from `first` on when another program is executed.
#[expect(unsafe_code, reason = "no crate wraps close_range")]
pub(crate) fn close_on_exec_from(first: u32) -> io::Result<()> {
    // SAFETY: it changes a flag of descriptors and nothing of what they are.
    let result =
        unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Gives every signal its default effect and blocks none.
#[expect(unsafe_code, reason = "no crate resets signals without handlers of its own")]
pub(crate) fn reset_signals() {
    for number in 1..=libc::SIGRTMAX() {
        // SAFETY: the default disposition runs no code of ours. Those that cannot be changed refuse.
        unsafe { libc::signal(number, libc::SIG_DFL) };
    }
    // SAFETY: a set of signals is plain data, and is filled in before it is read.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// Switches the loopback interface of our network namespace on.
#[expect(unsafe_code, reason = "no crate of ours wraps the ioctls of interfaces")]
pub(crate) fn raise_loopback(socket: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: plain data, of which zero is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(c"lo".to_bytes_with_nul()) {
        // A character is signed on one architecture and not on the other.
        *place = libc::c_char::from_ne_bytes([*byte]);
    }
    let up = libc::IFF_UP | libc::IFF_RUNNING;
    request.ifr_ifru.ifru_flags = i16::try_from(up).map_err(io::Error::other)?;
    // SAFETY: this ioctl reads one such structure.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes a system call that must be refused, with arguments for which it could do no harm if it
/// were not. Zeroes stand for null pointers.
#[expect(unsafe_code, reason = "what is to be refused has no wrapper")]
pub(crate) fn attempt(number: i64, arguments: [i64; 5]) -> io::Result<i64> {
    let [a, b, c, d, e] = arguments;
    // SAFETY: only `crate::inside` calls this. Its pointers are null, where the kernel answers
    // EFAULT, and none of its calls gives the kernel memory of ours to write to.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, 0_i64) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// What the kernel keeps beside an inode for project quotas and the like: `struct fsxattr` of `linux/fs.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileAttributes {
    pub(crate) flags: u32,
    pub(crate) extent_size: u32,
    pub(crate) extents: u32,
    pub(crate) project: u32,
    pub(crate) cow_extent_size: u32,
    pub(crate) reserved: [u8; 8],
}

/// What is made in a directory with this flag has its project.
pub(crate) const INHERITS_PROJECT: u32 = 0x200;

/// `FS_IOC_FSGETXATTR` and `FS_IOC_FSSETXATTR`: a direction, the size, a letter and a number.
pub(crate) const GET_ATTRIBUTES: u32 = request(2, 31);
pub(crate) const SET_ATTRIBUTES: u32 = request(1, 32);

const fn request(direction: u32, number: u32) -> u32 {
    direction << 30 | (size_of::<FileAttributes>() as u32) << 16 | (b'X' as u32) << 8 | number
}

/// Reads what the kernel keeps beside an inode.
#[expect(unsafe_code, reason = "no crate of ours wraps the ioctls of file attributes")]
pub(crate) fn attributes(file: BorrowedFd<'_>) -> io::Result<FileAttributes> {
    let mut found = FileAttributes::default();
    // SAFETY: this ioctl writes one such structure.
    let result =
        unsafe { libc::ioctl(file.as_raw_fd(), GET_ATTRIBUTES as libc::Ioctl, &raw mut found) };
    if result == 0 { Ok(found) } else { Err(io::Error::last_os_error()) }
}

/// Changes what the kernel keeps beside an inode.
#[expect(unsafe_code, reason = "no crate of ours wraps the ioctls of file attributes")]
pub(crate) fn set_attributes(file: BorrowedFd<'_>, attributes: &FileAttributes) -> io::Result<()> {
    let attributes: *const FileAttributes = attributes;
    // SAFETY: this ioctl reads one such structure.
    let result =
        unsafe { libc::ioctl(file.as_raw_fd(), SET_ATTRIBUTES as libc::Ioctl, attributes) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// What is counted and bounded of one project: `struct if_dqblk` of `linux/quota.h`.
pub(crate) type Quota = libc::dqblk;

/// Which file system a quota is of.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place<'a> {
    /// The one that something open lies on.
    Open(BorrowedFd<'a>),
    /// The one on a device, for kernels before 5.14.
    Device(&'a std::ffi::CStr),
}

/// Reads the quota of a project.
#[expect(unsafe_code, reason = "no crate of ours wraps quotactl")]
pub(crate) fn quota(place: Place<'_>, project: u32) -> io::Result<Quota> {
    // SAFETY: plain data, of which zero is a valid value.
    let mut quota: Quota = unsafe { std::mem::zeroed() };
    quota_call(place, libc::Q_GETQUOTA, project, &mut quota)?;
    Ok(quota)
}

/// Changes what is said to be valid of the quota of a project.
pub(crate) fn set_quota(place: Place<'_>, project: u32, mut quota: Quota) -> io::Result<()> {
    quota_call(place, libc::Q_SETQUOTA, project, &mut quota)
}

#[expect(unsafe_code, reason = "no crate of ours wraps quotactl")]
fn quota_call(place: Place<'_>, call: i32, project: u32, quota: &mut Quota) -> io::Result<()> {
    // The kind of quotas that are counted by project.
    const OF_PROJECTS: i32 = 2;
    let command = call << 8 | OF_PROJECTS;
    let quota: *mut Quota = quota;
    // SAFETY: both calls read or write one such structure, and read a path with its end.
    let result = unsafe {
        match place {
            Place::Open(file) => {
                libc::syscall(libc::SYS_quotactl_fd, file.as_raw_fd(), command, project, quota)
            }
            Place::Device(path) => {
                libc::syscall(libc::SYS_quotactl, command, path.as_ptr(), project, quota)
            }
        }
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
