//! How long things are kept, with the real bridge and its agent: files of sessions that nobody uses, snapshots, and
//! sessions that are over.

use std::io::Read as _;
use std::num::NonZeroU32;
use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use ash_core::id::SessionId;
use ash_core::resume::Workspace;
use ash_core::session::{FilesPlace, PauseReason, Sandbox, Session, State, Status};
use ash_engine::files::{Executable, FileError, FilePath, Scope};
use ash_engine::{CreateSession, FileSource, RequireState, WorkspaceError};
use ash_store::StoreError;

use crate::world::{World, tenant};

const WRITE: &str = "My name is Ada.\n/tool write_file {\"path\": \"a.txt\", \"content\": \"one\"}";
const SOON: Duration = Duration::from_millis(1);

impl World {
    /// Another engine over the same files, with another policy.
    pub(crate) async fn with_policy(&mut self, change: impl FnOnce(&mut ash_core::policy::Policy)) {
        change(&mut self.policy);
        self.kill_engine().await;
    }

    async fn stored(&self, session: SessionId) -> Session {
        self.engine.store().session(&tenant(), session).await.unwrap().session.clone()
    }

    /// Waits until a session is as wanted; looks after it as every minute does.
    pub(crate) async fn until_it(
        &self,
        session: SessionId,
        wanted: impl Fn(&Session) -> bool,
    ) -> Session {
        for _ in 0..3_000 {
            let stored = self.stored(session).await;
            if wanted(&stored) {
                return stored;
            }
            self.engine.reconcile().await.unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("never: {:?}", self.stored(session).await);
    }

    pub(crate) async fn until_away(&self, session: SessionId) {
        self.until_it(session, |it| it.keeping().files() == FilesPlace::Away).await;
        assert!(!self.host.workspace(session).exists() && !self.host.home(session).exists());
    }

    /// A session that has done something and was stopped, and captured.
    pub(crate) async fn stopped(&self) -> SessionId {
        let session = self.session().await;
        self.say(session, WRITE).await;
        let more = "/bash mkdir -p deep/er .git; printf x >deep/er/run; chmod 755 deep/er/run; \
            ln -s deep d; ln a.txt b.txt; printf hidden >.git/config; printf caf >$(printf 'caf\\351')";
        self.say(session, more).await;
        self.engine.stop(&tenant(), session).await.unwrap();
        self.captured(session).await;
        session
    }
}

/// Everything that the files of a session look like from outside.
async fn seen(world: &World, session: SessionId) -> Vec<String> {
    let files = world.engine.workspace(&tenant(), session).await.unwrap();
    assert_eq!(files.source(), FileSource::Snapshot);
    let mut seen = Vec::new();
    for scope in [Scope::Everything, Scope::Usual, Scope::WithoutCaches] {
        let listing = files.list(FilePath::ROOT, scope).await.unwrap();
        for file in listing.files {
            let mut opened = files.read(file.path.clone(), 1_000).await.unwrap();
            let mut content = String::new();
            opened.file.read_to_string(&mut content).unwrap();
            assert_eq!((opened.size, opened.modified), (file.size, file.modified));
            let path = file.path.encoded();
            seen.push(format!("{scope:?} {path} {} {content}", file.executable));
        }
        seen.push(listing.truncated.to_string());
    }
    let deep = FilePath::directory(b"deep").unwrap();
    let one = FilePath::file(b"b.txt").unwrap();
    for under in [deep.clone(), one] {
        seen.push(format!("{:?}", files.list(under, Scope::Usual).await.unwrap()));
    }
    for under in [FilePath::ROOT, deep.clone()] {
        seen.push(format!("{:?}", files.directories(under).await.unwrap()));
    }
    for wrong in [&b"none"[..], b"deep", b"d", b"deep/none"] {
        let refused = files.read(FilePath::file(wrong).unwrap(), 10).await.unwrap_err();
        seen.push(refused.to_string());
    }
    let large = files.read(FilePath::file(b"a.txt").unwrap(), 2).await.unwrap_err();
    assert!(matches!(large, WorkspaceError::File(FileError::TooLarge { size: 3, most: 2 })));
    let (packed, _) = files.pack().await.unwrap();
    let mut bundle = tar::Archive::new(flate2::read::GzDecoder::new(packed));
    let mut names: Vec<String> = Vec::new();
    for entry in bundle.entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut content = String::new();
        entry.read_to_string(&mut content).unwrap();
        names.push(format!("packed {:?} {content}", entry.path_bytes().escape_ascii().to_string()));
    }
    names.sort();
    seen.extend(names);
    seen
}

