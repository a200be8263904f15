//! Collection: what no snapshot needs is removed, also while captures run in other processes.
//!
//! Nobody holds a lock. Removal takes two collections that are a grace period apart: the first puts a
//! mark, and captures do not rely on packs with a mark; the second removes what still nobody needs.
//! A capture that takes longer than a quarter of the grace period looks again before its snapshot is put.
//! `FORMAT.md` says why that is enough.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use crate::capture::realtime;
use crate::content::{Content, Item};
use crate::error::{Result, SnapshotError};
use crate::id::Id;
use crate::repository::{Chunks, Repository, pack_name};
use crate::snapshot::{Forgotten, Snapshot, SnapshotId};
use crate::tree::Kind;

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
    /// Packs that cannot be read, and are left as they are.
    pub unreadable: u64,
}

/// Marks of packs: when the first was put, and what they are called.
pub(crate) type Marks = HashMap<Id, (i64, Vec<String>)>;

pub(crate) fn now() -> i64 {
    let now = realtime();
    now.seconds * 1000 + i64::from(now.nanoseconds / 1_000_000)
}

fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

impl Repository {
    /// Forgets all snapshots but the last ones; returns which.
    pub fn keep_last(&self, count: usize) -> Result<Vec<SnapshotId>> {
        let mut ids = self.snapshots()?;
        ids.truncate(ids.len().saturating_sub(count));
        let mut forgotten = Vec::new();
        for id in ids {
            match self.forget(id) {
                Ok(()) => forgotten.push(id),
                // By somebody else.
                Err(SnapshotError::Missing(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(forgotten)
    }

    /// Packs that are about to be removed.
    pub(crate) fn marks(&self) -> Result<Marks> {
        let listed = self.objects().list(MARKS).map_err(SnapshotError::store("list", MARKS))?;
        let mut marks = Marks::new();
        for listed in listed {
            let mark = listed.name.strip_prefix(MARKS).and_then(|name| {
                let (pack, at) = name.split_once('.')?;
                Some((pack.parse::<Id>().ok()?, at.parse::<i64>().ok()?))
            });
            let Some((pack, at)) = mark else { continue };
            let (first, names) = marks.entry(pack).or_insert((at, Vec::new()));
            *first = at.min(*first);
            names.push(listed.name);
        }
        Ok(marks)
    }

    /// Removes what no snapshot needs. Everything that a snapshot needs must be readable: if it is not,
    /// nothing is removed.
    pub fn gc(&self, others: Others) -> Result<Collected> {
        for _ in 0..ATTEMPTS {
            if let Some(collected) = self.collect(others)? {
                return Ok(collected);
            }
        }
        Err(SnapshotError::Missing("a snapshot that stays until it was looked at".to_owned()))
    }

    /// Nothing is returned if a snapshot was forgotten meanwhile.
    fn collect(&self, others: Others) -> Result<Option<Collected>> {
        let (began, began_at) = (Instant::now(), now());
        let expires = match others {
            Others::MayCapture => began_at.saturating_sub(milliseconds(self.grace())),
            Others::AreAway => i64::MAX,
        };
        // In this order: see `FORMAT.md`.
        let ids = self.snapshots()?;
        let forgotten = self.forgotten()?;
        let marks = self.marks()?;
        self.refresh()?;
        let packs = self.packs()?;
        let mut reached =
            Reached { chunks: Chunks::of(self), ids: HashSet::new(), seen: HashSet::new() };
        for id in ids {
            match self.snapshot(id) {
                Ok(snapshot) => reached.snapshot(&snapshot)?,
                Err(SnapshotError::Missing(_)) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        for Forgotten { id, name, at } in &forgotten {
            if others == Others::AreAway {
                continue;
            }
            // A record that could not be read was relied on by nobody.
            let Ok(snapshot) = self.forgotten_snapshot(*id, name) else { continue };
            match reached.snapshot(&snapshot) {
                Err(error) if *at > expires => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        let Reached { ids: needed, .. } = reached;

        let mut collected = Collected::default();
        let mut unneeded = Vec::new();
        let present: HashSet<Id> = packs.iter().map(|(id, _)| *id).collect();
        let mut kept = HashSet::new();
        for (id, listed) in packs {
            let frames = match self.read_index(id, listed.size) {
                Ok(frames) => frames,
                Err(SnapshotError::Missing(_)) => continue,
                Err(SnapshotError::Damaged { .. }) => {
                    collected.unreadable += 1;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let mut chunks = frames.iter().flat_map(|frame| &frame.chunks);
            if chunks.any(|chunk| needed.contains(&chunk.id)) {
                kept.insert(id);
            } else {
                unneeded.push((id, listed));
            }
        }
        collected.kept = kept.len() as u64;
        // Marks that do not hold go before anything else, and before what they were cleared for.
        for (id, (_, names)) in &marks {
            if kept.contains(id) || !present.contains(id) {
                self.remove_all(names)?;
            }
        }
        for Forgotten { name, at, .. } in forgotten {
            if at <= expires {
                self.remove_all(&[name])?;
            }
        }
        for (id, listed) in unneeded {
            let mark = marks.get(&id);
            let is_due = match others {
                Others::MayCapture => mark.is_some_and(|(at, _)| *at <= expires),
                Others::AreAway => true,
            };
            if is_due {
                self.remove_all(&[pack_name(id)])?;
                self.remove_all(mark.map_or(&[][..], |(_, names)| names))?;
                collected.removed += 1;
                collected.removed_bytes += listed.size;
                continue;
            }
            collected.waiting += 1;
            // One that is young belongs to a capture that has not finished, most likely.
            if mark.is_none() && listed.put_at <= expires && began.elapsed() < self.grace() / 4 {
                self.put_mark(id)?;
            }
        }
        // Somebody may be slow to write, whatever the grace period is.
        let age = if others == Others::AreAway { Duration::ZERO } else { Self::GRACE };
        self.objects().clear(age).map_err(SnapshotError::store("clear", "what was left"))?;
        Ok(Some(collected))
    }

    fn put_mark(&self, pack: Id) -> Result<()> {
        let begin = Instant::now();
        let name = format!("{MARKS}{pack}.{}", now());
        self.objects().put(&name, b"").map_err(SnapshotError::store("put", &name))?;
        // It says when it was put, and that is not so.
        if begin.elapsed() >= self.grace() / 4 { self.remove_all(&[name]) } else { Ok(()) }
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
    /// Directories that were looked into.
    seen: HashSet<Id>,
}

impl Reached<'_> {
    fn snapshot(&mut self, snapshot: &Snapshot) -> Result<()> {
        let mut waiting: Vec<Content> = snapshot.roots.iter().map(|root| root.tree).collect();
        while let Some(directory) = waiting.pop() {
            if !self.seen.insert(directory.id) {
                continue;
            }
            self.content(directory)?;
            for entry in self.chunks.directory(directory, u64::MAX)? {
                match entry.kind {
                    Kind::File(content) => self.content(content)?,
                    Kind::Directory(content) => waiting.push(content),
                    Kind::Symlink(_) | Kind::HardLink(_) => {}
                }
            }
        }
        Ok(())
    }

    fn content(&mut self, content: Content) -> Result<()> {
        // A list that was seen was followed then: the kind is part of the id.
        if content.size == 0 || !self.ids.insert(content.id) || content.depth == 0 {
            return Ok(());
        }
        for item in self.chunks.list(content)? {
            match item {
                Item::Zeros(_) => {}
                Item::Bytes(below) => self.content(below)?,
            }
        }
        Ok(())
    }
}
