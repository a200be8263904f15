//! The commit: all of it or nothing, under the right fence, on the right end of the log.

use std::sync::Arc;

use ash_core::entry::Entry;
use ash_core::number::{Fence, Owner, Seq};
use ash_store::{Commit, MAX_ENTRY_BYTES, RunRecord, Store, StoreError, StoredSession};

use crate::support::{
    Conversation, at, deploy, json, receipt, refusal, run_id, session_id, settings, task, us,
};

/// Everything of session 10 that a commit can change.
#[derive(Debug, PartialEq)]
struct Picture {
    stored: Arc<StoredSession>,
    log: Vec<ash_core::session::LogEntry>,
    runs: Vec<RunRecord>,
    receipt: Option<ash_store::Receipt>,
    due: Vec<(ash_core::id::SessionId, ash_core::time::Timestamp)>,
}

async fn picture(store: &dyn Store) -> Picture {
    Picture {
        stored: store.session(&us(), session_id(10)).await.unwrap(),
        log: store.events_after(session_id(10), Seq::ZERO, 99).await.unwrap(),
        runs: store.runs(session_id(10), 99).await.unwrap(),
        receipt: store.receipt(&receipt("fresh", 1).key).await.unwrap(),
        due: store.due_sessions(at(i64::MAX), 99).await.unwrap(),
    }
}

/// A commit that changes everything a commit can change.
fn full_commit(conversation: &mut Conversation) -> Commit {
    let mut commit = conversation.prompt(5, "hello");
    commit.settings = Some(settings("renamed"));
    commit.outbox = vec![task(1, "upload", 100)];
    commit.receipt = Some(receipt("fresh", 1));
    commit
}

/// The commit is refused for that reason and leaves no trace.
async fn refused_without_trace(store: &dyn Store, commit: &Commit, expected: &str) {
    let before = picture(store).await;
    let refused = refusal(store.commit(commit).await);
    assert!(refused.starts_with(expected), "{refused} is not {expected}");
    assert_eq!(picture(store).await, before);
    // Looked at last because looking takes the tasks; `taken` ones were there before.
    let tasks = store.claim_outbox("upload", at(1000), at(1000), 9).await.unwrap();
    let taken: Vec<_> = tasks.iter().filter(|task| task.attempt == 1).collect();
    assert!(taken.is_empty(), "{taken:?}");
}

pub(super) async fn a_commit_records_everything_in_one_piece(store: &dyn Store) {
    deploy(store, 1).await;
    let mut conversation = Conversation::active(store, 10).await;
    let before = picture(store).await;
    let commit = full_commit(&mut conversation);
    store.commit(&commit).await.unwrap();
    let after = picture(store).await;
    assert_eq!(after.stored.session, conversation.session);
    assert_eq!(after.stored.record.settings, settings("renamed"));
    assert_eq!(after.log, [before.log, commit.entries].concat());
    assert_eq!(after.runs.iter().map(|run| run.id).collect::<Vec<_>>(), [run_id(5)]);
    assert_eq!(after.receipt, commit.receipt);
    let tasks = store.claim_outbox("upload", at(100), at(200), 9).await.unwrap();
    assert_eq!(tasks.into_iter().map(|task| task.item).collect::<Vec<_>>(), commit.outbox);
}

pub(super) async fn a_stale_fence_is_refused_and_changes_nothing(store: &dyn Store) {
    deploy(store, 1).await;
    let mut stalled = Conversation::active(store, 10).await;
    store.claim_session(session_id(10), Owner::new(2)).await.unwrap();
    let commit = full_commit(&mut stalled);
    let error = store.commit(&commit).await.unwrap_err();
    let StoreError::Fenced { session, held } = error else { panic!("{error:?}") };
    assert_eq!((session, held), (session_id(10), Fence::new(1)));
    refused_without_trace(store, &commit, "Fenced").await;
}

pub(super) async fn a_fence_from_the_future_is_refused_too(store: &dyn Store) {
    deploy(store, 1).await;
    let mut conversation = Conversation::active(store, 10).await;
    let mut commit = full_commit(&mut conversation);
    commit.fence = Fence::new(2);
    refused_without_trace(store, &commit, "Fenced").await;
}