#[tokio::test]
async fn files_that_nobody_uses_go_and_are_read_from_their_snapshot_until_they_come_back() {
    let mut world = World::start().await;
    let session = world.stopped().await;
    let before = seen(&world, session).await;
    world.with_policy(|policy| policy.cold_ttl = SOON).await;
    world.until_away(session).await;
    assert_eq!(seen(&world, session).await, before);
    let refused = world.engine.workspace_to_change(&tenant(), session).await;
    assert!(matches!(refused, Err(WorkspaceError::Away)));
    let files = world.engine.workspace(&tenant(), session).await.unwrap();
    let removed = files.remove(FilePath::file(b"a.txt").unwrap()).await;
    assert!(matches!(removed, Err(WorkspaceError::Away)), "{removed:?}");
    drop(files);
    world.with_policy(|policy| policy.cold_ttl = Duration::from_secs(3_600)).await;
    let back = world.engine.resume(&tenant(), session, RequireState::Yes).await.unwrap();
    let receipt = back.receipt.unwrap();
    assert_eq!(receipt.workspace, Workspace::Restored);
    assert_eq!(world.stored(session).await.keeping().files(), FilesPlace::InPlace);
    let answer = world.say(session, "Who am I?\n/recall").await.text();
    assert!(answer.contains("My name is Ada."), "{answer}");
    world.end().await;
}

#[tokio::test]
async fn files_that_are_not_as_in_the_snapshot_stay() {
    let mut world = World::start().await;
    let session = world.stopped().await;
    // Behind everybody's back.
    std::fs::write(world.host.workspace(session).join("new.txt"), "precious").unwrap();
    world.with_policy(|policy| policy.cold_ttl = SOON).await;
    let stays = |it: &Session| matches!(it.keeping().files(), FilesPlace::Stay { .. });
    world.until_it(session, stays).await;
    assert!(world.host.workspace(session).join("new.txt").exists());
    // Nor do they go if the snapshot cannot be read whole.
    std::fs::remove_file(world.host.workspace(session).join("new.txt")).unwrap();
    let packs = world.dir.join("data/snapshots/default/packs");
    std::fs::rename(&packs, packs.with_extension("lost")).unwrap();
    std::fs::create_dir(&packs).unwrap();
    world.with_policy(|policy| policy.min_free_bytes = u64::MAX).await;
    world.engine.make_space().await.unwrap();
    assert!(world.host.workspace(session).join("a.txt").exists());
    let back = world.engine.resume(&tenant(), session, RequireState::Yes).await.unwrap();
    assert_eq!(back.receipt.unwrap().workspace, Workspace::Kept);
    world.end().await;
}

