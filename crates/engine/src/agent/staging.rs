//! A directory while it is being captured: written under a name that means nothing, counted, checked,
//! and then renamed to its digest in one step, or removed.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, fchmod, flock, mkdirat, openat, symlinkat};
use rustix::io::Errno;

use super::discard::rely_on;
use super::error::DeployError;
use super::links::{self, Lead, Node};
use super::manifest::{self, AshToml};
use super::outline::Outline;
use super::paths;

/// How many files are brought to the disk one by one. Beyond it, all that waits for the disk is
/// brought there at once, which takes longer than a few files and less long than thousands.
const SYNCED_ONE_BY_ONE: usize = 64;

/// How names begin that are not digests.
pub(super) const TEMPORARY: &str = ".new-";

/// Something that was captured.
enum Entry {
    File { content: blake3::Hash, executable: bool },
    Link { target: String },
}

/// Whether a file can be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Executable {
    Yes,
    No,
}

/// A directory that is being captured. Dropping it removes it.
pub(super) struct Staging {
    path: PathBuf,
    /// Locked, so that nobody takes it for something that was left behind.
    root: File,
    entries: BTreeMap<String, Entry>,
    outline: Outline,
}

/// What a capture came to.
pub(super) struct Captured {
    pub(super) digest: String,
    pub(super) files: u64,
    pub(super) bytes: u64,
    pub(super) manifest: AshToml,
}

impl Staging {
    /// Begins a capture in a library.
    pub(super) fn begin(library: &Path) -> Result<Self, DeployError> {
        let mut random = [0; 12];
        getrandom::fill(&mut random).map_err(|error| DeployError::Unavailable(error.into()))?;
        let name: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let path = library.join(format!("{TEMPORARY}{name}"));
        let begun = || {
            fs::create_dir(&path)?;
            let root = File::open(&path)?;
            flock(&root, FlockOperation::NonBlockingLockExclusive)?;
            fchmod(&root, Mode::from_raw_mode(0o755))?;
            io::Result::Ok(root)
        };
        let root = begun().map_err(DeployError::Unavailable)?;
        Ok(Self { path, root, entries: BTreeMap::new(), outline: Outline::default() })
    }

