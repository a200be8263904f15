//! Where the files of a sandbox are, and what they say about who is alive.
//!
//! ```text
//!   data/sandboxes/<session>/workspace, home      what the agent sees and keeps
//!   data/sandboxes/<session>/….aside-<number>     what was in the place of one of them (`place`)
//!   data/sandboxes/<session>/captured             what the last capture saw of it
//!   data/sandboxes/<session>/boot, mended         whether it can be believed (`mend`)
//!   data/sandboxes/<session>/came                 how it came to be there (`came`)
//!   data/sandboxes/<session>/rebuilt              what a conversation was made anew as (`rebuild`)
//!   data/run/<session>/<incarnation>.spool        what it reported; locked while it lives
//!   data/run/<session>/<incarnation>.sock         where it listens
//!   data/run/<session>/<incarnation>.log          what it had to say about itself
//!   data/run/<session>/said                       the same of all of them, in numbered lines (`said`)
//!   data/run/<session>/<incarnation>.process      which process it is
//!   data/tmp                                      what is there for a moment, or on its way out
//!   data/warm/sandboxes, run                      the same, of those that wait for a session
//! ```
//!
//! A spool that is locked belongs to a live sandbox. One that is free and has a heading belongs to
//! a sandbox that lived, or was stopped before it could; it is never started again. See
//! `docs/decisions/0009-the-bridge-and-its-spool.md`.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ash_core::id::SessionId;
use ash_core::number::Incarnation;
use ash_protocol::{HEADING_BYTES, Heading};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;

use crate::archive::Places;
use crate::host::SandboxRef;

/// The directory of a host.
#[derive(Debug)]
pub(super) struct Files {
    data: PathBuf,
    /// Where homes lie: ours, and those of whom users are shared with.
    homes: Vec<PathBuf>,
    /// Held while a lock is looked at: a look is itself a lock, for a moment.
    looking: Mutex<()>,
    /// Held while a workspace is made, by sessions that share a place.
    making: [Mutex<()>; MAKING_PLACES],
    /// Held while lines are numbered (`said`), likewise.
    saying: [Mutex<()>; MAKING_PLACES],
    /// What this life of the server calls its own things that are there for a moment.
    own: String,
}

/// How many workspaces can be made at once.
const MAKING_PLACES: usize = 32;

/// What a spool says about its sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// It was never started.
    Unborn,
    /// It runs; with its process number, once it has said so.
    Alive(Option<u32>),
    /// It lived, or was stopped before it could.
    Dead,
}

/// A spool that is ours to hand to a bridge.
pub(super) enum Begin {
    /// Nobody had it.
    Locked(File),
    /// It is somebody's, or was.
    Taken(Life),
}

impl Files {
    pub(super) fn open(data: &Path) -> io::Result<Self> {
        Self::in_place(data, "", "warm")
    }

    /// Of those that wait for a session.
    pub(super) fn open_warm(data: &Path) -> io::Result<Self> {
        Self::in_place(data, "warm", "")
    }

