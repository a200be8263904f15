//! One connection to one bridge: the greeting, and then frames in both directions.

use std::collections::BTreeMap;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use ash_core::number::Owner;
use ash_core::session::NumberedReport;
use ash_protocol::{
    Answer, Ask, Frame, FrameDecoder, FrameError, Hello, MAX_FRAME_BYTES, OURS, REPLACED, REPORT,
    Replaced, Welcome,
};
use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_type};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketType, recvmsg,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};

use super::report::Understanding;
use crate::host::Reporter;

/// How much is read at once.
const READ_BYTES: usize = 64 * 1024;

/// How long the first line may be.
const MAX_WELCOME_BYTES: usize = 64 * 1024;

/// How many questions may be open at once.
const MAX_PENDING: usize = 1024;

/// How many frames of an unknown kind may come one after the other: a newer bridge has a few of
/// them, one that has nothing else to say means no good.
const MAX_UNKNOWN: u64 = 10_000;

/// What the hello is numbered with, and whatever is asked before there can be another question.
const ONLY_QUESTION: u64 = 0;

/// Something to be asked, and where its answer is waited for.
pub(super) struct Question {
    pub(super) frame: Frame,
    pub(super) reply: Option<oneshot::Sender<Answer>>,
}

/// How a connection ended.
#[derive(Debug)]
pub(super) enum End {
    /// The stream closed; the bridge may be dead or not.
    Closed,
    /// The bridge listens to another connection now, of this server or a later one.
    Replaced(Replaced),
    /// Nobody wants to hear from it any more.
    Unwanted,
    /// What it sent cannot be trusted.
    Misbehaved(String),
}

/// Whether a connection was of any use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Came {
    Something,
    Nothing,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("it could not be reached: {0}")]
    Unreachable(#[from] io::Error),
    #[error("it speaks another protocol: {0}")]
    Foreign(String),
    #[error("it listens to a later server")]
    Superseded,
}

impl From<FrameError> for ConnectError {
    fn from(error: FrameError) -> Self {
        Self::Foreign(error.to_string())
    }
}

/// A connection that has been greeted.
pub(super) struct Connection {
    stream: UnixStream,
    decoder: FrameDecoder,
    pub(super) welcome: Welcome,
    /// Where the sandbox's requests to the model arrive.
    pub(super) listener: TcpListener,
}

impl Connection {
    /// Connects, and asks for every report after `after`.
    pub(super) async fn open(path: &Path, owner: Owner, after: u64) -> Result<Self, ConnectError> {
        let mut stream = UnixStream::connect(path).await?;
        let hello = Ask::Hello(Hello { versions: OURS, owner: owner.get(), after });
        stream.write_all(&hello.frame()?.asking(ONLY_QUESTION).encode()?).await?;
        let mut decoder = FrameDecoder::with_max(MAX_WELCOME_BYTES);
        let mut descriptors = Vec::new();
        let frame = loop {
            if let Some(frame) = decoder.next_frame()? {
                break frame;
            }
            let mut bytes = [0; 4096];
            let count = receive(&stream, &mut bytes, &mut descriptors).await?;
            if descriptors.len() > 1 {
                return Err(ConnectError::Foreign("it sent more than its listener".to_owned()));
            }
            if count == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            decoder.push(&bytes[..count]);
        };
        if frame.kind == REPLACED {
            return Err(ConnectError::Superseded);
        }
        let welcome = match Answer::of(&frame)? {
            Some(Answer::Welcome(welcome)) => welcome,
            Some(Answer::Refused { message }) => return Err(ConnectError::Foreign(message)),
            Some(Answer::Done | Answer::Executed(_) | Answer::Hooked(_)) | None => {
                return Err(ConnectError::Foreign(format!("it answered {:?}", frame.kind)));
            }
        };
        if !(OURS.oldest..=OURS.newest).contains(&welcome.version) {
            return Err(ConnectError::Foreign(format!("it chose version {}", welcome.version)));
        }
        let listener = descriptors
            .pop()
            .ok_or_else(|| "it sent no listener".to_owned())
            .and_then(as_listener)
            .map_err(ConnectError::Foreign)?;
        let decoder = decoder.bounded_by(MAX_FRAME_BYTES);
        Ok(Self { stream, decoder, welcome, listener })
    }

    /// Asks something of a bridge that has nothing to report, and waits for the answer.
    pub(super) async fn ask(&mut self, frame: Frame) -> Result<Answer, ConnectError> {
        self.stream.write_all(&frame.asking(ONLY_QUESTION).encode()?).await?;
        loop {
            if let Some(frame) = self.decoder.next_frame()? {
                match Answer::of(&frame)? {
                    Some(answer) if frame.re == Some(ONLY_QUESTION) => return Ok(answer),
                    Some(_) | None => {
                        return Err(ConnectError::Foreign(format!("it said {:?}", frame.kind)));
                    }
                }
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes).await? {
                0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                count => self.decoder.push(&bytes[..count]),
            }
        }
    }

    /// Passes reports on and questions back, until it ends. Says how, and whether anything came.
    pub(super) async fn run(
        self,
        understanding: &mut Understanding,
        reporter: &Reporter,
        questions: &mut mpsc::Receiver<Question>,
    ) -> (End, Came) {
        let (read, write) = self.stream.into_split();
        let pending = Pending::default();
        let before = understanding.last();
        let end = tokio::select! {
            biased;
            end = listen(read, self.decoder, understanding, reporter, &pending) => end,
            end = speak(write, questions, &pending) => end,
        };
        let silent = understanding.last() == before && !pending.has_answered();
        (end, if silent { Came::Nothing } else { Came::Something })
    }
}

