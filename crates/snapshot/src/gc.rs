//! Collection: what no snapshot needs is removed, also while captures run in other processes.
//!
//! Nobody holds a lock. Removal takes two collections that are a grace period apart: the first puts a
//! mark, and captures do not rely on packs with a mark, which is never taken away; the second removes
//! what still nobody needs. Packs of which little is needed are written anew, and are not needed then.
//! A capture that takes longer than a quarter of the grace period looks again before its snapshot is put.
//! `FORMAT.md` says why that is enough.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};

use crate::capture::Progress;
use crate::chunks::Chunks;
use crate::content::{Content, Item};
use crate::error::{Result, SnapshotError};
use crate::id::Id;
use crate::objects::Listed;
use crate::pack::PackedChunk;
use crate::repository::{Repository, pack_name};
use crate::snapshot::{Forgotten, Snapshot, SnapshotId};
use crate::tree::Kind;
use crate::verify::{ContentKey, Verified, reason};

/// Where marks are.
const MARKS: &str = "gc/";

/// How often a collection begins anew because a snapshot was forgotten while it looked.
const ATTEMPTS: usize = 8;

/// Who else uses a repository while something is collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// Others may capture: what is not needed is removed when a grace period has passed.
    MayCapture,
    /// Nobody: what is not needed is removed at once. A capture that runs all the same is lost.
    AreAway,
}

/// What a collection did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Packs that are needed, or may be.
    pub kept: u64,
    /// Packs that are not needed, and will be removed when a grace period has passed.
    pub waiting: u64,
    /// Packs that were removed.
    pub removed: u64,
    /// Their bytes.
    pub removed_bytes: u64,
    /// Packs of which little was needed: that is in new ones now, and they are waiting, or removed.
    pub rewritten: u64,
    /// How many bytes the new ones have.
    pub rewritten_bytes: u64,
    /// Packs of which it cannot be read what they have, and that are left as they are.
    pub unreadable: u64,
}

/// How to collect.
#[derive(Clone)]
pub struct Collect<'a> {
    /// Who else is there.
    pub others: Others,
    /// Is told after each snapshot and each pack how many were looked at, and anew when packs are rewritten;
    /// answers whether to go on.
    pub progress: &'a (dyn Fn(Progress) -> bool + Sync),
}

/// Where the time of a collection went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectTook {
    /// Looking what is in the store.
    pub look: Duration,
    /// Finding out what snapshots need.
    pub reach: Duration,
    /// Finding out which packs that is in.
    pub weigh: Duration,
    /// Writing packs anew.
    pub rewrite: Duration,
    /// Removing what is not needed.
    pub remove: Duration,
}

/// How far a collection is.
struct Steps<'a> {
    progress: &'a (dyn Fn(Progress) -> bool + Sync),
    done: u64,
    all: u64,
}

impl Steps<'_> {
    fn step(&mut self) -> Result<()> {
        self.done += 1;
        let (files, all_files) = (self.done, self.all);
        let go_on = (self.progress)(Progress { files, all_files, ..Progress::default() });
        if go_on { Ok(()) } else { Err(SnapshotError::Cancelled) }
    }
}

/// Marks of packs: when the first was put, and what they are called.
pub(crate) type Marks = BTreeMap<Id, (i64, Vec<String>)>;

fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Says which snapshot an error is about, and what can be done; unless it is worth trying again.
pub(crate) fn unreadable(id: SnapshotId, error: SnapshotError) -> SnapshotError {
    if error.is_transient() {
        return error;
    }
    SnapshotError::Unreadable { id, reason: reason(&error) }
}

/// A pack, and what of it is needed.
pub(crate) struct Weighed {
    pub(crate) id: Id,
    listed: Listed,
    /// Since when nobody relies on it.
    pub(crate) mark: Option<i64>,
    /// How many bytes its chunks have.
    pub(crate) bytes: u64,
    /// Chunks that snapshots need, and that no better pack has.
    pub(crate) needed: Vec<PackedChunk>,
}

impl Weighed {
    /// Of two packs that have a chunk and no mark, the later one keeps it. All see it alike.
    fn rank(&self) -> (i64, Id) {
        (self.listed.put_at, self.id)
    }

    /// Whether it was there at this time.
    pub(crate) fn is_of(&self, time: i64) -> bool {
        self.listed.put_at <= time
    }
}