#[tokio::test]
async fn files_whose_only_copy_was_damaged_are_stored_again_before_they_go() {
    let mut world = World::start().await;
    let session = world.session().await;
    world.say(session, "/bash head -c 400000 /dev/urandom > big").await;
    world.engine.stop(&tenant(), session).await.unwrap();
    world.captured(session).await;
    let big = world.host.workspace(session).join("big");
    let before = std::fs::read(&big).unwrap();
    let packs = world.dir.join("data/snapshots/default/packs");
    let shards = std::fs::read_dir(packs).unwrap();
    let packs = shards.flat_map(|shard| std::fs::read_dir(shard.unwrap().path()).unwrap());
    let largest = packs.map(|pack| pack.unwrap().path());
    let largest = largest.max_by_key(|pack| std::fs::metadata(pack).unwrap().len()).unwrap();
    // In the middle of the file, where no list of what is in the pack is.
    let mut bytes = std::fs::read(&largest).unwrap();
    bytes[200_000..200_064].iter_mut().for_each(|byte| *byte ^= 0xff);
    std::fs::remove_file(&largest).unwrap();
    std::fs::write(&largest, bytes).unwrap();
    world.with_policy(|policy| policy.cold_ttl = SOON).await;
    let stays = |it: &Session| matches!(it.keeping().files(), FilesPlace::Stay { .. });
    world.until_it(session, |it| stays(it) && it.persistence().is_settled()).await;
    assert!(std::fs::read(&big).unwrap() == before, "nothing was removed");
    // They are stored again, so that they can go the next time.
    world.with_policy(|policy| policy.min_free_bytes = u64::MAX).await;
    world.engine.make_space().await.unwrap();
    world.until_away(session).await;
    let back = world.engine.resume(&tenant(), session, RequireState::Yes).await.unwrap();
    assert_eq!(back.receipt.unwrap().workspace, Workspace::Restored);
    assert!(std::fs::read(&big).unwrap() == before, "it is what it was");
    world.end().await;
}

#[tokio::test]
async fn files_are_removed_and_wanted_at_once_and_nothing_is_lost() {
    let mut world = World::start().await;
    let session = world.stopped().await;
    world.with_policy(|policy| policy.min_free_bytes = u64::MAX).await;
    for round in 0..6 {
        // As if there were no room: everything that a snapshot has is removed at once.
        let tenant = tenant();
        let (made, back) = tokio::join!(
            world.engine.make_space(),
            world.engine.resume(&tenant, session, RequireState::Yes),
        );
        made.unwrap();
        back.unwrap();
        world.say(session, &format!("/bash printf {round} >>rounds.txt")).await;
        world.engine.stop(&tenant, session).await.unwrap();
        world.captured(session).await;
        if round % 2 == 0 {
            let engine = world.engine.clone();
            let cut = tokio::time::timeout(SOON * round, engine.make_space());
            let _cut_or_done = cut.await;
            world.kill_engine().await;
        }
    }
    world.engine.resume(&tenant(), session, RequireState::Yes).await.unwrap();
    let rounds = std::fs::read_to_string(world.host.workspace(session).join("rounds.txt"));
    assert_eq!(rounds.unwrap(), "012345");
    let found = |name: &str| std::fs::metadata(world.host.workspace(session).join(name)).unwrap();
    assert_eq!(found("a.txt").ino(), found("b.txt").ino());
    assert_eq!(found("deep/er/run").mode() & 0o777, 0o755);
    world.end().await;
}

