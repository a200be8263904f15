//! What the server and its helper say to each other, over one socket that keeps messages apart.
//!
//! The server sends one [`Order`] before the helper exists. The helper, and the pid 1 that it forks,
//! answer with [`Said`] messages; the end of the socket is the end of both programs, one of them by
//! executing the program that was asked for. So nothing said but `Started` is success.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use serde::{Deserialize, Serialize};

use crate::error::Step;
use crate::spec::{Limits, Tier};

/// What an order may have at most. An environment is small; a socket takes this at once.
pub(crate) const MAX_ORDER_BYTES: usize = 64 * 1024;

/// The seven of the specification, the counter, what is shared, and one for each hierarchy of cgroups.
const MAX_DESCRIPTORS: usize = 24;

/// The specification, without its descriptors.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) tier: Tier,
    pub(crate) uid: Option<u32>,
    pub(crate) limits: Limits,
    pub(crate) bounded: Bounded,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) args: Vec<String>,
    pub(crate) hidden: Vec<PathBuf>,
    /// Whether the counter of those killed for want of memory comes along.
    pub(crate) counts_ooms: bool,
    /// Whether the directory of Claude Code comes along. A server from before that says nothing of it.
    #[serde(default)]
    pub(crate) has_claude: bool,
    /// The other directories that come along.
    #[serde(default)]
    pub(crate) shared: Vec<SharedTree>,
}

/// A directory that comes along.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SharedTree {
    /// What it is called inside.
    pub(crate) name: String,
    /// Where it is on the machine.
    pub(crate) origin: PathBuf,
}

/// What the cgroup bounds already, so that the processes' own limits need not.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Bounded {
    pub(crate) memory: bool,
    pub(crate) pids: bool,
}

/// The descriptors of the specification.
#[derive(Debug)]
pub(crate) struct Descriptors<Fd> {
    pub(crate) program: Fd,
    pub(crate) workspace: Fd,
    pub(crate) home: Fd,
    pub(crate) control: Fd,
    pub(crate) spool: Fd,
    pub(crate) log: Fd,
    /// Counts who was killed for want of memory.
    pub(crate) oom_counter: Option<Fd>,
    /// Programs that all share.
    pub(crate) claude: Option<Fd>,
    /// Other directories that all share, as the order names them.
    pub(crate) shared: Vec<Fd>,
    /// `cgroup.procs` of each cgroup that is to be joined, open for writing.
    pub(crate) cgroups: Vec<Fd>,
}

/// What the helper says.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Said {
    /// Pid 1 exists; its handle comes along.
    Started {
        /// As the server's namespace numbers it.
        pid: u32,
    },
    /// It could not be done.
    Failed {
        /// What was being done.
        step: Step,
        /// What the kernel said.
        errno: i32,
        /// To what it was being done, if that is not plain.
        detail: String,
    },
}

/// Sends an order. Does not block: it is the first thing in the socket.
pub(crate) fn send_order(
    socket: BorrowedFd<'_>,
    order: &Order,
    descriptors: &Descriptors<BorrowedFd<'_>>,
) -> io::Result<()> {
    let json = serde_json::to_vec(order)?;
    if json.len() > MAX_ORDER_BYTES {
        let what = "environment and arguments of the sandbox are too long";
        return Err(io::Error::new(io::ErrorKind::ArgumentListTooLong, what));
    }
    let Descriptors { program, workspace, home, control, spool, log, .. } = descriptors;
    let Descriptors { oom_counter, claude, shared, cgroups, .. } = descriptors;
    let mut all = vec![*program, *workspace, *home, *control, *spool, *log];
    all.extend(oom_counter);
    all.extend(claude);
    all.extend(shared);
    all.extend(cgroups);
    send(socket, &json, &all)
}

/// Receives an order.
pub(crate) fn receive_order(socket: BorrowedFd<'_>) -> io::Result<(Order, Descriptors<OwnedFd>)> {
    let mut buffer = vec![0; MAX_ORDER_BYTES];
    let Some((length, received)) = receive(socket, &mut buffer)? else {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "no order came"));
    };
    let order: Order = serde_json::from_slice(&buffer[..length])?;
    let mut received = received.into_iter();
    let mut next =
        || received.next().ok_or_else(|| io::Error::other("an order came without descriptors"));
    let (program, workspace, home) = (next()?, next()?, next()?);
    let (control, spool, log) = (next()?, next()?, next()?);
    let oom_counter = if order.counts_ooms { Some(next()?) } else { None };
    let claude = if order.has_claude { Some(next()?) } else { None };
    let shared = order.shared.iter().map(|_| next()).collect::<io::Result<_>>()?;
    let cgroups = received.collect();
    let streams = Descriptors {
        program,
        workspace,
        home,
        control,
        spool,
        log,
        oom_counter,
        claude,
        shared,
        cgroups,
    };
    Ok((order, streams))
}

/// Says something, with a handle of a process if there is one.
pub(crate) fn say(socket: BorrowedFd<'_>, said: &Said, pidfd: Option<&OwnedFd>) -> io::Result<()> {
    let handles: Vec<BorrowedFd<'_>> = pidfd.iter().map(|fd| fd.as_fd()).collect();
    send(socket, &serde_json::to_vec(said)?, &handles)
}

/// Lets pid 1 go on. It may be gone already.
pub(crate) fn let_go(socket: BorrowedFd<'_>) -> io::Result<()> {
    send(socket, &[1], &[])
}

/// Waits to be let go on; fails if the server is gone, or does not want it any more.
pub(crate) fn wait_to_go(socket: BorrowedFd<'_>) -> io::Result<()> {
    let gone = || io::Error::from(rustix::io::Errno::PIPE);
    receive(socket, &mut [0; 1])?.map(|_| ()).ok_or_else(gone)
}

/// Hears what is said. None when the other side is gone.
pub(crate) fn hear(socket: BorrowedFd<'_>) -> io::Result<Option<(Said, Option<OwnedFd>)>> {
    let mut buffer = [0; 1024];
    let Some((length, received)) = receive(socket, &mut buffer)? else { return Ok(None) };
    Ok(Some((serde_json::from_slice(&buffer[..length])?, received.into_iter().next())))
}

fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("too many descriptors for one message"));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)?;
    Ok(())
}

fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Option<(usize, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        let flags = RecvFlags::CMSG_CLOEXEC;
        rustix::net::recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut control, flags)
    })?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(handles) = message {
            descriptors.extend(handles);
        }
    }
    Ok(if received.bytes == 0 { None } else { Some((received.bytes, descriptors)) })
}