impl Repository {
    /// From now on no capture relies on packs that were found to be damaged, nor on what is remembered of
    /// snapshots that need them: what is in them is stored again by whoever reads it. When all that is needed of them is elsewhere, collections remove them. Returns
    /// how many they are. A pack whose index cannot be read is relied on by nobody anyway.
    pub fn distrust(&self, verified: &Verified) -> Result<u64> {
        let marks = self.marks()?;
        let mut marked = 0;
        for (name, _) in &verified.damaged_packs {
            let Some(Ok(id)) = name.rsplit('/').next().map(str::parse::<Id>) else { continue };
            if !marks.contains_key(&id) {
                self.put_mark(id)?;
                marked += 1;
            }
        }
        self.distrust_snapshots(verified)?;
        Ok(marked)
    }

    /// Packs that nobody relies on any more.
    pub(crate) fn marks(&self) -> Result<Marks> {
        let listed = self.objects().list(MARKS).map_err(SnapshotError::store("list", MARKS))?;
        let mut marks = Marks::new();
        for listed in listed {
            let mark = listed.name.strip_prefix(MARKS).and_then(|name| {
                let (pack, at) = name.split_once('.')?;
                Some((pack.parse::<Id>().ok()?, at.parse::<i64>().ok()?))
            });
            let Some((pack, at)) = mark else { continue };
            // Whoever put it may have taken long to do so.
            let at = at.max(listed.put_at);
            let (first, names) = marks.entry(pack).or_insert((at, Vec::new()));
            *first = at.min(*first);
            names.push(listed.name);
        }
        Ok(marks)
    }

    /// Removes what no snapshot needs. Everything that a snapshot needs must be readable: if it is not,
    /// nothing is removed.
    pub fn gc(&self, others: Others) -> Result<Collected> {
        self.collect(&Collect { others, progress: &|_| true }).map(|(collected, _)| collected)
    }

    /// The same, and tells how far it is and where the time went.
    pub fn collect(&self, collect: &Collect<'_>) -> Result<(Collected, CollectTook)> {
        for _ in 0..ATTEMPTS {
            if let Some(collected) = self.try_to_collect(collect)? {
                return Ok(collected);
            }
        }
        Err(SnapshotError::Missing("a snapshot that stays until it was looked at".to_owned()))
    }

    /// Nothing is returned if a snapshot was forgotten meanwhile.
    fn try_to_collect(&self, collect: &Collect<'_>) -> Result<Option<(Collected, CollectTook)>> {
        let Collect { others, progress } = *collect;
        let mut took = CollectTook::default();
        let begin = Instant::now();
        let began = self.time();
        let expires = match others {
            Others::MayCapture => began.wall.saturating_sub(milliseconds(self.grace())),
            Others::AreAway => i64::MAX,
        };
        // In this order: see `FORMAT.md`.
        let ids = self.snapshots()?;
        let forgotten = self.forgotten()?;
        let marks = self.marks()?;
        self.refresh()?;
        let packs = self.packs()?;
        let all = (ids.len() + forgotten.len() + packs.len()) as u64;
        let mut steps = Steps { progress, done: 0, all };
        took.look = begin.elapsed();
        let begin = Instant::now();
        let Some(needed) = self.reached(&ids, &forgotten, others, expires, &mut steps)? else {
            return Ok(None);
        };
        took.reach = begin.elapsed();
        let begin = Instant::now();
        let mut collected = Collected::default();
        let present: HashSet<Id> = packs.iter().map(|(id, _)| *id).collect();
        let mut weighed = self.weigh(packs, &marks, &needed, &mut collected, &mut steps)?;
        drop(needed);
        took.weigh = begin.elapsed();
        let begin = Instant::now();
        let rewritten = self.rewrite(&mut weighed, expires, &mut collected, progress)?;
        took.rewrite = begin.elapsed();
        let begin = Instant::now();

        for (_, (_, names)) in marks.iter().filter(|(id, _)| !present.contains(id)) {
            self.remove_all(names)?;
        }
        for Forgotten { id, name, at } in forgotten {
            // Who forgets it may not have come to remove it.
            if at <= expires && !ids.contains(&id) {
                self.remove_all(&[name])?;
            }
        }
        for pack in weighed {
            if !pack.needed.is_empty() {
                // Its mark stays too: it may be damaged, and that is all that is known of it.
                collected.kept += 1;
                continue;
            }
            let is_due = match others {
                Others::MayCapture => pack.mark.is_some_and(|at| at <= expires),
                Others::AreAway => true,
            };
            if is_due {
                self.remove_all(&[pack_name(pack.id)])?;
                self.remove_all(marks.get(&pack.id).map_or(&[][..], |(_, names)| names))?;
                collected.removed += 1;
                collected.removed_bytes += pack.listed.size;
                continue;
            }
            collected.waiting += 1;
            // One that is young belongs to a capture that has not finished, most likely. After a long time
            // somebody may need it again, and would have to do without.
            let is_recent = self.time().since(&began) < self.grace() / 4;
            let is_rewritten = rewritten.contains(&pack.id);
            if pack.mark.is_none() && pack.is_of(expires) && (is_recent || is_rewritten) {
                self.put_mark(pack.id)?;
            }
        }
        // Somebody may be slow to write, whatever the grace period is.
        let age = if others == Others::AreAway { Duration::ZERO } else { Self::GRACE };
        self.objects().clear(age).map_err(SnapshotError::store("clear", "what was left"))?;
        took.remove = begin.elapsed();
        Ok(Some((collected, took)))
    }

