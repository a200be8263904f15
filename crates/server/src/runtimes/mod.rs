//! Installs Claude Code: from an npm registry, or from a file.
//!
//! ```text
//!   registry ──► manifest ──► package ──► its digest ──► the program ──► says its version ──► renamed into
//!                what it must be    on disk    compared      alone               the right one      data/runtimes
//! ```
//!
//! No step trusts the one before: the digest of the pinned release is our own, a package that leads out of
//! itself is refused, and a program that is another one than it was said to be is not kept. `ash_engine::runtimes`
//! finds what is installed here, and looks at its digest before it is used.

mod error;
mod npmrc;
mod package;
mod place;
mod registry;
#[cfg(test)]
mod test;
mod unpack;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ash_engine::runtimes::{Installed, Record, Version, digest_of, version_of};
use reqwest::Url;
use ring::digest::{Context, SHA512};
use tokio::sync::watch;

pub use self::error::InstallError;
pub use self::package::PINNED;
pub use self::registry::PATIENCE;

use self::error::at;
use self::package::{FRONT, Integrity, Libc};
use self::place::Workshop;
use self::registry::Registry;
use self::unpack::Kind;

/// Which release is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Any that is there; from a registry, the pinned one.
    Any,
    /// This one.
    Version(Version),
    /// The one that the registry calls so, such as `latest`.
    Tag(String),
}

/// Where it comes from.
#[derive(Clone, Debug)]
pub enum Origin {
    /// The registry at this address, which may be silent for so long.
    Registry(Url, Duration),
    /// A package or a program on this machine.
    File(PathBuf),
}

/// What goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Somebody else installs something.
    Waiting,
    /// The registry is asked.
    Asking,
    /// The package comes.
    Fetching {
        /// How many bytes have come.
        done: u64,
        /// Of how many.
        total: Option<u64>,
    },
    /// The program is taken out.
    Unpacking,
    /// It is looked at.
    Checking,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What is installed now.
    pub installed: Installed,
    /// Whether it had been before.
    pub was_there: bool,
}

/// The address of the registry: `setting`, or else the one that npm would ask.
///
/// # Errors
/// What somebody said is no address.
pub fn registry_address(
    setting: Option<&str>,
    env: &BTreeMap<String, String>,
) -> Result<Url, InstallError> {
    npmrc::registry(setting, env).map_err(InstallError::Unreachable)
}

/// Installs a release into a data directory. One that is there and whole is left as it is.
///
/// # Errors
/// See [`InstallError`].
pub async fn install(
    data: &Path,
    wanted: &Wanted,
    origin: &Origin,
    progress: &watch::Sender<Stage>,
) -> Result<Outcome, InstallError> {
    progress.send_replace(Stage::Waiting);
    let place = data.to_owned();
    let workshop = blocking(move || Workshop::open(&place)).await?;
    match origin {
        Origin::Registry(url, patience) => {
            let registry = Registry::new(url.clone(), *patience)?;
            from_registry(data, workshop, wanted, &registry, progress).await
        }
        Origin::File(path) => from_file(workshop, wanted, path, progress).await,
    }
}

/// Removes an installed release. Says whether it was there.
///
/// # Errors
/// It cannot be removed.
pub async fn remove(data: &Path, version: &Version) -> Result<bool, InstallError> {
    let (data, version) = (data.to_owned(), version.clone());
    blocking(move || Workshop::open(&data)?.remove(&version)).await
}

async fn from_registry(
    data: &Path,
    workshop: Workshop,
    wanted: &Wanted,
    registry: &Registry,
    progress: &watch::Sender<Stage>,
) -> Result<Outcome, InstallError> {
    progress.send_replace(Stage::Asking);
    let pinned = || PINNED.parse::<Version>().expect("the pinned version is one");
    let version = match wanted {
        Wanted::Any => pinned(),
        Wanted::Version(version) => version.clone(),
        Wanted::Tag(tag) => {
            let said = registry.manifest(FRONT, tag).await?.version;
            said.parse().map_err(|_| {
                InstallError::Refused(format!("the registry says that {tag} is {said:?}"))
            })?
        }
    };
    if let Some(installed) = workshop.intact(data, &version) {
        return Ok(Outcome { installed, was_there: true });
    }
    let package = package::package_for(std::env::consts::ARCH, Libc::below(Path::new("/")))?;
    let said = registry.manifest(&package, version.as_str()).await?;
    if said.version != version.as_str() {
        let message = format!("the registry answers with {} instead of {version}", said.version);
        return Err(InstallError::Refused(message));
    }
    let integrity = expected(&package, &version, said.dist.integrity.as_deref())?;
    let url = registry.tarball(&package, version.as_str(), &said.dist.tarball)?;
    let file = workshop.desk("package.tgz");
    let come = |done, total| {
        progress.send_replace(Stage::Fetching { done, total });
    };
    let found = registry.fetch(url, &file, come).await?;
    if found != integrity {
        let message = format!(
            "the package that came is not {package} {version}: it has the digest {found} instead of {integrity}"
        );
        return Err(InstallError::Refused(message));
    }
    let origin = (Some(package), Some(integrity.to_string()));
    finish(workshop, Source::Package(file), &Wanted::Version(version), origin, progress).await
}

