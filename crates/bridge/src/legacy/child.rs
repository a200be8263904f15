//! The program itself: a child of ours that listens on a socket, to which we connect.
//!
//! It says `R` on its standard output when it listens; one that does not is found by trying. The socket lies in a
//! directory that is gone as soon as the connection stands: nobody else talks to the program.

use std::cell::{Cell, RefCell};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf, pipe};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

use super::wire::{self, Heard};
use crate::echo::{Echo, Stream};
use crate::process::{CommandSpec, End, Processes, Running};
use crate::questions::{new_id, pass};

/// How long a line may be, as the original has it. A program that goes on is ended.
const MAX_LINE_BYTES: usize = 50 * 1024 * 1024;
/// How much is read at once.
const CHUNK_BYTES: usize = 64 * 1024;
/// How many lines may wait to be taken, and to be written.
const MAX_HEARD: usize = 64;
const MAX_TO_WRITE: usize = 4;
/// How much of what it prints is kept, for the reason of its end.
const MAX_PRINTED_BYTES: usize = 4_000;
/// How long to wait between two tries to connect.
const LOOK: Duration = Duration::from_millis(25);
/// How long its end is waited for once it says nothing any more, and once it was told to end.
const END_GRACE: Duration = Duration::from_secs(2);

/// The program, running and ready.
pub(super) struct Child {
    running: Running,
    outgoing: mpsc::Sender<Vec<u8>>,
    lines: mpsc::Receiver<Vec<u8>>,
    signs: Rc<Signs>,
    /// Lines that said nothing.
    skipped: u64,
    _tasks: JoinSet<()>,
}

/// What its tasks notice.
#[derive(Default)]
struct Signs {
    /// It says that it listens.
    listens: Notify,
    /// The end of what it printed.
    printed: RefCell<Vec<u8>>,
    /// A line of it was too long.
    is_too_long: Cell<bool>,
    /// Of what was said to it last, nothing got through.
    is_unheard: Cell<bool>,
}

/// Where the program is to listen: in a directory that nobody else may enter.
pub(super) struct Socket {
    directory: PathBuf,
}

impl Socket {
    /// A short path: an address has 108 bytes.
    pub(super) fn new() -> io::Result<Self> {
        let id = new_id()?;
        let directory = Path::new("/tmp").join(format!("ash-legacy-{}", &id[24..]));
        DirBuilder::new().mode(0o700).create(&directory)?;
        Ok(Self { directory })
    }

    pub(super) fn path(&self) -> PathBuf {
        self.directory.join("bridge.sock")
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // It is in a sandbox that goes, or the machine clears it away.
        let _left_behind = fs::remove_dir_all(&self.directory);
    }
}

impl Child {
    /// Starts it and waits until it is ready. Dropped in between, it is gone. An error is for a person.
    pub(super) async fn start(
        processes: &Processes,
        command: CommandSpec,
        socket: Socket,
        patience: Duration,
    ) -> Result<Self, String> {
        let mut running = processes
            .spawn(command)
            .map_err(|error| format!("the bridge program was not started: {error}"))?;
        let signs = Rc::new(Signs::default());
        let mut tasks = JoinSet::new();
        if let Some(stdout) = running.stdout.take() {
            let echo = Echo::new(Stream::Output);
            tasks.spawn_local(hear_out(stdout, Rc::clone(&signs), Says::WhenItListens, echo));
        }
        if let Some(stderr) = running.stderr.take() {
            let echo = Echo::new(Stream::Error);
            tasks.spawn_local(hear_out(stderr, Rc::clone(&signs), Says::Anything, echo));
        }
        let started = tokio::select! {
            started = meet(&mut running, &socket, &signs) => started,
            () = pass(patience) => {
                let waited = patience.as_secs();
                Err(format!("the bridge program was not ready within {waited} s{}", printed(&signs)))
            }
        };
        drop(socket);
        let stream = match started {
            Ok(stream) => stream,
            Err(why) => {
                end_all(&mut running).await;
                return Err(why);
            }
        };
        let (reading, writing) = stream.into_split();
        let (outgoing, to_write) = mpsc::channel(MAX_TO_WRITE);
        let (heard, lines) = mpsc::channel(MAX_HEARD);
        tasks.spawn_local(write(writing, to_write, Rc::clone(&signs)));
        tasks.spawn_local(read(reading, heard, Rc::clone(&signs)));
        let mut child = Self { running, outgoing, lines, signs, skipped: 0, _tasks: tasks };
        let ready = tokio::select! {
            ready = child.until_ready() => ready,
            () = pass(patience) => {
                let waited = patience.as_secs();
                Err(format!("the bridge program did not say that it is ready within {waited} s"))
            }
        };
        match ready {
            Ok(()) => Ok(child),
            Err(why) => {
                child.kill().await;
                Err(why)
            }
        }
    }

    async fn until_ready(&mut self) -> Result<(), String> {
        while let Some(heard) = self.next().await {
            if let Heard::Ready = heard {
                return Ok(());
            }
            self.skipped += 1;
        }
        Err(self.end().await)
    }

    /// Says something to it.
    pub(super) async fn say(&self, command: &Value) {
        let mut line = command.to_string().into_bytes();
        line.push(b'\n');
        // Who has ended need not know.
        let _ended = self.outgoing.send(line).await;
    }

    /// Says something to it, unless it does not listen.
    pub(super) fn say_now(&self, command: &Value) {
        let mut line = command.to_string().into_bytes();
        line.push(b'\n');
        let _full = self.outgoing.try_send(line);
    }

