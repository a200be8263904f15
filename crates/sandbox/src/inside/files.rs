//! Attempts on files. The numbers are those of the list in `SECURITY.md`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, StatVfsMountFlags};

use super::{Check, Outside};
use crate::helper::{OOM_COUNTER, PROGRAM};

/// Settings of the machine whose writing would be the end of it. Opened, never written.
const SETTINGS: [&str; 6] = [
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/kernel/hostname",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/net/ipv4/ip_forward",
    "/proc/sysrq-trigger",
];

/// What shows the machine's memory, keys or log.
const MEMORY: [&str; 6] =
    ["/proc/kcore", "/proc/keys", "/proc/kmsg", "/proc/timer_list", "/dev/mem", "/dev/kmsg"];

const READ_ONLY: [&str; 6] = ["/", "/usr", "/etc", "/run", "/dev", "/proc/sys"];
const WRITABLE: [&str; 4] = ["/workspace", "/home/agent", "/tmp", "/dev/shm"];
const NO_SETUID: [&str; 7] =
    ["/", "/usr", "/workspace", "/home/agent", "/tmp", "/dev/shm", "/proc"];

pub(super) fn checks(outside: &Outside) -> Vec<Check> {
    let mut checks = Vec::new();
    for path in
        ["/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/ssh", "/root", "/boot", "/sys"]
    {
        checks.push(Check::refused(&format!("1 read {path}"), fs::metadata(path)));
    }
    for path in &outside.paths {
        let name = format!("2 reach {} of the machine", path.display());
        checks.push(hidden(&name, path));
    }
    for dir in READ_ONLY {
        checks.push(Check::refused(&format!("5 write to {dir}"), unnamed_file(dir)));
    }
    for file in ["/etc/passwd", "/etc/ld.so.cache", "/usr/bin/env", PROGRAM, OOM_COUNTER] {
        let name = format!("5 open {file} for writing");
        checks.push(Check::refused(&name, OpenOptions::new().write(true).open(file)));
    }
    for path in SETTINGS {
        let name = format!("6 open {path} for writing");
        checks.push(Check::refused(&name, OpenOptions::new().write(true).open(path)));
    }
    checks.extend(MEMORY.map(|path| nothing_in(&format!("7 read {path}"), path)));
    checks.push(no_kernel_addresses());
    checks.push(block_device());
    for path in NO_SETUID {
        checks.push(no_setuid(path));
    }
    checks.push(hard_link());
    checks.push(nothing_in("30 read the kernel's command line", "/proc/cmdline"));
    checks.push(no_machine_mounts());
    for dir in WRITABLE {
        checks.push(Check::works(&format!("write to {dir}"), unnamed_file(dir)));
    }
    checks
}

/// A file without a name is gone as soon as it is closed: where it can be made, anything can.
fn unnamed_file(dir: &str) -> io::Result<File> {
    OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open(dir)
}

/// What is not there, or is covered by something empty.
fn hidden(name: &str, path: &Path) -> Check {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => match fs::read_dir(path).map(|mut entries| entries.next()) {
            Ok(None) => Check::new(name, true, "is empty"),
            read => Check::refused(name, read),
        },
        Ok(_) => nothing_in(name, &path.to_string_lossy()),
        found => Check::refused(name, found),
    }
}

fn nothing_in(name: &str, path: &str) -> Check {
    // Without waiting: a log has nothing to read until somebody logs.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let mut byte = [0];
    match file.and_then(|mut file| file.read(&mut byte)) {
        Ok(0) => Check::new(name, true, "is empty"),
        read => Check::refused(name, read),
    }
}

fn no_kernel_addresses() -> Check {
    let name = "7 read addresses of the kernel";
    match fs::read_to_string("/proc/kallsyms") {
        Err(error) => Check::new(name, true, error.to_string()),
        Ok(text) => {
            let address = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
            let shown = text.lines().map(address).find(|of| of.chars().any(|c| c != '0'));
            Check::new(name, shown.is_none(), if shown.is_some() { "are shown" } else { "are not" })
        }
    }
}

fn block_device() -> Check {
    let path = "/tmp/block-device";
    let (kind, mode) = (FileType::BlockDevice, Mode::RUSR | Mode::WUSR);
    let made = rustix::fs::mknodat(CWD, path, kind, mode, rustix::fs::makedev(7, 0));
    let _not_there = fs::remove_file(path);
    Check::refused_with(
        "17 make a block device",
        made.map_err(Into::into),
        &[libc::EPERM, libc::EACCES],
    )
}

fn no_setuid(path: &str) -> Check {
    let name = format!("18 let files of {path} set a user");
    match rustix::fs::statvfs(path) {
        Ok(found) => {
            let holds = found.f_flag.contains(StatVfsMountFlags::NOSUID);
            Check::new(&name, holds, format!("{:?}", found.f_flag))
        }
        Err(errno) => Check::new(&name, false, errno.to_string()),
    }
}

fn hard_link() -> Check {
    let target = "/workspace/hard-link";
    let linked =
        fs::hard_link("/etc/services", target).or_else(|_| fs::hard_link("/usr/bin/env", target));
    if linked.is_ok() {
        let _removed = fs::remove_file(target);
    }
    Check::refused("19 link a file of the machine into the workspace", linked)
}

/// Only what the launcher mounted is mounted.
fn no_machine_mounts() -> Check {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let allowed = |place: &str| {
        let top = place.split('/').nth(1).unwrap_or_default();
        let known = [
            "",
            "usr",
            "opt",
            "nix",
            "bin",
            "sbin",
            "lib",
            "lib32",
            "lib64",
            "libx32",
            "etc",
            "dev",
            "proc",
            "tmp",
            "workspace",
        ];
        known.contains(&top) || ["/home/agent", PROGRAM, OOM_COUNTER].contains(&place)
    };
    let places = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    let strange: Vec<&str> = places.filter(|place| !allowed(place)).collect();
    let old_root = Path::new("/oldroot").exists();
    let holds = !mounts.is_empty() && strange.is_empty() && !old_root;
    Check::new("30 see mounts of the machine", holds, format!("{strange:?}"))
}
