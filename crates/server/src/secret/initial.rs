//! The key that lets whoever runs the server in.

use std::path::{Path, PathBuf};

use ash_core::id::{ApiKeyId, TenantId};
use ash_core::time::Clock;
use ash_store::{ApiKey, Store, StoreError};

use super::api::ApiSecret;
use super::file::{self, SecretFileError};
use super::sealer::random;

/// The file in the data directory that the command line finds the key in.
pub const INITIAL_KEY_FILE: &str = "initial-api-key";

/// What the first key is called.
const FIRST_LABEL: &str = "auto-generated";

/// What a key is called that was made because the file of the first one was gone.
const RECOVERY_LABEL: &str = "cli-recovery";

/// What a start found or did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InitialKey {
    /// There was no key at all. One was made, and is in this file.
    Made(PathBuf),
    /// There were keys, and no file. Another one was made, and is in this file.
    Recovered(PathBuf),
    /// This file holds a key that is valid.
    Kept(PathBuf),
    /// This file holds a key that is not valid, though others are: it was revoked, or the database
    /// is another one. It is left alone; without the file, the next start makes a key.
    Revoked(PathBuf),
}

/// Why nobody can be let in.
#[derive(Debug, thiserror::Error)]
pub enum InitialKeyError {
    /// The keys cannot be read or stored.
    #[error("could not look after the API keys")]
    Store(#[from] StoreError),
    /// The file cannot be read or written.
    #[error(transparent)]
    File(#[from] SecretFileError),
}

/// Sees to it that whoever can read the data directory can get in. It is not for a start with
/// `ASH_API_KEY`: that key is valid without being stored.
///
/// The key is stored before its file is written. A crash in between leaves a key that nobody knows and
/// no file, which is what the next start mends by making another.
///
/// # Errors
/// The store or the file cannot be used.
pub async fn initial_key(
    store: &dyn Store,
    data_dir: &Path,
    clock: &dyn Clock,
) -> Result<InitialKey, InitialKeyError> {
    let path = data_dir.join(INITIAL_KEY_FILE);
    let keys = store.api_keys(&TenantId::default_tenant()).await?;
    let written = secret_in(&path)?;
    if keys.is_empty() {
        make(store, &path, clock, FIRST_LABEL).await?;
        return Ok(InitialKey::Made(path));
    }
    let Some(secret) = written else {
        make(store, &path, clock, RECOVERY_LABEL).await?;
        return Ok(InitialKey::Recovered(path));
    };
    let is_valid = keys.iter().any(|key| secret.matches(&key.hash));
    Ok(if is_valid { InitialKey::Kept(path) } else { InitialKey::Revoked(path) })
}

/// The secret in a file; nothing if there is no file, or none that holds anything.
fn secret_in(path: &Path) -> Result<Option<ApiSecret>, SecretFileError> {
    let found = match file::read(path) {
        Ok(Some(found)) => found,
        Ok(None) | Err(SecretFileError::Damaged { .. }) => return Ok(None),
        Err(error @ (SecretFileError::Io { .. } | SecretFileError::Exposed { .. })) => {
            return Err(error);
        }
    };
    // Not refused, as it is with the key for credentials: this one can be revoked, and a volume whose
    // modes are set from outside must not lock its owner out.
    if let Some(mode) = found.exposed {
        tracing::warn!(
            "{} can be read by others (its mode is {mode:04o}): revoke the key in it, or chmod 600",
            path.display()
        );
    }
    let text = found.text.trim();
    Ok((!text.is_empty()).then(|| ApiSecret::from_text(text)))
}

async fn make(
    store: &dyn Store,
    path: &Path,
    clock: &dyn Clock,
    label: &str,
) -> Result<(), InitialKeyError> {
    let secret = ApiSecret::make();
    let now = clock.now();
    let key = ApiKey {
        id: ApiKeyId::from_parts(now, random()),
        tenant: TenantId::default_tenant(),
        hash: secret.hash(),
        prefix: secret.prefix(),
        label: label.to_owned(),
        created_at: now,
    };
    store.create_api_key(&key, None).await?;
    file::replace_private(path, format!("{}\n", secret.expose()).as_bytes())?;
    Ok(())
}
