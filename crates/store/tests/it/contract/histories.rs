//! Sessions that begin with a history: inherited from another one here, or brought from elsewhere.

use ash_core::entry::Entry;
use ash_core::id::{AttachmentId, SnapshotId};
use ash_core::number::{Fence, LogEpoch, Owner, Seq, Turn};
use ash_core::policy::{Context, Policy};
use ash_core::run::{RunStatus, Usage};
use ash_core::session::{History, LogEntry, Origin, ReportBody, Session, Status};
use ash_core::snapshot::{Captured, Snapshot};
use ash_store::{
    Attachment, Commit, ImportedSession, Inherited, NewSession, OutboxTask, Places, SessionRecord,
    Store, StoreError, StoredSnapshot, UsageFilter,
};

use crate::support::{
    Conversation, add_them, at, deploy, receipt, refusal, run_id, session_id, task, them, us,
};

const EVERYTHING: u32 = 1_000;

fn used(tokens: u64) -> Usage {
    Usage { input_tokens: tokens, ..Usage::default() }
}

pub(super) fn snapshot(number: u8, seq: Seq) -> StoredSnapshot {
    let captured = Captured {
        id: SnapshotId::from_parts(at(number.into()), [number; 10]),
        files: 3,
        bytes: 4,
        new_bytes: 1,
        unfrozen: 0,
        unstable: 0,
        unproven: false,
    };
    let (turn, transcript) = (Turn::new(1), None);
    let (through, at, completed_runs) = (None, at(9), 1);
    let lost = None;
    let snapshot = Snapshot { captured, seq, turn, through, at, transcript, completed_runs, lost };
    StoredSnapshot { snapshot, places: Places { local: false, cloud: true } }
}

/// A session with a turn that is over, one that goes on, and a prompt that waits.
async fn parent(store: &dyn Store) -> (Conversation, Seq) {
    deploy(store, 1).await;
    let mut parent = Conversation::active(store, 10).await;
    for step in 0..4 {
        let commit = match step {
            0 => parent.prompt(1, "first"),
            1 => parent.message(1, "answer"),
            2 => parent.done(1, used(5)),
            _ => parent.prompt(2, "second"),
        };
        store.commit(&commit).await.unwrap();
    }
    let cut = parent.session.last_seq();
    let commit = parent.report(2, ReportBody::TextDelta("more".to_owned()));
    let snapshots = vec![snapshot(1, Seq::new(5)).snapshot];
    store.commit(&Commit { snapshots, ..commit }).await.unwrap();
    (parent, cut)
}

async fn log_of(store: &dyn Store, number: i64) -> Vec<LogEntry> {
    store.events_after(session_id(number), Seq::ZERO, EVERYTHING).await.unwrap()
}

/// Something that is attached to a session.
fn attached(number: i64) -> Attachment {
    Attachment {
        id: AttachmentId::from_parts(at(number), [3; 10]),
        tenant: us(),
        session: session_id(number),
        message: Some("3".to_owned()),
        filename: "a.txt".to_owned(),
        media_type: "text/plain".to_owned(),
        size: 5,
        path: "attachments/a.txt".to_owned(),
        placed: false,
        created_at: at(number),
    }
}

