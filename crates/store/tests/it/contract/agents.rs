//! Agents and their versions.

use ash_core::json::Json;
use ash_core::number::{AgentVersion, Owner};
use ash_core::session::Request;
use ash_store::{
    Agent, NewAgentVersion, PageRequest, Receipt, SessionFilter, Store, StoredSession, UsageFilter,
};

use crate::support::{
    Conversation, add_them, agent_id, agent_version, at, deploy, json, name, receipt, refusal,
    session_id, them, us,
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
        settings: no_settings(),
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
    let versions = store.agent_versions(&us(), &agent).await.unwrap();
    let agents: Vec<Agent> = versions.into_iter().map(|version| version.agent).collect();
    assert_eq!(agents, [second, first]);
    let never = store.agent_version(&us(), &agent, AgentVersion::new(3)).await;
    assert_eq!(refusal(never), r#"NotFound("agent version")"#);
}

/// What an agent is set to that nobody has configured.
fn no_settings() -> Json {
    Json::parse("{}".to_owned()).unwrap()
}

pub(super) async fn settings_are_replaced_and_hold_for_every_version(store: &dyn Store) {
    let first = deploy(store, 1).await;
    deploy(store, 2).await;
    let agent = name("agent-1");
    let configured = store.configure_agent(&us(), &agent, &json("set"), at(30)).await.unwrap();
    assert_eq!(configured, Agent { settings: json("set"), updated_at: at(30), ..first.clone() });
    assert_eq!(store.agent(&us(), &agent).await.unwrap(), configured);

    // They stay over a deployment. Whatever was later says when the agent was updated.
    for (deployed_at, updated_at) in [(20, 30), (40, 40)] {
        let next = NewAgentVersion { at: at(deployed_at), ..agent_version(1, "next") };
        let next = store.deploy_agent(&next).await.unwrap();
        assert_eq!((next.settings.clone(), next.updated_at), (json("set"), at(updated_at)));
        assert_eq!(store.agent(&us(), &agent).await.unwrap(), next);
    }
    // Unless it brings others.
    let set =
        NewAgentVersion { settings: Some(json("brought")), at: at(40), ..agent_version(1, "next") };
    let next = store.deploy_agent(&set).await.unwrap();
    assert_eq!((next.settings.clone(), next.updated_at), (json("brought"), at(40)));
    assert_eq!(store.agent(&us(), &agent).await.unwrap(), next);
    let again = store.configure_agent(&us(), &agent, &json("again"), at(35)).await.unwrap();
    assert_eq!((again.version, again.updated_at), (AgentVersion::new(4), at(40)));
    let versions = store.agent_versions(&us(), &agent).await.unwrap();
    let seen: Vec<_> =
        versions.iter().map(|v| (v.agent.version.get(), v.agent.updated_at)).collect();
    assert_eq!(seen, [(4, at(40)), (3, at(40)), (2, at(35)), (1, at(35))]);
    assert!(versions.iter().all(|version| version.agent.settings == json("again")));
    let old = store.agent_version(&us(), &agent, AgentVersion::new(1)).await.unwrap();
    assert_eq!(old, Agent { settings: json("again"), updated_at: at(35), ..first });

    // Another agent, and an heir of the same name, are set to nothing.
    let listed = store.agents(&us()).await.unwrap();
    assert_eq!(listed[0], again);
    assert_eq!(listed[1].settings, no_settings());
    store.delete_agent(&us(), &agent).await.unwrap();
    let heir = NewAgentVersion { id: agent_id(3), ..agent_version(1, "heir") };
    assert_eq!(store.deploy_agent(&heir).await.unwrap().settings, no_settings());
}

pub(super) async fn a_deployment_leaves_a_receipt_with_its_version(store: &dyn Store) {
    deploy(store, 1).await;
    let asked = receipt("deployed", 5);
    let second = NewAgentVersion { receipt: Some(asked.clone()), ..agent_version(1, "second") };
    assert_eq!(store.deploy_agent(&second).await.unwrap().version, AgentVersion::new(2));
    let answer = format!(r#"{{"agent":"{}","version":2}}"#, agent_id(1));
    let answer = Json::parse(answer).unwrap();
    let kept = Receipt { answer, ..asked.clone() };
    assert_eq!(store.receipt(&asked.key).await.unwrap(), Some(kept.clone()));

    // The same request again adds no version, and no agent either.
    let third = NewAgentVersion { receipt: Some(receipt("deployed", 9)), ..second };
    assert_eq!(refusal(store.deploy_agent(&third).await), r#"Exists("receipt")"#);
    let other = NewAgentVersion { receipt: Some(asked.clone()), ..agent_version(2, "other") };
    assert_eq!(refusal(store.deploy_agent(&other).await), r#"Exists("receipt")"#);
    let agents = store.agents(&us()).await.unwrap();
    assert_eq!(agents.iter().map(|a| a.version.get()).collect::<Vec<_>>(), [2]);
    assert_eq!(store.receipt(&asked.key).await.unwrap(), Some(kept));
    // Its id is still to be had.
    assert_eq!(deploy(store, 2).await.id, agent_id(2));
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
    assert_eq!(refusal(store.agent_versions(&them(), &agent).await), r#"NotFound("agent")"#);
    let configured = store.configure_agent(&them(), &agent, &json("theirs"), at(5)).await;
    assert_eq!(refusal(configured), r#"NotFound("agent")"#);
    assert_eq!(store.agent(&us(), &agent).await.unwrap().settings, no_settings());
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
    assert_eq!(refusal(store.agent_versions(&us(), &agent).await), r#"NotFound("agent")"#);
    let configured = store.configure_agent(&us(), &agent, &json("late"), at(5)).await;
    assert_eq!(refusal(configured), r#"NotFound("agent")"#);
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
    assert_eq!(store.session_record(session_id(10)).await.unwrap().tenant, us());
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
