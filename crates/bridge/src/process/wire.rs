//! What the bridge and a keeper say to each other over their socket.
//!
//! First, one byte with descriptors: the order, as a file in memory, and the command's streams. The
//! order is not in the socket itself, since that would hold only so much before the sender blocks.
//! After that, lines of JSON both ways.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read as _, Seek as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use rustix::fs::MemfdFlags;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use serde::{Deserialize, Serialize};

/// How long an order may be. The kernel takes no more than 2 MB of arguments and environment.
const MAX_ORDER_BYTES: u64 = 8 * 1024 * 1024;
/// The order, three streams, and two copies to drain.
const MAX_DESCRIPTORS: usize = 6;
/// How long a line may be.
pub(super) const MAX_LINE_BYTES: usize = 16 * 1024;

/// What a keeper is to run.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) program: String,
    pub(super) args: Vec<String>,
    pub(super) cwd: PathBuf,
    pub(super) env: BTreeMap<String, String>,
}

/// The descriptors that go with an order.
#[derive(Debug)]
pub(super) struct Handover {
    /// The command's standard input, output and error.
    pub(super) streams: [OwnedFd; 3],
    /// The other ends of its outputs, to be read to nowhere when asked.
    pub(super) drains: Vec<OwnedFd>,
}

/// What a keeper is asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Asked {
    /// To end everything: asked politely first, then killed.
    Terminate { grace_ms: u64 },
    /// To read what the command left running prints, since nobody else does.
    Drain,
}

/// What a keeper says, once.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Said {
    Exited(i32),
    Killed(i32),
    NotStarted(String),
}

/// Sends an order. Never blocks: it is the first thing in the socket, and small.
pub(super) fn hand_over(socket: &UnixStream, order: &Order, handover: &Handover) -> io::Result<()> {
    let json = serde_json::to_vec(order)?;
    if json.len() as u64 > MAX_ORDER_BYTES {
        return Err(io::Error::new(io::ErrorKind::ArgumentListTooLong, "the command is too long"));
    }
    let mut file = File::from(rustix::fs::memfd_create("ash-order", MemfdFlags::CLOEXEC)?);
    file.write_all(&json)?;
    file.rewind()?;
    let descriptors: Vec<BorrowedFd<'_>> = std::iter::once(file.as_fd())
        .chain(handover.streams.iter().map(|fd| fd.as_fd()))
        .chain(handover.drains.iter().map(|fd| fd.as_fd()))
        .collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("too many descriptors for one message"));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(socket, &[IoSlice::new(&[0])], &mut control, flags)?;
    Ok(())
}

/// Receives an order. Everything received is closed in whatever is run later.
pub(super) fn take_over(socket: &UnixStream) -> io::Result<(Order, Handover)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut byte)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    let mut descriptors = descriptors.into_iter();
    let mut next =
        || descriptors.next().ok_or_else(|| io::Error::other("an order came without descriptors"));
    let file = File::from(next()?);
    let streams = [next()?, next()?, next()?];
    let drains = descriptors.collect();
    let mut json = Vec::new();
    file.take(MAX_ORDER_BYTES).read_to_end(&mut json)?;
    Ok((serde_json::from_slice(&json)?, Handover { streams, drains }))
}

/// A message as a line.
pub(super) fn line(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

/// Whether the other end of a socket that does not block is gone. Lines that wait are passed over.
pub(super) fn is_closed(mut socket: &UnixStream) -> bool {
    let mut scratch = [0; 256];
    loop {
        match socket.read(&mut scratch) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
        }
    }
}
