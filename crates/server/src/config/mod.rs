//! What the server is told from outside: flags over environment over `server.toml`.
//!
//! Each setting is declared once, below. Its line gives the field of [`Config`], the variable, the
//! key in the file, the type, the default and the sentence that `ash config` and
//! `docs/configuration.md` show. Nothing else in the program reads the environment.

mod error;
mod file;
mod flags;
mod page;
mod setting;
#[cfg(test)]
mod test;
mod value;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ash_engine::runtimes::Version;
use serde::Serialize;

pub use self::error::{ConfigError, Origin};
pub use self::flags::ServeFlags;
pub use self::page::settings_table;
pub use self::value::{
    BucketUrl, DatabaseUrl, DefaultRuntime, HttpUrl, Key, MinIsolation, PermissionMode, REDACTED,
    Secret,
};

use crate::egress::PrivateHosts;

use self::file::File;
use self::setting::Effect::{self, Later, Now};
use self::setting::{Names, Setting, settings};
use self::value::Value;

/// What every variable of ours begins with, but for a few that other programs share.
const PREFIX: &str = "ASH_";

/// Variables that mean something to the commands that talk to a server, and nothing to the server.
const CLIENT_VARIABLES: [&str; 1] = ["ASH_SERVER_URL"];

/// How far a name may be from the one that was meant; and no further than a third of what it has
/// beyond the prefix, because any short name is near to some other.
const MAX_TYPING_ERRORS: usize = 3;

