//! The files of a session, for whoever asks from outside: also of one whose sandbox is gone.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ash_core::id::{SessionId, TenantId};
use ash_core::refusal::Refusal;
use ash_core::session::{Sandbox, Session, State};
use tokio::sync::Semaphore;

use crate::at_once::{AtOnce, Place};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::files::{
    Directories, Executable, FileError, FilePath, Listing, OpenFile, Scope, Stored, Tree, Unpacked,
};
use crate::host::HostError;

/// How many requests about the files of one session are worked on at once.
const MAX_REQUESTS: usize = 8;

/// How many threads work on files at once, for all sessions.
const MAX_THREADS: usize = 16;

/// How many directories of one session are removed at once, with everything in them: that can take long.
const MAX_REMOVALS: usize = 1;

/// How many threads do that, for all sessions. They are others: nobody else waits for them.
const MAX_REMOVERS: usize = 4;

/// What bounds the work on files.
#[derive(Clone)]
pub(crate) struct FileWork {
    requests: AtOnce,
    threads: Arc<Semaphore>,
    removals: AtOnce,
    removers: Arc<Semaphore>,
    /// Whether removals are to end where they are.
    is_over: Arc<AtomicBool>,
}

impl Default for FileWork {
    fn default() -> Self {
        Self {
            requests: AtOnce::new(MAX_REQUESTS),
            threads: Arc::new(Semaphore::new(MAX_THREADS)),
            removals: AtOnce::new(MAX_REMOVALS),
            removers: Arc::new(Semaphore::new(MAX_REMOVERS)),
            is_over: Arc::default(),
        }
    }
}

impl FileWork {
    /// Who works with files at this moment.
    pub(crate) fn requests(&self) -> AtOnce {
        self.requests.clone()
    }

    /// Has every removal end where it is, and none begin.
    pub(crate) fn stop(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    /// Waits until no removal goes on, for a while. After [`stop`](Self::stop) that is soon.
    pub(crate) async fn at_rest(&self, patience: Duration) {
        let all = self.removers.acquire_many(u32::try_from(MAX_REMOVERS).unwrap_or(u32::MAX));
        if tokio::time::timeout(patience, all).await.is_err() {
            tracing::warn!("files are still being removed");
        }
    }
}

/// Calls a removal off when nobody waits for it any more.
struct CalledOff(Arc<AtomicBool>);

impl Drop for CalledOff {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Where the files of a session are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSource {
    /// In a sandbox that is alive: they may change at any moment.
    Sandbox,
    /// Where the last sandbox left them, or in its last snapshot.
    Snapshot,
}

impl FileSource {
    /// The name that clients know it by.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sandbox => "sandbox",
            Self::Snapshot => "snapshot",
        }
    }
}

/// Why something about the files of a session was not done.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// The session has no files, for it never started.
    #[error("the session has no workspace")]
    None,
    /// The files are in a snapshot alone: they can be read, and not changed before the session is resumed.
    #[error("the session's files are in its snapshot alone")]
    Away,
    /// It is about a file.
    #[error(transparent)]
    File(#[from] FileError),
    /// It is about the session.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// The files of a session, for the time of a request.
pub struct Workspace {
    files: Files,
    source: FileSource,
    session: SessionId,
    file_work: FileWork,
    /// Kept by work that goes on when nobody waits for it any more.
    place: Arc<Place>,
    engine: Engine,
}

/// The files themselves.
#[derive(Clone)]
enum Files {
    /// In their place.
    InPlace(Arc<Tree>),
    /// In a snapshot alone.
    Away(Arc<Stored>),
}

/// What the files of a session are wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Reading,
    Changing,
}

impl Engine {
    /// The files of a session. Whoever has them neither wakes it nor counts as its user.
    pub async fn workspace(
        &self,
        tenant: &TenantId,
        session: SessionId,
    ) -> Result<Workspace, WorkspaceError> {
        self.workspace_for(tenant, session, Purpose::Reading).await
    }

    /// The same, to write to them: a session that is over takes nothing more.
    pub async fn workspace_to_change(
        &self,
        tenant: &TenantId,
        session: SessionId,
    ) -> Result<Workspace, WorkspaceError> {
        self.workspace_for(tenant, session, Purpose::Changing).await
    }

    async fn workspace_for(
        &self,
        tenant: &TenantId,
        session: SessionId,
        purpose: Purpose,
    ) -> Result<Workspace, WorkspaceError> {
        let stored = self.shared.store.session(tenant, session).await.map_err(EngineError::from)?;
        if purpose == Purpose::Changing && *stored.session.state() == State::Ended {
            return Err(EngineError::from(Refusal::Ended).into());
        }
        let source = match stored.session.sandbox() {
            Sandbox::Live
            | Sandbox::Thawing { .. }
            | Sandbox::Freezing { .. }
            | Sandbox::Frozen { .. } => FileSource::Sandbox,
            Sandbox::None | Sandbox::Starting { .. } | Sandbox::Stopping { .. } => {
                FileSource::Snapshot
            }
        };
        let file_work = self.shared.file_work.clone();
        let place = file_work.requests.begin(session).ok_or(EngineError::Overloaded)?;
        let place = Arc::new(place);
        let unavailable = |error: HostError| EngineError::Unavailable(error.into());
        if source == FileSource::Snapshot {
            let proven = stored.session.persistence().proven();
            self.shared.host.believe(session, tenant, proven).await.map_err(unavailable)?;
        }
        let path = self.shared.host.workspace(session).await.map_err(unavailable)?;
        let tree = match path {
            Some(path) => {
                let open = move || match Tree::open(&path) {
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
                    tree => Ok(Some(tree?)),
                };
                blocking(&file_work.threads, &place, open).await?
            }
            None => None,
        };
        let files = match tree {
            Some(tree) => Files::InPlace(Arc::new(tree)),
            None => Files::Away(self.stored(tenant, &stored.session).await?),
        };
        if purpose == Purpose::Changing && matches!(files, Files::Away(_)) {
            return Err(WorkspaceError::Away);
        }
        Ok(Workspace { files, source, session, file_work, place, engine: self.clone() })
    }

