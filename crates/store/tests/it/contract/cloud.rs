//! Where snapshots lie, and which are not in the cloud yet.

use ash_core::number::Seq;
use ash_store::{Place, Places, Store, StoreError};

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
    store.place_snapshot(session, id, Places { local: false, cloud: true }).await.unwrap();
    store.found_snapshot(session, id, Place::Cloud).await.unwrap();
    assert_eq!(places().await, Places { local: false, cloud: true });
    store.found_snapshot(session, id, Place::Local).await.unwrap();
    assert_eq!(places().await, Places { local: true, cloud: true });
    let none = store.found_snapshot(session, snapshot(9, 1).captured.id, Place::Cloud).await;
    assert!(matches!(none, Err(StoreError::NotFound("snapshot"))), "{none:?}");
}

pub(super) async fn how_far_the_cloud_is_behind_can_be_told(store: &dyn Store) {
    let mut live = begin(store).await;
    let session = live.id();
    assert_eq!(store.cloud_lag().await.unwrap(), 0);
    assert_eq!(store.lagging_sessions(None, 10).await.unwrap(), []);
    let all = vec![snapshot(1, 1), snapshot(2, 5), snapshot(3, 9)];
    record(store, &mut live, all).await.unwrap();
    let asked = [session, session_id(99)];
    assert_eq!(store.cloud_lag().await.unwrap(), 3);
    assert!(store.cloud_seqs(&asked).await.unwrap().is_empty());
    assert_eq!(store.lagging_sessions(None, 10).await.unwrap(), [session]);
    assert_eq!(store.lagging_sessions(Some(session), 10).await.unwrap(), []);
    // The newest goes first when there is much.
    store.found_snapshot(session, snapshot(2, 5).captured.id, Place::Cloud).await.unwrap();
    assert_eq!(store.cloud_seqs(&asked).await.unwrap(), [(session, Seq::new(5))].into());
    assert_eq!(store.cloud_lag().await.unwrap(), 2);
    for number in [1, 3] {
        let id = snapshot(number, 1).captured.id;
        store.found_snapshot(session, id, Place::Cloud).await.unwrap();
    }
    assert_eq!(store.cloud_seqs(&asked).await.unwrap(), [(session, Seq::new(9))].into());
    assert_eq!(store.cloud_lag().await.unwrap(), 0);
    assert_eq!(store.lagging_sessions(None, 10).await.unwrap(), []);
}
