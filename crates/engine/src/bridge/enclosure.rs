//! What is around a bridge and everything below it: a sandbox, or nothing.
//!
//! | | nothing | a sandbox |
//! |---|---|---|
//! | who belongs to it | descendants of the bridge; whose home is the session's | everything in its namespace and cgroup |
//! | killed by | signals, again and again | the death of its pid 1, or its cgroup |
//! | frozen by | stopping each process | its cgroup, or as without one |
//! | sees | the machine | `/workspace`, `/home/agent`, the system read-only |

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ash_core::failure::Death;
use ash_sandbox::{
    Cgroup, Cgroups, Check, Ended, Launched, Launcher, Limits, Probe, Shared, Spec, Tier,
};
use rustix::fs::{Mode, OFlags, open};
use tokio::net::unix::pipe::Receiver;

use super::process::Isolation;
use super::quota::DiskLimits;
use super::users::Users;
use super::word::death_by_code;
use crate::host::SandboxRef;
use crate::runtimes::Legacy;

/// Where the agent works and lives, inside.
const WORKSPACE: &str = "/workspace";
const HOME: &str = "/home/agent";

/// Where programs are looked for, inside.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What is around a bridge and everything below it.
#[derive(Clone)]
pub enum Enclosure {
    /// Nothing: the agent can do what the server can. For tests, and for those who say so.
    Nothing,
    /// A sandbox.
    Sandbox(Arc<Sandboxing>),
}

/// How sandboxes are made.
#[derive(Debug)]
pub struct Sandboxing {
    /// Starts them.
    pub launcher: Launcher,
    /// Counts, bounds, freezes and kills them, as far as this machine can.
    pub cgroups: Cgroups,
    /// A user for each, where the server may give users away.
    pub users: Option<Users>,
    /// What keeps their files within their limit.
    pub disk: DiskLimits,
    /// Directories of the server that must not be seen inside.
    pub hidden: Vec<PathBuf>,
    /// The bridge program of the original, which is shown where it is not seen anyway.
    pub legacy: Option<Legacy>,
}

/// What a sandbox is started with.
pub(super) struct Opening<'a> {
    pub(super) uid: Option<u32>,
    pub(super) bridge: &'a Path,
    pub(super) workspace: &'a Path,
    pub(super) home: &'a Path,
    pub(super) control: UnixListener,
    pub(super) spool: File,
    pub(super) log: File,
    pub(super) limits: &'a Limits,
    /// Where the versions of Claude Code are, if there are any.
    pub(super) claude: &'a Path,
    /// Of the environment of the server, what may be known inside.
    pub(super) language: Option<&'a str>,
}

impl Enclosure {
    /// Where the agent finds its files, if they lie in these places.
    pub(super) fn seen(&self, workspace: PathBuf, home: PathBuf) -> (PathBuf, PathBuf) {
        match self {
            Self::Nothing => (workspace, home),
            Self::Sandbox(_) => (WORKSPACE.into(), HOME.into()),
        }
    }

    /// How strongly what is started now is isolated.
    pub(super) fn isolation(&self) -> Isolation {
        match self {
            Self::Nothing => Isolation::None,
            Self::Sandbox(sandboxing) => match sandboxing.tier() {
                Tier::Rootless => Isolation::Rootless,
                Tier::Full => Isolation::Full,
            },
        }
    }

    /// The sandboxing, if there is any.
    pub(super) fn sandboxing(&self) -> Option<&Arc<Sandboxing>> {
        match self {
            Self::Nothing => None,
            Self::Sandbox(sandboxing) => Some(sandboxing),
        }
    }
}

/// Why there are no sandboxes on this machine.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct NoSandbox {
    /// What was tried, and what came of it.
    pub why: String,
    /// What to do about it, where that is known.
    pub hint: Option<String>,
}

impl Sandboxing {
    /// Finds out what this machine can do, by starting a sandbox and trying to get out of it. The data, and
    /// whatever else is `secret`, is not seen inside. Blocks.
    ///
    /// # Errors
    /// No sandbox can be started here, or one did not hold.
    pub fn probe(
        data: &Path,
        bridge: &Path,
        users: Users,
        secret: &[PathBuf],
    ) -> Result<(Self, Vec<Check>), NoSandbox> {
        let broken = |error: io::Error| NoSandbox { why: error.to_string(), hint: None };
        let data = std::path::absolute(data).map_err(broken)?;
        let [scratch, sandboxes] = ["run", "sandboxes"].map(|name| data.join(name));
        for dir in [&scratch, &sandboxes] {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(broken)?;
        }
        let data = data.canonicalize().map_err(broken)?;
        let cgroups = cgroups_of(&data);
        let secret = secret.iter().filter_map(|path| path.canonicalize().ok());
        let hidden: Vec<PathBuf> = std::iter::once(data).chain(secret).collect();
        let paths: Vec<&Path> = hidden.iter().map(PathBuf::as_path).collect();
        let probed = ash_sandbox::probe(&Probe {
            helper: bridge,
            uid: Some(users.for_a_probe()),
            cgroups: &cgroups,
            scratch: &scratch,
            hidden: &paths,
        });
        let Some(tier) = probed.tier else {
            let why = probed.why_not.unwrap_or_else(|| "no sandbox could be started".to_owned());
            return Err(NoSandbox { why, hint: probed.hint });
        };
        let (users, disk) = match tier {
            Tier::Full => {
                let disk = DiskLimits::find_out(&sandboxes, users.for_a_probe());
                (Some(users), disk)
            }
            Tier::Rootless => {
                let why = "only root can set quotas".to_owned();
                (None, DiskLimits::Counted { why })
            }
        };
        let launcher = Launcher::new(bridge.to_owned(), tier);
        Ok((Self { launcher, cgroups, users, disk, hidden, legacy: None }, probed.checks))
    }