/// Who waits for which answer.
#[derive(Default)]
struct Pending {
    waiting: Mutex<BTreeMap<u64, oneshot::Sender<Answer>>>,
    answered: AtomicBool,
}

impl Pending {
    fn wait(&self, id: u64, reply: oneshot::Sender<Answer>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|_, reply| !reply.is_closed());
        if waiting.len() < MAX_PENDING {
            waiting.insert(id, reply);
        }
    }

    /// An answer to something that nobody asked is not passed on.
    fn answer(&self, id: u64, answer: Answer) {
        let reply = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        if let Some(reply) = reply {
            self.answered.store(true, Ordering::Relaxed);
            let _gave_up = reply.send(answer);
        }
    }
}

impl Pending {
    fn has_answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed)
    }
}

async fn listen(
    mut read: OwnedReadHalf,
    mut decoder: FrameDecoder,
    understanding: &mut Understanding,
    reporter: &Reporter,
    pending: &Pending,
) -> End {
    let mut bytes = vec![0; READ_BYTES];
    let mut unknown = 0;
    loop {
        let mut reports = Vec::new();
        let mut ahead = understanding.clone();
        let end = loop {
            match decoder.next_frame() {
                Ok(None) => break None,
                Err(error) => break Some(End::Misbehaved(error.to_string())),
                Ok(Some(frame)) => match take(frame, &mut ahead, pending, &mut unknown) {
                    Ok(report) => reports.extend(report),
                    Err(end) => break Some(end),
                },
            }
        };
        // What came before the mistake counts.
        if !reports.is_empty() && reporter.reported(reports).await.is_err() {
            return End::Unwanted;
        }
        // Only now: if this is given up before they are passed on, they are asked for again.
        *understanding = ahead;
        if let Some(end) = end {
            return end;
        }
        match read.read(&mut bytes).await {
            Ok(0) | Err(_) => return End::Closed,
            Ok(count) => decoder.push(&bytes[..count]),
        }
    }
}

/// Deals with one frame of the bridge.
fn take(
    frame: Frame,
    understanding: &mut Understanding,
    pending: &Pending,
    unknown: &mut u64,
) -> Result<Option<NumberedReport>, End> {
    let misbehaved = |error: &dyn std::fmt::Display| End::Misbehaved(error.to_string());
    if frame.kind == REPORT {
        *unknown = 0;
        let reported = frame.read().map_err(|error| misbehaved(&error))?;
        return understanding.read(reported).map(Some).map_err(|error| misbehaved(&error));
    }
    if frame.kind == REPLACED {
        let by = frame.read().map_err(|error| misbehaved(&error))?;
        return Err(End::Replaced(by));
    }
    match (Answer::of(&frame).map_err(|error| misbehaved(&error))?, frame.re) {
        (Some(answer), Some(id)) => {
            *unknown = 0;
            pending.answer(id, answer);
        }
        (Some(_), None) | (None, _) => {
            *unknown += 1;
            if *unknown > MAX_UNKNOWN {
                return Err(End::Misbehaved("it sends nothing that is known here".to_owned()));
            }
        }
    }
    Ok(None)
}

async fn speak(
    mut write: OwnedWriteHalf,
    questions: &mut mpsc::Receiver<Question>,
    pending: &Pending,
) -> End {
    let mut last_id = 0;
    while let Some(Question { mut frame, reply }) = questions.recv().await {
        if let Some(reply) = reply {
            last_id += 1;
            pending.wait(last_id, reply);
            frame = frame.asking(last_id);
        }
        // What is too long to be asked is not: whoever waits sees that no answer comes.
        let Ok(line) = frame.encode() else { continue };
        if write.write_all(&line).await.is_err() {
            return End::Closed;
        }
    }
    End::Unwanted
}

/// Reads bytes and whatever descriptors come with them.
async fn receive(
    stream: &UnixStream,
    bytes: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    loop {
        stream.readable().await?;
        let received = stream.try_io(Interest::READABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let mut into = [IoSliceMut::new(bytes)];
            let received = recvmsg(stream, &mut into, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
            for message in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(received) = message {
                    descriptors.extend(received);
                }
            }
            Ok(received.bytes)
        });
        match received {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            received => return received,
        }
    }
}

/// Accepts only what a listener on the loopback can be: the proxy behind it adds a key.
fn as_listener(descriptor: OwnedFd) -> Result<TcpListener, String> {
    let is_listener = socket_domain(&descriptor).is_ok_and(|of| of == AddressFamily::INET)
        && socket_type(&descriptor).is_ok_and(|of| of == SocketType::STREAM)
        && socket_acceptconn(&descriptor).is_ok_and(|accepts| accepts);
    if !is_listener {
        return Err("what it sent is no listener".to_owned());
    }
    let listener = TcpListener::from(descriptor);
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    match address {
        SocketAddr::V4(address) if address.ip().is_loopback() => {}
        SocketAddr::V4(_) | SocketAddr::V6(_) => {
            return Err(format!("its listener is not on the loopback: {address}"));
        }
    }
    listener.set_nonblocking(true).map_err(|error| error.to_string())?;
    Ok(listener)
}