pub(super) async fn a_commit_on_another_end_of_the_log_is_refused(store: &dyn Store) {
    deploy(store, 1).await;
    let mut conversation = Conversation::active(store, 10).await;
    // Decided on a log that goes on where the stored one ends.
    conversation.prompt(4, "never recorded");
    let ahead = full_commit(&mut conversation);
    let error = store.commit(&ahead).await.unwrap_err();
    let StoreError::Conflict { session, expected } = error else { panic!("{error:?}") };
    assert_eq!((session, expected), (session_id(10), ahead.expected_seq));
    refused_without_trace(store, &ahead, "Conflict").await;
}

pub(super) async fn a_commit_decided_before_the_last_one_is_refused(store: &dyn Store) {
    deploy(store, 1).await;
    let conversation = Conversation::active(store, 10).await;
    let mut slow = conversation.clone();
    let mut quick = conversation;
    store.commit(&quick.prompt(4, "first")).await.unwrap();
    let late = full_commit(&mut slow);
    refused_without_trace(store, &late, "Conflict").await;
}

pub(super) async fn entries_that_do_not_follow_each_other_are_refused(store: &dyn Store) {
    deploy(store, 1).await;
    let conversation = Conversation::active(store, 10).await;
    let commit = full_commit(&mut conversation.clone());
    assert_eq!(commit.entries.len(), 2, "a prompt, and the start of its run");

    let mut swapped = commit.clone();
    swapped.entries.reverse();
    let mut shifted = commit.clone();
    for entry in &mut shifted.entries {
        entry.seq = entry.seq.next();
    }
    let mut doubled = commit.clone();
    doubled.entries[1].seq = doubled.entries[0].seq;
    for wrong in [swapped, shifted, doubled] {
        refused_without_trace(store, &wrong, "Conflict").await;
    }
}

pub(super) async fn a_session_that_does_not_agree_with_its_entries_is_refused(store: &dyn Store) {
    deploy(store, 1).await;
    let conversation = Conversation::active(store, 10).await;
    let mut one_short = full_commit(&mut conversation.clone());
    one_short.entries.pop();
    refused_without_trace(store, &one_short, "Conflict").await;

    let mut stale_value = full_commit(&mut conversation.clone());
    stale_value.session = conversation.session;
    refused_without_trace(store, &stale_value, "Conflict").await;
}

pub(super) async fn a_commit_without_entries_still_needs_the_expected_end(store: &dyn Store) {
    deploy(store, 1).await;
    let conversation = Conversation::active(store, 10).await;
    let nothing_new = |conversation: &Conversation| Commit {
        fence: conversation.fence,
        expected_seq: conversation.session.last_seq(),
        session: conversation.session.clone(),
        due_at: Some(at(77)),
        entries: Vec::new(),
        runs: Vec::new(),
        settings: None,
        snapshots: Vec::new(),
        outbox: Vec::new(),
        receipt: None,
    };
    store.commit(&nothing_new(&conversation)).await.unwrap();
    assert_eq!(store.due_sessions(at(77), 9).await.unwrap(), [(session_id(10), at(77))]);

    let mut ahead = conversation.clone();
    ahead.prompt(4, "never recorded");
    refused_without_trace(store, &nothing_new(&ahead), "Conflict").await;
}

