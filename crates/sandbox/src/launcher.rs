//! The server's side of a start. Blocking and short: a few milliseconds, and bounded.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use rustix::process::{Signal, WaitId, WaitIdOptions};

use crate::error::{LaunchError, Step};
use crate::order::{self, Bounded, Descriptors, Order, Said, SharedTree};
use crate::spec::{Shared, Spec, Tier};

/// How long a start may take on the busiest machine. Whatever exists of it then is killed.
const PATIENCE: Duration = Duration::from_secs(20);

/// Starts sandboxes.
#[derive(Clone, Debug)]
pub struct Launcher {
    helper: PathBuf,
    tier: Tier,
}

/// A sandbox whose pid 1 is executing its program.
#[derive(Debug)]
pub struct Launched {
    /// Pid 1 of the sandbox, as the machine numbers it. It is a child of this process.
    pub pid: u32,
    /// A handle of pid 1. When that is gone, so is everything in the sandbox.
    pub pidfd: OwnedFd,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By itself, with this status.
    Exited(i32),
    /// By this signal.
    Killed(i32),
    /// It is gone, and only its parent could have known how.
    Gone,
}

impl Launcher {
    /// The helper is a program whose main function, given the argument `launch`, is [`crate::launch`].
    pub fn new(helper: PathBuf, tier: Tier) -> Self {
        Self { helper, tier }
    }

    /// How strongly the sandboxes are isolated.
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// The program that makes sandboxes.
    pub fn helper(&self) -> &Path {
        &self.helper
    }

    /// Starts a sandbox, as [`start_noted`](Self::start_noted) does, and notes nothing.
    pub fn start(&self, spec: &Spec<'_>) -> Result<Launched, LaunchError> {
        self.start_noted(spec, |_| Ok(()))
    }

