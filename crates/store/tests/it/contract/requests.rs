//! Receipts of requests, and the outbox.

use std::time::Duration;

use ash_store::{MAX_OUTBOX_WAIT, OutboxItem, OutboxTask, ReceiptKey, Store};

use crate::support::{
    Conversation, at, deploy, outbox_id, receipt, refusal, session_id, task, them, us,
};

/// Session 10 with these tasks in its outbox.
async fn with_tasks(store: &dyn Store, tasks: Vec<OutboxItem>) {
    deploy(store, 1).await;
    let mut conversation = Conversation::begin(store, 10).await;
    let mut commit = conversation.started();
    commit.outbox = tasks;
    store.commit(&commit).await.unwrap();
}

pub(super) async fn a_receipt_comes_back_as_it_was_written(store: &dyn Store) {
    deploy(store, 1).await;
    let mut conversation = Conversation::begin(store, 10).await;
    let mut commit = conversation.started();
    commit.receipt = Some(receipt("key", 5));
    store.commit(&commit).await.unwrap();
    let found = store.receipt(&receipt("key", 5).key).await.unwrap();
    assert_eq!(found, Some(receipt("key", 5)));
}

pub(super) async fn a_receipt_is_another_one_for_another_tenant_route_or_key(store: &dyn Store) {
    deploy(store, 1).await;
    let mut conversation = Conversation::begin(store, 10).await;
    let mut commit = conversation.started();
    commit.receipt = Some(receipt("key", 5));
    store.commit(&commit).await.unwrap();
    let key = receipt("key", 5).key;
    for other in [
        ReceiptKey { tenant: them(), ..key.clone() },
        ReceiptKey { route: "POST /end".to_owned(), ..key.clone() },
        ReceiptKey { key: "KEY".to_owned(), ..key.clone() },
    ] {
        assert_eq!(store.receipt(&other).await.unwrap(), None, "{other:?}");
    }
}

pub(super) async fn a_new_session_can_leave_a_receipt(store: &dyn Store) {
    deploy(store, 1).await;
    let (_, mut new) = Conversation::draft(10);
    new.receipt = Some(receipt("created", 5));
    store.create_session(&new).await.unwrap();
    let found = store.receipt(&receipt("created", 5).key).await.unwrap();
    assert_eq!(found, new.receipt);
}

pub(super) async fn old_receipts_are_forgotten(store: &dyn Store) {
    deploy(store, 1).await;
    let mut conversation = Conversation::active(store, 10).await;
    for moment in [1, 2, 3] {
        let mut commit = conversation.prompt(moment, "hello");
        commit.receipt = Some(receipt(&format!("key {moment}"), moment));
        store.commit(&commit).await.unwrap();
    }
    assert_eq!(store.purge_receipts(at(3)).await.unwrap(), 2);
    assert_eq!(store.purge_receipts(at(3)).await.unwrap(), 0);
    assert_eq!(store.receipt(&receipt("key 2", 2).key).await.unwrap(), None);
    let kept = store.receipt(&receipt("key 3", 3).key).await.unwrap();
    assert_eq!(kept, Some(receipt("key 3", 3)));
    assert_eq!(store.session(&us(), session_id(10)).await.unwrap().session, conversation.session);
}

pub(super) async fn a_task_is_taken_when_it_is_ready(store: &dyn Store) {
    with_tasks(store, vec![task(1, "upload", 100)]).await;
    assert_eq!(store.claim_outbox("upload", at(99), at(500), 9).await.unwrap(), []);
    let taken = store.claim_outbox("upload", at(100), at(500), 9).await.unwrap();
    assert_eq!(taken, [OutboxTask { item: task(1, "upload", 100), attempt: 1 }]);
}

pub(super) async fn a_taken_task_is_leased(store: &dyn Store) {
    with_tasks(store, vec![task(1, "upload", 100)]).await;
    store.claim_outbox("upload", at(100), at(500), 9).await.unwrap();
    assert_eq!(store.claim_outbox("upload", at(499), at(900), 9).await.unwrap(), []);
}

pub(super) async fn a_task_whose_lease_passed_is_taken_again(store: &dyn Store) {
    with_tasks(store, vec![task(1, "upload", 100)]).await;
    store.claim_outbox("upload", at(100), at(500), 9).await.unwrap();
    let again = store.claim_outbox("upload", at(500), at(900), 9).await.unwrap();
    assert_eq!(again, [OutboxTask { item: task(1, "upload", 100), attempt: 2 }]);
}

