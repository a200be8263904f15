//! Agents: versions that never change, and settings beside them.

use std::collections::BTreeMap;

use ash_core::id::{AgentName, SessionId, TenantId};
use ash_core::json::Json;
use ash_core::number::AgentVersion;
use ash_core::session::Status;
use ash_core::time::Timestamp;

use super::{Row, Tables};
use crate::model::{Agent, NewAgentVersion};
use crate::{Result, StoreError};

impl Tables {
    /// The versions of a tenant's agent, oldest first.
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

    /// The latest version of a tenant's agent.
    pub(super) fn latest(&self, tenant: &TenantId, name: &AgentName) -> Result<Agent> {
        self.versions(tenant, name).next_back().ok_or(StoreError::NotFound("agent"))
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
            !self.deleted_agents.contains(&agent.id)
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
        if let Some(settings) = &new.settings {
            return self.configure(&new.tenant, &new.name, settings, new.at);
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
        let id = self.latest(tenant, name)?.id;
        self.configured.insert(id, (settings.clone(), at));
        self.latest(tenant, name)
    }

    /// The latest version of each of a tenant's agents, by name.
    pub(super) fn agents_of(&self, tenant: &TenantId) -> Vec<Agent> {
        let mut latest = BTreeMap::new();
        for agent in self.agents.values() {
            if agent.tenant == *tenant && !self.deleted_agents.contains(&agent.id) {
                latest.insert(agent.name.clone(), self.as_configured(agent));
            }
        }
        latest.into_values().collect()
    }

    pub(super) fn delete(&mut self, tenant: &TenantId, name: &AgentName) -> Result<Vec<SessionId>> {
        let id = self.latest(tenant, name)?.id;
        self.deleted_agents.insert(id);
        let theirs = self.sessions.values().filter(|row| row.record.agent == id);
        let going_on = theirs.filter(|row| row.session.status() != Status::Ended);
        Ok(going_on.map(|row| row.record.id).collect())
    }
}
