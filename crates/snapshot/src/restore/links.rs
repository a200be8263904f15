//! Hard links: further names of files that were made, and files whose first name is not restored.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::PoisonError;

use rustix::fs::{AtFlags, OFlags, linkat};
use rustix::io::Errno;

use super::make::{Making, leads_to_nothing, split};
use super::plan::{Meta, Plan, ToMake};
use crate::chunks::Chunks;
use crate::content::Content;
use crate::error::Result;
use crate::repository::Repository;
use crate::scan::open_below;
use crate::snapshot::Tree;
use crate::tree::{Entry, Kind};

/// Finds files at paths of a tree, in one pass: each directory above any of them is read once. Calls
/// `found` with each path and what is there, in the order of paths.
pub(super) fn look_up<'t>(
    repository: &Repository,
    tree: &Tree,
    paths: impl Iterator<Item = &'t [u8]>,
    found: &mut dyn FnMut(&'t [u8], Result<(Content, Meta)>) -> Result<()>,
) -> Result<()> {
    let parts = |path: &'t [u8]| path.split(|&byte| byte == b'/');
    let mut paths: Vec<&[u8]> = paths.collect();
    paths.sort_by(|one, other| parts(one).cmp(parts(other)));
    let mut chunks = Chunks::of(repository);
    // The directories above the last one: the name of each, and what is in it.
    let mut above: Vec<(&[u8], Vec<Entry>)> = Vec::new();
    for path in paths {
        let mut at = || -> Result<Entry> {
            if above.is_empty() {
                above.push((b"", chunks.directory(tree.tree, u64::MAX)?));
            }
            let mut same = true;
            let mut depth = 0;
            let mut parts = parts(path).peekable();
            while let Some(part) = parts.next() {
                let (_, entries) = &above[depth];
                let entry = entries.binary_search_by(|entry| entry.name[..].cmp(part));
                let entry = entry.map(|at| &entries[at]).map_err(|_| leads_to_nothing())?;
                if parts.peek().is_none() {
                    return Ok(entry.clone());
                }
                let Kind::Directory(content) = entry.kind else { return Err(leads_to_nothing()) };
                depth += 1;
                same &= above.get(depth).is_some_and(|(name, _)| *name == part);
                if !same {
                    above.truncate(depth);
                    above.push((part, chunks.directory(content, u64::MAX)?));
                }
            }
            Err(leads_to_nothing())
        };
        let file = at().and_then(|Entry { kind, mode, modified, attributes, .. }| match kind {
            Kind::File(content) => Ok((content, Meta { mode, modified, attributes })),
            Kind::Directory(_) | Kind::Symlink(_) | Kind::HardLink(_) => Err(leads_to_nothing()),
        });
        found(path, file)?;
    }
    Ok(())
}

impl Making<'_> {
    /// A path from the root of the tree, from what is restored of it on; nothing, if it is outside.
    pub(super) fn inside<'p>(&self, path: &'p [u8]) -> Option<&'p [u8]> {
        match self.restore.path {
            b"" => Some(path),
            base => path.strip_prefix(base)?.strip_prefix(b"/"),
        }
    }

    /// The files that hard links lead to outside of what is restored: the first name of each is the file
    /// here.
    pub(super) fn outside(
        &self,
        first_names: &HashMap<Vec<u8>, Vec<u8>>,
        plan: &mut Plan,
    ) -> Result<()> {
        let targets = first_names.keys().map(|target| &target[..]);
        look_up(self.repository, self.restore.tree, targets, &mut |target, file| {
            let path = first_names[target].clone();
            match file {
                Ok((content, meta)) => {
                    plan.count_bytes(content.size, self.restore)?;
                    plan.files.push(ToMake { path, content, meta });
                    Ok(())
                }
                Err(error) => self.leave_out(&path, error),
            }
        })
    }

    /// Makes further names of files, each of which was made. Returns how many had to become files of their
    /// own, as a file system lets one file have only so many names.
    pub(super) fn links(&self, plan: &Plan) -> Result<u64> {
        if plan.links.is_empty() {
            return Ok(0);
        }
        let files: HashMap<&[u8], &ToMake> =
            plan.files.iter().map(|file| (&file.path[..], file)).collect();
        let left_out: HashSet<Vec<u8>> = {
            let left_out = self.left_out.lock().unwrap_or_else(PoisonError::into_inner);
            left_out.iter().cloned().collect()
        };
        let mut copies = 0;
        // The name that the next one is linked to: of a file with too many of them, that of its last copy.
        let mut latest: HashMap<&[u8], &[u8]> = HashMap::new();
        for (path, target) in &plan.links {
            let first = files.get(&target[..]).filter(|_| !left_out.contains(&target[..]));
            let Some(first) = first else {
                self.leave_out(path, leads_to_nothing())?;
                continue;
            };
            let from = latest.get(&target[..]).copied().unwrap_or(target);
            match self.link(from, path) {
                Ok(()) => {}
                Err(error) if error.raw_os_error() == Some(Errno::MLINK.raw_os_error()) => {
                    let copy = ToMake {
                        path: path.clone(),
                        content: first.content,
                        meta: first.meta.clone(),
                    };
                    self.copy(&copy)?;
                    latest.insert(target, path);
                    copies += 1;
                }
                Err(error) => return Err(self.failed("make the link", path)(error)),
            }
        }
        Ok(copies)
    }

    fn link(&self, target: &[u8], path: &[u8]) -> io::Result<()> {
        let (old_parent, old_name) = split(target);
        let (new_parent, new_name) = split(path);
        let flags = OFlags::DIRECTORY | OFlags::PATH;
        let old = open_below(self.root, old_parent, flags)?;
        let new = open_below(self.root, new_parent, flags)?;
        Ok(linkat(old, old_name, new, new_name, AtFlags::empty())?)
    }

    /// Makes a file once more.
    fn copy(&self, file: &ToMake) -> Result<()> {
        self.files(std::slice::from_ref(file)).map(drop)
    }
}

