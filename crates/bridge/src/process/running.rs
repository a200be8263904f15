//! One command that was started, and the tree below its keeper.

use std::io;
use std::os::unix::net::UnixStream as StdStream;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::net::unix::pipe;

use super::Processes;
use super::reaper::PAUSE;
use super::wire::{self, Asked, Said};

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// By itself.
    Exited(i32),
    /// By a signal.
    Killed(i32),
    /// It could not be started.
    NotStarted(String),
    /// Its keeper was killed, so nobody knows; what is left of its tree is killed by the reaper.
    KeeperLost,
}

/// A command that was started.
///
/// Dropping it while the command runs kills the whole tree. Dropping it later leaves what the
/// command started in the background running, until the bridge ends; what that prints is read to
/// nowhere from then on, so that it neither blocks nor dies of a broken pipe.
#[derive(Debug)]
pub struct Running {
    /// What the command reads. Drop it for an end of input.
    pub stdin: Option<pipe::Sender>,
    /// What the command prints.
    pub stdout: Option<pipe::Receiver>,
    /// What the command complains of.
    pub stderr: Option<pipe::Receiver>,
    processes: Processes,
    keeper: i32,
    /// Always there, but for the moment of being dropped.
    socket: Option<UnixStream>,
    heard: Vec<u8>,
    end: Option<End>,
    is_terminating: bool,
    is_gone: bool,
}

impl Running {
    pub(super) fn new(
        (processes, keeper): (Processes, i32),
        socket: StdStream,
        stdin: Option<pipe::Sender>,
        stdout: Option<pipe::Receiver>,
        stderr: Option<pipe::Receiver>,
    ) -> io::Result<Self> {
        Ok(Self {
            stdin,
            stdout,
            stderr,
            processes,
            keeper,
            socket: Some(UnixStream::from_std(socket)?),
            heard: Vec::new(),
            end: None,
            is_terminating: false,
            is_gone: false,
        })
    }

    /// Waits for the command itself to end; what it started may go on. Safe to cancel.
    pub async fn wait(&mut self) -> End {
        loop {
            if let Some(end) = &self.end {
                return end.clone();
            }
            self.listen().await;
        }
    }

    /// Waits until nothing of the tree is left. Safe to cancel.
    pub async fn gone(&mut self) {
        while !self.is_gone {
            self.listen().await;
        }
        // A keeper that was killed says nothing of whom it kept.
        while self.processes.has_remains(self.keeper) {
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Ends the whole tree: asks everything in it to end, and kills it after the grace. From here
    /// on nothing of it is left running by a drop, either.
    pub fn terminate(&mut self, grace: Duration) {
        self.is_terminating = true;
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self.ask(&Asked::Terminate { grace_ms });
    }

    /// Hears what the keeper says, until there is something.
    async fn listen(&mut self) {
        match &self.socket {
            // An error of readiness comes again from the read, and is handled there.
            Some(socket) => drop(socket.readable().await),
            None => self.is_gone = true,
        }
        self.hear(|socket, chunk| socket.try_read(chunk));
    }

    /// Takes in what the keeper said so far. Never waits.
    fn hear(&mut self, read: impl Fn(&UnixStream, &mut [u8]) -> io::Result<usize>) {
        let mut chunk = [0; 1024];
        while let Some(socket) = &self.socket
            && !self.is_gone
        {
            match read(socket, &mut chunk) {
                Ok(0) => self.is_gone = true,
                Ok(read) if self.heard.len() < wire::MAX_LINE_BYTES => {
                    self.heard.extend_from_slice(&chunk[..read]);
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.is_gone = true,
            }
        }
        if self.end.is_some() {
            return;
        }
        let line = self.heard.iter().position(|&byte| byte == b'\n');
        let said = line.and_then(|end| serde_json::from_slice(&self.heard[..end]).ok());
        self.end = match said {
            Some(Said::Exited(code)) => Some(End::Exited(code)),
            Some(Said::Killed(signal)) => Some(End::Killed(signal)),
            Some(Said::NotStarted(why)) => Some(End::NotStarted(why)),
            None if self.is_gone => Some(End::KeeperLost),
            None => None,
        };
    }

    fn ask(&self, asked: &Asked) {
        if let (Some(socket), Ok(line)) = (&self.socket, wire::line(asked)) {
            // A line of some bytes fits; if not, the keeper is gone, or dropping will end it.
            let _gone = socket.try_write(&line);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Past the runtime, which may not have heard yet that there is something to read.
        self.hear(|socket, chunk| Ok(rustix::io::read(socket, chunk)?));
        if self.end.is_none() || self.is_terminating || self.is_gone {
            return; // The socket closes, and with it whatever is left of the tree.
        }
        self.ask(&Asked::Drain);
        if let Some(Ok(socket)) = self.socket.take().map(UnixStream::into_std) {
            self.processes.keep_background(socket);
        }
    }
}
