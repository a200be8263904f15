//! What a session's requests go out with: its credentials, its budget, and the hosts of its agent.

use std::sync::Arc;

use ash_core::id::{CredentialId, SessionId, TenantId};
use ash_engine::agent::{Destination, Host, split_port};
use ash_store::{Credential, SessionRecord, Store, StoreError};
use axum::http::{HeaderName, HeaderValue, header};
use serde::{Deserialize, Serialize};

use crate::agents::definition_of;
use crate::egress::{Budget, ModelKey};
use crate::secret::{Sealer, credential_context};
use crate::sessions::Options;

/// The kind of a credential for the model.
pub(crate) const ANTHROPIC: &str = "anthropic";
/// The kind of a credential for a host.
pub(crate) const CUSTOM: &str = "custom";

/// Why no session can use a credential of a kind, if none can; one of kind `custom` may lack a host. The original puts all of
/// them into the sandbox, where everything that runs can read them.
pub(crate) fn unusable(kind: &str, for_host: Option<&CustomSecret>) -> Option<&'static str> {
    match (kind, for_host) {
        (ANTHROPIC, _) | (CUSTOM, Some(_)) => None,
        (CUSTOM, None) => Some(
            "It names no header and no host, so there is nothing to send it with: keep one that has both",
        ),
        ("openai", _) => Some(
            "A credential of type openai would have to enter the sandbox, and none does: for the OpenAI API, keep one of \
             type custom with the header authorization and the host api.openai.com",
        ),
        (_, _) => Some(
            "A credential of type bedrock would have to enter the sandbox to sign requests there, and none does: Bedrock \
             cannot be used",
        ),
    }
}

/// Checks that a key of Amazon Bedrock is what the clients of the original send.
///
/// # Errors
/// A sentence about what is wrong with it.
pub(crate) fn check_bedrock(key: &str) -> Result<(), String> {
    let parts = "accessKeyId, secretAccessKey and region, each a text that is not empty";
    let wrong = || format!("The key of a credential of type bedrock must be JSON with {parts}");
    let given: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(key).map_err(|_| wrong())?;
    for name in ["accessKeyId", "secretAccessKey", "region"] {
        let is_there = given.get(name).and_then(|value| value.as_str());
        if is_there.is_none_or(str::is_empty) {
            return Err(format!("{}; {name} is missing", wrong()));
        }
    }
    match given.get("sessionToken") {
        None | Some(serde_json::Value::Null | serde_json::Value::String(_)) => Ok(()),
        Some(_) => Err(format!("{}; sessionToken is not a text", wrong())),
    }
}

/// Headers that say how a request is sent, which a credential cannot be.
const NO_CREDENTIAL: [HeaderName; 8] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::EXPECT,
    header::HOST,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Looks up what a session's requests go out with when its agent asks, and not before.
pub(crate) struct SessionCredentials {
    store: Arc<dyn Store>,
    sealer: Sealer,
}

/// A credential that was used, and whose it is.
pub(crate) type Used = (TenantId, CredentialId);

/// What a session's requests to the model are made with.
#[derive(Default)]
pub(crate) struct Terms {
    /// Its own key; none: the server's.
    pub(crate) key: Option<ModelKey>,
    pub(crate) budget: Budget,
    pub(crate) used: Option<Used>,
}

/// A credential for one host, ready to be added to a request.
pub(crate) struct Custom {
    pub(crate) scheme: Scheme,
    pub(crate) port: u16,
    pub(crate) header: HeaderName,
    pub(crate) value: HeaderValue,
    pub(crate) used: Used,
}

/// How a host is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// In plain text, within a network that the operator has named.
    Http,
    /// Encrypted.
    Https,
}

impl Scheme {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// A credential for a host as it is sealed: whoever can write to the database cannot send it elsewhere.
#[derive(Serialize, Deserialize)]
pub(crate) struct CustomSecret {
    key: String,
    /// The header that carries it.
    pub(crate) header: String,
    /// Where it goes, as [`Place`] reads it.
    pub(crate) host: String,
}

/// Where a credential goes: `api.example.com`, with a port behind it or `http://` before it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    scheme: Scheme,
    host: Host,
    port: Option<u16>,
}

