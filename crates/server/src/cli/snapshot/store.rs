//! The store that a command line names, and what is found in it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use anyhow::Context as _;
use ash_snapshot::objects::{
    self, CachedObjects, GoogleCredentials, Limits, Objects, Options, Secret, Signs,
};
use ash_snapshot::{Id, Repository, Snapshot, Tree};

use super::of;
use crate::cli::Hint;
use crate::cli::exit::Mistake;

/// What is remembered of directories, below the store or the cache.
const STATES: &str = "state";

/// What is kept of a remote store, below the cache, and how much of it.
const OBJECTS: &str = "objects";
const CACHE_BYTES: u64 = 5 * 1024 * 1024 * 1024;

/// Where snapshots are.
#[derive(Debug, clap::Args)]
pub(super) struct Where {
    /// The store: a directory, s3://bucket/prefix or gs://bucket/prefix
    #[arg(long, value_name = "DIR|URL")]
    store: OsString,
    /// Where the server is, if it is not Amazon's or Google's (`AWS_ENDPOINT_URL`)
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// The region of an S3 bucket (`AWS_REGION`)
    #[arg(long)]
    region: Option<String>,
    /// A directory that keeps what was read of a remote store, up to 5 GB
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// Speak to an endpoint on another machine without TLS: everybody between can read along
    #[arg(long)]
    allow_http: bool,
}

/// Whether what is read may come from the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cache {
    /// It may.
    Used,
    /// What is in the store is to be seen.
    Passed,
}

/// What becomes of a store that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Absent {
    Made,
    Refused,
}

impl Where {
    /// How the store is reached.
    fn options(&self, env: &BTreeMap<String, String>) -> Options {
        let set = |name: &str| env.get(name).filter(|value| !value.is_empty()).cloned();
        let is_s3 = self.name().starts_with("s3://");
        let amazon = |name: &str| set(name).filter(|_| is_s3);
        Options {
            endpoint: self
                .endpoint
                .clone()
                .or_else(|| amazon("AWS_ENDPOINT_URL_S3"))
                .or_else(|| amazon("AWS_ENDPOINT_URL")),
            region: self
                .region
                .clone()
                .or_else(|| set("AWS_REGION"))
                .or_else(|| set("AWS_DEFAULT_REGION")),
            access_key: set("AWS_ACCESS_KEY_ID"),
            secret_key: set("AWS_SECRET_ACCESS_KEY").map(Secret::new),
            session_token: set("AWS_SESSION_TOKEN").map(Secret::new),
            google: set("GOOGLE_APPLICATION_CREDENTIALS")
                .map_or(GoogleCredentials::Machine, |path| GoogleCredentials::File(path.into())),
            allow_http: self.allow_http,
            limits: Limits::default(),
            signs: Signs::default(),
        }
    }

    /// What it is called, for people; and for servers, whose names are text.
    fn name(&self) -> Cow<'_, str> {
        self.store.to_string_lossy()
    }

    /// Refuses a directory that is the store, or in it: before there is one.
    pub(super) fn refuse(&self, real: &Path) -> anyhow::Result<()> {
        let Some(root) = self.local()? else { return Ok(()) };
        match root.canonicalize() {
            Ok(root) => refuse(&root, real),
            Err(_) => Ok(()),
        }
    }

    /// The directory, if it is one.
    fn local(&self) -> anyhow::Result<Option<PathBuf>> {
        let name = &*self.name();
        if objects::is_remote(name) {
            return Ok(None);
        }
        if self.cache.is_some() || self.endpoint.is_some() || self.region.is_some() {
            let wrong = format!("{name} is a directory: it has no cache, endpoint or region");
            return Err(Mistake::Usage(wrong).into());
        }
        let unknown = |error: io::Error| {
            anyhow::Error::from(Mistake::Usage(error.to_string()))
                .context(Hint("a store is a directory, s3://bucket/prefix or gs://bucket/prefix"))
        };
        match self.store.to_str() {
            Some(name) => objects::directory(name).map(Some).map_err(unknown),
            // No url, then.
            None => Ok(Some(PathBuf::from(&self.store))),
        }
    }
}

/// A store, and what this machine remembers beside it.
pub(super) struct Store {
    /// What is not captured: a directory of our own.
    own: Option<PathBuf>,
    /// Where what is remembered of directories is saved, if anywhere.
    states: Option<PathBuf>,
    /// What tells this store from others.
    scope: String,
    pub(super) repository: Repository,
}