    /// In one place below the data, and with another place beside it.
    fn in_place(data: &Path, place: &str, other: &str) -> io::Result<Self> {
        // Names of files may be long and the agent's process has another root: no surprises.
        let data = std::path::absolute(data)?;
        if data.to_str().is_none() {
            let message =
                format!("{} is not UTF-8, and cannot be told to an agent", data.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let homes = [place, other].map(|place| data.join(place).join("sandboxes")).to_vec();
        let data = data.join(place);
        for dir in ["run", "sandboxes"] {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(data.join(dir))?;
        }
        let [making, saying] = std::array::from_fn(|_| std::array::from_fn(|_| Mutex::new(())));
        let own = ash_snapshot::SnapshotId::new().to_string();
        Ok(Self { data, homes, looking: Mutex::new(()), making, saying, own })
    }

    /// What this life of the server calls what is its own.
    pub(super) fn own(&self) -> &str {
        &self.own
    }

    pub(super) fn workspace(&self, session: SessionId) -> PathBuf {
        self.beside(session, "workspace")
    }

    pub(super) fn home(&self, session: SessionId) -> PathBuf {
        self.beside(session, "home")
    }

    /// Something that is written down beside the directories of a session. Nobody in a sandbox sees it.
    pub(super) fn beside(&self, session: SessionId, name: &str) -> PathBuf {
        self.data.join("sandboxes").join(session.to_string()).join(name)
    }

    /// What was attached to a session.
    pub(super) fn attachments(&self, session: SessionId) -> PathBuf {
        self.data.join("attachments").join(session.to_string())
    }

    /// The directories of a session, and where to remember what a capture saw of them.
    pub(super) fn places(&self, session: SessionId) -> Places {
        let captured = self.beside(session, "captured");
        Places { workspace: self.workspace(session), home: self.home(session), captured }
    }

    /// Makes the directories that the files of a session are put into.
    pub(super) fn make_room(&self, session: SessionId) -> io::Result<()> {
        let files = self.data.join("sandboxes").join(session.to_string());
        for dir in [files, self.run(session)] {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        }
        Ok(())
    }

    /// Makes what a sandbox needs beside its workspace.
    pub(super) fn make_directories(&self, session: SessionId) -> io::Result<()> {
        for dir in [self.home(session), self.run(session)] {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        }
        Ok(())
    }

    pub(super) fn spool(&self, sandbox: SandboxRef) -> PathBuf {
        self.named(sandbox, "spool")
    }

    /// Says which process a sandbox is.
    pub(super) fn process(&self, sandbox: SandboxRef) -> PathBuf {
        self.named(sandbox, "process")
    }

    /// The directory of everything.
    pub(super) fn data(&self) -> &Path {
        &self.data
    }

    /// Where the files of all sandboxes lie that may have a user.
    pub(super) fn homes(&self) -> &[PathBuf] {
        &self.homes
    }

    /// The names of whoever has left anything here.
    pub(super) fn names(&self) -> io::Result<BTreeSet<SessionId>> {
        let mut names = BTreeSet::new();
        for place in ["run", "sandboxes"] {
            for entry in fs::read_dir(self.data.join(place))? {
                let name = entry?.file_name();
                names.extend(name.to_str().and_then(|name| name.parse::<SessionId>().ok()));
            }
        }
        Ok(names)
    }

    /// Removes everything of somebody that is dead.
    pub(super) fn remove_all(&self, session: SessionId) -> io::Result<()> {
        let files = self.data.join("sandboxes").join(session.to_string());
        for place in [files, self.run(session)] {
            match fs::remove_dir_all(place) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Held by whoever makes the workspace of a session: a start that was given up may still be at
    /// it when the next one comes.
    pub(super) fn making(&self, session: SessionId) -> MutexGuard<'_, ()> {
        self.making[place_of(session)].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Held by whoever numbers the lines of a session.
    pub(super) fn saying(&self, session: SessionId) -> MutexGuard<'_, ()> {
        self.saying[place_of(session)].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the file for what a bridge says about itself.
    pub(super) fn log(&self, sandbox: SandboxRef) -> io::Result<File> {
        let path = self.named(sandbox, "log");
        OpenOptions::new().create(true).append(true).mode(0o600).open(path)
    }

    /// Takes the lock of a spool that never belonged to anybody.
    pub(super) fn begin(&self, sandbox: SandboxRef) -> io::Result<Begin> {
        let _looking = self.looking();
        fs::DirBuilder::new().recursive(true).mode(0o700).create(self.run(sandbox.session))?;
        let spool = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(self.spool(sandbox))?;
        match flock(&spool, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) if spool.metadata()?.len() == 0 => Ok(Begin::Locked(spool)),
            Ok(()) => Ok(Begin::Taken(Life::Dead)),
            Err(Errno::WOULDBLOCK) => Ok(Begin::Taken(Life::Alive(pid_in(&spool)?))),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn life(&self, sandbox: SandboxRef) -> io::Result<Life> {
        // Let go of after the file: until that is closed, our look is a lock.
        let _looking = self.looking();
        let spool = match File::open(self.spool(sandbox)) {
            Ok(spool) => spool,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Life::Unborn),
            Err(error) => return Err(error),
        };
        match flock(&spool, FlockOperation::NonBlockingLockShared) {
            Ok(()) if spool.metadata()?.len() == 0 => Ok(Life::Unborn),
            Ok(()) => Ok(Life::Dead),
            Err(Errno::WOULDBLOCK) => Ok(Life::Alive(pid_in(&spool)?)),
            Err(error) => Err(error.into()),
        }
    }

    /// Sees to it that a sandbox that is not alive is never started.
    pub(super) fn bury(&self, sandbox: SandboxRef) -> io::Result<()> {
        let spool = match self.begin(sandbox)? {
            Begin::Locked(spool) => spool,
            Begin::Taken(Life::Dead) => OpenOptions::new().write(true).open(self.spool(sandbox))?,
            Begin::Taken(_) => return Err(io::Error::other("it is alive")),
        };
        let heading = Heading { release: "stopped".to_owned(), pid: 0 };
        spool.write_all_at(&heading.encode().map_err(io::Error::other)?, 0)?;
        spool.set_len(HEADING_BYTES as u64)?;
        // What it had to say about itself is kept until it is read.
        ["sock", "process"].into_iter().try_for_each(|kind| remove(&self.named(sandbox, kind)))
    }

    /// Every sandbox that has left a trace, in order.
    pub(super) fn all(&self) -> io::Result<Vec<SandboxRef>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(self.data.join("run"))? {
            if let Some(Ok(session)) = entry?.file_name().to_str().map(str::parse) {
                found.extend(self.of(session)?);
            }
        }
        found.sort();
        Ok(found)
    }

    /// Removes the sockets of those that are dead. What was never started may be started yet, and keeps its own.
    pub(super) fn clear_away(&self) -> io::Result<()> {
        for entry in fs::read_dir(self.data.join("run"))? {
            let Some(Ok(session)) = entry?.file_name().to_str().map(str::parse) else { continue };
            let Some(latest) = self.of(session)?.pop() else { continue };
            for sandbox in self.sockets(session)? {
                let is_over = sandbox < latest || self.life(sandbox)? == Life::Dead;
                if is_over {
                    remove(&self.named(sandbox, "sock"))?;
                }
            }
        }
        Ok(())
    }

    /// The sandboxes of a session that have left a socket.
    fn sockets(&self, session: SessionId) -> io::Result<Vec<SandboxRef>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(self.run(session))? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(".sock"));
            if let Some(Ok(number)) = number.map(str::parse) {
                found.push(SandboxRef { session, incarnation: Incarnation::new(number) });
            }
        }
        Ok(found)
    }

