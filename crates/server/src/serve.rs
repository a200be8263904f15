//! A server: the store, the host, the engine and the HTTP front, put together and taken apart.
//!
//! The order of a start is what makes it safe to start a second server by mistake: the port is taken
//! first, and only who has it takes the sessions over.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use ash_core::policy::Policy;
use ash_core::time::Clock;
use ash_engine::agent::Library;
use ash_engine::bridge::{
    BridgeHost, Enclosure, HostOptions, NoSandbox, Sandboxing, Tier, Users, boot_id,
    give_up_reserve, longest_hooks,
};
use ash_engine::runtimes::{Runtimes, View};
use ash_engine::{Bundles, Engine, IdSource, Options, SandboxHost as _, SteadyClock};
use ash_store::sqlite::SqliteStore;
use ash_store::{Store, StoreError};
use rustix::fs::FlockOperation;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::agents::{Asks, Descriptions};
use crate::attachments::Attachments;
use crate::config::{Config, MinIsolation, PermissionMode};
use crate::credentials::SessionCredentials;
use crate::egress::{ModelKey, ModelProxy, Surroundings, Upstream};
use crate::http::{self, App, AppParts, Bounds, Metrics, Origins, QueueDesk};
use crate::runtime::{RuntimeChoice, claude_options, legacy_of};
use crate::secret::{ApiSecret, InitialKey, Sealer, initial_key};
use crate::{beside, cloud, discovery};

/// How often what is counted is tidied up.
const UPKEEP: Duration = Duration::from_secs(5);

/// A server that runs.
pub struct Server {
    /// Held while the data is ours.
    lock: File,
    address: SocketAddr,
    /// The socket that it listens on, for whoever takes over, as long as it listens.
    kept: Option<OwnedFd>,
    engine: Engine,
    host: BridgeHost,
    app: App,
    proxy: ModelProxy,
    stop: CancellationToken,
    tasks: JoinSet<()>,
    /// Where the key for the command line is, if one was made or found.
    key_file: Option<PathBuf>,
    announced: Option<discovery::Announcement>,
}

impl Server {
    /// Starts a server. Sessions that are owed something are taken up at once.
    ///
    /// # Errors
    /// The port is taken, or the data directory cannot be used.
    pub async fn start(
        config: &Config,
        environment: BTreeMap<String, String>,
    ) -> anyhow::Result<Self> {
        Self::start_within(config, environment, Bounds::default()).await
    }