    /// What it says next; nothing: it talks no more. Safe to cancel.
    pub(super) async fn next(&mut self) -> Option<Heard> {
        loop {
            let line = self.lines.recv().await?;
            match wire::read(&line) {
                Some(heard) => return Some(heard),
                None if line.trim_ascii().is_empty() => {}
                None => self.skipped += 1,
            }
        }
    }

    /// Passes over what it has said that belongs to nothing; says how much that was.
    pub(super) fn skip(&mut self) -> u64 {
        let mut passed_over = 0;
        while self.lines.try_recv().is_ok() {
            passed_over += 1;
        }
        passed_over
    }

    /// Lines that said nothing, since this was last asked.
    pub(super) fn take_skipped(&mut self) -> u64 {
        std::mem::take(&mut self.skipped)
    }

    /// Whether it talks no more.
    pub(super) fn has_ended(&self) -> bool {
        self.lines.is_closed()
    }

    /// Whether nothing of what was said to it last got through to it.
    pub(super) async fn is_unheard(&self) -> bool {
        // What is still on its way fails as soon as it is tried.
        let _written_all = tokio::time::timeout(LOOK, self.outgoing.closed()).await;
        self.signs.is_unheard.get()
    }

    /// How it ended, once it talks no more. Nothing of it is left then.
    pub(super) async fn end(&mut self) -> String {
        let end = tokio::select! {
            end = self.running.wait() => Some(end),
            () = pass(END_GRACE) => None,
        };
        if end.is_none() {
            end_all(&mut self.running).await;
        }
        let how = match end {
            _ if self.signs.is_too_long.get() => {
                let most = MAX_LINE_BYTES / (1024 * 1024);
                format!("the bridge program sent a line of more than {most} MB")
            }
            Some(end) => how(&end),
            None => "the bridge program closed its connection".to_owned(),
        };
        how + &printed(&self.signs)
    }

    /// Ends it and everything it has started.
    pub(super) async fn kill(&mut self) {
        end_all(&mut self.running).await;
    }
}

/// Waits until it can be connected to.
async fn meet(running: &mut Running, socket: &Socket, signs: &Signs) -> Result<UnixStream, String> {
    let path = socket.path();
    loop {
        if let Ok(stream) = UnixStream::connect(&path).await {
            return Ok(stream);
        }
        tokio::select! {
            end = running.wait() => {
                return Err(format!("{} before it was ready{}", how(&end), printed(signs)));
            }
            () = signs.listens.notified() => {}
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

async fn end_all(running: &mut Running) {
    running.terminate(END_GRACE);
    running.gone().await;
}

fn how(end: &End) -> String {
    match end {
        End::Exited(code) => format!("the bridge program ended with code {code}"),
        End::Killed(signal) => format!("the bridge program was ended by signal {signal}"),
        End::NotStarted(why) => format!("the bridge program could not be started: {why}"),
        End::KeeperLost => "the bridge program is gone".to_owned(),
    }
}

/// What it printed last, to be put behind something.
fn printed(signs: &Signs) -> String {
    match String::from_utf8_lossy(&signs.printed.borrow()).trim() {
        "" => String::new(),
        printed => format!(": {printed}"),
    }
}

/// What a stream of it is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Says {
    /// Its first byte is a sign, if it is an `R`.
    WhenItListens,
    /// Whatever it is.
    Anything,
}

async fn hear_out(mut stream: pipe::Receiver, signs: Rc<Signs>, mut says: Says, mut echo: Echo) {
    let mut chunk = [0; 4096];
    loop {
        let read = match stream.read(&mut chunk).await {
            Ok(0) | Err(_) => return,
            Ok(read) => read,
        };
        let mut said = &chunk[..read];
        if says == Says::WhenItListens && said.first() == Some(&b'R') {
            signs.listens.notify_one();
            said = &said[1..];
        }
        says = Says::Anything;
        echo.hear(said);
        let mut kept = signs.printed.borrow_mut();
        kept.extend_from_slice(said);
        let excess = kept.len().saturating_sub(MAX_PRINTED_BYTES);
        kept.drain(..excess);
    }
}

async fn write(
    mut stream: OwnedWriteHalf,
    mut to_write: mpsc::Receiver<Vec<u8>>,
    signs: Rc<Signs>,
) {
    while let Some(line) = to_write.recv().await {
        let mut written = 0;
        while written < line.len() {
            match stream.write(&line[written..]).await {
                Ok(0) | Err(_) => {
                    signs.is_unheard.set(written == 0);
                    return;
                }
                Ok(more) => written += more,
            }
        }
    }
}

async fn read(mut stream: OwnedReadHalf, heard: mpsc::Sender<Vec<u8>>, signs: Rc<Signs>) {
    let mut buffer: Vec<u8> = Vec::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut searched = 0;
    loop {
        let read = match stream.read(&mut chunk).await {
            Ok(0) | Err(_) => return,
            Ok(read) => read,
        };
        buffer.extend_from_slice(&chunk[..read]);
        while let Some(at) = buffer[searched..].iter().position(|&byte| byte == b'\n') {
            let rest = buffer.split_off(searched + at + 1);
            searched = 0;
            if heard.send(std::mem::replace(&mut buffer, rest)).await.is_err() {
                return;
            }
        }
        searched = buffer.len();
        if buffer.len() > MAX_LINE_BYTES {
            signs.is_too_long.set(true);
            return;
        }
    }
}

impl std::fmt::Debug for Child {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Child").finish_non_exhaustive()
    }
}
