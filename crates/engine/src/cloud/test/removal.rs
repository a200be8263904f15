//! What goes from a bucket and what stays, with objects in a directory and faults in between.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use ash_core::id::{SessionId, SnapshotId, TenantId};
use ash_core::json::Json;
use ash_core::number::{AgentVersion, LogEpoch, Seq, Turn};
use ash_core::snapshot::{Captured, Snapshot};
use ash_core::time::{Clock as _, Timestamp};
use ash_snapshot::objects::{Listed, LocalObjects, NewObject, Objects, Put};
use ash_snapshot::{Capture, Repository, Root, State};
use ash_store::Settings;

use crate::archive::{ours, theirs};
use crate::clock::SystemClock;
use crate::cloud::error::CloudError;
use crate::cloud::place::Shelf;
use crate::cloud::remove::{Removal, Removed};
use crate::cloud::set::{AgentRecord, Head, Part, Record, Segment, VERSION, digest_of};
use crate::cloud::sweep::Sweep;
use crate::host::Collected;

const US: &str = "us";
const THEM: &str = "them";

/// Does something to a bucket.
type Deed = Box<dyn Fn(&Bucket) + Send + Sync>;

/// Objects in a directory, of which only so many can be removed.
struct Faulty {
    below: LocalObjects,
    deletes: Arc<AtomicI64>,
    /// Is done before the first removal.
    meanwhile: Option<(PathBuf, Deed)>,
}

impl Objects for Faulty {
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<Put> {
        self.below.put(name, bytes)
    }
    fn begin(&self) -> io::Result<Box<dyn NewObject + '_>> {
        self.below.begin()
    }
    fn get(&self, name: &str, most: u64) -> io::Result<Vec<u8>> {
        self.below.get(name, most)
    }
    fn get_range(&self, name: &str, offset: u64, length: u64) -> io::Result<Vec<u8>> {
        self.below.get_range(name, offset, length)
    }
    fn get_end(&self, name: &str, length: u64) -> io::Result<(Vec<u8>, u64)> {
        self.below.get_end(name, length)
    }
    fn list(&self, prefix: &str) -> io::Result<Vec<Listed>> {
        self.below.list(prefix)
    }
    fn delete(&self, name: &str) -> io::Result<()> {
        let left = self.deletes.fetch_sub(1, Ordering::SeqCst);
        if let Some((path, deed)) = self.meanwhile.as_ref().filter(|_| left == i64::MAX) {
            deed(&Bucket::at(path));
        }
        if left <= 0 {
            return Err(io::Error::other("cut off"));
        }
        self.below.delete(name)
    }
    fn clear(&self, age: Duration) -> io::Result<()> {
        self.below.clear(age)
    }
}

struct Bucket {
    path: PathBuf,
    shelf: Shelf,
}

impl Bucket {
    fn at(path: &Path) -> Self {
        Self::with(path, i64::MAX, None)
    }

    /// One in which only so many objects can be removed.
    fn with(path: &Path, deletes: i64, meanwhile: Option<Deed>) -> Self {
        let deletes = Arc::new(AtomicI64::new(deletes));
        let meanwhile = meanwhile.map(Arc::new);
        let open = |place: PathBuf| {
            std::fs::create_dir_all(&place).unwrap();
            let below = LocalObjects::open(&place).unwrap();
            let meanwhile = meanwhile
                .clone()
                .map(|deed| (path.to_owned(), Box::new(move |bucket: &Self| deed(bucket)) as Deed));
            Box::new(Faulty { below, deletes: Arc::clone(&deletes), meanwhile })
        };
        let repository = Repository::open(open(path.join("repository"))).unwrap();
        let shelf = Shelf::over(open(path.to_owned()), repository);
        Self { path: path.to_owned(), shelf }
    }

