//! A repository: chunks in packs, and an index of them in memory.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::{Malformed, Result, SnapshotError};
use crate::id::Id;
use crate::objects::{Listed, Objects, Put, Unfit, probe};
use crate::pack::{BEGIN, FOOTER, Footer, FrameIndex, MAX_PACK};
use crate::time::{Surroundings, Time};

/// What the first object says.
pub(crate) const FORMAT: &[u8] = b"ash-snapshot 1\n";
pub(crate) const FORMAT_NAME: &str = "format";

/// The longest encoding of one directory: some million names.
pub(crate) const MAX_DIRECTORY: u64 = 512 * 1024 * 1024;

/// How much of a pack's end is read at once, in the hope that the index is in it.
const END_BYTES: u64 = 64 * 1024;

/// A repository of snapshots: one tenant's. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub struct Repository(Arc<Inner>);

struct Inner {
    objects: Box<dyn Objects>,
    grace: Duration,
    surroundings: Surroundings,
    index: Mutex<Index>,
}

/// Where every chunk is that is known of.
#[derive(Default)]
struct Index {
    packs: Vec<Pack>,
    by_id: HashMap<Id, u32>,
    chunks: HashMap<Id, Place>,
    /// Further places of chunks that are in several packs.
    others: HashMap<Id, Vec<Place>>,
    /// Why the last pack that could not be read could not.
    unread: Option<String>,
    /// Packs in which something was read that is damaged, and nobody was told yet.
    suspects: HashSet<Id>,
}

impl Index {
    /// Forgets packs that are gone. Places that somebody holds stay what they are: numbers are not used
    /// again.
    fn forget(&mut self, gone: impl Fn(Id) -> bool) {
        let Self { packs, by_id, chunks, others, .. } = self;
        by_id.retain(|id, _| !gone(*id));
        let is_gone = |place: &Place| gone(packs[place.pack as usize].id);
        others.values_mut().for_each(|places| places.retain(|place| !is_gone(place)));
        chunks.retain(|id, place| {
            if !is_gone(place) {
                return true;
            }
            match others.get_mut(id).and_then(Vec::pop) {
                Some(other) => {
                    *place = other;
                    true
                }
                None => false,
            }
        });
        others.retain(|_, places| !places.is_empty());
    }
}

struct Pack {
    id: Id,
    frames: Vec<PlacedFrame>,
}

/// A frame without the list of its chunks, and where it begins.
#[derive(Clone)]
pub(crate) struct PlacedFrame {
    pub(crate) offset: u64,
    pub(crate) frame: FrameIndex,
}

/// Where a chunk is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) pack: u32,
    pub(crate) frame: u32,
    offset: u32,
    length: u32,
}

impl Place {
    /// Chunks in this order are read from one end to the other.
    pub(crate) fn order(&self) -> (u32, u32, u32) {
        (self.pack, self.frame, self.offset)
    }

    pub(crate) fn range(&self) -> std::ops::Range<usize> {
        self.offset as usize..self.offset as usize + self.length as usize
    }
}

impl Repository {
    /// How long what nobody needs is left alone before it is removed.
    pub const GRACE: Duration = Duration::from_secs(24 * 60 * 60);

    /// Opens a repository, and makes one where there is none. The store must be empty then.
    pub fn open(objects: Box<dyn Objects>) -> Result<Self> {
        Self::with_grace(objects, Self::GRACE)
    }

    /// Opens a repository with a grace period of its own. All who use it at a time must have the same: a
    /// capture must end, or look again, well before what it relies on can be removed.
    pub fn with_grace(objects: Box<dyn Objects>, grace: Duration) -> Result<Self> {
        Self::within(objects, grace, Surroundings::real())
    }

