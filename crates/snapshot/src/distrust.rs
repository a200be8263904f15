//! Snapshots that were found to be damaged: what is remembered of them is not relied on.
//!
//! Who remembers that a file was stored does not read it again, and would take for stored what is lost. What
//! is remembered lies wherever somebody captures, so the store says whom not to believe: `distrusted/<snapshot>`
//! is there from when damage was found until the snapshot is forgotten.

use std::collections::HashSet;
use std::io;

use crate::chunks::Chunks;
use crate::content::{Content, Item};
use crate::error::{Result, SnapshotError};
use crate::id::{ChunkKind, Id};
use crate::repository::Repository;
use crate::snapshot::SnapshotId;
use crate::tree::Kind;
use crate::verify::{ContentKey, Verified};

/// Where they are named.
const DISTRUSTED: &str = "distrusted/";

fn name_of(id: SnapshotId) -> String {
    format!("{DISTRUSTED}{id}")
}

impl Repository {
    /// From now on what is remembered of snapshots that were found to be damaged is not relied on. Marks of
    /// packs are put before this: who reads everything again must not find it in them.
    pub(crate) fn distrust_snapshots(&self, verified: &Verified) -> Result<()> {
        let damaged: Vec<SnapshotId> = verified.damaged.iter().map(|damaged| damaged.id).collect();
        if damaged.is_empty() {
            return Ok(());
        }
        damaged.iter().try_for_each(|id| self.put_distrust(*id))?;
        // Those that were put since may rely on a damaged one. Who puts one from now on looks afterwards, and
        // finds what was just put.
        let seen: HashSet<&SnapshotId> = verified.seen.iter().collect();
        let later = self.snapshots()?.into_iter().filter(|id| !seen.contains(id));
        later.into_iter().try_for_each(|id| self.put_distrust(id))
    }

    /// From now on what is remembered of a snapshot that was found to be damaged is not relied on, and a copy of it
    /// from elsewhere mends it.
    pub fn distrust_snapshot(&self, id: SnapshotId) -> Result<()> {
        self.put_distrust(id)
    }

    /// The same, and nobody relies anew on the packs in which damage was found when something was read of them: what is
    /// needed of them is stored once more, by whoever captures it or copies it from elsewhere.
    pub fn distrust_damaged(&self, id: SnapshotId) -> Result<()> {
        let packs = self.take_suspects();
        if !packs.is_empty() {
            let marks = self.marks()?;
            for pack in packs.into_iter().filter(|pack| !marks.contains_key(pack)) {
                self.put_mark(pack)?;
            }
        }
        self.put_distrust(id)
    }

    /// Reads all of a snapshot back, and says whether it is whole. If it is not, nobody relies on it any more, nor on the
    /// packs in which something of it is damaged: whoever captures the files again, or copies the snapshot from
    /// elsewhere, stores what is lost once more. Fails as cancelled when `go_on` says no.
    pub fn doubt_snapshot(
        &self,
        id: SnapshotId,
        max_entries: u64,
        go_on: &dyn Fn() -> bool,
    ) -> Result<bool> {
        self.refresh()?;
        let snapshot = match self.snapshot(id) {
            Err(SnapshotError::Missing(_) | SnapshotError::Damaged { .. }) => return Ok(false),
            read => read?,
        };
        let mut doubt = Doubt::of(self, max_entries, go_on);
        for root in &snapshot.roots {
            doubt.tree(root.tree)?;
        }
        if doubt.lost.is_empty() {
            return Ok(true);
        }
        let marks = self.marks()?;
        let packs: HashSet<Id> = doubt.lost.iter().flat_map(|id| self.packs_of(*id)).collect();
        for pack in packs.into_iter().filter(|pack| !marks.contains_key(pack)) {
            self.put_mark(pack)?;
        }
        self.put_distrust(id)?;
        Ok(false)
    }

    /// Everything that a snapshot needs was put again: it can be relied on as before. Only where nobody remembers what
    /// was stored, as in a copy.
    pub fn trust_again(&self, id: SnapshotId) -> Result<()> {
        self.end_distrust(id)
    }

