//! Children whose whole tree can always be killed.
//!
//! A signal to a process, or to its group, misses whatever forked twice or made a session of its
//! own. So no command is a child of the bridge. Between them stands a *keeper*: this program again,
//! as `ash-bridge keep`, one for each command.
//!
//! ```text
//!   bridge ── socket ── keeper (subreaper) ── command ── …
//! ```
//!
//! The keeper is a child subreaper: whatever loses its parent below it becomes its own child, so
//! everything that the command ever starts stays below the keeper, and it can find all of it and
//! kill until nothing is left. Three rules follow.
//!
//! - **The socket is the life of the tree.** It closes when the bridge dies or drops its
//!   [`Running`], and the keeper kills everything at once.
//! - **The end of the socket is the end of the tree.** A keeper ends when it has no child left.
//! - **A keeper that is killed leaves its tree to the bridge**, which is a subreaper too and kills
//!   every child it does not know ([`reaper`]). [`Running::gone`] waits for both.
//!
//! What a command started in the background outlives it, and lives until the bridge ends.

mod keeper;
pub mod reaper;
mod running;
mod tree;
mod wire;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::rc::Rc;

use rustix::pipe::PipeFlags;
use tokio::net::unix::pipe;

pub use self::keeper::keep;
pub use self::running::{End, Running};
use self::wire::{Handover, Order};

/// How many trees may live on after their command. One more, and the oldest is killed.
const MAX_BACKGROUND: usize = 64;

/// What is to be run. Its environment is complete: nothing is inherited.
#[derive(Clone, Debug)]
pub struct CommandSpec {
    /// The program: a path, or a name that is sought in the `PATH` of `env`.
    pub program: String,
    /// Its arguments, without its name.
    pub args: Vec<String>,
    /// Where it runs.
    pub cwd: PathBuf,
    /// Its environment.
    pub env: BTreeMap<String, String>,
    /// What it reads.
    pub stdin: Stream,
    /// What it prints.
    pub stdout: Stream,
    /// What it complains of.
    pub stderr: Stream,
}

/// Where one of a command's standard streams leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Nowhere.
    Null,
    /// To the bridge.
    Pipe,
}

/// Starts commands. Cheap to clone; every clone is the same.
#[derive(Clone, Debug)]
pub struct Processes(Rc<Inner>);

#[derive(Debug)]
struct Inner {
    program: PathBuf,
    /// Keepers that were started and not yet reaped.
    keepers: RefCell<BTreeSet<i32>>,
    /// The sockets of trees whose command has ended.
    background: RefCell<VecDeque<UnixStream>>,
    /// What the reaper knows of orphans; nothing, if there is no reaper.
    may_have_orphans: Cell<Option<bool>>,
}

impl Processes {
    /// The program is the bridge's own: it is run again, as a keeper, for each command.
    pub fn new(program: PathBuf) -> Self {
        Self(Rc::new(Inner {
            program,
            keepers: RefCell::default(),
            background: RefCell::default(),
            may_have_orphans: Cell::default(),
        }))
    }

    /// Starts a command. Only the keeper's start can fail here; whether the command itself could be
    /// started is for [`Running::wait`] to say.
    pub fn spawn(&self, command: CommandSpec) -> io::Result<Running> {
        let mut drains = Vec::new();
        let (stdin_theirs, stdin) = match command.stdin {
            Stream::Null => (null()?, None),
            Stream::Pipe => {
                let (theirs, ours) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
                (theirs, Some(pipe::Sender::from_owned_fd(ours)?))
            }
        };
        let (stdout_theirs, stdout) = output(command.stdout, &mut drains)?;
        let (stderr_theirs, stderr) = output(command.stderr, &mut drains)?;
        let order = Order {
            program: command.program,
            args: command.args,
            cwd: command.cwd,
            env: command.env,
        };
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let streams = [stdin_theirs, stdout_theirs, stderr_theirs];
        // Before the keeper exists: it waits in the socket's buffer, so this cannot block.
        wire::hand_over(&ours, &order, &Handover { streams, drains })?;
        let keeper = Command::new(&self.0.program)
            .arg0("ash-bridge")
            .arg("keep")
            // Not cleared: by its home it is known as the session's, if the bridge dies before it.
            .current_dir("/")
            // A signal from a terminal must not end the keepers before their trees.
            .process_group(0)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        // Its handle is dropped unwaited: the reaper is the one who waits for children.
        let keeper = keeper.id().cast_signed();
        self.0.keepers.borrow_mut().insert(keeper);
        Running::new((self.clone(), keeper), ours, stdin, stdout, stderr)
    }

    /// Keeps what a command left running.
    fn keep_background(&self, socket: UnixStream) {
        let mut background = self.0.background.borrow_mut();
        background.retain(|socket| !wire::is_closed(socket));
        if wire::is_closed(&socket) {
            return;
        }
        background.push_back(socket);
        if background.len() > MAX_BACKGROUND {
            background.pop_front();
        }
    }

    /// Whether a keeper that has ended may have left somebody who still runs.
    fn has_remains(&self, keeper: i32) -> bool {
        // Until it is reaped, what it kept is not known to be ours.
        self.0.may_have_orphans.get().is_some_and(|orphans| orphans || self.is_keeper(keeper))
    }

    /// Whether a child is a keeper of ours that was not reaped.
    fn is_keeper(&self, pid: i32) -> bool {
        self.0.keepers.borrow().contains(&pid)
    }

    /// Forgets a keeper that was reaped; says whether it was one.
    fn forget_keeper(&self, pid: i32) -> bool {
        self.0.keepers.borrow_mut().remove(&pid)
    }
}

/// Makes this process the parent of everything below it that loses its own. Pid 1 is that anyway.
pub fn become_reaper() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

fn null() -> io::Result<OwnedFd> {
    Ok(OpenOptions::new().read(true).write(true).open("/dev/null")?.into())
}

/// The command's end of an output, and ours. A second copy of ours goes to the keeper, which reads
/// on when we no longer do: a server in the background must not die of its own log.
fn output(
    stream: Stream,
    drains: &mut Vec<OwnedFd>,
) -> io::Result<(OwnedFd, Option<pipe::Receiver>)> {
    match stream {
        Stream::Null => Ok((null()?, None)),
        Stream::Pipe => {
            let (ours, theirs) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
            drains.push(ours.try_clone()?);
            Ok((theirs, Some(pipe::Receiver::from_owned_fd(ours)?)))
        }
    }
}