    /// Those that are alive.
    pub(super) fn alive(&self) -> io::Result<Vec<SandboxRef>> {
        let mut alive = Vec::new();
        for sandbox in self.all()? {
            if let Life::Alive(_) = self.life(sandbox)? {
                alive.push(sandbox);
            }
        }
        Ok(alive)
    }

    /// Those of one session.
    pub(super) fn of(&self, session: SessionId) -> io::Result<Vec<SandboxRef>> {
        let entries = match fs::read_dir(self.run(session)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut found = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(".spool"));
            if let Some(Ok(number)) = number.map(str::parse) {
                found.push(SandboxRef { session, incarnation: Incarnation::new(number) });
            }
        }
        found.sort();
        Ok(found)
    }

    /// Binds the socket of a sandbox that is about to start.
    pub(super) fn bind(&self, sandbox: SandboxRef) -> io::Result<UnixListener> {
        remove(&self.named(sandbox, "sock"))?;
        let near = self.near(sandbox.session)?;
        UnixListener::bind(near.path(sandbox))
    }

    /// A way to name sockets that is short however deep the data lies: 108 bytes is all there is.
    pub(super) fn near(&self, session: SessionId) -> io::Result<Near> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Near(open(self.run(session), flags, Mode::empty())?))
    }

    pub(super) fn run(&self, session: SessionId) -> PathBuf {
        self.data.join("run").join(session.to_string())
    }

    pub(super) fn named(&self, sandbox: SandboxRef, kind: &str) -> PathBuf {
        self.run(sandbox.session).join(file_name(sandbox, kind))
    }

    fn looking(&self) -> MutexGuard<'_, ()> {
        self.looking.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The directory of the sockets, held open.
pub(super) struct Near(OwnedFd);

impl Near {
    pub(super) fn path(&self, sandbox: SandboxRef) -> PathBuf {
        let name = file_name(sandbox, "sock");
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd())).join(name)
    }
}