    /// Like [`Server::start`], with other bounds for what a client can make large.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub async fn start_within(
        config: &Config,
        environment: BTreeMap<String, String>,
        bounds: Bounds,
    ) -> anyhow::Result<Self> {
        let home = environment.get("HOME").map(PathBuf::from);
        let wanted = SocketAddr::new(config.host, config.port);
        let listener = match inherited_listener() {
            Some(listener) => listener,
            None => TcpListener::bind(wanted)
                .await
                .with_context(|| format!("could not listen on {wanted}"))?,
        };
        let kept = listener.as_fd().try_clone_to_owned().context("could not keep the port")?;
        let address = listener.local_addr().context("could not learn the address")?;
        let data =
            std::path::absolute(&config.data_dir).context("there is no current directory")?;
        make_data_dir(&data)?;
        let lock = lock(&data).await?;
        // Where a disk was filled before this starts, nothing could be recorded, and so nothing be removed either.
        give_up_reserve(&data);
        let store = open_store(config)?;
        let sealer =
            Sealer::open_or_create(&data, config.credential_key.as_ref().map(|key| key.expose()))
                .context("could not get the key that seals credentials")?;
        let clock: Arc<dyn Clock> = Arc::new(SteadyClock::new());
        let environment_key = config.api_key.as_ref().map(|key| ApiSecret::from_text(key.expose()));
        let key_file = match &environment_key {
            Some(_) => None,
            None => let_in(store.as_ref(), &data, clock.as_ref()).await?,
        };
        let library = Library::open(&data.join("agents")).context("could not open the agents")?;
        let owner = match store.next_owner().await {
            Err(StoreError::Full(_)) if give_up_reserve(&data) => store.next_owner().await,
            owner => owner,
        };
        let owner = owner.context("could not begin")?;
        let upstream = Upstream {
            base_url: config.anthropic_base_url.as_str().to_owned(),
            key: config
                .anthropic_api_key
                .as_ref()
                .map(|key| ModelKey::new(key.expose().to_owned())),
        };
        let surroundings = Surroundings {
            store: Arc::clone(&store),
            sessions: SessionCredentials::new(Arc::clone(&store), sealer.clone()),
            clock: Arc::clone(&clock),
            rate_limit: config.egress_rate_limit,
            private: config.egress_allow_private.clone().unwrap_or_default(),
        };
        let proxy = ModelProxy::within(upstream, surroundings);
        let proxy = proxy.context("could not make the proxy of sandboxes")?;
        let bridge = beside::bridge().context("could not find the bridge")?;
        let (known, now) = (store.as_ref(), clock.now());
        let cloud = cloud::open(config, &environment, &data, &library, known, now).await?;
        let enclosure = enclose(config, &data, &bridge).await?;
        let runtimes = runtimes(config, &data, &enclosure)?;
        let (of_store, of_library) = (Arc::clone(&store), library.clone());
        let describe = Descriptions::new(of_store, of_library, sealer.clone(), runtimes.clone())
            .with_memory(config.sandbox_memory_mb)
            .with_questions(asks(config));
        let (isolation, disk) = (isolation_of(&enclosure), disk_of(&enclosure));
        let host = BridgeHost::open(HostOptions {
            data: data.clone(),
            bridge,
            owner,
            orphan_ttl: config.orphan_ttl_ms,
            hook_timeout: config.hook_timeout_ms,
            describe: Arc::new(describe),
            environment,
            egress: Arc::new(proxy.clone()),
            enclosure,
            cloud: cloud.clone(),
            boot_id: boot_id().context("could not find out which boot of the machine this is")?,
        })
        .context("could not open the sandboxes")?;
        let bundles = Bundles::open(&host, &data, library.clone());
        let bundles = bundles.context("could not make a place for bundles")?;
        let metrics = Metrics::start(format!("ash-{}", std::process::id()));
        let policy = Policy {
            idle_timeout: config.idle_timeout_ms,
            evict_after: config.evict_after_ms,
            persist_interval: config.persist_interval_ms,
            cold_ttl: config.cold_ttl_ms,
            retention: config.retention_ms,
            snapshot_keep: config.snapshot_keep,
            local_snapshot_ttl: config.local_snapshot_ttl_ms,
            min_free_bytes: u64::from(config.min_free_mb) << 20,
            max_sandboxes: config.max_sandboxes,
            max_prewarmed: config.max_prewarmed,
            ..usual_policy(config)
        };
        let engine = Engine::start(Options {
            store,
            host: Arc::new(host.clone()),
            clock: Arc::clone(&clock),
            policy,
            ids: IdSource::unguessable(),
            owner,
            cloud,
            bundles: Some(bundles),
        });
        let began = clock.now();
        let app = App::new(AppParts {
            engine: engine.clone(),
            clock,
            sealer,
            library,
            environment_key,
            internal_secret: config
                .internal_secret
                .as_ref()
                .map(|secret| ApiSecret::from_text(secret.expose())),
            rate_limit: config.rate_limit.map(std::num::NonZeroU32::get),
            origins: Origins {
                allowed: config.allowed_origins.clone(),
                loopback: address.ip().is_loopback(),
            },
            session_ttl: config.session_ttl_ms,
            max_sandboxes: config.max_sandboxes.get(),
            isolation,
            disk,
            heartbeat: bounds.heartbeat,
            runtimes,
            metrics: metrics.clone(),
            egress: proxy.clone(),
            attachments: Attachments::new(&data, config.max_attachment_size.get()),
        });
        app.clone().tend_attachments().await;
        let at_once = usize::try_from(config.queue_concurrency.get()).unwrap_or(usize::MAX);
        engine.work_on_queue(Arc::new(QueueDesk(app.clone())), at_once);
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(http::serve(listener, app.clone(), bounds, stop.clone()));
        tasks.spawn(keep_up(metrics, stop.clone()));
        tasks.spawn(proxy.clone().keep_accounts(stop.clone()));
        let announced = discovery::announce(home.as_deref(), address, &data, began);
        let kept = Some(kept);
        Ok(Self { lock, address, kept, engine, host, app, proxy, stop, tasks, key_file, announced })
    }

    /// What keeps agents from the rest of the machine: `full`, `rootless` or `none`.
    pub fn isolation(&self) -> &'static str {
        self.app.isolation()
    }

    /// What keeps the files of sandboxes within their limit.
    pub fn disk(&self) -> &str {
        self.app.disk()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where the key for the command line is, unless it is in the environment.
    pub fn key_file(&self) -> Option<&Path> {
        self.key_file.as_deref()
    }

    /// Keeps other servers from the data for as long as this is open too: it is for whoever ends the process after
    /// the server, so that nothing of this one works on files that are another's already.
    ///
    /// # Errors
    /// There are too many open files.
    pub fn hold_data(&self) -> std::io::Result<OwnedFd> {
        self.lock.as_fd().try_clone_to_owned()
    }

    /// Resolves when a later server has taken the sessions over.
    pub async fn superseded(&self) {
        self.engine.closing().await;
    }

    /// Ends the server in good order: no new work, streams told to reconnect, idle sandboxes given up,
    /// running turns left to their bridges. Takes as long as `patience` at most.
    pub async fn drain(&mut self, patience: Duration) {
        self.app.begin_draining();
        let orderly = async {
            tokio::join!(self.engine.drain(patience), self.host.end_prewarmed());
            self.stop.cancel();
            while self.tasks.join_next().await.is_some() {}
        };
        if tokio::time::timeout(patience, orderly).await.is_err() {
            tracing::warn!("some connections did not end in time and are cut off");
            self.engine.abort().await;
        }
        self.stop.cancel();
        self.tasks.shutdown().await;
        // Whoever comes next can have the port, and waits for the data.
        self.kept = None;
        self.host.abandon().await;
        self.proxy.close_accounts().await;
        self.host.tidy_up();
    }

    /// How many sandboxes are alive: after a drain, those whose turns go on without a server.
    pub async fn left_alive(&self) -> usize {
        self.host.list().await.map_or(0, |alive| alive.len())
    }

    /// Lets go of everything, and ends nothing: sandboxes go on, and streams are told to reconnect. Returns the
    /// socket that it listened on, where connections wait meanwhile for whoever comes next.
    pub async fn hand_over(mut self, patience: Duration) -> Option<OwnedFd> {
        self.app.begin_draining();
        self.engine.abort().await;
        self.stop.cancel();
        let ended = async {
            // Not handed over: the next server makes its own, and sooner than it could trust these.
            self.host.end_prewarmed().await;
            while self.tasks.join_next().await.is_some() {}
        };
        let _those_left_are_cut_off = tokio::time::timeout(patience, ended).await;
        self.tasks.shutdown().await;
        self.host.hand_over().await;
        self.proxy.close_accounts().await;
        if let Some(announced) = self.announced {
            announced.leave();
        }
        self.kept
    }

    /// Ends every sandbox too, whatever it is doing.
    pub async fn end_everything(&self) {
        self.host.end_prewarmed().await;
        match self.host.list().await {
            Ok(alive) => {
                let mut ending = JoinSet::new();
                for sandbox in alive {
                    let host = self.host.clone();
                    ending.spawn(async move { host.stop(sandbox).await });
                }
                while let Some(ended) = ending.join_next().await {
                    if let Ok(Err(error)) = ended {
                        tracing::warn!(
                            error = &error as &dyn std::error::Error,
                            "a sandbox could not be ended",
                        );
                    }
                }
            }
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the sandboxes could not be listed",
            ),
        }
    }
}

