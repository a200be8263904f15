//! The cloud: what sessions are made of, copied to a bucket, so that the machine may be lost.
//!
//! Whatever changes what is to be there leaves a task in the outbox, in the commit that records it. `work` takes them,
//! latest first for each session, and brings up a set that a stranger machine can go on with (`upload`, `new_set`,
//! `set`); `fetch` and `import` are the way back. `remove` and `sweep` remove what nobody needs any more. `place` says
//! where what lies. Nobody waits for the cloud but who asks to, and not for long.

mod error;
mod fetch;
mod front;
mod import;
mod log;
mod new_set;
mod owed;
mod pace;
mod place;
mod remove;
mod set;
mod still;
mod sweep;
#[cfg(test)]
mod test;
mod tidy;
mod upload;
mod wait;
mod work;

use std::fs;
use std::io;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use ash_core::id::{SessionId, SnapshotId, TenantId};
use ash_snapshot::objects::Options;
use ash_snapshot::{Replicate, Repository};
use ash_store::Store;

use crate::agent::Library;
use crate::archive::{Archive, MAX_ENTRIES, theirs, threads};
use crate::signal::Signal;
use place::random_name;
use wait::Failures;
use work::{Turns, Wanted};

pub use error::CloudError;
pub use fetch::CloudSession;
pub(crate) use fetch::{Fetched, fetch, fetch_agent};
pub(crate) use new_set::{NewSet, described};
pub(crate) use owed::{as_it_is, to_bring_up};
pub(crate) use place::{Remote, Shelf};
pub(crate) use remove::to_remove;
pub(crate) use set::{AgentRecord, MAX_LOG};
pub(crate) use upload::MAX_SNAPSHOTS;
pub use wait::CloudFailure;
pub(crate) use work::work;

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
    /// What this server would call itself in the bucket, and what it does, once its store was asked.
    writer: (String, OnceLock<String>),
    wait: Duration,
    uploads: usize,
    health: Mutex<Health>,
    wanted: Wanted,
    turns: Turns,
    /// What could not be brought up, and why.
    failures: Failures,
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
        fetch::clear_aside(data)?;
        let archive = Arc::new(Archive::new(data).with_remote(Arc::clone(&remote)));
        Ok(Self(Arc::new(Inner {
            remote,
            archive,
            data: data.to_owned(),
            library,
            writer: (writer(data)?, OnceLock::new()),
            wait,
            uploads: uploads.get(),
            health: Mutex::new(Health::Unknown),
            wanted: Wanted::default(),
            turns: Turns::default(),
            failures: Failures::default(),
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

    /// What this server is called in the bucket.
    fn writer(&self) -> &str {
        let (wanted, given) = &self.0.writer;
        given.get().unwrap_or(wanted)
    }

    /// Whether it is known which bucket this is, and who we are there.
    fn is_entered(&self) -> bool {
        self.0.writer.1.get().is_some()
    }

    /// Finds out which bucket this is: in another one than before there is nothing yet.
    async fn enter(&self, store: &dyn Store) -> Result<(), CloudError> {
        let this = self.clone();
        let bucket = blocking(move || this.0.remote.bucket()).await?;
        let used = store.use_cloud(&bucket, &self.0.writer.0).await?;
        if used.is_new {
            tracing::warn!(
                "the bucket at {} was not used before by this server: everything that is here is copied to it",
                self.url()
            );
        }
        self.0.writer.1.get_or_init(|| used.writer);
        Ok(())
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
                | CloudError::TooLarge(_)
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

/// What a server calls itself that has no name in its store yet: as it did when the name was in a file.
fn writer(data: &Path) -> io::Result<String> {
    match fs::read_to_string(data.join("cloud-writer")) {
        Ok(name) if name.trim().len() == 32 => Ok(name.trim().to_owned()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(_) | Err(_) => random_name(),
    }
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
