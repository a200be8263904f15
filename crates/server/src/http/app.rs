//! What the handlers work with.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ash_core::id::SessionId;
use ash_core::json::Json;
use ash_core::time::{Clock, Timestamp};
use ash_engine::agent::Library;
use ash_engine::{Accepted, Engine, IdSource, Idempotency};
use ash_store::{Store, StoredSession};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::Metrics;
use super::auth::{Caller, Keys, Origins};
use super::error::ApiError;
use super::sse::LargeFrames;
use crate::agents::definition_of;
use crate::api::PermissionMode;
use crate::attachments::Attachments;
use crate::egress::ModelProxy;
use crate::runtime::RuntimeChoice;
use crate::secret::{ApiSecret, Sealer};
use crate::sessions::{InCloud, Options, session_view};

/// What an [`App`] is made of.
pub struct AppParts {
    /// What drives sessions.
    pub engine: Engine,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Seals what must not be read at rest.
    pub sealer: Sealer,
    /// The files of agents.
    pub library: Library,
    /// The key in the server's environment.
    pub environment_key: Option<ApiSecret>,
    /// What whoever runs the server is let in with.
    pub internal_secret: Option<ApiSecret>,
    /// How many requests a key may make in a minute.
    pub rate_limit: Option<u32>,
    /// Which pages may make a browser send requests here.
    pub origins: Origins,
    /// After how long sessions end by themselves, unless they say otherwise.
    pub session_ttl: Option<Duration>,
    /// How many sandboxes there may be.
    pub max_sandboxes: u32,
    /// What keeps agents from the rest of the machine.
    pub isolation: &'static str,
    /// What keeps the files of sandboxes within their limit.
    pub disk: String,
    /// How long an event stream is silent at the most.
    pub heartbeat: Duration,
    /// What runs sessions.
    pub runtimes: RuntimeChoice,
    /// What is counted.
    pub metrics: Metrics,
    /// What sandboxes ask of others.
    pub egress: ModelProxy,
    /// What is attached to sessions.
    pub attachments: Attachments,
}

/// What the handlers work with. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub struct App(Arc<Inner>);

struct Inner {
    parts: AppParts,
    keys: Keys,
    ids: IdSource,
    started: Instant,
    draining: AtomicBool,
    /// Counts requests, from somewhere.
    requests: AtomicU64,
    /// Held while the settings of an agent are changed.
    settings: Arc<Mutex<()>>,
    large_frames: LargeFrames,
}

impl App {
    /// An app over an engine that runs.
    pub fn new(parts: AppParts) -> Self {
        let keys = Keys::new(parts.environment_key.as_ref(), parts.rate_limit);
        let ids = IdSource::unguessable();
        let draining = AtomicBool::new(false);
        let requests = AtomicU64::new(
            ids.make(parts.clock.now(), |_, [_, _, from @ ..]| u64::from_be_bytes(from)),
        );
        let settings = Arc::default();
        let (started, large_frames) = (Instant::now(), LargeFrames::default());
        Self(Arc::new(Inner {
            parts,
            keys,
            ids,
            started,
            draining,
            requests,
            settings,
            large_frames,
        }))
    }

    /// Says that the server is about to go: it is not ready any more.
    pub fn begin_draining(&self) {
        self.0.draining.store(true, Ordering::Release);
    }

    pub(super) fn is_draining(&self) -> bool {
        self.0.draining.load(Ordering::Acquire)
    }