pub(super) async fn what_is_attached_comes_with_a_history_or_nothing_does(store: &dyn Store) {
    let (_, cut) = parent(store).await;
    let (mut fork, _) = draft(store, 20, cut).await;
    fork.attachments = vec![attached(20)];
    store.import_session(&fork).await.unwrap();
    let there = store.attachments(&us(), session_id(20)).await.unwrap();
    assert_eq!(there, [attached(20)]);
    assert_eq!(store.sessions_with_unplaced().await.unwrap(), [session_id(20)]);
    // The oldest is the first, whichever got its id first.
    let (mut other, _) = draft(store, 23, cut).await;
    let one = |id: i64, path: &str, created: i64| Attachment {
        id: attached(id).id,
        path: path.to_owned(),
        created_at: at(created),
        ..attached(23)
    };
    other.attachments = vec![one(24, "attachments/late", 9), one(25, "attachments/early", 8)];
    store.import_session(&other).await.unwrap();
    let paths = store.attachments(&us(), session_id(23)).await.unwrap();
    assert_eq!(
        paths.iter().map(|one| one.path.as_str()).collect::<Vec<_>>(),
        ["attachments/early", "attachments/late"]
    );
    let twice = |(mut draft, _): (ImportedSession, Vec<LogEntry>)| {
        draft.attachments = vec![attached(21), Attachment { id: attached(22).id, ..attached(21) }];
        draft
    };
    let same_id = |(mut draft, _): (ImportedSession, Vec<LogEntry>)| {
        draft.attachments = vec![Attachment { id: attached(20).id, ..attached(21) }];
        draft
    };
    for wrong in [twice(draft(store, 21, cut).await), same_id(draft(store, 21, cut).await)] {
        let refused = store.import_session(&wrong).await;
        assert!(matches!(refused, Err(StoreError::Exists("attachment"))), "{refused:?}");
        assert!(store.session_record(session_id(21)).await.is_err(), "nothing is left of it");
    }
    let mut stray = draft(store, 21, cut).await.0;
    stray.attachments = vec![attached(20)];
    assert!(store.import_session(&stray).await.is_err());
}

/// A session that begins with the log of session 10 through `cut`, and what goes before its entries.
async fn draft(store: &dyn Store, number: i64, cut: Seq) -> (ImportedSession, Vec<LogEntry>) {
    let mut history = History::default();
    let mut log = log_of(store, 10).await;
    log.retain(|entry| entry.seq <= cut);
    for entry in &log {
        history.read(entry).unwrap();
    }
    let policy = Policy::default();
    let ctx = Context { now: at(50), policy: &policy };
    let (id, origin) = (session_id(number), Origin::Fork(session_id(10)));
    let kept = snapshot(1, Seq::new(5));
    let snapshot = Some(kept.snapshot.clone());
    let epoch = LogEpoch::new(2);
    let (session, decision) = Session::with_history(&ctx, id, origin, epoch, history, snapshot);
    let parent = store.session(&us(), session_id(10)).await.unwrap();
    let parent_id = Some(session_id(10));
    let record = SessionRecord { id, parent: parent_id, ..parent.record.clone() };
    let new = NewSession {
        record,
        due_at: session.next_deadline(&policy),
        session,
        entries: decision.entries,
        owner: Owner::new(1),
        receipt: None,
    };
    let inherited = Some(Inherited { session: session_id(10), through: cut });
    let runs = decision.runs;
    let outbox = vec![task(number, "after", 50)];
    let (snapshots, attachments) = (vec![kept], Vec::new());
    (ImportedSession { new, inherited, runs, snapshots, attachments, outbox }, log)
}

pub(super) async fn a_session_can_begin_with_the_history_of_another(store: &dyn Store) {
    let (_, cut) = parent(store).await;
    let before = (log_of(store, 10).await, store.runs(session_id(10), 9).await.unwrap());
    let (fork, mut expected) = draft(store, 20, cut).await;
    assert_eq!(store.import_session(&fork).await.unwrap(), Fence::new(1));

    let stored = store.session(&us(), session_id(20)).await.unwrap();
    assert_eq!((&stored.record, &stored.session), (&fork.new.record, &fork.new.session));
    assert_eq!(stored.session.status(), Status::Paused);
    expected.extend(fork.new.entries.iter().cloned());
    assert_eq!(log_of(store, 20).await, expected);
    assert!(matches!(expected.last().unwrap().entry, Entry::SessionForked { .. }));

    let runs = store.runs(session_id(20), 9).await.unwrap();
    let [second, first] = runs.as_slice() else { panic!("{runs:?}") };
    assert_eq!((first.status, second.status), (RunStatus::Completed, RunStatus::Interrupted));
    assert_eq!((first.turn, second.turn), (Some(Turn::new(1)), Some(Turn::new(2))));
    assert_eq!(first.usage, used(5));
    let prompt = store.prompt(session_id(20), run_id(1)).await.unwrap();
    assert_eq!(prompt, store.prompt(session_id(10), run_id(1)).await.unwrap());
    let messages = store.messages_after(session_id(20), Seq::ZERO, 9).await.unwrap();
    assert_eq!(messages.len(), 3);
    let id = fork.snapshots[0].snapshot.captured.id;
    assert_eq!(store.snapshot(session_id(20), id).await.unwrap(), fork.snapshots[0]);

    let after = (log_of(store, 10).await, store.runs(session_id(10), 9).await.unwrap());
    assert_eq!(before, after, "the other one goes on as it was");
    let claimed = store.claim_session(session_id(20), Owner::new(1)).await.unwrap();
    assert_eq!(claimed.fence, Fence::new(2));
}

