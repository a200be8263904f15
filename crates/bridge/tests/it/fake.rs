//! A model that says what it was told to, byte by byte, and a bench to try the loop on.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use ash_bridge::builtin::model::Patience;
use ash_bridge::builtin::{Builtin, Settings};
use ash_bridge::exec::Env;
use ash_bridge::process::Processes;
use ash_bridge::questions::Questions;
use ash_bridge::reports::Reports;
use ash_protocol::{Ending, Event, Limits, Phase, Usage};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinSet, LocalSet};
use tokio_util::sync::CancellationToken;

/// What the model does with one connection.
pub(crate) enum Reply {
    /// Says this and closes.
    Say(Vec<u8>),
    /// Says this and nothing more, for ever.
    Hang(Vec<u8>),
    /// Says this, and then this again and again.
    Endless(Vec<u8>, Vec<u8>),
}

pub(crate) struct FakeModel {
    pub(crate) endpoint: SocketAddr,
    requests: watch::Receiver<Vec<Value>>,
    _serving: JoinSet<()>,
}

impl FakeModel {
    pub(crate) async fn new(replies: Vec<Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = listener.local_addr().unwrap();
        let (asked, requests) = watch::channel(Vec::new());
        let mut serving = JoinSet::new();
        serving.spawn_local(serve(listener, replies.into(), asked));
        Self { endpoint, requests, _serving: serving }
    }

    /// What it was asked, so far.
    pub(crate) fn requests(&self) -> Vec<Value> {
        self.requests.borrow().clone()
    }

    /// Waits until it was asked so often.
    pub(crate) async fn asked(&self, times: usize) {
        let mut requests = self.requests.clone();
        requests.wait_for(|requests| requests.len() >= times).await.unwrap();
    }
}

async fn serve(listener: TcpListener, replies: VecDeque<Reply>, asked: watch::Sender<Vec<Value>>) {
    let replies = Rc::new(RefCell::new(replies));
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        connections.spawn_local(answer(stream, Rc::clone(&replies), asked.clone()));
    }
}

async fn answer(
    mut stream: TcpStream,
    replies: Rc<RefCell<VecDeque<Reply>>>,
    asked: watch::Sender<Vec<Value>>,
) {
    // One that was interrupted before it had asked gets no answer, and uses none up.
    let Some(body) = read_request(&mut stream).await else { return };
    let reply = replies.borrow_mut().pop_front();
    asked.send_modify(|requests| requests.push(serde_json::from_slice(&body).unwrap()));
    match reply.unwrap_or_else(|| error(400, "test", "nothing to say")) {
        Reply::Say(bytes) => {
            let _gone = stream.write_all(&bytes).await;
        }
        Reply::Hang(bytes) => {
            let _gone = stream.write_all(&bytes).await;
            std::future::pending::<()>().await;
        }
        Reply::Endless(bytes, again) => {
            let _gone = stream.write_all(&bytes).await;
            while stream.write_all(&again).await.is_ok() {}
        }
    }
}

async fn read_request(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let read = stream.read(&mut chunk).await.ok().filter(|&read| read > 0)?;
        bytes.extend_from_slice(&chunk[..read]);
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap().to_lowercase();
        assert!(head.starts_with("post /v1/messages http/1.1"), "{head}");
        assert!(head.contains("anthropic-version: 2023-06-01"), "{head}");
        assert!(!head.contains("x-api-key") && !head.contains("authorization"), "{head}");
        let length = head.split("content-length: ").nth(1).unwrap();
        let length: usize = length.split("\r\n").next().unwrap().parse().unwrap();
        if bytes.len() >= end + 4 + length {
            return Some(bytes.split_off(end + 4));
        }
    }
}

const STREAM: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";

/// A stream of these events, each under its own type.
pub(crate) fn stream(events: &[Value]) -> Vec<u8> {
    let mut bytes = STREAM.as_bytes().to_vec();
    for event in events {
        let name = event["type"].as_str().unwrap();
        bytes.extend_from_slice(format!("event: {name}\ndata: {event}\n\n").as_bytes());
    }
    bytes
}

