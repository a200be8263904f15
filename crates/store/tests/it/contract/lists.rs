//! Lists of sessions, and that they follow every commit.

use ash_core::number::{Incarnation, Seq, Turn};
use ash_core::resume::IfLost;
use ash_core::session::{Fact, ReportBody, Request, Sandbox, Session, Status};
use ash_core::snapshot::{PersistOutcome, Snapshot};
use ash_store::{
    Census, Commit, NewAgentVersion, PageRequest, SessionFilter, Store, StoredSession,
};

use crate::support::{
    Conversation, agent_id, agent_version, at, deploy, name, session_id, them, us,
};

fn numbers(listed: &[StoredSession]) -> Vec<i64> {
    listed.iter().map(|stored| stored.record.created_at.as_millis()).collect()
}

pub(super) async fn sessions_are_listed_newest_first_and_in_pages(store: &dyn Store) {
    deploy(store, 1).await;
    for number in [30, 10, 50, 20, 40] {
        Conversation::begin(store, number).await;
    }
    let all = SessionFilter::default();
    let cases: [(Option<i64>, u32, u32, &[i64]); 7] = [
        (None, 0, 9, &[50, 40, 30, 20, 10]),
        (None, 0, 2, &[50, 40]),
        (None, 2, 2, &[30, 20]),
        (Some(40), 0, 2, &[30, 20]),
        (Some(40), 1, 9, &[20, 10]),
        (Some(35), 0, 1, &[30]),
        (Some(10), 0, 9, &[]),
    ];
    for (after, offset, limit, expected) in cases {
        let page = PageRequest { after: after.map(session_id), offset, limit };
        let listed = store.sessions(&us(), &all, &page).await.unwrap();
        assert_eq!(numbers(&listed), expected, "{page:?}");
    }
    assert_eq!(store.count_sessions(&us(), &all).await.unwrap(), 5);
}

pub(super) async fn sessions_are_filtered_by_agent_and_status(store: &dyn Store) {
    deploy(store, 1).await;
    deploy(store, 2).await;
    Conversation::begin(store, 10).await;
    Conversation::active(store, 20).await;
    let (_, mut other) = Conversation::draft(30);
    other.record.agent = agent_id(2);
    other.record.agent_name = name("agent-2");
    store.create_session(&other).await.unwrap();
    let page = PageRequest { after: None, offset: 0, limit: 9 };
    let cases: [(Option<&str>, Option<Status>, &[i64]); 5] = [
        (Some("agent-1"), None, &[20, 10]),
        (Some("agent-2"), None, &[30]),
        (None, Some(Status::Starting), &[30, 10]),
        (Some("agent-1"), Some(Status::Active), &[20]),
        (Some("agent-2"), Some(Status::Ended), &[]),
    ];
    for (agent, status, expected) in cases {
        let filter = SessionFilter { agent: agent.map(name), status, id_prefix: None };
        let listed = store.sessions(&us(), &filter, &page).await.unwrap();
        assert_eq!(numbers(&listed), expected, "{filter:?}");
        let count = store.count_sessions(&us(), &filter).await.unwrap();
        assert_eq!(count, expected.len() as u64, "{filter:?}");
    }
}

