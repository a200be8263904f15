//! The file system of a sandbox: a small root of its own, with the machine's programs in it, read-only,
//! and three places to write to.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::Path;

use rustix::fs::CWD;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, UnmountFlags,
};
use rustix::net::{AddressFamily, SocketType};

use super::{At as _, Failure, SHARED};
use crate::error::Step;
use crate::order::{Order, SharedTree};
use crate::sys::{self, Reach};

/// The name of every sandbox's machine.
pub(crate) const HOSTNAME: &str = "ash";

/// Trees of the machine that everybody shares, if they exist.
const SYSTEM: [&str; 3] = ["usr", "opt", "nix"];

/// Names that are links into `/usr` on most machines, and directories on some.
const SYSTEM_OR_LINK: [&str; 6] = ["bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// What of `/etc` programs need, and holds no secrets.
const ETC: [&str; 20] = [
    "alternatives",
    "ca-certificates",
    "crypto-policies",
    "fonts",
    "java-11-openjdk",
    "java-17-openjdk",
    "java-21-openjdk",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "os-release",
    "pki/ca-trust/extracted",
    "pki/tls/certs",
    "protocols",
    "services",
    "ssl/certs",
    "ssl/cert.pem",
    "ssl/openssl.cnf",
];

/// What of `/etc` is the same in every sandbox, whatever the machine has.
const GENERATED: [(&str, &str); 7] = [
    (
        "passwd",
        "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n\
         agent:x:1000:1000:agent:/home/agent:/bin/bash\n\
         nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    ),
    ("group", "root:x:0:\nagent:x:1000:\nnogroup:x:65534:\n"),
    ("hosts", "127.0.0.1 localhost ash\n::1 localhost\n"),
    ("hostname", "ash\n"),
    ("resolv.conf", ""),
    (
        "nsswitch.conf",
        "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\n\
         protocols: files\nservices: files\n",
    ),
    ("shells", "/bin/sh\n/bin/bash\n"),
];

const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// What of `/proc` shows the machine rather than the sandbox. Empty instead.
const MASKED: [&str; 13] = [
    "acpi",
    "cmdline",
    "kallsyms",
    "kcore",
    "keys",
    "kmsg",
    "kpagecount",
    "latency_stats",
    "modules",
    "sched_debug",
    "scsi",
    "sysrq-trigger",
    "timer_list",
];
/// What of `/proc` sets something of the machine.
const READ_ONLY: [&str; 4] = ["sys", "bus", "fs", "irq"];

/// The root holds directories, links and a few short files.
const ROOT_BYTES: u64 = 1 << 20;
/// How many files fit into a memory file system, for each of its bytes.
const BYTES_PER_FILE: u64 = 4096;

const HARMLESS: MountAttrFlags =
    MountAttrFlags::MOUNT_ATTR_NOSUID.union(MountAttrFlags::MOUNT_ATTR_NODEV);
const READ_ONLY_TREE: MountAttrFlags = HARMLESS.union(MountAttrFlags::MOUNT_ATTR_RDONLY);

/// What the server opened for us.
pub(super) struct Given {
    pub(super) program: OwnedFd,
    pub(super) workspace: OwnedFd,
    pub(super) home: OwnedFd,
    pub(super) oom_counter: Option<OwnedFd>,
    pub(super) claude: Option<OwnedFd>,
    pub(super) shared: Vec<OwnedFd>,
}

/// The same as mounts that are attached nowhere yet.
pub(super) struct Trees {
    program: OwnedFd,
    workspace: OwnedFd,
    home: OwnedFd,
    oom_counter: Option<OwnedFd>,
    claude: Option<OwnedFd>,
    shared: Vec<OwnedFd>,
}

impl Given {
    /// From the descriptors themselves. It needs rights over the machine's own mounts.
    pub(super) fn clone_as_root(&self) -> io::Result<Trees> {
        self.clone_with(|given| {
            let flags = OpenTreeFlags::OPEN_TREE_CLONE
                | OpenTreeFlags::OPEN_TREE_CLOEXEC
                | OpenTreeFlags::AT_EMPTY_PATH;
            Ok(rustix::mount::open_tree(given, "", flags)?)
        })
    }

    /// By their paths, in a mount namespace that we have rights over: a descriptor from before
    /// belongs to the one that we left. What is found must be what was given.
    pub(super) fn clone_by_path(&self) -> io::Result<Trees> {
        self.clone_with(|given| {
            let number = std::os::fd::AsRawFd::as_raw_fd(given);
            let path = fs::read_link(format!("/proc/self/fd/{number}"))?;
            let flags = OpenTreeFlags::OPEN_TREE_CLONE
                | OpenTreeFlags::OPEN_TREE_CLOEXEC
                | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
            let found = rustix::mount::open_tree(CWD, &path, flags)?;
            let (expected, stat) = (rustix::fs::fstat(given)?, rustix::fs::fstat(&found)?);
            if (expected.st_dev, expected.st_ino) != (stat.st_dev, stat.st_ino) {
                return Err(io::Error::from_raw_os_error(libc::ESTALE));
            }
            Ok(found)
        })
    }

    fn clone_with(&self, clone: impl Fn(&OwnedFd) -> io::Result<OwnedFd>) -> io::Result<Trees> {
        let trees = Trees {
            program: clone(&self.program)?,
            workspace: clone(&self.workspace)?,
            home: clone(&self.home)?,
            // Where that cannot be, a command that ran out of memory looks as if it was killed. That
            // is no reason to have no sandbox.
            oom_counter: self.oom_counter.as_ref().and_then(|counter| clone(counter).ok()),
            claude: self.claude.as_ref().map(&clone).transpose()?,
            shared: self.shared.iter().map(&clone).collect::<io::Result<_>>()?,
        };
        sys::restrict_mount(trees.program.as_fd(), READ_ONLY_TREE, Reach::One)?;
        sys::restrict_mount(trees.workspace.as_fd(), HARMLESS, Reach::One)?;
        sys::restrict_mount(trees.home.as_fd(), HARMLESS, Reach::One)?;
        for shared in trees.claude.iter().chain(&trees.shared) {
            sys::restrict_mount(shared.as_fd(), READ_ONLY_TREE, Reach::One)?;
        }
        if let Some(counter) = &trees.oom_counter {
            let attributes = READ_ONLY_TREE | MountAttrFlags::MOUNT_ATTR_NOEXEC;
            sys::restrict_mount(counter.as_fd(), attributes, Reach::One)?;
        }
        Ok(trees)
    }
}

/// Builds the root and makes it the only one. Runs in pid 1: `/proc` shows the processes of whoever
/// mounts it.
pub(super) fn build(order: &Order, trees: Trees) -> Result<(), Failure> {
    let everything = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", everything).at(Step::Root)?;
    let root = memory(ROOT_BYTES, "755", MountAttrFlags::empty()).at(Step::Root)?;
    // Any directory would do; this one is on every machine. Nobody else sees what it holds now.
    // A link to another is followed.
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_SYMLINKS;
    rustix::mount::move_mount(&root, "", CWD, "/tmp", flags).at(Step::Root)?;
    rustix::process::fchdir(&root).at(Step::Root)?;
    system()?;
    etc()?;
    devices(order)?;
    proc()?;
    places(order, &trees).at(Step::Places)?;
    hide(order)?;
    // Of two roots at one place the old one lies on top, and is taken off.
    rustix::process::pivot_root(".", ".").at(Step::Pivot)?;
    rustix::mount::unmount(".", UnmountFlags::DETACH).at(Step::Pivot)?;
    rustix::process::chdir("/").at(Step::Pivot)?;
    sys::restrict_mount(root.as_fd(), READ_ONLY_TREE, Reach::One).at(Step::Pivot)?;
    rustix::system::sethostname(HOSTNAME.as_bytes()).at(Step::Loopback)?;
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None);
    sys::raise_loopback(socket.at(Step::Loopback)?.as_fd()).at(Step::Loopback)
}

fn system() -> Result<(), Failure> {
    for name in SYSTEM {
        let source = Path::new("/").join(name);
        if source.is_dir() {
            directory(name).and_then(|()| show(&source, name)).at_object(Step::System, name)?;
        }
    }
    for name in SYSTEM_OR_LINK {
        show_or_link(&Path::new("/").join(name), name).at_object(Step::System, name)?;
    }
    Ok(())
}

fn etc() -> Result<(), Failure> {
    directory("etc").at(Step::Etc)?;
    for name in ETC {
        let target = format!("etc/{name}");
        show_or_link(&Path::new("/etc").join(name), &target).at_object(Step::Etc, &target)?;
    }
    for (name, text) in GENERATED {
        let target = format!("etc/{name}");
        fs::write(&target, text).at_object(Step::Etc, &target)?;
    }
    symlink("/proc/mounts", "etc/mtab").at(Step::Etc)
}

fn devices(order: &Order) -> Result<(), Failure> {
    directory("dev").at(Step::Devices)?;
    for name in DEVICES {
        let target = format!("dev/{name}");
        let device = clone_of(Path::new("/").join(&target).as_path(), Reach::One);
        let shown = device.and_then(|device| {
            let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
            sys::restrict_mount(device.as_fd(), attributes, Reach::One)?;
            File::create(&target)?;
            attach(&device, &target)
        });
        shown.at_object(Step::Devices, &target)?;
    }
    for (target, name) in [
        ("/proc/self/fd", "fd"),
        ("/proc/self/fd/0", "stdin"),
        ("/proc/self/fd/1", "stdout"),
        ("/proc/self/fd/2", "stderr"),
        ("pts/ptmx", "ptmx"),
    ] {
        symlink(target, format!("dev/{name}")).at_object(Step::Devices, name)?;
    }
    terminals().at_object(Step::Devices, "dev/pts")?;
    let shared = memory(order.limits.shm_bytes, "1777", MountAttrFlags::MOUNT_ATTR_NOEXEC);
    shared
        .and_then(|shared| directory("dev/shm").and_then(|()| attach(&shared, "dev/shm")))
        .at_object(Step::Devices, "dev/shm")
}

/// How many terminals a sandbox can have: all of the machine share what there is.
const MAX_TERMINALS: &str = "128";

/// Terminals that no other sandbox has.
fn terminals() -> io::Result<()> {
    directory("dev/pts")?;
    let options = [("ptmxmode", "0666"), ("mode", "0620"), ("max", MAX_TERMINALS)];
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    attach(&make("devpts", &options, attributes)?, "dev/pts")
}

fn proc() -> Result<(), Failure> {
    let attributes = HARMLESS | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    directory("proc").at(Step::Proc)?;
    let proc = make("proc", &[], attributes).at(Step::Proc)?;
    attach(&proc, "proc").at(Step::Proc)?;
    for name in MASKED.map(|name| format!("proc/{name}")) {
        cover(&name).at_object(Step::Proc, &name)?;
    }
    for name in READ_ONLY.map(|name| format!("proc/{name}")) {
        if Path::new(&name).is_dir() {
            show(Path::new(&name), &name).at_object(Step::Proc, &name)?;
        }
    }
    Ok(())
}

fn places(order: &Order, trees: &Trees) -> io::Result<()> {
    for name in ["workspace", "home", "home/agent", "run", "run/ash", "var", "tmp"] {
        directory(name)?;
    }
    symlink("/tmp", "var/tmp")?;
    symlink("/run", "var/run")?;
    attach(&trees.workspace, "workspace")?;
    attach(&trees.home, "home/agent")?;
    File::create("run/ash/bridge")?;
    attach(&trees.program, "run/ash/bridge")?;
    if let Some(counter) = &trees.oom_counter {
        File::create("run/ash/oom")?;
        attach(counter, "run/ash/oom")?;
    }
    if let Some(claude) = &trees.claude {
        directory("run/ash/claude")?;
        attach(claude, "run/ash/claude")?;
    }
    for (tree, shared) in order.shared.iter().zip(&trees.shared) {
        let target = place_of(tree);
        for (end, _) in target.match_indices('/') {
            directory(&target[..end])?;
        }
        directory(&target)?;
        attach(shared, &target)?;
    }
    attach(&memory(order.limits.tmp_bytes, "1777", MountAttrFlags::empty())?, "tmp")
}

/// Whether a sandbox sees a file of the machine at the same place, given where it really is: without a link.
pub fn is_shown(path: &Path) -> bool {
    path.strip_prefix("/").is_ok_and(|relative| {
        SYSTEM.iter().chain(&SYSTEM_OR_LINK).any(|tree| relative.starts_with(tree))
    })
}

/// Where a shared directory stands, in the root that is being built.
fn place_of(shared: &SharedTree) -> String {
    format!("{}/{}", SHARED.trim_start_matches('/'), shared.name)
}

/// Covers what is the server's own, where it lies in a tree that is shown.
fn hide(order: &Order) -> Result<(), Failure> {
    for path in &order.hidden {
        for shared in &order.shared {
            let Ok(relative) = path.strip_prefix(&shared.origin) else { continue };
            let name = format!("{}/{}", place_of(shared), relative.display());
            cover(&name).at_object(Step::System, &name)?;
        }
        let Ok(relative) = path.strip_prefix("/") else { continue };
        let name = relative.to_string_lossy();
        if is_shown(path) {
            cover(&name).at_object(Step::System, &name)?;
        }
    }
    Ok(())
}

/// A new directory, that everybody may enter.
fn directory(name: &str) -> io::Result<()> {
    match DirBuilder::new().mode(0o755).create(name) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        created => created,
    }
}

