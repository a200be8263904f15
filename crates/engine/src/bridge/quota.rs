//! How the disk of sandboxes is kept within its limit: by the file system itself, where it has project
//! quotas, and otherwise by counting (`upkeep`).
//!
//! The project of a session has the number of its user. So it is a session's own, it is found again by
//! whatever server comes, and it goes along when a sandbox that waited becomes a session's. Its workspace
//! and its home are of that project, and hand it on to whatever is made in them.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use ash_sandbox::{KernelQuotas, Project, QuotaLimits, QuotaUsage, Quotas};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, open, openat, statat};

use super::disk::{LEAST, MAX_DEPTH};

/// What the one who tries it out may write, and what it tries to write.
const LITTLE: u64 = 64 << 10;
const TOO_MUCH: usize = 1 << 20;

/// How much more than its limit a project may take, beside a hundredth of it.
const SLACK: u64 = 1 << 20;

/// The first kernel that lets nobody inside a user namespace change a project on any file system: before, each
/// one had to see to that.
const FIRST_KERNEL: (u32, u32) = (5, 13);

/// How many files it may have.
const FEW: u64 = 16;

/// How the disk of sandboxes is kept within its limit.
#[derive(Clone, Debug)]
pub enum DiskLimits {
    /// The file system refuses what is too much.
    Quotas(Arc<dyn Quotas>),
    /// What is there is counted again and again, and who has too much is ended.
    Counted {
        /// Why there are no quotas.
        why: String,
    },
}

impl DiskLimits {
    /// Finds out, by writing more than may be in a directory that is made in `place` and removed. The
    /// project is nobody's. Blocks.
    pub fn find_out(place: &Path, project: u32) -> Self {
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        if !is_new_enough(&release) {
            let (major, minor) = FIRST_KERNEL;
            let why = format!("quotas need Linux {major}.{minor}, and this is {release}");
            return Self::Counted { why };
        }
        Self::try_out(place, project, Arc::new(KernelQuotas))
    }

    /// One line for people: `project quotas`, or that it is counted, and why.
    pub fn told(&self) -> String {
        match self {
            Self::Quotas(_) => "project quotas".to_owned(),
            Self::Counted { why } => format!("counted ({why})"),
        }
    }

    fn try_out(place: &Path, project: u32, quotas: Arc<dyn Quotas>) -> Self {
        match refuses_too_much(place, project, quotas.as_ref()) {
            Ok(()) => Self::Quotas(quotas),
            Err(why) => Self::Counted { why },
        }
    }

    /// Has trees on one file system, in which nothing runs, take no more together than this. Says of which
    /// project they are now; none, if they have to be counted.
    pub(super) fn bound(
        &self,
        trees: [&Path; 2],
        user: Option<u32>,
        most: Option<u64>,
    ) -> io::Result<Option<u32>> {
        let (Self::Quotas(quotas), Some(id)) = (self, user) else { return Ok(None) };
        self.limit(trees[0], id, most)?;
        for tree in trees {
            give(quotas.as_ref(), tree, id)?;
        }
        Ok(Some(id))
    }

    /// Has whatever is made in a new directory be of the project of its user. What is made by the server counts and
    /// is not refused: its limit is set when it is [`bound`](Self::bound). Links cannot be given to a project
    /// later, and what is of another one cannot be renamed.
    pub(super) fn begin(&self, new: &Path, user: u32) -> io::Result<()> {
        let Self::Quotas(quotas) = self else { return Ok(()) };
        self.limit(new, user, None)?;
        let project = Project { id: user, is_inherited: true };
        quotas.set_project(File::open(new)?.as_fd(), project)
    }

    /// Has a project take no more than this. Whoever has more already can write nothing new.
    pub(super) fn limit(&self, place: &Path, id: u32, most: Option<u64>) -> io::Result<()> {
        match self {
            Self::Quotas(quotas) => {
                quotas.set_limits(File::open(place)?.as_fd(), id, limits_of(most))
            }
            Self::Counted { .. } => Ok(()),
        }
    }

    /// What a project takes, if that is known: as it is counted where there are no quotas, every file
    /// counts something.
    pub(super) fn usage(&self, place: &Path, id: u32) -> Option<u64> {
        match self {
            Self::Quotas(quotas) => {
                let QuotaUsage { bytes, files } =
                    quotas.usage(File::open(place).ok()?.as_fd(), id).ok()?;
                Some(bytes.max(files.saturating_mul(LEAST)))
            }
            Self::Counted { .. } => None,
        }
    }
}