    /// What keeps agents from the rest of the machine.
    pub(crate) fn isolation(&self) -> &'static str {
        self.0.parts.isolation
    }

    /// What keeps the files of sandboxes within their limit.
    pub(crate) fn disk(&self) -> &str {
        &self.0.parts.disk
    }

    /// A session as the wire has it.
    pub(super) async fn view(
        &self,
        stored: &StoredSession,
    ) -> Result<crate::api::Session, ApiError> {
        let mut views = self.views(std::slice::from_ref(stored)).await?;
        Ok(views.remove(0))
    }

    /// Sessions as the wire has them. Those without a sandbox show the isolation that they would get.
    pub(super) async fn views(
        &self,
        all: &[StoredSession],
    ) -> Result<Vec<crate::api::Session>, ApiError> {
        let ids: Vec<SessionId> = all.iter().map(|stored| stored.record.id).collect();
        let cloud = self.engine().cloud();
        let in_cloud = match cloud {
            Some(_) => self.store().cloud_heads(&ids).await?,
            None => BTreeMap::new(),
        };
        let view = |stored: &StoredSession| {
            let its_own = self.engine().isolation(&stored.session);
            let id = stored.record.id;
            let put = in_cloud.get(&id);
            let in_cloud = InCloud {
                seq: put.map(|head| head.snapshot_seq),
                failure: cloud.and_then(|cloud| cloud.failure(stored, put)),
            };
            session_view(stored, in_cloud, its_own.unwrap_or(self.isolation()))
        };
        Ok(all.iter().map(view).collect())
    }

    pub(super) fn parts(&self) -> &AppParts {
        &self.0.parts
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.0.parts.engine
    }

    pub(super) fn store(&self) -> &dyn Store {
        self.0.parts.engine.store().as_ref()
    }

    pub(super) fn sealer(&self) -> &Sealer {
        &self.0.parts.sealer
    }

    pub(super) fn library(&self) -> &Library {
        &self.0.parts.library
    }

    pub(super) fn attachments(&self) -> &Attachments {
        &self.0.parts.attachments
    }

    pub(super) fn large_frames(&self) -> &LargeFrames {
        &self.0.large_frames
    }

    pub(super) fn egress(&self) -> &ModelProxy {
        &self.0.parts.egress
    }

    pub(super) fn keys(&self) -> &Keys {
        &self.0.keys
    }

    pub(super) fn origins(&self) -> &Origins {
        &self.0.parts.origins
    }

    pub(super) fn session_ttl(&self) -> Option<Duration> {
        self.0.parts.session_ttl
    }

    pub(super) fn uptime(&self) -> Duration {
        self.0.started.elapsed()
    }

    pub(super) fn now(&self) -> Timestamp {
        self.0.parts.clock.now()
    }

    /// A new id.
    pub(super) fn make<T>(&self, from_parts: fn(Timestamp, [u8; 10]) -> T) -> T {
        self.0.ids.make(self.now(), from_parts)
    }

    /// Names a request. Nothing depends on whether it can be guessed, so it costs no system call.
    pub(super) fn request_id(&self) -> String {
        let number = self.0.requests.fetch_add(1, Ordering::Relaxed);
        let mut random = [0; 10];
        random[2..].copy_from_slice(&number.to_be_bytes());
        ash_core::id::OutboxId::from_parts(self.now(), random).to_string()
    }

    /// The caller's session.
    pub(super) async fn session(
        &self,
        caller: &Caller,
        id: SessionId,
    ) -> Result<Arc<StoredSession>, ApiError> {
        Ok(self.store().session(&caller.tenant, id).await?)
    }

    /// How long a run of a session may take, if its agent says so.
    pub(super) async fn turn_timeout(
        &self,
        stored: &StoredSession,
    ) -> Result<Option<Duration>, ApiError> {
        let record = &stored.record;
        let agent = self
            .store()
            .agent_version(&record.tenant, &record.agent_name, record.agent_version)
            .await?;
        let definition = definition_of(&agent).map_err(ApiError::internal)?;
        Ok(definition.manifest.limits.turn_timeout_ms.map(Duration::from_millis))
    }

    /// What a session's agent asks about, if its session says so: that may leave it to the agent.
    pub(super) async fn permission_mode(
        &self,
        stored: &StoredSession,
        said: PermissionMode,
    ) -> Result<&'static str, ApiError> {
        if said != PermissionMode::PermissionsByAgent {
            return Ok(said.as_str());
        }
        let record = &stored.record;
        let agent = self
            .store()
            .agent_version(&record.tenant, &record.agent_name, record.agent_version)
            .await?;
        let definition = definition_of(&agent).map_err(ApiError::internal)?;
        let of_agent = definition.manifest.permission_mode.map(PermissionMode::from);
        Ok(of_agent.unwrap_or(said).as_str())
    }

    /// The session that an earlier request with the same key made.
    pub(super) async fn created_before(
        &self,
        caller: &Caller,
        idempotency: Option<&Idempotency>,
    ) -> Result<Option<Arc<StoredSession>>, ApiError> {
        #[derive(serde::Deserialize)]
        struct Created {
            session: SessionId,
        }
        let Some(idempotency) = idempotency else { return Ok(None) };
        let Some(answer) = self.engine().receipt_of(idempotency).await? else { return Ok(None) };
        let Created { session } = serde_json::from_str(answer.get()).map_err(ApiError::internal)?;
        self.session(caller, session).await.map(Some)
    }

    /// The right to read an agent's settings and write them changed.
    pub(super) async fn change_settings(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.0.settings).lock_owned().await
    }

    /// What an earlier request with the same key was told about its prompt.
    pub(super) async fn accepted_before(
        &self,
        idempotency: Option<&Idempotency>,
    ) -> Result<Option<Accepted>, ApiError> {
        let Some(idempotency) = idempotency else { return Ok(None) };
        let Some(answer) = self.engine().receipt_of(idempotency).await? else { return Ok(None) };
        serde_json::from_str(answer.get()).map(Some).map_err(ApiError::internal)
    }

    pub(super) fn seal_options(&self, options: &Options) -> Result<Json, ApiError> {
        options.seal(self.sealer()).map_err(ApiError::internal)
    }

    pub(super) fn open_options(&self, config: &Json) -> Result<Options, ApiError> {
        Options::open(config, self.sealer()).map_err(ApiError::internal)
    }
}

/// Every request that needs a caller has one: the outermost layer saw to it.
impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let caller = parts.extensions.get::<Self>().cloned();
        caller.ok_or_else(|| ApiError::internal("a route that is public asks who is asking"))
    }
}
