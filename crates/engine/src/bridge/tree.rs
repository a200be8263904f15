//! The processes of a sandbox that is only a process tree.
//!
//! Without a namespace around them, what belongs to a session is told by two signs: who descends
//! from its bridge, and whose home is the session's. A process that hides from both (it left the
//! tree and changed its environment) is not found: that is what a sandbox is for.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

/// Wakes everything below a bridge, and then the bridge: it must not find its children stopped, and
/// take them for broken.
pub(super) fn wake_tree(bridge: u32) {
    for pid in descendants(bridge).into_iter().rev() {
        send(pid, Signal::CONT);
    }
}

/// Sends a signal to a bridge and everything below it, the bridge first, so that it starts nothing
/// new; again until no new process turns up.
pub(super) fn signal_tree(bridge: u32, signal: Signal) {
    const PASSES: usize = 16;
    let mut known = Vec::new();
    for _ in 0..PASSES {
        let mut fresh = descendants(bridge);
        fresh.retain(|pid| !known.contains(pid));
        if fresh.is_empty() {
            return;
        }
        for &pid in &fresh {
            send(pid, signal);
        }
        known.extend(fresh);
    }
}

/// A process and everything below it.
pub(super) fn descendants(root: u32) -> Vec<u32> {
    let parents = parents();
    let mut found: Vec<u32> = parents.contains_key(&root).then_some(root).into_iter().collect();
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(parents.iter().filter(|&(_, &of)| of == parent).map(|(&pid, _)| pid));
        next += 1;
    }
    found
}

/// Every process whose home is this one.
pub(super) fn at_home(home: &Path) -> Vec<u32> {
    let sign = [b"HOME=", home.as_os_str().as_encoded_bytes()].concat();
    let is_ours = |pid: &u32| {
        fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|environ| environ.split(|&byte| byte == 0).any(|line| line == sign))
    };
    parents().into_keys().filter(is_ours).collect()
}

/// Whether a process runs a program of this name, of which the kernel keeps fifteen bytes.
pub(super) fn has_name(pid: u32, program: &str) -> bool {
    const KEPT: usize = 15;
    let kept = &program.as_bytes()[..program.len().min(KEPT)];
    fs::read(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim_ascii_end() == kept)
}

/// A handle of a process, which another one with its number does not answer to.
pub(super) fn handle_of(pid: u32) -> Option<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw)?;
    pidfd_open(pid, PidfdFlags::NONBLOCK).ok()
}

pub(super) fn send(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // It may have ended by itself meanwhile.
        let _gone = kill_process(pid, signal);
    }
}

/// Every process that has not ended, and its parent.
fn parents() -> BTreeMap<u32, u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return BTreeMap::new() };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter_map(|pid| Some((pid, parent_of(pid)?))).collect()
}

/// Whether a process is stopped by a signal.
pub(super) fn is_stopped(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = stat.rsplit_once(')').map(|(_, after)| after);
    after_name.is_some_and(|after| after.trim_ascii_start().starts_with('T'))
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may hold anything, parentheses too.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    (state != "Z" && state != "X").then_some(parent)
}
