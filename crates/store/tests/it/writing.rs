//! The SQLite store as a whole, under callers that compete, leave and go away.

use std::future::Future as _;
use std::sync::Arc;
use std::task::{Context, Waker};

use ash_core::number::{Owner, Seq};
use ash_store::sqlite::{Options, Sharing, SqliteStore};
use ash_store::{Store as _, StoreError};
use rusqlite::Connection;
use tokio::task::JoinSet;

use crate::support::{Conversation, deploy, receipt, session_id, us};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_reader_sees_what_was_acknowledged_before_it_began() {
    let directory = tempfile::tempdir().unwrap();
    acknowledged_is_seen(SqliteStore::open(&directory.path().join("ash.db")).unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_reader_sees_it_too_where_nobody_else_writes() {
    let directory = tempfile::tempdir().unwrap();
    acknowledged_is_seen(SqliteStore::open_alone(&directory.path().join("ash.db")).unwrap()).await;
}

/// Reads after every write, while others read the same sessions all the time.
async fn acknowledged_is_seen(store: SqliteStore) {
    let store = Arc::new(store);
    deploy(&*store, 1).await;
    let mut tasks = JoinSet::new();
    for number in 10..18 {
        let store = Arc::clone(&store);
        tasks.spawn(async move {
            let mut conversation = Conversation::active(&*store, number).await;
            let mut others = JoinSet::new();
            let theirs = Arc::clone(&store);
            others.spawn(async move {
                loop {
                    theirs.session(&us(), session_id(number)).await.unwrap();
                    tokio::task::yield_now().await;
                }
            });
            for run in 1..30 {
                store.commit(&conversation.prompt(run, "hello")).await.unwrap();
                let stored = store.session(&us(), session_id(number)).await.unwrap();
                assert_eq!(stored.session, conversation.session);
                let last = conversation.session.last_seq();
                let before = Seq::new(last.get() - 1);
                let end = store.events_after(session_id(number), before, 9).await.unwrap();
                assert_eq!(end.len(), 1);
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
}

#[tokio::test]
async fn a_write_that_nobody_waited_for_is_seen() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open_alone(&directory.path().join("ash.db")).unwrap();
    deploy(&store, 1).await;
    let mut conversation = Conversation::active(&store, 10).await;
    let before = store.session(&us(), session_id(10)).await.unwrap();
    let commit = conversation.prompt(1, "hello");
    let mut asked = Box::pin(store.commit(&commit));
    assert!(asked.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(asked);
    // What comes after it in the queue is done after it.
    store.next_owner().await.unwrap();
    let after = store.session(&us(), session_id(10)).await.unwrap();
    assert_eq!(after.session, conversation.session);
    assert_ne!(before.session, after.session);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn refused_commits_do_not_harm_those_beside_them() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(&directory.path().join("ash.db")).unwrap());
    deploy(&*store, 1).await;
    let mut tasks = JoinSet::new();
    for number in 10..42 {
        let store = Arc::clone(&store);
        tasks.spawn(async move {
            let mut conversation = Conversation::active(&*store, number).await;
            let owner = store.next_owner().await.unwrap().get();
            for run in 1..12 {
                let mut doomed = conversation.clone().prompt(100 + run, "doomed");
                doomed.receipt = Some(receipt("everybody's", 1));
                let taken = store.commit(&doomed).await;
                if taken.is_ok() {
                    conversation.claim(&*store, owner).await;
                }
                let mut stale = conversation.clone();
                conversation.claim(&*store, owner).await;
                let fenced = store.commit(&stale.prompt(200 + run, "stale")).await;
                assert!(matches!(fenced, Err(StoreError::Fenced { .. })), "{fenced:?}");
                store.commit(&conversation.prompt(run, "hello")).await.unwrap();
            }
            conversation
        });
    }
    let mut runs = 0;
    while let Some(task) = tasks.join_next().await {
        let conversation = task.unwrap();
        let stored = store.session(&us(), conversation.id()).await.unwrap();
        assert_eq!(stored.session, conversation.session);
        runs += store.runs(conversation.id(), 99).await.unwrap().len();
    }
    assert_eq!(runs, 32 * 11 + 1, "the everybody's receipt was taken once");
    assert_eq!(store.check_integrity().await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn closing_the_store_completes_what_is_queued() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ash.db");
    let store = SqliteStore::open(&path).unwrap();
    deploy(&store, 1).await;
    let mut conversation = Conversation::active(&store, 10).await;
    for run in 1..30 {
        // Asked for and never waited for.
        let commit = conversation.prompt(run, "hello");
        let mut asked = Box::pin(store.commit(&commit));
        let polled = asked.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
    }
    drop(store);
    let store = SqliteStore::open(&path).unwrap();
    let stored = store.session(&us(), session_id(10)).await.unwrap();
    assert_eq!(stored.session, conversation.session);
}

#[tokio::test]
async fn two_processes_may_write_and_the_fence_keeps_them_apart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ash.db");
    let one = SqliteStore::open(&path).unwrap();
    let other = SqliteStore::open_with(&Options { path, group_limit: 1, sharing: Sharing::Shared })
        .unwrap();
    deploy(&one, 1).await;
    let mut stalled = Conversation::active(&one, 10).await;
    let mut conversation = stalled.clone();
    conversation.claim(&other, 2).await;
    for run in 1..20 {
        other.commit(&conversation.prompt(run, "hello")).await.unwrap();
        let fenced = one.commit(&stalled.clone().prompt(run, "stale")).await;
        assert!(matches!(fenced, Err(StoreError::Fenced { .. })), "{fenced:?}");
    }
    let superseded = one.claim_session(session_id(10), Owner::new(1)).await;
    assert!(matches!(superseded, Err(StoreError::Superseded(_))), "{superseded:?}");
    stalled.claim(&one, 3).await;
    assert_eq!(stalled.session, conversation.session);
    let claimed = other.claim_session(session_id(10), Owner::new(4)).await.unwrap();
    assert_eq!(claimed.fence, stalled.fence.next());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_two_processes_are_the_same_owner() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ash.db");
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let store = SqliteStore::open(&path).unwrap();
        tasks.spawn(async move {
            let mut owners = Vec::new();
            for _ in 0..10 {
                owners.push(store.next_owner().await.unwrap().get());
            }
            assert!(owners.is_sorted(), "{owners:?}");
            owners
        });
    }
    let mut owners = tasks.join_all().await.concat();
    owners.sort_unstable();
    assert_eq!(owners, (1..=40).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_store_waits_for_another_process_that_writes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ash.db");
    let store = SqliteStore::open(&path).unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (asked, _) = tokio::join!(
        async { deploy(&store, 1).await },
        // By now the writer has its work and finds the file locked, or is about to.
        async { other.execute_batch("COMMIT").unwrap() },
    );
    assert_eq!(store.agent(&us(), &asked.name).await.unwrap(), asked);
}