pub(super) async fn what_was_consumed_before_a_fork_is_counted_once(store: &dyn Store) {
    let (mut parent, cut) = parent(store).await;
    store.commit(&parent.done(2, used(7))).await.unwrap();
    let (fork, _) = draft(store, 20, cut).await;
    store.import_session(&fork).await.unwrap();
    let of = |session| UsageFilter { session, ..UsageFilter::default() };
    let total = store.usage(&us(), &of(None)).await.unwrap();
    assert_eq!((total.runs, total.usage), (2, used(12)));
    assert_eq!(store.usage(&us(), &of(Some(session_id(20)))).await.unwrap().runs, 0);
    assert_eq!(store.usage_records(&us(), &of(None), 9).await.unwrap().len(), 2);
}

pub(super) async fn a_session_can_be_brought_from_elsewhere(store: &dyn Store) {
    let (_, cut) = parent(store).await;
    let (mut imported, log) = draft(store, 20, cut).await;
    imported.inherited = None;
    let added = std::mem::take(&mut imported.new.entries);
    imported.new.entries = log.into_iter().chain(added).collect();
    imported.new.record.parent = None;
    imported.outbox = vec![task(1, "upload", 1)];
    store.import_session(&imported).await.unwrap();
    let taken = store.claim_outbox("upload", at(1), at(2), 9).await.unwrap();
    assert_eq!(taken.into_iter().map(|task| task.item).collect::<Vec<_>>(), [task(1, "upload", 1)]);
    assert_eq!(log_of(store, 20).await, imported.new.entries);
    let of = UsageFilter { session: Some(session_id(20)), ..UsageFilter::default() };
    let total = store.usage(&us(), &of).await.unwrap();
    assert_eq!((total.runs, total.usage), (2, used(5)), "nobody else counts it");
}

