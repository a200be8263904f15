//! What the kernel allows.

use std::fs;
use std::path::Path;

use super::Check;

/// Every session takes a few descriptors, every client one.
const GOOD_DESCRIPTORS: u64 = 4096;

/// The first kernel with all that sandboxes use: Landlock came with it.
const SANDBOX_KERNEL: (u32, u32) = (5, 13);

/// A server raises what holds to what it may be raised to, so only that counts.
pub(super) fn descriptors((_soft, hard): (Option<u64>, Option<u64>)) -> Check {
    match hard {
        None => Check::ok("open files", "there is no limit"),
        Some(limit) if limit >= GOOD_DESCRIPTORS => {
            Check::ok("open files", format!("up to {limit} at once"))
        }
        Some(limit) => Check::warning(
            "open files",
            format!("up to {limit} at once: enough for few sessions and clients"),
            "raise the hard limit: /etc/security/limits.conf, or LimitNOFILE= with systemd",
        ),
    }
}

/// Whether processes can be seen: it is how the server knows its agents again after a restart.
pub(super) fn processes(proc: &Path) -> Check {
    match fs::read_to_string(proc.join("self/stat")) {
        Ok(_) => Check::ok("processes", format!("{} is there", proc.display())),
        Err(error) => Check::problem(
            "processes",
            format!("{} does not show processes: {error}", proc.display()),
            "mount -t proc proc /proc",
        ),
    }
}

/// What sandboxes need. Whether they work all the same is tried elsewhere, so nothing of it is a problem.
pub(super) fn sandboxes(proc: &Path, cgroup: &Path) -> Vec<Check> {
    vec![kernel(proc), user_namespaces(proc), control_groups(cgroup)]
}

fn kernel(proc: &Path) -> Check {
    let release = fs::read_to_string(proc.join("sys/kernel/osrelease")).unwrap_or_default();
    let release = release.trim();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    let (major, minor) = (numbers.next(), numbers.next());
    match (major, minor) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= SANDBOX_KERNEL => {
            Check::ok("kernel", format!("Linux {release}"))
        }
        _ => Check::warning(
            "kernel",
            format!("Linux `{release}` is too old for all that sandboxes use"),
            format!("use {}.{} or later", SANDBOX_KERNEL.0, SANDBOX_KERNEL.1),
        ),
    }
}

fn user_namespaces(proc: &Path) -> Check {
    let number = |name: &str| {
        let text = fs::read_to_string(proc.join("sys").join(name)).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let name = "user namespaces";
    if number("user/max_user_namespaces").unwrap_or(0) == 0 {
        let fix = "sysctl user.max_user_namespaces=10000";
        return Check::warning(name, "there are none, which sandboxes need", fix);
    }
    if number("kernel/unprivileged_userns_clone") == Some(0) {
        let fix = "sysctl kernel.unprivileged_userns_clone=1, or run the server as root";
        return Check::warning(name, "only root may make them", fix);
    }
    if number("kernel/apparmor_restrict_unprivileged_userns") == Some(1) {
        let fix =
            "sysctl kernel.apparmor_restrict_unprivileged_userns=0, or run the server as root";
        return Check::warning(name, "AppArmor keeps them from ordinary users", fix);
    }
    Check::ok(name, "they are allowed")
}

fn control_groups(cgroup: &Path) -> Check {
    if cgroup.join("cgroup.controllers").exists() {
        return Check::ok("control groups", "version 2");
    }
    if cgroup.join("memory").is_dir() {
        return Check::ok("control groups", "version 1");
    }
    let found =
        format!("there are none at {}, so sandboxes have no common limits", cgroup.display());
    Check::warning("control groups", found, "mount -t cgroup2 none /sys/fs/cgroup")
}
