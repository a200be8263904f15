//! The program itself: lines of JSON in, lines of JSON out.
//!
//! Three tasks read, write and listen to complaints; they end with it. Nothing that it prints is believed: a
//! line has a bound, and what is no JSON is passed over and counted.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::echo::{Echo, Stream};
use crate::process::{CommandSpec, End, Processes, Running};
use crate::questions::pass;

/// How long a line may be. A program that goes on is ended.
const MAX_LINE_BYTES: usize = 32 * 1024 * 1024;
/// How much is read at once.
const CHUNK_BYTES: usize = 64 * 1024;
/// How many lines may wait to be taken, and to be written.
const MAX_HEARD: usize = 64;
const MAX_TO_WRITE: usize = 64;
/// How much of its complaints is kept, for the reason of its end.
const MAX_COMPLAINT_BYTES: usize = 4_000;
/// How long it may take to begin to talk. Less than the server waits for a prompt to be taken: so it is told why.
pub(super) const INITIALIZE_PATIENCE: Duration = Duration::from_secs(25);
/// How long its end is waited for once it was asked to end, and once it was told to.
const END_PATIENCE: Duration = Duration::from_secs(5);
const END_GRACE: Duration = Duration::from_secs(2);

/// What it says first is the answer to this.
const INITIALIZE: &str = "initialize";

/// What it said.
#[derive(Debug)]
pub(super) struct Heard {
    /// The line as it came.
    pub(super) raw: Box<RawValue>,
    pub(super) head: Head,
}

/// What every line says of itself.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Head {
    pub(super) r#type: String,
    pub(super) subtype: Option<String>,
    pub(super) request_id: Option<String>,
    pub(super) parent_tool_use_id: Option<String>,
    pub(super) uuid: Option<String>,
    pub(super) response: Option<Response>,
}

/// How it answers what it was asked.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Response {
    pub(super) subtype: String,
    pub(super) request_id: String,
    pub(super) error: Option<String>,
}

/// Why it does not go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Trouble {
    /// It does not know the conversation that it was to go on with.
    #[error("Claude Code does not find its conversation: {0}")]
    NoConversation(String),
    /// It knows one of that name already.
    #[error("Claude Code has a conversation of that name: {0}")]
    NameTaken(String),
    /// What was written down of the conversation is not there any more.
    #[error("the record of the conversation was removed or damaged")]
    RecordGone,
    /// It says nothing, for so many seconds.
    #[error("Claude Code did not begin to talk within {0} s")]
    Silent(u64),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

/// The program, running.
pub(super) struct Program {
    running: Running,
    outgoing: Option<mpsc::Sender<String>>,
    lines: mpsc::Receiver<Vec<u8>>,
    complaints: Rc<RefCell<Vec<u8>>>,
    /// How it ended, once that is known, and whether it was asked to.
    end: Option<End>,
    is_closing: bool,
    /// Lines that were none.
    garbage: u64,
    next_request: u64,
    _tasks: JoinSet<()>,
}

impl Program {
    /// Starts it and waits until it talks. Dropped in between, it is gone.
    pub(super) async fn start(
        processes: &Processes,
        command: CommandSpec,
        greeting: serde_json::Value,
    ) -> Result<Self, Trouble> {
        let mut running = processes
            .spawn(command)
            .map_err(|error| Trouble::Other(format!("Claude Code was not started: {error}")))?;
        let (stdin, stdout, stderr) =
            (running.stdin.take(), running.stdout.take(), running.stderr.take());
        let (outgoing, to_write) = mpsc::channel(MAX_TO_WRITE);
        let (heard, lines) = mpsc::channel(MAX_HEARD);
        let complaints = Rc::new(RefCell::new(Vec::new()));
        let mut tasks = JoinSet::new();
        if let Some(stdin) = stdin {
            tasks.spawn_local(write(stdin, to_write));
        }
        if let Some(stdout) = stdout {
            tasks.spawn_local(read(stdout, heard));
        }
        if let Some(stderr) = stderr {
            tasks.spawn_local(complain(stderr, Rc::clone(&complaints)));
        }
        let mut program = Self {
            running,
            outgoing: Some(outgoing),
            lines,
            complaints,
            end: None,
            is_closing: false,
            garbage: 0,
            next_request: 1,
            _tasks: tasks,
        };
        let initialized = tokio::select! {
            initialized = program.initialize(greeting) => initialized,
            () = pass(INITIALIZE_PATIENCE) => Err(Trouble::Silent(INITIALIZE_PATIENCE.as_secs())),
        };
        match initialized {
            Ok(()) => Ok(program),
            Err(trouble) => {
                program.kill().await;
                Err(trouble)
            }
        }
    }

    async fn initialize(&mut self, greeting: serde_json::Value) -> Result<(), Trouble> {
        self.say(&json!({
            "type": "control_request",
            "request_id": INITIALIZE,
            "request": greeting,
        }))
        .await;
        let mut said = String::new();
        while let Some(heard) = self.next().await {
            match heard.head.response {
                Some(response) if response.request_id == INITIALIZE => {
                    return match (response.subtype.as_str(), response.error) {
                        ("success", _) => Ok(()),
                        (_, error) => Err(trouble_of(&error.unwrap_or_default())),
                    };
                }
                Some(_) | None if heard.head.r#type == "result" => said = errors_of(&heard.raw),
                Some(_) | None => {}
            }
        }
        let end = self.end().await;
        Err(if said.is_empty() { trouble_of(&end) } else { trouble_of(&format!("{said}; {end}")) })
    }

    /// Says something to it. Waits while it does not listen.
    pub(super) async fn say(&self, message: &serde_json::Value) {
        if let Some(outgoing) = &self.outgoing {
            // Who has ended need not know.
            let _ended = outgoing.send(message.to_string()).await;
        }
    }

