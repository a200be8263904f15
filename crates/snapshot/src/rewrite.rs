//! Packs of which little is needed: that is copied to new ones, so that they need not be kept for it.

use std::collections::HashSet;

use crate::capture::Progress;
use crate::chunks::Chunks;
use crate::error::{Malformed, Result, SnapshotError};
use crate::gc::{Collected, Weighed};
use crate::id::Id;
use crate::pack::FrameBuilder;
use crate::repository::{Repository, pack_name};
use crate::writer::Writer;

/// A pack is written anew if less than so many hundredths of its bytes are needed.
const LITTLE: u64 = 40;

/// How many bytes of a pack are needed.
fn needed_of(pack: &Weighed) -> u64 {
    pack.needed.iter().map(|chunk| u64::from(chunk.length)).sum()
}

impl Repository {
    /// Copies what is needed of packs that have little of it, or that nobody relies on any more. When it
    /// returns, the copies are there and were read back; the packs are not needed then, and are returned. Those
    /// that are younger than this are left as they are, and so are those that cannot be read as a whole. What is told
    /// begins anew here.
    pub(crate) fn rewrite(
        &self,
        packs: &mut [Weighed],
        expires: i64,
        collected: &mut Collected,
        progress: &(dyn Fn(Progress) -> bool + Sync),
    ) -> Result<HashSet<Id>> {
        let writer = Writer::to(self, HashSet::new());
        let mut chunks = Chunks::of(self);
        let mut frame = FrameBuilder::default();
        let mut copied = HashSet::new();
        let mut emptied = Vec::new();
        let is_wanted = |pack: &Weighed| {
            let is_little = needed_of(pack) * 100 < pack.bytes * LITTLE;
            !pack.needed.is_empty() && pack.is_of(expires) && (is_little || pack.mark.is_some())
        };
        let wanted = packs.iter().enumerate().filter(|(_, pack)| is_wanted(pack));
        let wanted: Vec<(usize, &Weighed)> = wanted.collect();
        let mut told = Progress {
            all_files: wanted.len() as u64,
            all_bytes: wanted.iter().map(|(_, pack)| needed_of(pack)).sum(),
            ..Progress::default()
        };
        for (number, pack) in wanted {
            if !progress(told) {
                return Err(SnapshotError::Cancelled);
            }
            told.files += 1;
            told.bytes += needed_of(pack);
            let mut whole = true;
            for chunk in &pack.needed {
                if !copied.insert(chunk.id) {
                    continue;
                }
                let added = chunks
                    .with(chunk.kind, chunk.id, |bytes| frame.add(chunk.kind, chunk.id, bytes));
                match added {
                    Ok(()) => {}
                    Err(error) if error.is_transient() => return Err(error),
                    Err(SnapshotError::Damaged { .. } | SnapshotError::Store { .. }) => {
                        copied.remove(&chunk.id);
                        whole = false;
                    }
                    Err(error) => return Err(error),
                }
                if frame.is_full() {
                    writer.write(frame.finish())?;
                }
            }
            if whole {
                emptied.push(number);
            }
        }
        if !frame.is_empty() {
            writer.write(frame.finish())?;
        }
        let (added, new) = writer.finish()?;
        self.read_back(&new)?;
        collected.rewritten_bytes = added.stored_bytes;
        collected.rewritten = emptied.len() as u64;
        collected.kept = new.len() as u64;
        let emptied = emptied.into_iter().map(|number| {
            packs[number].needed.clear();
            packs[number].id
        });
        Ok(emptied.collect())
    }

    /// Reads packs back that are to stand for others: from the store, which has to have them.
    fn read_back(&self, new: &HashSet<Id>) -> Result<()> {
        if new.is_empty() {
            return Ok(());
        }
        let mut left = new.clone();
        for (id, listed) in self.packs()? {
            if left.remove(&id) {
                let read = self.read_pack(id, listed.size, &mut Vec::new());
                if matches!(read, Err(SnapshotError::Damaged { .. })) {
                    // The next collection must not take it for a copy.
                    self.put_mark(id)?;
                    self.objects().refuse(&pack_name(id));
                }
                read?;
            }
        }
        match left.into_iter().next() {
            None => Ok(()),
            Some(id) => {
                let wrong = Malformed("it was put, and is not there");
                Err(SnapshotError::damaged(pack_name(id))(wrong))
            }
        }
    }
}