    /// Adds a file. `source` says where it is read from, for whoever has to find out.
    pub(super) fn add_file(
        &mut self,
        path: &str,
        executable: Executable,
        content: &mut dyn Read,
        source: &Path,
    ) -> Result<(), DeployError> {
        let (parent, name) = self.parent(path)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = openat(&parent, name, flags, Mode::from_raw_mode(0o600));
        let mut file = File::from(file.map_err(unavailable)?);
        let mut hasher = blake3::Hasher::new();
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let read = match content.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => &buffer[..read],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    return Err(DeployError::Unreadable { path: source.to_owned(), source: error });
                }
            };
            self.outline.weigh(read.len())?;
            hasher.update(read);
            file.write_all(read).map_err(DeployError::Unavailable)?;
        }
        let executable = executable == Executable::Yes;
        let mode = if executable { 0o555 } else { 0o444 };
        fchmod(&file, Mode::from_raw_mode(mode)).map_err(unavailable)?;
        if self.entries.len() < SYNCED_ONE_BY_ONE {
            file.sync_all().map_err(DeployError::Unavailable)?;
        }
        let entry = Entry::File { content: hasher.finalize(), executable };
        self.entries.insert(path.to_owned(), entry);
        Ok(())
    }

    /// Adds a link. Where it leads is looked at when everything is there.
    pub(super) fn add_link(&mut self, path: &str, target: String) -> Result<(), DeployError> {
        let (parent, name) = self.parent(path)?;
        symlinkat(&*target, &parent, name).map_err(unavailable)?;
        self.entries.insert(path.to_owned(), Entry::Link { target });
        Ok(())
    }

    /// The directory a file is put in, made if it is not there, and its name.
    fn parent<'a>(&mut self, path: &'a str) -> Result<(OwnedFd, &'a str), DeployError> {
        let known = self.outline.take(path)?;
        let mut here = paths::open_directory(&self.root, "").map_err(unavailable)?;
        for (level, directory) in paths::parents(path).enumerate() {
            let (_, name) = paths::split(directory);
            let opened = || {
                if level < known {
                    return paths::open_directory(&here, name);
                }
                mkdirat(&here, name, Mode::from_raw_mode(0o755))?;
                let made = paths::open_directory(&here, name)?;
                // Whatever the umask says.
                fchmod(&made, Mode::from_raw_mode(0o755))?;
                Ok(made)
            };
            here = opened().map_err(unavailable)?;
        }
        Ok((here, paths::split(path).1))
    }

    /// Checks what was captured, brings it to the disk, and gives it its name.
    pub(super) fn finish(self, library: &Path) -> Result<Captured, DeployError> {
        self.check_links()?;
        let Lead::File(_) = self.lead("CLAUDE.md") else { return Err(DeployError::NoInstructions) };
        let manifest = self.manifest()?;
        let captured = Captured {
            digest: self.digest(),
            files: self.entries.len() as u64,
            bytes: self.outline.bytes(),
            manifest,
        };
        let target = library.join(&captured.digest);
        self.sync().map_err(DeployError::Unavailable)?;
        loop {
            match fs::rename(&self.path, &target) {
                Ok(()) => {}
                // Somebody has captured the same before. It was whole when it got its name.
                Err(_) if target.is_dir() => {}
                Err(error) => return Err(DeployError::Unavailable(error)),
            }
            match rely_on(library, &target) {
                Ok(()) => break,
                // It was nobody's, and went at this moment.
                Err(error) if error.kind() == io::ErrorKind::NotFound && self.path.is_dir() => {}
                Err(error) => return Err(DeployError::Unavailable(error)),
            }
        }
        let kept = File::open(library).and_then(|library| library.sync_all());
        kept.map_err(DeployError::Unavailable)?;
        Ok(captured)
    }

    fn check_links(&self) -> Result<(), DeployError> {
        for (path, entry) in &self.entries {
            let Entry::Link { target } = entry else { continue };
            let reason = match self.lead(path) {
                Lead::Directory(_) | Lead::File(_) | Lead::Nothing => continue,
                Lead::Outside => "leads out of the agent's directory",
                Lead::Circle => "leads in a circle",
            };
            let (path, target) = (path.clone(), target.clone());
            return Err(DeployError::BadLink { path, target, reason });
        }
        Ok(())
    }

    /// Where a path leads among what was captured.
    fn lead(&self, path: &str) -> Lead {
        let look = |path: &str| {
            Ok::<_, Infallible>(match self.entries.get(path) {
                Some(Entry::File { .. }) => Node::File,
                Some(Entry::Link { target }) => Node::Link(target.clone()),
                None if self.outline.directories().contains(path) => Node::Directory,
                None => Node::Missing,
            })
        };
        let Ok(lead) = links::follow(path, look);
        lead
    }

    fn manifest(&self) -> Result<AshToml, DeployError> {
        let name = manifest::FILE_NAME;
        if !self.entries.contains_key(name) && !self.outline.directories().contains(name) {
            return Ok(AshToml::default());
        }
        let Lead::File(path) = self.lead(name) else {
            return Err(DeployError::Manifest { line: 1, reason: "it is not a file".to_owned() });
        };
        // One byte more than it may have is enough to see that it is too large.
        let content = read_file(&self.root, &path, manifest::MAX_FILE_BYTES as u64 + 1);
        let content = content.map_err(DeployError::Unavailable)?;
        Ok(AshToml::parse(&content)?)
    }

    /// Of the sorted paths, what each is, and what is in it.
    fn digest(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        let mut add = |part: &[u8]| {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        };
        add(b"an agent's directory, version 1");
        for (path, entry) in &self.entries {
            add(path.as_bytes());
            match entry {
                Entry::File { content, executable } => {
                    add(if *executable { b"executable" } else { b"file" });
                    add(content.as_bytes());
                }
                Entry::Link { target } => {
                    add(b"link");
                    add(target.as_bytes());
                }
            }
        }
        hasher.finalize().to_string()
    }

    /// Brings to the disk what is not there yet.
    fn sync(&self) -> io::Result<()> {
        if self.entries.len() > SYNCED_ONE_BY_ONE
            || self.outline.directories().len() > SYNCED_ONE_BY_ONE
        {
            rustix::fs::syncfs(&self.root)?;
            return Ok(());
        }
        for directory in self.outline.directories() {
            File::from(paths::open_directory(&self.root, directory)?).sync_all()?;
        }
        self.root.sync_all()
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // It is not there any more if it got its name.
        if let Err(error) = fs::remove_dir_all(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "what was left of a capture could not be removed; the next start tries again",
            );
        }
    }
}

/// Reads a file of a tree that nobody changes, up to a limit. There is no link in its path.
pub(super) fn read_file(root: &File, path: &str, limit: u64) -> io::Result<Vec<u8>> {
    let (parent, name) = paths::split(path);
    let parent = paths::open_directory(root, parent)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(&parent, name, flags, Mode::empty())?;
    let mut content = Vec::new();
    File::from(file).take(limit).read_to_end(&mut content)?;
    Ok(content)
}

fn unavailable(error: Errno) -> DeployError {
    DeployError::Unavailable(error.into())
}
