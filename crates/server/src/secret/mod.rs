//! Secrets: what seals credentials, what opens the API, and the files they are kept in.

mod api;
mod file;
mod initial;
mod sealer;
#[cfg(test)]
mod test;

use ash_core::id::{CredentialId, TenantId};

pub use self::api::ApiSecret;
pub use self::file::SecretFileError;
pub(crate) use self::file::random_name;
pub use self::initial::{INITIAL_KEY_FILE, InitialKey, InitialKeyError, initial_key};
pub use self::sealer::{CREDENTIAL_KEY_FILE, SealError, Sealer};

/// What a sealed credential is bound to: it opens as nobody else's.
pub(crate) fn credential_context(tenant: &TenantId, id: CredentialId) -> String {
    format!("credential {tenant} {id}")
}