    /// Something that was captured of a session or an agent.
    fn captured(&self, source: &str) -> SnapshotId {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), source).unwrap();
        let roots = [Root { name: "workspace", path: dir.path(), excluded: &[] }];
        let capture = Capture {
            roots: &roots,
            source: Some(source),
            parent: None,
            label: None,
            unless_like: None,
            freeze: None,
            threads: 1,
            progress: &|_| true,
        };
        let captured = self.shelf.repository.capture(&capture, &mut State::default());
        ours(captured.unwrap().snapshot.id)
    }

    fn agent(&self, digest: &str) -> Part {
        let snapshot = self.captured(&format!("agent {digest}"));
        let settings = Json::parse("{}".to_owned()).unwrap();
        let record =
            AgentRecord { version: VERSION, digest: digest.to_owned(), snapshot, settings };
        let bytes = serde_json::to_vec(&record).unwrap();
        let name = format!("agents/{digest}.json");
        self.shelf.put(&name, &bytes).unwrap();
        Part { name, bytes: bytes.len() as u64, blake3: digest_of(&bytes), stored: None }
    }

    /// A set of a session, with these snapshots.
    fn set(
        &self,
        (number, epoch, seq): (u8, u32, u64),
        writer: &str,
        agent: &Part,
        snapshots: &[SnapshotId],
    ) -> Head {
        let session = session(number);
        let (epoch, seq) = (LogEpoch::new(epoch), Seq::new(seq));
        let stem = |kind: &str| format!("sessions/{session}/{kind}/{:010}-{seq}", epoch.get());
        let log = self.shelf.put_part(&stem("log"), format!("{writer} {seq}").as_bytes()).unwrap();
        let snapshot = |id: &SnapshotId| Snapshot {
            seq,
            turn: Turn::new(1),
            through: None,
            at: Timestamp::from_millis(1),
            captured: Captured {
                id: *id,
                files: 1,
                bytes: 1,
                new_bytes: 1,
                unfrozen: 0,
                unstable: 0,
                unproven: false,
            },
            transcript: None,
            completed_runs: 1,
            lost: None,
        };
        let record = Record {
            version: VERSION,
            agent_name: "coder".parse().unwrap(),
            agent_version: AgentVersion::new(1),
            parent: None,
            created_at: Timestamp::from_millis(1),
            settings: Settings {
                title: None,
                model: None,
                metadata: std::collections::BTreeMap::new(),
                config: Json::parse("{}".to_owned()).unwrap(),
            },
            snapshots: snapshots.iter().map(snapshot).collect(),
            attachments: Vec::new(),
        };
        let record = serde_json::to_vec(&record).unwrap();
        let head = Head {
            version: VERSION,
            session,
            tenant: tenant(),
            epoch,
            number: seq.get(),
            seq,
            end: None,
            snapshot: *snapshots.last().unwrap(),
            snapshot_seq: seq,
            at: Timestamp::from_millis(1),
            writer: writer.to_owned(),
            agent_name: "coder".parse().unwrap(),
            title: None,
            turns: 1,
            status: None,
            log: vec![Segment { first: Seq::new(1), last: seq, part: log }],
            record: self.shelf.put_part(&stem("records"), &record).unwrap(),
            agent: agent.clone(),
            attachments: Vec::new(),
        };
        self.shelf.put(&head.name(), &head.encode()).unwrap();
        head
    }

    fn remove(&self, number: u8, epoch: u32) -> Result<Removed, CloudError> {
        let at = Timestamp::from_millis(i64::MAX);
        self.shelf.remove(&Removal::of(tenant(), session(number), LogEpoch::new(epoch), at), US)
    }

    fn sweep(&self, age: i64) -> Result<Collected, CloudError> {
        let now = Timestamp::from_millis(now());
        let before = Timestamp::from_millis(now.as_millis() - age);
        self.shelf.sweep(&Sweep {
            tenant: &tenant(),
            now,
            before,
            go_on: &|| true,
            mend: &|_, _| (),
        })
    }

    fn names(&self, below: &str) -> Vec<String> {
        self.shelf.list(below).unwrap().into_iter().map(|listed| listed.name).collect()
    }

    fn has(&self, snapshot: SnapshotId) -> bool {
        self.shelf.repository.snapshot(theirs(snapshot)).is_ok()
    }

    /// The latest set of a session, all of which is there.
    fn whole(&self, number: u8) -> Option<Head> {
        let head = self.shelf.standing(&tenant(), session(number)).unwrap().head?;
        for part in head.log.iter().map(|segment| &segment.part).chain([&head.record]) {
            self.shelf.get_part(part, u64::MAX).unwrap();
        }
        assert!(self.shelf.get(&head.agent.name, 1_000).unwrap().is_some());
        let snapshot = self.shelf.repository.snapshot(theirs(head.snapshot)).unwrap();
        self.shelf.repository.is_present(&snapshot).unwrap();
        Some(head)
    }
}