impl Place {
    fn parse(text: &str) -> Result<Self, String> {
        let (scheme, rest) = match text.split_once("://") {
            Some(("http", rest)) => (Scheme::Http, rest),
            Some(("https", rest)) => (Scheme::Https, rest),
            Some(_) => return Err("host is spoken to by https or http".to_owned()),
            None => (Scheme::Https, text),
        };
        let (host, port) = split_port(rest).ok_or("host has a port that is none")?;
        let host = Host::parse(host).map_err(|error| format!("host is not taken: {error}"))?;
        Ok(Self { scheme, host, port })
    }

    fn port(&self) -> u16 {
        self.port.unwrap_or(match self.scheme {
            Scheme::Http => 80,
            Scheme::Https => 443,
        })
    }

    /// Whether a request is meant for it. A sandbox speaks plain HTTP to the proxy, and so it says port 80.
    fn is_meant(&self, host: &Host, port: u16) -> bool {
        let is_usual = self.port.is_none() && matches!(port, 80 | 443);
        self.host == *host && (self.port() == port || is_usual)
    }
}

impl CustomSecret {
    /// What is to be sealed.
    ///
    /// # Errors
    /// A sentence about what is wrong with it.
    pub(crate) fn new(key: String, header: String, host: String) -> Result<Self, String> {
        let name: HeaderName =
            header.parse().map_err(|_| "header is no name of a header".to_owned())?;
        if NO_CREDENTIAL.contains(&name) || name.as_str().starts_with("proxy-") {
            return Err(format!("the header {name} cannot be a credential"));
        }
        Place::parse(&host)?;
        HeaderValue::from_str(&key).map_err(|_| "key does not fit into a header".to_owned())?;
        Ok(Self { key, header: name.as_str().to_owned(), host })
    }

    pub(crate) fn plain(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }

    /// What was sealed; nothing, if it was a key and no more.
    pub(crate) fn open(credential: &Credential, sealer: &Sealer) -> Option<Self> {
        let context = credential_context(&credential.tenant, credential.id);
        serde_json::from_slice(&sealer.open(&credential.sealed, &context).ok()?).ok()
    }

    /// Whether two go to the same place.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        match (Place::parse(&self.host), Place::parse(&other.host)) {
            (Ok(one), Ok(other)) => one.host == other.host && one.port() == other.port(),
            (Err(_), _) | (_, Err(_)) => false,
        }
    }
}

fn unreadable(error: &dyn std::fmt::Display) -> String {
    format!("the session's credential cannot be read: {error}")
}

impl SessionCredentials {
    pub(crate) fn new(store: Arc<dyn Store>, sealer: Sealer) -> Self {
        Self { store, sealer }
    }

    /// What a session's requests to the model are made with. An error is a sentence for whoever asked: it has no key
    /// then, not another one.
    pub(crate) async fn terms(&self, session: SessionId) -> Result<Terms, String> {
        let (record, options) = self.options(session).await?;
        let budget = Budget { usd: options.budget_usd, tokens: options.budget_tokens };
        let Some(id) = options.credential_id else {
            return Ok(Terms { budget, ..Terms::default() });
        };
        let credential = self.credential(&record.tenant, id).await?;
        if credential.kind != ANTHROPIC {
            let kind = credential.kind;
            return Err(format!("the session's credential is for {kind}, and not for the model"));
        }
        let context = credential_context(&record.tenant, id);
        let key =
            self.sealer.open(&credential.sealed, &context).map_err(|error| unreadable(&error))?;
        let key = String::from_utf8(key).map_err(|error| unreadable(&error))?;
        Ok(Terms { key: Some(ModelKey::new(key)), budget, used: Some((record.tenant, id)) })
    }