    /// Starts a sandbox. `note` is told which process it is before its program runs; if the caller dies
    /// over that, the program never does. On failure nothing of it is left, but for its cgroup, which is
    /// the caller's.
    pub fn start_noted(
        &self,
        spec: &Spec<'_>,
        note: impl FnOnce(u32) -> io::Result<()>,
    ) -> Result<Launched, LaunchError> {
        let at =
            |step: Step| move |source: io::Error| LaunchError::new(step, String::new(), source);
        self.check(spec).map_err(at(Step::Spec))?;
        let joined = match spec.cgroup {
            Some(cgroup) => cgroup.open_to_join().map_err(at(Step::Cgroup))?,
            None => Vec::new(),
        };
        let oom_counter = match spec.cgroup {
            Some(cgroup) if spec.limits.memory_bytes.is_some() => {
                cgroup.open_oom_counter().map_err(at(Step::Cgroup))?
            }
            Some(_) | None => None,
        };
        let order = Order {
            tier: self.tier,
            uid: spec.uid,
            limits: spec.limits.clone(),
            bounded: spec.cgroup.map_or_else(Bounded::default, |cgroup| {
                let abilities = cgroup.abilities();
                Bounded { memory: abilities.memory, pids: abilities.pids }
            }),
            environment: owned_pairs(spec.environment),
            args: spec.args.iter().map(|&arg| arg.to_owned()).collect(),
            // One that does not exist needs no cover.
            hidden: spec.hidden.iter().filter_map(|path| path.canonicalize().ok()).collect(),
            counts_ooms: oom_counter.is_some(),
            has_claude: spec.claude.is_some(),
            shared: spec.shared.iter().map(tree_of).collect(),
        };
        let descriptors = Descriptors {
            program: spec.program,
            workspace: spec.workspace,
            home: spec.home,
            control: spec.control,
            spool: spec.spool,
            log: spec.log,
            oom_counter: oom_counter.as_ref().map(|file| file.as_fd()),
            claude: spec.claude,
            shared: spec.shared.iter().map(|shared| shared.directory).collect(),
            cgroups: joined.iter().map(|file| file.as_fd()).collect(),
        };
        let (ours, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(|errno| at(Step::Order)(errno.into()))?;
        order::send_order(ours.as_fd(), &order, &descriptors).map_err(at(Step::Order))?;
        let mut helper = self.spawn(theirs, spec.log).map_err(|source| {
            LaunchError::new(Step::Helper, self.helper.display().to_string(), source)
        })?;
        let heard = hear_out(&ours, note);
        if heard.is_err() {
            let _gone_already = helper.kill();
        }
        // It has said all it had to say, so it is ending or dead.
        let _reaped = helper.wait();
        heard
    }

    fn check(&self, spec: &Spec<'_>) -> io::Result<()> {
        let refuse = |what| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        match (self.tier, spec.uid) {
            (Tier::Full, None) => refuse("tier full needs a user for each sandbox"),
            (_, Some(0)) => refuse("root never enters a sandbox"),
            (Tier::Rootless, Some(_)) => refuse("tier rootless has no users to give"),
            (Tier::Rootless, None) if rustix::process::geteuid().is_root() => {
                refuse("root never enters a sandbox, and tier rootless has no other user")
            }
            (Tier::Full, Some(_)) | (Tier::Rootless, None) => Ok(()),
        }
    }

    fn spawn(&self, socket: OwnedFd, log: BorrowedFd<'_>) -> io::Result<Child> {
        Command::new(&self.helper)
            .arg("launch")
            .env_clear()
            .current_dir("/")
            // What ends the server's terminal does not end a start half-way.
            .process_group(0)
            .stdin(Stdio::from(socket))
            .stdout(Stdio::null())
            .stderr(Stdio::from(log.try_clone_to_owned()?))
            .spawn()
    }
}

fn tree_of(shared: &Shared<'_>) -> SharedTree {
    SharedTree { name: shared.name.to_owned(), origin: shared.origin.to_owned() }
}

fn owned_pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Hears until nobody is left to say anything. Kills pid 1 if it came to nothing.
fn hear_out(
    socket: &OwnedFd,
    note: impl FnOnce(u32) -> io::Result<()>,
) -> Result<Launched, LaunchError> {
    let failed = |source| LaunchError::new(Step::Answer, String::new(), source);
    sockopt::set_socket_timeout(socket, sockopt::Timeout::Recv, Some(PATIENCE))
        .map_err(|errno| failed(errno.into()))?;
    let mut launched: Option<Launched> = None;
    let mut failure: Option<LaunchError> = None;
    let mut note = Some(note);
    loop {
        match order::hear(socket.as_fd()) {
            Ok(Some((Said::Started { pid }, Some(pidfd)))) => {
                launched = Some(Launched { pid, pidfd });
                if let Err(source) = note.take().map_or(Ok(()), |note| note(pid)) {
                    failure = failure.or(Some(failed(source)));
                    break;
                }
                // One that is gone by now has said why, which is heard next.
                let _gone = order::let_go(socket.as_fd());
            }
            Ok(Some((Said::Started { .. }, None))) => {
                let source = io::Error::other("pid 1 was started, and its handle did not come");
                failure = failure.or(Some(failed(source)));
            }
            Ok(Some((Said::Failed { step, errno, detail }, _))) => {
                let source = io::Error::from_raw_os_error(errno);
                failure = failure.or(Some(LaunchError::new(step, detail, source)));
            }
            Ok(None) => break,
            Err(source) => {
                failure = failure.or(Some(failed(source)));
                break;
            }
        }
    }
    match (launched, failure) {
        (Some(launched), None) => Ok(launched),
        (Some(launched), Some(failure)) => {
            kill_and_reap(&launched.pidfd);
            Err(failure)
        }
        (None, Some(failure)) => Err(failure),
        (None, None) => Err(failed(io::Error::other("it ended and said nothing; see the log"))),
    }
}

fn kill_and_reap(pidfd: &OwnedFd) {
    let _gone_already = rustix::process::pidfd_send_signal(pidfd, Signal::KILL);
    let _reaped = rustix::process::waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED);
}

/// Says how a process ended, without waiting; none while it lives. A child of ours is reaped. Of
/// another's child only that it is gone can be known.
pub fn wait(pidfd: BorrowedFd<'_>) -> io::Result<Option<Ended>> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    match rustix::process::waitid(WaitId::PidFd(pidfd), options) {
        Ok(None) => Ok(None),
        Ok(Some(status)) => Ok(Some(match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Ended::Exited(code),
            (None, Some(signal)) => Ended::Killed(signal),
            (None, None) => Ended::Gone,
        })),
        Err(Errno::CHILD) => {
            let mut polled = [PollFd::from_borrowed_fd(pidfd, PollFlags::IN)];
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            let ready = rustix::event::poll(&mut polled, Some(&at_once))?;
            Ok((ready > 0).then_some(Ended::Gone))
        }
        Err(errno) => Err(errno.into()),
    }
}