settings! {
    /// Everything the server was told, checked.
    #[derive(Clone, Debug)]
    pub struct Config;

    /// The port to listen on; 0 takes any that is free
    port: u16 = "ASH_PORT" ("--port") default "4100", Now;
    /// The address to listen on; only a loopback address without sandboxes
    host: IpAddr = "ASH_HOST" ("--host") default "127.0.0.1", Now;
    /// Where everything is kept
    data_dir: PathBuf = "ASH_DATA_DIR" ("--data-dir") default "./data", Now;
    /// A SQLite database elsewhere than `ash.db` in the data directory, as `sqlite:///path`
    database_url: Option<DatabaseUrl> = "ASH_DATABASE_URL" ("--database-url") default "", Now;
    /// A key that is valid for the tenant `default` while it is set; without it one is made at first start
    api_key: Option<Key> = "ASH_API_KEY" default "", Now;
    /// What credentials are sealed with; without it a key is made at first start
    credential_key: Option<Secret> = "ASH_CREDENTIAL_KEY" default "", Now;
    /// What opens the routes for whoever runs the server, `/api/internal/*`; without it nobody is let in there
    internal_secret: Option<Secret> = "ASH_INTERNAL_SECRET" default "", Now;
    /// Origins of pages that may use the server from a browser, separated by commas
    allowed_origins: Vec<String> = "ALLOWED_ORIGINS" default "", Now;
    /// Requests per minute for each API key
    rate_limit: Option<NonZeroU32> = "ASH_RATE_LIMIT" default "off", Now;

    /// The key for the model; it never enters a sandbox
    anthropic_api_key: Option<Key> = "ANTHROPIC_API_KEY" default "", Now;
    /// Where the server's calls to the model go
    anthropic_base_url: HttpUrl = "ANTHROPIC_BASE_URL" default "https://api.anthropic.com", Now;

    /// Requests to the model per minute for each session
    egress_rate_limit: Option<NonZeroU32> = "ASH_EGRESS_RATE_LIMIT" default "off", Now;
    /// What sandboxes may reach though it is private, if their agent names it: ranges of addresses and names of hosts, separated by commas
    egress_allow_private: Option<PrivateHosts> = "ASH_EGRESS_ALLOW_PRIVATE" default "", Now;

    /// How many sandboxes may be alive at once
    max_sandboxes: NonZeroU32 = "ASH_MAX_SANDBOXES" ("--max-sandboxes") default "1000", Now;
    /// How many of them may be kept ready for sessions to come; 0: none
    max_prewarmed: u32 = "ASH_MAX_PREWARMED" default "16", Now;
    /// How long a session may do nothing before it is paused
    idle_timeout_ms: Duration = "ASH_IDLE_TIMEOUT_MS" ("--idle-timeout-ms") default "1800000", Now;
    /// How long a paused session keeps its frozen sandbox
    evict_after_ms: Duration = "ASH_EVICT_AFTER_MS" default "1800000", Now;
    /// How long the files of a session that nobody uses stay in place once a snapshot has them
    cold_ttl_ms: Duration = "ASH_COLD_TTL_MS" default "7200000", Now;
    /// How long an ended session is kept
    retention_ms: Duration = "ASH_RETENTION_MS" default "604800000", Now;
    /// With less room on the disk of the data directory, in megabytes, such files are removed earlier; 0: never
    min_free_mb: u32 = "ASH_MIN_FREE_MB" default "1024", Now;
    /// How many items of the queue are worked on at once
    queue_concurrency: NonZeroU32 = "ASH_QUEUE_CONCURRENCY" default "4", Now;
    /// The largest attachment, in bytes; no more than 104857600
    max_attachment_size: NonZeroU32 = "ASH_MAX_ATTACHMENT_SIZE" default "10485760", Now;
    /// How long a session lives before it is ended
    session_ttl_ms: Option<Duration> = "ASH_SESSION_TTL_MS" default "off", Now;
    /// How long a bridge whose server does not return goes on after its turn
    orphan_ttl_ms: Duration = "ASH_ORPHAN_TTL_MS" default "600000", Now;
    /// How long `install.sh` and `startup.sh` of an agent may take, each
    hook_timeout_ms: Duration = "ASH_HOOK_TIMEOUT_MS" default "120000", Now;
    /// How long a server that is told to end takes to put things in order
    drain_ms: Duration = "ASH_DRAIN_MS" default "4000", Now;

    /// The least isolation that sandboxes are started with
    min_isolation: MinIsolation = "ASH_MIN_ISOLATION" default "rootless", Now;
    /// Memory of a sandbox, in megabytes
    sandbox_memory_mb: NonZeroU32 = "ASH_SANDBOX_MEMORY_MB" default "2048", Now;
    /// The first user id that sandboxes may have
    sandbox_uid_base: u32 = "ASH_SANDBOX_UID_BASE" default "200000", Now;
    /// How many user ids sandboxes may have
    sandbox_uid_count: NonZeroU32 = "ASH_SANDBOX_UID_COUNT" default "65536", Now;
    /// A program for Node that speaks the original's bridge protocol: it runs agents of the runtime `legacy`, and those that do not say
    bridge_entry: Option<PathBuf> = "ASH_BRIDGE_ENTRY" default "", Now;
    /// Passed on to that program, whose makers say what it means: 1 has it ask a real model
    real_sdk: Option<String> = "ASH_REAL_SDK" default "", Now;
    /// Passed on to that program: 1 has it print how long things take
    debug_timing: Option<String> = "ASH_DEBUG_TIMING" default "", Now;
    /// Passed on to that program, if sandboxes see it: a program of Claude Code that it uses
    claude_code_executable: Option<PathBuf> = "CLAUDE_CODE_EXECUTABLE" default "", Now;
    /// What agents may do without asking, unless they or their session say otherwise; by default everything in a sandbox, and nothing that changes something without one
    permission_mode: Option<PermissionMode> = "ASH_PERMISSION_MODE" default "", Now;
    /// After how long a permission question that nobody answers is answered with no
    permission_timeout_ms: Duration = "ASH_PERMISSION_TIMEOUT_MS" default "600000", Now;

    /// What runs agents that do not say: `claude`, `builtin` or `legacy`; by itself `legacy` if `ASH_BRIDGE_ENTRY` is set, or else `claude` once that is installed
    default_runtime: Option<DefaultRuntime> = "ASH_DEFAULT_RUNTIME" default "", Now;
    /// A program of Claude Code that goes before all installed ones; sandboxes have to see it
    claude_path: Option<PathBuf> = "ASH_CLAUDE_PATH" default "", Now;
    /// Which installed version of Claude Code is used; by itself the newest
    claude_version: Option<Version> = "ASH_CLAUDE_VERSION" default "", Now;
    /// Where `ash agent-runtime install` asks for packages; by itself where npm would
    npm_registry: Option<HttpUrl> = "ASH_NPM_REGISTRY" default "", Now;

    /// Where sessions are copied to, as `s3://bucket/prefix`, `gs://bucket/prefix` or `file:///path`
    snapshot_url: Option<BucketUrl> = "ASH_SNAPSHOT_URL" default "", Now;
    /// The region of the bucket
    s3_region: String = "ASH_S3_REGION" default "us-east-1", Now;
    /// The address of an S3 service that is not Amazon's
    s3_endpoint: Option<HttpUrl> = "ASH_S3_ENDPOINT" default "", Now;
    /// How many sessions are copied to the cloud at once
    cloud_uploads: NonZeroU32 = "ASH_CLOUD_UPLOADS" default "4", Now;
    /// How many megabits go to the cloud and come from it in a second
    cloud_mbps: Option<NonZeroU32> = "ASH_CLOUD_MBPS" default "off", Now;
    /// How often a running session is persisted
    persist_interval_ms: Duration = "ASH_PERSIST_INTERVAL_MS" default "300000", Now;
    /// How many snapshots of a session are kept; `off` keeps all
    snapshot_keep: Option<NonZeroU32> = "ASH_SNAPSHOT_KEEP" default "off", Now;
    /// How long after its last use the snapshots of a session stay on this machine once the cloud has all of them
    local_snapshot_ttl_ms: Option<Duration> = "ASH_LOCAL_SNAPSHOT_TTL_MS" default "off", Now;
    /// How long a pause, a stop, an end, an eviction or the end of a server waits for the cloud to have everything
    cloud_wait_ms: Duration = "ASH_CLOUD_WAIT_MS" default "2000", Now;

    /// Where traces are sent
    otel_exporter_otlp_endpoint: Option<HttpUrl> = "OTEL_EXPORTER_OTLP_ENDPOINT" default "", Later("tracing");
}