pub(super) async fn sessions_are_filtered_by_the_beginning_of_their_id(store: &dyn Store) {
    deploy(store, 1).await;
    // Numbers are the first twelve digits of an id: 000000000010-7..., and so on.
    let numbers_from = [0x10, 0x1f, 0x100, 0x1ff, 0xfff_fff_fff_fff];
    for number in numbers_from {
        Conversation::begin(store, number).await;
    }
    let last = numbers_from[4];
    let page = PageRequest { after: None, offset: 0, limit: 9 };
    let cases: [(&str, &[i64]); 14] = [
        ("", &[last, 0x1ff, 0x100, 0x1f, 0x10]),
        ("0", &[0x1ff, 0x100, 0x1f, 0x10]),
        ("00000000", &[0x1ff, 0x100, 0x1f, 0x10]),
        ("00000000-", &[0x1ff, 0x100, 0x1f, 0x10]),
        ("00000000-00", &[0x1f, 0x10]),
        ("00000000-001", &[0x1f, 0x10]),
        ("00000000-001f", &[0x1f]),
        ("f", &[last]),
        ("ffffffff-ffff", &[last]),
        ("1", &[]),
        ("F", &[]),
        ("00000000_", &[]),
        ("%", &[]),
        ("00000000-001\0", &[]),
    ];
    for (prefix, expected) in cases {
        let filter =
            SessionFilter { id_prefix: Some(prefix.to_owned()), ..SessionFilter::default() };
        let listed = store.sessions(&us(), &filter, &page).await.unwrap();
        assert_eq!(numbers(&listed), expected, "{prefix:?}");
        let count = store.count_sessions(&us(), &filter).await.unwrap();
        assert_eq!(count, expected.len() as u64, "{prefix:?}");
        // A whole id is a beginning too, and goes with the other bounds.
        for &number in expected {
            let whole = session_id(number);
            let only = SessionFilter { id_prefix: Some(whole.to_string()), ..filter.clone() };
            assert_eq!(numbers(&store.sessions(&us(), &only, &page).await.unwrap()), [number]);
            let below = PageRequest { after: Some(whole), ..page.clone() };
            let rest: Vec<_> = expected.iter().copied().filter(|&n| n < number).collect();
            assert_eq!(numbers(&store.sessions(&us(), &filter, &below).await.unwrap()), rest);
        }
    }
    let of_none = SessionFilter {
        agent: Some(name("agent-2")),
        id_prefix: Some("0".to_owned()),
        ..SessionFilter::default()
    };
    assert_eq!(store.count_sessions(&us(), &of_none).await.unwrap(), 0);
    assert_eq!(store.count_sessions(&them(), &SessionFilter::default()).await.unwrap(), 0);
}

pub(super) async fn the_census_counts_what_goes_on_now(store: &dyn Store) {
    assert_eq!(store.census().await.unwrap(), Census::default());
    deploy(store, 1).await;
    Conversation::begin(store, 10).await;
    Conversation::active(store, 20).await;
    let mut runs = Conversation::active(store, 30).await;
    store.commit(&runs.prompt(1, "hello")).await.unwrap();
    store.commit(&runs.prompt(2, "and this waits")).await.unwrap();
    // Frozen in the middle of a run: that does not run.
    let mut frozen = Conversation::active(store, 40).await;
    store.commit(&frozen.prompt(3, "hello")).await.unwrap();
    for commit in frozen.freeze() {
        store.commit(&commit).await.unwrap();
    }
    let mut over = Conversation::active(store, 50).await;
    store.commit(&over.request(Request::End)).await.unwrap();
    let now = Census { active_sessions: 2, starting: 1, live: 2, frozen: 1, running: 1 };
    assert_eq!(store.census().await.unwrap(), now);

    // Nothing is left of what is over.
    store.commit(&over.gone()).await.unwrap();
    store.commit(&runs.request(Request::Stop)).await.unwrap();
    store.commit(&runs.gone()).await.unwrap();
    let now = Census { active_sessions: 1, starting: 1, live: 1, frozen: 1, running: 0 };
    assert_eq!(store.census().await.unwrap(), now);

    // Hidden sessions have sandboxes all the same.
    store.delete_agent(&us(), &name("agent-1")).await.unwrap();
    assert_eq!(store.census().await.unwrap(), now);
}

pub(super) async fn sessions_that_are_not_at_rest_are_unsettled(store: &dyn Store) {
    deploy(store, 1).await;
    Conversation::begin(store, 10).await;
    Conversation::active(store, 20).await;
    let mut frozen = Conversation::active(store, 30).await;
    for commit in frozen.freeze() {
        store.commit(&commit).await.unwrap();
    }
    // Until what it stood still with is captured.
    let unsettled = store.unsettled_sessions(None, 9).await.unwrap();
    assert_eq!(unsettled, [session_id(10), session_id(20), session_id(30)]);
    let captured = Fact::Persisted { number: 1, outcome: PersistOutcome::Unchanged };
    store.commit(&frozen.observe(captured)).await.unwrap();
    Conversation::active(store, 40).await;
    let unsettled = store.unsettled_sessions(None, 9).await.unwrap();
    assert_eq!(unsettled, [session_id(10), session_id(20), session_id(40)]);
    let rest = store.unsettled_sessions(Some(session_id(10)), 1).await.unwrap();
    assert_eq!(rest, [session_id(20)]);
    assert_eq!(store.unsettled_sessions(Some(session_id(40)), 9).await.unwrap(), []);
}

