//! Cgroups: what a sandbox may use, how much it did, and how all of it is frozen or killed at once.
//!
//! There are two kinds, and machines that have both. Of the first kind every controller has a tree of
//! its own, and a sandbox has a directory in each; of the second there is one tree for all. On a machine
//! with both, the first kind counts and bounds, and the second freezes and kills, because it does both
//! better. So a [`Cgroup`] is a set of directories by [`Role`], and a [`Version`] that says how the files
//! of the counting ones are called.

mod detect;
mod freeze;
mod setting;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use self::setting::{Setting, settings};
use crate::helper::OOM_COUNTER;
use crate::spec::Limits;

/// How long a directory may stay busy after its last process ended.
const REMOVE_PATIENCE: Duration = Duration::from_secs(2);

/// Between two looks: short at first.
const SHORTEST_PAUSE: Duration = Duration::from_micros(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(4);

/// What a directory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    /// Bounds memory, and counts who was killed for it.
    Memory,
    /// Bounds processes.
    Pids,
    /// Bounds processor time.
    Cpu,
    /// Counts processor time.
    CpuAccount,
    /// Freezes, in the first kind.
    Freezer,
    /// Freezes and kills, in the second kind.
    Unified,
}

/// How files are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// The cgroups of one server, in which those of its sandboxes lie.
#[derive(Clone, Debug)]
pub struct Cgroups {
    version: Version,
    bases: BTreeMap<Role, PathBuf>,
}

/// The cgroup of one sandbox.
#[derive(Clone, Debug)]
pub struct Cgroup {
    name: String,
    version: Version,
    dirs: BTreeMap<Role, PathBuf>,
}

/// What the cgroups of this machine can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Bound memory, and count what is killed for it.
    pub memory: bool,
    /// Bound the number of processes.
    pub pids: bool,
    /// Bound processor time.
    pub cpu: bool,
    /// Freeze and thaw.
    pub freeze: bool,
}

/// What a sandbox uses now and has used. None where this machine does not count it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Memory in use.
    pub memory_bytes: Option<u64>,
    /// Processor time used so far.
    pub cpu_micros: Option<u64>,
    /// Processes and threads alive.
    pub pids: Option<u64>,
    /// How often a fork was refused for the limit.
    pub refused_forks: Option<u64>,
    /// How long processes had to wait for the limit on processor time.
    pub throttled_micros: Option<u64>,
}

impl Cgroups {
    /// Finds a place for cgroups called `ash-<prefix>`, and makes it. Root has one at the top; anybody else
    /// only beneath a cgroup of the second kind that was delegated to them. Where there is no place,
    /// the result can do nothing, and says so.
    pub fn detect(prefix: &str) -> Self {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        Self::detect_among(prefix, &mounts)
    }

    /// The same, with the mounts that it may consider, as `/proc/self/mountinfo` lists them.
    pub fn detect_among(prefix: &str, mounts: &str) -> Self {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        detect::detect(prefix, mounts, &own, rustix::process::geteuid().is_root())
    }

    /// None at all.
    pub fn none() -> Self {
        Self { version: Version::V2, bases: BTreeMap::new() }
    }

    /// What they can do.
    pub fn abilities(&self) -> Abilities {
        abilities(&self.bases)
    }

    /// Makes the cgroup of a sandbox. None if this machine has no place for it.
    pub fn create(&self, name: &str, limits: &Limits) -> io::Result<Option<Cgroup>> {
        check_name(name)?;
        if self.bases.is_empty() {
            return Ok(None);
        }
        let cgroup = self.named(name);
        let made =
            cgroup.distinct_dirs().try_for_each(make_dir).and_then(|()| cgroup.set_limits(limits));
        match made {
            Ok(()) => Ok(Some(cgroup)),
            Err(error) => {
                let _left_for_the_reaper = cgroup.remove();
                Err(error)
            }
        }
    }

    /// Finds the cgroup of a sandbox that an earlier server made.
    pub fn open(&self, name: &str) -> io::Result<Option<Cgroup>> {
        check_name(name)?;
        let cgroup = self.named(name);
        let exists = cgroup.distinct_dirs().any(|dir| dir.is_dir());
        Ok(exists.then_some(cgroup))
    }