pub(super) async fn a_commit_to_nothing_finds_nothing(store: &dyn Store) {
    deploy(store, 1).await;
    let (mut conversation, _) = Conversation::draft(10);
    let commit = conversation.started();
    assert_eq!(refusal(store.commit(&commit).await), r#"NotFound("session")"#);
}

pub(super) async fn a_commit_whose_receipt_exists_changes_nothing(store: &dyn Store) {
    deploy(store, 1).await;
    let mut conversation = Conversation::active(store, 10).await;
    let mut first = conversation.prompt(4, "first");
    first.receipt = Some(receipt("used", 1));
    store.commit(&first).await.unwrap();

    let mut again = full_commit(&mut conversation.clone());
    again.receipt = Some(receipt("used", 2));
    refused_without_trace(store, &again, r#"Exists("receipt")"#).await;
    store.commit(&full_commit(&mut conversation)).await.unwrap();
}

pub(super) async fn a_commit_whose_outbox_task_exists_changes_nothing(store: &dyn Store) {
    deploy(store, 1).await;
    let mut conversation = Conversation::active(store, 10).await;
    let mut first = conversation.prompt(4, "first");
    first.outbox = vec![task(2, "other", 100)];
    store.commit(&first).await.unwrap();

    let mut again = full_commit(&mut conversation);
    again.outbox.push(task(2, "upload", 100));
    refused_without_trace(store, &again, r#"Exists("outbox task")"#).await;
}

pub(super) async fn a_commit_that_names_an_outbox_task_twice_changes_nothing(store: &dyn Store) {
    deploy(store, 1).await;
    let mut conversation = Conversation::active(store, 10).await;
    let mut commit = full_commit(&mut conversation);
    commit.outbox.push(commit.outbox[0].clone());
    refused_without_trace(store, &commit, r#"Exists("outbox task")"#).await;
}

pub(super) async fn a_commit_with_an_unknown_run_changes_nothing(store: &dyn Store) {
    deploy(store, 1).await;
    let conversation = Conversation::active(store, 10).await;
    let commit = full_commit(&mut conversation.clone());
    assert_eq!(commit.runs.len(), 2, "accepted, and started");
    for kept in [1, 2] {
        // Without the first change the run was never accepted; the last one comes too late then.
        let mut wrong = commit.clone();
        wrong.runs = commit.runs.iter().cycle().skip(1).take(kept).cloned().collect();
        refused_without_trace(store, &wrong, r#"NotFound("run")"#).await;
    }
}

pub(super) async fn a_run_is_accepted_once(store: &dyn Store) {
    deploy(store, 1).await;
    let mut conversation = Conversation::active(store, 10).await;
    store.commit(&conversation.prompt(4, "first")).await.unwrap();
    let mut again = full_commit(&mut conversation);
    again.runs = conversation.prompt(4, "second").runs;
    refused_without_trace(store, &again, r#"Exists("run")"#).await;
}

pub(super) async fn an_entry_that_is_too_large_is_refused(store: &dyn Store) {
    deploy(store, 1).await;
    let mut conversation = Conversation::active(store, 10).await;
    store.commit(&conversation.prompt(5, "hello")).await.unwrap();
    // Put in afterwards: the domain would not let an agent say so much at once.
    let says = |commit: &mut Commit, bytes| {
        let delta = "x".repeat(bytes);
        commit.entries[0].entry = Entry::TextDelta { run: run_id(5), delta };
    };
    let mut commit = conversation.message(5, "short");
    let mut largest = commit.clone();
    says(&mut commit, MAX_ENTRY_BYTES);
    says(&mut largest, MAX_ENTRY_BYTES - 100);
    let error = store.commit(&commit).await.unwrap_err();
    let StoreError::TooLarge { bytes } = error else { panic!("{error:?}") };
    assert!(bytes > MAX_ENTRY_BYTES);
    refused_without_trace(store, &commit, "TooLarge").await;

    store.commit(&largest).await.unwrap();

    let (_, mut new) = Conversation::draft(20);
    new.entries[0].entry = commit.entries[0].entry.clone();
    assert!(refusal(store.create_session(&new).await).starts_with("TooLarge"));
}

pub(super) async fn settings_change_only_when_they_are_given(store: &dyn Store) {
    deploy(store, 1).await;
    let mut conversation = Conversation::active(store, 10).await;
    let mut rename = conversation.prompt(4, "first");
    rename.settings = Some(settings("renamed"));
    store.commit(&rename).await.unwrap();
    store.commit(&conversation.prompt(5, "second")).await.unwrap();
    let stored = store.session(&us(), session_id(10)).await.unwrap();
    assert_eq!(stored.record.settings, settings("renamed"));
    let claimed = store.claim_session(session_id(10), Owner::new(2)).await.unwrap();
    assert_eq!(claimed.record, stored.record);
    assert_eq!(stored.record.settings.config, json("options"));
}

pub(super) async fn concurrent_commits_leave_one_winner(store: &dyn Store) {
    deploy(store, 1).await;
    let conversation = Conversation::active(store, 10).await;
    let commits: Vec<_> = (1..=4).map(|run| conversation.clone().prompt(run, "me")).collect();
    let results = tokio::join!(
        store.commit(&commits[0]),
        store.commit(&commits[1]),
        store.commit(&commits[2]),
        store.commit(&commits[3]),
    );
    let results = [results.0, results.1, results.2, results.3];
    let winners = results.iter().filter(|result| result.is_ok()).count();
    let conflicts =
        results.iter().filter(|result| matches!(result, Err(StoreError::Conflict { .. }))).count();
    assert_eq!((winners, conflicts), (1, 3));
    let log = store.events_after(session_id(10), Seq::ZERO, 99).await.unwrap();
    assert_eq!(log.len(), 4);
}
