//! Bundles: one file with everything that a stranger machine needs to go on with a session.
//!
//! ```text
//!   export   snapshots, log, record, agent ──► a set, aside ──► bundle.tar, without a name ──► whoever asked
//!   import   bytes ──► checked against the manifest, aside ──► the set ──► snapshots here ──► one commit
//! ```
//!
//! A bundle is a tar of a directory that is laid out as a bucket (`cloud`), with one set in it, and begins with a
//! manifest that names every file with its digest. For the same content there is one sequence of bytes: whoever
//! reads one knows what has to come next, and takes nothing else (`ustar`, `unpack`).
//!
//! What is not whole lies below `data/bundles`, and is gone when nobody works with it any more; what a server that
//! was killed left there goes when the next one starts.

mod error;
mod export;
mod import;
mod manifest;
mod pack;
mod unpack;
mod ustar;

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ash_core::id::TenantId;
use tokio::sync::Semaphore;

use crate::agent::Library;
use crate::archive::Archive;
use crate::bridge::BridgeHost;

pub use error::BundleError;
pub use export::{Bundle, Extent};
pub use import::Received;

/// The longest bundle.
pub const MAX_BUNDLE: u64 = 64 << 30;

/// How many are made at once, and how many are read: each may hold a whole log.
const EXPORTS: usize = 2;
const IMPORTS: usize = 1;

/// What bundles are made of, and where. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub struct Bundles(Arc<Inner>);

struct Inner {
    place: PathBuf,
    library: Library,
    archive: Arc<Archive>,
    exports: Semaphore,
    imports: Semaphore,
}

impl Bundles {
    /// Bundles of what a host keeps in its data directory, and of agents. What an earlier server left is removed.
    ///
    /// # Errors
    /// The directory cannot be written to.
    pub fn open(host: &BridgeHost, data: &Path, library: Library) -> io::Result<Self> {
        let place = data.join("bundles");
        match fs::remove_dir_all(&place) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        fs::DirBuilder::new().mode(0o700).create(&place)?;
        let (exports, imports) = (Semaphore::new(EXPORTS), Semaphore::new(IMPORTS));
        let archive = host.archive();
        Ok(Self(Arc::new(Inner { place, library, archive, exports, imports })))
    }

    /// A directory for one that is not whole yet.
    fn aside(&self) -> io::Result<Arc<Aside>> {
        let place = self.0.place.join(ash_snapshot::SnapshotId::new().to_string());
        fs::DirBuilder::new().mode(0o700).create(&place)?;
        Ok(Arc::new(Aside(place)))
    }
}

/// Whose everything is in a bundle: nobody's. Whoever imports it makes it theirs.
fn nobody() -> TenantId {
    TenantId::default_tenant()
}

/// A directory that is gone when this is.
#[derive(Debug)]
struct Aside(PathBuf);

impl Drop for Aside {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "what was left of a bundle is removed when a server starts");
        }
    }
}

/// Whether the disk may take more.
#[derive(Clone)]
struct Room {
    /// How much is free, if anybody knows.
    free: Arc<dyn Fn() -> Option<u64> + Send + Sync>,
    /// How much has to stay free.
    least: u64,
}

impl Room {
    /// Whether there is room for so many bytes more.
    fn has(&self, more: u64) -> bool {
        let free = (self.least > 0).then(|| (self.free)()).flatten();
        free.is_none_or(|free| free >= self.least.saturating_add(more))
    }
}
