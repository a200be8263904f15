//! Programs of others that agents are run by: Claude Code.
//!
//! ```text
//!   data/runtimes/claude/<version>/claude        the program, as it was published
//!                                  runtime.json  what it has to be: version, size, digest
//! ```
//!
//! All versions are shown, read-only, to every sandbox, at [`ash_sandbox::CLAUDE`]: nothing is copied, and what is
//! installed later is seen by sandboxes that wait already. Which one is used is looked up at each start of a
//! session, so nothing has to be told to a server that runs. In this order:
//!
//! 1. the program that a setting names;
//! 2. the installed version that a setting names, or else the newest that is installed;
//! 3. the one that the machine has, where sandboxes see it.
//!
//! `crates/server/src/runtimes/mod.rs` installs. `docs/agent-runtimes.md` is the manual.

mod ask;
mod legacy;
#[cfg(test)]
mod test;
mod version;

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ash_protocol::Program;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

pub use ask::version_of;
pub use legacy::{FoundLegacy, Legacy, LegacyOptions, NoLegacy, SharedDirectory};
pub use version::{NotAVersion, Version};

/// What the program is called, wherever it is installed.
pub const PROGRAM: &str = "claude";

/// What is known of an installation, beside the program.
pub const RECORD: &str = "runtime.json";

/// Where a machine has programs that everybody may run.
const OF_THE_MACHINE: [&str; 2] = ["/usr/local/bin/claude", "/usr/bin/claude"];

/// How many files are remembered to have been looked at. There are as many as versions.
const MAX_CHECKED: usize = 64;

/// Where the versions of Claude Code are, given the data directory.
pub fn versions_in(data: &Path) -> PathBuf {
    data.join("runtimes").join("claude")
}

/// What an installed program has to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Which release it is.
    pub version: String,
    /// The package that it was taken from, if it came from a registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<String>,
    /// The digest of that package, as registries write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub integrity: Option<String>,
    /// How large the program is.
    pub bytes: u64,
    /// The digest of the program.
    pub blake3: String,
}

/// An installed version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// Which one.
    pub version: Version,
    /// Its program.
    pub path: PathBuf,
    /// What that has to be.
    pub record: Record,
}

/// A program that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Which release it is.
    pub version: Version,
    /// Where it is on this machine.
    pub host_path: PathBuf,
    /// Where it is for whoever runs it.
    pub inside_path: PathBuf,
    /// Who put it there.
    pub source: Source,
}

impl Found {
    /// What a bridge is told of it.
    pub fn program(self) -> Program {
        Program { path: self.inside_path, version: self.version.to_string() }
    }
}

/// Who put a program where it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A setting names it.
    Setting,
    /// It was installed into the data directory, and is what it was then.
    Installed,
    /// The machine has it.
    System,
}

impl Source {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Setting => "setting",
            Self::Installed => "installed",
            Self::System => "system",
        }
    }
}

/// What is known of a program without looking at all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glimpse {
    /// Which release it is, as far as that is known.
    pub version: Option<Version>,
    /// Who put it there.
    pub source: Source,
    /// Whether it can be used; nothing: nobody has looked yet.
    pub is_fit: Option<bool>,
}

/// Why there is no Claude Code to run an agent with. Each sentence says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoClaude {
    /// There is none.
    #[error("Claude Code is not installed on this server: run `ash agent-runtime install claude`")]
    Missing,
    /// The one that a setting names is not there.
    #[error(
        "Claude Code {0}, which ASH_CLAUDE_VERSION asks for, is not installed on this server: run \
         `ash agent-runtime install claude@{0}`"
    )]
    NoSuchVersion(Version),
    /// It is not what was installed.
    #[error(
        "Claude Code {version} is not what was installed on this server, {why}: run \
         `ash agent-runtime install claude@{version}` to have it again"
    )]
    Damaged {
        /// Which one.
        version: Version,
        /// What is wrong with it.
        why: String,
    },
    /// The one that a setting names cannot be used.
    #[error(
        "the program that ASH_CLAUDE_PATH names cannot be used: {0}; without that setting, \
         `ash agent-runtime install claude` installs one"
    )]
    Unusable(String),
}

/// For whom a program has to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// For sandboxes, which see little of the machine.
    Sandboxes,
    /// For the server itself, whose children agents are.
    Machine,
}

/// What to look for, and where.
#[derive(Clone, Debug)]
pub struct RuntimeOptions {
    /// The data directory.
    pub data: PathBuf,
    /// For whom.
    pub view: View,
    /// The program that is to be used, whatever else there is.
    pub path: Option<PathBuf>,
    /// The installed version that is to be used.
    pub version: Option<Version>,
}

/// Finds Claude Code. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub struct Runtimes(Arc<Inner>);

struct Inner {
    options: RuntimeOptions,
    of_the_machine: Vec<PathBuf>,
    checked: Mutex<BTreeMap<PathBuf, Checked>>,
    /// One looks, and the others wait for what it finds: a program is large.
    looking: Semaphore,
}