pub(super) async fn sandboxed_sessions_are_the_live_and_the_frozen_ones(store: &dyn Store) {
    deploy(store, 1).await;
    // Ten is starting, 20 live, 30 freezing, 40 frozen, 50 thawing, 60 stopping, 70 without any.
    Conversation::begin(store, 10).await;
    Conversation::active(store, 20).await;
    for number in [30, 40, 50] {
        let mut conversation = Conversation::active(store, number).await;
        let [freezing, frozen] = conversation.freeze();
        store.commit(&freezing).await.unwrap();
        if number > 30 {
            store.commit(&frozen).await.unwrap();
        }
        if number > 40 {
            store
                .commit(&conversation.request(Request::Resume(IfLost::default().into())))
                .await
                .unwrap();
        }
    }
    for number in [60, 70] {
        let mut conversation = Conversation::active(store, number).await;
        store.commit(&conversation.request(Request::Stop)).await.unwrap();
        if number > 60 {
            store.commit(&conversation.gone()).await.unwrap();
        }
    }
    // Eighty had a sandbox before.
    let mut conversation = Conversation::active(store, 80).await;
    store.commit(&conversation.request(Request::Stop)).await.unwrap();
    store.commit(&conversation.gone()).await.unwrap();
    store.commit(&conversation.request(Request::Resume(IfLost::default().into()))).await.unwrap();
    store.commit(&conversation.started()).await.unwrap();

    let live = (session_id(20), Incarnation::new(1));
    let frozen = (session_id(40), Incarnation::new(1));
    let second = (session_id(80), Incarnation::new(2));
    assert_eq!(store.sandboxed_sessions(None, 9).await.unwrap(), [live, frozen, second]);
    assert_eq!(store.sandboxed_sessions(None, 1).await.unwrap(), [live]);
    let rest = store.sandboxed_sessions(Some(session_id(20)), 9).await.unwrap();
    assert_eq!(rest, [frozen, second]);
    assert_eq!(store.sandboxed_sessions(Some(session_id(80)), 9).await.unwrap(), []);

    // Hidden is not gone: its sandbox has to be there all the same.
    store.delete_agent(&us(), &name("agent-1")).await.unwrap();
    assert_eq!(store.sandboxed_sessions(None, 9).await.unwrap(), [live, frozen, second]);
}

pub(super) async fn housed_sessions_are_all_that_may_have_a_sandbox(store: &dyn Store) {
    assert_eq!(store.housed_sessions().await.unwrap(), []);
    deploy(store, 1).await;
    // Ten is starting, 20 live, 30 frozen, 40 stopping, 50 without any; 60 is being rewound and comes back.
    Conversation::begin(store, 10).await;
    Conversation::active(store, 20).await;
    let mut frozen = Conversation::active(store, 30).await;
    for commit in frozen.freeze() {
        store.commit(&commit).await.unwrap();
    }
    for number in [40, 50] {
        let mut conversation = Conversation::active(store, number).await;
        store.commit(&conversation.request(Request::Stop)).await.unwrap();
        if number > 40 {
            store.commit(&conversation.gone()).await.unwrap();
        }
    }
    let mut rewound = Conversation::active(store, 60).await;
    let to = Box::new(super::histories::snapshot(1, rewound.session.last_seq()).snapshot);
    let to = Box::new(Snapshot { turn: Turn::ZERO, ..*to });
    store.commit(&rewound.request(Request::Rewind { to })).await.unwrap();
    store.commit(&rewound.gone()).await.unwrap();
    // Hidden is not gone.
    store.delete_agent(&us(), &name("agent-1")).await.unwrap();
    let mut housed = store.housed_sessions().await.unwrap();
    housed.sort_by_key(Session::id);
    let ids: Vec<_> = housed.iter().map(Session::id).collect();
    assert_eq!(ids, [10, 20, 30, 40, 60].map(session_id));
    assert!(matches!(housed[2].sandbox(), Sandbox::Frozen { .. }), "{:?}", housed[2]);
}

