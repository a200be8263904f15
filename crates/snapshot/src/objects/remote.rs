//! Objects on a server: S3, Google Cloud Storage, and whatever speaks like them.
//!
//! The trait blocks and the client does not, so a small runtime of its own is behind each store. A
//! request is made several times before it counts as failed, each time for a bounded while.
//!
//! A put whose answer was lost may have been done. If the next attempt then finds an object of that
//! name, it is compared: the same bytes are ours, and were created.

use std::fmt;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use object_store::path::Path;
use object_store::{
    GetOptions, GetRange, GetResult, ObjectStore, ObjectStoreExt as _, PutMode, PutPayload,
};
use tokio::runtime::Runtime;
use tokio::time::{sleep, timeout};

use super::answer::Failure;
use super::{Listed, NewObject, Objects, Put, Signs, check_name, too_long};

/// How long an object may be that is put: it is held in memory, and sent at once.
const MAX_OBJECT: u64 = 32 * 1024 * 1024;

/// A server that is slower than this for long counts as one that does not answer.
const SLOWEST: u64 = 256 * 1024;

/// The longest pause between two attempts, whatever the server asks for.
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// How patient a remote store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How often a request is made before it counts as failed; at least once.
    pub attempts: u32,
    /// How long an answer may take, not counting a second for every 256 KiB that are sent or asked for.
    pub timeout: Duration,
    /// The pause after the first attempt; each further one is twice as long, up to ten seconds.
    pub pause: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { attempts: 5, timeout: Duration::from_secs(30), pause: Duration::from_millis(200) }
    }
}

impl Limits {
    fn patience(&self, bytes: u64) -> Duration {
        self.timeout + Duration::from_secs(bytes / SLOWEST)
    }

    /// How long to wait after an attempt. In part by chance: those who failed together do not come back
    /// together.
    fn pause(&self, attempt: u32, failure: &Failure) -> Duration {
        let doubled = self.pause.saturating_mul(2_u32.saturating_pow(attempt - 1)).min(MAX_PAUSE);
        let chance = uuid::Uuid::now_v7().as_u128() % 1024;
        let share = u32::try_from(chance).expect("it is below 1024");
        let pause = doubled / 2 + doubled / 2 * share / 1024;
        pause.max(failure.after().unwrap_or_default()).min(MAX_PAUSE)
    }
}

/// Objects on a server.
pub struct RemoteObjects {
    store: Arc<dyn ObjectStore>,
    /// What comes before every name.
    prefix: Path,
    /// How the store is called in errors.
    url: String,
    limits: Limits,
    /// What else is to be said when it fails.
    note: &'static str,
    signs: Signs,
    /// There until it is dropped.
    runtime: Option<Runtime>,
}

impl RemoteObjects {
    /// Objects in a store that somebody else has set up, below a prefix. It must not try again by itself:
    /// then whether a put was answered could not be told.
    pub fn over(
        store: Arc<dyn ObjectStore>,
        prefix: &str,
        url: &str,
        limits: Limits,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("ash-objects")
            .enable_all()
            .build()?;
        let url = url.trim_end_matches('/').to_owned();
        let (prefix, runtime) = (Path::from(prefix), Some(runtime));
        Ok(Self { store, prefix, url, limits, note: "", signs: Signs::default(), runtime })
    }

    /// Says more when it fails.
    pub(super) fn note(&mut self, note: &'static str) {
        self.note = note;
    }

    /// Has what comes counted.
    pub(super) fn count(&mut self, signs: Signs) {
        self.signs = signs;
    }

    fn path(&self, name: &str) -> io::Result<Path> {
        check_name(name)?;
        let parts = self.prefix.parts().chain(name.split('/').map(Into::into));
        Ok(Path::from_iter(parts))
    }

    fn failed(&self, name: &str, failure: Failure, attempts: u32) -> io::Error {
        failure.of(&format!("{}/{name}", self.url), attempts, self.note)
    }

    fn wait_for<T>(&self, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        self.runtime.as_ref().expect("it is there until it is dropped").block_on(work)
    }

