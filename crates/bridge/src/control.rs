//! The conversation with a server, over one connection.
//!
//! A connection begins with a hello. Its answer carries the listener for the model's requests as a
//! descriptor; from then on reports flow, and whatever is asked is answered. The last connection to
//! say hello is the one that counts: an earlier one is closed, so that two servers never believe
//! both to hear everything.

use std::io;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::AsFd as _;
use std::rc::Rc;
use std::time::Duration;

use ash_protocol::{
    Answer, Ask, Frame, FrameDecoder, FrameError, Hello, MAX_FRAME_BYTES, OURS, Welcome,
};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::bridge::{Bridge, Current};
use crate::note;
use crate::spool::Reader;

/// How many answers may wait for a server that does not read them.
const ANSWERS_CAPACITY: usize = 32;

/// How long a connection may take to say who it is.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the line may be that says so.
const MAX_HELLO_BYTES: usize = 64 * 1024;

/// How many commands may run at once for one server.
const MAX_EXECS: usize = 16;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Hangup {
    #[error("the server went away")]
    Gone(#[from] io::Error),
    #[error("the server does not speak our protocol: {0}")]
    Malformed(#[from] ash_protocol::FrameError),
    #[error("the server's first word was not hello")]
    NoHello,
    #[error("the server speaks none of our versions")]
    Version,
    #[error("the server did not say hello in time")]
    Silent,
    #[error("a later server has been here")]
    Superseded,
    #[error("another connection took over")]
    Replaced,
}

impl Hangup {
    /// Says why a connection ended, and how many frames were not known so far.
    pub(crate) fn note(&self, unknown: u64) {
        match unknown {
            // The same server has come back, as after every pause.
            0 if matches!(self, Self::Replaced) => {}
            0 => note(format_args!("a connection ended: {self}")),
            unknown => note(format_args!(
                "a connection ended: {self}; of all frames, {unknown} were not known"
            )),
        }
    }
}

/// Talks to a server until it goes away or another one comes.
pub(crate) async fn converse(bridge: Rc<Bridge>, mut stream: UnixStream) -> Hangup {
    let greeted = tokio::time::timeout(HELLO_TIMEOUT, greet(&bridge, &mut stream)).await;
    match greeted.unwrap_or(Err(Hangup::Silent)) {
        Ok((after, current, decoder)) => {
            let reader = bridge.spool.read_after(after);
            let (read, write) = stream.into_split();
            let (answers, queue) = mpsc::channel(ANSWERS_CAPACITY);
            tokio::select! {
                biased;
                hangup = speak(write, queue, reader, current) => hangup,
                hangup = listen(&bridge, read, decoder, answers) => hangup,
            }
        }
        Err(hangup) => hangup,
    }
}

/// Reads the hello and answers it.
async fn greet(
    bridge: &Rc<Bridge>,
    stream: &mut UnixStream,
) -> Result<(u64, Current, FrameDecoder), Hangup> {
    let mut decoder = FrameDecoder::with_max(MAX_HELLO_BYTES);
    let frame = next_frame(stream, &mut decoder).await?;
    let Some(Ask::Hello(Hello { versions, owner, after })) = Ask::of(&frame)? else {
        return Err(Hangup::NoHello);
    };
    let id = frame.id.unwrap_or_default();
    let Some(version) = OURS.common(versions) else {
        let message = format!(
            "this bridge speaks protocol {} to {}, not {} to {}",
            OURS.oldest, OURS.newest, versions.oldest, versions.newest
        );
        let refusal = Answer::Refused { message }.frame()?.answering(id);
        stream.write_all(&refusal.encode()?).await?;
        return Err(Hangup::Version);
    };
    let Some(current) = bridge.take_over(owner) else {
        stream.write_all(&bridge.replaced()?.encode()?).await?;
        return Err(Hangup::Superseded);
    };
    let welcome = Answer::Welcome(Welcome {
        version,
        release: env!("CARGO_PKG_VERSION").to_owned(),
        last: bridge.spool.last(),
        configured: bridge.is_configured(),
    });
    let line = welcome.frame()?.answering(id).encode()?;
    let sent = send_with_listener(bridge, stream, &line).await?;
    stream.write_all(&line[sent..]).await?;
    Ok((after, current, decoder.bounded_by(MAX_FRAME_BYTES)))
}

/// Sends the first bytes of a line together with the listener's descriptor.
async fn send_with_listener(
    bridge: &Bridge,
    stream: &UnixStream,
    line: &[u8],
) -> io::Result<usize> {
    loop {
        stream.writable().await?;
        let sent = stream.try_io(Interest::WRITABLE, || {
            let descriptors = [bridge.listener.as_fd()];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            let fits = ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
            debug_assert!(fits, "the space is made for one descriptor");
            let flags = SendFlags::NOSIGNAL;
            Ok(sendmsg(stream, &[IoSlice::new(line)], &mut ancillary, flags)?)
        });
        match sent {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            sent => return sent,
        }
    }
}

/// Does what is asked. Commands run beside each other; everything else is quick.
async fn listen(
    bridge: &Rc<Bridge>,
    mut read: OwnedReadHalf,
    mut decoder: FrameDecoder,
    answers: mpsc::Sender<Frame>,
) -> Hangup {
    let mut execs = JoinSet::new();
    loop {
        let frame = match next_frame(&mut read, &mut decoder).await {
            Ok(frame) => frame,
            Err(hangup) => return hangup,
        };
        while execs.try_join_next().is_some() {}
        let ask = match Ask::of(&frame) {
            Ok(ask) => ask,
            Err(error) => return error.into(),
        };
        let answer = match ask {
            Some(Ask::Exec(_) | Ask::Hooks(_)) if execs.len() >= MAX_EXECS => {
                refused("too many commands run at once")
            }
            Some(Ask::Exec(request)) => {
                let Some(id) = frame.id else { continue };
                let (bridge, answers) = (Rc::clone(bridge), answers.clone());
                execs.spawn_local(async move {
                    let answer = bridge.exec(&request).await;
                    if let Ok(frame) = answer.frame() {
                        let _gone = answers.send(frame.answering(id)).await;
                    }
                });
                continue;
            }
            // Only the answer is given up with the connection: what is run goes on.
            Some(Ask::Hooks(request)) => {
                let Some(id) = frame.id else { continue };
                let (bridge, answers) = (Rc::clone(bridge), answers.clone());
                execs.spawn_local(async move {
                    if let Ok(frame) = bridge.run_hooks(request).await.frame() {
                        let _gone = answers.send(frame.answering(id)).await;
                    }
                });
                continue;
            }
            Some(Ask::Hello(_)) => refused("this connection has said hello already"),
            Some(Ask::Configure(config)) => bridge.configure(*config),
            Some(Ask::Deliver { run, prompt }) => bridge.deliver(run, prompt),
            Some(Ask::Interrupt { run }) => bridge.interrupt(run),
            Some(Ask::Decide { id, decision }) => bridge.decide(&id, decision),
            Some(Ask::Acknowledge { through }) => {
                bridge.spool.acknowledge(through);
                continue;
            }
            Some(Ask::Shutdown) => {
                bridge.shut_down();
                Answer::Done
            }
            // A newer server: it learns that it cannot have this from us.
            None => {
                bridge.count_unknown(&frame.kind);
                refused(&format!("this bridge does not know {:?}", frame.kind))
            }
        };
        let Some(id) = frame.id else { continue };
        match answer.frame() {
            Ok(answer) => {
                if answers.send(answer.answering(id)).await.is_err() {
                    return Hangup::Gone(io::ErrorKind::BrokenPipe.into());
                }
            }
            Err(error) => return error.into(),
        }
    }
}

/// Sends answers and reports, each line whole.
async fn speak(
    mut write: OwnedWriteHalf,
    mut answers: mpsc::Receiver<Frame>,
    mut reader: Reader,
    current: Current,
) -> Hangup {
    let mut outgoing = Vec::new();
    loop {
        outgoing.clear();
        // Both are safe to give up half-way: a frame or a line is taken whole or not at all.
        let taken = tokio::select! {
            biased;
            () = current.replaced() => {
                if let Ok(line) = current.farewell().and_then(|frame| frame.encode()) {
                    let _gone = write.try_write(&line);
                }
                return Hangup::Replaced;
            }
            Some(answer) = answers.recv() => sendable(answer).map(|line| outgoing = line)
                .map_err(Hangup::from),
            lines = reader.next() => lines.map(|lines| wrap(lines, &mut outgoing))
                .map_err(Hangup::from),
        };
        if let Err(hangup) = taken {
            return hangup;
        }
        tokio::select! {
            biased;
            written = write.write_all(&outgoing) => if let Err(error) = written {
                return error.into();
            },
            // A server that no longer reads must not keep its successor waiting.
            () = current.replaced() => return Hangup::Replaced,
        }
    }
}

/// The line of an answer; if it is too long for one, of the answer that it is.
fn sendable(answer: Frame) -> Result<Vec<u8>, FrameError> {
    match (answer.encode(), answer.re) {
        (Err(FrameError::TooLong { .. }), Some(id)) => {
            refused("the answer is too long to be sent").frame()?.answering(id).encode()
        }
        (line, _) => line,
    }
}

/// Makes frames of the lines of a spool.
fn wrap(lines: &[u8], outgoing: &mut Vec<u8>) {
    for line in lines.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
        outgoing.extend_from_slice(br#"{"kind":"report","body":"#);
        outgoing.extend_from_slice(line);
        outgoing.extend_from_slice(b"}\n");
    }
}

async fn next_frame<R>(read: &mut R, decoder: &mut FrameDecoder) -> Result<Frame, Hangup>
where
    R: tokio::io::AsyncRead + Unpin,
{
    let mut bytes = [0; 8 * 1024];
    loop {
        if let Some(frame) = decoder.next_frame()? {
            return Ok(frame);
        }
        match read.read(&mut bytes).await? {
            0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            count => decoder.push(&bytes[..count]),
        }
    }
}

fn refused(message: &str) -> Answer {
    Answer::Refused { message: message.to_owned() }
}
