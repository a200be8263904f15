//! Sessions: created and looked up.

use ash_core::number::{AgentVersion, Fence, Seq};
use ash_store::{
    NewSession, PageRequest, SessionFilter, SessionRecord, Spend, Store, StoreError, StoredSession,
};

use crate::support::{
    Conversation, add_them, deploy, name, receipt, refusal, session_id, settings, them, us,
};

pub(super) async fn a_new_session_comes_back_as_it_was_created(store: &dyn Store) {
    deploy(store, 1).await;
    let (_, mut new) = Conversation::draft(10);
    new.record.parent = Some(session_id(3));
    new.record.settings = settings("my title");
    assert_eq!(store.create_session(&new).await.unwrap(), Fence::new(1));
    let stored = store.session(&us(), session_id(10)).await.unwrap();
    assert_eq!(*stored, StoredSession { record: new.record, session: new.session });
    let log = store.events_after(session_id(10), Seq::ZERO, 9).await.unwrap();
    assert_eq!(log, new.entries);
}

pub(super) async fn what_a_session_spends_is_added_up_for_it_alone(store: &dyn Store) {
    deploy(store, 1).await;
    let (one, other) = (Conversation::begin(store, 10).await, Conversation::begin(store, 20).await);
    assert_eq!(store.spend(one.id()).await.unwrap(), Spend::default());
    store.add_spend(one.id(), Spend { cost: 5, tokens: 7 }).await.unwrap();
    store.add_spend(one.id(), Spend { cost: 1, tokens: 0 }).await.unwrap();
    assert_eq!(store.spend(one.id()).await.unwrap(), Spend { cost: 6, tokens: 7 });
    assert_eq!(store.spend(other.id()).await.unwrap(), Spend::default());
    // However absurd, it stays a sum that can be read.
    for _ in 0..3 {
        store.add_spend(one.id(), Spend { cost: u64::MAX, tokens: u64::MAX }).await.unwrap();
    }
    let most = Spend { cost: 1 << 60, tokens: 1 << 60 };
    assert_eq!(store.spend(one.id()).await.unwrap(), most);
    let gone = r#"NotFound("session")"#;
    assert_eq!(refusal(store.spend(session_id(99)).await), gone);
    assert_eq!(refusal(store.add_spend(session_id(99), Spend::default()).await), gone);
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

pub(super) async fn a_session_whose_record_names_another_is_a_conflict(store: &dyn Store) {
    deploy(store, 1).await;
    Conversation::begin(store, 10).await;
    let (_, mut new) = Conversation::draft(20);
    for other in [10, 30] {
        new.record.id = session_id(other);
        let error = store.create_session(&new).await.unwrap_err();
        let StoreError::Conflict { session, expected } = error else { panic!("{error:?}") };
        assert_eq!((session, expected), (session_id(other), Seq::ZERO));
    }
    for absent in [20, 30] {
        let look_up = store.session(&us(), session_id(absent)).await;
        assert_eq!(refusal(look_up), r#"NotFound("session")"#);
    }
    new.record.id = session_id(20);
    store.create_session(&new).await.unwrap();
}
