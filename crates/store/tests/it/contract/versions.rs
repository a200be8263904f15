//! Versions of agents as people know them.

use ash_core::number::AgentVersion;
use ash_core::session::Request;
use ash_store::{LabelledVersion, NewAgentVersion, NewLabel, Store, VersionChange, VersionLabel};

use crate::support::{
    Conversation, add_them, agent_version, at, deploy, json, name, refusal, them, us,
};

fn label(name: &str) -> VersionLabel {
    VersionLabel { name: Some(name.to_owned()), ..VersionLabel::default() }
}

async fn draft(store: &dyn Store, definition: &str, label: VersionLabel) -> AgentVersion {
    let label = NewLabel { label, is_draft: true };
    let new = NewAgentVersion { label, at: at(20), ..agent_version(1, definition) };
    store.deploy_agent(&new).await.unwrap().version
}

async fn change(
    store: &dyn Store,
    number: u32,
    change: VersionChange,
) -> ash_store::Result<LabelledVersion> {
    let number = AgentVersion::new(number);
    store.change_version(&us(), &name("agent-1"), number, &change, at(50)).await
}

fn amend(label: VersionLabel, definition: Option<&str>) -> VersionChange {
    VersionChange::Amend { label, definition: definition.map(json) }
}

/// The number, the content and whether it is active, of every version.
async fn seen(store: &dyn Store) -> Vec<(u32, u32, String, bool)> {
    let versions = store.agent_versions(&us(), &name("agent-1")).await.unwrap();
    let seen = versions.into_iter().map(|version| {
        let definition = version.agent.definition.get().trim_matches('"').to_owned();
        (version.number.get(), version.agent.version.get(), definition, version.is_active)
    });
    seen.collect()
}

fn row(number: u32, content: u32, definition: &str, is_active: bool) -> (u32, u32, String, bool) {
    (number, content, definition.to_owned(), is_active)
}

pub(super) async fn a_draft_is_a_version_that_new_sessions_do_not_get(store: &dyn Store) {
    // The first version is active, whatever it is called.
    let first = NewLabel { label: label("first"), is_draft: true };
    let first = NewAgentVersion { label: first, ..agent_version(1, "one") };
    assert_eq!(store.deploy_agent(&first).await.unwrap().version.get(), 1);
    assert_eq!(draft(store, "two", label("second")).await.get(), 2);
    assert_eq!(seen(store).await, [row(2, 2, "two", false), row(1, 1, "one", true)]);
    let active = store.agent(&us(), &name("agent-1")).await.unwrap();
    assert_eq!((active.version.get(), active.definition), (1, json("one")));
    assert_eq!(store.agents(&us()).await.unwrap()[0].version.get(), 1);
    let versions = store.agent_versions(&us(), &name("agent-1")).await.unwrap();
    assert_eq!(versions[0].label, label("second"));
    assert_eq!((versions[0].created_at, versions[0].changed_at), (at(20), at(20)));
}

