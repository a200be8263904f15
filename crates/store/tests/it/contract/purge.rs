//! What goes: snapshots that are not kept, and sessions whose time is over.

use ash_core::number::{Fence, Owner, Seq};
use ash_core::session::{ReportBody, Request, Sandbox};
use ash_store::{
    NewAgentVersion, PURGED_AT_ONCE, PageRequest, Place, SessionFilter, Spend, Store, UsageFilter,
};

use super::snapshots::{record, snapshot};
use crate::support::{
    Conversation, add_them, agent_version, at, deploy, json, name, refusal, session_id, task, them,
    us,
};

/// A session that has ended, with a log, a run and a snapshot.
async fn ended(store: &dyn Store, number: i64) -> Conversation {
    let mut conversation = Conversation::active(store, number).await;
    store.commit(&conversation.prompt(number * 100, "hello")).await.unwrap();
    let only = snapshot(u8::try_from(number).unwrap(), 1);
    record(store, &mut conversation, vec![only]).await.unwrap();
    store.commit(&conversation.request(Request::End)).await.unwrap();
    store.commit(&conversation.gone()).await.unwrap();
    conversation
}

pub(super) async fn all_but_the_latest_snapshots_are_pruned_and_those_that_are_needed(
    store: &dyn Store,
) {
    deploy(store, 1).await;
    let mut live = Conversation::active(store, 10).await;
    let all = (1..=6).map(|number| snapshot(number, u64::from(number))).collect();
    record(store, &mut live, all).await.unwrap();
    let id = |number: u8| snapshot(number, 0).captured.id;
    let gone = store.prune_snapshots(live.id(), 2, &[id(3)]).await.unwrap();
    assert_eq!(gone, [4, 2, 1].map(id));
    let left = store.snapshots(live.id(), 9).await.unwrap();
    let left: Vec<_> = left.iter().map(|stored| stored.snapshot.captured.id).collect();
    assert_eq!(left, [6, 5, 3].map(id));
    assert_eq!(store.prune_snapshots(live.id(), 9, &[]).await.unwrap(), []);
    let unknown = store.prune_snapshots(session_id(99), 1, &[]).await;
    assert_eq!(refusal(unknown), r#"NotFound("session")"#);
}

pub(super) async fn a_snapshot_is_needed_as_long_as_a_session_of_its_tenant_has_it_here(
    store: &dyn Store,
) {
    add_them(store).await;
    deploy(store, 1).await;
    let id = |number: u8| snapshot(number, 0).captured.id;
    let (mut one, mut other) =
        (Conversation::active(store, 10).await, Conversation::active(store, 20).await);
    record(store, &mut one, vec![snapshot(1, 1), snapshot(2, 2)]).await.unwrap();
    record(store, &mut other, vec![snapshot(1, 1)]).await.unwrap();
    let all = [3, 2, 1].map(id);
    assert_eq!(store.unneeded_snapshots(&us(), &all).await.unwrap(), [id(3)]);
    assert_eq!(store.unneeded_snapshots(&them(), &all).await.unwrap(), all);
    store.forget_snapshot(one.id(), id(1)).await.unwrap();
    assert_eq!(store.unneeded_snapshots(&us(), &all).await.unwrap(), [id(3)]);
    store.lost_snapshot(one.id(), id(2), Place::Local).await.unwrap();
    assert_eq!(store.unneeded_snapshots(&us(), &all).await.unwrap(), [id(3), id(2)]);
}

pub(super) async fn sessions_that_rest_are_listed_with_their_deadlines(store: &dyn Store) {
    deploy(store, 1).await;
    let live = Conversation::active(store, 30).await;
    for number in [10, 20, 40] {
        let mut conversation = Conversation::active(store, number).await;
        store.commit(&conversation.request(Request::Stop)).await.unwrap();
        let mut gone = conversation.gone();
        gone.due_at = (number != 20).then(|| at(number));
        store.commit(&gone).await.unwrap();
    }
    assert_eq!(live.session.sandbox(), Sandbox::Live);
    let first = store.resting_sessions(None, 2).await.unwrap();
    let shown = |(session, due): &(ash_core::session::Session, _)| (session.id(), *due);
    let rows: Vec<_> = first.sessions.iter().map(shown).collect();
    assert_eq!(rows, [(session_id(10), Some(at(10))), (session_id(20), None)]);
    assert_eq!(first.next, Some(session_id(20)));
    let rest = store.resting_sessions(first.next, 2).await.unwrap();
    let rows: Vec<_> = rest.sessions.iter().map(shown).collect();
    assert_eq!((rows, rest.next), (vec![(session_id(40), Some(at(40)))], None));
}

pub(super) async fn a_deadline_is_recorded_unless_the_log_has_grown(store: &dyn Store) {
    deploy(store, 1).await;
    let ended = ended(store, 10).await;
    let last = ended.session.last_seq();
    let page = store.resting_sessions(None, 9).await.unwrap();
    let recorded = page.sessions[0].1;
    store.redate_session(ended.id(), last, recorded, Some(at(5))).await.unwrap();
    assert_eq!(store.due_sessions(at(5), 9).await.unwrap(), [(ended.id(), at(5))]);
    let earlier = Seq::new(last.get() - 1);
    for (expected, recorded) in [(earlier, Some(at(5))), (last, Some(at(6))), (last, None)] {
        let stale = store.redate_session(ended.id(), expected, recorded, None).await;
        assert!(refusal(stale).starts_with("Conflict"));
    }
    store.redate_session(ended.id(), last, Some(at(5)), None).await.unwrap();
    assert_eq!(store.due_sessions(at(i64::MAX), 9).await.unwrap(), []);
    let unknown = store.redate_session(session_id(99), last, None, None).await;
    assert_eq!(refusal(unknown), r#"NotFound("session")"#);
}

pub(super) async fn a_purged_session_leaves_nothing(store: &dyn Store) {
    deploy(store, 1).await;
    let (one, other) = (ended(store, 10).await, ended(store, 20).await);
    store.add_spend(one.id(), Spend { cost: 1, tokens: 1 }).await.unwrap();
    for conversation in [&one, &other] {
        super::attachments::attach(store, conversation.id()).await;
    }
    store.purge_session(one.id(), one.fence, &[]).await.unwrap();
    let gone = r#"NotFound("session")"#;
    assert_eq!(refusal(store.session(&us(), one.id()).await), gone);
    assert_eq!(refusal(store.session_record(one.id()).await), gone);
    assert_eq!(refusal(store.events_after(one.id(), Seq::ZERO, 9).await), gone);
    assert_eq!(refusal(store.runs(one.id(), 9).await), gone);
    assert_eq!(refusal(store.spend(one.id()).await), gone);
    assert_eq!(refusal(store.snapshots(one.id(), 9).await), gone);
    assert_eq!(refusal(store.purge_session(one.id(), one.fence, &[]).await), gone);
    assert_eq!(store.expected_incarnation(one.id()).await.unwrap(), None);
    let (all, page) = (SessionFilter::default(), PageRequest { after: None, offset: 0, limit: 9 });
    let left = store.sessions(&us(), &all, &page).await.unwrap();
    assert_eq!(left.iter().map(|left| left.record.id).collect::<Vec<_>>(), [other.id()]);
    assert_eq!(store.usage(&us(), &UsageFilter::default()).await.unwrap().runs, 1);
    assert_eq!(store.snapshots(other.id(), 9).await.unwrap().len(), 1, "the other is as it was");
    assert_eq!(store.attachments(&us(), one.id()).await.unwrap(), []);
    assert_eq!(store.attachments(&us(), other.id()).await.unwrap().len(), 1);
    // The same id is as good as new.
    Conversation::begin(store, 10).await;
    assert_eq!(store.spend(one.id()).await.unwrap(), Spend::default());
}

pub(super) async fn a_long_log_goes_in_steps_and_nothing_of_it_is_found_meanwhile(
    store: &dyn Store,
) {
    let agent = deploy(store, 1).await;
    let mut long = Conversation::active(store, 10).await;
    store.commit(&long.prompt(1000, "tell me much")).await.unwrap();
    let much = (0..PURGED_AT_ONCE).map(|_| ReportBody::Message(json("more")));
    store.commit(&long.reports(1000, much)).await.unwrap();
    store.commit(&long.request(Request::End)).await.unwrap();
    store.commit(&long.gone()).await.unwrap();
    store.delete_agent(&us(), &name("agent-1")).await.unwrap();
    assert!(!store.purge_logs().await.unwrap(), "nothing was purged yet");
    store.purge_session(long.id(), long.fence, &[task(1, "cloud", 0)]).await.unwrap();
    let gone = r#"NotFound("session")"#;
    let mut steps = 0;
    loop {
        assert_eq!(refusal(store.session(&us(), long.id()).await), gone);
        assert_eq!(refusal(store.session_record(long.id()).await), gone);
        assert_eq!(refusal(store.events_after(long.id(), Seq::ZERO, 9).await), gone);
        assert_eq!(refusal(store.messages_after(long.id(), Seq::ZERO, 9).await), gone);
        assert_eq!(refusal(store.runs(long.id(), 9).await), gone);
        assert_eq!(refusal(store.claim_session(long.id(), Owner::new(9)).await), gone);
        assert_eq!(refusal(store.purge_session(long.id(), long.fence, &[]).await), gone);
        let all = SessionFilter::default();
        assert_eq!(store.count_sessions(&us(), &all).await.unwrap(), 0);
        assert_eq!(store.resting_sessions(None, 9).await.unwrap().sessions, []);
        assert_eq!(store.due_sessions(at(i64::MAX), 9).await.unwrap(), []);
        if !store.purge_logs().await.unwrap() {
            break;
        }
        steps += 1;
    }
    assert_eq!(steps, 2, "in steps");
    // Its agent went with it, and its id is free.
    let again = NewAgentVersion { id: agent.id, ..agent_version(1, "another") };
    store.deploy_agent(&again).await.unwrap();
    Conversation::begin(store, 10).await;
}

pub(super) async fn what_agents_consist_of_is_used_as_long_as_they_or_their_sessions_are(
    store: &dyn Store,
) {
    deploy(store, 1).await;
    let one = ended(store, 10).await;
    store.deploy_agent(&agent_version(1, "another")).await.unwrap();
    let used = async || {
        let mut used: Vec<String> =
            store.used_definitions().await.unwrap().iter().map(|it| it.get().to_owned()).collect();
        used.sort();
        used.len()
    };
    assert_eq!(used().await, 2);
    store.delete_agent(&us(), &name("agent-1")).await.unwrap();
    assert_eq!(used().await, 1, "the version that a session was made with");
    store.purge_session(one.id(), one.fence, &[]).await.unwrap();
    assert_eq!(used().await, 0);
}

pub(super) async fn only_a_session_that_has_ended_is_purged_and_only_by_its_owner(
    store: &dyn Store,
) {
    deploy(store, 1).await;
    let live = Conversation::active(store, 10).await;
    let refused = store.purge_session(live.id(), live.fence, &[]).await;
    assert!(refusal(refused).starts_with("Conflict"));
    let ended = ended(store, 20).await;
    let stale = Fence::new(ended.fence.get() - 1);
    assert!(refusal(store.purge_session(ended.id(), stale, &[]).await).starts_with("Fenced"));
    store.session(&us(), ended.id()).await.unwrap();
}

pub(super) async fn the_last_session_of_a_deleted_agent_takes_it_along(store: &dyn Store) {
    let agent = deploy(store, 1).await;
    let (one, other) = (ended(store, 10).await, ended(store, 20).await);
    store.delete_agent(&us(), &name("agent-1")).await.unwrap();
    store.purge_session(one.id(), one.fence, &[]).await.unwrap();
    let again = NewAgentVersion { id: agent.id, ..agent_version(2, "another") };
    let refused = store.deploy_agent(&again).await;
    assert_eq!(refusal(refused), r#"Exists("agent")"#, "a session still refers to it");
    store.purge_session(other.id(), other.fence, &[]).await.unwrap();
    store.deploy_agent(&again).await.unwrap();
}

pub(super) async fn what_follows_a_purge_is_written_with_it(store: &dyn Store) {
    deploy(store, 1).await;
    let (one, other) = (ended(store, 10).await, ended(store, 20).await);
    store.purge_session(one.id(), one.fence, &[task(1, "cloud", 0)]).await.unwrap();
    let twice = store.purge_session(other.id(), other.fence, &[task(1, "cloud", 0)]).await;
    assert_eq!(refusal(twice), r#"Exists("outbox task")"#);
    store.session(&us(), other.id()).await.unwrap();
    let tasks = store.claim_outbox("cloud", at(1), at(2), 9).await.unwrap();
    assert_eq!(tasks.len(), 1);
}
