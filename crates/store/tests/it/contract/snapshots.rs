//! Snapshots of sessions: recorded with a decision, kept in order, and placed.

use ash_core::id::SnapshotId;
use ash_core::number::{Seq, Turn};
use ash_core::resume::{FilesLost, Transcript};
use ash_core::session::Fact;
use ash_core::snapshot::{Captured, Snapshot};
use ash_store::{Commit, Place, Places, Store, StoreError};

use crate::support::{Conversation, at, deploy, session_id};

pub(super) fn snapshot(number: u8, seq: u64) -> Snapshot {
    let captured = Captured {
        id: SnapshotId::from_parts(at(number.into()), [number; 10]),
        files: 3,
        bytes: u64::MAX,
        new_bytes: 10,
        unfrozen: 1,
        unstable: 0,
        unproven: false,
    };
    Snapshot {
        captured,
        seq: Seq::new(seq),
        turn: Turn::new(2),
        through: Some(Seq::new(seq)),
        at: at(123),
        transcript: Some(Transcript { bytes: 5, blake3: "ab".repeat(32), turns: 2 }),
        completed_runs: 2,
        lost: Some(FilesLost::Outdated),
    }
}

pub(super) async fn begin(store: &dyn Store) -> Conversation {
    deploy(store, 1).await;
    Conversation::active(store, 10).await
}

pub(super) async fn record(
    store: &dyn Store,
    conversation: &mut Conversation,
    snapshots: Vec<Snapshot>,
) -> Result<(), StoreError> {
    let commit = conversation.observe(Fact::TimePassed);
    store.commit(&Commit { snapshots, ..commit }).await
}

pub(super) async fn a_snapshot_is_recorded_with_its_decision(store: &dyn Store) {
    let mut live = begin(store).await;
    let first = snapshot(1, 1);
    record(store, &mut live, vec![first.clone()]).await.unwrap();
    let found = store.snapshot(live.id(), first.captured.id).await.unwrap();
    assert_eq!(found.snapshot, first);
    assert_eq!(found.places, Places { local: true, cloud: false });
    let twice = record(store, &mut live, vec![snapshot(2, 1), first.clone()]).await;
    assert!(matches!(twice, Err(StoreError::Exists("snapshot"))), "{twice:?}");
    assert_eq!(store.snapshots(live.id(), 10).await.unwrap(), [found], "nothing of it happened");
}

pub(super) async fn snapshots_are_listed_newest_first(store: &dyn Store) {
    let mut live = begin(store).await;
    assert_eq!(store.snapshots(live.id(), 10).await.unwrap(), []);
    let all = vec![snapshot(5, 1), snapshot(3, 9), snapshot(4, 9), snapshot(1, 4)];
    record(store, &mut live, all).await.unwrap();
    let listed = store.snapshots(live.id(), 3).await.unwrap();
    let ids: Vec<SnapshotId> = listed.iter().map(|found| found.snapshot.captured.id).collect();
    assert_eq!(ids, [4, 3, 1].map(|number| snapshot(number, 0).captured.id));
    assert!(matches!(
        store.snapshots(session_id(99), 3).await,
        Err(StoreError::NotFound("session"))
    ));
}

pub(super) async fn where_a_snapshot_lies_is_noted_until_it_is_forgotten(store: &dyn Store) {
    let mut live = begin(store).await;
    let first = snapshot(1, 1);
    record(store, &mut live, vec![first.clone()]).await.unwrap();
    let (id, places) = (first.captured.id, Places { local: false, cloud: true });
    store.found_snapshot(live.id(), id, Place::Cloud).await.unwrap();
    store.lost_snapshot(live.id(), id, Place::Local).await.unwrap();
    assert_eq!(store.snapshot(live.id(), id).await.unwrap().places, places);
    store.forget_snapshot(live.id(), id).await.unwrap();
    for gone in [
        store.snapshot(live.id(), id).await.map(drop),
        store.lost_snapshot(live.id(), id, Place::Local).await,
        store.found_snapshot(live.id(), id, Place::Cloud).await,
        store.forget_snapshot(live.id(), id).await,
    ] {
        assert!(matches!(gone, Err(StoreError::NotFound("snapshot"))), "{gone:?}");
    }
}