    pub(crate) fn within(
        objects: Box<dyn Objects>,
        grace: Duration,
        surroundings: Surroundings,
    ) -> Result<Self> {
        let format = match objects.get(FORMAT_NAME, 1024) {
            Ok(format) => format,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                try_out(&*objects)?;
                let put = objects.put(FORMAT_NAME, FORMAT);
                match put.map_err(SnapshotError::store("put", FORMAT_NAME))? {
                    Put::Created => FORMAT.to_owned(),
                    // Somebody else has made it meanwhile.
                    Put::Existed => objects
                        .get(FORMAT_NAME, 1024)
                        .map_err(SnapshotError::store("read", FORMAT_NAME))?,
                }
            }
            Err(error) => return Err(SnapshotError::store("read", FORMAT_NAME)(error)),
        };
        if format != FORMAT {
            let says = String::from_utf8_lossy(&format).trim().to_owned();
            return Err(SnapshotError::Format(format!("it says {says:?}")));
        }
        check_again(&*objects)?;
        Ok(Self(Arc::new(Inner { objects, grace, surroundings, index: Mutex::default() })))
    }

    /// What time it is for whoever uses this.
    pub(crate) fn time(&self) -> Time {
        (self.0.surroundings.time)()
    }

    /// A number that nobody else has.
    pub(crate) fn unique(&self) -> [u8; 16] {
        (self.0.surroundings.unique)()
    }

    pub(crate) fn objects(&self) -> &dyn Objects {
        &*self.0.objects
    }

    pub(crate) fn grace(&self) -> Duration {
        self.0.grace
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.0.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the indexes of packs that are not known yet, and forgets those that are gone.
    pub(crate) fn refresh(&self) -> Result<()> {
        // One that is put while they are listed may not be listed.
        let known = self.index().packs.len();
        let listed = self.packs()?;
        let unknown: Vec<(Id, u64)> = {
            let mut index = self.index();
            let there: HashSet<Id> = listed.iter().map(|(id, _)| *id).collect();
            let gone = index.by_id.iter().filter(|(_, number)| (**number as usize) < known);
            let gone: HashSet<Id> =
                gone.map(|(id, _)| *id).filter(|id| !there.contains(id)).collect();
            if !gone.is_empty() {
                index.forget(|id| gone.contains(&id));
            }
            let unknown = listed.iter().filter(|(id, _)| !index.by_id.contains_key(id));
            unknown.map(|(id, listed)| (*id, listed.size)).collect()
        };
        for (id, size) in unknown {
            let frames = match self.read_index(id, size) {
                Ok(frames) => frames,
                Err(SnapshotError::Missing(_)) => continue,
                Err(error) if error.is_transient() => return Err(error),
                // It costs the files that need it, and not the repository.
                Err(error) => {
                    self.index().unread = Some(error.to_string());
                    continue;
                }
            };
            self.add_pack(id, frames);
        }
        Ok(())
    }

    /// All packs, with their ids.
    pub(crate) fn packs(&self) -> Result<Vec<(Id, Listed)>> {
        let listed =
            self.objects().list("packs/").map_err(SnapshotError::store("list", "packs/"))?;
        let ours = listed.into_iter().filter_map(|listed| {
            let id: Id = listed.name.rsplit('/').next()?.parse().ok()?;
            (listed.name == pack_name(id)).then_some((id, listed))
        });
        Ok(ours.collect())
    }

    /// The frames of a pack, from its end.
    pub(crate) fn read_index(&self, id: Id, size: u64) -> Result<Vec<FrameIndex>> {
        self.believed(&pack_name(id), || Self::index_in(self.objects(), id, size))
    }

    /// The same, of a store.
    pub(crate) fn index_in(objects: &dyn Objects, id: Id, size: u64) -> Result<Vec<FrameIndex>> {
        let name = pack_name(id);
        if size > MAX_PACK {
            return Err(SnapshotError::damaged(name)(Malformed("it is too long for a pack")));
        }
        let (end, size) = match objects.get_end(&name, END_BYTES) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(SnapshotError::Missing(name));
            }
            Err(error) => return Err(SnapshotError::store("read", name)(error)),
        };
        let footer = Footer::read(&end, size, id).map_err(SnapshotError::damaged(&name))?;
        let needed = footer.stored as usize + FOOTER;
        let index = if needed <= end.len() {
            end[end.len() - needed..end.len() - FOOTER].to_vec()
        } else {
            let read = objects.get_range(&name, footer.offset, u64::from(footer.stored));
            read.map_err(SnapshotError::store("read", &name))?
        };
        footer.index(&index).map_err(SnapshotError::damaged(&name))
    }

    /// Makes the chunks of a pack known, which is durable.
    pub(crate) fn add_pack(&self, id: Id, frames: Vec<FrameIndex>) {
        let mut index = self.index();
        if index.by_id.contains_key(&id) {
            return;
        }
        let pack =
            u32::try_from(index.packs.len()).expect("there are fewer than four billion packs");
        let mut offset = BEGIN.len() as u64;
        let mut placed = Vec::with_capacity(frames.len());
        for (number, mut frame) in frames.into_iter().enumerate() {
            let number = u32::try_from(number).expect("a pack has at most a million frames");
            let mut within = 0;
            for chunk in std::mem::take(&mut frame.chunks) {
                let place = Place { pack, frame: number, offset: within, length: chunk.length };
                match index.chunks.entry(chunk.id) {
                    Entry::Vacant(none) => {
                        none.insert(place);
                    }
                    Entry::Occupied(_) => index.others.entry(chunk.id).or_default().push(place),
                }
                within += chunk.length;
            }
            let stored = u64::from(frame.stored);
            placed.push(PlacedFrame { offset, frame });
            offset += stored;
        }
        index.packs.push(Pack { id, frames: placed });
        index.by_id.insert(id, pack);
    }

    /// Where a chunk is, if it is anywhere.
    pub(crate) fn place(&self, id: Id) -> Option<Place> {
        self.index().chunks.get(&id).copied()
    }

    /// A pack that a chunk is in, unless that is one of these.
    pub(crate) fn pack_of(&self, id: Id, but: &HashSet<Id>) -> Option<Id> {
        let index = self.index();
        let others = index.others.get(&id).into_iter().flatten();
        let places = index.chunks.get(&id).into_iter().chain(others);
        let mut packs = places.map(|place| index.packs[place.pack as usize].id);
        packs.find(|pack| !but.contains(pack))
    }

    /// Takes note of the pack, if what was read of it is damaged.
    pub(crate) fn suspect(&self, place: Place, error: &SnapshotError) {
        if matches!(error, SnapshotError::Damaged { .. }) {
            let mut index = self.index();
            let pack = index.packs[place.pack as usize].id;
            index.suspects.insert(pack);
        }
    }

    /// The packs of which that was noted since this was asked last.
    pub(crate) fn take_suspects(&self) -> HashSet<Id> {
        std::mem::take(&mut self.index().suspects)
    }

    /// All packs that a chunk is in.
    pub(crate) fn packs_of(&self, id: Id) -> Vec<Id> {
        let places = self.places(id);
        let index = self.index();
        places.iter().map(|place| index.packs[place.pack as usize].id).collect()
    }

    /// Every place where a chunk is.
    pub(crate) fn places(&self, id: Id) -> Vec<Place> {
        let index = self.index();
        let others = index.others.get(&id).into_iter().flatten();
        index.chunks.get(&id).into_iter().chain(others).copied().collect()
    }

    /// An error for a chunk that is nowhere.
    pub(crate) fn missing(&self, id: Id) -> SnapshotError {
        let why = self.index().unread.as_ref().map(|why| format!(" (a pack was not read: {why})"));
        SnapshotError::Missing(format!("chunk {id}{}", why.unwrap_or_default()))
    }

    pub(crate) fn frame(&self, place: Place) -> (Id, PlacedFrame) {
        let index = self.index();
        let pack = &index.packs[place.pack as usize];
        (pack.id, pack.frames[place.frame as usize].clone())
    }
}

