//! What a bundle begins with: what it is of, and every file in it with its length and its digest.

use ash_core::id::{AgentName, SessionId};
use ash_core::number::Seq;
use ash_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::error::BundleError;
use super::ustar::{self, BLOCK};
use super::{MAX_BUNDLE, nobody};

/// What the first two files are called.
pub(super) const MANIFEST: &str = "manifest.json";
pub(super) const DIGEST: &str = "manifest.blake3";

/// The version that is written and read.
const VERSION: u32 = 1;

/// The longest manifest, and how many files it may name.
pub(super) const MAX_MANIFEST: u64 = 64 << 20;
const MAX_OBJECTS: usize = 200_000;

/// What a bundle is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Manifest {
    pub(super) version: u32,
    pub(super) session: SessionId,
    pub(super) agent_name: AgentName,
    pub(super) title: Option<String>,
    pub(super) turns: u32,
    /// Where its log ends.
    pub(super) seq: Seq,
    /// How many points of its history are in it.
    pub(super) snapshots: u32,
    /// When it was made.
    pub(super) at: Timestamp,
    /// In order of their names, which is the order they come in.
    pub(super) objects: Vec<Object>,
}

/// A file of a bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Object {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) blake3: String,
}

impl Manifest {
    pub(super) const VERSION: u32 = VERSION;

    /// The time of every file in the bundle, in seconds.
    pub(super) fn seconds(&self) -> u64 {
        u64::try_from(self.at.as_millis() / 1000).unwrap_or_default()
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>, BundleError> {
        let mut bytes = serde_json::to_vec_pretty(self).map_err(BundleError::here)?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// Reads a manifest, and looks at everything it says before anything is done by it.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, BundleError> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let unread = |_| BundleError::damaged("its manifest cannot be read");
        let Versioned { version } = serde_json::from_slice(bytes).map_err(unread)?;
        if version != VERSION {
            return Err(BundleError::TooNew(version));
        }
        let manifest: Self = serde_json::from_slice(bytes).map_err(unread)?;
        if manifest.length(bytes.len() as u64) > MAX_BUNDLE {
            return Err(BundleError::TooLarge(MAX_BUNDLE));
        }
        let objects = &manifest.objects;
        let is_fine = objects.len() <= MAX_OBJECTS
            && objects.iter().all(Object::is_fine)
            && objects.iter().zip(objects.iter().skip(1)).all(|(one, next)| one.name < next.name);
        is_fine.then_some(manifest).ok_or_else(|| BundleError::damaged("its manifest is wrong"))
    }

    /// How long the bundle is whose manifest has so many bytes.
    pub(super) fn length(&self, manifest: u64) -> u64 {
        let file = |bytes: u64| {
            let filled = bytes.saturating_add(ustar::padding(bytes) as u64);
            filled.saturating_add(BLOCK as u64)
        };
        let first = [manifest, digest_line(b"").len() as u64];
        let sizes = first.into_iter().chain(self.objects.iter().map(|object| object.bytes));
        sizes.map(file).fold(2 * BLOCK as u64, u64::saturating_add)
    }

    /// What all files have together.
    pub(super) fn bytes(&self) -> u64 {
        self.objects.iter().map(|object| object.bytes).fold(0, u64::saturating_add)
    }
}

/// The digest of a manifest, as `b3sum` writes and checks it.
pub(super) fn digest_line(manifest: &[u8]) -> String {
    format!("{}  {MANIFEST}\n", blake3::hash(manifest).to_hex())
}

impl Object {
    /// Whether it lies where things of a bundle lie, and can be put there.
    fn is_fine(&self) -> bool {
        let below = format!("tenants/{}/", nobody());
        let known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let is_part =
            |part: &str| !part.is_empty() && !part.starts_with('.') && part.bytes().all(known);
        let parts = self.name.strip_prefix(below.as_str());
        parts.is_some_and(|parts| parts.split('/').all(is_part))
            && ustar::header(&self.name, self.bytes, 0).is_some()
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn manifest(names: &[&str]) -> Manifest {
        let object = |name: &&str| Object {
            name: (*name).to_owned(),
            bytes: 700,
            blake3: blake3::hash(b"").to_hex().to_string(),
        };
        Manifest {
            version: VERSION,
            session: "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap(),
            agent_name: "coder".parse().unwrap(),
            title: None,
            turns: 1,
            seq: Seq::new(9),
            snapshots: 1,
            at: Timestamp::from_millis(1_700_000_000_000),
            objects: names.iter().map(object).collect(),
        }
    }

    fn refusal(manifest: &Manifest) -> Option<BundleError> {
        Manifest::decode(&manifest.encode().unwrap()).err()
    }

    #[test]
    fn what_is_written_is_read() {
        let manifest = manifest(&["tenants/default/a/b", "tenants/default/a/c"]);
        let bytes = manifest.encode().unwrap();
        assert_eq!(Manifest::decode(&bytes).unwrap(), manifest);
        let blocks = 1 + bytes.len().div_ceil(BLOCK) + 1 + 1 + 2 * (1 + 2) + 2;
        assert_eq!(manifest.length(bytes.len() as u64), (blocks * BLOCK) as u64);
        assert_eq!(manifest.bytes(), 1_400);
    }

    #[test]
    fn no_name_leads_anywhere_else() {
        let long = format!("tenants/default/{}", "n".repeat(101));
        for name in [
            "",
            "/etc/passwd",
            "manifest.json",
            "tenants/default",
            "tenants/default/",
            "tenants/other/a",
            "tenants/default/../../a",
            "tenants/default/./a",
            "tenants/default//a",
            "tenants/default/.a",
            "tenants/default/a/",
            "tenants/default/a b",
            "tenants/default/a\0",
            "tenants/default/ä",
            long.as_str(),
        ] {
            assert!(matches!(refusal(&manifest(&[name])), Some(BundleError::Damaged(_))), "{name}");
        }
        for names in [["b", "a"], ["a", "a"]] {
            let names = names.map(|name| format!("tenants/default/{name}"));
            let manifest = manifest(&[names[0].as_str(), names[1].as_str()]);
            assert!(matches!(refusal(&manifest), Some(BundleError::Damaged(_))), "{names:?}");
        }
    }

    #[test]
    fn what_is_too_new_or_too_large_is_told_apart() {
        let mut newer = manifest(&[]);
        newer.version = 2;
        assert!(matches!(refusal(&newer), Some(BundleError::TooNew(2))));
        let mut large = manifest(&["tenants/default/a"]);
        large.objects[0].bytes = u64::MAX;
        assert!(matches!(refusal(&large), Some(BundleError::TooLarge(MAX_BUNDLE))));
        large.objects[0].bytes = ustar::MAX_SIZE + 1;
        assert!(matches!(refusal(&large), Some(BundleError::Damaged(_))));
    }
}
