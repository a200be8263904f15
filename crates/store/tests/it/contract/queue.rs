//! The queue: what is taken when, by whom, and what comes of it.

use ash_core::id::{QueueItemId, SessionId};
use ash_core::resume::IfLost;
use ash_core::session::{IfRunning, Request};
use ash_core::time::Timestamp;
use ash_store::{
    Commit, MAX_QUEUE_WAIT, NewQueueItem, QUEUE_ROUTE, QueueError, QueueItem, QueueOutcome,
    QueueStatus, QueueTask, Receipt, Store, Withdrawal,
};

use crate::support::{
    Conversation, add_them, at, deploy, name, queue_id, receipt, refusal, run_id, session_id, them,
    us,
};

const MISSING: &str = r#"NotFound("queue item")"#;

fn new(number: i64, priority: u32) -> NewQueueItem {
    NewQueueItem {
        id: queue_id(number),
        tenant: us(),
        agent_name: name("agent-1"),
        session: None,
        prompt: format!("prompt {number}"),
        priority,
        max_retries: 3,
        created_at: at(number),
    }
}

async fn add(store: &dyn Store, number: i64, priority: u32) {
    store.create_queue_item(&new(number, priority), None).await.unwrap();
}

async fn add_to(store: &dyn Store, number: i64, session: SessionId) {
    let item = NewQueueItem { session: Some(session), ..new(number, 0) };
    store.create_queue_item(&item, None).await.unwrap();
}

async fn take(store: &dyn Store, now: i64, until: i64) -> Option<QueueTask> {
    store.claim_queue_item(at(now), at(until)).await.unwrap()
}

fn which(task: &Option<QueueTask>) -> Option<QueueItemId> {
    task.as_ref().map(|task| task.item.new.id)
}

async fn look(store: &dyn Store, number: i64) -> QueueItem {
    store.queue_item(&us(), queue_id(number)).await.unwrap()
}

fn boom() -> QueueError {
    QueueError { code: "sandbox_died".to_owned(), message: "boom".to_owned() }
}

fn done() -> QueueOutcome {
    let (stop_reason, result) = ("end_turn".to_owned(), Some("well".to_owned()));
    QueueOutcome::Completed { stop_reason, result }
}