/// Whether a project takes so much more than it may that it has to end. A little more is no fault of whoever is
/// inside: ext4 puts what it needs for a file beside the limit when it is reached.
pub(super) fn is_far_beyond(taken: u64, most: u64) -> bool {
    taken > most.saturating_add(most / 100).saturating_add(SLACK)
}

/// A file counts something though it is empty: otherwise empty ones could use up the inodes of all.
fn limits_of(most: Option<u64>) -> QuotaLimits {
    QuotaLimits { bytes: most, files: most.map(|most| (most / LEAST).max(1)) }
}

/// Whether somebody who writes too much is refused. If not: why.
fn refuses_too_much(place: &Path, id: u32, quotas: &dyn Quotas) -> Result<(), String> {
    let because = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
    let dir = place.join(format!(".quota-{}", std::process::id()));
    let made = fs::remove_dir_all(&dir).or_else(absent).and_then(|()| fs::create_dir(&dir));
    let opened = made.and_then(|()| File::open(&dir));
    let opened = opened.map_err(because("nothing could be tried out"))?;
    let tried = || {
        let files = "the file system has no projects";
        quotas.project(opened.as_fd()).map_err(because(files))?;
        let project = Project { id, is_inherited: true };
        quotas.set_project(opened.as_fd(), project).map_err(because(files))?;
        let limits = QuotaLimits { bytes: Some(LITTLE), files: Some(FEW) };
        let set = quotas.set_limits(opened.as_fd(), id, limits);
        set.map_err(because("it is not mounted with prjquota, or the server may not set quotas"))?;
        let file = File::create_new(dir.join("file")).map_err(because("nothing could be made"))?;
        let given = quotas.project(file.as_fd()).map_err(because(files))?;
        if given.id != id {
            return Err("a project is not handed on to new files".to_owned());
        }
        match quotas.write_bounded(&file, TOO_MUCH) {
            Err(error) if is_full(&error) => Ok(()),
            Err(error) => Err(because("nothing could be written")(error)),
            Ok(()) => Err("limits of projects are not enforced".to_owned()),
        }
    };
    let tried = tried();
    let _no_limit_was_set = quotas.set_limits(opened.as_fd(), id, QuotaLimits::default());
    let _left_for_the_next = fs::remove_dir_all(&dir);
    tried
}

/// Whether a kernel of this release is one that keeps projects from those in a user namespace.
fn is_new_enough(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().ok());
    let version = (numbers.next().flatten(), numbers.next().flatten());
    matches!(version, (Some(major), Some(minor)) if (major, minor) >= FIRST_KERNEL)
}

fn absent(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// Who reaches the limit of a project is told so by one file system, and that the disk is full by another.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::QuotaExceeded | io::ErrorKind::StorageFull)
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const FILE: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Gives a tree to a project, unless it is its already: then so is what is in it. Links and pipes cannot be
/// given, and take nothing.
fn give(quotas: &dyn Quotas, root: &Path, id: u32) -> io::Result<()> {
    let project = Project { id, is_inherited: true };
    let root: OwnedFd = open(root, DIRECTORY, Mode::empty())?;
    if quotas.project(root.as_fd())? == project {
        return Ok(());
    }
    let mut open_dirs = vec![Dir::read_from(&root)?];
    while let Some(dir) = open_dirs.last_mut() {
        let Some(entry) = dir.read() else {
            open_dirs.pop();
            continue;
        };
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        if let Some(below) = give_one(quotas, dir.fd()?, name, project)? {
            if open_dirs.len() >= MAX_DEPTH {
                return Err(io::Error::other("it is too deep"));
            }
            open_dirs.push(Dir::new(below)?);
        }
    }
    // The root comes last: if this is cut short, it is done again.
    quotas.set_project(root.as_fd(), project)
}

/// Gives one entry to a project. Returns it, if there may be others in it.
fn give_one(
    quotas: &dyn Quotas,
    parent: BorrowedFd<'_>,
    name: &CStr,
    project: Project,
) -> io::Result<Option<OwnedFd>> {
    let kind = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode;
    let kind = FileType::from_raw_mode(kind);
    if kind.is_dir() {
        let opened = openat(parent, name, DIRECTORY, Mode::empty())?;
        quotas.set_project(opened.as_fd(), project)?;
        return Ok(Some(opened));
    }
    if kind.is_file() {
        let opened = openat(parent, name, FILE, Mode::empty())?;
        quotas.set_project(opened.as_fd(), Project { is_inherited: false, ..project })?;
    }
    Ok(None)
}

#[cfg(test)]
mod test;
