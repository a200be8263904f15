//! What goes from a bucket and from this machine, and what stays, with the real bridge and its agent.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ash_core::id::{AgentId, SessionId, SnapshotId};
use ash_core::json::Json;
use ash_core::resume::Source;
use ash_core::session::Status;
use ash_core::time::Clock as _;
use ash_engine::agent::Library;
use ash_engine::files::FilePath;
use ash_engine::{Cloud, CloudOptions, Point, RequireState, SystemClock, Understood};
use ash_snapshot::objects::Options;
use ash_store::{NewAgentVersion, Places, Settings, StoreError};

use crate::world::{World, tenant};

const SOON: Duration = Duration::from_millis(1);
const NOW: Duration = Duration::ZERO;

/// The cloud at a url.
pub(crate) fn cloud(url: &str, data: &Path) -> Cloud {
    let options = CloudOptions {
        url: url.to_owned(),
        reach: Options::default(),
        wait: Duration::from_secs(20),
        uploads: NonZeroUsize::new(2).unwrap(),
        bytes_per_second: None,
    };
    std::fs::create_dir_all(data).unwrap();
    Cloud::open(options, data, library(data)).unwrap()
}

pub(crate) fn library(data: &Path) -> Library {
    Library::open(&data.join("agents")).unwrap()
}

/// Where the things of a tenant lie in a bucket that is a directory.
pub(crate) struct Bucket(pub(crate) tempfile::TempDir);

impl Bucket {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn place(&self, below: &str) -> PathBuf {
        self.0.path().join("tenants/default").join(below)
    }

    fn has_session(&self, session: SessionId) -> bool {
        let place = self.place(&format!("sessions/{session}"));
        ["heads", "log", "records"].iter().any(|kind| !names(&place.join(kind)).is_empty())
    }

    fn snapshots(&self) -> Vec<String> {
        names(&self.place("repository/snapshots"))
    }

    fn has(&self, snapshot: SnapshotId) -> bool {
        self.snapshots().contains(&snapshot.to_string())
    }

