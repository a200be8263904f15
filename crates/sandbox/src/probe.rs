//! Which tier this machine can do: found out by starting one, and trying to get out of it.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt as _, lchown};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::MemfdFlags;
use rustix::process::Signal;

use crate::cgroup::Cgroups;
use crate::inside::{Check, Outside};
use crate::launcher::{Launched, Launcher, wait};
use crate::spec::{Limits, Spec, Tier};

/// How long the attempts may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a probe is made with.
#[derive(Debug)]
pub struct Probe<'a> {
    /// The program that makes sandboxes, and plays the one inside: with the argument `launch` its main
    /// function is [`crate::launch`], with `probe` it is [`crate::inside_main`].
    pub helper: &'a Path,
    /// A user for the sandbox, if the server may give users away. It is used by no session.
    pub uid: Option<u32>,
    /// Where sandboxes are counted.
    pub cgroups: &'a Cgroups,
    /// A directory in which one for the probe is made, and removed.
    pub scratch: &'a Path,
    /// As in [`Spec::hidden`]; also tried to be reached.
    pub hidden: &'a [&'a Path],
}

/// What came of a probe.
#[derive(Debug)]
pub struct Probed {
    /// The tier that holds. None if no sandbox could be started, or one attempt to get out succeeded.
    pub tier: Option<Tier>,
    /// Every attempt and what came of it; none if no sandbox could be started.
    pub checks: Vec<Check>,
    /// If there is no tier: why.
    pub why_not: Option<String>,
    /// If there is no tier: what to do about it, if that is known.
    pub hint: Option<String>,
}

impl Probed {
    fn failed(why_not: String, hint: Option<String>) -> Self {
        Self { tier: None, checks: Vec::new(), why_not: Some(why_not), hint }
    }
}

/// Starts a sandbox of the best tier that this user can have, and runs the cheap escape checks in it.
/// It never falls back: if root's tier does not work, there is none.
pub fn probe(probe: &Probe<'_>) -> Probed {
    let is_root = rustix::process::geteuid().is_root();
    let (tier, uid) = match (is_root, probe.uid) {
        (true, Some(uid)) => (Tier::Full, Some(uid)),
        (true, None) => {
            let why = "the server is root and has no users to give to sandboxes";
            return Probed::failed(why.to_owned(), None);
        }
        (false, _) => (Tier::Rootless, None),
    };
    let launcher = Launcher::new(probe.helper.to_owned(), tier);
    let dir = probe.scratch.join(format!("probe-{}", std::process::id()));
    let checked = run(probe, &launcher, uid, &dir);
    let _left_for_the_next = fs::remove_dir_all(&dir);
    let checks = match checked {
        Ok(checks) => checks,
        Err(Problem::Launch(error)) => {
            let why = match std::error::Error::source(&error) {
                Some(source) => format!("{error}: {source}"),
                None => error.to_string(),
            };
            return Probed::failed(why, error.hint);
        }
        Err(Problem::Io(error)) => return Probed::failed(error.to_string(), None),
    };
    let broken: Vec<&str> =
        checks.iter().filter(|check| !check.passed).map(|check| check.name.as_str()).collect();
    if broken.is_empty() {
        return Probed { tier: Some(tier), checks, why_not: None, hint: None };
    }
    let why = format!("a sandbox started, and did not hold against: {}", broken.join(", "));
    Probed { tier: None, checks, why_not: Some(why), hint: None }
}

enum Problem {
    Launch(crate::LaunchError),
    Io(io::Error),
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

fn run(
    probe: &Probe<'_>,
    launcher: &Launcher,
    uid: Option<u32>,
    dir: &Path,
) -> Result<Vec<Check>, Problem> {
    // What a server that was killed here left: in a container the next one has the same number.
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let mut private = fs::DirBuilder::new();
    private.mode(0o700);
    private.create(dir)?;
    for name in ["workspace", "home"] {
        private.create(dir.join(name))?;
        lchown(dir.join(name), uid, uid)?;
    }
    let (workspace, home) = (File::open(dir.join("workspace"))?, File::open(dir.join("home"))?);
    let program = File::open(probe.helper)?;
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    let output = rustix::fs::memfd_create("ash-probe", MemfdFlags::CLOEXEC);
    let mut output = File::from(output.map_err(io::Error::from)?);
    let outside = Outside {
        paths: probe.hidden.iter().map(|&path| path.to_owned()).chain([dir.to_owned()]).collect(),
        pid: Some(std::process::id()),
        ..Outside::default()
    };
    let outside = serde_json::to_string(&outside).map_err(io::Error::from)?;
    let limits = Limits::default();
    let name = format!("probe-{}", std::process::id());
    let cgroup = probe.cgroups.create(&name, &limits)?;
    let started = launcher.start(&Spec {
        uid,
        program: program.as_fd(),
        workspace: workspace.as_fd(),
        home: home.as_fd(),
        control: nothing.as_fd(),
        spool: output.as_fd(),
        log: nothing.as_fd(),
        limits: &limits,
        environment: &[("PATH", "/usr/bin:/bin")],
        cgroup: cgroup.as_ref(),
        args: &["probe", &outside],
        hidden: probe.hidden,
        claude: None,
        shared: &[],
    });
    let ended = match &started {
        Ok(launched) => wait_for(launched),
        Err(_) => Ok(()),
    };
    if let Some(cgroup) = cgroup {
        cgroup.kill()?;
        cgroup.remove()?;
    }
    started.map_err(Problem::Launch)?;
    ended?;
    output.rewind()?;
    let mut text = String::new();
    output.read_to_string(&mut text)?;
    let checks: Result<Vec<Check>, _> = text.lines().map(serde_json::from_str).collect();
    let checks = checks.map_err(io::Error::from)?;
    if checks.is_empty() {
        return Err(io::Error::other("the sandbox's program ended and reported nothing").into());
    }
    Ok(checks)
}

/// Waits for the end of pid 1, and kills it if that takes too long.
fn wait_for(launched: &Launched) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let pidfd: BorrowedFd<'_> = launched.pidfd.as_fd();
    loop {
        if wait(pidfd)?.is_some() {
            return Ok(());
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let _ended = rustix::process::pidfd_send_signal(pidfd, Signal::KILL);
        }
        let timeout =
            Timespec::try_from(left.max(Duration::from_secs(1))).map_err(io::Error::other)?;
        let mut polled = [PollFd::from_borrowed_fd(pidfd, PollFlags::IN)];
        rustix::event::poll(&mut polled, Some(&timeout))?;
    }
}
