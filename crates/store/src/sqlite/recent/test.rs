use std::collections::BTreeMap;

use ash_core::id::{AgentId, AgentName};
use ash_core::json::Json;
use ash_core::number::AgentVersion;
use ash_core::policy::{Context, Policy};
use ash_core::session::Session;
use ash_core::time::Timestamp;

use super::*;
use crate::{SessionRecord, Settings};

fn id(number: u8) -> SessionId {
    SessionId::from_parts(Timestamp::from_millis(0), [number; 10])
}

fn us() -> TenantId {
    TenantId::default_tenant()
}

/// A session of ours, read with this title.
fn read(number: u8, title: &str) -> Arc<StoredSession> {
    let now = Timestamp::from_millis(0);
    let name: AgentName = "agent".parse().unwrap();
    let record = SessionRecord {
        id: id(number),
        tenant: us(),
        agent: AgentId::from_parts(now, [0; 10]),
        agent_name: name,
        agent_version: AgentVersion::new(1),
        parent: None,
        created_at: now,
        settings: Settings {
            title: Some(title.to_owned()),
            model: None,
            metadata: BTreeMap::new(),
            config: Json::of(&()).unwrap(),
        },
    };
    let (session, _) =
        Session::create(&Context { now, policy: &Policy::default() }, id(number), None);
    Arc::new(StoredSession { record, session })
}

fn missing(recent: &Recent, number: u8) -> Changes {
    match recent.look(&us(), id(number)) {
        Looked::Kept(_) => panic!("session {number} is kept"),
        Looked::Missing(changes) => changes,
    }
}

fn title(recent: &Recent, number: u8) -> Option<String> {
    match recent.look(&us(), id(number)) {
        Looked::Kept(kept) => kept.record.settings.title.clone(),
        Looked::Missing(_) => None,
    }
}

#[test]
fn what_was_read_is_found_until_it_changes() {
    let recent = Recent::default();
    recent.keep(&read(1, "one"), missing(&recent, 1));
    recent.keep(&read(2, "two"), missing(&recent, 2));
    assert_eq!(title(&recent, 1).as_deref(), Some("one"));
    recent.forget(Touched::None);
    recent.forget(Touched::Session(id(1)));
    assert_eq!((title(&recent, 1), title(&recent, 2).as_deref()), (None, Some("two")));
    recent.forget(Touched::All);
    assert_eq!(title(&recent, 2), None);
}

#[test]
fn what_was_read_before_a_change_is_not_kept_after_it() {
    let recent = Recent::default();
    for change in [Touched::Session(id(1)), Touched::All] {
        let changes = missing(&recent, 1);
        recent.forget(change);
        recent.keep(&read(1, "as it was before"), changes);
        assert_eq!(title(&recent, 1), None);
    }
}

#[test]
fn another_tenants_session_is_not_there() {
    let recent = Recent::default();
    recent.keep(&read(1, "ours"), missing(&recent, 1));
    let them: TenantId = "them".parse().unwrap();
    assert!(matches!(recent.look(&them, id(1)), Looked::Missing(_)));
}

#[test]
fn no_more_are_kept_than_the_bound_says() {
    let recent = Recent::default();
    // All of these fall to the same lock.
    let number = |n: u64| {
        let [.., a, b] = n.to_be_bytes();
        SessionId::from_parts(Timestamp::from_millis(0), [a, b, 0, 0, 0, 0, 0, 0, 0, 0])
    };
    for n in 0..(2 * MAX_KEPT as u64) {
        let mut session = (*read(1, "many")).clone();
        session.record.id = number(n);
        let Looked::Missing(changes) = recent.look(&us(), number(n)) else { panic!("{n} is kept") };
        recent.keep(&Arc::new(session), changes);
    }
    let kept = recent.shards.iter().map(|shard| lock(shard).kept.len()).sum::<usize>();
    assert_eq!(kept, MAX_KEPT);
}
