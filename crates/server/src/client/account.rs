//! Keys, credentials, usage, and the server's health.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::api::{
    ApiKey, ApiKeyMade, ApiKeys, Credential, CredentialBody, Credentials, NewApiKey, NewCredential,
    Stats, UsageStats,
};

use super::error::ClientError;
use super::request::{Ask, Client, Repeat, idempotency_key, segment};

/// How a server is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Health {
    /// `ok`, whenever it answers.
    pub status: String,
    /// Its version.
    #[serde(default)]
    pub version: String,
    /// For how many seconds it has been up.
    #[serde(default)]
    pub uptime: f64,
    /// What keeps agents from the rest of its machine.
    #[serde(default)]
    pub isolation: String,
    /// What keeps the files of its sandboxes within their limit.
    #[serde(default)]
    pub disk: String,
    /// Whether what happens in sessions can be recorded.
    #[serde(default = "yes", rename = "canRecord")]
    pub can_record: bool,
    /// What else it says.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// Servers that do not say so can.
const fn yes() -> bool {
    true
}

impl Client {
    /// Makes an API key. Its secret is in the answer and nowhere else.
    pub async fn create_key(&self, key: &NewApiKey) -> Result<ApiKeyMade, ClientError> {
        let repeat = Repeat::Keyed(idempotency_key());
        self.ask(Ask::post("/api/api-keys".into(), key, repeat)).await
    }

    /// The API keys, oldest first.
    pub async fn keys(&self) -> Result<Vec<ApiKey>, ClientError> {
        let answer: ApiKeys = self.ask(Ask::get("/api/api-keys".into())).await?;
        Ok(answer.keys)
    }

    /// Revokes an API key.
    pub async fn revoke_key(&self, id: &str) -> Result<Value, ClientError> {
        self.ask(Ask::delete(format!("/api/api-keys/{}", segment(id)))).await
    }

    /// Keeps a credential.
    pub async fn add_credential(&self, new: &NewCredential) -> Result<Credential, ClientError> {
        let repeat = Repeat::Keyed(idempotency_key());
        let answer: CredentialBody =
            self.ask(Ask::post("/api/credentials".into(), new, repeat)).await?;
        Ok(answer.credential)
    }

    /// The credentials, oldest first.
    pub async fn credentials(&self) -> Result<Vec<Credential>, ClientError> {
        let answer: Credentials = self.ask(Ask::get("/api/credentials".into())).await?;
        Ok(answer.credentials)
    }

    /// Forgets a credential.
    pub async fn remove_credential(&self, id: &str) -> Result<Value, ClientError> {
        self.ask(Ask::delete(format!("/api/credentials/{}", segment(id)))).await
    }

    /// What all runs consumed together.
    pub async fn usage_stats(&self) -> Result<Stats, ClientError> {
        let answer: UsageStats = self.ask(Ask::get("/api/usage/stats".into())).await?;
        Ok(answer.stats)
    }

    /// How the server is. Needs no key.
    pub async fn health(&self) -> Result<Health, ClientError> {
        self.ask(Ask::get("/health".into())).await
    }
}