    /// Makes a request until it is answered, or has failed often enough.
    async fn tried<T, F>(
        &self,
        name: &str,
        patience: Duration,
        request: impl Fn() -> F,
    ) -> io::Result<T>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let mut attempt = 1;
        loop {
            let failure = match timeout(patience, request()).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(failure)) => failure,
                Err(_) => Failure::Stalled(patience),
            };
            if !failure.is_transient() || attempt >= self.limits.attempts {
                return Err(self.failed(name, failure, attempt));
            }
            sleep(self.limits.pause(attempt, &failure)).await;
            attempt += 1;
        }
    }

    /// Puts an object, unless there is one of that name.
    async fn create(&self, name: &str, payload: PutPayload) -> io::Result<Put> {
        let path = self.path(name)?;
        let length = payload.content_length() as u64;
        let patience = self.limits.patience(length);
        // Whether an attempt may have been done that was not answered.
        let mut is_unsure = false;
        let mut attempt = 1;
        loop {
            let put = self.store.put_opts(&path, payload.clone(), PutMode::Create.into());
            let failure = match timeout(patience, put).await {
                Ok(Ok(_)) => return Ok(Put::Created),
                Ok(Err(error)) => Failure::from(error),
                Err(_) => Failure::Stalled(patience),
            };
            if matches!(failure, Failure::Exists) {
                if !is_unsure {
                    return Ok(Put::Existed);
                }
                return match self.read(name, GetOptions::default(), length).await {
                    Ok((found, _)) if payload.iter().flatten().eq(found.iter()) => Ok(Put::Created),
                    Ok(_) => Ok(Put::Existed),
                    Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(Put::Existed),
                    Err(error) => Err(error),
                };
            }
            if !failure.is_transient() || attempt >= self.limits.attempts {
                return Err(self.failed(name, failure, attempt));
            }
            is_unsure = true;
            sleep(self.limits.pause(attempt, &failure)).await;
            attempt += 1;
        }
    }

    /// Reads an object or a part of it, of which at most `most` bytes may come, and says how long it is.
    async fn read(&self, name: &str, what: GetOptions, most: u64) -> io::Result<(Vec<u8>, u64)> {
        let path = self.path(name)?;
        let patience = self.limits.patience(most.min(MAX_OBJECT));
        self.tried(name, patience, || async {
            let answer = self.store.get_opts(&path, what.clone()).await?;
            self.signs.add();
            let size = answer.meta.size;
            let length = answer.range.end - answer.range.start;
            if length > most {
                return Err(Failure::TooLong(too_long(name, most)));
            }
            Ok((gathered(answer, length, &self.signs).await?, size))
        })
        .await
    }

    /// How long an object is.
    async fn size(&self, name: &str) -> io::Result<u64> {
        let path = self.path(name)?;
        let patience = self.limits.patience(0);
        self.tried(name, patience, || async { Ok(self.store.head(&path).await?.size) }).await
    }

    /// Makes sure that all of an object is there that was just put. If not, it is taken away: nothing names it yet.
    async fn is_all_there(&self, name: &str, length: u64) -> io::Result<()> {
        let came = match self.size(name).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            came => came?,
        };
        if came == length {
            return Ok(());
        }
        Err(self.take_away(name, Failure::Length { expected: length, came }).await)
    }

    /// The same for every byte of it.
    async fn is_as_put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let expected = bytes.len() as u64;
        match self.read(name, GetOptions::default(), expected).await {
            Ok((found, _)) if found == bytes => return Ok(()),
            Ok(_) => {}
            // What is longer is no valid data.
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidData) => {
            }
            Err(error) => return Err(error),
        }
        Err(self.take_away(name, Failure::Altered).await)
    }

    /// Takes away what was put and is not what it was to be.
    async fn take_away(&self, name: &str, failure: Failure) -> io::Error {
        if let Ok(path) = self.path(name) {
            // One that stays is of no use to anybody, and is put under another name the next time.
            let _gone_or_not = timeout(self.limits.patience(0), self.store.delete(&path)).await;
        }
        self.failed(name, failure, 1)
    }
}

impl Drop for RemoteObjects {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Not waited for: it may be dropped where waiting is not allowed, and nobody asks any more.
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for RemoteObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteObjects({})", self.url)
    }
}

/// The bytes of an answer, all of them.
async fn gathered(answer: GetResult, length: u64, signs: &Signs) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::with_capacity(usize::try_from(length.min(MAX_OBJECT)).unwrap_or(0));
    let mut parts = answer.into_stream();
    while let Some(part) = parts.next().await {
        bytes.extend_from_slice(&part?);
        signs.add();
        if bytes.len() as u64 > length {
            break;
        }
    }
    if bytes.len() as u64 == length {
        return Ok(bytes);
    }
    Err(Failure::Length { expected: length, came: bytes.len() as u64 })
}