fn now() -> i64 {
    // What was put in this very millisecond is of before.
    SystemClock.now().as_millis() + 1_000
}

fn tenant() -> TenantId {
    TenantId::default_tenant()
}

fn session(number: u8) -> SessionId {
    SessionId::from_parts(Timestamp::from_millis(1), [number; 10])
}

#[test]
fn whoever_is_killed_between_two_removals_leaves_a_whole_set_or_none_and_the_next_one_finishes() {
    for deletes in 0..=6 {
        let dir = tempfile::tempdir().unwrap();
        let bucket = Bucket::at(dir.path());
        let agent = bucket.agent("a1");
        let snapshot = bucket.captured(&session(1).to_string());
        bucket.set((1, 1, 5), US, &agent, &[snapshot]);
        bucket.set((1, 1, 9), US, &agent, &[snapshot]);
        bucket.set((2, 1, 5), US, &agent, &[snapshot]);
        let cut_off = Bucket::with(dir.path(), deletes, None).remove(1, 1);
        assert_eq!(cut_off.is_err(), deletes < 6, "{deletes}");
        if let Some(head) = bucket.whole(1) {
            assert_eq!(head.seq, Seq::new(9), "the latest one is what there is");
        }
        assert_eq!(bucket.remove(1, 1).unwrap(), Removed::Yes);
        assert_eq!(bucket.names(&format!("sessions/{}/", session(1))), Vec::<String>::new());
        assert!(bucket.whole(2).is_some(), "another session's things stay");
    }
}

#[test]
fn what_another_server_goes_on_with_stays() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Bucket::at(dir.path());
    let agent = bucket.agent("a1");
    let snapshot = bucket.captured(&session(1).to_string());
    bucket.set((1, 1, 5), US, &agent, &[snapshot]);
    bucket.set((1, 2, 6), THEM, &agent, &[snapshot]);
    let before = bucket.names("sessions/");
    assert_eq!(bucket.remove(1, 1).unwrap(), Removed::Elsewhere);
    // Two have imported it, and they were first.
    assert_eq!(bucket.remove(1, 2).unwrap(), Removed::Elsewhere);
    assert_eq!(bucket.names("sessions/"), before);
    assert_eq!(bucket.sweep(0).unwrap(), Collected::default());
    assert_eq!(bucket.whole(1).unwrap().writer, THEM);
    // They import it while we remove it: what they put has another epoch.
    let dir = tempfile::tempdir().unwrap();
    let bucket = Bucket::at(dir.path());
    let agent = bucket.agent("a1");
    let snapshot = bucket.captured(&session(1).to_string());
    bucket.set((1, 1, 5), US, &agent, &[snapshot]);
    let import = move |bucket: &Bucket| {
        bucket.set((1, 2, 6), THEM, &agent, &[snapshot]);
    };
    let at_once = Bucket::with(dir.path(), i64::MAX, Some(Box::new(import)));
    assert_eq!(at_once.remove(1, 1).unwrap(), Removed::Yes);
    assert_eq!(bucket.whole(1).unwrap().writer, THEM);
}