/// What a package has to be: what we know ourselves, or else what the registry says.
fn expected(
    package: &str,
    version: &Version,
    said: Option<&str>,
) -> Result<Integrity, InstallError> {
    let said = said.and_then(Integrity::parse);
    match (Integrity::known(package, version.as_str()), said) {
        (Some(known), Some(said)) if known != said => Err(InstallError::Refused(format!(
            "the registry has something else under the name {package} {version}: its digest is {said} instead of {known}"
        ))),
        (Some(known), _) => Ok(known),
        (None, Some(said)) => Ok(said),
        (None, None) => Err(InstallError::Refused(format!(
            "the registry does not say the SHA-512 digest of {package} {version}"
        ))),
    }
}

/// Where the program is taken from.
enum Source {
    Package(PathBuf),
    Program(PathBuf),
}

async fn from_file(
    workshop: Workshop,
    wanted: &Wanted,
    path: &Path,
    progress: &watch::Sender<Stage>,
) -> Result<Outcome, InstallError> {
    let (source, integrity) = match unpack::kind_of(path)? {
        Kind::Package => {
            let file = path.to_owned();
            let integrity = blocking(move || integrity_of(&file)).await?;
            (Source::Package(path.to_owned()), Some(integrity.to_string()))
        }
        Kind::Program => (Source::Program(path.to_owned()), None),
        Kind::Other => {
            let what = "is neither a package (.tgz) nor an executable file";
            return Err(InstallError::Refused(format!("{} {what}", path.display())));
        }
    };
    finish(workshop, source, wanted, (None, integrity), progress).await
}

fn integrity_of(path: &Path) -> Result<Integrity, InstallError> {
    use std::io::Read as _;
    let mut file = fs::File::open(path).map_err(at(path))?;
    let mut digest = Context::new(&SHA512);
    let mut piece = vec![0; 1 << 20];
    loop {
        let length = file.read(&mut piece).map_err(at(path))?;
        if length == 0 {
            return Ok(Integrity::of(digest.finish().as_ref()));
        }
        digest.update(&piece[..length]);
    }
}

/// Takes the program out, looks at it, and puts it into its place.
async fn finish(
    workshop: Workshop,
    source: Source,
    wanted: &Wanted,
    (package, integrity): (Option<String>, Option<String>),
    progress: &watch::Sender<Stage>,
) -> Result<Outcome, InstallError> {
    progress.send_replace(Stage::Unpacking);
    let program = workshop.desk("program");
    let into = program.clone();
    blocking(move || {
        match source {
            Source::Package(file) => {
                unpack::unpack(&file, &into)?;
            }
            Source::Program(file) => {
                fs::copy(&file, &into).map_err(at(&into))?;
            }
        }
        unpack::is_for(std::env::consts::ARCH, &into)?;
        fs::set_permissions(&into, fs::Permissions::from_mode(0o755)).map_err(at(&into))
    })
    .await?;
    progress.send_replace(Stage::Checking);
    let refused = |why: String| InstallError::Refused(format!("the program is refused: {why}"));
    let version = version_of(&program).await.map_err(refused)?;
    match wanted {
        Wanted::Version(wanted) if *wanted != version => {
            return Err(refused(format!("it says that it is {version}, and not {wanted}")));
        }
        Wanted::Any | Wanted::Version(_) | Wanted::Tag(_) => {}
    }
    blocking(move || {
        let (bytes, blake3) = digest_of(&program).map_err(at(&program))?;
        let record = Record { version: version.to_string(), package, integrity, bytes, blake3 };
        let installed = workshop.place(&program, version, record)?;
        Ok(Outcome { installed, was_there: false })
    })
    .await
}

/// Does what waits for the disk where that is allowed.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, InstallError> + Send + 'static,
) -> Result<T, InstallError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
