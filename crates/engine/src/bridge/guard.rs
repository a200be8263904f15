//! The server's side of the process that lets sandboxes go when the server cannot: see `ash_sandbox::guard`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ash_sandbox::{Cgroup, END_LINE, free_line, go_line, hold_line, pause_line, wait_line};
use rustix::fs::{FlockOperation, flock};

use super::process::Process;

/// A process beside the server. It is started when it is needed first, and ends with this. If the server is killed, it
/// goes on for as long as it has something to do.
pub(super) struct Guard {
    program: PathBuf,
    /// What it is told first.
    wait: Option<String>,
    /// Says that there is a server, for as long as there is.
    _serves: Option<File>,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    child: Option<Child>,
    /// What is paused, by its first process, as it is said: another child is told again.
    paused: BTreeMap<u32, String>,
}

impl Guard {
    /// For sandboxes that leave what they say in a directory, and live so long without a server.
    pub(super) fn new(program: &Path, run: &Path, patience: Duration) -> Self {
        let serves = File::open(run).ok();
        // A guard that has it kills what is paused, and is gone in a moment.
        let is_locked = |directory: &File| flock(directory, FlockOperation::LockShared).is_ok();
        let wait = run.to_str().and_then(|run| wait_line(patience, run));
        let (program, told) = (program.to_owned(), Mutex::default());
        Self { program, wait, _serves: serves.filter(is_locked), told }
    }

    /// Says that a sandbox is paused.
    pub(super) fn pause(&self, bridge: Process, cgroup: Option<&Cgroup>) {
        let thawing = cgroup.and_then(Cgroup::thawing);
        let thawing = match &thawing {
            Some((file, word)) => match file.to_str() {
                Some(file) => Some((file, *word)),
                None => return,
            },
            None => None,
        };
        let Some(line) = pause_line(bridge.pid, bridge.began(), thawing) else { return };
        self.told().paused.insert(bridge.pid, line.clone());
        if let Err(error) = self.tell(&line) {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "nobody ends paused sandboxes if no server comes back");
        }
    }

    /// Says that it is not any more.
    pub(super) fn go(&self, bridge: Process) {
        let mut told = self.told();
        if told.paused.remove(&bridge.pid).is_some() {
            let _one_that_is_gone_does_nothing = told.write(&go_line(bridge.pid));
        }
    }

    fn told(&self) -> std::sync::MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that a sandbox is about to be held. It is held all the same if nobody listens: that is a risk, and no
    /// reason to capture nothing.
    pub(super) fn hold(&self, cgroup: &Cgroup) {
        let thawing = cgroup.thawing();
        let told = thawing.and_then(|(file, word)| hold_line(file.to_str()?, word));
        if let Some(line) = told
            && let Err(error) = self.tell(&line)
        {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "nobody lets sandboxes go if the server dies while it captures");
        }
    }

    /// Says that it was let go.
    pub(super) fn free(&self, cgroup: &Cgroup) {
        let thawing = cgroup.thawing();
        if let Some((file, _word)) = thawing
            && let Some(file) = file.to_str()
        {
            let _one_that_is_gone_does_nothing = self.told().write(&free_line(file));
        }
    }

    fn tell(&self, line: &str) -> io::Result<()> {
        let mut told = self.told();
        if told.write(line) {
            return Ok(());
        }
        told.end();
        let started = Command::new(&self.program)
            .arg("guard")
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        told.child = Some(started);
        let known: String = self.wait.iter().chain(told.paused.values()).cloned().collect();
        let is_told = told.write(&known) && told.write(line);
        if is_told { Ok(()) } else { Err(io::Error::from(io::ErrorKind::BrokenPipe)) }
    }

    /// Ends it: what is held is let go. What is paused it watches on.
    pub(super) fn end(&self) {
        self.told().end();
    }

    /// Ends it also if something is paused: another program takes the place of this one at once.
    pub(super) fn hand_over(&self) {
        let mut told = self.told();
        let _one_that_is_gone_does_nothing = told.write(END_LINE);
        told.paused.clear();
        told.end();
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.end();
    }
}

impl Told {
    /// Whether there is somebody, and was told.
    fn write(&mut self, line: &str) -> bool {
        let input = self.child.as_mut().and_then(|child| child.stdin.as_mut());
        input.is_some_and(|input| input.write_all(line.as_bytes()).is_ok())
    }

    fn end(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        drop(child.stdin.take());
        if self.paused.is_empty() {
            // It has nothing left to do but to write some words.
            let _ended = child.wait();
        } else {
            // It outlives this, unless it is gone already.
            let _still_there = child.try_wait();
        }
    }
}
