//! An engine with real sandboxes, real snapshots and a database, in this process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ash_bench_snapshot::trees::{self, Shape};
use ash_core::id::{SessionId, TenantId};
use ash_core::resume::Receipt;
use ash_core::session::{IfRunning, Sandbox, Session};
use ash_engine::bridge::{Agent, BridgeHost, Enclosure, HostOptions, Sandboxing, Users};
use ash_engine::{
    CreateSession, Engine, IdSource, Options, RequireState, SandboxHost as _, SystemClock,
};
use ash_server::egress::{ModelProxy, Upstream};
use ash_store::Store;

use super::LOOK;
use crate::sandbox::Remains;
use crate::world;

/// The users of the measured sandboxes: no server's, by default.
const UID_BASE: u32 = 270_000;
const UIDS: u32 = 1_000;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// An engine, and all that is left of it when it is gone.
pub(super) struct Stage {
    engine: Engine,
    host: BridgeHost,
    store: Arc<dyn Store>,
    tenant: TenantId,
    /// Where snapshots lie.
    pub(super) snapshots: PathBuf,
    _remains: Remains,
}

impl Stage {
    pub(super) async fn set(directory: &Path) -> Self {
        let (data, tenant) = (directory.join("engine"), TenantId::default_tenant());
        let bridge = ash_server::beside::bridge().expect("it is built");
        let store: Arc<dyn Store> = world::open(&directory.join("engine.db"), 256);
        let owner = store.next_owner().await.expect("the store can be written");
        let users = Users::new(UID_BASE, UIDS);
        let probed = Sandboxing::probe(&data, &bridge, users, &[]);
        let (sandboxing, _checks) = probed.unwrap_or_else(|error| panic!("no sandboxes: {error}"));
        let nobody = Upstream { base_url: "http://127.0.0.1:9".to_owned(), key: None };
        let host = BridgeHost::open(HostOptions {
            data: data.clone(),
            bridge,
            owner,
            orphan_ttl: Duration::from_secs(60),
            hook_timeout: Duration::from_secs(60),
            describe: Arc::new(Agent::new("builtin", "bench")),
            environment: BTreeMap::new(),
            egress: Arc::new(ModelProxy::new(nobody).expect("a client can be built")),
            enclosure: Enclosure::Sandbox(Arc::new(sandboxing)),
            cloud: None,
            boot_id: "bench".to_owned(),
        })
        .expect("the directory can be used");
        world::deploy(&*store).await;
        let engine = Engine::start(Options {
            store: Arc::clone(&store),
            host: Arc::new(host.clone()),
            clock: Arc::new(SystemClock),
            policy: world::policy(),
            ids: IdSource::unguessable(),
            owner,
            cloud: None,
            bundles: None,
        });
        let snapshots = data.join("snapshots").join(tenant.as_str());
        Self { engine, host, store, tenant, snapshots, _remains: Remains { data } }
    }

    /// A session that is active.
    pub(super) async fn session(&self) -> SessionId {
        let create = CreateSession {
            tenant: self.tenant.clone(),
            agent: "coder".parse().expect("a plain name"),
            settings: world::settings(),
            time_to_live: None,
            idle_timeout: None,
        };
        let created = self.engine.create_session(create, None).await.expect("it can be made");
        let id = created.record.id;
        self.engine.settled(&self.tenant, id).await.expect("it starts");
        id
    }

    /// A session that is active and has files.
    pub(super) async fn session_with(&self, shape: &Shape) -> SessionId {
        let session = self.session().await;
        trees::make(&self.workspace(session), shape).expect("there is room");
        session
    }

    pub(super) fn workspace(&self, session: SessionId) -> PathBuf {
        self.host.workspace(session)
    }

    pub(super) fn home(&self, session: SessionId) -> PathBuf {
        self.host.home(session)
    }

    /// Freezes a session; returns when it is captured.
    pub(super) async fn pause(&self, session: SessionId) {
        self.engine.pause(&self.tenant, session, IfRunning::Freeze).await.expect("it is active");
        self.until(session, |session| matches!(session.sandbox(), Sandbox::Frozen { .. })).await;
    }

    /// Ends the sandbox of a session; returns when it is captured.
    pub(super) async fn stop(&self, session: SessionId) {
        self.engine.stop(&self.tenant, session).await.expect("it is active");
        self.until(session, |session| session.sandbox() == Sandbox::None).await;
    }

    /// Brings a session back; says how long that took, and to what.
    pub(super) async fn resume(&self, session: SessionId) -> (Duration, Receipt) {
        let begin = Instant::now();
        let resumed = self.engine.resume(&self.tenant, session, RequireState::No).await;
        let took = begin.elapsed();
        (took, resumed.expect("it comes back").receipt.expect("it was away"))
    }

    pub(super) async fn look(&self, session: SessionId) -> Session {
        let stored = self.store.session(&self.tenant, session).await.expect("it is there");
        stored.session.clone()
    }

    async fn until(&self, session: SessionId, is_so: impl Fn(&Session) -> bool) {
        let begin = Instant::now();
        loop {
            let seen = self.look(session).await;
            if is_so(&seen) && seen.persistence().is_settled() {
                assert!(seen.persistence().failed().is_none(), "{:?}", seen.persistence());
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "{session} never comes to rest");
            tokio::time::sleep(LOOK).await;
        }
    }

    pub(super) async fn clear(self) {
        for sandbox in self.host.list().await.expect("they can be listed") {
            self.host.stop(sandbox).await.expect("it can be stopped");
        }
        self.engine.abort().await;
        self.host.abandon().await;
    }
}
