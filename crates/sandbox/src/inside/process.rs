//! Attempts on processes, and what a process of a sandbox is.

use std::fs;
use std::io;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit};

use super::{Check, Outside};
use crate::helper::HOSTNAME;

pub(super) fn checks(outside: &Outside) -> Vec<Check> {
    let mut checks = vec![
        only_own_processes(),
        Check::is("4 be another than pid 1", &std::process::id().to_string(), "1"),
        no_descriptors(),
        no_core_handler(),
        Check::is("30 learn the machine's name", &hostname(), HOSTNAME),
    ];
    for (name, field, expected) in [
        ("18 gain privileges by executing", "NoNewPrivs", "1"),
        ("18 hold a capability", "CapEff", "0000000000000000"),
        ("18 be permitted a capability", "CapPrm", "0000000000000000"),
        ("18 inherit a capability", "CapInh", "0000000000000000"),
        ("18 regain a capability", "CapBnd", "0000000000000000"),
        ("18 keep a capability", "CapAmb", "0000000000000000"),
        ("18 make unfiltered system calls", "Seccomp", "2"),
        ("be the user agent", "Uid", "1000\t1000\t1000\t1000"),
        ("be in the group agent", "Gid", "1000\t1000\t1000\t1000"),
    ] {
        checks.push(Check::is(name, &status(field), expected));
    }
    if let Some(pid) = outside.pid {
        checks.push(Check::refused("4 signal a process of the machine", test_signal(pid)));
        let path = format!("/proc/{pid}/environ");
        checks.push(Check::refused("3 read a process of the machine", fs::read(path)));
    }
    if let Some(secret) = &outside.secret {
        checks.push(no_secret(secret));
    }
    checks
}

fn only_own_processes() -> Check {
    let name = "4 see processes of the machine";
    let entries = match fs::read_dir("/proc") {
        Ok(entries) => entries,
        Err(error) => return Check::new(name, false, error.to_string()),
    };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let pids: Vec<u32> = names.filter_map(|name| name.parse().ok()).collect();
    Check::new(name, pids == [std::process::id()], format!("{pids:?}"))
}

fn no_descriptors() -> Check {
    let name = "26 use a descriptor of the server's";
    let Ok(entries) = fs::read_dir("/proc/self/fd") else {
        return Check::new(name, false, "cannot be listed");
    };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    // The list itself is read through one.
    let mut numbers: Vec<u32> = names.filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    Check::new(name, numbers == [0, 1, 2, 3], format!("{numbers:?}"))
}

/// A limit of one byte is what keeps a handler of cores, which runs outside and as root, from being called.
/// One of nothing does not, so it must not be had by asking for it.
fn no_core_handler() -> Check {
    let nothing = Rlimit { current: Some(0), maximum: Some(0) };
    let asked = setrlimit(Resource::Core, nothing);
    let now = getrlimit(Resource::Core);
    let holds = (now.current, now.maximum) == (Some(1), Some(1));
    Check::new("6 have the machine's handler of cores run", holds, format!("{asked:?}, {now:?}"))
}

fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn status(field: &str) -> String {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_default().trim().to_owned()
}

fn test_signal(pid: u32) -> io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let Some(pid) = pid else { return Err(io::ErrorKind::InvalidInput.into()) };
    Ok(rustix::process::test_kill_process(pid)?)
}

fn no_secret(secret: &str) -> Check {
    let mut places = Vec::new();
    for file in ["/proc/1/environ", "/proc/self/environ", "/proc/thread-self/environ"] {
        let found = fs::read(file).unwrap_or_default();
        // What is outside is described by an argument, so arguments are not looked at.
        if found.windows(secret.len()).any(|window| window == secret.as_bytes()) {
            places.push(file);
        }
    }
    Check::new("3 find a secret in an environment", places.is_empty(), format!("{places:?}"))
}