    /// The names of all that exist, also of those that were made or removed only in part.
    pub fn list(&self) -> io::Result<Vec<String>> {
        let mut names = BTreeSet::new();
        for base in self.bases.values().collect::<BTreeSet<_>>() {
            for entry in fs::read_dir(base).map_err(|error| named(base, &error))? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    names.extend(entry.file_name().into_string());
                }
            }
        }
        Ok(names.into_iter().collect())
    }

    /// Removes the place itself. Fails while a sandbox is in it.
    pub fn remove(self) -> io::Result<()> {
        self.bases.values().collect::<BTreeSet<_>>().into_iter().try_for_each(|dir| remove_dir(dir))
    }

    fn named(&self, name: &str) -> Cgroup {
        let dirs = self.bases.iter().map(|(&role, base)| (role, base.join(name))).collect();
        Cgroup { name: name.to_owned(), version: self.version, dirs }
    }
}

impl Cgroup {
    /// What it was created as.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it can do.
    pub fn abilities(&self) -> Abilities {
        abilities(&self.dirs)
    }

    /// Sets all limits that this machine can hold. Those that it cannot are left out; see
    /// [`Cgroup::abilities`].
    pub fn set_limits(&self, limits: &Limits) -> io::Result<()> {
        let mut refused: Vec<Setting> = Vec::new();
        for setting in settings(self.version, limits) {
            // Memory may not exceed memory with swap at any time, so the order of the two depends on
            // what they were. One that was refused is tried again when the other is set.
            if let Err(error) = self.apply(&setting) {
                if error.kind() != io::ErrorKind::InvalidInput {
                    return Err(error);
                }
                refused.push(setting);
            }
        }
        refused.iter().try_for_each(|setting| self.apply(setting))
    }

    fn apply(&self, setting: &Setting) -> io::Result<()> {
        let Some(dir) = self.dirs.get(&setting.role) else { return Ok(()) };
        let path = dir.join(setting.file);
        if setting.optional && !path.exists() {
            return Ok(());
        }
        write(&path, &setting.value)
    }

    /// What it uses.
    pub fn stats(&self) -> Stats {
        let number = |role, file: &str| self.read(role, file)?.trim().parse::<u64>().ok();
        let keyed = |role, file: &str, key: &str| value_of(&self.read(role, file)?, key);
        let nanos_to_micros = |nanos: u64| nanos / 1000;
        let refused_forks = keyed(Role::Pids, "pids.events", "max");
        let pids = number(Role::Pids, "pids.current");
        match self.version {
            Version::V1 => Stats {
                memory_bytes: number(Role::Memory, "memory.usage_in_bytes"),
                cpu_micros: number(Role::CpuAccount, "cpuacct.usage").map(nanos_to_micros),
                pids,
                refused_forks,
                throttled_micros: keyed(Role::Cpu, "cpu.stat", "throttled_time")
                    .map(nanos_to_micros),
            },
            Version::V2 => Stats {
                memory_bytes: number(Role::Memory, "memory.current"),
                cpu_micros: keyed(Role::CpuAccount, "cpu.stat", "usage_usec"),
                pids,
                refused_forks,
                throttled_micros: keyed(Role::Cpu, "cpu.stat", "throttled_usec"),
            },
        }
    }

    /// How many processes were killed because the sandbox had no memory left. It only grows.
    pub fn oom_kills(&self) -> Option<u64> {
        oom_kills_in(&self.read(Role::Memory, self.oom_counter())?)
    }

    /// The file with that number, if there is one.
    pub(crate) fn open_oom_counter(&self) -> io::Result<Option<OwnedFd>> {
        let Some(dir) = self.dirs.get(&Role::Memory) else { return Ok(None) };
        let path = dir.join(self.oom_counter());
        let file = File::open(&path).map_err(|error| named(&path, &error))?;
        Ok(Some(file.into()))
    }

