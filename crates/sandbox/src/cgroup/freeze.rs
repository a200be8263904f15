//! Freezing, thawing and killing all of a sandbox at once.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::{Cgroup, Role, is_gone, named, value_of, wait_until, write};

/// How long the first kind may be on its way to being frozen before it is started over. A process that
/// waits for its frozen vfork child never arrives, and never will.
const STUCK: Duration = Duration::from_millis(20);

/// How often it is started over.
const RESTARTS: usize = 50;

/// How long the second kind may be on its way.
const FREEZE_PATIENCE: Duration = Duration::from_secs(1);

/// How long killing may take.
const KILL_PATIENCE: Duration = Duration::from_secs(10);

impl Cgroup {
    /// Stops every process where it is, and returns when all of them are stopped. On failure they run.
    pub fn freeze(&self) -> io::Result<()> {
        let frozen = if let Some(dir) = self.dirs.get(&Role::Unified) {
            write(&dir.join("cgroup.freeze"), "1")?;
            wait_until(FREEZE_PATIENCE, || is_frozen_v2(dir))
        } else if let Some(dir) = self.dirs.get(&Role::Freezer) {
            freeze_v1(dir)
        } else {
            return Err(self.cannot_freeze());
        };
        if let Ok(true) = frozen {
            return Ok(());
        }
        self.thaw()?;
        frozen?;
        let what = format!("cgroup {} could not be frozen in time", self.name);
        Err(io::Error::new(io::ErrorKind::TimedOut, what))
    }

    /// Lets every process go on.
    pub fn thaw(&self) -> io::Result<()> {
        let (path, word) = self.thawing().ok_or_else(|| self.cannot_freeze())?;
        write(&path, word)
    }

    /// What thaws it, for whoever has to do it in our place: a word, and the file that it is written to.
    pub fn thawing(&self) -> Option<(PathBuf, &'static str)> {
        if let Some(dir) = self.dirs.get(&Role::Unified) {
            Some((dir.join("cgroup.freeze"), "0"))
        } else {
            let dir = self.dirs.get(&Role::Freezer)?;
            Some((dir.join("freezer.state"), "THAWED"))
        }
    }

    /// Whether every process is stopped.
    pub fn is_frozen(&self) -> io::Result<bool> {
        if let Some(dir) = self.dirs.get(&Role::Unified) {
            is_frozen_v2(dir)
        } else if let Some(dir) = self.dirs.get(&Role::Freezer) {
            is_frozen_v1(dir)
        } else {
            Ok(false)
        }
    }

    /// Whether somebody had its processes stopped, also if not all of them are yet.
    pub fn is_to_be_frozen(&self) -> io::Result<bool> {
        let Some((path, running)) = self.thawing() else { return Ok(false) };
        let state = fs::read_to_string(&path).map_err(|error| named(&path, &error))?;
        Ok(state.trim() != running)
    }

    /// Kills every process, frozen or not, and returns when there is none.
    pub fn kill(&self) -> io::Result<()> {
        let at_once = self.dirs.get(&Role::Unified).map(|dir| dir.join("cgroup.kill"));
        let at_once = at_once.filter(|file| file.exists());
        let dead = wait_until(KILL_PATIENCE, || {
            if self.processes()?.is_empty() {
                return Ok(true);
            }
            match &at_once {
                Some(file) => match fs::write(file, "1") {
                    Err(error) if is_gone(&error) => return Ok(true),
                    written => written.map_err(|error| named(file, &error))?,
                },
                None => self.kill_each()?,
            }
            Ok(false)
        })?;
        if dead {
            return Ok(());
        }
        let what = format!("processes of cgroup {} could not be killed in time", self.name);
        Err(io::Error::new(io::ErrorKind::TimedOut, what))
    }

    /// One round of killing. A process that is frozen dies when it is thawed.
    fn kill_each(&self) -> io::Result<()> {
        let handles: Vec<(u32, OwnedFd)> =
            self.processes()?.into_iter().filter_map(handle).collect();
        // A number can be another's by now. If it is still listed, the handle is of one of ours.
        let still: BTreeSet<u32> = self.processes()?.into_iter().collect();
        for (_pid, handle) in handles.iter().filter(|(pid, _handle)| still.contains(pid)) {
            let _ended = pidfd_send_signal(handle, Signal::KILL);
        }
        if self.abilities().freeze { self.thaw() } else { Ok(()) }
    }

    fn cannot_freeze(&self) -> io::Error {
        let what = format!("cgroup {} cannot be frozen on this machine", self.name);
        io::Error::new(io::ErrorKind::Unsupported, what)
    }
}

fn handle(pid: u32) -> Option<(u32, OwnedFd)> {
    let raw = Pid::from_raw(i32::try_from(pid).ok()?)?;
    Some((pid, pidfd_open(raw, PidfdFlags::empty()).ok()?))
}

fn is_frozen_v2(dir: &Path) -> io::Result<bool> {
    let path = dir.join("cgroup.events");
    let events = fs::read_to_string(&path).map_err(|error| named(&path, &error))?;
    Ok(value_of(&events, "frozen") == Some(1))
}

fn is_frozen_v1(dir: &Path) -> io::Result<bool> {
    let path = dir.join("freezer.state");
    let state = fs::read_to_string(&path).map_err(|error| named(&path, &error))?;
    Ok(state.trim() == "FROZEN")
}

fn freeze_v1(dir: &Path) -> io::Result<bool> {
    let state = dir.join("freezer.state");
    for _ in 0..RESTARTS {
        write(&state, "FROZEN")?;
        if wait_until(STUCK, || is_frozen_v1(dir))? {
            return Ok(true);
        }
        write(&state, "THAWED")?;
    }
    Ok(false)
}
