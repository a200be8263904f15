//! Why a sandbox could not be started, and what to do about it.

use std::fs;
use std::io;

use serde::{Deserialize, Serialize};

/// A sandbox could not be started. Nothing of it is left.
#[derive(Debug, thiserror::Error)]
#[error("could not {}{}", step.what(), on(detail))]
pub struct LaunchError {
    /// What was being done.
    pub step: Step,
    /// To what it was being done; empty if that is plain.
    pub detail: String,
    /// What the kernel said.
    #[source]
    pub source: io::Error,
    /// What an operator can do about it, if anything is known.
    pub hint: Option<String>,
}

fn on(detail: &str) -> String {
    if detail.is_empty() { String::new() } else { format!(" ({detail})") }
}

impl LaunchError {
    pub(crate) fn new(step: Step, detail: String, source: io::Error) -> Self {
        let hint = hint(step, &source, &Machine::look());
        Self { step, detail, source, hint }
    }
}

/// The steps of a start, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Checking what was asked for.
    Spec,
    /// Starting the helper program.
    Helper,
    /// Handing the order to the helper.
    Order,
    /// Joining the cgroup.
    Cgroup,
    /// Taking hold of workspace, home and program.
    Trees,
    /// Taking the session's user.
    User,
    /// Entering new namespaces.
    Namespaces,
    /// Saying who the user is inside.
    IdMaps,
    /// Starting pid 1.
    Fork,
    /// Making an empty root.
    Root,
    /// Showing the programs of the machine.
    System,
    /// Filling `/etc`.
    Etc,
    /// Filling `/dev`.
    Devices,
    /// Mounting `/proc`.
    Proc,
    /// Showing `/workspace`, `/home/agent` and `/tmp`.
    Places,
    /// Leaving the machine's root behind.
    Pivot,
    /// Switching on the loopback interface.
    Loopback,
    /// Setting limits of processes.
    Limits,
    /// Setting standard streams.
    Streams,
    /// Dropping every capability.
    Capabilities,
    /// Restricting file access.
    Landlock,
    /// Restricting system calls.
    Seccomp,
    /// Executing the program.
    Exec,
    /// Hearing from the helper.
    Answer,
}

impl Step {
    /// Completes "could not …".
    fn what(self) -> &'static str {
        match self {
            Self::Spec => "start such a sandbox",
            Self::Helper => "start the helper that makes sandboxes",
            Self::Order => "tell the helper what to start",
            Self::Cgroup => "join the sandbox's cgroup",
            Self::Trees => "take hold of the sandbox's directories",
            Self::User => "become the sandbox's user",
            Self::Namespaces => "enter new namespaces",
            Self::IdMaps => "map the sandbox's user",
            Self::Fork => "start pid 1 of the sandbox",
            Self::Root => "make the sandbox's root",
            Self::System => "show the machine's programs to the sandbox",
            Self::Etc => "fill the sandbox's /etc",
            Self::Devices => "fill the sandbox's /dev",
            Self::Proc => "mount the sandbox's /proc",
            Self::Places => "mount the sandbox's directories",
            Self::Pivot => "leave the machine's root",
            Self::Loopback => "switch on the sandbox's loopback interface",
            Self::Limits => "set the sandbox's limits",
            Self::Streams => "set the sandbox's standard streams",
            Self::Capabilities => "drop the sandbox's capabilities",
            Self::Landlock => "restrict the sandbox's files",
            Self::Seccomp => "restrict the sandbox's system calls",
            Self::Exec => "execute the sandbox's program",
            Self::Answer => "hear from the helper that makes sandboxes",
        }
    }
}

/// Settings of the machine that commonly forbid sandboxes.
#[derive(Default)]
struct Machine {
    /// `kernel.apparmor_restrict_unprivileged_userns`, of Ubuntu.
    apparmor_restricts: bool,
    /// `kernel.unprivileged_userns_clone` is 0, of Debian.
    debian_forbids: bool,
    /// `user.max_user_namespaces` is 0.
    none_allowed: bool,
    /// We seem to be in a container.
    in_container: bool,
}

impl Machine {
    fn look() -> Self {
        let sysctl = |name: &str| {
            let text = fs::read_to_string(format!("/proc/sys/{name}")).ok()?;
            text.trim().parse::<u64>().ok()
        };
        Self {
            apparmor_restricts: sysctl("kernel/apparmor_restrict_unprivileged_userns") == Some(1),
            debian_forbids: sysctl("kernel/unprivileged_userns_clone") == Some(0),
            none_allowed: sysctl("user/max_user_namespaces") == Some(0),
            in_container: ["/.dockerenv", "/run/.containerenv"]
                .iter()
                .any(|path| fs::exists(path).unwrap_or(false)),
        }
    }
}

const APPARMOR: &str = "AppArmor restricts user namespaces here (Ubuntu): run the server as root, or set \
    `sysctl kernel.apparmor_restrict_unprivileged_userns=0`, or give the helper a profile with `userns`";
