//! Who descends from whom, and signals that reach nobody else.
//!
//! A process is found by its number, and numbers are used again. So a signal goes through a
//! descriptor of the process, taken before it is checked once more that the number still means the
//! process that was found: its time of start says that.

use std::collections::BTreeMap;
use std::fs;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};

/// A process, as it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) pid: i32,
    parent: i32,
    /// In ticks since the machine started.
    started: u64,
    is_zombie: bool,
}

/// Everything alive below a process, not entering what `is_closed` names.
pub(super) fn below(root: i32, is_closed: impl Fn(i32) -> bool) -> Vec<Found> {
    let mut children: BTreeMap<i32, Vec<Found>> = BTreeMap::new();
    for found in everything() {
        children.entry(found.parent).or_default().push(found);
    }
    let mut reached = Vec::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        // Removed, so that numbers that changed hands while they were read cannot make a circle.
        for child in children.remove(&parent).unwrap_or_default() {
            if !is_closed(child.pid) {
                parents.push(child.pid);
                reached.push(child);
            }
        }
    }
    reached.retain(|found| !found.is_zombie);
    reached
}

/// Sends a signal to a process that was found, and to none that has its number since.
pub(super) fn signal(found: Found, signal: Signal) {
    let Some(pid) = Pid::from_raw(found.pid) else { return };
    let descriptor = rustix::process::pidfd_open(pid, PidfdFlags::empty());
    if look(found.pid).is_none_or(|now| now.started != found.started) {
        return;
    }
    // It may have ended by now, which is as good.
    let _ended = match descriptor {
        Ok(descriptor) => rustix::process::pidfd_send_signal(descriptor, signal),
        Err(Errno::SRCH) => Ok(()),
        // An old kernel has no descriptors of processes; what is left of the risk is a moment.
        Err(_) => rustix::process::kill_process(pid, signal),
    };
}

fn everything() -> impl Iterator<Item = Found> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| look(entry.file_name().to_str()?.parse().ok()?))
}

fn look(pid: i32) -> Option<Found> {
    parse(pid, &fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// Reads `/proc/<pid>/stat`. A command's name can hold anything, parentheses too, so the fields
/// are counted from the last one.
fn parse(pid: i32, stat: &[u8]) -> Option<Found> {
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    let mut fields = std::str::from_utf8(&stat[name_end + 1..]).ok()?.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    // The 22nd field; the state is the third.
    let started = fields.nth(17)?.parse().ok()?;
    Some(Found { pid, parent, started, is_zombie: matches!(state, "Z" | "X") })
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_confuse() {
        let stat = b"7 (a) Z 1 (b) S 3 7 7 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 123456 9 10\n";
        let found = Found { pid: 7, parent: 3, started: 123_456, is_zombie: false };
        assert_eq!(parse(7, stat), Some(found));
        assert_eq!(parse(7, b"7 (cut"), None);
        assert_eq!(parse(7, b"7 (x) S 3"), None);
    }

    #[test]
    fn this_process_is_found() {
        let pid = std::process::id().cast_signed();
        let found = look(pid).unwrap();
        assert_eq!(found.pid, pid);
        assert!(everything().any(|other| other == found));
    }
}
