//! The cloud: what sessions are made of, copied to a bucket, so that the machine may be lost.
//!
//! Whatever changes what is to be there leaves a task in the outbox, in the commit that records it. `work` takes them,
//! latest first for each session, and brings up a set that a stranger machine can go on with (`upload`, `new_set`,
//! `set`); `fetch` and `import` are the way back. `remove` and `sweep` remove what nobody needs any more. `place` says
//! where what lies, `which` whether it is there, and `health` whether it answers. Nobody waits for the cloud but who
//! asks to, and not for long.

mod attached;
mod error;
mod fetch;
mod front;
mod health;
mod import;
mod log;
mod new_set;
mod owed;
mod pace;
mod place;
mod remove;
mod set;
mod silence;
mod still;
mod sweep;
#[cfg(test)]
mod test;
mod tidy;
mod upload;
mod wait;
mod which;
mod work;

use std::fs;
use std::io;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use ash_core::id::{SessionId, SnapshotId, TenantId};
use ash_core::time::Timestamp;
use ash_snapshot::objects::Options;
use ash_snapshot::{Replicate, Repository};
use ash_store::Store;

use crate::agent::Library;
use crate::archive::{Archive, MAX_ENTRIES, theirs, threads};
use crate::signal::Signal;
use health::Health;
use place::random_name;
use wait::Failures;
use work::{Turns, Wanted};

pub(crate) use attached::{AttachedPart, AttachedRecord, recorded};
pub use error::CloudError;
pub use fetch::CloudSession;
pub(crate) use fetch::{Fetched, FetchedAgent, fetch, fetch_agent};
pub(crate) use new_set::{NewSet, described};
pub(crate) use owed::{as_it_is, to_bring_up};
pub(crate) use place::{Remote, Shelf};
pub(crate) use remove::to_remove;
pub(crate) use set::{AgentRecord, MAX_LOG};
pub(crate) use silence::is_too_long;
pub(crate) use still::is_not_whole_there;
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

    /// Looks whether it can be used, for so long at the most, and tries it out if nobody has. What was used before is
    /// looked for first: nothing is made where that is not mounted.
    ///
    /// # Errors
    /// It cannot be reached, or it cannot be relied on.
    pub async fn check(
        &self,
        store: &dyn Store,
        patience: Duration,
        now: Timestamp,
    ) -> Result<(), CloudError> {
        self.0.remote.remember(store.used_cloud().await?);
        let this = self.clone();
        let tried = blocking(move || {
            let shelf = this.0.remote.shelf(&TenantId::default_tenant());
            this.heard(shelf.as_ref().err(), now);
            shelf.map(drop)
        });
        match tokio::time::timeout(patience, tried).await {
            Ok(tried) => tried,
            Err(_) => {
                let silent = CloudError::Unavailable("it takes long to answer".to_owned());
                self.heard(Some(&silent), now);
                Err(silent)
            }
        }
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
        self.0.remote.remember(store.used_cloud().await?);
        let this = self.clone();
        let bucket = blocking(move || this.0.remote.bucket()).await?;
        let used = store.use_cloud(&bucket, self.url(), &self.0.writer.0).await?;
        self.0.remote.use_bucket(&bucket);
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

    /// Whether it is there at all: in one that is away everything is missing. Blocks.
    pub(crate) fn is_here(&self) -> Result<(), CloudError> {
        self.0.remote.is_here().map(drop)
    }

    /// Whether a session of that name is there, whoever has brought it. Blocks.
    pub(crate) fn knows(&self, tenant: &TenantId, session: SessionId) -> Result<bool, CloudError> {
        let is_known = !self.0.remote.shelf(tenant)?.heads(session)?.is_empty();
        self.0.remote.is_here()?;
        Ok(is_known)
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