pub(super) async fn abandoned_sessions_go_on_though_their_agent_is_deleted(store: &dyn Store) {
    deploy(store, 1).await;
    deploy(store, 2).await;
    let mut first = Conversation::begin(store, 30).await;
    let mut second = Conversation::active(store, 10).await;
    let mut over = Conversation::begin(store, 20).await;
    store.commit(&over.request(Request::End)).await.unwrap();
    let (_, mut kept) = Conversation::draft(40);
    kept.record.agent = agent_id(2);
    kept.record.agent_name = name("agent-2");
    store.create_session(&kept).await.unwrap();
    assert_eq!(store.abandoned_sessions(None, 9).await.unwrap(), []);

    store.delete_agent(&us(), &name("agent-1")).await.unwrap();
    assert_eq!(store.abandoned_sessions(None, 9).await.unwrap(), [session_id(10), session_id(30)]);
    assert_eq!(store.abandoned_sessions(None, 1).await.unwrap(), [session_id(10)]);
    // An heir of the name does not adopt them.
    let heir = NewAgentVersion { id: agent_id(3), ..agent_version(1, "heir") };
    store.deploy_agent(&heir).await.unwrap();
    assert_eq!(store.abandoned_sessions(None, 9).await.unwrap(), [session_id(10), session_id(30)]);

    store.commit(&second.request(Request::Stop)).await.unwrap();
    assert_eq!(store.abandoned_sessions(None, 9).await.unwrap(), [session_id(10), session_id(30)]);
    store.commit(&second.request(Request::End)).await.unwrap();
    assert_eq!(store.abandoned_sessions(None, 9).await.unwrap(), [session_id(30)]);
    store.commit(&first.request(Request::End)).await.unwrap();
    assert_eq!(store.abandoned_sessions(None, 9).await.unwrap(), []);
}

pub(super) async fn due_sessions_come_most_overdue_first(store: &dyn Store) {
    deploy(store, 1).await;
    for (number, due_at) in [(10, Some(300)), (20, Some(100)), (30, None), (40, Some(100))] {
        let (_, mut new) = Conversation::draft(number);
        new.due_at = due_at.map(at);
        store.create_session(&new).await.unwrap();
    }
    assert_eq!(store.due_sessions(at(99), 9).await.unwrap(), []);
    let due = store.due_sessions(at(100), 9).await.unwrap();
    assert_eq!(due, [(session_id(20), at(100)), (session_id(40), at(100))]);
    let due = store.due_sessions(at(1000), 9).await.unwrap();
    let all = [(20, 100), (40, 100), (10, 300)].map(|(id, due)| (session_id(id), at(due)));
    assert_eq!(due, all);
    assert_eq!(store.due_sessions(at(1000), 1).await.unwrap(), [all[0]]);

    // A commit moves the deadline, or takes it away.
    let (mut conversation, _) = Conversation::draft(20);
    let mut commit = conversation.started();
    commit.due_at = None;
    store.commit(&commit).await.unwrap();
    let due = store.due_sessions(at(1000), 9).await.unwrap();
    assert_eq!(due, all[1..]);
}

pub(super) async fn the_expected_incarnation_is_that_of_what_may_run(store: &dyn Store) {
    assert_eq!(store.expected_incarnation(session_id(10)).await.unwrap(), None);
    store.deploy_agent(&agent_version(1, "first")).await.unwrap();
    store.deploy_agent(&NewAgentVersion { ..agent_version(1, "second") }).await.unwrap();
    let mut conversation = Conversation::begin(store, 10).await;
    let expected = store.expected_incarnation(session_id(10)).await.unwrap();
    assert_eq!(expected, Some(Incarnation::new(1)));

    // Stopping is not gone; gone is.
    store.commit(&conversation.request(Request::Stop)).await.unwrap();
    assert_eq!(store.expected_incarnation(session_id(10)).await.unwrap(), expected);
    store.commit(&conversation.gone()).await.unwrap();
    assert_eq!(store.expected_incarnation(session_id(10)).await.unwrap(), None);
}

