//! The server's side of the process that lets sandboxes go when the server cannot: see `ash_sandbox::guard`.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use ash_sandbox::{Cgroup, free_line, hold_line};

/// A process beside the server. It is started when it is needed first, and ends with the server or with this.
pub(super) struct Guard {
    program: PathBuf,
    child: Mutex<Option<Child>>,
}

impl Guard {
    pub(super) fn new(program: &Path) -> Self {
        Self { program: program.to_owned(), child: Mutex::default() }
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
            let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
            let _one_that_is_gone_does_nothing = write(&mut child, &free_line(file));
        }
    }

    fn tell(&self, line: &str) -> io::Result<()> {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        if write(&mut child, line) {
            return Ok(());
        }
        end(child.take());
        let started = Command::new(&self.program)
            .arg("guard")
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let input = child.insert(started).stdin.as_mut();
        input.expect("it was asked for").write_all(line.as_bytes())
    }

    /// Ends it: what is held is let go.
    pub(super) fn end(&self) {
        end(self.child.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.end();
    }
}

/// Whether there is one, and it was told.
fn write(child: &mut Option<Child>, line: &str) -> bool {
    let input = child.as_mut().and_then(|child| child.stdin.as_mut());
    input.is_some_and(|input| input.write_all(line.as_bytes()).is_ok())
}

fn end(child: Option<Child>) {
    let Some(mut child) = child else { return };
    drop(child.stdin.take());
    // It has nothing left to do but to write some words.
    let _ended = child.wait();
}