    /// Finds that all that a snapshot needs is there, as far as that can be told without reading its files. Its
    /// directories are read.
    pub fn is_present(&self, snapshot: &Snapshot) -> Result<()> {
        self.refresh()?;
        let mut reached = Reached::new(self);
        reached.snapshot(snapshot, Lost::Refused)?;
        match reached.ids.into_iter().find(|id| self.place(*id).is_none()) {
            Some(id) => Err(self.missing(id)),
            None => Ok(()),
        }
    }

    /// Those of some snapshots that need something which is not there, as far as that can be told without reading files.
    /// Of several that lack the same, one is named: when it is mended, so are the others.
    pub fn lacking(
        &self,
        ids: &mut dyn Iterator<Item = SnapshotId>,
    ) -> Result<BTreeSet<SnapshotId>> {
        self.refresh()?;
        let (mut reached, mut lacking) = (Reached::new(self), BTreeSet::new());
        for id in ids {
            let read = self.snapshot(id).and_then(|read| reached.snapshot(&read, Lost::Refused));
            let is_there = match read {
                Ok(()) => reached.ids.iter().all(|id| self.place(*id).is_some()),
                Err(SnapshotError::Missing(_) | SnapshotError::Damaged { .. }) => false,
                Err(error) => return Err(error),
            };
            reached.ids.clear();
            if !is_there || self.is_distrusted(id)? {
                lacking.insert(id);
            }
        }
        Ok(lacking)
    }