/// The socket that a server before this one, or whoever starts servers, has handed over as standard input.
fn inherited_listener() -> Option<TcpListener> {
    let stdin = std::io::stdin();
    let is_listening = rustix::net::sockopt::socket_acceptconn(&stdin).unwrap_or(false);
    let socket = is_listening.then(|| stdin.as_fd().try_clone_to_owned().ok())??;
    let listener = std::net::TcpListener::from(socket);
    listener.set_nonblocking(true).ok()?;
    TcpListener::from_std(listener).ok()
}

/// Everything in it is the server's alone.
fn make_data_dir(data: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(data)
        .with_context(|| format!("could not make the data directory {}", data.display()))
}

/// How long a server that is just ending may take to let go of its data.
const LOCK_PATIENCE: Duration = Duration::from_secs(3);

/// Takes the data for this server: two over the same would take sessions from each other.
async fn lock(data: &Path) -> anyhow::Result<File> {
    use std::io::Write as _;
    let path = data.join("lock");
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .with_context(|| format!("could not open {}", path.display()))?;
    let begun = std::time::Instant::now();
    while let Err(error) = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        anyhow::ensure!(
            error == rustix::io::Errno::WOULDBLOCK,
            "could not lock {}: {error}",
            path.display()
        );
        if begun.elapsed() > LOCK_PATIENCE {
            let holder = std::fs::read_to_string(&path).unwrap_or_default();
            anyhow::bail!("another server uses {}: {}", data.display(), holder.trim());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    file.set_len(0).and_then(|()| writeln!(file, "process {}", std::process::id()))?;
    Ok(file)
}

fn open_store(config: &Config) -> anyhow::Result<Arc<dyn Store>> {
    let path = config.database_path();
    // Who holds the data directory is the only one to use the database in it.
    let opened = match config.database_url {
        None => SqliteStore::open_alone(&path),
        Some(_) => SqliteStore::open(&path),
    };
    let store =
        opened.with_context(|| format!("could not open the database {}", path.display()))?;
    Ok(Arc::new(store))
}

/// Sees to it that whoever runs the server has a key.
async fn let_in(
    store: &dyn Store,
    data: &Path,
    clock: &dyn Clock,
) -> anyhow::Result<Option<PathBuf>> {
    let key = initial_key(store, data, clock).await.context("could not make the first API key")?;
    match key {
        InitialKey::Made(path) | InitialKey::Recovered(path) | InitialKey::Kept(path) => {
            Ok(Some(path))
        }
        InitialKey::Revoked(path) => {
            tracing::warn!(
                "the key in {} is not valid any more; remove the file and start again for a new one",
                path.display(),
            );
            Ok(None)
        }
    }
}

async fn keep_up(metrics: Metrics, stop: CancellationToken) {
    while stop.run_until_cancelled(tokio::time::sleep(UPKEEP)).await.is_some() {
        metrics.upkeep();
    }
}

/// What agents ask about whose sessions do not say.
fn asks(config: &Config) -> Asks {
    let timeout = config.permission_timeout_ms.as_millis();
    Asks {
        mode: config.permission_mode.map(PermissionMode::of_session),
        unconfined: config.dangerously_no_sandbox,
        timeout_ms: Some(u64::try_from(timeout).unwrap_or(u64::MAX)),
    }
}

/// What nobody sets. A start may take as long as a sandbox does, and the agent's own scripts in it.
fn usual_policy(config: &Config) -> Policy {
    let usual = Policy::default();
    let start_timeout = usual.start_timeout.saturating_add(longest_hooks(config.hook_timeout_ms));
    Policy { start_timeout, ..usual }
}

/// What agents are run in: the best that this machine can do, if that is good enough.
async fn enclose(config: &Config, data: &Path, bridge: &Path) -> anyhow::Result<Enclosure> {
    if config.dangerously_no_sandbox {
        return Ok(Enclosure::Nothing);
    }
    let users = Users::new(config.sandbox_uid_base, config.sandbox_uid_count.get());
    let (hidden, bridge) = (data.to_owned(), bridge.to_owned());
    let mut secret = vec![config.database_path()];
    secret.extend(config.file.clone());
    let probed =
        tokio::task::spawn_blocking(move || Sandboxing::probe(&hidden, &bridge, users, &secret));
    let (sandboxing, _) = probed.await?.map_err(|NoSandbox { why, hint }| {
        let hint = hint.map(|hint| format!("\n{hint}")).unwrap_or_default();
        anyhow::anyhow!(
            "agents cannot be isolated on this machine: {why}{hint}\n`ash doctor` says more. To run agents that \
             you trust without isolation: ash serve --dangerously-no-sandbox"
        )
    })?;
    let (tier, least) = (sandboxing.tier(), config.min_isolation);
    anyhow::ensure!(
        least == MinIsolation::Rootless || tier == Tier::Full,
        "ASH_MIN_ISOLATION is {}, and this server can isolate agents only as {}: start it as root, or set \
         ASH_MIN_ISOLATION=rootless",
        least.as_str(),
        tier.as_str(),
    );
    let abilities = sandboxing.cgroups.abilities();
    if !(abilities.memory && abilities.pids && abilities.freeze) {
        tracing::warn!(
            "without cgroups the limits of sandboxes hold for each process alone; `ash doctor` says what to do"
        );
    }
    let legacy = legacy_of(config, data, View::Sandboxes);
    Ok(Enclosure::Sandbox(Arc::new(sandboxing.showing(legacy))))
}

/// The programs that agents are run by.
fn runtimes(config: &Config, data: &Path, enclosure: &Enclosure) -> anyhow::Result<RuntimeChoice> {
    let view = match enclosure {
        Enclosure::Nothing => View::Machine,
        Enclosure::Sandbox(_) => View::Sandboxes,
    };
    let opened = Runtimes::open(claude_options(config, data, view));
    let runtimes = opened.context("could not make the directory of runtimes")?;
    Ok(RuntimeChoice::new(runtimes, legacy_of(config, data, view), config.default_runtime))
}

fn isolation_of(enclosure: &Enclosure) -> &'static str {
    match enclosure {
        Enclosure::Nothing => "none",
        Enclosure::Sandbox(sandboxing) => sandboxing.tier().as_str(),
    }
}

fn disk_of(enclosure: &Enclosure) -> String {
    match enclosure {
        Enclosure::Nothing => "not limited".to_owned(),
        Enclosure::Sandbox(sandboxing) => sandboxing.disk.told(),
    }
}
