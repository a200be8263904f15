//! Agents: versions that never change, and settings beside them.

use std::collections::BTreeMap;

use ash_core::id::{AgentId, AgentName, SessionId, TenantId};
use ash_core::json::Json;
use ash_core::number::AgentVersion;
use ash_core::session::Status;
use ash_core::time::Timestamp;

use super::{Row, Tables};
use crate::model::{Agent, NewAgentVersion};
use crate::{LabelledVersion, Result, StoreError, VersionChange, VersionLabel};

/// What people know a version by.
pub(super) struct Label {
    number: AgentVersion,
    label: VersionLabel,
    created_at: Timestamp,
    is_retired: bool,
}

impl Tables {
    /// What the versions of a tenant's agent consist of, oldest first, retired ones too.
    pub(super) fn versions<'a>(
        &'a self,
        tenant: &'a TenantId,
        name: &'a AgentName,
    ) -> impl DoubleEndedIterator<Item = Agent> {
        let theirs = self.agents.values().filter(move |agent| {
            agent.tenant == *tenant
                && agent.name == *name
                && !self.deleted_agents.contains(&agent.id)
        });
        theirs.map(|agent| self.as_configured(agent))
    }

    /// The active version of a tenant's agent.
    pub(super) fn active(&self, tenant: &TenantId, name: &AgentName) -> Result<Agent> {
        let active = self.versions(tenant, name).find(|agent| self.is_active(agent));
        active.ok_or(StoreError::NotFound("agent"))
    }

    fn is_active(&self, agent: &Agent) -> bool {
        self.active.get(&agent.id) == Some(&agent.version)
    }

    /// Whether a session can be made with a version: it is not retired, or another session was.
    pub(super) fn is_usable(&self, agent: &Agent) -> bool {
        let made_with = |of: &Row| (of.record.agent, of.record.agent_version);
        let is_retired = |label: &Label| label.is_retired;
        !self.labels.get(&(agent.id, agent.version)).is_some_and(is_retired)
            || self.sessions.values().any(|row| made_with(row) == (agent.id, agent.version))
    }

    /// The versions of a tenant's agent as people know them, newest first.
    pub(super) fn labelled(
        &self,
        tenant: &TenantId,
        name: &AgentName,
    ) -> Result<Vec<LabelledVersion>> {
        self.active(tenant, name)?;
        let labelled = |agent: Agent| {
            let label = self.labels.get(&(agent.id, agent.version))?;
            let Label { number, label, created_at, is_retired } = label;
            let version = LabelledVersion {
                number: *number,
                label: label.clone(),
                is_active: self.is_active(&agent),
                created_at: *created_at,
                changed_at: self.agents[&(agent.id, agent.version)].updated_at,
                agent,
            };
            (!is_retired).then_some(version)
        };
        let mut versions: Vec<_> = self.versions(tenant, name).filter_map(labelled).collect();
        versions.sort_by_key(|version| std::cmp::Reverse(version.number));
        Ok(versions)
    }

    pub(super) fn change_version(
        &mut self,
        tenant: &TenantId,
        name: &AgentName,
        number: AgentVersion,
        change: &VersionChange,
        at: Timestamp,
    ) -> Result<LabelledVersion> {
        let find = |tables: &Self| {
            let versions = tables.labelled(tenant, name)?;
            let found = versions.into_iter().find(|version| version.number == number);
            found.ok_or(StoreError::NotFound("agent version"))
        };
        let found = find(self)?;
        let id = found.agent.id;
        let content = (id, found.agent.version);
        match change {
            VersionChange::Amend { label, definition } => {
                let label = found.label.clone().with(label);
                let content = match definition {
                    Some(definition) => self.replace(&found, definition),
                    None => content,
                };
                self.labels.entry(content).and_modify(|kept| kept.label = label);
                self.agents.entry(content).and_modify(|kept| kept.updated_at = at);
            }
            VersionChange::Activate => {
                self.active.insert(id, found.agent.version);
            }
            VersionChange::Delete if found.is_active => {
                return Err(StoreError::InUse("agent version"));
            }
            VersionChange::Delete => {
                self.labels.entry(content).and_modify(|label| label.is_retired = true);
                return Ok(found);
            }
        }
        find(self)
    }

    /// Retires what a version consists of for something else.
    fn replace(&mut self, found: &LabelledVersion, definition: &Json) -> (AgentId, AgentVersion) {
        let old = (found.agent.id, found.agent.version);
        let latest = self.agents.keys().filter(|(id, _)| *id == old.0).map(|(_, of)| *of).max();
        let new = (old.0, latest.unwrap_or(old.1).next());
        let stored = self.agents[&old].clone();
        let definition = definition.clone();
        self.agents.insert(new, Agent { version: new.1, definition, ..stored });
        self.labels.entry(old).and_modify(|label| label.is_retired = true);
        let label = Label {
            number: found.number,
            label: VersionLabel::default(),
            created_at: found.created_at,
            is_retired: false,
        };
        self.labels.insert(new, label);
        if found.is_active {
            self.active.insert(new.0, new.1);
        }
        new
    }

    /// A version with what its agent is set to.
    fn as_configured(&self, version: &Agent) -> Agent {
        match self.configured.get(&version.id) {
            Some((settings, at)) => Agent {
                settings: settings.clone(),
                updated_at: version.updated_at.max(*at),
                ..version.clone()
            },
            None => version.clone(),
        }
    }

    /// What every version consists of that can be used, or that a session was made with.
    pub(super) fn used_definitions(&self) -> Vec<Json> {
        let is_used = |agent: &&Agent| {
            let made_with = |of: &Row| (of.record.agent, of.record.agent_version);
            let is_retired =
                self.labels.get(&(agent.id, agent.version)).is_some_and(|label| label.is_retired);
            !(is_retired || self.deleted_agents.contains(&agent.id))
                || self.sessions.values().any(|row| made_with(row) == (agent.id, agent.version))
        };
        let used = self.agents.values().filter(is_used);
        used.map(|agent| agent.definition.clone()).collect()
    }

    pub(super) fn deploy(&mut self, new: &NewAgentVersion) -> Result<Agent> {
        if !self.tenants.contains_key(&new.tenant) {
            return Err(StoreError::NotFound("tenant"));
        }
        let latest = self.versions(&new.tenant, &new.name).next_back();
        let first_version = AgentVersion::new(1);
        if latest.is_none() && self.agents.contains_key(&(new.id, first_version)) {
            return Err(StoreError::Exists("agent"));
        }
        let version = latest.as_ref().map_or(first_version, |latest| latest.version.next());
        let agent = Agent {
            id: latest.as_ref().map_or(new.id, |latest| latest.id),
            tenant: new.tenant.clone(),
            name: new.name.clone(),
            version,
            definition: new.definition.clone(),
            settings: Json::parse("{}".to_owned()).expect("an empty object is JSON"),
            created_at: latest.map_or(new.at, |latest| latest.created_at),
            updated_at: new.at,
        };
        let receipt = new.receipt_of(&agent.id.to_string(), version);
        self.check_receipt(receipt.as_ref())?;
        self.keep_receipt(receipt.as_ref());
        self.agents.insert((agent.id, version), agent.clone());
        let label = Label {
            number: version,
            label: new.label.label.clone(),
            created_at: new.at,
            is_retired: false,
        };
        self.labels.insert((agent.id, version), label);
        if !new.label.is_draft || version == first_version {
            self.active.insert(agent.id, version);
        }
        if let Some(settings) = &new.settings {
            self.configure(&new.tenant, &new.name, settings, new.at)?;
        }
        Ok(self.as_configured(&agent))
    }

    pub(super) fn configure(
        &mut self,
        tenant: &TenantId,
        name: &AgentName,
        settings: &Json,
        at: Timestamp,
    ) -> Result<Agent> {
        let id = self.active(tenant, name)?.id;
        self.configured.insert(id, (settings.clone(), at));
        self.active(tenant, name)
    }

    /// The active version of each of a tenant's agents, by name.
    pub(super) fn agents_of(&self, tenant: &TenantId) -> Vec<Agent> {
        let mut active = BTreeMap::new();
        for agent in self.agents.values() {
            let is_theirs = agent.tenant == *tenant && !self.deleted_agents.contains(&agent.id);
            if is_theirs && self.is_active(agent) {
                active.insert(agent.name.clone(), self.as_configured(agent));
            }
        }
        active.into_values().collect()
    }

    pub(super) fn delete(&mut self, tenant: &TenantId, name: &AgentName) -> Result<Vec<SessionId>> {
        let id = self.active(tenant, name)?.id;
        self.deleted_agents.insert(id);
        let theirs = self.sessions.values().filter(|row| row.record.agent == id);
        let going_on = theirs.filter(|row| row.session.status() != Status::Ended);
        Ok(going_on.map(|row| row.record.id).collect())
    }
}
