//! The secret of an API key.

use std::fmt;

use ash_store::KeyHash;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::sealer::random;

/// What every key of ours begins with.
const PREFIX: &str = "ash_";

/// 192 bits: nobody guesses them.
const RANDOM_BYTES: usize = 24;

/// How much of a key is shown, to recognize it by.
const SHOWN_CHARS: usize = 8;

/// What a client shows to be let in. It cannot be printed.
#[derive(Clone)]
pub struct ApiSecret(String);

impl ApiSecret {
    /// A new one, from the random bytes of the operating system.
    pub fn make() -> Self {
        Self(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(random::<RANDOM_BYTES>())))
    }

    /// One that somebody else made: from a request, or from `ASH_API_KEY`.
    pub fn from_text(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// What is stored and compared in its place.
    ///
    /// A plain hash, neither slow nor salted: a secret of ours has 192 random bits, so there is
    /// nothing to try out, and a hash that is the same everywhere can be looked up. An operator who
    /// sets a short `ASH_API_KEY` has a short key; its hash is never stored.
    pub fn hash(&self) -> KeyHash {
        KeyHash(*blake3::hash(self.0.as_bytes()).as_bytes())
    }

    /// Whether it has this hash. Takes the same time whatever the difference.
    pub fn matches(&self, hash: &KeyHash) -> bool {
        // This comparison of blake3 is in constant time.
        blake3::Hash::from_bytes(self.hash().0) == blake3::Hash::from_bytes(hash.0)
    }

    /// Its first characters, to recognize it by; of a short one not even half.
    pub fn prefix(&self) -> String {
        let shown = SHOWN_CHARS.min(self.0.chars().count() / 3);
        let start: String = self.0.chars().take(shown).collect();
        format!("{start}…")
    }

    /// The text itself. It is shown once, to whom it was made for.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ApiSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiSecret(..)")
    }
}
