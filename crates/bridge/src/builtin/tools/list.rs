//! `list_files`: what is in a directory, or everything below it that a pattern matches.
//!
//! Links are shown and never followed, so the walk cannot leave the workspace or go in circles.
//! Directories are read in order, so that what is cut off is the end of the sorted list.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::fault::Fault;
use super::glob::Glob;
use super::root::Root;

/// How many entries are shown.
const MAX_SHOWN: usize = 1_000;
/// How much text they may come to: names can be long, and the model pays for each byte.
const MAX_SHOWN_BYTES: usize = 60 * 1024;
/// How many entries are looked at, shown or not.
const MAX_SEEN: usize = 200_000;
/// How deep it goes: one descriptor is open for each level.
const MAX_DEPTH: usize = 64;
/// How long a pattern may be.
const MAX_PATTERN_BYTES: usize = 1_000;
/// Directories that are named and not entered: they are large, and hardly ever what is sought.
const CLOSED: [&str; 2] = [".git", "node_modules"];

/// The list, as text.
pub(super) fn list(root: &Root, path: &str, pattern: Option<&str>) -> Result<String, Fault> {
    if pattern.is_some_and(|pattern| pattern.len() > MAX_PATTERN_BYTES) {
        return Err(Fault::new("the pattern is too long; use one of at most 1,000 bytes"));
    }
    let path = root.relative(path)?;
    let dir = root
        .open_at(&path, OFlags::RDONLY | OFlags::DIRECTORY)
        .map_err(|error| Fault::io(&path, &error))?;
    let prefix: Vec<String> = path.iter().map(|name| name.to_string_lossy().into_owned()).collect();
    let mut walk = Walk {
        base: prefix.len(),
        glob: Glob::new(pattern.unwrap_or("*")),
        names: prefix,
        shown: Vec::new(),
        shown_bytes: 0,
        seen: 0,
        is_full: false,
        is_cut: false,
    };
    walk.enter(dir).map_err(|error| Fault::io(&path, &error.into()))?;
    if walk.shown.is_empty() && !walk.is_cut {
        return Ok(match pattern {
            Some(pattern) => {
                format!("nothing matches {pattern} (directories: use ** for any depth)")
            }
            None => "(the directory is empty)".to_owned(),
        });
    }
    let mut text = walk.shown.join("\n");
    if walk.is_cut {
        text.push_str("\n[the list was cut: use a narrower path or pattern]");
    }
    Ok(text)
}

struct Walk {
    glob: Glob,
    /// Where the walk is, from the root of the workspace.
    names: Vec<String>,
    /// How many of the names were there when it began.
    base: usize,
    shown: Vec<String>,
    shown_bytes: usize,
    seen: usize,
    /// Whether there is no room for one more entry.
    is_full: bool,
    /// Whether anything is missing.
    is_cut: bool,
}

impl Walk {
    fn enter(&mut self, dir: OwnedFd) -> Result<(), Errno> {
        for (name, kind) in self.entries(&dir)? {
            if self.is_full || self.shown.len() >= MAX_SHOWN {
                self.is_cut = true;
                return Ok(());
            }
            let is_closed = CLOSED.contains(&name.as_str());
            self.names.push(name.clone());
            self.show(&dir, &name, kind);
            let depth = self.names.len() - self.base;
            let goes_deeper = self.glob.depth().is_none_or(|max| depth < max);
            if kind == FileType::Directory && !is_closed && goes_deeper && !self.is_cut {
                self.descend(&dir, &name, depth);
            }
            self.names.pop();
        }
        Ok(())
    }

    fn descend(&mut self, dir: &OwnedFd, name: &str, depth: usize) {
        if depth >= MAX_DEPTH {
            self.is_cut = true;
            return;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // What cannot be entered, or is gone meanwhile, is passed over.
        if let Ok(child) = rustix::fs::openat(dir, name, flags, Mode::empty()) {
            let _unreadable = self.enter(child);
        }
    }

    fn show(&mut self, dir: &OwnedFd, name: &str, kind: FileType) {
        let below: Vec<&str> = self.names[self.base..].iter().map(String::as_str).collect();
        if !self.glob.matches(&below) {
            return;
        }
        let mut line = self.names.join("/");
        if kind == FileType::Directory {
            line.push('/');
        } else if kind == FileType::Symlink
            && let Ok(target) = rustix::fs::readlinkat(dir, name, Vec::new())
        {
            line.push_str(" -> ");
            line.push_str(&target.to_string_lossy());
        }
        // A name may hold a newline; a list has one name on each line.
        let line = line.replace('\n', "\\n");
        if self.shown_bytes + line.len() > MAX_SHOWN_BYTES {
            (self.is_full, self.is_cut) = (true, true);
            return;
        }
        self.shown_bytes += line.len() + 1;
        self.shown.push(line);
    }

    /// The sorted entries of a directory, as far as the bound on all of them goes.
    fn entries(&mut self, dir: &OwnedFd) -> Result<Vec<(String, FileType)>, Errno> {
        let mut found = Vec::new();
        for entry in Dir::read_from(dir)? {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            self.seen += 1;
            if self.seen > MAX_SEEN {
                self.is_cut = true;
                break;
            }
            let mut kind = entry.file_type();
            if kind == FileType::Unknown {
                // Some file systems do not say it in the directory.
                let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
                kind = stat.map_or(kind, |stat| FileType::from_raw_mode(stat.st_mode));
            }
            found.push((name.to_string_lossy().into_owned(), kind));
        }
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(found)
    }
}