/// Which place a session shares with others.
fn place_of(session: SessionId) -> usize {
    let mut hasher = DefaultHasher::new();
    session.hash(&mut hasher);
    usize::try_from(hasher.finish() % MAKING_PLACES as u64).unwrap_or_default()
}

fn file_name(sandbox: SandboxRef, kind: &str) -> String {
    format!("{}.{kind}", sandbox.incarnation.get())
}

pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The process number in the heading, if it is whole.
fn pid_in(spool: &File) -> io::Result<Option<u32>> {
    let mut bytes = vec![0; HEADING_BYTES];
    let mut read = 0;
    while read < bytes.len() {
        match spool.read_at(&mut bytes[read..], read as u64)? {
            0 => return Ok(None),
            count => read += count,
        }
    }
    Ok(Heading::decode(&bytes).ok().flatten().map(|heading| heading.pid).filter(|&pid| pid > 1))
}

#[cfg(test)]
mod test {
    use super::*;

    fn sandbox() -> SandboxRef {
        let session = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
        SandboxRef { session, incarnation: Incarnation::new(1) }
    }

    fn write_heading(spool: &File) {
        let heading = Heading { release: "test".to_owned(), pid: std::process::id() };
        spool.write_all_at(&heading.encode().unwrap(), 0).unwrap();
    }

    #[test]
    fn who_holds_the_spool_is_alive_and_who_has_held_it_is_never_started_again() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::open(dir.path()).unwrap();
        assert_eq!(files.life(sandbox()).unwrap(), Life::Unborn);
        let Begin::Locked(spool) = files.begin(sandbox()).unwrap() else { panic!("it is free") };
        assert_eq!(files.life(sandbox()).unwrap(), Life::Alive(None), "it has not said who it is");
        write_heading(&spool);
        let alive = Life::Alive(Some(std::process::id()));
        assert_eq!(files.life(sandbox()).unwrap(), alive);
        assert!(matches!(files.begin(sandbox()).unwrap(), Begin::Taken(Life::Alive(_))));
        assert!(files.bury(sandbox()).is_err(), "the living are not buried");
        drop(spool);
        assert_eq!(files.life(sandbox()).unwrap(), Life::Dead);
        assert!(matches!(files.begin(sandbox()).unwrap(), Begin::Taken(Life::Dead)));
    }

    #[test]
    fn a_start_that_came_to_nothing_may_be_made_again_unless_it_was_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::open(dir.path()).unwrap();
        drop(files.begin(sandbox()).unwrap());
        assert!(matches!(files.begin(sandbox()).unwrap(), Begin::Locked(_)), "nobody ever lived");
        files.bury(sandbox()).unwrap();
        assert!(matches!(files.begin(sandbox()).unwrap(), Begin::Taken(Life::Dead)));
        files.bury(sandbox()).unwrap();
        assert_eq!(files.all().unwrap(), [sandbox()]);
    }

    #[test]
    fn what_the_dead_left_beside_their_spools_is_cleared_away() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::open(dir.path()).unwrap();
        let of = |number| SandboxRef { incarnation: Incarnation::new(number), ..sandbox() };
        files.make_directories(sandbox().session).unwrap();
        let marks = [1, 2, 3, 4].map(of);
        for sandbox in marks {
            fs::write(files.named(sandbox, "sock"), "").unwrap();
        }
        // The first has left no spool, the second is dead, the third lives, the fourth is to come.
        let Begin::Locked(spool) = files.begin(of(2)).unwrap() else { panic!("it is free") };
        write_heading(&spool);
        drop(spool);
        let Begin::Locked(spool) = files.begin(of(3)).unwrap() else { panic!("it is free") };
        write_heading(&spool);
        files.clear_away().unwrap();
        let left = marks.map(|sandbox| files.named(sandbox, "sock").exists());
        assert_eq!(left, [false, false, true, true]);
        assert!(files.spool(of(2)).exists(), "what it reported is somebody else's affair");
        drop(spool);
    }

    #[test]
    fn a_socket_can_be_bound_however_deep_the_data_lies() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::open(&dir.path().join("deep/".repeat(60))).unwrap();
        files.make_directories(sandbox().session).unwrap();
        files.bind(sandbox()).unwrap();
        files.bind(sandbox()).expect("what an earlier start left is replaced");
    }
}