/// A setting as it holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Effective {
    /// Its variable.
    pub name: &'static str,
    /// Its value; nothing if it is not set, and [`REDACTED`] if it is a secret.
    pub value: Option<String>,
    /// Where the value came from.
    pub source: Source,
    /// What it does, in one line.
    pub doc: String,
}

/// Where a value came from; a later one goes before an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Nobody said anything.
    Default,
    /// The configuration file.
    File,
    /// The environment.
    Environment,
    /// The command line.
    Flag,
}

impl Source {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::File => "file",
            Self::Environment => "environment",
            Self::Flag => "flag",
        }
    }
}

impl Config {
    /// Reads the configuration: flags over environment over file. An empty value is none.
    ///
    /// # Errors
    /// The file cannot be read, or something in it, in the environment or on the command line is
    /// not what it has to be.
    pub fn load(
        flags: &ServeFlags,
        env: &BTreeMap<String, String>,
        file: Option<&Path>,
    ) -> Result<Self, ConfigError> {
        let path = file.map(Path::to_owned);
        let file = file.map(File::read).transpose()?.unwrap_or_default();
        let mut sources = Sources { flags, env, file: &file, shown: Vec::new(), warnings: vec![] };
        let mut config = Self::read(&mut sources)?;
        if !config.host.is_loopback() && flags.dangerously_no_sandbox {
            let (_, origin) = sources.said(setting("host"));
            return Err(ConfigError::Exposed { origin, host: config.host });
        }
        config.dangerously_no_sandbox = flags.dangerously_no_sandbox;
        config.file = path;
        config.search_path = env.get("PATH").cloned();
        config.shown = sources.shown;
        config.shown.push(Effective {
            name: "--dangerously-no-sandbox",
            value: Some(flags.dangerously_no_sandbox.to_string()),
            source: if flags.dangerously_no_sandbox { Source::Flag } else { Source::Default },
            doc: "Run agents as plain processes, which can do whatever the server can".to_owned(),
        });
        config.warnings = unknown_variables(env);
        config.warnings.extend(sources.warnings);
        config.warnings.extend(file.warnings());
        Ok(config)
    }

    /// Every setting with its value and where it came from. Secrets are redacted.
    pub fn effective(&self) -> Vec<Effective> {
        self.shown.clone()
    }

    /// What whoever starts the server should know: one sentence each.
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }

    /// Where the database is.
    pub fn database_path(&self) -> PathBuf {
        match &self.database_url {
            Some(url) => url.path().to_owned(),
            None => self.data_dir.join("ash.db"),
        }
    }
}

/// The environment of the process. This is the only place that reads it.
///
/// # Errors
/// A variable of ours is not UTF-8.
pub fn environment() -> Result<BTreeMap<String, String>, ConfigError> {
    readable(std::env::vars_os())
}

