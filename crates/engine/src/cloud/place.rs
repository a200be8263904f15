//! Where things lie in the bucket: everything of a tenant below a prefix of its own.
//!
//! ```text
//!   <url>/bucket-id                                         which bucket it is
//!   <url>/tenants/<tenant>/repository/…                     snapshots, as on the machine (FORMAT.md)
//!                          agents/<digest>.json             what an agent is; its directory is a snapshot
//!                          sessions/<session>/log/…         parts of the log
//!                                             records/…     what the session is
//!                                             heads/…       which of them belong together
//! ```

use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ash_core::id::TenantId;
use ash_snapshot::objects::{self, Listed, LocalObjects, Objects, Options, Put, Signs};
use ash_snapshot::{Repository, SnapshotError};

use super::error::CloudError;
use super::pace::{Pace, Paced};
use super::silence;
use super::which::Expected;

/// Digits that nobody else comes upon.
pub(super) fn random_name() -> io::Result<String> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// What is in the bucket.
pub(crate) struct Remote {
    url: String,
    reach: Options,
    /// The whole of it, once it was asked for.
    root: OnceLock<Box<dyn Objects>>,
    pub(super) expected: Mutex<Expected>,
    pace: Option<Arc<Pace>>,
    /// What it says.
    signs: Signs,
    open: Mutex<BTreeMap<TenantId, Arc<Shelf>>>,
}

/// What is in it of one tenant.
pub(crate) struct Shelf {
    objects: Box<dyn Objects>,
    pub(crate) repository: Repository,
    /// The place, if it goes when nobody needs it any more.
    _kept: Option<Arc<dyn Any + Send + Sync>>,
}

impl Remote {
    /// Nothing is asked of the bucket yet.
    ///
    /// # Errors
    /// The url, or how it is to be reached, is not understood.
    pub(super) fn new(
        url: &str,
        reach: Options,
        bytes_per_second: Option<NonZeroU64>,
    ) -> io::Result<Self> {
        let url = url.trim_end_matches('/').to_owned();
        let signs = Signs::default();
        let reach = Options { signs: signs.clone(), ..reach };
        // A directory is not made before it is known whether one should be there.
        let root = match objects::directory(&url) {
            Ok(_) => OnceLock::new(),
            Err(_) => OnceLock::from(silence::over(objects::open(&url, &reach)?, &signs)),
        };
        let pace = |most: NonZeroU64| Arc::new(Pace::new(most.get(), signs.clone()));
        let pace = bytes_per_second.map(pace);
        let (expected, open) = (Mutex::default(), Mutex::default());
        Ok(Self { url, reach, root, expected, pace, signs, open })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// The whole of the bucket. A directory is made if it is not there. Blocks.
    pub(super) fn root(&self) -> Result<&dyn Objects, CloudError> {
        if let Some(root) = self.root.get() {
            return Ok(&**root);
        }
        let root = objects::open(&self.url, &self.reach);
        let root = root.map_err(|error| CloudError::there(&error))?;
        Ok(&**self.root.get_or_init(|| silence::over(root, &self.signs)))
    }

    /// A tenant's part of the bucket. What is asked of a server is tried out when it is opened first. Blocks.
    pub(crate) fn shelf(&self, tenant: &TenantId) -> Result<Arc<Shelf>, CloudError> {
        if let Some(shelf) = self.opened(tenant) {
            return Ok(shelf);
        }
        self.is_here()?;
        let place = format!("{}/tenants/{tenant}", self.url);
        let open = |place: &str| objects::open(place, &self.reach);
        let objects = open(&place).map_err(|error| CloudError::there(&error))?;
        let below = open(&format!("{place}/repository"));
        let below = self.at_pace(below.map_err(|error| CloudError::there(&error))?);
        let repository = match Repository::open(below) {
            // Nobody knows what it is: it is left as it is.
            Err(error @ SnapshotError::Format(_)) => {
                return Err(CloudError::NotOurs(format!("{place}/repository/format: {error}")));
            }
            opened => opened?,
        };
        let objects = self.at_pace(objects);
        let shelf = Arc::new(Shelf { objects, repository, _kept: None });
        let mut opened = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        // Two that came at once need not agree: what is there is the same.
        Ok(Arc::clone(opened.entry(tenant.clone()).or_insert(shelf)))
    }

    fn opened(&self, tenant: &TenantId) -> Option<Arc<Shelf>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).get(tenant).cloned()
    }

    fn at_pace(&self, objects: Box<dyn Objects>) -> Box<dyn Objects> {
        match &self.pace {
            Some(pace) => {
                let paced = Box::new(Paced::new(objects, Arc::clone(pace)));
                silence::over(paced, &self.signs)
            }
            None => silence::over(objects, &self.signs),
        }
    }

    /// How often it has said something.
    pub(crate) fn signs(&self) -> u64 {
        self.signs.count()
    }
}

impl Shelf {
    #[cfg(test)]
    pub(super) fn over(objects: Box<dyn Objects>, repository: Repository) -> Self {
        Self { objects, repository, _kept: None }
    }

    /// The shelf of a tenant in a directory, laid out as a bucket. It is there for as long as this is: whoever works
    /// with it on another thread may be the last.
    pub(crate) fn beneath(
        directory: &Path,
        tenant: &TenantId,
        kept: Arc<dyn Any + Send + Sync>,
    ) -> Result<Self, CloudError> {
        let place = directory.join("tenants").join(tenant.as_str());
        let objects = LocalObjects::open(&place).map_err(CloudError::here)?;
        let below = LocalObjects::open(&place.join("repository")).map_err(CloudError::here)?;
        let repository = Repository::open(Box::new(below))?;
        Ok(Self { objects: Box::new(objects), repository, _kept: Some(kept) })
    }

    /// Puts an object whose name says what is in it: one that is there already is the same.
    pub(super) fn put(&self, name: &str, bytes: &[u8]) -> Result<Put, CloudError> {
        self.objects.put(name, bytes).map_err(|error| CloudError::there(&error))
    }

    /// An object; nothing, if there is none.
    pub(super) fn get(&self, name: &str, most: u64) -> Result<Option<Vec<u8>>, CloudError> {
        match self.objects.get(name, most) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                Err(CloudError::Damaged(name.to_owned()))
            }
            Err(error) => Err(CloudError::there(&error)),
        }
    }

    pub(super) fn list(&self, prefix: &str) -> Result<Vec<Listed>, CloudError> {
        self.objects.list(prefix).map_err(|error| CloudError::there(&error))
    }

    pub(super) fn delete(&self, name: &str) -> Result<(), CloudError> {
        self.objects.delete(name).map_err(|error| CloudError::there(&error))
    }
}