    /// Says something to it, unless too much waits to be said already.
    pub(super) fn say_now(&self, message: &serde_json::Value) {
        if let Some(outgoing) = &self.outgoing {
            let _full = outgoing.try_send(message.to_string());
        }
    }

    /// Whether it says nothing any more.
    pub(super) fn has_ended(&self) -> bool {
        self.lines.is_closed()
    }

    /// Asks something of it, which it answers with this number.
    pub(super) async fn ask(&mut self, request: serde_json::Value) -> String {
        let id = format!("ash-{}", self.next_request);
        self.next_request += 1;
        let message = json!({ "type": "control_request", "request_id": id, "request": request });
        self.say(&message).await;
        id
    }

    /// What it says next; nothing: it has ended. Safe to cancel.
    pub(super) async fn next(&mut self) -> Option<Heard> {
        loop {
            let line = tokio::select! {
                biased;
                line = self.lines.recv() => line?,
                // What it started may hold its output open, and would be listened to for ever.
                end = self.running.wait(), if self.end.is_none() => {
                    self.note_end(end);
                    continue;
                }
            };
            let raw = String::from_utf8(line).ok().and_then(|line| {
                let line = line.trim();
                line.starts_with('{').then(|| RawValue::from_string(line.to_owned()).ok()).flatten()
            });
            let heard = raw.and_then(|raw| {
                let head = serde_json::from_str(raw.get()).ok()?;
                Some(Heard { raw, head })
            });
            match heard {
                Some(heard) => return Some(heard),
                None => self.garbage += 1,
            }
        }
    }

    /// How many lines were none.
    pub(super) fn garbage(&self) -> u64 {
        self.garbage
    }

    /// Takes note of its end. What it has started ends with it: an agent that is started again would find somebody at
    /// work of whom it knows nothing.
    fn note_end(&mut self, end: End) {
        self.end = Some(end);
        if !self.has_ended_as_asked() {
            self.running.terminate(END_GRACE);
        }
    }

    fn has_ended_as_asked(&self) -> bool {
        self.is_closing && matches!(self.end, Some(End::Exited(_)))
    }

    /// How it ended, once it says nothing any more. Nothing that it has started is left then.
    pub(super) async fn end(&mut self) -> String {
        if self.end.is_none() {
            tokio::select! {
                end = self.running.wait() => self.note_end(end),
                () = tokio::time::sleep(END_GRACE) => {}
            }
        }
        self.kill().await;
        let how = match &self.end {
            Some(End::Exited(code)) => format!("Claude Code ended with code {code}"),
            Some(End::Killed(signal)) => format!("Claude Code was ended by signal {signal}"),
            Some(End::NotStarted(why)) => format!("Claude Code could not be started: {why}"),
            Some(End::KeeperLost) => "Claude Code is gone".to_owned(),
            None => "Claude Code talks no more".to_owned(),
        };
        let complaints = self.complaints.borrow();
        match String::from_utf8_lossy(&complaints).trim() {
            "" => how,
            complaints => format!("{how}: {complaints}"),
        }
    }

    /// Lets it end by itself, and hands over what it still says. What it left running in the background stays, unless it
    /// had ended already, or is killed.
    pub(super) async fn close(mut self, mut last: impl FnMut(Heard)) {
        self.is_closing = self.end.is_none() && !self.has_ended();
        // An end of its input ends it.
        self.outgoing = None;
        let ended = async {
            while let Some(heard) = self.next().await {
                last(heard);
            }
            let end = self.running.wait().await;
            self.note_end(end);
        };
        let is_late = tokio::select! {
            () = ended => false,
            () = pass(END_PATIENCE) => true,
        };
        if is_late || !self.has_ended_as_asked() {
            self.kill().await;
        }
    }

    /// Ends it and everything it has started.
    pub(super) async fn kill(&mut self) {
        self.running.terminate(END_GRACE);
        tokio::select! {
            () = self.running.gone() => {}
            () = tokio::time::sleep(END_PATIENCE) => {}
        }
    }
}

/// What is wrong, by what it says of it.
fn trouble_of(said: &str) -> Trouble {
    let said = said.trim().to_owned();
    if said.contains("No conversation found") {
        Trouble::NoConversation(said)
    } else if said.contains("is already in use") {
        Trouble::NameTaken(said)
    } else {
        Trouble::Other(said)
    }
}

fn errors_of(result: &RawValue) -> String {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Errors {
        errors: Vec<String>,
    }
    let errors: Errors = serde_json::from_str(result.get()).unwrap_or_default();
    errors.errors.join("; ")
}

async fn write(mut stdin: pipe::Sender, mut lines: mpsc::Receiver<String>) {
    while let Some(mut line) = lines.recv().await {
        line.push('\n');
        if stdin.write_all(line.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn read(mut stdout: pipe::Receiver, heard: mpsc::Sender<Vec<u8>>) {
    let (mut buffer, mut searched) = (Vec::new(), 0);
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let read = match stdout.read(&mut chunk).await {
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
            return;
        }
    }
}

async fn complain(mut stderr: pipe::Receiver, complaints: Rc<RefCell<Vec<u8>>>) {
    let mut echo = Echo::new(Stream::Error);
    let mut chunk = [0; 4096];
    loop {
        match stderr.read(&mut chunk).await {
            Ok(0) | Err(_) => return,
            Ok(read) => {
                echo.hear(&chunk[..read]);
                let mut kept = complaints.borrow_mut();
                kept.extend_from_slice(&chunk[..read]);
                let excess = kept.len().saturating_sub(MAX_COMPLAINT_BYTES);
                kept.drain(..excess);
            }
        }
    }
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Program").finish_non_exhaustive()
    }
}