const DEBIAN: &str = "set `sysctl kernel.unprivileged_userns_clone=1`, or run the server as root";
const NONE_ALLOWED: &str =
    "user namespaces are switched off: set `sysctl user.max_user_namespaces=15000`";
const CONTAINER: &str = "the container runtime forbids it: start the container with \
    `--security-opt seccomp=unconfined --security-opt apparmor=unconfined --cap-add SYS_ADMIN`";
const MASKED_PROC: &str = "a container's /proc is masked, and then no other can be mounted: start the container \
    with `--security-opt systempaths=unconfined`";
const OLD_KERNEL: &str = "the kernel is too old: 5.12 or later is needed";

const NO_USERS: &str =
    "the server needs CAP_SETUID and CAP_SETGID to give each sandbox a user: run it as root";
const MOVED: &str =
    "a directory or the program was moved or replaced while the server ran: restart the server";
const NOT_EXECUTABLE: &str =
    "everybody must be allowed to read and execute the bridge's program: `chmod 0755`";
const NO_HELPER: &str = "the program `ash-bridge` is not where the server looks for it";
const NO_ROOM: &str = "the limit of processes of the user or of the cgroup is reached";

fn hint(step: Step, source: &io::Error, machine: &Machine) -> Option<String> {
    let errno = source.raw_os_error().unwrap_or_default();
    let forbidden = errno == libc::EPERM || errno == libc::EACCES;
    let when = |so: bool, hint: &'static str| so.then_some(hint);
    // What a user namespace that is allowed for show only does not allow.
    let barred = when(forbidden && machine.apparmor_restricts, APPARMOR)
        .or(when(forbidden && machine.in_container, CONTAINER));
    let hint = match step {
        Step::Helper => when(errno == libc::ENOENT, NO_HELPER),
        Step::Trees => when(errno == libc::ESTALE, MOVED).or(barred),
        Step::User => when(forbidden, NO_USERS),
        Step::Namespaces => when(machine.none_allowed || errno == libc::ENOSPC, NONE_ALLOWED)
            .or(when(forbidden && machine.debian_forbids, DEBIAN))
            .or(barred),
        Step::Fork => when(errno == libc::EAGAIN, NO_ROOM),
        Step::Proc => when(forbidden, MASKED_PROC),
        Step::Exec => when(forbidden, NOT_EXECUTABLE),
        Step::IdMaps
        | Step::Root
        | Step::System
        | Step::Etc
        | Step::Devices
        | Step::Places
        | Step::Pivot
        | Step::Loopback => barred,
        Step::Spec
        | Step::Order
        | Step::Cgroup
        | Step::Limits
        | Step::Streams
        | Step::Capabilities
        | Step::Landlock
        | Step::Seccomp
        | Step::Answer => None,
    };
    let hint = when(errno == libc::ENOSYS, OLD_KERNEL).or(hint);
    hint.map(str::to_owned)
}

#[cfg(test)]
mod test {
    use super::*;

    fn hinted(step: Step, errno: i32, machine: &Machine) -> String {
        hint(step, &io::Error::from_raw_os_error(errno), machine).unwrap_or_default()
    }

    #[test]
    fn each_known_obstacle_has_a_hint_that_names_the_setting() {
        let ubuntu = Machine { apparmor_restricts: true, ..Machine::default() };
        let debian = Machine { debian_forbids: true, ..Machine::default() };
        let off = Machine { none_allowed: true, ..Machine::default() };
        let docker = Machine { in_container: true, ..Machine::default() };
        let plain = Machine::default();
        for (step, errno, machine, word) in [
            (Step::Namespaces, libc::EPERM, &ubuntu, "apparmor_restrict_unprivileged_userns"),
            (Step::Root, libc::EACCES, &ubuntu, "apparmor_restrict_unprivileged_userns"),
            (Step::Namespaces, libc::EPERM, &debian, "unprivileged_userns_clone"),
            (Step::Namespaces, libc::ENOSPC, &off, "max_user_namespaces"),
            (Step::Namespaces, libc::EPERM, &docker, "--cap-add SYS_ADMIN"),
            (Step::Proc, libc::EPERM, &docker, "systempaths=unconfined"),
            (Step::Trees, libc::ENOSYS, &plain, "kernel is too old"),
            (Step::User, libc::EPERM, &plain, "CAP_SETUID"),
            (Step::Exec, libc::EACCES, &plain, "chmod 0755"),
        ] {
            let hint = hinted(step, errno, machine);
            assert!(hint.contains(word), "{step:?} {errno}: {hint:?}");
        }
        assert_eq!(hinted(Step::Loopback, libc::EIO, &plain), "");
    }

    #[test]
    fn an_error_names_the_step_and_the_object() {
        let source = io::Error::from_raw_os_error(libc::ENOENT);
        let error = LaunchError::new(Step::Etc, "/etc/hosts".to_owned(), source);
        assert_eq!(error.to_string(), "could not fill the sandbox's /etc (/etc/hosts)");
    }
}
