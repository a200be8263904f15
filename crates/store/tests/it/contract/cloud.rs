//! Where snapshots lie, and which are not in the cloud yet.

use ash_core::number::{LogEpoch, Seq};
use ash_store::{CloudHead, CloudUse, Place, Places, Store, StoreError, UsedCloud};

use super::snapshots::{begin, record, snapshot};
use crate::support::session_id;

pub(super) async fn a_place_is_noted_beside_the_other(store: &dyn Store) {
    let mut live = begin(store).await;
    let first = snapshot(1, 1);
    record(store, &mut live, vec![first.clone()]).await.unwrap();
    let (session, id) = (live.id(), first.captured.id);
    let places = async || store.snapshot(session, id).await.unwrap().places;
    store.found_snapshot(session, id, Place::Cloud).await.unwrap();
    assert_eq!(places().await, Places { local: true, cloud: true });
    store.lost_snapshot(session, id, Place::Local).await.unwrap();
    assert_eq!(places().await, Places { local: false, cloud: true });
    store.found_snapshot(session, id, Place::Cloud).await.unwrap();
    assert_eq!(places().await, Places { local: false, cloud: true });
    store.found_snapshot(session, id, Place::Local).await.unwrap();
    assert_eq!(places().await, Places { local: true, cloud: true });
    store.lost_snapshot(session, id, Place::Cloud).await.unwrap();
    assert_eq!(places().await, Places { local: true, cloud: false });
    let none = store.found_snapshot(session, snapshot(9, 1).captured.id, Place::Cloud).await;
    assert!(matches!(none, Err(StoreError::NotFound("snapshot"))), "{none:?}");
}

fn head(number: u8, seq: u64) -> CloudHead {
    CloudHead {
        epoch: LogEpoch::new(1),
        seq: Seq::new(seq + 1),
        snapshot: snapshot(number, seq).captured.id,
        snapshot_seq: Seq::new(seq),
        settings: "as they are".to_owned(),
        record: "as it is".to_owned(),
        status: Some("paused".to_owned()),
    }
}

pub(super) async fn how_far_the_cloud_is_behind_can_be_told(store: &dyn Store) {
    let mut live = begin(store).await;
    let session = live.id();
    assert_eq!(store.cloud_lag().await.unwrap(), 0);
    assert_eq!(store.lagging_sessions(None, 10).await.unwrap(), []);
    record(store, &mut live, vec![snapshot(1, 1), snapshot(2, 5)]).await.unwrap();
    assert_eq!(store.cloud_lag().await.unwrap(), 2);
    assert_eq!(store.lagging_sessions(None, 10).await.unwrap(), [session]);
    assert_eq!(store.lagging_sessions(Some(session), 10).await.unwrap(), []);
    let found = async |number, seq| {
        let id = snapshot(number, seq).captured.id;
        store.found_snapshot(session, id, Place::Cloud).await.unwrap();
    };
    found(2, 5).await;
    assert_eq!(store.cloud_lag().await.unwrap(), 1);
    found(1, 1).await;
    assert_eq!(store.cloud_lag().await.unwrap(), 0);
    // Nobody who has only the cloud would know of it.
    assert_eq!(store.lagging_sessions(None, 10).await.unwrap(), [session]);
    store.put_cloud_head(session, &head(2, 5)).await.unwrap();
    assert_eq!(store.lagging_sessions(None, 10).await.unwrap(), []);
}

pub(super) async fn the_latest_head_of_a_session_is_noted(store: &dyn Store) {
    let mut live = begin(store).await;
    let session = live.id();
    let asked = [session, session_id(99)];
    assert!(store.cloud_heads(&asked).await.unwrap().is_empty());
    record(store, &mut live, vec![snapshot(1, 1)]).await.unwrap();
    store.put_cloud_head(session, &head(1, 1)).await.unwrap();
    assert_eq!(store.cloud_heads(&asked).await.unwrap(), [(session, head(1, 1))].into());
    // A session that went back has less.
    store.put_cloud_head(session, &head(1, 0)).await.unwrap();
    assert_eq!(store.cloud_heads(&asked).await.unwrap(), [(session, head(1, 0))].into());
    let none = store.put_cloud_head(session_id(99), &head(1, 1)).await;
    assert!(matches!(none, Err(StoreError::NotFound("session"))), "{none:?}");
}

pub(super) async fn in_another_cloud_there_is_nothing_yet(store: &dyn Store) {
    let mut live = begin(store).await;
    let session = live.id();
    let first = snapshot(1, 1);
    record(store, &mut live, vec![first.clone()]).await.unwrap();
    let used = async |bucket, writer| {
        let url = format!("s3://{bucket}");
        let CloudUse { writer, is_new } = store.use_cloud(bucket, &url, writer).await.unwrap();
        let used = UsedCloud { bucket: bucket.to_owned(), url: Some(url) };
        assert_eq!(store.used_cloud().await.unwrap(), Some(used));
        (writer, is_new)
    };
    assert_eq!(store.used_cloud().await.unwrap(), None);
    assert_eq!(used("one", "me").await, ("me".to_owned(), true));
    store.found_snapshot(session, first.captured.id, Place::Cloud).await.unwrap();
    store.put_cloud_head(session, &head(1, 1)).await.unwrap();
    assert_eq!(used("one", "somebody else").await, ("me".to_owned(), false));
    assert_eq!(store.lagging_sessions(None, 10).await.unwrap(), []);
    // The same one, elsewhere.
    let moved = store.use_cloud("one", "s3://moved", "me").await.unwrap();
    assert_eq!((moved.writer.as_str(), moved.is_new), ("me", false));
    let used_now = store.used_cloud().await.unwrap().unwrap();
    assert_eq!(used_now.url.as_deref(), Some("s3://moved"));
    assert_eq!(used("two", "me").await, ("me".to_owned(), true));
    assert_eq!(store.cloud_lag().await.unwrap(), 1);
    assert!(store.cloud_heads(&[session]).await.unwrap().is_empty());
    let places = store.snapshot(session, first.captured.id).await.unwrap().places;
    assert_eq!(places, Places { local: true, cloud: false });
    // What was in the other one alone is still said to be elsewhere: it is not taken for lost.
    let elsewhere = Places { local: false, cloud: true };
    store.found_snapshot(session, first.captured.id, Place::Cloud).await.unwrap();
    store.lost_snapshot(session, first.captured.id, Place::Local).await.unwrap();
    assert_eq!(used("three", "me").await, ("me".to_owned(), true));
    let places = store.snapshot(session, first.captured.id).await.unwrap().places;
    assert_eq!(places, elsewhere);
    // Nor is what was found damaged there, and is nowhere else.
    store.put_cloud_head(session, &head(1, 1)).await.unwrap();
    store.lost_snapshot(session, first.captured.id, Place::Cloud).await.unwrap();
    assert_eq!(used("four", "me").await, ("me".to_owned(), true));
    let places = store.snapshot(session, first.captured.id).await.unwrap().places;
    assert_eq!(places, elsewhere);
}