    /// Whether the latest set of a session names a snapshot.
    fn names(&self, session: SessionId, snapshot: SnapshotId) -> bool {
        let heads = self.place(&format!("sessions/{session}/heads"));
        let latest = names(&heads).into_iter().max().expect("there is a set");
        let head = std::fs::read_to_string(heads.join(latest)).unwrap();
        let (_, record) = head.split_once(r#""record":{"name":""#).unwrap();
        let (record, _) = record.split_once('"').unwrap();
        let squeezed = std::fs::read(self.place(record)).unwrap();
        let record = zstd::bulk::decompress(&squeezed, 1 << 20).unwrap();
        String::from_utf8(record).unwrap().contains(&snapshot.to_string())
    }
}

pub(crate) fn names(place: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(place).into_iter().flatten();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

/// A server over a bucket, with an agent whose directory is a real one.
pub(crate) async fn served(bucket: &Bucket) -> World {
    let mut world = World::start().await;
    world.cloud = Some(format!("file://{}", bucket.0.path().display()));
    deploy(&world, "Be kind.").await;
    world.kill_engine().await;
    world
}

/// Deploys an agent whose directory is a real one.
pub(crate) async fn deploy(world: &World, instructions: &str) {
    let files = vec![("CLAUDE.md".to_owned(), instructions.as_bytes().to_vec()).into()];
    let definition = library(&world.dir.join("data")).capture_files(files).unwrap();
    let version = NewAgentVersion {
        id: AgentId::from_parts(SystemClock.now(), [7; 10]),
        tenant: tenant(),
        name: "coder".parse().unwrap(),
        definition: Json::of(&definition).unwrap(),
        at: SystemClock.now(),
        receipt: None,
        settings: None,
        label: ash_store::NewLabel::default(),
    };
    world.engine.store().deploy_agent(&version).await.unwrap();
}

impl World {
    /// Waits until all that a session has is in the cloud.
    pub(crate) async fn in_cloud(&self, session: SessionId) {
        for _ in 0..3_000 {
            let rows = self.engine.snapshots(&tenant(), session, 100).await.unwrap();
            if !rows.is_empty() && rows.iter().all(|row| row.places.cloud) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("never in the cloud");
    }

    /// Ends a session, and waits until nothing of it is remembered.
    async fn purge(&mut self, session: SessionId) {
        self.engine.end(&tenant(), session).await.unwrap();
        self.until_it(session, |it| it.is_at_rest() && it.status() == Status::Ended).await;
        self.with_policy(|policy| policy.retention = SOON).await;
        for _ in 0..3_000 {
            self.engine.reconcile().await.unwrap();
            match self.engine.store().session(&tenant(), session).await {
                Err(StoreError::NotFound(_)) => return,
                other => drop(other.unwrap()),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("never gone");
    }
}

async fn until_gone(bucket: &Bucket, session: SessionId) {
    crate::world::until("it is gone from the bucket", || !bucket.has_session(session)).await;
}

fn lose_snapshots(world: &World) {
    std::fs::remove_dir_all(world.dir.join("data/snapshots")).unwrap();
}

#[tokio::test]
async fn a_session_that_is_over_goes_from_the_bucket_too_and_leaves_what_a_fork_needs() {
    let bucket = Bucket::new();
    let mut world = served(&bucket).await;
    let parent = world.stopped().await;
    let first = world.captured(parent).await.captured.id;
    world.in_cloud(parent).await;
    let fork = world.engine.fork(&tenant(), parent, Point::Latest, None).await.unwrap().record.id;
    // What the fork does not have.
    world.engine.resume(&tenant(), parent, RequireState::Yes).await.unwrap();
    world.say(parent, "/bash printf later >later.txt").await;
    world.engine.stop(&tenant(), parent).await.unwrap();
    let later = world.captured(parent).await.captured.id;
    world.in_cloud(parent).await;
    crate::world::until("the fork is known there", || bucket.has_session(fork)).await;
    world.purge(parent).await;
    until_gone(&bucket, parent).await;
    assert!(bucket.has(first) && bucket.has(later), "they are left to the next look");
    let day = Duration::from_secs(24 * 60 * 60);
    let collected = world.engine.collect_in_cloud(&tenant(), day).await.unwrap();
    assert_eq!(collected.forgotten, 0, "what is young is left alone");
    assert!(world.engine.collect_in_cloud(&tenant(), NOW).await.unwrap().forgotten > 0);
    assert!(bucket.has(first) && !bucket.has(later));
    lose_snapshots(&world);
    world.kill_engine().await;
    let back = world.engine.resume(&tenant(), fork, RequireState::Yes).await.unwrap();
    assert_eq!(back.receipt.unwrap().source, Some(Source::Cloud));
    // Nothing of it is left in the end, its agent included.
    world.purge(fork).await;
    until_gone(&bucket, fork).await;
    world.engine.collect_in_cloud(&tenant(), NOW).await.unwrap();
    assert_eq!(bucket.snapshots(), Vec::<String>::new());
    assert_eq!(names(&bucket.place("agents")), Vec::<String>::new());
    world.end().await;
}

#[tokio::test]
async fn a_session_that_another_server_goes_on_with_stays_in_the_bucket() {
    let bucket = Bucket::new();
    let (mut first, second) = (served(&bucket).await, served(&bucket).await);
    let session = first.stopped().await;
    first.in_cloud(session).await;
    let understand = |_: &Settings, _: &Json| Some(Understood::default());
    let us = tenant();
    let imported = second.engine.import_from_cloud(&us, session, &understand, None);
    let imported = imported.await.unwrap();
    assert_eq!(imported.session.record.id, session);
    let heads = bucket.place(&format!("sessions/{session}/heads"));
    crate::world::until("it is taken over", || names(&heads).len() > 1).await;
    first.purge(session).await;
    // It is told before the next one: so that is done.
    let other = first.stopped().await;
    first.in_cloud(other).await;
    for world in [&first, &second] {
        world.engine.collect_in_cloud(&tenant(), NOW).await.unwrap();
    }
    assert!(bucket.has_session(session));
    let back = second.engine.resume(&tenant(), session, RequireState::Yes).await.unwrap();
    assert_eq!(back.receipt.unwrap().source, Some(Source::Cloud));
    first.end().await;
    second.end().await;
}

#[tokio::test]
async fn snapshots_that_are_not_kept_go_from_the_bucket_too() {
    let bucket = Bucket::new();
    let mut world = served(&bucket).await;
    world.with_policy(|policy| policy.snapshot_keep = NonZeroU32::new(2)).await;
    let session = world.session().await;
    let mut captured = Vec::new();
    for round in 0..4 {
        world.say(session, &format!("/bash printf {round} >{round}.txt")).await;
        captured.push(world.captured(session).await.captured.id);
        world.in_cloud(session).await;
    }
    let kept = captured.split_off(2);
    // A set that is on its way has parts that no head names yet: for a look that leaves out nothing they are nobody's.
    for _ in 0..3_000 {
        let rows = world.engine.snapshots(&tenant(), session, 10).await.unwrap();
        if rows.len() == 2 && !captured.iter().any(|id| bucket.names(session, *id)) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    world.engine.collect_in_cloud(&tenant(), NOW).await.unwrap();
    assert!(kept.iter().all(|id| bucket.has(*id)), "{kept:?} of {:?}", bucket.snapshots());
    // Those, and the directory of the agent.
    assert_eq!(bucket.snapshots().len(), 3);
    world.end().await;
}

#[tokio::test]
async fn snapshots_that_the_cloud_has_leave_this_machine_and_come_back_with_the_session() {
    let bucket = Bucket::new();
    let mut world = served(&bucket).await;
    let session = world.stopped().await;
    world.in_cloud(session).await;
    world.with_policy(|policy| policy.local_snapshot_ttl = Some(SOON)).await;
    let places = async |world: &World| -> Vec<Places> {
        let rows = world.engine.snapshots(&tenant(), session, 100).await.unwrap();
        rows.iter().map(|row| row.places).collect()
    };
    let here = |places: &[Places]| places.iter().all(|it| it.local && it.cloud);
    world.engine.leave_old_snapshots_to_cloud().await.unwrap();
    assert!(here(&places(&world).await), "its files are in place: they may be needed");
    world.with_policy(|policy| policy.cold_ttl = SOON).await;
    world.until_away(session).await;
    // Something is missing there: what is remembered of it is not believed, and it is brought there again first.
    std::fs::remove_dir_all(bucket.place("repository/packs")).unwrap();
    world.kill_engine().await;
    let there = Places { local: false, cloud: true };
    while !places(&world).await.iter().all(|it| *it == there) {
        world.engine.leave_old_snapshots_to_cloud().await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(world.engine.collect(&tenant(), NOW).await.unwrap().forgotten > 0);
    world.kill_engine().await;
    let files = world.engine.workspace(&tenant(), session).await.unwrap();
    assert_eq!(files.read(FilePath::file(b"a.txt").unwrap(), 10).await.unwrap().size, 3);
    drop(files);
    world.kill_engine().await;
    let back = world.engine.resume(&tenant(), session, RequireState::Yes).await.unwrap();
    assert_eq!(back.receipt.unwrap().source, Some(Source::Cloud));
    world.end().await;
}

#[tokio::test]
async fn where_room_is_short_snapshots_leave_this_machine_only_if_the_cloud_is_proven_to_have_them()
{
    let bucket = Bucket::new();
    let mut world = served(&bucket).await;
    let session = world.stopped().await;
    let last = world.captured(session).await.captured.id;
    world.in_cloud(session).await;
    let places = async |world: &World| -> Vec<Places> {
        let rows = world.engine.snapshots(&tenant(), session, 100).await.unwrap();
        rows.iter().map(|row| row.places).collect()
    };
    // Nothing that they need is there, whatever is remembered: it is put again first.
    std::fs::remove_dir_all(bucket.place("repository/packs")).unwrap();
    world.with_policy(|policy| policy.min_free_bytes = u64::MAX).await;
    // So is a record that is torn there.
    let record = bucket.place("repository/snapshots").join(last.to_string());
    let whole = std::fs::read(&record).unwrap();
    std::fs::remove_file(&record).unwrap();
    std::fs::write(&record, &whole[..whole.len() / 2]).unwrap();
    world.kill_engine().await;
    let there = Places { local: false, cloud: true };
    for _ in 0..3_000 {
        world.engine.make_space().await.unwrap();
        if places(&world).await.iter().all(|it| *it == there) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(places(&world).await.iter().all(|it| *it == there), "{:?}", places(&world).await);
    assert_eq!(std::fs::read(&record).unwrap(), whole);
    assert!(world.engine.collect(&tenant(), NOW).await.unwrap().forgotten > 0);
    world.with_policy(|policy| policy.min_free_bytes = 0).await;
    let back = world.engine.resume(&tenant(), session, RequireState::Yes).await.unwrap();
    assert_eq!(back.receipt.unwrap().source, Some(Source::Cloud));
    world.end().await;
}

#[tokio::test]
async fn a_look_through_the_bucket_puts_records_again_that_are_torn_there() {
    let bucket = Bucket::new();
    let world = served(&bucket).await;
    let session = world.stopped().await;
    let rows = world.engine.snapshots(&tenant(), session, 100).await.unwrap();
    let earlier = rows.last().unwrap().snapshot.captured.id;
    assert_ne!(earlier, world.captured(session).await.captured.id);
    world.in_cloud(session).await;
    let record = bucket.place("repository/snapshots").join(earlier.to_string());
    let whole = std::fs::read(&record).unwrap();
    std::fs::remove_file(&record).unwrap();
    std::fs::write(&record, &whole[..whole.len() / 2]).unwrap();
    let day = Duration::from_secs(24 * 60 * 60);
    for _ in 0..3_000 {
        // The head that names it may be on its way.
        world.engine.collect_in_cloud(&tenant(), day).await.unwrap();
        if std::fs::read(&record).unwrap() == whole {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(std::fs::read(&record).unwrap(), whole);
    world.end().await;
}

#[tokio::test]
async fn a_drain_waits_until_the_cloud_has_what_sandboxes_left() {
    let bucket = Bucket::new();
    let mut world = served(&bucket).await;
    let session = world.session().await;
    world.say(session, "/bash printf one >a.txt").await;
    world.captured(session).await;
    world.in_cloud(session).await;
    std::fs::write(world.host.workspace(session).join("late.txt"), "late").unwrap();
    world.engine.drain(Duration::from_secs(60)).await;
    let store = std::sync::Arc::clone(world.engine.store());
    let stored = store.session(&tenant(), session).await.unwrap();
    let last = stored.session.persistence().last().unwrap().clone();
    assert_eq!(last.captured.files, 2);
    assert!(store.snapshot(session, last.captured.id).await.unwrap().places.cloud);
    world.kill_engine().await;
    world.end().await;
}

#[tokio::test]
async fn directories_of_agents_go_with_the_last_who_needs_them() {
    let bucket = Bucket::new();
    let mut world = served(&bucket).await;
    let agents = world.dir.join("data/agents");
    let session = world.stopped().await;
    let is_needed = names(&agents);
    assert_eq!(is_needed.len(), 1);
    world.engine.delete_agent(&tenant(), &"coder".parse().unwrap()).await.unwrap();
    // Captured, and not deployed yet.
    let files = vec![("CLAUDE.md".to_owned(), b"Be brief.".to_vec()).into()];
    library(&world.dir.join("data")).capture_files(files).unwrap();
    let day = Duration::from_secs(24 * 60 * 60);
    assert_eq!(
        world.engine.collect_agents(day).await.unwrap(),
        0,
        "one may be about to be deployed"
    );
    assert_eq!(world.engine.collect_agents(NOW).await.unwrap(), 1);
    assert_eq!(names(&agents), is_needed, "a session was made with it");
    world.with_policy(|policy| policy.retention = SOON).await;
    // The next engine has deployed another one of that name.
    world.engine.delete_agent(&tenant(), &"coder".parse().unwrap()).await.unwrap();
    for _ in 0..3_000 {
        world.engine.reconcile().await.unwrap();
        if world.engine.store().session_record(session).await.is_err() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(world.engine.collect_agents(NOW).await.unwrap(), 1);
    assert_eq!(names(&agents), Vec::<String>::new());
    world.end().await;
}