/// A commit that only adds to the log is written in another way than one that moves the session
/// from one list to another. Whichever it was, the lists say what the session says.
pub(super) async fn every_list_follows_every_commit(store: &dyn Store) {
    deploy(store, 1).await;
    // Somebody else, to be left alone.
    Conversation::active(store, 5).await;
    let mut conversation = Conversation::begin(store, 10).await;
    let text = || ReportBody::TextDelta("text".to_owned());
    let due_at = |commit: Commit, millis: Option<i64>| Commit { due_at: millis.map(at), ..commit };

    // From starting to live, and a run that says something.
    record(store, conversation.started()).await;
    record(store, conversation.prompt(1, "hello")).await;
    record(store, conversation.report(1, text())).await;
    record(store, conversation.message(1, "only the log grows")).await;
    record(store, conversation.message(1, "again")).await;
    // Nothing but the deadline moves: nearer, away, away again, back.
    record(store, due_at(conversation.message(1, "nearer"), Some(100))).await;
    record(store, due_at(conversation.message(1, "the same"), Some(100))).await;
    record(store, due_at(conversation.message(1, "zero"), Some(0))).await;
    record(store, due_at(conversation.message(1, "none"), None)).await;
    record(store, due_at(conversation.message(1, "still none"), None)).await;
    record(store, due_at(conversation.message(1, "back"), Some(200))).await;
    // Not even the log grows.
    let nothing = conversation.started();
    assert_eq!(nothing.entries, []);
    record(store, due_at(nothing, Some(200))).await;
    // To frozen and back, and to another incarnation; then it is over.
    for commit in conversation.freeze() {
        record(store, commit).await;
    }
    record(store, conversation.request(Request::Resume(IfLost::default().into()))).await;
    let Sandbox::Thawing { asked, .. } = conversation.session.sandbox() else { panic!() };
    let incarnation = conversation.session.incarnation();
    record(store, conversation.observe(Fact::SandboxThawed { incarnation, asked })).await;
    record(store, conversation.message(1, "thawed")).await;
    record(store, conversation.request(Request::Stop)).await;
    record(store, conversation.gone()).await;
    record(store, conversation.request(Request::Resume(IfLost::default().into()))).await;
    record(store, conversation.started()).await;
    assert_eq!(conversation.session.incarnation(), Incarnation::new(2));
    record(store, conversation.prompt(2, "hello")).await;
    record(store, conversation.message(2, "only the log grows")).await;
    record(store, conversation.request(Request::End)).await;
    record(store, conversation.gone()).await;
}

/// Commits, and compares every list with what was committed.
async fn record(store: &dyn Store, commit: Commit) {
    store.commit(&commit).await.unwrap();
    let (session, id) = (&commit.session, commit.session.id());
    assert_eq!(store.session(&us(), id).await.unwrap().session, *session);
    let log = store.events_after(id, Seq::ZERO, 99).await.unwrap();
    assert_eq!(log.len() as u64, session.last_seq().get());
    assert!(log.ends_with(&commit.entries));

    let page = PageRequest { after: None, offset: 0, limit: 9 };
    for status in Status::ALL {
        let filter = SessionFilter { status: Some(status), ..SessionFilter::default() };
        let listed = store.sessions(&us(), &filter, &page).await.unwrap();
        let is_listed = listed.iter().any(|stored| stored.record.id == id);
        assert_eq!(is_listed, status == session.status(), "{status:?} of {session:?}");
        assert_eq!(store.count_sessions(&us(), &filter).await.unwrap(), listed.len() as u64);
    }
    let unsettled = store.unsettled_sessions(None, 9).await.unwrap();
    assert_eq!(unsettled.contains(&id), !session.is_at_rest(), "{session:?}");

    let incarnation = session.incarnation();
    let is_alive = matches!(session.sandbox(), Sandbox::Live | Sandbox::Frozen { .. });
    let alive = store.sandboxed_sessions(Some(session_id(5)), 9).await.unwrap();
    assert_eq!(alive, if is_alive { vec![(id, incarnation)] } else { vec![] }, "{session:?}");
    let expected = store.expected_incarnation(id).await.unwrap();
    let may_run = session.sandbox() != Sandbox::None;
    assert_eq!(expected, may_run.then_some(incarnation), "{session:?}");

    // Session 5 is live, and has no run.
    let is = |slot: bool| u64::from(slot);
    let live = is(session.sandbox() == Sandbox::Live);
    let census = Census {
        active_sessions: 1 + is(session.status() == Status::Active),
        starting: is(matches!(session.sandbox(), Sandbox::Starting { .. })),
        live: 1 + live,
        frozen: is(matches!(session.sandbox(), Sandbox::Frozen { .. })),
        running: live * is(session.current_run().is_some()),
    };
    assert_eq!(store.census().await.unwrap(), census, "{session:?}");

    let due = store.due_sessions(at(i64::MAX), 9).await.unwrap();
    assert_eq!(due.iter().find(|it| it.0 == id).map(|it| it.1), commit.due_at, "{session:?}");
    if let Some(due_at) = commit.due_at {
        let is_due = (id, due_at);
        let just_due = store.due_sessions(due_at, 9).await.unwrap();
        let not_yet = store.due_sessions(at(due_at.as_millis() - 1), 9).await.unwrap();
        assert_eq!(
            (just_due.contains(&is_due), not_yet.contains(&is_due)),
            (true, false),
            "{session:?}"
        );
    }
}