pub(super) async fn another_version_becomes_the_active_one_and_a_deployment_takes_its_place(
    store: &dyn Store,
) {
    store.deploy_agent(&agent_version(1, "one")).await.unwrap();
    draft(store, "two", VersionLabel::default()).await;
    let activated = change(store, 2, VersionChange::Activate).await.unwrap();
    assert_eq!((activated.number.get(), activated.is_active), (2, true));
    assert_eq!(store.agent(&us(), &name("agent-1")).await.unwrap().definition, json("two"));
    // And back.
    change(store, 1, VersionChange::Activate).await.unwrap();
    assert_eq!(store.agent(&us(), &name("agent-1")).await.unwrap().definition, json("one"));
    let configured = store.configure_agent(&us(), &name("agent-1"), &json("set"), at(30)).await;
    assert_eq!(configured.unwrap().version.get(), 1);
    store.deploy_agent(&agent_version(1, "three")).await.unwrap();
    let expected = [row(3, 3, "three", true), row(2, 2, "two", false), row(1, 1, "one", false)];
    assert_eq!(seen(store).await, expected);
    let never = change(store, 4, VersionChange::Activate).await;
    assert_eq!(refusal(never), r#"NotFound("agent version")"#);
}

pub(super) async fn what_is_said_about_a_version_changes_and_the_rest_stays(store: &dyn Store) {
    deploy(store, 1).await;
    let said = VersionLabel {
        notes: Some("all of it".to_owned()),
        knowledge: Some(vec!["a.md".to_owned()]),
        ..label("one")
    };
    let amended = change(store, 1, amend(said.clone(), None)).await.unwrap();
    assert_eq!((&amended.label, amended.agent.version.get()), (&said, 1));
    assert_eq!((amended.created_at, amended.changed_at), (at(1), at(50)));
    let renamed = change(store, 1, amend(label("other"), None)).await.unwrap();
    let expected = VersionLabel { name: Some("other".to_owned()), ..said };
    assert_eq!(renamed.label, expected);
    let kept = store.agent_versions(&us(), &name("agent-1")).await.unwrap();
    assert_eq!(kept, [renamed]);
}

pub(super) async fn a_version_can_be_made_of_something_else_and_sessions_keep_what_they_had(
    store: &dyn Store,
) {
    deploy(store, 1).await;
    let mut session = Conversation::begin(store, 10).await;
    let amended = change(store, 1, amend(label("same"), Some("second"))).await.unwrap();
    assert_eq!((amended.number.get(), amended.agent.version.get()), (1, 2));
    assert_eq!((amended.created_at, amended.changed_at), (at(1), at(50)));
    assert_eq!((amended.is_active, amended.label), (true, label("same")));
    assert_eq!(seen(store).await, [row(1, 2, "second", true)]);
    assert_eq!(store.agent(&us(), &name("agent-1")).await.unwrap().definition, json("second"));
    // What the session was made with is found by its own number, and can be used once more: by a fork.
    let agent = name("agent-1");
    let old = store.agent_version(&us(), &agent, AgentVersion::new(1)).await.unwrap();
    assert_eq!(old.definition, json("first"));
    let mut used = store.used_definitions().await.unwrap();
    used.sort_by(|one, other| one.get().cmp(other.get()));
    assert_eq!(used, [json("first"), json("second")]);
    let mut second = Conversation::begin(store, 20).await;
    // The next one has a number of its own.
    assert_eq!(draft(store, "third", VersionLabel::default()).await.get(), 3);
    assert_eq!(seen(store).await, [row(3, 3, "third", false), row(1, 2, "second", true)]);
    // With its last session it goes.
    for session in [&mut session, &mut second] {
        store.commit(&session.request(Request::End)).await.unwrap();
        store.purge_session(session.id(), session.fence, &[]).await.unwrap();
    }
    let mut used = store.used_definitions().await.unwrap();
    used.sort_by(|one, other| one.get().cmp(other.get()));
    assert_eq!(used, [json("second"), json("third")]);
    let (_, late) = Conversation::draft(30);
    assert_eq!(refusal(store.create_session(&late).await), r#"NotFound("agent")"#);
}

pub(super) async fn a_deleted_version_is_gone_but_for_its_sessions(store: &dyn Store) {
    deploy(store, 1).await;
    let session = Conversation::begin(store, 10).await;
    store.deploy_agent(&agent_version(1, "second")).await.unwrap();
    let gone = change(store, 1, VersionChange::Delete).await.unwrap();
    assert_eq!((gone.number.get(), gone.agent.definition), (1, json("first")));
    assert_eq!(seen(store).await, [row(2, 2, "second", true)]);
    for other in [VersionChange::Activate, VersionChange::Delete, amend(label("x"), None)] {
        let refused = change(store, 1, other).await;
        assert_eq!(refusal(refused), r#"NotFound("agent version")"#);
    }
    let kept = store.agent_version(&us(), &name("agent-1"), AgentVersion::new(1)).await.unwrap();
    assert_eq!(kept.definition, json("first"));
    assert!(store.used_definitions().await.unwrap().contains(&json("first")));
    store.session(&us(), session.id()).await.unwrap();
    // Its number is not given again.
    assert_eq!(store.deploy_agent(&agent_version(1, "x")).await.unwrap().version.get(), 3);
}

pub(super) async fn the_active_version_is_not_deleted(store: &dyn Store) {
    deploy(store, 1).await;
    draft(store, "two", VersionLabel::default()).await;
    let refused = change(store, 1, VersionChange::Delete).await;
    assert_eq!(refusal(refused), r#"InUse("agent version")"#);
    change(store, 2, VersionChange::Activate).await.unwrap();
    change(store, 1, VersionChange::Delete).await.unwrap();
    assert_eq!(seen(store).await, [row(2, 2, "two", true)]);
    assert_eq!(store.used_definitions().await.unwrap(), [json("two")]);
}

pub(super) async fn another_tenants_versions_do_not_exist(store: &dyn Store) {
    add_them(store).await;
    deploy(store, 1).await;
    let (agent, first) = (name("agent-1"), AgentVersion::new(1));
    for change in [VersionChange::Activate, VersionChange::Delete, amend(label("x"), Some("x"))] {
        let refused = store.change_version(&them(), &agent, first, &change, at(5)).await;
        assert_eq!(refusal(refused), r#"NotFound("agent")"#);
    }
    assert_eq!(seen(store).await, [row(1, 1, "first", true)]);
}