pub(super) async fn a_refused_import_leaves_nothing(store: &dyn Store) {
    let (_, cut) = parent(store).await;
    let (good, _) = draft(store, 20, cut).await;
    let with = |change: &dyn Fn(&mut ImportedSession)| {
        let mut bad = good.clone();
        change(&mut bad);
        bad
    };
    let beyond = Seq::new(10_000);
    let inherit = |session, through| Some(Inherited { session: session_id(session), through });
    let conflict = |of: i64, at: u64| {
        format!("Conflict {{ session: {:?}, expected: Seq({at}) }}", session_id(of))
    };
    for (bad, why) in [
        (with(&|it| it.inherited = inherit(99, cut)), r#"NotFound("session")"#.to_owned()),
        (with(&|it| it.inherited = inherit(10, Seq::new(1))), conflict(20, 1)),
        (with(&|it| it.inherited = None), conflict(20, 0)),
        (with(&|it| it.new.entries.clear()), conflict(20, cut.get())),
        (with(&|it| it.new.record.id = session_id(30)), conflict(30, cut.get())),
        (with(&|it| it.runs.push(it.runs[0].clone())), r#"Exists("run")"#.to_owned()),
        (with(&|it| drop(it.runs.remove(0))), r#"NotFound("run")"#.to_owned()),
        (
            with(&|it| it.snapshots.push(snapshot(2, Seq::new(5)))),
            r#"NotFound("snapshot")"#.to_owned(),
        ),
        (
            with(&|it| it.snapshots.push(it.snapshots[0].clone())),
            r#"Exists("snapshot")"#.to_owned(),
        ),
        (
            with(&|it| it.outbox = vec![task(1, "after", 1), task(1, "after", 1)]),
            r#"Exists("outbox task")"#.to_owned(),
        ),
        (
            with(&|it| it.new.record.agent = crate::support::agent_id(7)),
            r#"NotFound("agent")"#.to_owned(),
        ),
    ] {
        assert_eq!(refusal(store.import_session(&bad).await), why);
        let look_up = store.session(&us(), session_id(20)).await;
        assert_eq!(refusal(look_up), r#"NotFound("session")"#);
    }
    // What follows an end that the other log does not have.
    let mut log = Vec::new();
    for seq in 1..=beyond.get() {
        log.push(LogEntry { seq: Seq::new(seq), at: at(1), entry: Entry::SessionWaking });
    }
    let mut history = History::default();
    log.iter().for_each(|entry| history.read(entry).unwrap());
    let policy = Policy::default();
    let ctx = Context { now: at(50), policy: &policy };
    let origin = Origin::Fork(session_id(10));
    let (session, decision) =
        Session::with_history(&ctx, session_id(20), origin, LogEpoch::new(2), history, None);
    let bad = with(&|it| {
        it.inherited = inherit(10, beyond);
        it.new.session = session.clone();
        it.new.entries = decision.entries.clone();
        it.runs.clear();
    });
    assert_eq!(refusal(store.import_session(&bad).await), conflict(10, beyond.get()));
    store.import_session(&good).await.unwrap();
}

pub(super) async fn another_tenants_history_does_not_exist(store: &dyn Store) {
    let (_, cut) = parent(store).await;
    let (mut fork, _) = draft(store, 20, cut).await;
    add_them(store).await;
    fork.new.record.tenant = them();
    assert_eq!(refusal(store.import_session(&fork).await), r#"NotFound("session")"#);
}

pub(super) async fn a_snapshot_that_is_lost_meanwhile_is_not_inherited(store: &dyn Store) {
    let (_, cut) = parent(store).await;
    let (fork, _) = draft(store, 20, cut).await;
    let id = fork.snapshots[0].snapshot.captured.id;
    store.forget_snapshot(session_id(10), id).await.unwrap();
    assert_eq!(refusal(store.import_session(&fork).await), r#"NotFound("snapshot")"#);
    let look_up = store.session(&us(), session_id(20)).await;
    assert_eq!(refusal(look_up), r#"NotFound("session")"#);
}

pub(super) async fn an_import_can_leave_a_receipt(store: &dyn Store) {
    let (_, cut) = parent(store).await;
    let (mut fork, _) = draft(store, 20, cut).await;
    fork.new.receipt = Some(receipt("fork", 1));
    store.import_session(&fork).await.unwrap();
    let (mut again, _) = draft(store, 30, cut).await;
    again.new.receipt = Some(receipt("fork", 2));
    assert_eq!(refusal(store.import_session(&again).await), r#"Exists("receipt")"#);
    let look_up = store.session(&us(), session_id(30)).await;
    assert_eq!(refusal(look_up), r#"NotFound("session")"#);
}

pub(super) async fn what_follows_an_import_is_written_with_it(store: &dyn Store) {
    let (_, cut) = parent(store).await;
    let (fork, _) = draft(store, 20, cut).await;
    store.import_session(&fork).await.unwrap();
    // The same task a second time: nothing is left of what came with it.
    let (mut other, _) = draft(store, 21, cut).await;
    other.outbox = fork.outbox.clone();
    let refused = store.import_session(&other).await;
    assert!(matches!(refused, Err(StoreError::Exists("outbox task"))), "{refused:?}");
    assert!(store.session_record(session_id(21)).await.is_err());
    let tasks = store.claim_outbox("after", at(50), at(60), 9).await.unwrap();
    assert_eq!(tasks, [OutboxTask { item: task(20, "after", 50), attempt: 1 }]);
}