#[test]
fn what_no_head_names_goes_once_it_is_old_and_what_a_fork_needs_stays() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Bucket::at(dir.path());
    let (agent, other) = (bucket.agent("a1"), bucket.agent("a2"));
    let of_parent = session(1).to_string();
    let [only, shared, expired] = [(); 3].map(|()| bucket.captured(&of_parent));
    let foreign = bucket.captured("somebody's own tree");
    bucket.set((1, 1, 5), US, &other, &[shared, only]);
    bucket.set((2, 1, 5), THEM, &agent, &[shared]);
    let stray = format!("sessions/{}/log/{:010}-stray", session(2), 1);
    bucket.shelf.put_part(&stray, b"left behind").unwrap();
    let young = 24 * 60 * 60 * 1_000;
    assert_eq!(bucket.sweep(young).unwrap().forgotten, 0, "what is young may be about to be named");
    assert_eq!(bucket.sweep(0).unwrap().forgotten, 1);
    assert!(!bucket.has(expired) && bucket.has(only) && bucket.has(shared) && bucket.has(foreign));
    assert!(!bucket.names("sessions/").iter().any(|name| name.contains("stray")));
    bucket.remove(1, 1).unwrap();
    // Its own snapshot, and the directory of its agent.
    assert_eq!(bucket.sweep(0).unwrap().forgotten, 2);
    assert!(!bucket.has(only) && bucket.has(shared) && bucket.has(foreign));
    assert_eq!(bucket.names("agents/"), [agent.name]);
    assert!(bucket.whole(2).is_some());
}

#[test]
fn what_is_named_while_it_is_removed_is_put_back() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Bucket::at(dir.path());
    let agent = bucket.agent("a1");
    let snapshot = bucket.captured(&session(1).to_string());
    let put = {
        let agent = agent.clone();
        move |bucket: &Bucket| {
            bucket.set((1, 1, 5), THEM, &agent, &[snapshot]);
        }
    };
    Bucket::with(dir.path(), i64::MAX, Some(Box::new(put))).sweep(0).unwrap();
    assert!(bucket.whole(1).is_some(), "whoever removes looks for heads afterwards");

    // Whoever is cut off before that leaves it to the next one.
    let dir = tempfile::tempdir().unwrap();
    let bucket = Bucket::at(dir.path());
    let agent = bucket.agent("a1");
    let snapshot = bucket.captured(&session(1).to_string());
    for deletes in 0..8 {
        let _cut_off = Bucket::with(dir.path(), deletes, None).sweep(0);
    }
    assert!(!bucket.has(snapshot) && bucket.names("agents/").is_empty());
    bucket.set((1, 1, 5), THEM, &agent, &[snapshot]);
    bucket.sweep(0).unwrap();
    assert!(bucket.whole(1).is_some());
}

#[test]
fn nothing_goes_while_it_cannot_be_told_what_is_needed() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Bucket::at(dir.path());
    let agent = bucket.agent("a1");
    let snapshot = bucket.captured(&session(1).to_string());
    let head = bucket.set((2, 1, 5), US, &agent, &[snapshot]);
    let unneeded = bucket.captured(&session(1).to_string());
    let place = bucket.path.join(head.name());
    let whole = std::fs::read(&place).unwrap();
    std::fs::write(&place, &whole[1..]).unwrap();
    assert!(matches!(bucket.sweep(0), Err(CloudError::Damaged(_))));
    assert!(bucket.has(unneeded));
    std::fs::write(&place, whole).unwrap();
    assert_eq!(bucket.sweep(0).unwrap().forgotten, 1);
}

#[test]
fn of_several_servers_one_looks_through_a_bucket() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Bucket::at(dir.path());
    let at = Timestamp::from_millis(now());
    assert!(bucket.shelf.is_my_turn(US, at).unwrap());
    assert!(!bucket.shelf.is_my_turn(THEM, at).unwrap());
    assert!(!bucket.shelf.is_my_turn(US, at).unwrap());
    let later = at.plus(crate::cloud::sweep::EVERY);
    assert!(bucket.shelf.is_my_turn(THEM, later).unwrap());
    assert_eq!(bucket.names("sweeps/").len(), 1, "and does not leave more than one word");
}
