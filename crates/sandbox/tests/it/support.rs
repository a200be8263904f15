//! Sandboxes for tests: made in one line, and gone with everything when they are dropped.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ash_sandbox::{
    Cgroup, Cgroups, Ended, LaunchError, Launched, Launcher, Limits, Shared, Spec, Tier,
};
use rustix::event::{PollFd, PollFlags, Timespec};
use tempfile::TempDir;

/// A user that is not root, and no session's, for the server of tier rootless.
const SERVER_UID: u32 = 199_999;

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn helper() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_ash-escape"))
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The tiers that can be tried here, which is printed.
pub(crate) fn tiers() -> Vec<Tier> {
    let tiers = if is_root() { vec![Tier::Full, Tier::Rootless] } else { vec![Tier::Rootless] };
    let names: Vec<&str> = tiers.iter().map(|tier| tier.as_str()).collect();
    println!("tiers tried: {}", names.join(", "));
    tiers
}

/// Whether tier full can be tried; says so if not.
pub(crate) fn can_be_full() -> bool {
    if !is_root() {
        println!("not tried: tier full needs root");
    }
    is_root()
}

/// A number that no other test of this machine has right now.
fn unique() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    std::process::id() % 100_000 * 16 + NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The directories of one session, and what its sandboxes printed.
pub(crate) struct Room {
    pub(crate) tier: Tier,
    pub(crate) uid: u32,
    pub(crate) dir: TempDir,
    pub(crate) limits: Limits,
}

/// How a run ended and what it printed.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) ended: String,
    pub(crate) output: String,
    pub(crate) log: String,
}

impl Room {
    pub(crate) fn new(tier: Tier) -> Self {
        let dir = tempfile::Builder::new().prefix("ash-sandbox-").tempdir().unwrap();
        let uid = match tier {
            Tier::Full => 200_000 + unique(),
            Tier::Rootless if is_root() => SERVER_UID,
            Tier::Rootless => rustix::process::geteuid().as_raw(),
        };
        // As the server's own: root's alone in tier full.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        for name in ["workspace", "home"] {
            fs::create_dir(dir.path().join(name)).unwrap();
            fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(0o700)).unwrap();
            chown(dir.path().join(name), Some(uid), Some(uid)).unwrap();
        }
        if tier == Tier::Rootless {
            // Its server is another user: the directory is that one's, and so is the program.
            chown(dir.path(), Some(uid), Some(uid)).unwrap();
            fs::copy(helper(), dir.path().join("helper")).unwrap();
        }
        Self { tier, uid, dir, limits: Limits::default() }
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.dir.path().join("workspace")
    }

    /// Runs one program to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Outcome {
        let ended = match self.tier {
            Tier::Full => {
                let launched = self.start(None, args).unwrap_or_else(|error| {
                    panic!("{error}: {} ({:?})", error.source, error.hint);
                });
                format!("{:?}", end_of(&launched))
            }
            Tier::Rootless => self.serve(args),
        };
        let read = |name| fs::read_to_string(self.dir.path().join(name)).unwrap_or_default();
        Outcome { ended, output: read("output"), log: read("log") }
    }

    /// As a server that is not root would.
    fn serve(&self, args: &[&str]) -> String {
        let limits = serde_json::to_string(&self.limits).unwrap();
        let mut server = Command::new(self.dir.path().join("helper"));
        server.arg("serve").arg(self.dir.path()).arg(limits).args(args).current_dir("/");
        server.env("ASH_TEST_SECRET", SECRET);
        if is_root() {
            server.uid(self.uid).gid(self.uid);
        }
        let output = server.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let complaint = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        assert!(output.status.success(), "{said} {complaint}");
        said
    }

    /// Starts a program in tier full.
    pub(crate) fn start(
        &self,
        cgroup: Option<&Cgroup>,
        args: &[&str],
    ) -> Result<Launched, LaunchError> {
        let open = |name| File::open(self.dir.path().join(name)).unwrap();
        let append = |name: &str| {
            OpenOptions::new().create(true).append(true).open(self.dir.path().join(name)).unwrap()
        };
        let null = File::open("/dev/null").unwrap();
        let program = File::open(helper()).unwrap();
        let claude = File::open(self.dir.path().join("claude")).ok();
        let origin = self.dir.path().join("shared");
        let (shared, secret) = (File::open(&origin).ok(), origin.join("secret"));
        let of = |shared| Shared { name: "a/tree", directory: shared, origin: &origin };
        let shared: Vec<Shared<'_>> = shared.iter().map(|shared| of(shared.as_fd())).collect();
        Launcher::new(helper(), self.tier).start(&Spec {
            uid: Some(self.uid),
            program: program.as_fd(),
            workspace: open("workspace").as_fd(),
            home: open("home").as_fd(),
            control: null.as_fd(),
            spool: append("output").as_fd(),
            log: append("log").as_fd(),
            limits: &self.limits,
            environment: &[("PATH", "/usr/local/bin:/usr/bin:/bin"), ("HOME", "/home/agent")],
            cgroup,
            args,
            hidden: &[&secret],
            claude: claude.as_ref().map(|claude| claude.as_fd()),
            shared: &shared,
        })
    }

    pub(crate) fn output(&self) -> String {
        fs::read_to_string(self.dir.path().join("output")).unwrap_or_default()
    }
}

/// What a server must not let into a sandbox.
pub(crate) const SECRET: &str = "sk-test-4b5e0d8f";

/// Waits for the end of a sandbox.
pub(crate) fn end_of(launched: &Launched) -> Ended {
    until_readable(&launched.pidfd);
    ash_sandbox::wait(launched.pidfd.as_fd()).unwrap().expect("it ended just now")
}

fn until_readable(pidfd: &OwnedFd) {
    let timeout = Timespec::try_from(PATIENCE).unwrap();
    let mut polled = [PollFd::new(pidfd, PollFlags::IN)];
    let ready = rustix::event::poll(&mut polled, Some(&timeout)).unwrap();
    assert!(ready > 0, "it did not end in {PATIENCE:?}");
}

/// Waits until something is so. A look is cheap, and the machine is shared.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "never came: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The cgroups of one test.
pub(crate) struct Place {
    pub(crate) cgroups: Cgroups,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { cgroups: Cgroups::detect(&format!("test-{}", unique())) }
    }

    /// Only those of the mounts whose line is wanted.
    pub(crate) fn among(wanted: impl Fn(&str) -> bool) -> Self {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let wanted: Vec<&str> = mounts.lines().filter(|line| wanted(line)).collect();
        let cgroups = Cgroups::detect_among(&format!("test-{}", unique()), &wanted.join("\n"));
        Self { cgroups }
    }

    pub(crate) fn cgroup(&self, name: &str, limits: &Limits) -> Option<Cgroup> {
        let cgroup = self.cgroups.create(name, limits).unwrap();
        if cgroup.is_none() {
            println!("not tried: this machine has no cgroups for us");
        }
        cgroup
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let clean = || -> io::Result<()> {
            for name in self.cgroups.list()? {
                if let Some(cgroup) = self.cgroups.open(&name)? {
                    cgroup.kill()?;
                    cgroup.remove()?;
                }
            }
            self.cgroups.clone().remove()
        };
        if let Err(error) = clean() {
            eprintln!("cgroups of a test are left: {error}");
        }
    }
}