    fn put_distrust(&self, id: SnapshotId) -> Result<()> {
        let name = name_of(id);
        self.objects().put(&name, b"").map_err(SnapshotError::store("put", name))?;
        Ok(())
    }

    /// Whether a snapshot was found to be damaged.
    pub fn is_distrusted(&self, id: SnapshotId) -> Result<bool> {
        let name = name_of(id);
        match self.objects().get(&name, 0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            // Whatever is in it.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(true),
            Ok(_) => Ok(true),
            Err(error) => Err(SnapshotError::store("read", name)(error)),
        }
    }

    /// A snapshot is gone: nobody relies on it, whatever was found.
    pub(crate) fn end_distrust(&self, id: SnapshotId) -> Result<()> {
        let name = name_of(id);
        self.objects().delete(&name).map_err(SnapshotError::store("remove", name))
    }
}

/// Reads what a snapshot is made of.
struct Doubt<'a> {
    chunks: Chunks<'a>,
    seen: HashSet<Id>,
    followed: HashSet<ContentKey>,
    names: u64,
    /// Chunks that are nowhere whole.
    lost: HashSet<Id>,
    go_on: &'a dyn Fn() -> bool,
}

impl<'a> Doubt<'a> {
    fn of(repository: &'a Repository, names: u64, go_on: &'a dyn Fn() -> bool) -> Self {
        let (seen, followed, lost) = (HashSet::new(), HashSet::new(), HashSet::new());
        Self { chunks: Chunks::of(repository), seen, followed, names, lost, go_on }
    }

    fn tree(&mut self, root: Content) -> Result<()> {
        let mut waiting = vec![root];
        while let Some(directory) = waiting.pop() {
            if !self.content(ChunkKind::Tree, directory)? {
                continue;
            }
            let entries = match self.chunks.directory(directory, self.names) {
                Ok(entries) => entries,
                Err(error) => {
                    self.lose(directory.id, error)?;
                    continue;
                }
            };
            self.names -= entries.len() as u64;
            for entry in entries {
                match entry.kind {
                    Kind::File(content) => drop(self.content(ChunkKind::Data, content)?),
                    Kind::Directory(content) => waiting.push(content),
                    Kind::Symlink(_) | Kind::HardLink(_) => {}
                }
            }
        }
        Ok(())
    }

    /// Reads a content; says whether it was not read before, and is whole.
    fn content(&mut self, kind: ChunkKind, content: Content) -> Result<bool> {
        if content.size == 0 || !self.followed.insert(content.key()) {
            return Ok(content.size == 0 && kind == ChunkKind::Tree);
        }
        if content.depth == 0 {
            return self.chunk(kind, content.id);
        }
        if !self.chunk(ChunkKind::List, content.id)? {
            return Ok(false);
        }
        let items = match self.chunks.list(content) {
            Ok(items) => items,
            Err(error) => return self.lose(content.id, error).map(|()| false),
        };
        let mut is_whole = true;
        for item in items {
            match item {
                Item::Zeros(_) => {}
                Item::Bytes(below) => {
                    self.content(kind, below)?;
                    is_whole &= !self.lost.contains(&below.id);
                }
            }
        }
        Ok(is_whole)
    }

    /// Reads a chunk; says whether it is whole.
    fn chunk(&mut self, kind: ChunkKind, id: Id) -> Result<bool> {
        if !(self.go_on)() {
            return Err(SnapshotError::Cancelled);
        }
        if self.seen.insert(id)
            && let Err(error) = self.chunks.with(kind, id, |_| ())
        {
            self.lose(id, error)?;
        }
        Ok(!self.lost.contains(&id))
    }

    /// Takes note of what cannot be read; unless nobody can tell for now.
    fn lose(&mut self, id: Id, error: SnapshotError) -> Result<()> {
        if error.is_transient() || matches!(error, SnapshotError::TooMuch { .. }) {
            return Err(error);
        }
        self.lost.insert(id);
        Ok(())
    }
}

#[cfg(test)]
mod test {
    use std::path::Path;

    use super::*;
    use crate::capture::{Capture, Root};
    use crate::objects::LocalObjects;
    use crate::replicate::Replicate;
    use crate::state::State;

    const MANY: u64 = 1_000;