impl Store {
    /// A store that is there, or a new one where nothing is.
    pub(super) fn make(place: &Where, env: &BTreeMap<String, String>) -> anyhow::Result<Self> {
        let name = &*place.name();
        let Some(root) = place.local()? else {
            return Self::remote(place, env, Cache::Used, Absent::Made);
        };
        let is_empty = objects::LocalObjects::is_empty(&root);
        let is_empty = is_empty.with_context(|| format!("could not open the store {name}"))?;
        if !is_empty && !root.join("format").is_file() {
            let wrong = format!("{name} is no store of snapshots, and not empty");
            return Err(anyhow::Error::from(Mistake::Usage(wrong))
                .context(Hint("name an empty directory, or one that is not there yet")));
        }
        Self::directory(root, name)
    }

    /// A store that is there.
    pub(super) fn open(
        place: &Where,
        env: &BTreeMap<String, String>,
        cache: Cache,
    ) -> anyhow::Result<Self> {
        let Some(root) = place.local()? else {
            return Self::remote(place, env, cache, Absent::Refused);
        };
        if !root.join("format").is_file() {
            return Err(no_store(&place.name()));
        }
        Self::directory(root, &place.name())
    }

    fn directory(root: PathBuf, name: &str) -> anyhow::Result<Self> {
        let failed = || format!("could not open the store {name}");
        let objects = objects::LocalObjects::open(&root).with_context(failed)?;
        let repository = Repository::open(Box::new(objects)).with_context(failed)?;
        let states = root.join(STATES);
        Ok(Self { own: Some(root), states: Some(states), scope: String::new(), repository })
    }

    fn remote(
        place: &Where,
        env: &BTreeMap<String, String>,
        cache: Cache,
        absent: Absent,
    ) -> anyhow::Result<Self> {
        let name = &*place.name();
        let options = place.options(env);
        let objects = objects::open(name, &options).map_err(|error| {
            if error.kind() == io::ErrorKind::InvalidInput {
                return anyhow::Error::from(Mistake::Usage(error.to_string()));
            }
            anyhow::Error::from(error).context(format!("could not open the store {name}"))
        })?;
        let is_absent = |objects: &dyn Objects| {
            // Whatever else is wrong is said by who opens it.
            let format = objects.get("format", 1024);
            format.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        };
        if absent == Absent::Refused && is_absent(&*objects) {
            return Err(no_store(name));
        }
        let endpoint = options.endpoint.as_deref().unwrap_or_default();
        let scope = format!("{} {endpoint}", name.trim_end_matches('/'));
        let objects: Box<dyn Objects> = match (&place.cache, cache) {
            (Some(dir), Cache::Used) => {
                let kept = dir.join(OBJECTS);
                let cached = CachedObjects::open(objects, &scope, &kept, CACHE_BYTES);
                Box::new(cached.with_context(|| format!("could not use {}", dir.display()))?)
            }
            (Some(_), Cache::Passed) | (None, _) => objects,
        };
        let repository = Repository::open(objects).map_err(of)?;
        let set = |name: &str| env.get(name).filter(|value| value.starts_with('/'));
        let usual = set("XDG_CACHE_HOME").map(PathBuf::from);
        let usual = usual.or_else(|| Some(Path::new(set("HOME")?).join(".cache")));
        let states = place.cache.clone().or_else(|| Some(usual?.join("ash/snapshot")));
        let states = states.map(|states| states.join(STATES));
        Ok(Self { own: place.cache.clone(), states, scope, repository })
    }

    /// Where what is remembered of a directory is saved.
    pub(super) fn state_of(&self, dir: &Path) -> Option<PathBuf> {
        let mut whose = self.scope.clone().into_bytes();
        whose.extend_from_slice(bytes_of(dir));
        Some(self.states.as_ref()?.join(Id::of(&whose).to_string()))
    }

    /// Makes the place where it is saved.
    pub(super) fn make_states(&self) -> io::Result<()> {
        let Some(states) = &self.states else { return Ok(()) };
        let mut builder = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.recursive(true).create(states)?;
        // It may have been made by others, or long ago.
        let mode = std::fs::metadata(states)?.permissions().mode();
        if mode & 0o077 == 0 {
            return Ok(());
        }
        std::fs::set_permissions(states, std::fs::Permissions::from_mode(0o700))
    }

