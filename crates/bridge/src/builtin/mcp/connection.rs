//! One running server: JSON-RPC in lines, over its standard streams.
//!
//! Answers find their callers by number, in whatever order they come. Three tasks read, write and
//! drain; they end with the connection, and so does the server's whole tree. When the server stops
//! talking, everybody who waits is told at once.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::lines::Lines;
use crate::process::Running;

/// How many messages may wait to be written to a server that does not read.
const MAX_WAITING: usize = 64;
/// How much of a server's complaints is kept, for the reason of its end.
const MAX_COMPLAINT_BYTES: usize = 2_000;
/// How long a server may tidy up.
const GRACE: Duration = Duration::from_secs(2);
/// How long its end is waited for in all.
const END_WAIT: Duration = Duration::from_secs(5);

type Waiting = oneshot::Sender<Result<Box<RawValue>, String>>;

/// What the tasks of a connection and its callers share.
struct Shared {
    /// The server, until it is ended.
    running: RefCell<Option<Running>>,
    waiting: RefCell<BTreeMap<u64, Waiting>>,
    /// Why the server no longer talks.
    ended: RefCell<Option<String>>,
    complaints: RefCell<Vec<u8>>,
}

/// A server that runs.
pub(super) struct Connection {
    outgoing: mpsc::Sender<String>,
    shared: Rc<Shared>,
    next_id: Cell<u64>,
    _tasks: JoinSet<()>,
}

impl Connection {
    /// Takes over a server that was started with all its streams piped.
    pub(super) fn new(mut running: Running) -> Self {
        let (outgoing, to_write) = mpsc::channel(MAX_WAITING);
        let (stdin, stdout) = (running.stdin.take(), running.stdout.take());
        let stderr = running.stderr.take();
        let shared = Rc::new(Shared {
            running: RefCell::new(Some(running)),
            waiting: RefCell::default(),
            ended: RefCell::default(),
            complaints: RefCell::default(),
        });
        let mut tasks = JoinSet::new();
        if let Some(stdin) = stdin {
            tasks.spawn_local(write(stdin, to_write));
        }
        if let Some(stderr) = stderr {
            tasks.spawn_local(complain(stderr, shared.clone()));
        }
        if let Some(stdout) = stdout {
            tasks.spawn_local(read(stdout, outgoing.clone(), shared.clone()));
        }
        Self { outgoing, shared, next_id: Cell::new(1), _tasks: tasks }
    }

    /// Why the server no longer talks, if it does not.
    pub(super) fn ended(&self) -> Option<String> {
        let ended = self.shared.ended.borrow();
        let complaints = String::from_utf8_lossy(&self.shared.complaints.borrow()).into_owned();
        ended.as_ref().map(|why| match complaints.trim() {
            "" => why.clone(),
            complaints => format!("{why}; it complained: {complaints}"),
        })
    }

    /// Asks something and waits for the answer. Dropping it tells the server not to bother.
    pub(super) fn request(
        &self,
        method: &str,
        params: &str,
    ) -> impl Future<Output = Result<Box<RawValue>, String>> + use<> {
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        let (answer, answered) = oneshot::channel();
        let message =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
        if self.shared.ended.borrow().is_none() {
            self.shared.waiting.borrow_mut().insert(id, answer);
        }
        let mut pending = Pending {
            id,
            shared: self.shared.clone(),
            outgoing: self.outgoing.clone(),
            // A server must not be told that its beginning is cancelled.
            is_open: method != "initialize",
        };
        async move {
            let answer = pending.ask(message, answered).await;
            answer.unwrap_or_else(|_| Err("the server ended".to_owned()))
        }
    }

    /// Says something that is not answered.
    pub(super) async fn notify(&self, method: &str) {
        let message = json!({ "jsonrpc": "2.0", "method": method });
        // Who has ended need not know.
        let _ended = self.outgoing.send(message.to_string()).await;
    }

    /// Ends the server, and waits until nothing of it is left.
    pub(super) async fn end(self) {
        let Some(mut running) = self.shared.running.take() else { return };
        running.terminate(GRACE);
        let _unkillable = tokio::time::timeout(END_WAIT, running.gone()).await;
    }
}