/// The events of an answer with these blocks.
pub(crate) fn events(blocks: &[Value], stop_reason: &str) -> Vec<Value> {
    let usage = json!({ "input_tokens": 100, "output_tokens": 1 });
    let mut events = vec![
        json!({ "type": "message_start", "message": {
            "id": "msg", "model": "claude-sonnet-4-5", "role": "assistant", "content": [],
            "stop_reason": null, "usage": usage } }),
        json!({ "type": "ping" }),
    ];
    for (index, block) in blocks.iter().enumerate() {
        let mut start = block.clone();
        let mut deltas = Vec::new();
        match block["type"].as_str().unwrap() {
            "text" => {
                start["text"] = "".into();
                let text = block["text"].as_str().unwrap();
                let half = text.floor_char_boundary(text.len() / 2);
                for text in [&text[..half], &text[half..]] {
                    deltas.push(json!({ "type": "text_delta", "text": text }));
                }
            }
            "thinking" => {
                start = json!({ "type": "thinking", "thinking": "", "signature": "" });
                let (thinking, signature) = (&block["thinking"], &block["signature"]);
                deltas.push(json!({ "type": "thinking_delta", "thinking": thinking }));
                deltas.push(json!({ "type": "signature_delta", "signature": signature }));
            }
            "tool_use" => {
                start["input"] = json!({});
                let input = block["input"].to_string();
                let (a, b) = input.split_at(input.len() / 2);
                deltas.push(json!({ "type": "input_json_delta", "partial_json": a }));
                deltas.push(json!({ "type": "input_json_delta", "partial_json": b }));
            }
            _ => {}
        }
        events
            .push(json!({ "type": "content_block_start", "index": index, "content_block": start }));
        for delta in deltas {
            events.push(json!({ "type": "content_block_delta", "index": index, "delta": delta }));
        }
        events.push(json!({ "type": "content_block_stop", "index": index }));
    }
    events.push(json!({ "type": "message_delta", "delta": { "stop_reason": stop_reason },
        "usage": { "output_tokens": 10 } }));
    events.push(json!({ "type": "message_stop" }));
    events
}

/// An answer with these blocks.
pub(crate) fn blocks(blocks: &[Value], stop_reason: &str) -> Reply {
    Reply::Say(stream(&events(blocks, stop_reason)))
}

/// An answer of one text.
pub(crate) fn text(text: &str) -> Reply {
    blocks(&[json!({ "type": "text", "text": text })], "end_turn")
}

/// An answer that calls tools.
pub(crate) fn tools(calls: &[(&str, &str, Value)]) -> Reply {
    let call = |(id, name, input): &(&str, &str, Value)| json!({ "type": "tool_use", "id": id, "name": name, "input": input });
    blocks(&calls.iter().map(call).collect::<Vec<_>>(), "tool_use")
}

/// The beginning of an answer: this text, and no end.
pub(crate) fn begun(text: &str) -> Vec<u8> {
    let events = events(&[json!({ "type": "text", "text": text })], "end_turn");
    stream(&events[..events.len() - 3])
}

/// An answer that is an error.
pub(crate) fn error(status: u16, kind: &str, message: &str) -> Reply {
    let body = json!({ "type": "error", "error": { "type": kind, "message": message } });
    http(status, "application/json", &body.to_string())
}

/// Any answer at all.
pub(crate) fn http(status: u16, kind: &str, body: &str) -> Reply {
    let length = body.len();
    Reply::Say(
        format!(
            "HTTP/1.1 {status} Whatever\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\
             retry-after: 0\r\n\r\n{body}"
        )
        .into(),
    )
}

/// A place to try the loop in.
pub(crate) struct Bench {
    pub(crate) model: FakeModel,
    pub(crate) settings: Settings,
    _directory: tempfile::TempDir,
}

/// What came of a run.
pub(crate) struct Told {
    pub(crate) ending: Ending,
    pub(crate) usage: Usage,
    pub(crate) events: Vec<Event>,
}