/// Whether there are files at all these paths.
pub(super) fn must_be_files(
    repository: &Repository,
    tree: &Tree,
    targets: &HashSet<Vec<u8>>,
) -> Result<()> {
    look_up(repository, tree, targets.iter().map(|target| &target[..]), &mut |_, file| {
        file.map(drop)
    })
}

#[cfg(test)]
mod test {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;
    use crate::id::ChunkKind;
    use crate::objects::MemoryObjects;
    use crate::restore::{Damaged, Restore};
    use crate::tree::{self, Modified};
    use crate::writer::{Cutter, Writer};

    #[test]
    fn a_file_with_more_names_than_it_may_have_becomes_several() {
        // One more than most file systems allow.
        const NAMES: u64 = 65_537;
        let repository = Repository::open(Box::new(MemoryObjects::default())).unwrap();
        let writer = Writer::to(&repository, HashSet::new());
        let mut cutter = Cutter::of(&writer);
        let text = cutter.whole(ChunkKind::Data, b"text").unwrap();
        let entries: Vec<Entry> = (0..NAMES)
            .map(|number| Entry {
                name: format!("{number:06}").into_bytes(),
                kind: match number {
                    0 => Kind::File(text),
                    _ => Kind::HardLink(b"000000".to_vec()),
                },
                mode: 0o640,
                modified: Modified { seconds: 7, nanoseconds: 8 },
                attributes: Vec::new(),
            })
            .collect();
        let content = cutter.whole(ChunkKind::Tree, &tree::encode(&entries)).unwrap();
        cutter.flush().unwrap();
        drop(cutter);
        writer.finish().unwrap();
        let tree = Tree {
            escaped: Vec::new(),
            name: "t".to_owned(),
            tree: content,
            mode: 0o755,
            modified: Modified::default(),
            files: 1,
            directories: 0,
            links: NAMES - 1,
            bytes: 4,
            attributes: Vec::new(),
        };
        let place = tempfile::tempdir().unwrap();
        let target = place.path().join("target");
        let restore = Restore {
            tree: &tree,
            path: b"",
            damaged: Damaged::Refuse,
            target: &target,
            owner: None,
            max_entries: NAMES,
            max_bytes: 100,
            threads: 2,
            progress: &|_| true,
        };
        let restored = repository.restore(&restore).unwrap();
        let first = std::fs::metadata(target.join("000000")).unwrap();
        let last = std::fs::metadata(target.join("065536")).unwrap();
        assert_eq!((last.len(), last.mtime(), last.mode() & 0o777), (4, 7, 0o640));
        match restored.copied {
            // This file system has no bound, or a higher one.
            0 => assert_eq!(first.nlink(), NAMES),
            copied => assert_eq!((copied, first.nlink() + last.nlink()), (1, NAMES)),
        }
    }
}