impl Drop for Connection {
    /// The tasks share the server and end a moment later; it must not wait for them.
    fn drop(&mut self) {
        kill(&self.shared);
    }
}

/// Kills the server with everything it started, also what it left in the background.
fn kill(shared: &Shared) {
    if let Some(mut running) = shared.running.take() {
        running.terminate(Duration::ZERO);
    }
}

/// A request that may be given up.
struct Pending {
    id: u64,
    shared: Rc<Shared>,
    outgoing: mpsc::Sender<String>,
    is_open: bool,
}

impl Pending {
    async fn ask<T>(
        &mut self,
        message: String,
        answered: oneshot::Receiver<T>,
    ) -> Result<T, oneshot::error::RecvError> {
        // A closed channel shows itself in the answer that does not come.
        let _ended = self.outgoing.send(message).await;
        let answer = answered.await;
        self.is_open = false;
        answer
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.shared.waiting.borrow_mut().remove(&self.id);
        if self.is_open {
            let params = json!({ "requestId": self.id, "reason": "nobody waits for it" });
            let method = "notifications/cancelled";
            let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
            // A courtesy: a server that does not even read is not told.
            let _full = self.outgoing.try_send(message.to_string());
        }
    }
}

async fn write(mut stdin: pipe::Sender, mut messages: mpsc::Receiver<String>) {
    while let Some(mut message) = messages.recv().await {
        message.push('\n');
        if stdin.write_all(message.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn complain(mut stderr: pipe::Receiver, shared: Rc<Shared>) {
    let mut chunk = [0; 1024];
    while let Ok(read @ 1..) = stderr.read(&mut chunk).await {
        let mut complaints = shared.complaints.borrow_mut();
        complaints.extend_from_slice(&chunk[..read]);
        let surplus = complaints.len().saturating_sub(MAX_COMPLAINT_BYTES);
        complaints.drain(..surplus);
    }
}

async fn read(stdout: pipe::Receiver, outgoing: mpsc::Sender<String>, shared: Rc<Shared>) {
    let mut lines = Lines::new(stdout);
    let why = loop {
        match lines.next().await {
            Ok(Some(line)) => hear(&line, &outgoing, &shared),
            Ok(None) => break "the server ended".to_owned(),
            Err(why) => break why,
        }
    };
    // Who no longer talks is of no use, whatever else it does.
    kill(&shared);
    shared.ended.replace(Some(why.clone()));
    for (_, waiting) in std::mem::take(&mut *shared.waiting.borrow_mut()) {
        // Who gave up meanwhile does not mind.
        let _gone = waiting.send(Err(why.clone()));
    }
}

#[derive(Deserialize)]
struct Message {
    id: Option<Value>,
    method: Option<String>,
    result: Option<Box<RawValue>>,
    error: Option<Value>,
}

/// Takes in one line. What is no message is passed over: many servers log where they should not.
fn hear(line: &[u8], outgoing: &mpsc::Sender<String>, shared: &Shared) {
    let Ok(message) = serde_json::from_slice::<Message>(line) else { return };
    match (message.method, message.id) {
        (Some(method), Some(id)) => {
            let answer = if method == "ping" {
                json!({ "jsonrpc": "2.0", "id": id, "result": {} })
            } else {
                let error = json!({ "code": -32601, "message": "method not found" });
                json!({ "jsonrpc": "2.0", "id": id, "error": error })
            };
            // A server that asks and does not read is not answered.
            let _full = outgoing.try_send(answer.to_string());
        }
        (Some(_notification), None) => {}
        (None, id) => {
            let id = id.as_ref().and_then(Value::as_u64);
            let Some(waiting) = id.and_then(|id| shared.waiting.borrow_mut().remove(&id)) else {
                return;
            };
            let answer = match (message.result, message.error) {
                (Some(result), None) => Ok(result),
                (_, Some(error)) => Err(describe(&error)),
                (None, None) => Err("the server answered neither a result nor an error".to_owned()),
            };
            let _gone = waiting.send(answer);
        }
    }
}

fn describe(error: &Value) -> String {
    let message = error.get("message").and_then(Value::as_str).unwrap_or("no message");
    let code = error.get("code").map(Value::to_string).unwrap_or_default();
    message.chars().take(2_000).chain(format!(" (error {code})").chars()).collect()
}