impl Objects for RemoteObjects {
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<Put> {
        if bytes.len() as u64 > MAX_OBJECT {
            return Err(too_long(name, MAX_OBJECT));
        }
        self.wait_for(async {
            let put = self.create(name, bytes.to_vec().into()).await?;
            // These are few and small, and name what else there is: each is read once, as who needs it will read it.
            if put == Put::Created {
                self.is_as_put(name, bytes).await?;
            }
            Ok(put)
        })
    }

    fn begin(&self) -> io::Result<Box<dyn NewObject + '_>> {
        Ok(Box::new(Gathered { objects: self, bytes: Vec::new() }))
    }

    fn get(&self, name: &str, most: u64) -> io::Result<Vec<u8>> {
        self.wait_for(async { Ok(self.read(name, GetOptions::default(), most).await?.0) })
    }

    fn get_range(&self, name: &str, offset: u64, length: u64) -> io::Result<Vec<u8>> {
        let range = GetRange::Bounded(offset..offset.saturating_add(length));
        let what = GetOptions { range: Some(range), ..GetOptions::default() };
        self.wait_for(async {
            if length > 0 {
                match self.read(name, what, length).await {
                    Ok((bytes, _)) => return Ok(bytes),
                    Err(error) if !is_refused(&error) => return Err(error),
                    // A range that begins behind the end is refused by most.
                    Err(error) if self.size(name).await? > offset => return Err(error),
                    Err(_) => return Ok(Vec::new()),
                }
            }
            self.size(name).await.map(|_| Vec::new())
        })
    }

    fn get_end(&self, name: &str, length: u64) -> io::Result<(Vec<u8>, u64)> {
        let range = GetRange::Suffix(length);
        let what = GetOptions { range: Some(range), ..GetOptions::default() };
        self.wait_for(async {
            if length > 0 {
                match self.read(name, what, length).await {
                    Ok(read) => return Ok(read),
                    Err(error) if !is_refused(&error) => return Err(error),
                    // There is no range of an empty object.
                    Err(error) if self.size(name).await? > 0 => return Err(error),
                    Err(_) => return Ok((Vec::new(), 0)),
                }
            }
            Ok((Vec::new(), self.size(name).await?))
        })
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<Listed>> {
        let path = self.path(prefix.trim_end_matches('/'))?;
        let above = match self.prefix.as_ref() {
            "" => String::new(),
            prefix => format!("{prefix}/"),
        };
        // Pages come one after the other, and each may take its time: what is bounded is the wait for the
        // next object.
        let patience = self.limits.patience(0);
        let listed = || async {
            let mut pages = self.store.list(Some(&path));
            let mut found = Vec::new();
            loop {
                let Ok(next) = timeout(patience, pages.next()).await else {
                    return Err(Failure::Stalled(patience));
                };
                let Some(next) = next else { return Ok(found) };
                let next = next?;
                self.signs.add();
                let name = next.location.as_ref().strip_prefix(&above);
                let Some(name) = name.filter(|name| name.starts_with(prefix)) else { continue };
                found.push(Listed {
                    name: name.to_owned(),
                    size: next.size,
                    put_at: next.last_modified.timestamp_millis(),
                });
            }
        };
        let mut found = self.wait_for(self.tried(prefix, Duration::MAX, listed))?;
        found.sort_by(|one, other| one.name.cmp(&other.name));
        found.dedup_by(|one, other| one.name == other.name);
        Ok(found)
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        let path = self.path(name)?;
        let patience = self.limits.patience(0);
        let deleted = self.wait_for(self.tried(name, patience, || async {
            self.store.delete(&path).await.map_err(Failure::from)
        }));
        match deleted {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn clear(&self, _age: Duration) -> io::Result<()> {
        Ok(())
    }

    fn max_object(&self) -> u64 {
        MAX_OBJECT
    }

    fn to_probe(&self) -> Option<&dyn Objects> {
        Some(self)
    }
}

/// Whether it was refused for what was asked, and neither missing nor for later.
fn is_refused(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Other
}

/// An object that is put as a whole at the end.
struct Gathered<'a> {
    objects: &'a RemoteObjects,
    bytes: Vec<u8>,
}

impl NewObject for Gathered<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if (self.bytes.len() + bytes.len()) as u64 > MAX_OBJECT {
            return Err(too_long("a new object", MAX_OBJECT));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn finish(self: Box<Self>, name: &str) -> io::Result<Put> {
        let Self { objects, bytes } = *self;
        let length = bytes.len() as u64;
        objects.wait_for(async {
            let put = objects.create(name, bytes.into()).await?;
            // Whoever is on the way may keep half of it, and say that all is well.
            if put == Put::Created {
                objects.is_all_there(name, length).await?;
            }
            Ok(put)
        })
    }
}