    /// The chunks that snapshots need, forgotten ones included. Nothing is returned if one was forgotten
    /// meanwhile.
    fn reached(
        &self,
        ids: &[SnapshotId],
        forgotten: &[Forgotten],
        others: Others,
        expires: i64,
        steps: &mut Steps<'_>,
    ) -> Result<Option<HashSet<Id>>> {
        let mut reached = Reached::new(self);
        for id in ids {
            let read = match self.snapshot(*id) {
                Ok(snapshot) => reached.snapshot(&snapshot, Lost::Refused),
                Err(SnapshotError::Missing(_)) => return Ok(None),
                Err(error) => Err(error),
            };
            read.map_err(|error| unreadable(*id, error))?;
            steps.step()?;
        }
        for Forgotten { id, name, at } in forgotten {
            steps.step()?;
            if others == Others::AreAway {
                continue;
            }
            let read = match self.forgotten_snapshot(*id, name) {
                // What is lost of it was relied on by nobody, and the rest can be.
                Ok(snapshot) => reached.snapshot(&snapshot, Lost::PassedOver),
                // One that nobody could read was relied on by nobody.
                Err(SnapshotError::Damaged { .. } | SnapshotError::Missing(_)) => Ok(()),
                Err(error) => Err(error),
            };
            match read {
                Err(error) if *at > expires || error.is_transient() => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(Some(reached.ids))
    }

    /// What of each pack is needed. A chunk that several packs have is needed of one: of the latest of those
    /// without a mark; if all have one, of all. So nothing is removed because one with a mark has it too.
    /// One that does not tell what it has is not needed if it has a mark, and packs without one have everything.
    fn weigh(
        &self,
        packs: Vec<(Id, Listed)>,
        marks: &Marks,
        needed: &HashSet<Id>,
        collected: &mut Collected,
        steps: &mut Steps<'_>,
    ) -> Result<Vec<Weighed>> {
        let mut weighed = Vec::with_capacity(packs.len());
        let mut best: HashMap<Id, (i64, Id)> = HashMap::new();
        let mut untold = Vec::new();
        for (id, listed) in packs {
            steps.step()?;
            let mark = marks.get(&id).map(|(at, _)| *at);
            // What is only nearby is no reason to remove anything.
            let frames = match Self::index_in(self.store(), id, listed.size) {
                Ok(frames) => frames,
                Err(SnapshotError::Missing(_)) => continue,
                Err(SnapshotError::Damaged { .. }) => {
                    untold.push(Weighed { id, listed, mark, bytes: 0, needed: Vec::new() });
                    continue;
                }
                Err(error) => return Err(error),
            };
            let bytes = frames.iter().map(|frame| u64::from(frame.length)).sum();
            let chunks = frames.into_iter().flat_map(|frame| frame.chunks);
            let chunks = chunks.filter(|chunk| needed.contains(&chunk.id)).collect();
            let pack = Weighed { id, listed, mark, bytes, needed: chunks };
            if pack.mark.is_none() {
                for chunk in &pack.needed {
                    let best = best.entry(chunk.id).or_insert(pack.rank());
                    *best = pack.rank().max(*best);
                }
            }
            weighed.push(pack);
        }
        for pack in &mut weighed {
            let (rank, mark) = (pack.rank(), pack.mark);
            pack.needed.retain(|chunk| match mark {
                None => best.get(&chunk.id) == Some(&rank),
                Some(_) => !best.contains_key(&chunk.id),
            });
        }
        let is_elsewhere = needed.iter().all(|id| best.contains_key(id));
        for pack in untold {
            if pack.mark.is_some() && is_elsewhere {
                weighed.push(pack);
            } else {
                collected.unreadable += 1;
            }
        }
        Ok(weighed)
    }

    pub(crate) fn put_mark(&self, pack: Id) -> Result<()> {
        let name = format!("{MARKS}{pack}.{}", self.time().wall);
        self.objects().put(&name, b"").map_err(SnapshotError::store("put", &name))?;
        Ok(())
    }

    fn remove_all(&self, names: &[String]) -> Result<()> {
        for name in names {
            self.objects().delete(name).map_err(SnapshotError::store("remove", name))?;
        }
        Ok(())
    }
}

/// Chunks that snapshots need.
struct Reached<'a> {
    chunks: Chunks<'a>,
    ids: HashSet<Id>,
    /// Lists that were followed. An id alone does not tell: it may have been named as if it were data.
    followed: HashSet<ContentKey>,
    /// Directories that were looked into.
    seen: HashSet<ContentKey>,
}

/// What becomes of something that is missing or damaged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lost {
    Refused,
    PassedOver,
}

impl Lost {
    /// Nothing, if it is lost and may be passed over.
    fn read<T>(self, read: Result<T>) -> Result<Option<T>> {
        match (self, read) {
            (_, Ok(read)) => Ok(Some(read)),
            (Self::PassedOver, Err(SnapshotError::Damaged { .. } | SnapshotError::Missing(_))) => {
                Ok(None)
            }
            (Self::PassedOver | Self::Refused, Err(error)) => Err(error),
        }
    }
}

impl<'a> Reached<'a> {
    fn new(repository: &'a Repository) -> Self {
        Self {
            chunks: Chunks::of(repository),
            ids: HashSet::new(),
            followed: HashSet::new(),
            seen: HashSet::new(),
        }
    }

    fn snapshot(&mut self, snapshot: &Snapshot, lost: Lost) -> Result<()> {
        let mut waiting: Vec<Content> = snapshot.roots.iter().map(|root| root.tree).collect();
        while let Some(directory) = waiting.pop() {
            if !self.seen.insert(directory.key()) {
                continue;
            }
            self.content(directory, lost)?;
            let read = self.chunks.directory(directory, u64::MAX);
            for entry in lost.read(read)?.unwrap_or_default() {
                match entry.kind {
                    Kind::File(content) => self.content(content, lost)?,
                    Kind::Directory(content) => waiting.push(content),
                    Kind::Symlink(_) | Kind::HardLink(_) => {}
                }
            }
        }
        Ok(())
    }

    fn content(&mut self, content: Content, lost: Lost) -> Result<()> {
        if content.size == 0 {
            return Ok(());
        }
        self.ids.insert(content.id);
        if content.depth == 0 || !self.followed.insert(content.key()) {
            return Ok(());
        }
        let read = self.chunks.list(content);
        for item in lost.read(read)?.unwrap_or_default() {
            match item {
                Item::Zeros(_) => {}
                Item::Bytes(below) => self.content(below, lost)?,
            }
        }
        Ok(())
    }
}