/// Refuses a server that does not do what is relied on.
fn try_out(objects: &dyn Objects) -> Result<()> {
    let Some(server) = objects.to_probe() else { return Ok(()) };
    probe(server).map_err(|unfit| match unfit {
        Unfit::Failed(error) => SnapshotError::store("try out", "the store")(error),
        Unfit::Overwrites | Unfit::Forgets | Unfit::Ranges | Unfit::Lists | Unfit::Keeps => {
            SnapshotError::store("use", "the store")(io::Error::other(unfit))
        }
    })
}

/// Refuses a server that has come to overwrite what is there since it was tried out. What is put is there
/// already, so it does no harm.
fn check_again(objects: &dyn Objects) -> Result<()> {
    let Some(server) = objects.to_probe() else { return Ok(()) };
    match server.put(FORMAT_NAME, FORMAT) {
        Ok(Put::Existed) => Ok(()),
        // Or its first answer was lost: it has to be looked at.
        Ok(Put::Created) => try_out(objects),
        // Whoever may only read overwrites nothing.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        Err(error) => Err(SnapshotError::store("put", FORMAT_NAME)(error)),
    }
}

/// The name of a pack's object.
pub(crate) fn pack_name(id: Id) -> String {
    let hex = id.to_string();
    format!("packs/{}/{hex}", &hex[..2])
}