    fn capture(of: &Repository, tree: &Path, state: &mut State) -> SnapshotId {
        let capture = Capture {
            roots: &[Root { name: "tree", path: tree, excluded: &[] }],
            source: None,
            parent: None,
            label: None,
            unless_like: None,
            freeze: None,
            threads: 1,
            progress: &|_| true,
        };
        of.capture(&capture, state).unwrap().snapshot.id
    }

    /// Does something to every pack.
    fn each_pack(store: &Path, harm: impl Fn(&Path)) {
        for shard in std::fs::read_dir(store.join("packs")).unwrap() {
            for pack in std::fs::read_dir(shard.unwrap().path()).unwrap() {
                harm(&pack.unwrap().path());
            }
        }
    }

    fn flip(pack: &Path) {
        let mut bytes = std::fs::read(pack).unwrap();
        bytes[20] ^= 0xff;
        std::fs::remove_file(pack).unwrap();
        std::fs::write(pack, bytes).unwrap();
    }

    #[test]
    fn what_is_damaged_or_gone_is_found_and_the_next_capture_stores_it_again() {
        type Harm = fn(&Path);
        let harms: [Harm; 2] = [flip, |pack| std::fs::remove_file(pack).unwrap()];
        for harm in harms {
            let dir = tempfile::tempdir().unwrap();
            let (tree, store) = (dir.path().join("tree"), dir.path().join("store"));
            std::fs::create_dir_all(tree.join("deep")).unwrap();
            std::fs::write(tree.join("deep/a"), "one").unwrap();
            std::fs::write(tree.join("b"), vec![7; 3 << 20]).unwrap();
            let objects = LocalObjects::open(&store).unwrap();
            let repository = Repository::open(Box::new(objects)).unwrap();
            let mut state = State::default();
            let first = capture(&repository, &tree, &mut state);
            assert!(repository.doubt_snapshot(first, MANY, &|| true).unwrap());
            assert!(!repository.is_distrusted(first).unwrap());
            each_pack(&store, harm);
            assert!(!repository.doubt_snapshot(first, MANY, &|| true).unwrap());
            assert!(repository.is_distrusted(first).unwrap());
            let second = capture(&repository, &tree, &mut state);
            assert!(
                repository.doubt_snapshot(second, MANY, &|| true).unwrap(),
                "it is stored again"
            );
            assert!(
                repository.doubt_snapshot(first, MANY, &|| true).unwrap(),
                "so the first is whole, too"
            );
            repository.trust_again(first).unwrap();
            assert!(!repository.is_distrusted(first).unwrap());
        }
    }

    fn copy(from: &Repository, to: &Repository, snapshot: SnapshotId) -> Result<()> {
        let copy = Replicate { from, snapshot, max_entries: MANY, threads: 1, progress: &|_| true };
        to.replicate(&copy).map(drop)
    }

    #[test]
    fn what_is_copied_after_damage_was_found_does_not_rely_on_it() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        std::fs::create_dir_all(&tree).unwrap();
        let lines: String = (0..5_000).map(|number| format!("line {number}\n")).collect();
        std::fs::write(tree.join("a"), lines).unwrap();
        let place = |name: &str| dir.path().join(name);
        let opened = |name: &str| {
            let objects = LocalObjects::open(&place(name)).unwrap();
            Repository::open(Box::new(objects)).unwrap()
        };
        let (here, there, elsewhere) = (opened("here"), opened("there"), opened("elsewhere"));
        let mut state = State::default();
        let first = capture(&here, &tree, &mut state);
        copy(&here, &there, first).unwrap();
        each_pack(&place("there"), flip);
        let damaged = copy(&there, &elsewhere, first).unwrap_err();
        assert!(matches!(damaged, SnapshotError::Damaged { .. }), "{damaged}");
        there.distrust_damaged(first).unwrap();
        std::fs::write(tree.join("b"), "more").unwrap();
        let second = capture(&here, &tree, &mut state);
        copy(&here, &there, second).unwrap();
        copy(&there, &elsewhere, second).unwrap();
        assert!(
            there.doubt_snapshot(second, MANY, &|| true).unwrap(),
            "what it needs was put again"
        );
    }
}
