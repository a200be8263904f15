//! The cloud: what sessions are made of, copied to a bucket, so that the machine may be lost.
//!
//! Every snapshot leaves a task in the outbox, in the commit that records it. `work` takes them, latest first for each
//! session, and brings up a set that a stranger machine can go on with (`upload`, `set`); `fetch` and `import` are the
//! way back. `place` says where what lies. Nobody waits for the cloud but who asks to, and not for long.

mod error;
mod fetch;
mod front;
mod import;
mod new_set;
mod pace;
mod place;
mod set;
mod upload;
mod work;

use std::fs;
use std::io;
use std::num::{NonZeroU64, NonZeroUsize};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ash_core::id::{SessionId, SnapshotId, TenantId};
use ash_snapshot::objects::Options;
use ash_snapshot::{Replicate, Repository};

use crate::agent::Library;
use crate::archive::{Archive, MAX_ENTRIES, theirs, threads};
use crate::signal::Signal;
use work::{Turns, Wanted};

pub use error::CloudError;
pub use fetch::CloudSession;
pub(crate) use fetch::{Fetched, fetch, fetch_agent};
pub(crate) use new_set::NewSet;
pub(crate) use place::{Remote, Shelf};
pub(crate) use set::AgentRecord;
pub(crate) use upload::MAX_SNAPSHOTS;
pub(crate) use work::{to_bring_up, work};

/// Where the cloud is, and how much of the line it may have.
#[derive(Clone, Debug)]
pub struct CloudOptions {
    /// The bucket: `s3://bucket/prefix`, `gs://bucket/prefix`, or `file:///path`.
    pub url: String,
    /// How it is reached.
    pub reach: Options,
    /// How long a pause, a stop or an end waits for it.
    pub wait: Duration,
    /// How many sessions are brought up at once.
    pub uploads: NonZeroUsize,
    /// How many bytes go to it and come from it in a second.
    pub bytes_per_second: Option<NonZeroU64>,
}

/// The cloud. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub struct Cloud(Arc<Inner>);

struct Inner {
    remote: Arc<Remote>,
    archive: Arc<Archive>,
    /// Where what is not whole yet lies.
    data: PathBuf,
    library: Library,
    /// What this server calls itself in the bucket.
    writer: String,
    wait: Duration,
    uploads: usize,
    health: Mutex<Health>,
    wanted: Wanted,
    turns: Turns,
    /// Something was captured, or is in the cloud.
    news: Arc<Signal<u64>>,
}

/// Whether the cloud answers, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Unknown,
    Up,
    Down,
}

impl Cloud {
    /// A cloud for the data in a directory. It is not asked yet.
    ///
    /// # Errors
    /// The url, or how it is to be reached, is not understood; or the directory cannot be written to.
    pub fn open(options: CloudOptions, data: &Path, library: Library) -> io::Result<Self> {
        let CloudOptions { url, reach, wait, uploads, bytes_per_second } = options;
        let remote = Arc::new(Remote::new(&url, reach, bytes_per_second)?);
        let archive = Arc::new(Archive::new(data).with_remote(Arc::clone(&remote)));
        Ok(Self(Arc::new(Inner {
            remote,
            archive,
            data: data.to_owned(),
            library,
            writer: writer(data)?,
            wait,
            uploads: uploads.get(),
            health: Mutex::new(Health::Unknown),
            wanted: Wanted::default(),
            turns: Turns::default(),
            news: Arc::default(),
        })))
    }

    /// Where it is.
    pub fn url(&self) -> &str {
        self.0.remote.url()
    }

    pub(crate) fn archive(&self) -> Arc<Archive> {
        Arc::clone(&self.0.archive)
    }

    /// Looks whether it can be used, and tries it out if nobody has. Blocks.
    ///
    /// # Errors
    /// It cannot be reached, or it cannot be relied on.
    pub fn check(&self) -> Result<(), CloudError> {
        let checked = self.0.remote.shelf(&TenantId::default_tenant()).map(drop);
        self.heard(checked.as_ref().err());
        checked
    }

    /// Something changed that somebody may wait for.
    pub(crate) fn tell(&self) {
        self.0.news.change(|count| *count += 1);
    }

    /// Has a session brought up before others.
    pub(crate) fn want(&self, session: SessionId) {
        self.0.wanted.add(session);
        self.tell();
    }

    /// Takes note of how a call went: what changes is said once.
    fn heard(&self, failure: Option<&CloudError>) {
        let now = match failure {
            None => Health::Up,
            Some(CloudError::Unavailable(_) | CloudError::Unfit(_)) => Health::Down,
            Some(
                CloudError::NotFound(_)
                | CloudError::Damaged(_)
                | CloudError::TooNew { .. }
                | CloudError::Elsewhere
                | CloudError::Here(_)
                | CloudError::Store(_),
            ) => return,
        };
        let before = {
            let mut health = self.0.health.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *health, now)
        };
        let url = self.url();
        match (before, failure) {
            (Health::Unknown | Health::Up, Some(error)) => {
                let error = error as &dyn std::error::Error;
                tracing::warn!(
                    error,
                    "the cloud at {url} cannot be used: it is tried again and again"
                );
            }
            (Health::Down, None) => tracing::info!("the cloud at {url} can be used again"),
            (Health::Unknown, None) => tracing::info!("snapshots are copied to {url}"),
            (Health::Up, None) | (Health::Down, Some(_)) => {}
        }
    }

    /// Whether a session of that name is there, whoever has brought it. Blocks.
    pub(crate) fn knows(&self, tenant: &TenantId, session: SessionId) -> Result<bool, CloudError> {
        Ok(!self.0.remote.shelf(tenant)?.heads(session)?.is_empty())
    }

    fn is_down(&self) -> bool {
        *self.0.health.lock().unwrap_or_else(PoisonError::into_inner) == Health::Down
    }
}

/// What this server is called in the bucket: made once for a data directory.
fn writer(data: &Path) -> io::Result<String> {
    let path = data.join("cloud-writer");
    match fs::read_to_string(&path) {
        Ok(name) if name.trim().len() == 32 => return Ok(name.trim().to_owned()),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let name: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let new = path.with_extension("new");
    let mut file =
        fs::File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    io::Write::write_all(&mut file, name.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, &path)?;
    fs::File::open(data)?.sync_all()?;
    Ok(name)
}

/// How a snapshot is copied.
fn copy_of(from: &Repository, id: SnapshotId) -> Replicate<'_> {
    Replicate {
        from,
        snapshot: theirs(id),
        max_entries: MAX_ENTRIES,
        threads: threads(),
        progress: &|_| true,
    }
}

/// Does something that waits for the disk or the network, where that is allowed.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CloudError> + Send + 'static,
) -> Result<T, CloudError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(CloudError::here(error)),
    }
}