pub(super) async fn an_item_comes_back_as_it_was_added(store: &dyn Store) {
    add_to(store, 1, session_id(5)).await;
    let item = look(store, 1).await;
    assert_eq!(item.new, NewQueueItem { session: Some(session_id(5)), ..new(1, 0) });
    assert_eq!((item.status, item.retry_count), (QueueStatus::Pending, 0));
    assert_eq!((item.run, item.result, item.error), (None, None, None));
    assert_eq!((item.started_at, item.completed_at), (None, None));
    let again = store.create_queue_item(&new(1, 0), None).await;
    assert_eq!(refusal(again), r#"Exists("queue item")"#);
    let foreign = NewQueueItem { tenant: them(), ..new(2, 0) };
    assert_eq!(refusal(store.create_queue_item(&foreign, None).await), r#"NotFound("tenant")"#);
}

pub(super) async fn an_item_can_leave_a_receipt(store: &dyn Store) {
    let kept = receipt("added", 5);
    store.create_queue_item(&new(1, 0), Some(&kept)).await.unwrap();
    assert_eq!(store.receipt(&kept.key).await.unwrap(), Some(kept.clone()));
    let second = store.create_queue_item(&new(2, 0), Some(&kept)).await;
    assert_eq!(refusal(second), r#"Exists("receipt")"#);
    assert_eq!(refusal(store.queue_item(&us(), queue_id(2)).await), MISSING);
}

pub(super) async fn another_tenants_item_does_not_exist(store: &dyn Store) {
    add_them(store).await;
    add(store, 1, 0).await;
    assert_eq!(refusal(store.queue_item(&them(), queue_id(1)).await), MISSING);
    let withdrawn = store.withdraw_queue_item(&them(), queue_id(1), at(2)).await;
    assert_eq!(refusal(withdrawn), MISSING);
    assert_eq!(store.queue_items(&them(), None, None, 9).await.unwrap(), []);
    assert_eq!(store.queue_counts(&them()).await.unwrap().open(), 0);
    assert_eq!(look(store, 1).await.status, QueueStatus::Pending);
}

pub(super) async fn items_are_listed_newest_first_and_counted(store: &dyn Store) {
    for number in 1..=4 {
        add(store, number, 0).await;
    }
    store.withdraw_queue_item(&us(), queue_id(2), at(9)).await.unwrap();
    let list = async |status, after, limit| {
        let found = store.queue_items(&us(), status, after, limit).await.unwrap();
        found.iter().map(|item| item.new.id).collect::<Vec<_>>()
    };
    let all = [4, 3, 2, 1].map(queue_id);
    assert_eq!(list(None, None, 9).await, all);
    assert_eq!(list(None, None, 2).await, all[..2]);
    assert_eq!(list(None, Some(queue_id(3)), 9).await, all[2..]);
    assert_eq!(list(Some(QueueStatus::Cancelled), None, 9).await, [queue_id(2)]);
    assert_eq!(list(Some(QueueStatus::Pending), Some(queue_id(3)), 9).await, [queue_id(1)]);
    take(store, 10, 99).await.unwrap();
    let counts = store.queue_counts(&us()).await.unwrap();
    assert_eq!((counts.pending, counts.processing, counts.cancelled), (2, 1, 1));
    assert_eq!((counts.completed, counts.failed, counts.open()), (0, 0, 3));
}

pub(super) async fn items_are_taken_by_priority_then_by_age(store: &dyn Store) {
    for (number, priority) in [(1, 0), (2, 5), (3, 0), (4, 5)] {
        add(store, number, priority).await;
    }
    let mut order = Vec::new();
    while let Some(task) = take(store, 10, 99).await {
        assert_eq!((task.lease, task.item.status), (1, QueueStatus::Processing));
        assert_eq!(task.item.started_at, Some(at(10)));
        assert_eq!(store.queue_item(&us(), task.item.new.id).await.unwrap(), task.item);
        order.push(task.item.new.id);
    }
    assert_eq!(order, [2, 4, 1, 3].map(queue_id));
}

pub(super) async fn an_item_is_leased_and_taken_again_when_its_lease_passed(store: &dyn Store) {
    add(store, 1, 0).await;
    assert_eq!(take(store, 10, 20).await.unwrap().lease, 1);
    assert_eq!(which(&take(store, 19, 99).await), None);
    store.hold_queue_item(queue_id(1), 1, at(30)).await.unwrap();
    assert_eq!(which(&take(store, 20, 99).await), None);
    assert_eq!(store.next_queue_item().await.unwrap(), Some(at(30)));
    let again = take(store, 30, 99).await.unwrap();
    assert_eq!((again.lease, again.item.started_at), (2, Some(at(10))));
    assert_eq!(again.item.retry_count, 0, "nothing failed");
}

pub(super) async fn what_was_taken_can_be_released(store: &dyn Store) {
    add(store, 1, 0).await;
    add(store, 2, 0).await;
    take(store, 10, 1000).await.unwrap();
    assert_eq!(store.release_queue_items(at(11)).await.unwrap(), 1);
    let again = take(store, 11, 1000).await.unwrap();
    assert_eq!((again.item.new.id, again.lease), (queue_id(1), 2));
}

pub(super) async fn only_the_latest_taker_writes(store: &dyn Store) {
    add(store, 1, 0).await;
    take(store, 10, 20).await.unwrap();
    take(store, 20, 30).await.unwrap();
    let id = queue_id(1);
    for lease in [0, 1, 3] {
        assert_eq!(refusal(store.hold_queue_item(id, lease, at(99)).await), MISSING);
        assert_eq!(refusal(store.note_queue_item(id, lease, session_id(1), None).await), MISSING);
        assert_eq!(refusal(store.settle_queue_item(id, lease, &done(), at(9)).await), MISSING);
    }
    store.note_queue_item(id, 2, session_id(1), Some(run_id(7))).await.unwrap();
    store.settle_queue_item(id, 2, &done(), at(25)).await.unwrap();
    let item = look(store, 1).await;
    assert_eq!((item.status, item.completed_at), (QueueStatus::Completed, Some(at(25))));
    assert_eq!((item.new.session, item.run), (Some(session_id(1)), Some(run_id(7))));
    assert_eq!(
        (item.result.as_deref(), item.stop_reason.as_deref()),
        (Some("well"), Some("end_turn"))
    );
    for outcome in [done(), QueueOutcome::Cancelled, QueueOutcome::Failed(boom())] {
        assert_eq!(refusal(store.settle_queue_item(id, 2, &outcome, at(26)).await), MISSING);
    }
    assert_eq!(which(&take(store, 999, 9999).await), None, "what is over is not taken");
    assert_eq!(store.next_queue_item().await.unwrap(), None);
}

pub(super) async fn a_failed_attempt_is_made_again_in_the_same_session(store: &dyn Store) {
    add(store, 1, 0).await;
    take(store, 10, 20).await.unwrap();
    let id = queue_id(1);
    store.note_queue_item(id, 1, session_id(1), Some(run_id(7))).await.unwrap();
    let first = look(store, 1).await;
    let retry = QueueOutcome::Retry(boom(), at(50));
    store.settle_queue_item(id, 1, &retry, at(15)).await.unwrap();
    let item = look(store, 1).await;
    assert_eq!((item.status, item.retry_count), (QueueStatus::Pending, 1));
    assert_eq!((item.new.session, item.run), (Some(session_id(1)), None));
    assert_eq!((item.error.clone(), item.completed_at), (Some(boom()), None));
    assert_eq!(which(&take(store, 49, 99).await), None);
    assert_eq!(store.next_queue_item().await.unwrap(), Some(at(50)));
    assert_eq!(take(store, 50, 99).await.unwrap().lease, 2);
    assert_ne!(first.key("prompt"), item.key("prompt"), "it is another attempt");
    assert_eq!(first.lasting_key("session"), item.lasting_key("session"));
    store.settle_queue_item(id, 2, &QueueOutcome::Failed(boom()), at(60)).await.unwrap();
    let item = look(store, 1).await;
    assert_eq!((item.status, item.retry_count), (QueueStatus::Failed, 1));
    assert_eq!((item.error, item.completed_at), (Some(boom()), Some(at(60))));
}

pub(super) async fn of_one_session_one_item_is_taken_at_a_time(store: &dyn Store) {
    add_to(store, 1, session_id(5)).await;
    add_to(store, 2, session_id(5)).await;
    add_to(store, 3, session_id(6)).await;
    assert_eq!(which(&take(store, 10, 20).await), Some(queue_id(1)));
    assert_eq!(which(&take(store, 10, 20).await), Some(queue_id(3)));
    assert_eq!(which(&take(store, 10, 20).await), None);
    // Whoever had it is gone: it comes first, and the other one still waits.
    assert_eq!(which(&take(store, 20, 30).await), Some(queue_id(1)));
    store.settle_queue_item(queue_id(1), 2, &done(), at(21)).await.unwrap();
    // Its session is free: the oldest that can be taken is next.
    assert_eq!(which(&take(store, 21, 30).await), Some(queue_id(2)));
    assert_eq!(which(&take(store, 21, 30).await), Some(queue_id(3)));
}

pub(super) async fn what_waits_for_a_session_at_rest_is_left_alone(store: &dyn Store) {
    deploy(store, 1).await;
    let mut conversation = Conversation::active(store, 5).await;
    let begun = conversation.id();
    add_to(store, 1, begun).await;
    let first = take(store, 10, 20).await.unwrap();
    add_to(store, 2, begun).await;
    let commit = async |commit: Commit| store.commit(&commit).await.unwrap();
    commit(conversation.request(Request::Pause { if_running: IfRunning::Freeze })).await;
    // Whoever has it finds out, and puts it back: nothing was tried.
    let put_back = QueueOutcome::PutBack(at(12));
    assert_eq!(refusal(store.settle_queue_item(queue_id(1), 9, &put_back, at(11)).await), MISSING);
    store.settle_queue_item(queue_id(1), first.lease, &put_back, at(11)).await.unwrap();
    let item = look(store, 1).await;
    assert_eq!((item.status, item.retry_count), (QueueStatus::Pending, 0));
    assert_eq!((item.error, item.completed_at), (None, None));
    assert_eq!(which(&take(store, 30, 40).await), None);
    commit(conversation.request(Request::Resume(IfLost::default().into()))).await;
    assert_eq!(which(&take(store, 11, 40).await), Some(queue_id(2)), "the first was put off");
    // One that is worked on stays with whoever takes it over, at rest or not.
    commit(conversation.request(Request::Stop)).await;
    assert_eq!(which(&take(store, 40, 50).await), Some(queue_id(2)));
    store.settle_queue_item(queue_id(2), 2, &done(), at(41)).await.unwrap();
    assert_eq!(which(&take(store, 50, 60).await), None, "a stopped one rests too");
    commit(conversation.request(Request::End)).await;
    assert_eq!(which(&take(store, 50, 60).await), Some(queue_id(1)), "it has to be told");
}

pub(super) async fn only_what_waits_is_withdrawn(store: &dyn Store) {
    add(store, 1, 0).await;
    add(store, 2, 0).await;
    let withdraw = async |number| store.withdraw_queue_item(&us(), queue_id(number), at(9)).await;
    let Withdrawal::Done(item) = withdraw(2).await.unwrap() else { panic!("it waits") };
    assert_eq!((item.status, item.completed_at), (QueueStatus::Cancelled, Some(at(9))));
    assert_eq!(look(store, 2).await, item);
    assert_eq!(withdraw(2).await.unwrap(), Withdrawal::TooLate(item));
    take(store, 10, 20).await.unwrap();
    let taken = look(store, 1).await;
    assert_eq!(withdraw(1).await.unwrap(), Withdrawal::TooLate(taken));
    let retry = QueueOutcome::Retry(boom(), at(50));
    store.settle_queue_item(queue_id(1), 1, &retry, at(15)).await.unwrap();
    assert!(matches!(withdraw(1).await.unwrap(), Withdrawal::Done(_)), "it waits again");
    assert_eq!(which(&take(store, 999, 9999).await), None);
    assert_eq!(refusal(withdraw(3).await), MISSING);
}

pub(super) async fn an_item_that_another_clock_put_back_is_not_waited_for(store: &dyn Store) {
    add(store, 1, 0).await;
    take(store, 10, 20).await.unwrap();
    let far = |now: Timestamp| now.plus(MAX_QUEUE_WAIT);
    let retry = QueueOutcome::Retry(boom(), far(at(1)));
    store.settle_queue_item(queue_id(1), 1, &retry, at(15)).await.unwrap();
    assert_eq!(which(&take(store, 1, 2).await), None);
    assert_eq!(which(&take(store, 0, 2).await), Some(queue_id(1)));
}

pub(super) async fn items_that_are_over_are_forgotten_in_time(store: &dyn Store) {
    for number in 1..=3 {
        add(store, number, 0).await;
    }
    store.withdraw_queue_item(&us(), queue_id(1), at(10)).await.unwrap();
    store.withdraw_queue_item(&us(), queue_id(2), at(20)).await.unwrap();
    assert_eq!(store.purge_queue_items(at(20)).await.unwrap(), 1);
    assert_eq!(refusal(store.queue_item(&us(), queue_id(1)).await), MISSING);
    assert_eq!(store.purge_queue_items(at(i64::MAX)).await.unwrap(), 1);
    assert_eq!(look(store, 3).await.status, QueueStatus::Pending);
}

pub(super) async fn receipts_of_an_item_stay_until_it_is_over(store: &dyn Store) {
    deploy(store, 1).await;
    add(store, 1, 0).await;
    let item = take(store, 10, 20).await.unwrap().item;
    let mut conversation = Conversation::active(store, 10).await;
    let key = item.key("prompt");
    assert_eq!(key.route, QUEUE_ROUTE);
    for (run, receipt) in
        [(1, Receipt { key: key.clone(), ..receipt("x", 1) }), (2, receipt("y", 1))]
    {
        let mut commit = conversation.prompt(run, "hello");
        commit.receipt = Some(receipt);
        store.commit(&commit).await.unwrap();
    }
    assert_eq!(store.purge_receipts(at(1_000_000)).await.unwrap(), 1);
    assert!(store.receipt(&key).await.unwrap().is_some());
    store.settle_queue_item(queue_id(1), 1, &done(), at(21)).await.unwrap();
    assert_eq!(store.purge_receipts(at(1_000_000)).await.unwrap(), 1);
    assert!(store.receipt(&key).await.unwrap().is_none());
}