impl Bench {
    pub(crate) async fn new(replies: Vec<Reply>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let model = FakeModel::new(replies).await;
        let workspace = directory.path().join("workspace");
        std::fs::create_dir(&workspace).unwrap();
        let home = directory.path().join("home");
        let settings = Settings {
            workspace,
            env: Env::new(&home, Some("/usr/bin:/bin"), None, None, &BTreeMap::new()).0,
            refused_variables: Vec::new(),
            home,
            model: "claude-sonnet-4-5".to_owned(),
            limits: Limits::default(),
            system_prompt: None,
            remark: None,
            mcp_servers: None,
            allowed_tools: Vec::new(),
            disallowed_tools: Vec::new(),
            permission_mode: None,
            questions: Questions::default(),
            endpoint: model.endpoint,
            patience: Patience {
                attempts: 4,
                idle: Duration::from_secs(60),
                whole: Duration::from_secs(600),
                base: Duration::from_millis(1),
                cap: Duration::from_millis(2),
            },
        };
        Self { model, settings, _directory: directory }
    }

    pub(crate) async fn open(&self) -> Builtin {
        let processes = Processes::new(PathBuf::from(env!("CARGO_BIN_EXE_ash-bridge")));
        Builtin::open(self.settings.clone(), processes).unwrap()
    }

    /// The same place with another model.
    pub(crate) async fn ask_another(&mut self, replies: Vec<Reply>) {
        self.model = FakeModel::new(replies).await;
        self.settings.endpoint = self.model.endpoint;
    }

    /// Opens, works on one prompt, and closes.
    pub(crate) async fn turn(&self, prompt: Value) -> Told {
        let mut builtin = self.open().await;
        let told = run(&mut builtin, prompt).await;
        builtin.close().await;
        told
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.settings.home.join(".ash").join(name)
    }

    pub(crate) fn write(&self, name: &str, content: &str) {
        std::fs::write(self.settings.workspace.join(name), content).unwrap();
    }

    /// The messages of the `at`-th request, which must be valid.
    pub(crate) fn sent(&self, at: usize) -> Vec<Value> {
        let requests = self.model.requests();
        let messages = requests[at]["messages"].as_array().unwrap().clone();
        assert_valid(&messages);
        messages
    }
}

pub(crate) async fn run(builtin: &mut Builtin, prompt: Value) -> Told {
    run_until(builtin, prompt, |_| false).await
}

/// Runs, and interrupts as soon as an event is the right one.
pub(crate) async fn run_until(
    builtin: &mut Builtin,
    prompt: Value,
    mut right: impl FnMut(&Event) -> bool,
) -> Told {
    let interrupt = CancellationToken::new();
    let cancel = interrupt.clone();
    run_with(builtin, prompt, interrupt, |event| {
        if right(event) {
            cancel.cancel();
        }
    })
    .await
}

/// Runs, and interrupts as soon as something else has happened.
pub(crate) async fn run_while(
    builtin: &mut Builtin,
    prompt: Value,
    happens: impl Future<Output = ()>,
) -> Told {
    let interrupt = CancellationToken::new();
    let cancel = interrupt.clone();
    let running = run_with(builtin, prompt, interrupt, |_| {});
    let waiting = async {
        happens.await;
        cancel.cancel();
    };
    tokio::join!(running, waiting).0
}

pub(crate) async fn run_with(
    builtin: &mut Builtin,
    prompt: Value,
    interrupt: CancellationToken,
    mut hear: impl FnMut(&Event),
) -> Told {
    let (reports, mut told) = Reports::channel();
    let prompt = raw(&prompt);
    let mut events = Vec::new();
    let running = async {
        let ended = builtin.run("run-1", &prompt, &reports, interrupt).await;
        drop(reports);
        ended
    };
    let listening = async {
        while let Some(event) = told.recv().await {
            hear(&event);
            events.push(event);
        }
    };
    let ((ending, usage), ()) = tokio::join!(Box::pin(running), listening);
    Told { ending, usage, events }
}