#[tokio::test]
async fn a_session_that_has_been_over_for_long_leaves_nothing() {
    let mut world = World::start().await;
    let (kept, over) = (world.stopped().await, world.stopped().await);
    world.engine.end(&tenant(), over).await.unwrap();
    world.until_it(over, |it| it.is_at_rest() && it.status() == Status::Ended).await;
    world.with_policy(|policy| policy.retention = SOON).await;
    for _ in 0..1_000 {
        world.engine.reconcile().await.unwrap();
        match world.engine.store().session(&tenant(), over).await {
            Err(StoreError::NotFound(_)) => break,
            other => drop(other.unwrap()),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let data = world.dir.join("data");
    for place in ["sandboxes", "run", "sessions"] {
        assert!(!data.join(place).join(over.to_string()).exists(), "{place}");
    }
    assert!(world.engine.store().session(&tenant(), over).await.is_err());
    // Its snapshots are nobody's: not forgotten at once, for they could be about to be recorded.
    let day = Duration::from_secs(24 * 60 * 60);
    assert_eq!(world.engine.collect(&tenant(), day).await.unwrap().forgotten, 0);
    assert!(world.engine.collect(&tenant(), Duration::ZERO).await.unwrap().forgotten > 0);
    assert_eq!(world.engine.collect(&tenant(), Duration::ZERO).await.unwrap().forgotten, 0);
    // The other one's are still there.
    std::fs::remove_dir_all(world.host.workspace(kept)).unwrap();
    let back = world.engine.resume(&tenant(), kept, RequireState::Yes).await.unwrap();
    assert_eq!(back.receipt.unwrap().workspace, Workspace::Restored);
    world.end().await;
}

#[tokio::test]
async fn so_many_snapshots_are_kept_as_somebody_says() {
    let mut world = World::start().await;
    world.with_policy(|policy| policy.snapshot_keep = NonZeroU32::new(2)).await;
    let session = world.session().await;
    for round in 0..4 {
        world.say(session, &format!("/bash printf {round} >{round}.txt")).await;
        world.captured(session).await;
    }
    let mut left = Vec::new();
    for _ in 0..1_000 {
        left = world.engine.snapshots(&tenant(), session, 10).await.unwrap();
        if left.len() == 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let turns: Vec<u32> = left.iter().map(|stored| stored.snapshot.turn.get()).collect();
    assert_eq!(turns, [4, 3]);
    assert!(world.engine.collect(&tenant(), Duration::ZERO).await.unwrap().forgotten >= 2);
    world.end().await;
}

#[tokio::test]
async fn a_session_that_does_nothing_is_paused_then_evicted_and_captured_and_ends_in_the_end() {
    let mut world = World::start().await;
    world.with_policy(|policy| policy.evict_after = Duration::from_millis(200)).await;
    let create = CreateSession {
        idle_timeout: Some(Duration::from_millis(100)),
        time_to_live: Some(Duration::from_secs(20)),
        ..World::new_session()
    };
    let session = world.engine.create_session(create, None).await.unwrap().record.id;
    world.engine.settled(&tenant(), session).await.unwrap();
    let files = world.engine.workspace_to_change(&tenant(), session).await.unwrap();
    let path = FilePath::file(b"from/outside.txt").unwrap();
    files.write(path, Executable::No, b"hello".to_vec()).await.unwrap();
    drop(files);
    let is_idle = |it: &Session| matches!(it.state(), State::Paused { reason, .. } if *reason == PauseReason::Idle);
    world.until_it(session, is_idle).await;
    let cold = world.until_it(session, |it| it.sandbox() == Sandbox::None && it.is_at_rest()).await;
    assert!(is_idle(&cold), "the reason stays: {cold:?}");
    assert_eq!(world.captured(session).await.captured.files, 1);
    let over = world.until_it(session, |it| it.status() == Status::Ended).await;
    assert_eq!(over.sandbox(), Sandbox::None);
    world.end().await;
}

#[tokio::test]
async fn a_drain_captures_what_idle_and_paused_sandboxes_leave() {
    let mut world = World::start().await;
    let (idle, paused) = (world.session().await, world.session().await);
    for session in [idle, paused] {
        world.say(session, WRITE).await;
        world.captured(session).await;
    }
    let freeze = ash_core::session::IfRunning::Freeze;
    world.engine.pause(&tenant(), paused, freeze).await.unwrap();
    world.until_it(paused, |it| it.is_at_rest() && it.persistence().is_settled()).await;
    // What nobody has seen yet.
    for session in [idle, paused] {
        std::fs::write(world.host.workspace(session).join("late.txt"), "late").unwrap();
    }
    world.engine.drain(Duration::from_secs(30)).await;
    assert_eq!(world.host.bridge_of(sandbox(idle)), None);
    world.kill_engine().await;
    for (session, reason) in [(idle, PauseReason::ServerRestart), (paused, PauseReason::Requested)]
    {
        let stored = world.stored(session).await;
        assert!(matches!(stored.state(), State::Paused { reason: why, .. } if *why == reason));
        assert_eq!(stored.sandbox(), Sandbox::None);
        assert_eq!(stored.persistence().last().unwrap().captured.files, 2, "{stored:?}");
    }
    world.end().await;
}

fn sandbox(session: SessionId) -> ash_engine::host::SandboxRef {
    ash_engine::host::SandboxRef { session, incarnation: ash_core::number::Incarnation::new(1) }
}
