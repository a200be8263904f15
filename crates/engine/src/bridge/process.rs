//! Which process a sandbox is, as the machine numbers it: written down when it starts, and proven
//! before it is believed, because numbers are used again.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use super::footing::Footing;

/// What is written down of a sandbox that was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Started {
    /// Its first process.
    pub(super) pid: u32,
    /// When that began, in the clock of the machine: two processes with one number differ in it.
    began: u64,
    /// What its files may take.
    pub(super) disk_bytes: Option<u64>,
    /// The project that its files are of, where the file system sees to that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) project: Option<u32>,
    /// How strongly it is isolated.
    pub(super) isolation: Isolation,
    /// The name of its cgroup, if that is not its own: it had it before it was a session's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cgroup: Option<String>,
    /// The directories that it has, if it has them by more than their names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) footing: Option<Footing>,
}

/// How strongly a sandbox is isolated, and so by what it can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Isolation {
    None,
    Rootless,
    Full,
}

impl Isolation {
    /// The word that `/health` and sessions use.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Rootless => "rootless",
            Self::Full => "full",
        }
    }
}

impl Started {
    /// Of a process that lives.
    pub(super) fn new(pid: u32, disk_bytes: Option<u64>, isolation: Isolation) -> io::Result<Self> {
        let gone = || io::Error::new(io::ErrorKind::NotFound, "it has ended already");
        let Process { pid, began } = Process::of(pid).ok_or_else(gone)?;
        let (project, cgroup, footing) = (None, None, None);
        Ok(Self { pid, began, disk_bytes, project, isolation, cgroup, footing })
    }

    /// The same, with the project that its files are of.
    pub(super) fn in_project(self, project: Option<u32>) -> Self {
        Self { project, ..self }
    }

    /// The same, with the directories that it has.
    pub(super) fn on(self, footing: Option<Footing>) -> Self {
        Self { footing, ..self }
    }

    /// The same process, as a session's: what its files may take, and what its cgroup is called.
    pub(super) fn claimed(self, disk_bytes: Option<u64>, cgroup: String) -> Self {
        Self { disk_bytes, cgroup: Some(cgroup), ..self }
    }

    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        fs::write(path, serde_json::to_vec(self)?)
    }

    /// What was written down, if it is whole.
    pub(super) fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }

    /// The process that was started.
    pub(super) fn process(&self) -> Process {
        Process { pid: self.pid, began: self.began }
    }
}

/// How the kernel says of a process that it exits, and among signals that it was killed.
const EXITING: u64 = 0x4;
const KILLED: u64 = 1 << 8;

/// A process: another one that has its number later is not it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: u32,
    began: u64,
}

impl Process {
    /// The one that has a number now.
    pub(super) fn of(pid: u32) -> Option<Self> {
        Some(Self { pid, began: Stat::of(pid)?.began })
    }

    /// When it began, in the clock of the machine.
    pub(super) fn began(self) -> u64 {
        self.began
    }

    /// Whether it has not ended, or at least keeps its number.
    pub(super) fn is_there(self) -> bool {
        Stat::of(self.pid).is_some_and(|now| now.began == self.began)
    }

    /// Whether it has ended, ends, or was killed and has yet to notice.
    pub(super) fn is_ending(self) -> bool {
        Stat::of(self.pid).is_none_or(|now| now.began != self.began || now.ends) || {
            let status = fs::read_to_string(format!("/proc/{}/status", self.pid));
            let pending = status.unwrap_or_default();
            let mut pending = pending.lines().filter_map(|line| {
                let mask = line.strip_prefix("SigPnd:").or(line.strip_prefix("ShdPnd:"))?;
                u64::from_str_radix(mask.trim(), 16).ok()
            });
            pending.any(|mask| mask & KILLED != 0)
        }
    }

    /// A handle of it, to which nobody else ever answers.
    pub(super) fn handle(self) -> Option<OwnedFd> {
        let opened = pidfd_open(self.raw()?, PidfdFlags::NONBLOCK).ok()?;
        // Asked after it was opened: whoever has the number now had it then.
        self.is_there().then_some(opened)
    }

    /// Sends it a signal, and nobody who has its number since.
    pub(super) fn send(self, signal: Signal) {
        let Some(pid) = self.raw() else { return };
        let handle = pidfd_open(pid, PidfdFlags::empty());
        if !self.is_there() {
            return;
        }
        // It may have ended by itself meanwhile.
        let _gone = match handle {
            Ok(handle) => pidfd_send_signal(handle, signal),
            Err(Errno::SRCH) => Ok(()),
            // An old kernel has no handles; what is left of the risk is a moment.
            Err(_) => kill_process(pid, signal),
        };
    }

    fn raw(self) -> Option<Pid> {
        i32::try_from(self.pid).ok().and_then(Pid::from_raw)
    }
}

/// What the machine says about a process.
pub(super) struct Stat {
    /// What it does, in one letter.
    pub(super) state: char,
    pub(super) parent: u32,
    /// Whether it is on its way out, or dead.
    ends: bool,
    /// When it began, in ticks since the machine did.
    began: u64,
}

impl Stat {
    /// Of whoever has this number now.
    pub(super) fn of(pid: u32) -> Option<Self> {
        // Between the parent and the flags, and between these and the beginning.
        const FIELDS_BEFORE_FLAGS: usize = 4;
        const FIELDS_BETWEEN: usize = 12;
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        let stat = String::from_utf8_lossy(&stat);
        // The name stands in parentheses and may hold anything, parentheses too.
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        let flags: u64 = fields.nth(FIELDS_BEFORE_FLAGS)?.parse().ok()?;
        let began = fields.nth(FIELDS_BETWEEN)?.parse().ok()?;
        let ends = flags & EXITING != 0 || matches!(state, 'Z' | 'X');
        Some(Self { state, parent, ends, began })
    }

    /// The process that this was said about.
    pub(super) fn process(&self, pid: u32) -> Process {
        Process { pid, began: self.began }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn who_was_killed_is_not_taken_for_alive_for_a_moment() {
        for _ in 0..50 {
            let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
            let process = Process::of(child.id()).unwrap();
            assert!(!process.is_ending());
            process.send(Signal::KILL);
            assert!(process.is_ending());
            child.wait().unwrap();
            assert!(process.is_ending());
        }
    }

    #[test]
    fn a_process_is_known_by_its_number_and_its_beginning() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("process");
        let ours = Started::new(std::process::id(), Some(5), Isolation::Full).unwrap();
        ours.write(&path).unwrap();
        let read = Started::read(&path).unwrap();
        assert_eq!(read, ours);
        assert!(read.process().is_there());
        let another = Started { began: ours.began + 1, ..ours.clone() };
        assert!(!another.process().is_there(), "another one has its number");
        assert!(Started::new(u32::MAX, None, Isolation::None).is_err());
        fs::write(&path, "{\"pid\":1").unwrap();
        assert_eq!(Started::read(&path), None);
    }
    #[test]
    fn a_signal_reaches_the_process_it_is_for_and_none_that_has_its_number() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let process = Process::of(child.id()).unwrap();
        let earlier = Process { began: process.began - 1, ..process };
        assert!(earlier.handle().is_none());
        earlier.send(Signal::KILL);
        // A signal that was sent would have ended it before this one is seen to have stopped it.
        process.send(Signal::STOP);
        while Stat::of(child.id()).unwrap().state != 'T' {
            std::thread::yield_now();
        }
        assert!(process.handle().is_some());
        process.send(Signal::KILL);
        assert!(!child.wait().unwrap().success());
        process.send(Signal::KILL);
    }
}
