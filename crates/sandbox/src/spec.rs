//! What a sandbox is to be: how strong, how large, and with what in it.

use std::os::fd::BorrowedFd;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::cgroup::Cgroup;

/// How strongly a sandbox is isolated. The stronger one is the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// All sandboxes have the server's own user, and only namespaces keep them apart.
    Rootless,
    /// Every sandbox has a user of its own, that nothing else on the machine has.
    Full,
}

impl Tier {
    /// The word that `/health` and the configuration use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rootless => "rootless",
            Self::Full => "full",
        }
    }
}

/// How much a sandbox may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Memory of all processes together, with what they wrote to `/tmp`, and swap. Without a cgroup
    /// it bounds the data of each process alone.
    pub memory_bytes: Option<u64>,
    /// Processor time: 100 is one processor. It needs a cgroup.
    pub cpu_percent: Option<u32>,
    /// Processes and threads.
    pub pids: Option<u32>,
    /// Descriptors of one process.
    pub open_files: u64,
    /// What fits into `/tmp`.
    pub tmp_bytes: u64,
    /// What fits into `/dev/shm`.
    pub shm_bytes: u64,
}

impl Default for Limits {
    /// 2 GiB of memory, 512 processes, 16384 descriptors, 256 MiB of `/tmp`, 64 MiB of `/dev/shm`, and
    /// as much processor time as there is.
    fn default() -> Self {
        Self {
            memory_bytes: Some(2 << 30),
            cpu_percent: None,
            pids: Some(512),
            open_files: 16_384,
            tmp_bytes: 256 << 20,
            shm_bytes: 64 << 20,
        }
    }
}

/// One sandbox that is to be started. The descriptors were opened by the server, so that what they
/// lead to may lie where the session's user cannot enter.
#[derive(Debug)]
pub struct Spec<'a> {
    /// The user and group, as the machine numbers them: one of its own in tier full, never 0. None in
    /// tier rootless, where it is the server's.
    pub uid: Option<u32>,
    /// The program that becomes pid 1. Others than its owner must be allowed to read and execute it.
    pub program: BorrowedFd<'a>,
    /// The directory that is `/workspace` inside.
    pub workspace: BorrowedFd<'a>,
    /// The directory that is `/home/agent` inside.
    pub home: BorrowedFd<'a>,
    /// Becomes descriptor 0: the listening control socket.
    pub control: BorrowedFd<'a>,
    /// Becomes descriptor 1: the spool.
    pub spool: BorrowedFd<'a>,
    /// Becomes descriptor 2: what the program complains of, and the launcher too.
    pub log: BorrowedFd<'a>,
    /// How much it may use.
    pub limits: &'a Limits,
    /// The whole environment of the program. Nothing of the server's is added.
    pub environment: &'a [(&'a str, &'a str)],
    /// Where it is counted and frozen. Without one, limits hold for each process alone.
    pub cgroup: Option<&'a Cgroup>,
    /// Arguments of the program.
    pub args: &'a [&'a str],
    /// Files and directories of the server: its data, its configuration. If one lies in what sandboxes
    /// share, such as `/opt`, it is covered.
    pub hidden: &'a [&'a Path],
    /// The directory that is [`CLAUDE`](crate::CLAUDE) inside, read-only: the versions of Claude Code that
    /// all sandboxes share. What is put there later is seen by those that run already.
    pub claude: Option<BorrowedFd<'a>>,
    /// Other directories of the machine that are shown, read-only.
    pub shared: &'a [Shared<'a>],
}

/// A directory of the machine that is shown below [`SHARED`](crate::SHARED), read-only.
#[derive(Clone, Copy, Debug)]
pub struct Shared<'a> {
    /// What it is called there: one name, or several with slashes between them.
    pub name: &'a str,
    /// The directory.
    pub directory: BorrowedFd<'a>,
    /// Where it really is on the machine: what of the server's own lies in it is covered.
    pub origin: &'a Path,
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn the_full_tier_is_the_stronger_one() {
        assert!(Tier::Full > Tier::Rootless);
        assert_eq!(serde_json::to_string(&Tier::Full).unwrap(), "\"full\"");
        assert_eq!(Tier::Rootless.as_str(), "rootless");
    }
}