    /// Forgets what is remembered of all directories.
    pub(super) fn forget_states(&self) -> anyhow::Result<()> {
        let Some(states) = &self.states else { return Ok(()) };
        let failed = || format!("could not remove what is in {}", states.display());
        let entries = match std::fs::read_dir(states) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries.with_context(failed)?,
        };
        for entry in entries {
            let entry = entry.with_context(failed)?;
            if is_state(&entry.file_name()) {
                std::fs::remove_file(entry.path()).with_context(failed)?;
            }
        }
        Ok(())
    }

    /// The path of what is ours from a directory that it is in. The directory itself cannot be captured.
    pub(super) fn inside(&self, dir: &Path) -> anyhow::Result<Option<Vec<u8>>> {
        let Some(own) = &self.own else { return Ok(None) };
        let own = own.canonicalize().context("could not open the store")?;
        refuse(&own, dir)?;
        Ok(own.strip_prefix(dir).ok().map(|path| bytes_of(path).to_vec()))
    }

    /// Refuses a place for something new that is in what is ours.
    pub(super) fn refuse_target(&self, target: &Path) -> anyhow::Result<()> {
        let Some(own) = &self.own else { return Ok(()) };
        let above = target.parent().filter(|above| !above.as_os_str().is_empty());
        let above = above.unwrap_or(Path::new("."));
        // What is not there is said by who restores.
        match (own.canonicalize(), above.canonicalize()) {
            (Ok(own), Ok(above)) => refuse(&own, &above),
            (Err(_), _) | (_, Err(_)) => Ok(()),
        }
    }
}

/// Whether a file has the name of one in which something is remembered, or that was to become one.
fn is_state(name: &OsStr) -> bool {
    let name = name.to_str().unwrap_or_default();
    name.split('.').next().is_some_and(|id| id.parse::<Id>().is_ok())
}

/// The tree of a snapshot that is its workspace; the first one, if none is called so.
pub(super) fn root_of(snapshot: &Snapshot) -> anyhow::Result<&Tree> {
    let found = snapshot.root(super::ROOT).ok().or(snapshot.roots.first());
    found.with_context(|| format!("the snapshot {} is of nothing", snapshot.id))
}

/// A path from a directory, as snapshots spell it: however somebody, or their shell, spelled it.
pub(super) fn inner_path(dir: &Path, path: &Path) -> anyhow::Result<Vec<u8>> {
    let wrong = || {
        let wrong = format!("{} is no path in {}", path.display(), dir.display());
        anyhow::Error::from(Mistake::Usage(wrong))
            .context(Hint("name it from the directory on, as in src/main.rs"))
    };
    let path = if path.is_absolute() { path.strip_prefix(dir).map_err(|_| wrong())? } else { path };
    plain_path(path).filter(|path| !path.is_empty()).ok_or_else(wrong)
}

/// A path of a snapshot, however somebody spelled it: all of it, if empty.
pub(super) fn path_in_snapshot(path: &Path) -> anyhow::Result<Vec<u8>> {
    plain_path(path.strip_prefix("/").unwrap_or(path)).ok_or_else(|| {
        let wrong = format!("{} is no path in a snapshot", path.display());
        anyhow::Error::from(Mistake::Usage(wrong))
            .context(Hint("name it from the root of the snapshot on, as in src/main.rs"))
    })
}

/// The names of a path that leads nowhere but down.
fn plain_path(path: &Path) -> Option<Vec<u8>> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => parts.push(name.as_bytes()),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(parts.join(&b'/'))
}

/// Where something will be that is not there yet, whatever it was called by.
pub(super) fn to_be(path: &Path) -> PathBuf {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    // As much of it as is there.
    for above in whole.ancestors() {
        if let (Ok(real), Ok(rest)) = (above.canonicalize(), whole.strip_prefix(above)) {
            return real.join(rest);
        }
    }
    whole
}

pub(super) fn bytes_of(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

/// Refuses a directory that is ours, or in what is ours.
fn refuse(own: &Path, dir: &Path) -> anyhow::Result<()> {
    if dir == own {
        return Err(Mistake::Usage("the directory is the store itself".to_owned()).into());
    }
    if dir.starts_with(own) {
        let inside = format!("{} is in the store itself", dir.display());
        return Err(Mistake::Usage(inside).into());
    }
    Ok(())
}

fn no_store(name: &str) -> anyhow::Error {
    Mistake::NotFound(format!("there is no store of snapshots at {name}")).into()
}