    fn oom_counter(&self) -> &'static str {
        match self.version {
            Version::V1 => "memory.oom_control",
            Version::V2 => "memory.events",
        }
    }

    /// The processes in it, as the machine numbers them.
    pub fn processes(&self) -> io::Result<Vec<u32>> {
        let Some(dir) = self.distinct_dirs().next() else { return Ok(Vec::new()) };
        let path = dir.join("cgroup.procs");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if is_gone(&error) => return Ok(Vec::new()),
            Err(error) => return Err(named(&path, &error)),
        };
        // A process that our own namespace does not number is listed as 0.
        Ok(text.lines().filter_map(|line| line.parse().ok()).filter(|&pid| pid > 0).collect())
    }

    /// Removes it. Every process in it must be gone, or going.
    pub fn remove(&self) -> io::Result<()> {
        self.distinct_dirs().try_for_each(remove_tree)
    }

    /// Files that a process joins by writing to them.
    pub(crate) fn open_to_join(&self) -> io::Result<Vec<OwnedFd>> {
        let open = |dir: &Path| {
            let path = dir.join("cgroup.procs");
            let file = OpenOptions::new().write(true).open(&path);
            file.map(|file: File| file.into()).map_err(|error| named(&path, &error))
        };
        self.distinct_dirs().map(open).collect()
    }

    /// Its directories, each once: those of several roles can be the same.
    fn distinct_dirs(&self) -> impl Iterator<Item = &Path> {
        let mut seen = BTreeSet::new();
        self.dirs.values().map(PathBuf::as_path).filter(move |dir| seen.insert(*dir))
    }

    fn read(&self, role: Role, file: &str) -> Option<String> {
        fs::read_to_string(self.dirs.get(&role)?.join(file)).ok()
    }
}

fn abilities(dirs: &BTreeMap<Role, PathBuf>) -> Abilities {
    Abilities {
        memory: dirs.contains_key(&Role::Memory),
        pids: dirs.contains_key(&Role::Pids),
        cpu: dirs.contains_key(&Role::Cpu),
        freeze: dirs.contains_key(&Role::Freezer) || dirs.contains_key(&Role::Unified),
    }
}

/// How many processes of the sandbox that we are in were killed because it had no memory left. None where
/// nobody counts, and outside of sandboxes.
pub fn oom_kills_here() -> Option<u64> {
    oom_kills_in(&fs::read_to_string(OOM_COUNTER).ok()?)
}

fn oom_kills_in(counter: &str) -> Option<u64> {
    value_of(counter, "oom_kill")
}

/// The number after a key, in a file of lines with a key and a number each.
fn value_of(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(' ')?;
        (name == key).then(|| value.trim().parse().ok())?
    })
}

fn check_name(name: &str) -> io::Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > 100 || !name.chars().all(plain) {
        let what = format!("{name:?} cannot be the name of a cgroup");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    Ok(())
}

fn make_dir(dir: &Path) -> io::Result<()> {
    match fs::create_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.map_err(|error| named(dir, &error)),
    }
}

fn remove_tree(dir: &Path) -> io::Result<()> {
    // Nothing inside can make any; a tool of the operator's may have.
    if let Ok(entries) = fs::read_dir(dir) {
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                remove_tree(&entry.path())?;
            }
        }
    }
    remove_dir(dir)
}

fn remove_dir(dir: &Path) -> io::Result<()> {
    let mut last = None;
    wait_until(REMOVE_PATIENCE, || match fs::remove_dir(dir) {
        Ok(()) => Ok(true),
        Err(error) if is_gone(&error) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            last = Some(error);
            Ok(false)
        }
        Err(error) => Err(named(dir, &error)),
    })
    .and_then(|removed| match last {
        Some(error) if !removed => Err(named(dir, &error)),
        Some(_) | None => Ok(()),
    })
}

/// Looks until it is so, or the time is over. Says whether it is so.
fn wait_until(most: Duration, mut is_so: impl FnMut() -> io::Result<bool>) -> io::Result<bool> {
    let deadline = Instant::now() + most;
    let mut pause = SHORTEST_PAUSE;
    loop {
        if is_so()? {
            return Ok(true);
        }
        if Instant::now() >= deadline {
            return Ok(false);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn write(path: &Path, value: &str) -> io::Result<()> {
    fs::write(path, value).map_err(|error| named(path, &error))
}

/// A file of a cgroup that was removed meanwhile answers ENODEV.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV)
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
