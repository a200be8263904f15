//! Agents.

use crate::api::{
    Agent, AgentBody, AgentDeleted, AgentVersion, AgentVersions, Agents, DeployAgent,
};

use super::error::ClientError;
use super::request::{Ask, Client, Repeat, Transfer, idempotency_key, segment};

impl Client {
    /// Deploys an agent; a new version, if its name is taken. `transfer` tells how far its files are.
    ///
    /// # Errors
    /// See [`ClientError`]; the same holds of every request below.
    pub async fn deploy_agent(
        &self,
        agent: &DeployAgent,
        transfer: &Transfer,
    ) -> Result<Agent, ClientError> {
        let repeat = Repeat::Keyed(idempotency_key());
        let mut ask = Ask::post("/api/agents".into(), agent, repeat);
        ask.transfer = Some(transfer.clone());
        let answer: AgentBody = self.ask(ask).await?;
        Ok(answer.agent)
    }

    /// All agents, by name.
    pub async fn agents(&self) -> Result<Vec<Agent>, ClientError> {
        let answer: Agents = self.ask(Ask::get("/api/agents".into())).await?;
        Ok(answer.agents)
    }

    /// One agent.
    pub async fn agent(&self, name: &str) -> Result<Agent, ClientError> {
        let path = format!("/api/agents/{}", segment(name));
        let answer: AgentBody = self.ask(Ask::get(path)).await?;
        Ok(answer.agent)
    }

    /// Deletes an agent and ends its sessions.
    pub async fn delete_agent(&self, name: &str) -> Result<AgentDeleted, ClientError> {
        self.ask(Ask::delete(format!("/api/agents/{}", segment(name)))).await
    }

    /// The versions of an agent, newest first.
    pub async fn agent_versions(&self, name: &str) -> Result<Vec<AgentVersion>, ClientError> {
        let path = format!("/api/agents/{}/versions", segment(name));
        let answer: AgentVersions = self.ask(Ask::get(path)).await?;
        Ok(answer.versions)
    }
}
