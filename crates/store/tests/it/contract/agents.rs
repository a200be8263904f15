//! Agents and their versions.

use ash_core::number::{AgentVersion, Owner};
use ash_core::session::Request;
use ash_store::{
    Agent, NewAgentVersion, PageRequest, SessionFilter, Store, StoredSession, UsageFilter,
};

use crate::support::{
    Conversation, add_them, agent_id, agent_version, at, deploy, json, name, refusal, session_id,
    them, us,
};

pub(super) async fn versions_are_numbered_and_do_not_change(store: &dyn Store) {
    let first = store.deploy_agent(&agent_version(1, "first")).await.unwrap();
    let second = NewAgentVersion {
        id: agent_id(77), // only the first deployment names the agent
        at: at(20),
        ..agent_version(1, "second")
    };
    let second = store.deploy_agent(&second).await.unwrap();
    let expected = Agent {
        id: agent_id(1),
        tenant: us(),
        name: name("agent-1"),
        version: AgentVersion::new(1),
        definition: json("first"),
        created_at: at(1),
        updated_at: at(1),
    };
    assert_eq!(first, expected);
    assert_eq!(
        second,
        Agent {
            version: AgentVersion::new(2),
            definition: json("second"),
            updated_at: at(20),
            ..expected
        }
    );
    let agent = name("agent-1");
    assert_eq!(store.agent(&us(), &agent).await.unwrap(), second);
    let old = store.agent_version(&us(), &agent, AgentVersion::new(1)).await.unwrap();
    assert_eq!(old, first);
    let never = store.agent_version(&us(), &agent, AgentVersion::new(3)).await;
    assert_eq!(refusal(never), r#"NotFound("agent version")"#);
}

pub(super) async fn agents_are_listed_by_name_in_their_latest_version(store: &dyn Store) {
    deploy(store, 2).await;
    deploy(store, 1).await;
    store.deploy_agent(&agent_version(2, "second")).await.unwrap();
    let agents = store.agents(&us()).await.unwrap();
    let listed: Vec<_> = agents.iter().map(|a| (a.name.as_str(), a.version.get())).collect();
    assert_eq!(listed, [("agent-1", 1), ("agent-2", 2)]);
}

pub(super) async fn another_tenants_agent_does_not_exist(store: &dyn Store) {
    add_them(store).await;
    deploy(store, 1).await;
    let agent = name("agent-1");
    assert_eq!(refusal(store.agent(&them(), &agent).await), r#"NotFound("agent")"#);
    let version = store.agent_version(&them(), &agent, AgentVersion::new(1)).await;
    assert_eq!(refusal(version), r#"NotFound("agent version")"#);
    assert_eq!(refusal(store.delete_agent(&them(), &agent).await), r#"NotFound("agent")"#);
    assert_eq!(store.agents(&them()).await.unwrap(), []);

    // The same name is theirs to use.
    let theirs = NewAgentVersion { id: agent_id(9), tenant: them(), ..agent_version(1, "theirs") };
    assert_eq!(store.deploy_agent(&theirs).await.unwrap().version, AgentVersion::new(1));
    assert_eq!(store.agent(&us(), &agent).await.unwrap().id, agent_id(1));
}

pub(super) async fn an_agent_needs_its_tenant(store: &dyn Store) {
    let orphan = NewAgentVersion { tenant: them(), ..agent_version(1, "orphan") };
    assert_eq!(refusal(store.deploy_agent(&orphan).await), r#"NotFound("tenant")"#);
}

pub(super) async fn an_agents_id_is_never_used_for_another(store: &dyn Store) {
    deploy(store, 1).await;
    let imposter = NewAgentVersion { name: name("imposter"), ..agent_version(1, "other") };
    assert_eq!(refusal(store.deploy_agent(&imposter).await), r#"Exists("agent")"#);
    store.delete_agent(&us(), &name("agent-1")).await.unwrap();
    let revenant = store.deploy_agent(&agent_version(1, "again")).await;
    assert_eq!(refusal(revenant), r#"Exists("agent")"#);
    assert_eq!(store.agents(&us()).await.unwrap(), []);
}

pub(super) async fn a_deleted_agent_is_gone_and_its_name_is_free(store: &dyn Store) {
    deploy(store, 1).await;
    let agent = name("agent-1");
    assert_eq!(store.delete_agent(&us(), &agent).await.unwrap(), []);
    assert_eq!(refusal(store.agent(&us(), &agent).await), r#"NotFound("agent")"#);
    assert_eq!(refusal(store.delete_agent(&us(), &agent).await), r#"NotFound("agent")"#);
    assert_eq!(store.agents(&us()).await.unwrap(), []);

    let heir = NewAgentVersion { id: agent_id(2), ..agent_version(1, "heir") };
    let heir = store.deploy_agent(&heir).await.unwrap();
    assert_eq!((heir.id, heir.version), (agent_id(2), AgentVersion::new(1)));
}

pub(super) async fn deleting_an_agent_names_the_sessions_that_go_on(store: &dyn Store) {
    deploy(store, 1).await;
    for number in [30, 10, 20] {
        Conversation::begin(store, number).await;
    }
    let mut ended = Conversation::begin(store, 40).await;
    store.commit(&ended.request(Request::End)).await.unwrap();
    let going_on = store.delete_agent(&us(), &name("agent-1")).await.unwrap();
    assert_eq!(going_on, [session_id(10), session_id(20), session_id(30)]);
}

pub(super) async fn the_sessions_of_a_deleted_agent_are_hidden_but_can_be_claimed(
    store: &dyn Store,
) {
    deploy(store, 1).await;
    let mut hidden = Conversation::active(store, 10).await;
    store.delete_agent(&us(), &name("agent-1")).await.unwrap();

    let look_up = store.session(&us(), session_id(10)).await;
    assert_eq!(refusal(look_up), r#"NotFound("session")"#);
    let (all, page) = (SessionFilter::default(), PageRequest { after: None, offset: 0, limit: 9 });
    let listed: Vec<StoredSession> = store.sessions(&us(), &all, &page).await.unwrap();
    assert_eq!(listed, []);
    assert_eq!(store.count_sessions(&us(), &all).await.unwrap(), 0);

    // Whoever has to end it still finds it, and can write it.
    assert_eq!(store.unsettled_sessions(None, 9).await.unwrap(), [session_id(10)]);
    let claimed = store.claim_session(session_id(10), Owner::new(2)).await.unwrap();
    hidden.fence = claimed.fence;
    store.commit(&hidden.request(Request::End)).await.unwrap();
    assert_eq!(store.usage(&us(), &UsageFilter::default()).await.unwrap().runs, 0);

    // A new session needs an agent that is there, even with the same name.
    let heir = NewAgentVersion { id: agent_id(2), ..agent_version(1, "heir") };
    store.deploy_agent(&heir).await.unwrap();
    let (_, new) = Conversation::draft(50);
    assert_eq!(refusal(store.create_session(&new).await), r#"NotFound("agent")"#);
    let look_up = store.session(&us(), session_id(10)).await;
    assert_eq!(refusal(look_up), r#"NotFound("session")"#);
}