/// Variables that are UTF-8. Those of others that are not are left out: no setting is among them.
fn readable(
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> Result<BTreeMap<String, String>, ConfigError> {
    let mut readable = BTreeMap::new();
    for (name, value) in variables {
        match (name.into_string(), value.into_string()) {
            (Ok(name), Ok(value)) => {
                readable.insert(name, value);
            }
            (Ok(name), Err(_)) if is_ours(&name) => return Err(ConfigError::NotText { name }),
            (Err(name), _) if name.as_encoded_bytes().starts_with(PREFIX.as_bytes()) => {
                let name = name.to_string_lossy().into_owned();
                return Err(ConfigError::NotText { name });
            }
            (Ok(_) | Err(_), _) => {}
        }
    }
    Ok(readable)
}

fn is_ours(name: &str) -> bool {
    name.starts_with(PREFIX) || SETTINGS.iter().any(|setting| setting.env == name)
}

/// Everything that may say something about a setting.
struct Sources<'a> {
    flags: &'a ServeFlags,
    env: &'a BTreeMap<String, String>,
    file: &'a File,
    shown: Vec<Effective>,
    warnings: Vec<String>,
}

impl Sources<'_> {
    fn read<T: Value>(&mut self, key: &str) -> Result<T, ConfigError> {
        let setting = setting(key);
        let (text, origin) = self.said(setting);
        let value = T::read(text).ok_or_else(|| wrong::<T>(setting, text, &origin))?;
        self.check_file::<T>(setting)?;
        let source = match origin {
            Origin::Default(_) => Source::Default,
            Origin::File { .. } => Source::File,
            Origin::Environment(_) => Source::Environment,
            Origin::Flag(_) => Source::Flag,
        };
        if let (Effect::Later(part), true) = (setting.effect, source != Source::Default) {
            self.warnings.push(format!("{origin} has no effect yet: it waits for {part}"));
        }
        let (name, doc) = (setting.env, setting.doc());
        self.shown.push(Effective { name, value: value.show(), source, doc });
        Ok(value)
    }

    /// A line of the file has to be right even if a variable or a flag goes before it: it would be
    /// found wrong on the day when that is gone.
    fn check_file<T: Value>(&self, setting: &'static Setting) -> Result<(), ConfigError> {
        match self.file.get(setting.key).filter(|(text, _)| !text.is_empty()) {
            Some((text, origin)) if T::read(text).is_none() => {
                Err(wrong::<T>(setting, text, &origin))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The text of a setting, and who said it.
    fn said(&self, setting: &'static Setting) -> (&str, Origin) {
        if let (Some(text), Some(flag)) = (self.flags.get(setting.key), setting.flag) {
            return (text, Origin::Flag(flag));
        }
        if let Some(text) = self.env.get(setting.env).filter(|text| !text.is_empty()) {
            return (text, Origin::Environment(setting.env));
        }
        if let Some((text, origin)) = self.file.get(setting.key).filter(|(of, _)| !of.is_empty()) {
            return (text, origin);
        }
        (setting.default, Origin::Default(setting.env))
    }
}

fn wrong<T: Value>(setting: &Setting, text: &str, origin: &Origin) -> ConfigError {
    let off = setting.off.first().map(|word| format!(", or `{word}`")).unwrap_or_default();
    ConfigError::Value {
        shown: T::show_text(text),
        origin: origin.clone(),
        expected: format!("{}{off}", T::EXPECTED),
    }
}

fn setting(key: &str) -> &'static Setting {
    SETTINGS.iter().find(|setting| setting.key == key).expect("the declaration made field and row")
}

/// One warning for each variable that looks like ours and is not.
fn unknown_variables(env: &BTreeMap<String, String>) -> Vec<String> {
    let known: Vec<&str> =
        SETTINGS.iter().map(|setting| setting.env).chain(CLIENT_VARIABLES).collect();
    let strange =
        env.keys().filter(|name| name.starts_with(PREFIX) && !known.contains(&name.as_str()));
    strange
        .map(|name| match nearest(name, known.iter().copied()) {
            Some(meant) => format!("{name} is not a setting; did you mean {meant}?"),
            None => format!("{name} is not a setting, and is ignored"),
        })
        .collect()
}

/// The name that was probably meant, if one is near.
fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let far = |other: &str| strsim::damerau_levenshtein(name, other);
    let beyond = name.strip_prefix(PREFIX).unwrap_or(name).chars().count();
    let furthest = MAX_TYPING_ERRORS.min(beyond / 3);
    known
        .map(|other| (far(other), other))
        .min()
        .filter(|(far, _)| *far <= furthest)
        .map(|(_, other)| other)
}