    /// The same, with that program shown to sandboxes.
    #[must_use]
    pub fn showing(self, legacy: Legacy) -> Self {
        Self { legacy: Some(legacy), ..self }
    }

    /// How strongly sandboxes are isolated.
    pub fn tier(&self) -> Tier {
        self.launcher.tier()
    }

    /// Starts a sandbox. `note` is told which process it is before anything runs in it. Blocks for some
    /// milliseconds.
    pub(super) fn start(
        &self,
        sandbox: SandboxRef,
        opening: Opening<'_>,
        note: impl FnOnce(u32) -> io::Result<()>,
    ) -> Result<(Launched, Option<Cgroup>), String> {
        let cgroup = self.cgroups.create(&name_of(sandbox), opening.limits);
        let cgroup = cgroup.map_err(|error| format!("its cgroup could not be made: {error}"))?;
        let launched = self.launch(&opening, cgroup.as_ref(), note);
        if launched.is_err() {
            // What cannot be removed now is removed by whoever starts the server next.
            let _left = cgroup.as_ref().map(|cgroup| cgroup.kill().and_then(|()| cgroup.remove()));
        }
        Ok((launched?, cgroup))
    }

    fn launch(
        &self,
        opening: &Opening<'_>,
        cgroup: Option<&Cgroup>,
        note: impl FnOnce(u32) -> io::Result<()>,
    ) -> Result<Launched, String> {
        let named = |path: &Path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            move |error: io::Error| format!("{name}: {error}")
        };
        let directory = |path: &Path| {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let opened = open(path, flags, Mode::empty());
            opened.map_err(|errno| named(path)(errno.into()))
        };
        let program = File::open(opening.bridge).map_err(named(opening.bridge))?;
        let (workspace, home) = (directory(opening.workspace)?, directory(opening.home)?);
        let claude = match opening.claude.try_exists() {
            Ok(true) => Some(directory(opening.claude)?),
            Ok(false) | Err(_) => None,
        };
        let to_share = self.legacy.as_ref().map(Legacy::shared).unwrap_or_default();
        let opened: Vec<OwnedFd> =
            to_share.iter().map(|of| directory(&of.origin)).collect::<Result<_, _>>()?;
        let shared: Vec<Shared<'_>> = to_share
            .iter()
            .zip(&opened)
            .map(|(of, opened)| Shared {
                name: of.name,
                directory: opened.as_fd(),
                origin: &of.origin,
            })
            .collect();
        let mut environment = vec![("PATH", PATH), ("HOME", HOME)];
        environment.extend(opening.language.map(|language| ("LANG", language)));
        let hidden: Vec<&Path> = self.hidden.iter().map(PathBuf::as_path).collect();
        let spec = Spec {
            uid: opening.uid,
            program: program.as_fd(),
            workspace: workspace.as_fd(),
            home: home.as_fd(),
            control: opening.control.as_fd(),
            spool: opening.spool.as_fd(),
            log: opening.log.as_fd(),
            limits: opening.limits,
            environment: &environment,
            cgroup,
            args: &[],
            hidden: &hidden,
            claude: claude.as_ref().map(|claude| claude.as_fd()),
            shared: &shared,
        };
        self.launcher.start_noted(&spec, note).map_err(|error| with_causes(&error))
    }
}

/// The cgroups of the server over these files: another one has cgroups of its own.
pub fn cgroups_of(data: &Path) -> Cgroups {
    let name = blake3::hash(data.as_os_str().as_encoded_bytes()).to_hex();
    Cgroups::detect(&name[..12])
}

/// A cgroup's name says whose it is, or was when it was made: it cannot be renamed everywhere. So whoever looks
/// for one asks [`Inner::cgroup`](super::inner::Inner::cgroup).
pub(super) fn name_of(sandbox: SandboxRef) -> String {
    format!("{}-{}", sandbox.session, sandbox.incarnation.get())
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Waits for the end of a sandbox's pid 1, and says how it came. `ooms` is how many processes had been
/// killed for want of memory when it was last seen alive.
pub(super) async fn end_of(pidfd: OwnedFd, cgroup: Option<Cgroup>, ooms: Arc<AtomicU64>) -> Death {
    // It is no pipe, but it becomes readable as one does, and nothing else is asked of it.
    let Ok(watched) = Receiver::from_owned_fd_unchecked(pidfd) else {
        return Death::Unseen;
    };
    let _ready = watched.readable().await;
    let ended = ash_sandbox::wait(watched.as_fd());
    let had_no_memory = || {
        cgroup
            .as_ref()
            .and_then(Cgroup::oom_kills)
            .is_some_and(|now| now > ooms.load(Ordering::Relaxed))
    };
    match ended {
        Ok(Some(Ended::Exited(code))) => death_by_code(code),
        Ok(Some(Ended::Killed(9) | Ended::Gone)) if had_no_memory() => Death::OutOfMemory,
        Ok(Some(Ended::Killed(signal))) => Death::Killed(signal),
        Ok(Some(Ended::Gone) | None) | Err(_) => Death::Unseen,
    }
}