/// What came of looking at a file, as long as that is in this state.
struct Checked {
    state: FileState,
    found: Result<Version, String>,
}

/// A file that has not changed is in the same state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileState([i64; 6]);

impl FileState {
    fn of(of: &Metadata) -> Self {
        let place = [of.dev().cast_signed(), of.ino().cast_signed(), of.size().cast_signed()];
        let [dev, ino, size] = place;
        let changed = of.ctime().wrapping_mul(1_000_000_000).wrapping_add(of.ctime_nsec());
        let modified = of.mtime().wrapping_mul(1_000_000_000).wrapping_add(of.mtime_nsec());
        Self([dev, ino, size, changed, modified, i64::from(of.mode())])
    }
}

/// A program that may be the one.
struct Candidate {
    path: PathBuf,
    inside: PathBuf,
    source: Source,
    /// What it has to be, where that is known.
    installed: Option<Installed>,
}

impl Runtimes {
    /// Looks there from now on. Makes the directory that sandboxes are shown.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn open(options: RuntimeOptions) -> io::Result<Self> {
        make_directories(&options.data)?;
        Ok(Self::looking_at(options, OF_THE_MACHINE.map(PathBuf::from).into()))
    }

    /// Looks there and changes nothing.
    pub fn look(options: RuntimeOptions) -> Self {
        Self::looking_at(options, OF_THE_MACHINE.map(PathBuf::from).into())
    }

    fn looking_at(options: RuntimeOptions, of_the_machine: Vec<PathBuf>) -> Self {
        let (checked, looking) = (Mutex::default(), Semaphore::new(1));
        Self(Arc::new(Inner { options, of_the_machine, checked, looking }))
    }

    /// The versions that are installed, the newest first.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn installed(&self) -> io::Result<Vec<Installed>> {
        installed_in(&self.0.options.data)
    }

    /// Whether somebody wanted Claude Code here: installed a version, or named a program. One that the
    /// machine happens to have is not that.
    pub fn is_wanted(&self) -> bool {
        self.0.options.path.is_some() || self.installed().is_ok_and(|found| !found.is_empty())
    }

    /// The program to use now. The first to ask after it has changed waits until all of it was looked at.
    ///
    /// # Errors
    /// There is none, or it is not what it should be.
    pub async fn claude(&self) -> Result<Found, NoClaude> {
        for candidate in self.candidates()? {
            let checked = self.check(&candidate).await;
            let Candidate { path: host_path, inside: inside_path, source, installed } = candidate;
            match (checked, source, installed) {
                (Ok(version), ..) => {
                    return Ok(Found { version, host_path, inside_path, source });
                }
                (Err(why), _, Some(installed)) => {
                    return Err(NoClaude::Damaged { version: installed.version, why });
                }
                (Err(why), Source::Setting, None) => return Err(NoClaude::Unusable(why)),
                // It is there for somebody else.
                (Err(_), Source::System | Source::Installed, None) => {}
            }
        }
        Err(NoClaude::Missing)
    }

    /// What can be said at once.
    ///
    /// # Errors
    /// There is none.
    pub fn glimpse(&self) -> Result<Glimpse, NoClaude> {
        let glimpse = self.candidates()?.into_iter().find_map(|candidate| {
            let state = FileState::of(&fs::metadata(&candidate.path).ok()?);
            let known = self.known(&candidate.path, state);
            let version = match (&known, candidate.installed) {
                (Some(Ok(version)), _) => Some(version.clone()),
                (_, Some(installed)) => Some(installed.version),
                (_, None) => None,
            };
            let is_fit = known.map(|known| known.is_ok());
            Some(Glimpse { version, source: candidate.source, is_fit })
        });
        glimpse.ok_or(NoClaude::Missing)
    }

    /// What may be used, the first that can be.
    fn candidates(&self) -> Result<Vec<Candidate>, NoClaude> {
        let RuntimeOptions { view, path, version, .. } = &self.0.options;
        if let Some(path) = path {
            let unusable =
                |error: io::Error| NoClaude::Unusable(format!("it cannot be found: {error}"));
            let real = path.canonicalize().map_err(unusable)?;
            if *view == View::Sandboxes && !self.is_seen(&real) {
                let why = "sandboxes see only what lies below /usr, /opt or /nix, and nothing of the data directory; \
                           `ash agent-runtime install claude --from` takes it from anywhere";
                return Err(NoClaude::Unusable(why.to_owned()));
            }
            let inside = real.clone();
            let source = Source::Setting;
            return Ok(vec![Candidate { path: real, inside, source, installed: None }]);
        }
        let mut installed = self.installed().unwrap_or_default().into_iter();
        let chosen = match version {
            Some(version) => {
                let missing = || NoClaude::NoSuchVersion(version.clone());
                Some(installed.find(|of| of.version == *version).ok_or_else(missing)?)
            }
            None => installed.next(),
        };
        if let Some(installed) = chosen {
            let inside = match view {
                View::Machine => installed.path.clone(),
                View::Sandboxes => {
                    Path::new(ash_sandbox::CLAUDE).join(installed.version.as_str()).join(PROGRAM)
                }
            };
            let (path, source) = (installed.path.clone(), Source::Installed);
            return Ok(vec![Candidate { path, inside, source, installed: Some(installed) }]);
        }
        let of_the_machine = self.0.of_the_machine.iter().filter_map(|path| {
            let real = path.canonicalize().ok()?;
            let is_there = *view == View::Machine || self.is_seen(&real);
            let (inside, source) = (real.clone(), Source::System);
            is_there.then_some(Candidate { path: real, inside, source, installed: None })
        });
        Ok(of_the_machine.collect())
    }

    /// Whether sandboxes see a file where the machine has it.
    fn is_seen(&self, real: &Path) -> bool {
        let data = &self.0.options.data;
        let data = data.canonicalize().unwrap_or_else(|_| data.clone());
        ash_sandbox::is_shown(real) && !real.starts_with(data)
    }

    async fn check(&self, candidate: &Candidate) -> Result<Version, String> {
        let path = &candidate.path;
        let look = || fs::metadata(path).map_err(|error| format!("it cannot be read: {error}"));
        if let Some(known) = self.known(path, FileState::of(&look()?)) {
            return known;
        }
        let _alone = self.0.looking.acquire().await.expect("nobody closes it");
        let metadata = look()?;
        let state = FileState::of(&metadata);
        if let Some(known) = self.known(path, state) {
            return known;
        }
        let found = match can_be_run(&metadata, self.0.options.view) {
            Ok(()) => look_at(candidate).await,
            Err(why) => Err(why.to_owned()),
        };
        let mut checked = self.checked();
        if checked.len() >= MAX_CHECKED {
            checked.clear();
        }
        checked.insert(path.clone(), Checked { state, found: found.clone() });
        found
    }

    /// What came of looking at a file that is in this state.
    fn known(&self, path: &Path, state: FileState) -> Option<Result<Version, String>> {
        let checked = self.checked();
        let known = checked.get(path).filter(|checked| checked.state == state)?;
        Some(known.found.clone())
    }

    fn checked(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Checked>> {
        self.0.checked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn can_be_run(found: &Metadata, view: View) -> Result<(), &'static str> {
    let mode = found.permissions().mode();
    let needed = match view {
        // Their users are strangers to its owner.
        View::Sandboxes => 0o005,
        View::Machine => 0o100,
    };
    match (found.is_file(), mode & needed == needed) {
        (false, _) => Err("it is no file"),
        (true, false) => Err("it may not be run by everybody"),
        (true, true) => Ok(()),
    }
}

/// Looks at all of it: an installed one has to be what it was, another one is asked.
async fn look_at(candidate: &Candidate) -> Result<Version, String> {
    let Some(Installed { version, path, record }) = candidate.installed.clone() else {
        return version_of(&candidate.path).await;
    };
    let digest = tokio::task::spawn_blocking(move || digest_of(&path));
    let (bytes, digest) = digest
        .await
        .map_err(|error| error.to_string())?
        .map_err(|error| format!("it cannot be read: {error}"))?;
    if bytes != record.bytes {
        return Err(format!("it has {bytes} bytes instead of {}", record.bytes));
    }
    if digest != record.blake3 {
        return Err("it has another digest".to_owned());
    }
    Ok(version)
}

/// How large a file is, and its digest. Blocks.
///
/// # Errors
/// It cannot be read.
pub fn digest_of(path: &Path) -> io::Result<(u64, String)> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(File::open(path)?)?;
    Ok((hasher.count(), hasher.finalize().to_hex().to_string()))
}