    /// The session's credential for a host, if it has one.
    pub(crate) async fn custom(
        &self,
        session: SessionId,
        host: &Host,
        port: u16,
    ) -> Result<Option<Custom>, String> {
        let (record, options) = self.options(session).await?;
        for id in options.credential_ids {
            // Where one that was removed would have gone is not known any more; it keeps nobody from anything.
            let Ok(credential) = self.credential(&record.tenant, id).await else { continue };
            let Some(secret) = CustomSecret::open(&credential, &self.sealer) else { continue };
            let Ok(place) = Place::parse(&secret.host) else { continue };
            if !place.is_meant(host, port) {
                continue;
            }
            let header = secret.header.parse().map_err(|error| unreadable(&error))?;
            let mut value =
                HeaderValue::from_str(&secret.key).map_err(|error| unreadable(&error))?;
            value.set_sensitive(true);
            let (scheme, port, used) = (place.scheme, place.port(), (record.tenant, id));
            return Ok(Some(Custom { scheme, port, header, value, used }));
        }
        Ok(None)
    }

    /// The hosts that a session's agent may reach.
    pub(crate) async fn destinations(
        &self,
        session: SessionId,
    ) -> Result<Vec<Destination>, String> {
        let unreadable =
            |error: &dyn std::fmt::Display| format!("the session's agent cannot be read: {error}");
        let record =
            self.store.session_record(session).await.map_err(|error| unreadable(&error))?;
        let agent = self
            .store
            .agent_version(&record.tenant, &record.agent_name, record.agent_version)
            .await
            .map_err(|error| unreadable(&error))?;
        let definition = definition_of(&agent).map_err(|error| unreadable(&error))?;
        Ok(definition.manifest.destinations())
    }

    async fn options(&self, session: SessionId) -> Result<(SessionRecord, Options), String> {
        let record =
            self.store.session_record(session).await.map_err(|error| unreadable(&error))?;
        let options = Options::open(&record.settings.config, &self.sealer)
            .map_err(|error| unreadable(&error))?;
        Ok((record, options))
    }

    async fn credential(&self, tenant: &TenantId, id: CredentialId) -> Result<Credential, String> {
        self.store.credential(tenant, id).await.map_err(|error| {
            if let StoreError::NotFound(_) = error {
                return "the session's credential was removed".to_owned();
            }
            unreadable(&error)
        })
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_credential_goes_to_its_host_and_to_no_other() {
        for (place, host, port, fine) in [
            ("api.example.com", "api.example.com", 80, true),
            ("api.example.com", "API.example.com", 443, true),
            ("api.example.com", "api.example.com", 8080, false),
            ("api.example.com", "x.api.example.com", 80, false),
            ("api.example.com:8443", "api.example.com", 8443, true),
            ("api.example.com:8443", "api.example.com", 80, false),
            ("http://vault.internal:8200", "vault.internal", 8200, true),
        ] {
            let meant = Place::parse(place).unwrap().is_meant(&Host::parse(host).unwrap(), port);
            assert_eq!(meant, fine, "{place} {host} {port}");
        }
    }

    #[test]
    fn what_cannot_be_sent_is_refused() {
        let new = |key: &str, header: &str, host: &str| {
            CustomSecret::new(key.to_owned(), header.to_owned(), host.to_owned()).map(|_| ())
        };
        assert_eq!(new("Bearer x", "Authorization", "api.example.com"), Ok(()));
        for (header, host) in [
            ("Host", "a.example"),
            ("content-length", "a.example"),
            ("Proxy-Authorization", "a.example"),
            ("a b", "a.example"),
            ("", "a.example"),
            ("x-key", "ftp://a.example"),
            ("x-key", "a.example/path"),
            ("x-key", "a.example:0"),
            ("x-key", "0x7f.1"),
            ("x-key", ""),
        ] {
            assert!(new("x", header, host).is_err(), "{header} {host}");
        }
        assert!(new("a\nb", "x-key", "a.example").is_err());
    }
}
