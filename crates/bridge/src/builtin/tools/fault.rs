//! Why a tool did not do what it was asked, in words for the model.

use std::fmt;
use std::io;
use std::path::Path;

use rustix::io::Errno;

/// A sentence that tells the model what was wrong, and where possible what to do instead.
#[derive(Debug)]
pub(super) struct Fault(String);

impl Fault {
    pub(super) fn new(sentence: impl Into<String>) -> Self {
        Self(sentence.into())
    }

    /// What the system said of a path.
    pub(super) fn io(path: &Path, error: &io::Error) -> Self {
        let name = if path.as_os_str().is_empty() { Path::new(".") } else { path }.display();
        let errno = Errno::from_io_error(error);
        if errno == Some(Errno::XDEV) || errno == Some(Errno::LOOP) {
            return Self(format!(
                "{name} leads out of the workspace (as every absolute link does), or in a circle"
            ));
        }
        if error.kind() == io::ErrorKind::NotFound {
            return Self(format!("{name} does not exist"));
        }
        if error.kind() == io::ErrorKind::NotADirectory {
            return Self(format!("{name}, or a part of it, is not a directory"));
        }
        Self(format!("{name}: {error}"))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