    /// What the last snapshot of a session has.
    async fn stored(
        &self,
        tenant: &TenantId,
        session: &Session,
    ) -> Result<Arc<Stored>, WorkspaceError> {
        let last = session.persistence().last().ok_or(WorkspaceError::None)?;
        let stored = self.shared.host.stored(tenant, last.captured.id).await;
        let stored = stored.map_err(EngineError::of_snapshots)?;
        stored.map(Arc::new).ok_or(WorkspaceError::None)
    }
}

impl Workspace {
    /// Where the files are.
    pub fn source(&self) -> FileSource {
        self.source
    }

    /// The ordinary files beneath a directory, or a file alone.
    pub async fn list(&self, under: FilePath, scope: Scope) -> Result<Listing, WorkspaceError> {
        self.look(move |files| match files {
            Files::InPlace(tree) => tree.list(&under, scope),
            Files::Away(stored) => stored.list(&under, scope),
        })
        .await
    }

    /// The directories right beneath a directory.
    pub async fn directories(&self, under: FilePath) -> Result<Directories, WorkspaceError> {
        self.look(move |files| match files {
            Files::InPlace(tree) => tree.directories(&under),
            Files::Away(stored) => stored.directories(&under),
        })
        .await
    }

    /// Opens a file that is no larger than wanted.
    pub async fn read(&self, path: FilePath, most: u64) -> Result<OpenFile, WorkspaceError> {
        self.look(move |files| match files {
            Files::InPlace(tree) => tree.read(&path, most),
            Files::Away(stored) => stored.read(&path, most),
        })
        .await
    }

    /// Writes a file, and the directories above it. Returns how many bytes it has.
    pub async fn write(
        &self,
        path: FilePath,
        executable: Executable,
        content: Vec<u8>,
    ) -> Result<u64, WorkspaceError> {
        self.change(move |tree| tree.write(&path, executable, &mut content.as_slice())).await
    }

    /// Removes a file.
    pub async fn remove(&self, path: FilePath) -> Result<(), WorkspaceError> {
        self.change(move |tree| tree.remove(&path)).await
    }

    /// Removes a file, or a directory with everything in it. It is called off when nobody waits for it any
    /// more, and when the server ends; what is removed by then stays removed.
    pub async fn remove_all(&self, path: FilePath) -> Result<(), WorkspaceError> {
        match self.remove(path.clone()).await {
            Err(WorkspaceError::File(FileError::NotAFile)) => {}
            removed => return removed,
        }
        let FileWork { removals, removers, is_over, .. } = &self.file_work;
        let removal = removals.begin(self.session).ok_or(EngineError::Overloaded)?;
        let called_off = CalledOff(Arc::default());
        let (unwanted, is_over) = (Arc::clone(&called_off.0), Arc::clone(is_over));
        let tree = self.tree()?;
        let removed = blocking(removers, &self.place, move || {
            let ends = || unwanted.load(Ordering::Acquire) || is_over.load(Ordering::Acquire);
            let removed = tree.remove_all_unless(&path, &ends);
            drop(removal);
            removed
        });
        let removed = removed.await;
        self.touch().await;
        removed
    }

    /// Packs everything into a file without a name. Returns it with its size.
    pub async fn pack(&self) -> Result<(File, u64), WorkspaceError> {
        self.look(|files| match files {
            Files::InPlace(tree) => tree.pack(),
            Files::Away(stored) => stored.pack(),
        })
        .await
    }

    /// Unpacks a bundle over what is there, or refuses all of it.
    pub async fn unpack(&self, bundle: Vec<u8>) -> Result<Unpacked, WorkspaceError> {
        self.change(move |tree| tree.unpack(&bundle)).await
    }

    /// Does something that changes files, and has what became of it captured soon.
    async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&Tree) -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, WorkspaceError> {
        let tree = self.tree()?;
        let changed = blocking(&self.file_work.threads, &self.place, move || change(&tree)).await;
        // Also of a failure: it may have come in the middle.
        self.touch().await;
        changed
    }

    async fn touch(&self) {
        // What cannot be noted now is captured with the next turn, or when the session comes to rest.
        if let Err(error) = self.engine.touch(self.session).await {
            let error = &error as &dyn std::error::Error;
            tracing::debug!(error, session.id = %self.session, "a change of files was not noted");
        }
    }

    /// The files where they can be changed.
    fn tree(&self) -> Result<Arc<Tree>, WorkspaceError> {
        match &self.files {
            Files::InPlace(tree) => Ok(Arc::clone(tree)),
            Files::Away(_) => Err(WorkspaceError::Away),
        }
    }

    async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Files) -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, WorkspaceError> {
        let files = self.files.clone();
        blocking(&self.file_work.threads, &self.place, move || look(&files)).await
    }
}

/// Does something that blocks, when there is a thread for it.
async fn blocking<T: Send + 'static>(
    threads: &Arc<Semaphore>,
    place: &Arc<Place>,
    work: impl FnOnce() -> Result<T, FileError> + Send + 'static,
) -> Result<T, WorkspaceError> {
    let thread = Arc::clone(threads).acquire_owned().await;
    let thread = thread.expect("nobody closes the semaphore");
    let place = Arc::clone(place);
    let done = tokio::task::spawn_blocking(move || {
        let done = work();
        drop((thread, place));
        done
    });
    let done = done.await.map_err(|error| EngineError::Damaged(error.into()))?;
    Ok(done?)
}
