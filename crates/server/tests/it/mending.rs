//! Snapshots that are lost on one side: it is said at once, and what can be is made whole again.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ash_core::id::{SessionId, SnapshotId};
use ash_core::resume::{Source, Workspace};
use ash_core::session::Status;
use ash_engine::RequireState;
use ash_store::{Place, Places, StoredSnapshot};

use crate::space::{Bucket, served};
use crate::world::{World, tenant};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

impl World {
    async fn row(&self, session: SessionId, id: SnapshotId) -> StoredSnapshot {
        self.engine.store().snapshot(session, id).await.unwrap()
    }

    /// Waits until a snapshot lies where it should.
    async fn until_placed(&self, session: SessionId, id: SnapshotId, places: Places) {
        for _ in 0..3_000 {
            if self.row(session, id).await.places == places {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("never so: {:?}", self.row(session, id).await);
    }

    /// Waits until it is written down that a set of a session is in the bucket, which comes after the snapshot is.
    async fn until_headed(&self, session: SessionId) {
        for _ in 0..3_000 {
            if !self.engine.store().cloud_heads(&[session]).await.unwrap().is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("there is never a set of {session}");
    }
}

/// Does something to every pack of a repository.
fn each_pack(repository: &Path, harm: impl Fn(&Path)) {
    for shard in fs::read_dir(repository.join("packs")).unwrap() {
        for pack in fs::read_dir(shard.unwrap().path()).unwrap() {
            harm(&pack.unwrap().path());
        }
    }
}

/// Flips a byte of what is packed.
fn flip(pack: &Path) {
    let mut bytes = fs::read(pack).unwrap();
    bytes[20] ^= 0xff;
    fs::remove_file(pack).unwrap();
    fs::write(pack, bytes).unwrap();
}

/// Cuts its end off, so that nobody can tell what is in it.
fn cut(pack: &Path) {
    let whole = fs::read(pack).unwrap();
    fs::remove_file(pack).unwrap();
    fs::write(pack, &whole[..whole.len() / 2]).unwrap();
}

fn remove(pack: &Path) {
    fs::remove_file(pack).unwrap();
}

/// The packs of a bucket as they were before they were damaged.
struct Kept(PathBuf);

/// Removes everything of a session here, and damages every pack there. The server is started again.
async fn lost_here_and_damaged_there(
    world: &mut World,
    bucket: &Bucket,
    session: SessionId,
) -> Kept {
    world.until_headed(session).await;
    for gone in ["data/snapshots/default".to_owned(), format!("data/sandboxes/{session}")] {
        fs::remove_dir_all(world.dir.join(gone)).unwrap();
    }
    let kept = bucket.0.path().join("kept");
    fs::create_dir(&kept).unwrap();
    each_pack(&bucket.place("repository"), |pack| {
        fs::copy(pack, kept.join(pack.file_name().unwrap())).unwrap();
        cut(pack);
    });
    world.kill_engine().await;
    Kept(kept)
}

impl Kept {
    /// Puts the packs back as they were. The server is started again.
    async fn bring_back(self, world: &mut World, bucket: &Bucket) {
        each_pack(&bucket.place("repository"), |pack| {
            fs::remove_file(pack).unwrap();
            fs::copy(self.0.join(pack.file_name().unwrap()), pack).unwrap();
        });
        world.kill_engine().await;
    }
}

#[tokio::test]
async fn a_snapshot_that_an_upload_finds_lost_is_not_said_to_be_here_and_another_one_is_made() {
    type Harm = fn(&Path);
    let harms: [Harm; 2] = [remove, flip];
    for harm in harms {
        let bucket = Bucket::new();
        let mut world = served(&bucket).await;
        let session = world.session().await;
        world.say(session, "/bash printf one >a.txt").await;
        world.captured(session).await;
        world.in_cloud(session).await;
        // The bucket is away while the next turn is captured, and what was captured is lost before it is back.
        let away = bucket.0.path().with_extension("away");
        fs::rename(bucket.0.path(), &away).unwrap();
        world.say(session, "/bash printf two >b.txt").await;
        let lost = loop {
            let last = world.captured(session).await;
            if last.captured.files == 2 {
                break last.captured.id;
            }
        };
        let mine = world.dir.join("data/snapshots/default");
        each_pack(&mine, harm);
        world.kill_engine().await;
        fs::rename(&away, bucket.0.path()).unwrap();
        world.until_placed(session, lost, Places { local: false, cloud: false }).await;
        // What is there is captured once more, and goes up.
        let next = loop {
            let last = world.captured(session).await.captured;
            if last.id != lost {
                break last;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        assert_eq!(next.files, 2);
        world.until_placed(session, next.id, Places { local: true, cloud: true }).await;
        world.engine.stop(&tenant(), session).await.unwrap();
        world.until_it(session, |it| it.is_at_rest() && it.status() == Status::Stopped).await;
        for gone in [mine, world.host.workspace(session)] {
            fs::remove_dir_all(gone).unwrap();
        }
        world.kill_engine().await;
        let back = world.engine.resume(&tenant(), session, RequireState::Yes).await.unwrap();
        let receipt = back.receipt.unwrap();
        assert_eq!((receipt.source, receipt.files), (Some(Source::Cloud), 2));
        world.end().await;
    }
}

#[tokio::test]
async fn what_a_look_through_the_bucket_finds_lost_is_put_again() {
    type Harm = fn(&Path);
    let harms: [Harm; 2] = [remove, cut];
    for harm in harms {
        let bucket = Bucket::new();
        let mut world = served(&bucket).await;
        let session = world.stopped().await;
        let last = world.captured(session).await.captured.id;
        world.in_cloud(session).await;
        each_pack(&bucket.place("repository"), harm);
        world.kill_engine().await;
        world.engine.collect_in_cloud(&tenant(), DAY).await.unwrap();
        assert!(world.row(session, last).await.places.cloud, "it is there again");
        for gone in ["data/snapshots/default".to_owned(), format!("data/sandboxes/{session}")] {
            fs::remove_dir_all(world.dir.join(gone)).unwrap();
        }
        world.kill_engine().await;
        let back = world.engine.resume(&tenant(), session, RequireState::Yes).await.unwrap();
        let receipt = back.receipt.unwrap();
        assert_eq!(receipt.source, Some(Source::Cloud));
        assert_eq!(receipt.snapshot.unwrap().id, last);
        world.end().await;
    }
}

#[tokio::test]
async fn what_cannot_be_put_again_is_not_said_to_be_in_the_cloud_and_nobody_begins_without_it() {
    let bucket = Bucket::new();
    let mut world = served(&bucket).await;
    let session = world.stopped().await;
    let last = world.captured(session).await.captured.id;
    world.in_cloud(session).await;
    let kept = lost_here_and_damaged_there(&mut world, &bucket, session).await;
    for _ in 0..2 {
        let refused = world.engine.resume(&tenant(), session, RequireState::No).await;
        assert!(refused.is_err(), "{refused:?}");
        let places = world.row(session, last).await.places;
        assert_eq!(places, Places { local: false, cloud: false });
    }
    world.engine.collect_in_cloud(&tenant(), DAY).await.unwrap();
    // Somebody brings the packs back: it is whole again, and that is found out.
    kept.bring_back(&mut world, &bucket).await;
    let back = world.engine.resume(&tenant(), session, RequireState::No).await.unwrap();
    assert_eq!(back.receipt.unwrap().workspace, Workspace::Restored);
    assert_eq!(world.row(session, last).await.places, Places { local: true, cloud: true });
    world.end().await;
}

#[tokio::test]
async fn what_no_head_of_this_server_names_is_not_begun_without_however_often_it_is_damaged() {
    let bucket = Bucket::new();
    let mut world = served(&bucket).await;
    let session = world.stopped().await;
    world.captured(session).await;
    world.in_cloud(session).await;
    let kept = lost_here_and_damaged_there(&mut world, &bucket, session).await;
    // As after an import: others have put them there.
    let store = world.engine.store();
    for row in store.snapshots(session, 100).await.unwrap() {
        let id = row.snapshot.captured.id;
        store.lost_snapshot(session, id, Place::Local).await.unwrap();
        store.found_snapshot(session, id, Place::Cloud).await.unwrap();
    }
    store.use_cloud("another", "file:///another", "nobody").await.unwrap();
    for _ in 0..3 {
        let refused = world.engine.resume(&tenant(), session, RequireState::No).await;
        assert!(refused.is_err(), "{refused:?}");
    }
    kept.bring_back(&mut world, &bucket).await;
    let back = world.engine.resume(&tenant(), session, RequireState::No).await.unwrap();
    assert_eq!(back.receipt.unwrap().workspace, Workspace::Restored);
    world.end().await;
}

#[tokio::test]
async fn what_is_captured_after_damage_was_found_in_the_cloud_is_whole_there() {
    let bucket = Bucket::new();
    let mut world = served(&bucket).await;
    let session = world.stopped().await;
    world.captured(session).await;
    world.in_cloud(session).await;
    let lose = |world: &World| {
        for gone in ["data/snapshots/default".to_owned(), format!("data/sandboxes/{session}")] {
            fs::remove_dir_all(world.dir.join(gone)).unwrap();
        }
    };
    lose(&world);
    each_pack(&bucket.place("repository"), flip);
    world.kill_engine().await;
    // As much as there is will do; so it is found out.
    world.engine.resume(&tenant(), session, RequireState::Never).await.unwrap();
    world.say(session, "/bash printf two >b.txt").await;
    world.engine.stop(&tenant(), session).await.unwrap();
    world.until_it(session, |it| it.is_at_rest() && it.status() == Status::Stopped).await;
    let last = world.captured(session).await.captured.id;
    world.until_placed(session, last, Places { local: true, cloud: true }).await;
    lose(&world);
    world.kill_engine().await;
    let back = world.engine.resume(&tenant(), session, RequireState::Yes).await.unwrap();
    let receipt = back.receipt.unwrap();
    let from = receipt.snapshot.unwrap();
    assert_eq!((receipt.source, from.id, from.left_out), (Some(Source::Cloud), last, 0));
    world.end().await;
}
