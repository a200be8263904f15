//! Sessions: created, claimed, looked up and listed.

use ash_core::number::{AgentVersion, Fence, Incarnation, Seq};
use ash_core::session::{Request, Status};
use ash_store::{
    NewAgentVersion, NewSession, PageRequest, SessionFilter, SessionRecord, Store, StoredSession,
};

use crate::support::{
    Conversation, add_them, agent_id, agent_version, at, deploy, name, owner_id, receipt, refusal,
    session_id, settings, them, us,
};

pub(super) async fn a_new_session_comes_back_as_it_was_created(store: &dyn Store) {
    deploy(store, 1).await;
    let (_, mut new) = Conversation::draft(10);
    new.record.parent = Some(session_id(3));
    new.record.settings = settings("my title");
    assert_eq!(store.create_session(&new).await.unwrap(), Fence::new(1));
    let stored = store.session(&us(), session_id(10)).await.unwrap();
    assert_eq!(stored, StoredSession { record: new.record, session: new.session });
    let log = store.events_after(session_id(10), Seq::ZERO, 9).await.unwrap();
    assert_eq!(log, new.entries);
}

pub(super) async fn a_session_is_created_once(store: &dyn Store) {
    deploy(store, 1).await;
    let (_, new) = Conversation::draft(10);
    store.create_session(&new).await.unwrap();
    let mut again = new.clone();
    again.record.settings = settings("another");
    assert_eq!(refusal(store.create_session(&again).await), r#"Exists("session")"#);
    let stored = store.session(&us(), session_id(10)).await.unwrap();
    assert_eq!(stored.record.settings, settings("untitled"));
}

pub(super) async fn a_session_needs_a_deployed_agent_of_its_tenant(store: &dyn Store) {
    let (_, new) = Conversation::draft(10);
    assert_eq!(refusal(store.create_session(&new).await), r#"NotFound("agent")"#);

    deploy(store, 1).await;
    let of = |record: SessionRecord| NewSession { record, ..new.clone() };
    let second_version =
        of(SessionRecord { agent_version: AgentVersion::new(2), ..new.record.clone() });
    assert_eq!(refusal(store.create_session(&second_version).await), r#"NotFound("agent")"#);

    add_them(store).await;
    let theirs = of(SessionRecord { tenant: them(), ..new.record.clone() });
    assert_eq!(refusal(store.create_session(&theirs).await), r#"NotFound("agent")"#);

    store.delete_agent(&us(), &name("agent-1")).await.unwrap();
    assert_eq!(refusal(store.create_session(&new).await), r#"NotFound("agent")"#);
}

pub(super) async fn a_refused_creation_leaves_nothing(store: &dyn Store) {
    deploy(store, 1).await;
    let (_, mut first) = Conversation::draft(10);
    first.receipt = Some(receipt("used", 1));
    store.create_session(&first).await.unwrap();

    let (_, mut second) = Conversation::draft(20);
    second.receipt = Some(receipt("used", 2));
    assert_eq!(refusal(store.create_session(&second).await), r#"Exists("receipt")"#);
    let look_up = store.session(&us(), session_id(20)).await;
    assert_eq!(refusal(look_up), r#"NotFound("session")"#);
    let log = store.events_after(session_id(20), Seq::ZERO, 9).await;
    assert_eq!(refusal(log), r#"NotFound("session")"#);

    let (_, mut holed) = Conversation::draft(30);
    holed.entries.clear();
    assert!(refusal(store.create_session(&holed).await).starts_with("Conflict"));
    second.receipt = None;
    store.create_session(&second).await.unwrap();
}

pub(super) async fn another_tenants_session_does_not_exist(store: &dyn Store) {
    add_them(store).await;
    deploy(store, 1).await;
    Conversation::begin(store, 10).await;
    let look_up = store.session(&them(), session_id(10)).await;
    assert_eq!(refusal(look_up), r#"NotFound("session")"#);
    let (all, page) = (SessionFilter::default(), PageRequest { after: None, offset: 0, limit: 9 });
    assert_eq!(store.sessions(&them(), &all, &page).await.unwrap(), []);
    assert_eq!(store.count_sessions(&them(), &all).await.unwrap(), 0);
    assert_eq!(store.count_sessions(&us(), &all).await.unwrap(), 1);
}

pub(super) async fn every_claim_raises_the_fence(store: &dyn Store) {
    deploy(store, 1).await;
    let conversation = Conversation::begin(store, 10).await;
    for fence in [2, 3, 4] {
        // The same owner that claims again has a new life too.
        let claimed = store.claim_session(session_id(10), owner_id(2)).await.unwrap();
        assert_eq!(claimed.fence, Fence::new(fence));
        assert_eq!(claimed.session, conversation.session);
        assert_eq!(claimed.record.id, session_id(10));
    }
}

pub(super) async fn a_claim_of_nothing_finds_nothing(store: &dyn Store) {
    let claimed = store.claim_session(session_id(10), owner_id(2)).await;
    assert_eq!(refusal(claimed), r#"NotFound("session")"#);
}

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
        let filter = SessionFilter { agent: agent.map(name), status };
        let listed = store.sessions(&us(), &filter, &page).await.unwrap();
        assert_eq!(numbers(&listed), expected, "{filter:?}");
        let count = store.count_sessions(&us(), &filter).await.unwrap();
        assert_eq!(count, expected.len() as u64, "{filter:?}");
    }
}

pub(super) async fn sessions_that_are_not_at_rest_are_unsettled(store: &dyn Store) {
    deploy(store, 1).await;
    Conversation::begin(store, 10).await;
    Conversation::active(store, 20).await;
    let mut frozen = Conversation::active(store, 30).await;
    for commit in frozen.freeze() {
        store.commit(&commit).await.unwrap();
    }
    Conversation::active(store, 40).await;
    let unsettled = store.unsettled_sessions(None, 9).await.unwrap();
    assert_eq!(unsettled, [session_id(10), session_id(20), session_id(40)]);
    let rest = store.unsettled_sessions(Some(session_id(10)), 1).await.unwrap();
    assert_eq!(rest, [session_id(20)]);
    assert_eq!(store.unsettled_sessions(Some(session_id(40)), 9).await.unwrap(), []);
}

pub(super) async fn frozen_sessions_are_listed_with_their_incarnation(store: &dyn Store) {
    deploy(store, 1).await;
    for number in [10, 20, 30] {
        let mut conversation = Conversation::active(store, number).await;
        for commit in conversation.freeze() {
            store.commit(&commit).await.unwrap();
        }
        if number == 30 {
            store.commit(&conversation.request(Request::Resume)).await.unwrap();
        }
    }
    let one = Incarnation::new(1);
    let frozen = store.frozen_sessions(None, 9).await.unwrap();
    assert_eq!(frozen, [(session_id(10), one), (session_id(20), one)]);
    let rest = store.frozen_sessions(Some(session_id(10)), 9).await.unwrap();
    assert_eq!(rest, [(session_id(20), one)]);
    assert_eq!(store.frozen_sessions(None, 1).await.unwrap(), [(session_id(10), one)]);
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
    assert_eq!(due, [session_id(20), session_id(40)]);
    let due = store.due_sessions(at(1000), 9).await.unwrap();
    assert_eq!(due, [session_id(20), session_id(40), session_id(10)]);
    assert_eq!(store.due_sessions(at(1000), 1).await.unwrap(), [session_id(20)]);

    // A commit moves the deadline, or takes it away.
    let (mut conversation, _) = Conversation::draft(20);
    let mut commit = conversation.started();
    commit.due_at = None;
    store.commit(&commit).await.unwrap();
    let due = store.due_sessions(at(1000), 9).await.unwrap();
    assert_eq!(due, [session_id(40), session_id(10)]);
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
    let gone = conversation.observe(ash_core::session::Fact::SandboxGone {
        incarnation: Incarnation::new(1),
        death: ash_core::failure::Death::Stopped,
    });
    store.commit(&gone).await.unwrap();
    assert_eq!(store.expected_incarnation(session_id(10)).await.unwrap(), None);
}