/// Runs until an event is the right one, and then is killed: nothing of it goes on.
pub(crate) async fn kill_when(
    builtin: &mut Builtin,
    prompt: Value,
    mut right: impl FnMut(&Event) -> bool,
) {
    let (reports, mut told) = Reports::channel();
    let prompt = raw(&prompt);
    let running = builtin.run("run-1", &prompt, &reports, CancellationToken::new());
    let watching = async {
        while let Some(event) = told.recv().await {
            if right(&event) {
                return;
            }
        }
    };
    tokio::select! {
        biased;
        () = watching => {}
        _ = Box::pin(running) => {}
    }
}

impl Told {
    /// Everything that was reported, in words.
    pub(crate) fn in_words(&self) -> Vec<String> {
        self.events.iter().map(in_words).collect()
    }

    /// The bodies of the outputs of this name.
    pub(crate) fn outputs(&self, name: &str) -> Vec<Value> {
        self.events.iter().filter_map(|event| output(event, name)).collect()
    }

    /// The bodies of the messages.
    pub(crate) fn messages(&self) -> Vec<Value> {
        let body = |event: &Event| {
            let Event::Message(body) = event else { return None };
            Some(serde_json::from_str(body.get()).unwrap())
        };
        self.events.iter().filter_map(body).collect()
    }

    /// What the turn says last about itself, if it does.
    pub(crate) fn result(&self) -> Option<Value> {
        self.messages().pop().filter(|body| body["type"] == "result")
    }
}

/// The body of an output, if it has this name.
pub(crate) fn output(event: &Event, wanted: &str) -> Option<Value> {
    let Event::Output { name, body } = event else { return None };
    if name == wanted { serde_json::from_str(body.get()).ok() } else { None }
}

fn in_words(event: &Event) -> String {
    match event {
        Event::Begun | Event::Ended { .. } => panic!("that is for the caller to say"),
        Event::Phase { phase, round } => {
            let phase = match phase {
                Phase::StreamingLlm => "streaming",
                Phase::ExecutingTools => "tools",
                Phase::DelegatingCoder => "coder",
            };
            format!("phase {phase} {round}")
        }
        Event::Retry { round } => format!("retry {round}"),
        Event::TextDelta(text) => format!("text {text}"),
        Event::ThinkingDelta(text) => format!("thinking {text}"),
        Event::Message(body) => {
            let body: Value = serde_json::from_str(body.get()).unwrap();
            match body["type"].as_str().unwrap() {
                "assistant" => format!("message {}", body["message"]["stop_reason"]),
                "user" => {
                    format!("results {}", body["message"]["content"].as_array().unwrap().len())
                }
                "result" => format!("result {}", body["subtype"].as_str().unwrap()),
                other => panic!("a message of type {other}"),
            }
        }
        Event::Output { name, .. } => format!("output {name}"),
        Event::Question { tool, .. } => format!("question {tool}"),
        Event::Answered { how, .. } => format!("answered {how:?}"),
    }
}

pub(crate) fn raw(value: &Value) -> Box<RawValue> {
    to_raw_value(value).unwrap()
}

/// What the API insists on.
pub(crate) fn assert_valid(messages: &[Value]) {
    let ids = |message: Option<&Value>, kind: &str, field: &str| -> Vec<String> {
        let blocks = message.map(|m| m["content"].as_array().unwrap().clone()).unwrap_or_default();
        let of_kind = blocks.iter().filter(|block| block["type"] == kind);
        of_kind.map(|block| block[field].as_str().unwrap().to_owned()).collect()
    };
    for (at, message) in messages.iter().enumerate() {
        let role = if at % 2 == 0 { "user" } else { "assistant" };
        assert_eq!(message["role"], role, "{messages:#?}");
        assert!(!message["content"].as_array().unwrap().is_empty(), "{messages:#?}");
        let called = ids(Some(message), "tool_use", "id");
        let answered = ids(messages.get(at + 1), "tool_result", "tool_use_id");
        if role == "assistant" {
            assert_eq!(called, answered, "{messages:#?}");
        }
    }
    assert!(ids(messages.first(), "tool_result", "tool_use_id").is_empty(), "{messages:#?}");
}

/// One thread, as in the bridge.
pub(crate) fn local<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, future)
}