pub(super) async fn what_was_taken_or_put_back_can_be_made_ready(store: &dyn Store) {
    let tasks = vec![task(1, "upload", 100), task(2, "upload", 900), task(3, "other", 100)];
    with_tasks(store, tasks).await;
    store.claim_outbox("upload", at(100), at(500), 9).await.unwrap();
    store.claim_outbox("other", at(100), at(500), 9).await.unwrap();
    assert_eq!(store.release_outbox("upload", at(200)).await.unwrap(), 1);
    let again = store.claim_outbox("upload", at(200), at(500), 9).await.unwrap();
    assert_eq!(again, [OutboxTask { item: task(1, "upload", 100), attempt: 2 }], "not before time");
    assert_eq!(store.claim_outbox("other", at(200), at(500), 9).await.unwrap(), []);
    store.retry_outbox(outbox_id(1), 2, at(800)).await.unwrap();
    assert_eq!(store.release_outbox("upload", at(300)).await.unwrap(), 1);
    assert_eq!(store.claim_outbox("upload", at(300), at(500), 9).await.unwrap().len(), 1);
}

pub(super) async fn only_the_latest_attempt_finishes_a_task(store: &dyn Store) {
    with_tasks(store, vec![task(1, "upload", 100)]).await;
    let missing = r#"NotFound("outbox task")"#;
    assert_eq!(refusal(store.finish_outbox(outbox_id(1), 1).await), missing);
    store.claim_outbox("upload", at(100), at(500), 9).await.unwrap();
    store.claim_outbox("upload", at(500), at(900), 9).await.unwrap();
    assert_eq!(refusal(store.finish_outbox(outbox_id(1), 1).await), missing);
    store.finish_outbox(outbox_id(1), 2).await.unwrap();
    assert_eq!(refusal(store.finish_outbox(outbox_id(1), 2).await), missing);
    assert_eq!(store.claim_outbox("upload", at(9999), at(9999), 9).await.unwrap(), []);
}

pub(super) async fn only_the_latest_attempt_puts_a_task_back(store: &dyn Store) {
    with_tasks(store, vec![task(1, "upload", 100)]).await;
    store.claim_outbox("upload", at(100), at(500), 9).await.unwrap();
    store.claim_outbox("upload", at(500), at(900), 9).await.unwrap();
    let stale = store.retry_outbox(outbox_id(1), 1, at(501)).await;
    assert_eq!(refusal(stale), r#"NotFound("outbox task")"#);
    assert_eq!(store.claim_outbox("upload", at(600), at(900), 9).await.unwrap(), []);
    store.retry_outbox(outbox_id(1), 2, at(600)).await.unwrap();
    let again = store.claim_outbox("upload", at(600), at(900), 9).await.unwrap();
    assert_eq!(again, [OutboxTask { item: task(1, "upload", 100), attempt: 3 }]);
}

pub(super) async fn tasks_are_taken_by_topic_in_order_up_to_a_limit(store: &dyn Store) {
    let tasks = vec![
        task(1, "upload", 300),
        task(2, "notify", 1),
        task(4, "upload", 100),
        task(3, "upload", 100),
        task(5, "upload", 200),
    ];
    with_tasks(store, tasks).await;
    let ids = |taken: Vec<OutboxTask>| taken.into_iter().map(|t| t.item.id).collect::<Vec<_>>();
    let first = store.claim_outbox("upload", at(1000), at(2000), 3).await.unwrap();
    assert_eq!(ids(first), [outbox_id(3), outbox_id(4), outbox_id(5)]);
    let rest = store.claim_outbox("upload", at(1000), at(2000), 3).await.unwrap();
    assert_eq!(ids(rest), [outbox_id(1)]);
}

pub(super) async fn a_task_that_another_clock_put_back_is_not_waited_for(store: &dyn Store) {
    with_tasks(store, vec![task(1, "upload", 100), task(2, "upload", 200)]).await;
    let day = at(0).plus(MAX_OUTBOX_WAIT);
    store.claim_outbox("upload", at(100), at(100), 9).await.unwrap();
    store.retry_outbox(outbox_id(1), 1, day).await.unwrap();
    assert_eq!(store.claim_outbox("upload", at(0), at(1), 9).await.unwrap(), []);
    store.retry_outbox(outbox_id(1), 1, day.plus(Duration::from_millis(1))).await.unwrap();
    let taken = store.claim_outbox("upload", at(0), at(1), 9).await.unwrap();
    assert_eq!(taken, [OutboxTask { item: task(1, "upload", 100), attempt: 2 }]);
}