/// The versions that are installed below a data directory, the newest first. What is no installation is
/// passed over.
///
/// # Errors
/// The directory cannot be read.
pub fn installed_in(data: &Path) -> io::Result<Vec<Installed>> {
    let directory = versions_in(data);
    let entries = match fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let Some(version) = name.to_str().and_then(|name| name.parse::<Version>().ok()) else {
            continue;
        };
        let place = directory.join(name);
        let record = fs::read(place.join(RECORD)).ok();
        let record = record.and_then(|bytes| serde_json::from_slice::<Record>(&bytes).ok());
        if let Some(record) = record.filter(|record| record.version == version.as_str()) {
            found.push(Installed { version, path: place.join(PROGRAM), record });
        }
    }
    found.sort_by(|one, other| other.version.cmp(&one.version));
    Ok(found)
}

/// Makes the directories of runtimes: the users of sandboxes have to get through the last one.
///
/// # Errors
/// They cannot be made.
pub fn make_directories(data: &Path) -> io::Result<()> {
    let versions = versions_in(data);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(data)?;
    fs::DirBuilder::new().recursive(true).mode(0o755).create(&versions)?;
    // Whoever made it may have asked for less, and only its owner can change it.
    if fs::metadata(&versions)?.permissions().mode() & 0o055 != 0o055 {
        fs::set_permissions(&versions, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}
