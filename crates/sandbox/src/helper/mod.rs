//! The helper: a program of one thread that turns an order into a sandbox.
//!
//! The server has many threads, and after a fork of such a process next to nothing may be called. So
//! it executes a small program, which is this, and everything below is plain code in a plain order:
//!
//! ```text
//!   server ── executes ──► helper                                  pid 1
//!                          close what was inherited
//!                          join the cgroups
//!                          take hold of the directories (as root)
//!                          become the session's user
//!                          unshare everything, map the user
//!                          fork beside itself ───────────────────► build the root, pivot
//!                          say which process it is, and end        loopback, limits
//!   server: notes the process, and lets it go ───────────────────► wait for that
//!                                                                  streams, no capabilities,
//!                                                                  Landlock, seccomp
//!   server ◄──────────────── parent of ──────────────────────────  execute the program
//! ```
//!
//! A server that dies before it has noted the process does not let it go, and so leaves none that the
//! next one does not know.
//!
//! The cgroup comes first, so that whatever follows is counted. Root's rights end before the user
//! namespace begins: **host uid 0 never enters it**, because in there it would still own the host's files.

mod files;
mod lock;
mod root;
mod seccomp;
mod user;

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use crate::error::Step;
use crate::order::{self, Descriptors, Order, Said};
use crate::sys::{self, Forked};

pub(crate) use self::root::HOSTNAME;
pub use self::root::is_shown;

/// Where the program stands inside.
pub(crate) const PROGRAM: &str = "/run/ash/bridge";

/// Where it is counted, inside, who was killed for want of memory.
pub(crate) const OOM_COUNTER: &str = "/run/ash/oom";

/// Where the versions of Claude Code stand inside, if the server has any.
pub const CLAUDE: &str = "/run/ash/claude";

/// Where directories of the machine stand inside that the server shows.
pub const SHARED: &str = "/run/ash/shared";

/// A step that could not be done.
#[derive(Debug)]
pub(crate) struct Failure {
    step: Step,
    errno: i32,
    detail: String,
}

/// Names the step in which something went wrong, and its object.
pub(crate) trait At<T> {
    fn at(self, step: Step) -> Result<T, Failure>;
    fn at_object(self, step: Step, object: &str) -> Result<T, Failure>;
}

impl<T, E: Into<io::Error>> At<T> for Result<T, E> {
    fn at(self, step: Step) -> Result<T, Failure> {
        self.at_object(step, "")
    }

    fn at_object(self, step: Step, object: &str) -> Result<T, Failure> {
        self.map_err(|error| {
            let error = error.into();
            let (errno, detail) = match error.raw_os_error() {
                Some(errno) => (errno, object.to_owned()),
                None => (libc::EINVAL, format!("{object} {error}").trim().to_owned()),
            };
            // Bounded, because the message is.
            Failure { step, errno, detail: detail.chars().take(200).collect() }
        })
    }
}

/// The main function of the helper, whose standard input is the socket to the server.
pub fn launch() -> ExitCode {
    // Before anything of ours is open: what the server left open by mistake is nobody's business.
    if sys::close_from(3).is_err() {
        return ExitCode::FAILURE;
    }
    let Ok(socket) = rustix::stdio::stdin().try_clone_to_owned() else { return ExitCode::FAILURE };
    match prepare(&socket) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let Failure { step, errno, detail } = failure;
            // If the server is gone, nobody wants to know.
            let _unheard = order::say(socket.as_fd(), &Said::Failed { step, errno, detail }, None);
            ExitCode::FAILURE
        }
    }
}

/// Returns in the helper when pid 1 was started, and in pid 1 only if it fails.
fn prepare(socket: &OwnedFd) -> Result<(), Failure> {
    let (order, descriptors) = order::receive_order(socket.as_fd()).at(Step::Order)?;
    let Descriptors { program, workspace, home, control, spool, log, .. } = descriptors;
    let Descriptors { oom_counter, claude, shared, cgroups, .. } = descriptors;
    lock::offer_to_oom_killer()?;
    for cgroup in cgroups {
        File::from(cgroup).write_all(b"0").at(Step::Cgroup)?;
    }
    let given = root::Given { program, workspace, home, oom_counter, claude, shared };
    let trees = user::enter(&order, &given)?;
    drop(given);
    match sys::fork_beside().at(Step::Fork)? {
        Forked::Caller { pid, pidfd } => {
            order::say(socket.as_fd(), &Said::Started { pid }, Some(&pidfd)).at(Step::Answer)
        }
        Forked::Child => {
            root::build(&order, trees)?;
            lock::prepare(&order.limits, order.bounded)?;
            let streams = [control.as_fd(), spool.as_fd(), log.as_fd()];
            order::wait_to_go(socket.as_fd()).at(Step::Answer)?;
            match become_program(&order, streams)? {}
        }
    }
}

/// The last steps, each of which takes away what those before needed.
fn become_program(order: &Order, streams: [BorrowedFd<'_>; 3]) -> Result<Infallible, Failure> {
    let [control, spool, log] = streams;
    rustix::stdio::dup2_stdin(control).at(Step::Streams)?;
    rustix::stdio::dup2_stdout(spool).at(Step::Streams)?;
    rustix::stdio::dup2_stderr(log).at(Step::Streams)?;
    // On execution, not now: over one of them it is said if the execution fails.
    sys::close_on_exec_from(3).at(Step::Streams)?;
    let mut command = Command::new(PROGRAM);
    command.arg0("ash-bridge").args(&order.args).env_clear();
    command.envs(order.environment.iter().map(|(name, value)| (name, value)));
    lock::drop_capabilities()?;
    files::restrict()?;
    sys::reset_signals();
    seccomp::restrict()?;
    Err(command.exec()).at(Step::Exec)
}
