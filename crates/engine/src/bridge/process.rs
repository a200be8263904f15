//! Which process a sandbox is, as the machine numbers it: written down when it starts, and proven
//! before it is believed, because numbers are used again.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// What is written down of a sandbox that was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Started {
    /// Its first process.
    pub(super) pid: u32,
    /// When that began, in the clock of the machine: two processes with one number differ in it.
    began: u64,
    /// What its files may take.
    pub(super) disk_bytes: Option<u64>,
    /// How strongly it is isolated.
    pub(super) isolation: Isolation,
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
        Ok(Self { pid, began: beginning_of(pid).ok_or_else(gone)?, disk_bytes, isolation })
    }

    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        fs::write(path, serde_json::to_vec(self)?)
    }

    /// What was written down, if it is whole.
    pub(super) fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }

    /// Whether the process is still the one that was started.
    pub(super) fn is_there(&self) -> bool {
        beginning_of(self.pid) == Some(self.began)
    }
}

/// When a process began, in ticks since the machine did.
fn beginning_of(pid: u32) -> Option<u64> {
    const FIELDS_BEFORE: usize = 19;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may hold anything, parentheses too.
    let after_name = stat.rsplit_once(')')?.1;
    after_name.split_ascii_whitespace().nth(FIELDS_BEFORE)?.parse().ok()
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_number_and_its_beginning() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("process");
        let ours = Started::new(std::process::id(), Some(5), Isolation::Full).unwrap();
        ours.write(&path).unwrap();
        let read = Started::read(&path).unwrap();
        assert_eq!(read, ours);
        assert!(read.is_there());
        assert!(
            !Started { began: ours.began + 1, ..ours }.is_there(),
            "another one has its number"
        );
        assert!(Started::new(u32::MAX, None, Isolation::None).is_err());
        fs::write(&path, "{\"pid\":1").unwrap();
        assert_eq!(Started::read(&path), None);
    }
}
