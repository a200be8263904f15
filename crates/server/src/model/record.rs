//! Remembers what the model was sent, in memory for tests and in a file for people.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fmt, mem};

use axum::http::HeaderMap;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::conversation::Conversation;

/// How many requests are kept in memory.
const MAX_KEPT: usize = 1_000;

/// How many bytes of bodies are kept in memory. The latest request is kept whatever its size.
const MAX_KEPT_BYTES: usize = 64 << 20;

/// A request that the model was sent.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The first request is number one.
    pub n: u64,
    /// With the query, as it was asked.
    pub path: String,
    /// The names of all headers, in lower case and in order. The values are not kept.
    pub header_names: Vec<String>,
    /// The key that came with it.
    pub key: Option<Key>,
    /// The body, or `Null` if it was not JSON.
    pub body: Value,
    /// What it was answered with: the kinds of the blocks (`thinking+text`), or what went wrong
    /// (`error 529`, `cut`).
    pub answer: String,
}

/// An API key. It can be compared, but not printed by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(String);

impl Key {
    /// The key of a request, from `x-api-key` or else `authorization`.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let value = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
        let bearer = || value("authorization").map(|of| of.strip_prefix("Bearer ").unwrap_or(of));
        let key = value("x-api-key").filter(|key| !key.is_empty()).or_else(bearer)?;
        (!key.is_empty()).then(|| Self(key.to_owned()))
    }

    /// The key itself, for assertions.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// Where requests are recorded.
pub(crate) struct Recorder {
    kept: Mutex<Kept>,
    count: watch::Sender<u64>,
}

struct Kept {
    requests: VecDeque<(Recorded, usize)>,
    bytes: usize,
    log: Option<File>,
}

/// What is recorded of a request before it has a number.
pub(crate) struct Entry<'a> {
    pub(crate) path: String,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: Value,
    pub(crate) size: usize,
    pub(crate) conversation: Option<&'a Conversation>,
    pub(crate) answer: String,
}

impl Recorder {
    pub(crate) fn new(log: Option<&Path>) -> io::Result<Self> {
        let open = |path| OpenOptions::new().create(true).append(true).open(path);
        let log = log.map(open).transpose()?;
        let kept = Kept { requests: VecDeque::new(), bytes: 0, log };
        Ok(Self { kept: Mutex::new(kept), count: watch::Sender::new(0) })
    }

    /// Records a request. It is in the file before it is answered.
    pub(crate) fn record(&self, mut entry: Entry<'_>) {
        let mut kept = self.lock();
        let n = *self.count.borrow() + 1;
        // Written under the lock, so that the lines are in order. The disk may make everybody
        // wait: this is a stand-in, and its log is for looking at one conversation.
        if let Some(log) = &mut kept.log
            && let Err(error) = entry.write(n, log)
        {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the scripted model could not log request {n}"
            );
        }
        let recorded = Recorded {
            n,
            path: entry.path,
            header_names: entry.headers.keys().map(|name| name.as_str().to_owned()).collect(),
            key: Key::of(entry.headers),
            body: entry.body,
            answer: entry.answer,
        };
        kept.bytes += entry.size;
        kept.requests.push_back((recorded, entry.size));
        while kept.requests.len() > MAX_KEPT
            || (kept.bytes > MAX_KEPT_BYTES && kept.requests.len() > 1)
        {
            let Some((_, size)) = kept.requests.pop_front() else { break };
            kept.bytes -= size;
        }
        // Still under the lock, so that no number is given twice.
        self.count.send_replace(n);
    }

    pub(crate) fn requests(&self) -> Vec<Recorded> {
        self.lock().requests.iter().map(|(recorded, _)| recorded.clone()).collect()
    }

    pub(crate) async fn received(&self, n: u64) {
        // The sender is in `self`, so waiting cannot fail.
        self.count.subscribe().wait_for(|count| *count >= n).await.ok();
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry<'_> {
    fn write(&mut self, n: u64, log: &mut File) -> io::Result<()> {
        let body = mem::take(&mut self.body);
        let messages = self.conversation.map(|of| of.messages.len());
        let mut line = json!({
            "n": n,
            "path": self.path,
            "model": body["model"],
            "stream": self.conversation.is_some_and(|of| of.stream),
            "messages": messages,
            "last_user_text": self.conversation.map(Conversation::prompt),
            "tools": self.conversation.map(|of| of.tools.clone()),
            "answer": self.answer,
            "body": body,
        });
        let mut text = line.to_string();
        text.push('\n');
        self.body = line["body"].take();
        log.write_all(text.as_bytes())?;
        log.flush()
    }
}
