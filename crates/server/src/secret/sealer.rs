//! What is stored sealed: credentials, with a key that is not in the database.
//!
//! A sealed text is a version byte, a nonce of 24 random bytes, and the XChaCha20-Poly1305
//! ciphertext with its tag. With nonces that long, random ones do not meet. The context, such as the
//! id of the credential, is authenticated with it: a sealed text that was moved to another row does
//! not open there.

use std::fmt;
use std::path::Path;

use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};

use super::file::{self, SecretFileError};

/// The file in the data directory that holds the key, if nobody gave one.
pub const CREDENTIAL_KEY_FILE: &str = "credential-key";

/// Keeps a text from being a key of anything else.
const DERIVE_CONTEXT: &str = "ash 2026 credential sealing key v1";

/// The first byte of everything that is sealed.
const VERSION: u8 = 1;

const NONCE_BYTES: usize = 24;
const KEY_BYTES: usize = 32;

/// Seals and opens. It cannot be printed.
#[derive(Clone)]
pub struct Sealer {
    cipher: XChaCha20Poly1305,
}

/// Why a sealed text does not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// It was sealed by a version of this program that came later.
    #[error("the sealed text has version {0}, which this program does not know")]
    TooNew(u8),
    /// It was sealed with another key or for another context, or it was changed.
    #[error(
        "the sealed text does not open: it was sealed with another key or for something else, or \
         it is damaged"
    )]
    DoesNotOpen,
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealer(..)")
    }
}

impl Sealer {
    /// The sealer of a server: with the operator's key if there is one, else with the one in the
    /// data directory, which is made if it is not there.
    ///
    /// # Errors
    /// The file can be read by others, is damaged, or cannot be read or made.
    pub fn open_or_create(data_dir: &Path, key: Option<&str>) -> Result<Self, SecretFileError> {
        if let Some(text) = key {
            return Ok(Self::with_key(&blake3::derive_key(DERIVE_CONTEXT, text.as_bytes())));
        }
        let path = data_dir.join(CREDENTIAL_KEY_FILE);
        loop {
            if let Some(text) = file::read_private(&path)? {
                let damaged = || SecretFileError::Damaged { path: path.clone() };
                let key = from_hex(text.trim_end()).ok_or_else(damaged)?;
                return Ok(Self::with_key(&key));
            }
            let text = format!("{}\n", blake3::Hash::from_bytes(random()).to_hex());
            // Another process may have been first: then its key holds, and is read.
            if file::create_private(&path, text.as_bytes())? == file::Created::ByUs {
                tracing::info!("made a key for credentials at {}", path.display());
            }
        }
    }

    /// Whether the data directory has a key that can be used. Changes nothing.
    ///
    /// # Errors
    /// There is one, and it can be read by others, is damaged, or cannot be read.
    pub(crate) fn has_key(data_dir: &Path) -> Result<bool, SecretFileError> {
        let path = data_dir.join(CREDENTIAL_KEY_FILE);
        match file::read_private(&path)? {
            Some(text) if from_hex(text.trim_end()).is_some() => Ok(true),
            Some(_) => Err(SecretFileError::Damaged { path }),
            None => Ok(false),
        }
    }

    fn with_key(key: &[u8; KEY_BYTES]) -> Self {
        Self { cipher: XChaCha20Poly1305::new(key.into()) }
    }

    /// Seals `plain` for one context; it opens for no other.
    pub fn seal(&self, plain: &[u8], context: &str) -> Vec<u8> {
        let nonce: [u8; NONCE_BYTES] = random();
        let payload = Payload { msg: plain, aad: context.as_bytes() };
        let sealed = self
            .cipher
            .encrypt(&XNonce::from(nonce), payload)
            .expect("a text that fits in memory is within the limit of the cipher");
        [&[VERSION][..], &nonce, &sealed].concat()
    }

    /// Opens what was sealed for this context.
    ///
    /// # Errors
    /// It was not sealed with this key for this context, or not by this version.
    pub fn open(&self, sealed: &[u8], context: &str) -> Result<Vec<u8>, SealError> {
        let (version, rest) = sealed.split_first().ok_or(SealError::DoesNotOpen)?;
        if *version != VERSION {
            return Err(SealError::TooNew(*version));
        }
        let (nonce, text) =
            rest.split_first_chunk::<NONCE_BYTES>().ok_or(SealError::DoesNotOpen)?;
        let payload = Payload { msg: text, aad: context.as_bytes() };
        let opened = self.cipher.decrypt(&XNonce::from(*nonce), payload);
        opened.map_err(|_| SealError::DoesNotOpen)
    }
}

fn from_hex(text: &str) -> Option<[u8; KEY_BYTES]> {
    let hash = blake3::Hash::from_hex(text).ok()?;
    // A file that was cleared by a file system after a power cut is no key.
    (hash.as_bytes() != &[0; KEY_BYTES]).then_some(*hash.as_bytes())
}

/// Random bytes from the operating system.
pub(super) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system has random bytes");
    bytes
}
