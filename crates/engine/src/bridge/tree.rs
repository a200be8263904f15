//! The processes of a sandbox that is only a process tree.
//!
//! Without a namespace around them, what belongs to a session is told by two signs: who descends
//! from its bridge, and whose home is the session's. A process that hides from both (it left the
//! tree and changed its environment) is not found: that is what a sandbox is for.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use super::process::{Process, Stat};

/// Wakes everything below a bridge, and then the bridge: it must not find its children stopped, and
/// take them for broken.
pub(super) fn wake_tree(bridge: Process) {
    for process in descendants(bridge).into_iter().rev() {
        process.send(Signal::CONT);
    }
}

/// Sends a signal to a bridge and everything below it, the bridge first, so that it starts nothing
/// new; again until no new process turns up.
pub(super) fn signal_tree(bridge: Process, signal: Signal) {
    const PASSES: usize = 16;
    let mut known = Vec::new();
    for _ in 0..PASSES {
        let mut fresh = descendants(bridge);
        fresh.retain(|process| !known.contains(process));
        if fresh.is_empty() {
            return;
        }
        for process in &fresh {
            process.send(signal);
        }
        known.extend(fresh);
    }
}

/// Stops a bridge and everything below it; says whether all of it stands still. What forks faster than it
/// is found does not.
pub(super) fn stop_tree(bridge: Process) -> bool {
    const PASSES: usize = 200;
    for _ in 0..PASSES {
        let moving: Vec<Process> =
            descendants(bridge).into_iter().filter(|&process| !is_stopped(process)).collect();
        if moving.is_empty() {
            return true;
        }
        for process in moving {
            process.send(Signal::STOP);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}

/// A process and everything below it.
pub(super) fn descendants(root: Process) -> Vec<Process> {
    let all = everything();
    let is_root = |stat: &&Stat| stat.process(root.pid) == root;
    let mut found: Vec<Process> =
        all.get(&root.pid).filter(is_root).map(|_| root).into_iter().collect();
    let mut next = 0;
    while let Some(&Process { pid: parent, .. }) = found.get(next) {
        let children = all.iter().filter(|(_, stat)| stat.parent == parent);
        found.extend(children.map(|(&pid, stat)| stat.process(pid)));
        next += 1;
    }
    found
}

/// Every process whose home is this one.
pub(super) fn at_home(home: &Path) -> Vec<Process> {
    let sign = [b"HOME=", home.as_os_str().as_encoded_bytes()].concat();
    let is_ours = |process: &Process| {
        fs::read(format!("/proc/{}/environ", process.pid))
            .is_ok_and(|environ| environ.split(|&byte| byte == 0).any(|line| line == sign))
    };
    let all = everything().into_iter().map(|(pid, stat)| stat.process(pid));
    all.filter(is_ours).collect()
}

/// Whether a process runs a program of this name, of which the kernel keeps fifteen bytes.
pub(super) fn has_name(pid: u32, program: &str) -> bool {
    const KEPT: usize = 15;
    let kept = &program.as_bytes()[..program.len().min(KEPT)];
    fs::read(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim_ascii_end() == kept)
}

/// Whether a process is stopped by a signal.
pub(super) fn is_stopped(process: Process) -> bool {
    Stat::of(process.pid).is_some_and(|now| now.process(process.pid) == process && now.state == 'T')
}

/// Every process that has not ended.
fn everything() -> BTreeMap<u32, Stat> {
    let Ok(entries) = fs::read_dir("/proc") else { return BTreeMap::new() };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let all = numbers.filter_map(|pid| Some((pid, Stat::of(pid)?)));
    all.filter(|(_, stat)| !matches!(stat.state, 'Z' | 'X')).collect()
}