/// Shows a tree of the machine read-only, with all that is mounted in it.
fn show(source: &Path, target: &str) -> io::Result<()> {
    let tree = clone_of(source, Reach::Below)?;
    sys::restrict_mount(tree.as_fd(), READ_ONLY_TREE, Reach::Below)?;
    attach(&tree, target)
}

/// Shows a file or a directory, or makes the same link. What is not there is left out.
fn show_or_link(source: &Path, target: &str) -> io::Result<()> {
    let Ok(found) = fs::symlink_metadata(source) else { return Ok(()) };
    if let Some((parent, _name)) = target.rsplit_once('/') {
        fs::create_dir_all(parent)?;
    }
    if found.is_symlink() {
        return symlink(fs::read_link(source)?, target);
    }
    if found.is_dir() {
        directory(target)?;
    } else {
        File::create(target)?;
    }
    show(source, target)
}

/// Puts something empty, that nothing can be written to, over a file or a directory. What the user
/// cannot even look at needs no cover, and cannot have one.
fn cover(target: &str) -> io::Result<()> {
    let Ok(found) = fs::metadata(target) else { return Ok(()) };
    if found.is_dir() {
        return attach(&memory(4096, "555", MountAttrFlags::MOUNT_ATTR_RDONLY)?, target);
    }
    let nothing = clone_of(Path::new("dev/null"), Reach::One)?;
    sys::restrict_mount(nothing.as_fd(), MountAttrFlags::MOUNT_ATTR_RDONLY, Reach::One)?;
    attach(&nothing, target)
}

/// A copy of a mount, attached nowhere.
fn clone_of(source: &Path, reach: Reach) -> io::Result<OwnedFd> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    if reach == Reach::Below {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    Ok(rustix::mount::open_tree(CWD, source, flags)?)
}

/// A file system in memory, attached nowhere.
fn memory(bytes: u64, mode: &str, attributes: MountAttrFlags) -> io::Result<OwnedFd> {
    let files = (bytes / BYTES_PER_FILE).max(64);
    let options =
        [("size", bytes.to_string()), ("nr_inodes", files.to_string()), ("mode", mode.to_owned())];
    let options = options.each_ref().map(|(name, value)| (*name, value.as_str()));
    make("tmpfs", &options, attributes | HARMLESS)
}

fn make(kind: &str, options: &[(&str, &str)], attributes: MountAttrFlags) -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for &(name, value) in options {
        rustix::mount::fsconfig_set_string(context.as_fd(), name, value)?;
    }
    rustix::mount::fsconfig_create(context.as_fd())?;
    Ok(rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

fn attach(mount: &OwnedFd, target: &str) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    Ok(rustix::mount::move_mount(mount, "", CWD, target, flags)?)
}
